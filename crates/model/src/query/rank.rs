//! The places of records in an order of fields or keys, as bytes.

use super::token::of_another_order;
use super::{Direction, Order, PageToken, Shape};
use crate::error::Result;
use crate::schema::ordered::{self, ABSENT, FieldReader, FieldValues};
use crate::schema::{KeyType, Type, decode_key};

/// Computes the place of records in an order by key or fields ([`Order`]): the value of each field
/// (complemented if it is descending), then the key. Compared as bytes, and unique by record.
#[derive(Debug, Clone)]
pub struct Ranking {
    key_type: KeyType,
    reader: FieldReader,
    directions: Vec<Direction>,
    values: FieldValues,
}

impl Ranking {
    /// For an order of the records of a dataset.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) if a field is a point.
    pub fn new(shape: &Shape, order: &Order) -> Result<Ranking> {
        let mut fields = Vec::new();
        for field in order.fields() {
            fields.push((field.path.clone(), shape.ordered_type(&field.path)?));
        }
        Ok(Ranking {
            key_type: shape.key_type,
            reader: FieldReader::new(&fields),
            directions: order.fields().iter().map(|field| field.direction).collect(),
            values: FieldValues::default(),
        })
    }

    /// Replaces `rank` by the place of a record with this JSON and encoded key.
    pub fn rank(&mut self, json: &[u8], key: &[u8], rank: &mut Vec<u8>) {
        rank.clear();
        if !self.directions.is_empty() {
            self.reader.read(json, &mut self.values);
        }
        for (at, direction) in self.directions.iter().enumerate() {
            let values = self.values.of(at as u32).map(|value| value.bytes);
            match direction {
                Direction::Ascending => {
                    rank.extend_from_slice(values.min().unwrap_or(&[ABSENT]));
                }
                Direction::Descending => match values.max() {
                    Some(value) => rank.extend(value.iter().map(|byte| !byte)),
                    None => rank.push(ABSENT),
                },
            }
        }
        rank.extend_from_slice(key);
    }

    /// Replaces `part` by the beginning of the ranks of records whose value in the first field is
    /// this one of an attribute of that field; false if the attribute's value does not show it.
    pub fn first_part(&self, ty: Type, value: &[u8], part: &mut Vec<u8>) -> bool {
        part.clear();
        let is_shown = ordered::encode_attribute(ty, value, part);
        if self.directions.first() == Some(&Direction::Descending) {
            part.iter_mut().for_each(|byte| *byte = !*byte);
        }
        is_shown
    }

    /// The value of an attribute of the first field from a rank; `None` if the attribute has none.
    pub fn first_value(&self, ty: Type, rank: &[u8]) -> Option<Vec<u8>> {
        match self.directions.first()? {
            Direction::Ascending => ordered::attribute_of(ty, rank),
            Direction::Descending if rank.first() == Some(&ABSENT) => None,
            Direction::Descending => {
                let flipped: Vec<u8> = rank.iter().map(|byte| !byte).collect();
                ordered::attribute_of(ty, &flipped)
            }
        }
    }

    /// The place behind which a page continues.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) for the token of another order.
    pub fn behind(&self, after: Option<&PageToken>) -> Result<Option<Vec<u8>>> {
        let Some(token) = after else { return Ok(None) };
        let rank = token.row()?;
        if self.is_rank(rank) {
            Ok(Some(rank.to_vec()))
        } else {
            Err(of_another_order())
        }
    }

    fn is_rank(&self, rank: &[u8]) -> bool {
        let mut rest = rank.to_vec();
        for direction in &self.directions {
            let is_flipped = *direction == Direction::Descending && rest.first() != Some(&ABSENT);
            let flip = if is_flipped { 0xff } else { 0 };
            let value: Vec<u8> = rest.iter().map(|byte| byte ^ flip).collect();
            let Some((_, behind)) = ordered::decode(&value) else {
                return false;
            };
            rest = behind.iter().map(|byte| byte ^ flip).collect();
        }
        decode_key(self.key_type, &rest).is_some()
    }
}
