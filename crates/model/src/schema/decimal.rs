//! Numbers in their textual form: decimals of any length, compared by value.

use std::cmp::Ordering;

use esker_coding::Own;

/// Decimals with at most this many significant digits are in the order of the floats nearest to
/// them, since each has another nearest float.
const DIGITS_OF_FLOATS: usize = 15;

/// Up to this bound every whole number is a float.
const WHOLE_FLOATS: f64 = 9_007_199_254_740_992.0;

/// Below this bound floats have fewer digits.
const LEAST_NORMAL: f64 = 1e-290;

/// A decimal: `0.DIGITS * 10^exponent`, without leading or trailing zeros in the digits; zero has
/// no digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Parses a number as in JSON; also with a plus sign, and without digits on one side of the
    /// point.
    pub(crate) fn parse(text: &str) -> Option<Decimal> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, power) = match rest.split_once(['e', 'E']) {
            Some((mantissa, power)) => (mantissa, exponent(power)?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !are_digits(whole) || !are_digits(fraction) {
            return None;
        }
        let all = [whole, fraction].concat();
        let digits = all.trim_start_matches('0');
        let leading = all.len() - digits.len();
        let digits = digits.trim_end_matches('0');
        let exponent = (whole.len() as i64 - leading as i64).saturating_add(power);
        Some(Decimal {
            negative: negative && !digits.is_empty(),
            exponent: if digits.is_empty() { 0 } else { exponent },
            digits: digits.to_owned(),
        })
    }

    /// The shortest decimal whose nearest float is `v`, which is how programs print `v`.
    pub(crate) fn of_float(v: f64) -> Decimal {
        Decimal::parse(&format!("{v:e}")).unwrap_or(Decimal {
            negative: false,
            digits: String::new(),
            exponent: 0,
        })
    }

    /// The decimal of a whole number.
    pub(crate) fn of_int(v: i128) -> Decimal {
        let text = v.unsigned_abs().to_string();
        let digits = text.trim_end_matches('0');
        Decimal {
            negative: v < 0,
            exponent: if digits.is_empty() {
                0
            } else {
                text.len() as i64
            },
            digits: digits.to_owned(),
        }
    }

    /// The decimal of `v` tenths, hundredths and so on, by the number of `places`.
    pub(crate) fn of_scaled(v: i128, places: u32) -> Decimal {
        let mut decimal = Decimal::of_int(v);
        if !decimal.digits.is_empty() {
            decimal.exponent -= i64::from(places);
        }
        decimal
    }

    /// The number of digits behind the point.
    pub(crate) fn places(&self) -> u64 {
        let behind = self.digits.len() as i64 - self.exponent;
        u64::try_from(behind).unwrap_or(0)
    }

    /// The greatest whole number of tenths, hundredths and so on that is not greater; `None` if it
    /// is beyond `i128`.
    pub(crate) fn scaled(&self, places: u32) -> Option<i128> {
        let mut scaled = self.clone();
        scaled.exponent += i64::from(places);
        (scaled.digits.is_empty() || scaled.exponent <= 38).then(|| scaled.floor())
    }

    /// True without a fraction.
    pub(crate) fn is_whole(&self) -> bool {
        self.places() == 0
    }

    /// Appends the decimal so that the order of the bytes is that of the numbers: its sign, the
    /// exponent, the digits and their end, complemented if it is negative.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        encode_parts(self.negative, self.digits.as_bytes(), self.exponent, out);
    }

    /// Decodes a decimal at the start of `bytes`; also returns the bytes behind it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Decimal, &[u8])> {
        let (sign, rest) = bytes.split_first()?;
        if *sign == ZERO {
            return Some((Decimal::of_int(0), rest));
        }
        let flip = match *sign {
            NEGATIVE => 0xff,
            POSITIVE => 0,
            _ => return None,
        };
        let (exponent, rest) = rest.split_first_chunk::<6>()?;
        let exponent = exponent
            .iter()
            .fold(0_i64, |all, byte| all << 8 | i64::from(byte ^ flip));
        let end = rest.iter().position(|byte| *byte == flip)?;
        let (digits, rest) = rest.split_at_checked(end)?;
        let digits: Vec<u8> = digits.iter().map(|byte| byte ^ flip).collect();
        let is_canonical = digits.iter().all(u8::is_ascii_digit)
            && digits.first().is_some_and(|digit| *digit != b'0')
            && digits.last().is_some_and(|digit| *digit != b'0');
        let decimal = Decimal {
            negative: *sign == NEGATIVE,
            digits: String::from_utf8(digits).ok().filter(|_| is_canonical)?,
            exponent: exponent - EXPONENT_BIAS,
        };
        Some((decimal, rest.get(1..)?))
    }

    /// The nearest float.
    pub(crate) fn to_f64(&self) -> f64 {
        self.to_json().parse().unwrap_or(f64::NAN)
    }

    /// The number as JSON, with all its digits.
    pub(crate) fn to_json(&self) -> String {
        let (sign, digits) = (if self.negative { "-" } else { "" }, self.digits.as_str());
        let length = digits.len() as i64;
        match self.exponent {
            _ if digits.is_empty() => "0".to_string(),
            exponent @ 1..=21 if exponent >= length => {
                let zeros = "0".repeat((exponent - length) as usize);
                format!("{sign}{digits}{zeros}")
            }
            exponent @ 1..=21 => {
                let (whole, fraction) = digits.split_at(exponent as usize);
                format!("{sign}{whole}.{fraction}")
            }
            exponent @ -5..=0 => {
                let zeros = "0".repeat(-exponent as usize);
                format!("{sign}0.{zeros}{digits}")
            }
            exponent => {
                let (first, rest) = digits.split_at(1);
                let point = if rest.is_empty() { "" } else { "." };
                format!("{sign}{first}{point}{rest}e{}", exponent - 1)
            }
        }
    }

    /// The greatest whole number that is not greater, or the nearest bound of `i128`.
    pub(crate) fn floor(&self) -> i128 {
        let places = usize::try_from(self.exponent).unwrap_or(0);
        let whole = self.digits.get(..places).unwrap_or(&self.digits);
        let has_fraction = self.digits.len() > places;
        let zeros = places - whole.len();
        let magnitude = match places {
            0 => Some(0),
            1..=38 => format!("{whole}{}", "0".repeat(zeros)).parse::<i128>().ok(),
            _ => None,
        };
        match (magnitude, self.negative) {
            (Some(v), false) => v,
            (Some(v), true) => -v - i128::from(has_fraction),
            (None, false) => i128::MAX,
            (None, true) => i128::MIN,
        }
    }
}

/// The first byte of an encoded decimal below zero.
pub(crate) const NEGATIVE: u8 = 0x20;
/// The encoding of zero.
pub(crate) const ZERO: u8 = 0x21;
/// The first byte of an encoded decimal above zero.
pub(crate) const POSITIVE: u8 = 0x22;

/// Added to exponents, which makes all of them positive: they are clamped to a smaller range.
const EXPONENT_BIAS: i64 = 1 << 46;

fn encode_parts(negative: bool, digits: &[u8], exponent: i64, out: &mut Vec<u8>) {
    if digits.is_empty() {
        out.push(ZERO);
        return;
    }
    out.push(if negative { NEGATIVE } else { POSITIVE });
    let from = out.len();
    let [_, _, exponent @ ..] = (exponent + EXPONENT_BIAS).to_be_bytes();
    out.extend_from_slice(&exponent);
    out.extend_from_slice(digits);
    out.push(0);
    if negative {
        out.own_mut(from..)
            .iter_mut()
            .for_each(|byte| *byte = !*byte);
    }
}

/// Appends a whole number as [`Decimal::encode`] does.
pub(crate) fn encode_whole(v: i128, out: &mut Vec<u8>) {
    let mut buffer = [0; 40];
    let (mut rest, mut begin) = (v.unsigned_abs(), buffer.len());
    // Numbers of 64 bits are divided faster.
    while rest > u128::from(u64::MAX) {
        begin -= 1;
        *buffer.own_mut(begin) = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut rest = rest as u64;
    while rest > 0 {
        begin -= 1;
        *buffer.own_mut(begin) = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let digits = buffer.own(begin..);
    let exponent = digits.len() as i64;
    let zeros = digits.iter().rev().take_while(|digit| **digit == b'0');
    let significant = digits.len() - zeros.count();
    encode_parts(v < 0, digits.own(..significant), exponent, out);
}

/// The power of ten behind an `e`, clamped to a large range.
fn exponent(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    const LARGEST: i64 = 1 << 40;
    let power = digits.parse().unwrap_or(LARGEST).min(LARGEST);
    Some(if negative { -power } else { power })
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        let sign = |d: &Decimal| match (d.digits.is_empty(), d.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let (mine, others) = (sign(self), sign(other));
        let magnitude = || {
            let by_size = self.exponent.cmp(&other.exponent);
            // Without trailing zeros, a longer sequence of digits with this prefix is greater.
            by_size.then_with(|| self.digits.cmp(&other.digits))
        };
        mine.cmp(&others).then_with(|| match mine {
            0 => Ordering::Equal,
            1 => magnitude(),
            _ => magnitude().reverse(),
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// True if a number with this text and the nearest float `v` compares with all other such numbers
/// as `v` does: it has few digits. A quick check with false negatives.
pub(crate) fn is_short(text: &str, v: f64) -> bool {
    // True for almost all numbers: a text this short has few digits.
    if text.len() <= DIGITS_OF_FLOATS && v.abs() > LEAST_NORMAL {
        return v.abs() < WHOLE_FLOATS;
    }
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    // Leading zeros are not significant; there are few of them.
    let in_front = mantissa.bytes().take_while(|byte| b"-+0.".contains(byte));
    let zeros = in_front.filter(|byte| *byte == b'0').count();
    digits - zeros <= DIGITS_OF_FLOATS
        && v.abs() < WHOLE_FLOATS
        && (v.abs() > LEAST_NORMAL || digits == zeros)
}

/// True if programs print the float `v` as a decimal of this value; the decimal then compares as
/// `v` does.
pub(crate) fn is_of_float(text: &str, v: f64) -> bool {
    is_short(text, v) || Decimal::parse(text).is_some_and(|decimal| decimal == Decimal::of_float(v))
}

/// As [`is_of_float`], for a whole number.
pub(crate) fn int_is_of_float(v: i128) -> bool {
    v.unsigned_abs() <= WHOLE_FLOATS as u128 || Decimal::of_int(v) == Decimal::of_float(v as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn decimals_are_in_the_order_of_their_values() {
        let ascending = [
            "-1e400",
            "-211230200427052203004205124",
            "-211230200427052203004205123.5",
            "-211230200427052203004205123",
            "-1.5",
            "-1",
            "-0.99999999999999999999",
            "-1e-400",
            "0",
            "1e-400",
            "0.1",
            "0.1000000000000000055511151231257827",
            "0.2",
            "1",
            "9.99e0",
            "10",
            "18446744073709551615",
            "18446744073709551616",
            "1e400",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(decimal(a).cmp(&decimal(b)), i.cmp(&j), "{a} {b}");
            }
        }
        for same in ["100", "1e2", "100.0", "0.1e3", "+100", "00100.", "1000E-1"] {
            assert_eq!(decimal(same), decimal("100"), "{same}");
        }
        for zero in ["0", "-0", "0.00", "0e9", ".0"] {
            assert_eq!(decimal(zero), Decimal::of_int(0), "{zero}");
        }
        for wrong in [
            "", "-", ".", "1e", "e1", "inf", "nan", "0x1", "1 ", "1e1.5", "1_0",
        ] {
            assert_eq!(Decimal::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn encoded_decimals_are_in_order_and_come_back() {
        let texts = [
            "-1e400",
            "-12",
            "-1.5",
            "-1.25",
            "-1",
            "-1e-7",
            "0",
            "1e-400",
            "0.000001",
            "0.1",
            "1",
            "1.5",
            "9",
            "10",
            "123.45",
            "1e21",
            "18446744073709551616",
            "1e22",
            "1.5e300",
        ];
        let mut all: Vec<(Decimal, Vec<u8>)> = Vec::new();
        for text in texts {
            let number = decimal(text);
            let mut bytes = Vec::new();
            number.encode(&mut bytes);
            bytes.push(7);
            let (decoded, rest) = Decimal::decode(&bytes).unwrap();
            assert_eq!((&decoded, rest), (&number, [7].as_slice()), "{text}");
            assert_eq!(decimal(&decoded.to_json()), number, "{text}");
            if let Ok(whole) = text.parse::<i128>() {
                let mut same = Vec::new();
                encode_whole(whole, &mut same);
                same.push(7);
                assert_eq!(same, bytes, "{text}");
            }
            all.push((number, bytes));
        }
        for (a, a_bytes) in &all {
            for (b, b_bytes) in &all {
                assert_eq!(a.cmp(b), a_bytes.cmp(b_bytes), "{a:?} {b:?}");
            }
        }
        assert_eq!(decimal("-120").to_json(), "-120");
        assert_eq!(decimal("0.0012").to_json(), "0.0012");
        assert_eq!(decimal("12e40").to_json(), "1.2e41");
        assert_eq!(decimal("-12.345").scaled(2), Some(-1235));
        assert_eq!(decimal("1e40").scaled(0), None);
        assert_eq!(Decimal::of_scaled(-1235, 2), decimal("-12.35"));
    }

    #[test]
    fn whole_numbers_below_are_found() {
        for (text, floor) in [
            ("2.5", 2),
            ("-2.5", -3),
            ("-2", -2),
            ("0.999", 0),
            ("-0.001", -1),
            ("1e3", 1000),
            ("18446744073709551616", 18_446_744_073_709_551_616),
            ("1e400", i128::MAX),
            ("-1e400", i128::MIN),
        ] {
            assert_eq!(decimal(text).floor(), floor, "{text}");
        }
    }

    #[test]
    fn decimals_of_floats_are_known() {
        for (text, is_one) in [
            ("0.1", true),
            ("0.10", true),
            ("0.30000000000000004", true),
            ("0.1000000000000000055511151231257827", false),
            ("0.10000000000000001", false),
            ("1e23", true),
            ("1e308", true),
            ("5e-324", true),
            ("3e-324", false),
            ("100000000000000000000", true),
            ("9007199254740993", false),
            ("18446744073709551615", false),
            ("0", true),
            ("-0.0", true),
        ] {
            let v: f64 = text.parse().unwrap();
            assert_eq!(is_of_float(text, v), is_one, "{text}");
            if let Ok(int) = text.parse::<i128>() {
                assert_eq!(int_is_of_float(int), is_one, "{text}");
            }
        }
    }
}
