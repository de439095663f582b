//! Scalar values of all types in one order: booleans, numbers, times, text. Their encodings are
//! compared as bytes, and none is a prefix of another one.
//!
//! | value | bytes |
//! | --- | --- |
//! | bool | `10` or `11` |
//! | number | `20`, `21` or `22` by its sign, then the decimal: see [`Decimal::encode`] |
//! | time | `30`, then microseconds as an int, see [`super::value`] |
//! | string | `40`, then as an encoded string |
//! | no value | `f0`, also where the others are complemented for a descending order |
//!
//! A value is a time if its path is declared as one and it can be read as one. Nulls and objects
//! are no values.

use std::ops::ControlFlow;

use esker_coding::{Own, Reader};

use super::at_path::Found;
use super::decimal::{Decimal, NEGATIVE, POSITIVE, ZERO, encode_whole};
use super::found::time_of;
use super::path::Path;
use super::readable::without_repeated_names;
use super::scalars::{decode_int, decode_string, encode_int, encode_string};
use super::types::Type;
use super::value::{Value, stand_in};
use super::walk::{Numbers, Rest, Sink, Trie};

const FALSE: u8 = 0x10;
const TRUE: u8 = 0x11;
const TIME: u8 = 0x30;
const TEXT: u8 = 0x40;
/// The place of no value, behind all values.
pub(crate) const ABSENT: u8 = 0xf0;

/// A decoded value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    Bool(bool),
    Number(Decimal),
    /// Microseconds since 1970.
    Time(i64),
    Text(String),
}

/// A number for sums.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Amount {
    /// Not a number.
    None,
    Whole(i128),
    Float(f64),
    /// A whole number beyond 128 bits.
    Beyond,
}

/// Appends the encoding of a value; false if it is none. `ty` is the declared type of its path.
pub(crate) fn encode(found: Found<'_>, ty: Option<Type>, out: &mut Vec<u8>) -> bool {
    if let Some(ty) = ty.filter(|ty| ty.is_time())
        && let Some((micros, _)) = time_of(ty, found)
    {
        encode_time(micros, out);
        return true;
    }
    match found {
        Found::Bool(v) => out.push(if v { TRUE } else { FALSE }),
        Found::Int(v) => encode_whole(v, out),
        Found::Float(v) => Decimal::of_float(v).encode(out),
        Found::Long(text, _) => match Decimal::parse(text) {
            Some(decimal) => decimal.encode(out),
            None => return false,
        },
        Found::Str(text) => {
            out.push(TEXT);
            encode_string(text, out);
        }
        Found::Null | Found::Object => return false,
    }
    true
}

/// Appends the encoding of an attribute's value, as [`encode`] makes it of what the record has
/// there; false if the value does not show that: the stand-in for others, a point, malformed bytes.
/// Floats must not be rounded.
pub(crate) fn encode_attribute(ty: Type, value: &[u8], out: &mut Vec<u8>) -> bool {
    if stand_in(ty) == Some(value) {
        return false;
    }
    let mut input = Reader::new(value);
    match Value::decode(ty, &mut input).filter(|_| input.is_empty()) {
        Some(Value::Int(v)) => encode_whole(v, out),
        Some(Value::Float(v)) => Decimal::of_float(v).encode(out),
        Some(Value::Bool(v)) => out.push(if v { TRUE } else { FALSE }),
        Some(Value::Time(micros)) => encode_time(micros, out),
        Some(Value::String(_)) => {
            out.push(TEXT);
            out.extend_from_slice(value);
        }
        Some(Value::Point(..) | Value::PointTime(..)) | None => return false,
    }
    true
}

/// The value of an attribute that [`encode_attribute`] encodes as the value at the start of
/// `bytes`; `None` if there is none.
pub(crate) fn attribute_of(ty: Type, bytes: &[u8]) -> Option<Vec<u8>> {
    let (scalar, rest) = decode(bytes)?;
    let value = match (ty, scalar?) {
        (Type::Bool, Scalar::Bool(v)) => Value::Bool(v),
        (Type::Int, Scalar::Number(decimal)) => Value::Int(decimal.scaled(0)?),
        (Type::Float, Scalar::Number(decimal)) => Value::Float(decimal.to_f64()),
        (Type::String, Scalar::Text(text)) => Value::String(text),
        (ty, Scalar::Time(micros)) if ty.is_time() => Value::Time(micros),
        _ => return None,
    };
    let (value, mut again) = (value.encoded(), Vec::new());
    let used = bytes.get(..bytes.len() - rest.len())?;
    (encode_attribute(ty, &value, &mut again) && again == used).then_some(value)
}

/// Appends the encoding of a time in microseconds since 1970.
pub(crate) fn encode_time(micros: i64, out: &mut Vec<u8>) {
    out.push(TIME);
    encode_int(i128::from(micros), out);
}

/// Decodes the value at the start of `bytes`, `None` for no value; also returns the bytes behind
/// it.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Option<Scalar>, &[u8])> {
    let mut rest = Reader::new(bytes);
    let scalar = match bytes.first()? {
        &NEGATIVE | &ZERO | &POSITIVE => {
            let (decimal, rest) = Decimal::decode(bytes)?;
            return Some((Some(Scalar::Number(decimal)), rest));
        }
        _ => match rest.u8()? {
            FALSE => Some(Scalar::Bool(false)),
            TRUE => Some(Scalar::Bool(true)),
            TIME => Some(Scalar::Time(decode_int(&mut rest)?.try_into().ok()?)),
            TEXT => Some(Scalar::Text(decode_string(&mut rest)?)),
            ABSENT => None,
            _ => return None,
        },
    };
    Some((scalar, rest.rest()))
}

fn amount(found: Found<'_>) -> Amount {
    match found {
        Found::Int(v) => Amount::Whole(v),
        Found::Float(v) => Amount::Float(v),
        Found::Long(text, v) if text.contains(['.', 'e', 'E']) => Amount::Float(v),
        Found::Long(text, _) => text.parse().map_or(Amount::Beyond, Amount::Whole),
        _ => Amount::None,
    }
}

/// Reads the values at some paths of records, in one pass over a record.
#[derive(Debug, Clone)]
pub(crate) struct FieldReader {
    trie: Trie,
    types: Vec<Option<Type>>,
}

/// The values of a record; a buffer for the next ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldValues {
    bytes: Vec<u8>,
    found: Vec<FieldValue>,
}

#[derive(Debug, Clone, Copy)]
struct FieldValue {
    field: u32,
    from: usize,
    to: usize,
    amount: Amount,
    is_number: bool,
}

/// A value at a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ordered<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) amount: Amount,
    /// True if the record has a number there, also if it is read as a time.
    pub(crate) is_number: bool,
}

impl FieldReader {
    /// Prepares the paths, each with its declared type.
    pub(crate) fn new(fields: &[(Path, Option<Type>)]) -> FieldReader {
        let mut trie = Trie::new();
        for (at, (path, _)) in fields.iter().enumerate() {
            trie.add(path, at as u32, Numbers::Exact);
        }
        let types = fields.iter().map(|(_, ty)| *ty).collect();
        FieldReader { trie, types }
    }

    /// Reads the values of a record. If an object has several fields of one name, the last one
    /// counts. A text that is not JSON has none.
    pub(crate) fn read(&self, json: &[u8], values: &mut FieldValues) {
        let mut gather = Gather {
            reader: self,
            values,
            is_repeated: false,
        };
        gather.clear();
        let mut input = serde_json::Deserializer::from_slice(json);
        let mut walked = self
            .trie
            .walk(&mut input, Rest::Skipped, &mut gather)
            .is_ok();
        if gather.is_repeated {
            let text = std::str::from_utf8(json).ok();
            gather.clear();
            walked = text.and_then(without_repeated_names).is_some_and(|text| {
                let mut input = serde_json::Deserializer::from_str(&text);
                self.trie
                    .walk(&mut input, Rest::Skipped, &mut gather)
                    .is_ok()
            });
        }
        if !walked {
            gather.clear();
        }
    }
}

impl FieldValues {
    /// The values of a field, in the order of the text.
    pub(crate) fn of(&self, field: u32) -> impl Iterator<Item = Ordered<'_>> {
        let found = self.found.iter().filter(move |value| value.field == field);
        found.map(|value| Ordered {
            bytes: self.bytes.own(value.from..value.to),
            amount: value.amount,
            is_number: value.is_number,
        })
    }
}

/// Encodes the values that a walk finds.
struct Gather<'a> {
    reader: &'a FieldReader,
    values: &'a mut FieldValues,
    is_repeated: bool,
}

impl Gather<'_> {
    fn clear(&mut self) {
        self.values.bytes.clear();
        self.values.found.clear();
    }
}

impl Sink for Gather<'_> {
    fn found(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        let FieldValues { bytes, found: all } = &mut *self.values;
        for target in targets {
            let from = bytes.len();
            if encode(found, *self.reader.types.own(*target as usize), bytes) {
                let amount = amount(found);
                all.push(FieldValue {
                    field: *target,
                    from,
                    to: bytes.len(),
                    amount,
                    is_number: amount != Amount::None,
                });
            }
        }
        ControlFlow::Continue(())
    }

    fn repeated(&mut self) -> ControlFlow<()> {
        self.is_repeated = true;
        ControlFlow::Break(())
    }
}
