//! Whether other readers of JSON can read all of a record. The walk skips what nobody asked for without decoding it, so two
//! things that the grammar allows would pass there: halves of surrogate pairs (`"\ud800"` is no text), and numbers beyond
//! the floats (`1e400`). Who reads the record would refuse it, or would not, depending on what else it looks at.
//!
//! Records with neither cost three passes that the compiler turns into vector code. What may be one of them is decided by
//! a parse that decodes everything.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Digits in a row from which on a number without an exponent may be beyond the floats.
const MANY_DIGITS: usize = 300;

/// With an exponent of two digits so many are enough.
const MANY_BEFORE_EXPONENT: usize = 200;

/// A number of more digits than this has digits at two places in a row that are so far apart.
const STRIDE: usize = MANY_DIGITS / 2 - 1;

/// Decodes all of `json`, where there may be something in it that cannot be decoded.
pub(super) fn read_all(json: &[u8]) -> Result<(), serde_json::Error> {
    if has_half_a_pair(json) || has_huge_exponent(json) || has_many_digits(json) {
        return serde_json::from_slice::<Everything>(json).map(|Everything| ());
    }
    Ok(())
}

/// True for an escape of half a surrogate pair without the other half. In JSON backslashes stand in strings only, each with
/// what it escapes.
fn has_half_a_pair(json: &[u8]) -> bool {
    if !json.contains(&b'\\') {
        return false;
    }
    let mut rest = json;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        rest = rest.get(at..).unwrap_or_default();
        let taken = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => return true,
            _ => 2,
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    false
}

/// The code unit that `\uXXXX` at the beginning stands for.
fn unit(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// True when something may be a number with an exponent of three digits or more.
fn has_huge_exponent(json: &[u8]) -> bool {
    let after = json.get(1..).unwrap_or_default();
    let is_exponent = |(digit, e): (&u8, &u8)| digit.is_ascii_digit() & (e | 0x20 == b'e');
    let any = json
        .iter()
        .zip(after)
        .fold(false, |any, pair| any | is_exponent(pair));
    any && json
        .iter()
        .zip(after)
        .enumerate()
        .any(|(at, pair)| is_exponent(pair) && is_number_around(json, at))
}

/// The same for the exponent behind the digit at `at`: hexadecimal digits in strings look like one, too, and names.
fn is_number_around(json: &[u8], at: usize) -> bool {
    let (before, after) = json.split_at_checked(at + 2).unwrap_or((json, &[]));
    let is_part = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(*byte);
    let whole = before.iter().rev().take_while(is_part).count();
    let begins = before.len().checked_sub(whole + 1);
    let begins = begins.and_then(|at| before.get(at));
    let digits = match after.split_first() {
        Some((b'+' | b'-', digits)) => digits,
        _ => after,
    };
    let count = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let ends = digits.get(count);
    let huge = count >= 3 || whole >= MANY_BEFORE_EXPONENT;
    huge && begins.is_none_or(|byte| b":,[ \t\r\n".contains(byte))
        && ends.is_none_or(|byte| b",]} \t\r\n".contains(byte))
}

/// True when there may be a number of [`MANY_DIGITS`] digits.
fn has_many_digits(json: &[u8]) -> bool {
    let mut is_digit = json.iter().step_by(STRIDE).map(u8::is_ascii_digit);
    let mut before = false;
    is_digit.any(|digit| std::mem::replace(&mut before, digit) && digit)
        && json
            .chunk_by(|a, b| a.is_ascii_digit() && b.is_ascii_digit())
            .any(|digits| digits.len() >= MANY_DIGITS)
}

/// Any JSON, decoded and forgotten.
struct Everything;

impl<'de> Deserialize<'de> for Everything {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Everything, D::Error> {
        input.deserialize_any(Everything)
    }
}

impl<'de> Visitor<'de> for Everything {
    type Value = Everything;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Everything, E> {
        Ok(self)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Everything, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Everything, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Everything, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Everything, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Everything, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Everything, A::Error> {
        while elements.next_element::<Everything>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Everything, A::Error> {
        while fields.next_entry::<Everything, Everything>()?.is_some() {}
        Ok(self)
    }
}

/// The text with a space in place of the sign of each number that is `-0`, and no other change: the parser takes `-0`,
/// which is an integer, for the float -0.0. `None` when there is none.
pub(crate) fn without_negative_zeros(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let mut found = Vec::new();
    let (mut in_string, mut at) = (false, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => at += 1,
            b'-' if !in_string => {
                let more = bytes.get(at + 2);
                let ends = !more.is_some_and(|byte| byte.is_ascii_digit() || b".eE".contains(byte));
                let starts = !at
                    .checked_sub(1)
                    .and_then(|before| bytes.get(before))
                    .is_some_and(|before| b"eE".contains(before));
                if bytes.get(at + 1) == Some(&b'0') && ends && starts {
                    found.push(at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    if found.is_empty() {
        return None;
    }
    let mut found = found.into_iter().peekable();
    let place = json.char_indices().map(|(at, c)| {
        let is_sign = found.next_if_eq(&at).is_some();
        if is_sign { ' ' } else { c }
    });
    Some(place.collect())
}
