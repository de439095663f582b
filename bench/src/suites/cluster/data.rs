//! Keys as YCSB draws them, and records.

use fastrand::Rng;

use crate::failure::Result;

/// YCSB's constants: keys are drawn by Zipf's law from ten thousand million items, and scattered
/// over the keys that there are by a hash.
const ITEMS: f64 = 10_000_000_000.0;
const ZETA: f64 = 26.46902820178302;
const EXPONENT: f64 = 0.99;

/// Bytes of a record's text.
const TEXT: usize = 450;

/// Draws keys.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    count: u64,
    rng: Rng,
}

impl Keys {
    pub(super) fn new(count: u64, seed: u64) -> Keys {
        let rng = Rng::with_seed(seed);
        Keys { count, rng }
    }

    /// A key, some much more often than others.
    pub(super) fn next(&mut self) -> u64 {
        // Gray et al., "Quickly generating billion-record synthetic databases".
        let alpha = 1.0 / (1.0 - EXPONENT);
        let second = 1.0 + 0.5_f64.powf(EXPONENT);
        let eta = (1.0 - (2.0 / ITEMS).powf(1.0 - EXPONENT)) / (1.0 - second / ZETA);
        let u = self.rng.f64();
        let rank = match u * ZETA {
            at if at < 1.0 => 0.0,
            at if at < second => 1.0,
            _ => ITEMS * (eta * u - eta + 1.0).powf(alpha),
        };
        fnv(rank as u64) % self.count.max(1)
    }

    /// A key, each as often as any other.
    pub(super) fn uniform(&mut self) -> u64 {
        self.rng.u64(0..self.count.max(1))
    }
}

/// YCSB's hash (FNV-1a over the bytes of a number).
fn fnv(mut number: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for _ in 0..8 {
        hash ^= number & 0xff;
        hash = hash.wrapping_mul(1_099_511_628_211);
        number >>= 8;
    }
    hash & (u64::MAX >> 1)
}

/// A record.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) json: String,
}

/// Makes records: the value is one of so many.
#[derive(Debug, Clone)]
pub(super) struct Records {
    rng: Rng,
    pub(super) values: u64,
}

impl Records {
    pub(super) fn new(values: u64, seed: u64) -> Records {
        let rng = Rng::with_seed(seed);
        Records { rng, values }
    }

    pub(super) fn value(&mut self) -> u64 {
        self.rng.u64(0..self.values.max(1))
    }

    pub(super) fn record(&mut self, key: u64) -> Record {
        let value = self.value();
        self.of(key, value)
    }

    pub(super) fn of(&mut self, key: u64, value: u64) -> Record {
        // Text that a server's compression does not shrink to nothing.
        let text: String = (0..TEXT).map(|_| self.rng.alphanumeric()).collect();
        Record {
            key,
            value,
            json: format!(r#"{{"id":{key},"v":{value},"text":"{text}"}}"#),
        }
    }
}

/// Calls `each` with groups of records of the keys `0..keys`, as often as `turns`, in a mixed order.
pub(super) fn all_keys(
    keys: u64,
    records: &mut Records,
    each: &mut dyn FnMut(&[Record]) -> Result<()>,
) -> Result<()> {
    let mut order: Vec<u64> = (0..keys).collect();
    records.rng.shuffle(&mut order);
    for chunk in order.chunks(512) {
        let group: Vec<Record> = chunk.iter().map(|key| records.record(*key)).collect();
        each(&group)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of YCSB's scattered keys the most frequent one is drawn about once in ZETA times.
    #[test]
    fn some_keys_are_drawn_much_more_often() {
        let mut keys = Keys::new(1000, 7);
        let mut counts = vec![0_u32; 1000];
        for _ in 0..100_000 {
            counts[keys.next() as usize] += 1;
        }
        counts.sort_unstable();
        let most = counts[999];
        assert!((3_000..6_000).contains(&most), "{most}");
        assert!(counts[500] < 200, "{}", counts[500]);
        assert!(counts[0] > 0);
    }
}
