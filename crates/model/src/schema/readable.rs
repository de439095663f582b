//! Checks that other readers can parse a record's JSON. The walk may skip fields without decoding them, and then
//! accepts two things that the grammar allows: lone surrogates (`"\ud800"` is not valid text), and numbers beyond the
//! range of floats (`1e400`). Whether a later reader refuses the record would depend on the fields it reads.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Any JSON, decoded and discarded. Costs hardly more than skipping it: strings without escapes are not copied.
pub(super) struct Everything;

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

/// The text with a space in place of the sign of each number that is `-0`, and no other change: the parser reads
/// `-0`, which is an integer, as the float -0.0. `None` when there is none.
pub fn without_negative_zeros(json: &str) -> Option<String> {
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
