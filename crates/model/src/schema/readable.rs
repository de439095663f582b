//! Checks that other readers can parse a record's JSON. The walk may skip fields without decoding
//! them, and then accepts two things that the grammar allows: lone surrogates (`"\ud800"` is not
//! valid text), and numbers beyond the range of floats (`1e400`). Later readers of these fields
//! would refuse the record.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde_json::value::RawValue;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::exact;

/// Any JSON, decoded and discarded. It costs hardly more than skipping, since strings without
/// escapes are not copied.
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

    /// The text of a number: see [`NUMBER`].
    fn visit_string<E: Error>(self, text: String) -> Result<Everything, E> {
        match exact::number(&text) {
            Some(_) => Ok(self),
            None => Err(E::custom("number out of range")),
        }
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

/// The only name of the map that the parser gives for a number that is not an integer of 64 bits,
/// if some crate of the program turns on its feature `arbitrary_precision`. The value is the text
/// of the number, which is owned. The parser owns no string of a record, so that an object with
/// this name in a record differs.
pub(super) const NUMBER: &str = "$serde_json::private::Number";

/// The value of the name [`NUMBER`]: the text of a number, or none if it is any other JSON.
pub(super) struct NumberText(pub(super) Option<String>);

impl<'de> Deserialize<'de> for NumberText {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<NumberText, D::Error> {
        input.deserialize_any(NumberText(None))
    }
}

impl<'de> Visitor<'de> for NumberText {
    type Value = NumberText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<NumberText, E> {
        Ok(self)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<NumberText, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<NumberText, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<NumberText, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<NumberText, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<NumberText, E> {
        Ok(self)
    }

    fn visit_string<E: Error>(self, text: String) -> Result<NumberText, E> {
        Ok(NumberText(Some(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<NumberText, A::Error> {
        Everything.visit_seq(elements).map(|_| self)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<NumberText, A::Error> {
        Everything.visit_map(fields).map(|_| self)
    }
}

/// Rewrites JSON so that each object has every name once, with its last value, as parsers read it.
/// `None` if the text is not JSON.
pub(crate) fn without_repeated_names(json: &str) -> Option<String> {
    let mut out = String::with_capacity(json.len());
    rewrite(json, &mut out)?;
    Some(out)
}

fn rewrite(json: &str, out: &mut String) -> Option<()> {
    let json = json.trim_ascii();
    match json.as_bytes().first()? {
        b'{' => {
            let Fields(fields) = serde_json::from_str(json).ok()?;
            out.push('{');
            for (at, (name, value)) in fields.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&serde_json::to_string(&name).ok()?);
                out.push(':');
                rewrite(value.get(), out)?;
            }
            out.push('}');
        }
        b'[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(json).ok()?;
            out.push('[');
            for (at, element) in elements.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                rewrite(element.get(), out)?;
            }
            out.push(']');
        }
        _ => out.push_str(json),
    }
    Some(())
}

/// The fields of an object: each name once, with its last value.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Fields<'de>, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Fields<'de>, A::Error> {
                let mut places: HashMap<Cow<'de, str>, usize> = HashMap::new();
                let mut all: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::new();
                while let Some((name, value)) = fields.next_entry::<Cow<'de, str>, &RawValue>()? {
                    match places.get(&name).and_then(|place| all.get_mut(*place)) {
                        Some((_, known)) => *known = value,
                        None => {
                            places.insert(name.clone(), all.len());
                            all.push((name, value));
                        }
                    }
                }
                Ok(Fields(all))
            }
        }
        input.deserialize_map(Visit)
    }
}

/// Replaces the sign of each number `-0` by a space, because the parser reads the integer `-0` as
/// the float -0.0. `None` if the text has no `-0`.
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
