//! Exact sums.

use esker_coding::{Reader, put_varint};

use crate::schema::ordered::Amount;

/// The sum of numbers, in any order of arrival: whole numbers in 256 bits, floats as numbers that
/// do not overlap (Shewchuk), so that the result does not depend on the order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sum {
    /// How many numbers.
    pub(super) count: u64,
    /// The whole numbers: `high * 2^128 + low`.
    high: i128,
    low: u128,
    /// The floats, the least first.
    parts: Vec<f64>,
    has_floats: bool,
    /// True if a number cannot be represented.
    is_beyond: bool,
}

/// A sum that can be represented.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Total {
    Whole(i128),
    Float(f64),
}

impl Sum {
    /// Adds a number; ignores other values.
    pub(super) fn add(&mut self, amount: Amount) {
        match amount {
            Amount::None => return,
            Amount::Whole(v) => self.add_wide((if v < 0 { -1 } else { 0 }, v as u128)),
            Amount::Float(v) => {
                self.has_floats = true;
                self.add_float(v);
            }
            Amount::Beyond => self.is_beyond = true,
        }
        self.count += 1;
    }

    fn add_wide(&mut self, (high, low): (i128, u128)) {
        let (sum, carries) = self.low.overflowing_add(low);
        self.low = sum;
        self.high = self
            .high
            .wrapping_add(high)
            .wrapping_add(i128::from(carries));
    }

    fn add_float(&mut self, mut v: f64) {
        self.parts.retain_mut(|part| {
            if v.abs() < part.abs() {
                std::mem::swap(&mut v, part);
            }
            let sum = v + *part;
            *part -= sum - v;
            v = sum;
            *part != 0.0
        });
        self.parts.push(v);
        self.is_beyond |= !v.is_finite();
    }

    /// Adds the numbers of another sum.
    pub(super) fn merge(&mut self, other: &Sum) {
        self.count += other.count;
        self.add_wide((other.high, other.low));
        other.parts.iter().for_each(|part| self.add_float(*part));
        self.has_floats |= other.has_floats;
        self.is_beyond |= other.is_beyond;
    }

    /// The sum; `None` if it cannot be represented.
    pub(super) fn total(&self) -> Option<Total> {
        let whole = self.low as i128;
        let fits = self.high == if whole < 0 { -1 } else { 0 };
        if self.is_beyond || !fits {
            return None;
        }
        if !self.has_floats {
            return Some(Total::Whole(whole));
        }
        let mut all = self.clone();
        let mut rest = whole;
        while rest != 0 {
            // Rounded towards zero, so that the rest gets shorter and keeps its sign.
            let bits = 128 - rest.unsigned_abs().leading_zeros();
            let dropped = bits.saturating_sub(53);
            let part = rest / (1 << dropped) * (1 << dropped);
            all.add_float(part as f64);
            rest -= part;
        }
        let total = all.rounded();
        total.is_finite().then_some(Total::Float(total))
    }

    /// The sum of the parts, rounded once, to the nearest float.
    fn rounded(&self) -> f64 {
        let mut parts = self.parts.iter().rev().copied();
        let Some(mut high) = parts.next() else {
            return 0.0;
        };
        let mut low = 0.0;
        for part in parts.by_ref() {
            let sum = high + part;
            low = part - (sum - high);
            high = sum;
            if low != 0.0 {
                break;
            }
        }
        // Half-way cases are decided by the next part.
        if let Some(next) = parts.next()
            && low != 0.0
            && (low < 0.0) == (next < 0.0)
        {
            let twice = 2.0 * low;
            let sum = high + twice;
            if sum - high == twice {
                high = sum;
            }
        }
        high
    }

    /// The mean; `None` if the sum cannot be represented.
    pub(super) fn mean(&self) -> Option<f64> {
        let total = match self.total()? {
            Total::Whole(v) => v as f64,
            Total::Float(v) => v,
        };
        Some(total / self.count as f64)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        out.push(u8::from(self.has_floats) | u8::from(self.is_beyond) << 1);
        out.extend_from_slice(&self.high.to_le_bytes());
        out.extend_from_slice(&self.low.to_le_bytes());
        put_varint(out, self.parts.len() as u64);
        for part in &self.parts {
            out.extend_from_slice(&part.to_le_bytes());
        }
    }

    pub(super) fn decode(input: &mut Reader<'_>) -> Option<Sum> {
        let count = input.varint()?;
        let flags = input.u8()?;
        let high = i128::from_le_bytes(input.take(16)?.try_into().ok()?);
        let low = u128::from_le_bytes(input.take(16)?.try_into().ok()?);
        let parts = (0..input.varint()?).map(|_| {
            let bytes = input.take(8)?.try_into().ok()?;
            Some(f64::from_le_bytes(bytes))
        });
        Some(Sum {
            count,
            high,
            low,
            parts: parts.collect::<Option<_>>()?,
            has_floats: flags & 1 != 0,
            is_beyond: flags & 2 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(amounts: &[Amount]) -> Sum {
        let mut sum = Sum::default();
        amounts.iter().for_each(|amount| sum.add(*amount));
        sum
    }

    #[test]
    fn whole_numbers_are_exact_and_never_wrap() {
        use Amount::Whole;
        let most = sum(&[Whole(i128::MAX), Whole(1)]);
        assert_eq!(most.total(), None);
        let back = sum(&[Whole(i128::MAX), Whole(1), Whole(-2)]);
        assert_eq!(back.total(), Some(Total::Whole(i128::MAX - 1)));
        let least = sum(&[Whole(i128::MIN), Whole(-1)]);
        assert_eq!(least.total(), None);
        let mut both = most.clone();
        both.merge(&sum(&[Whole(i128::MIN), Whole(5)]));
        assert_eq!((both.total(), both.count), (Some(Total::Whole(5)), 4));
        assert_eq!(sum(&[Whole(1), Amount::Beyond]).total(), None);
        assert_eq!(sum(&[Whole(1), Whole(2)]).mean(), Some(1.5));
    }

    #[test]
    fn floats_are_rounded_once_in_any_order() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let mut amounts: Vec<Amount> = (0..rng.usize(1..40))
                .map(|_| match rng.u8(..4) {
                    0 => Amount::Whole(i128::from(rng.i64(..))),
                    _ => Amount::Float((rng.f64() - 0.5) * 10f64.powi(rng.i32(-20..20))),
                })
                .collect();
            let first = sum(&amounts).total();
            rng.shuffle(&mut amounts);
            let (some, others) = amounts.split_at(amounts.len() / 2);
            let mut merged = sum(some);
            merged.merge(&sum(others));
            assert_eq!(merged.total(), first);
            let mut bytes = Vec::new();
            merged.encode(&mut bytes);
            assert_eq!(Sum::decode(&mut Reader::new(&bytes)), Some(merged));
        }
        let tenths = sum(&[Amount::Float(0.1); 10]);
        assert_eq!(tenths.total(), Some(Total::Float(1.0)));
        let large = [
            Amount::Float(1e100),
            Amount::Whole(1),
            Amount::Float(-1e100),
        ];
        assert_eq!(sum(&large).total(), Some(Total::Float(1.0)));
        assert_eq!(sum(&[Amount::Float(f64::MAX); 2]).total(), None);
        let half = [
            Amount::Float(9_007_199_254_740_992.0),
            Amount::Whole(1),
            Amount::Float(1e-30),
        ];
        assert_eq!(
            sum(&half).total(),
            Some(Total::Float(9_007_199_254_740_994.0))
        );
    }
}
