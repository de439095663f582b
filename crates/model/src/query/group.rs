//! The result of a group.

use std::fmt::Write;
use std::sync::Arc;

use esker_coding::{Reader, put_bytes, put_varint};
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::schema::decimal::{Decimal, encode_whole};
use crate::schema::ordered::{ABSENT, Scalar, decode};
use crate::schema::{Type, Value};

/// A group of records: the values that form it, and what was computed of it, as columns.
///
/// The names of columns are the fields' and the aggregates' texts. As JSON it is one object:
/// `{"origin":"ORD","count":166341}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub(super) names: Arc<[String]>,
    pub(super) cells: Vec<Cell>,
}

/// A value of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    /// An encoded value, and the type by whose unit a time is written as a number; `None` for text.
    Ordered(Vec<u8>, Option<Type>),
    Whole(i128),
    Float(f64),
}

impl Cell {
    /// The value in the order of all values.
    pub(super) fn rank(&self, out: &mut Vec<u8>) {
        match self {
            Cell::Null => out.push(ABSENT),
            Cell::Ordered(bytes, _) => out.extend_from_slice(bytes),
            Cell::Whole(v) => encode_whole(*v, out),
            Cell::Float(v) => Decimal::of_float(*v).encode(out),
        }
    }

    pub(super) fn is_null(&self) -> bool {
        *self == Cell::Null
    }

    fn scalar(bytes: &[u8]) -> Option<Scalar> {
        decode(bytes).and_then(|(scalar, _)| scalar)
    }

    /// The number of a time in the unit of a type.
    fn number_of(micros: i64, unit: Type) -> Decimal {
        let per_second = unit.per_second().unwrap_or(1);
        Decimal::of_scaled(i128::from(micros) * per_second, 6)
    }

    fn value(&self) -> Option<Value> {
        let number = |decimal: &Decimal| match decimal.scaled(0) {
            Some(whole) if decimal.is_whole() => Value::Int(whole),
            _ => Value::Float(decimal.to_f64()),
        };
        match self {
            Cell::Null => None,
            Cell::Whole(v) => Some(Value::Int(*v)),
            Cell::Float(v) => Some(Value::Float(*v)),
            Cell::Ordered(bytes, _) => Some(match Cell::scalar(bytes)? {
                Scalar::Bool(v) => Value::Bool(v),
                Scalar::Number(decimal) => number(&decimal),
                Scalar::Time(micros) => Value::Time(micros),
                Scalar::Text(text) => Value::String(text),
            }),
        }
    }

    fn write_json(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Cell::Null => write!(out, "null"),
            Cell::Whole(v) => write!(out, "{v}"),
            Cell::Float(v) => write!(out, "{v:?}"),
            Cell::Ordered(bytes, unit) => match (Cell::scalar(bytes), unit) {
                (None, _) => write!(out, "null"),
                (Some(Scalar::Bool(v)), _) => write!(out, "{v}"),
                (Some(Scalar::Number(decimal)), _) => write!(out, "{}", decimal.to_json()),
                (Some(Scalar::Time(micros)), Some(unit)) => {
                    write!(out, "{}", Cell::number_of(micros, *unit).to_json())
                }
                (Some(Scalar::Time(micros)), None) => write!(out, "\"{}\"", Value::Time(micros)),
                (Some(Scalar::Text(text)), _) => write!(out, "{}", serde_json::Value::from(text)),
            },
        };
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Cell::Null => out.push(0),
            Cell::Ordered(bytes, unit) => {
                out.push(1);
                out.push(unit.map_or(0, Type::to_byte));
                put_bytes(out, bytes);
            }
            Cell::Whole(v) => {
                out.push(2);
                out.extend_from_slice(&v.to_le_bytes());
            }
            Cell::Float(v) => {
                out.push(3);
                out.extend_from_slice(&v.to_le_bytes());
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Option<Cell> {
        Some(match input.u8()? {
            0 => Cell::Null,
            1 => {
                let unit = input.u8()?;
                Cell::Ordered(input.bytes()?.to_vec(), Type::from_byte(unit))
            }
            2 => Cell::Whole(i128::from_le_bytes(input.take(16)?.try_into().ok()?)),
            3 => Cell::Float(f64::from_le_bytes(input.take(8)?.try_into().ok()?)),
            _ => return None,
        })
    }
}

impl Group {
    /// The names of the columns: the fields that form the group, then the aggregates.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The value of a column; `None` for null, and without such a column. Numbers of more digits
    /// than a float has are rounded; [`Group::to_json`] has all digits.
    pub fn value(&self, name: &str) -> Option<Value> {
        let at = self.names.iter().position(|known| known == name)?;
        self.cells.get(at)?.value()
    }

    /// The group as a JSON object.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{");
        for (at, (name, cell)) in self.names.iter().zip(&self.cells).enumerate() {
            if at > 0 {
                out.push(',');
            }
            let _ = write!(out, "{}:", serde_json::Value::from(name.as_str()));
            cell.write_json(&mut out);
        }
        out.push('}');
        out
    }

    /// The group as a value of the program.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the object does not fit `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        let parsed = serde_json::from_str(&self.to_json());
        parsed.map_err(|why| Error::bad_input(format!("a group: {why}")))
    }

    /// The columns as bytes, for [`Grouping::decode`](super::Grouping::decode).
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.cells.len() as u64);
        self.cells.iter().for_each(|cell| cell.encode(out));
    }

    pub(super) fn decode(names: &Arc<[String]>, bytes: &[u8]) -> Option<Group> {
        let mut input = Reader::new(bytes);
        let cells = (0..input.varint()?).map(|_| Cell::decode(&mut input));
        let cells: Vec<Cell> = cells.collect::<Option<_>>()?;
        (cells.len() == names.len()).then(|| Group {
            names: names.clone(),
            cells,
        })
    }
}
