//! The stored form of a record: its attributes, then its body exactly as it was put.
//!
//! ```text
//! varint    bytes of all attributes
//! repeated  varint id, varint length, encoded value
//! rest      the body
//! ```
//!
//! With the attributes in front, flushes and merges read them without parsing JSON, and a reader
//! that wants the body skips them in one step.

use lsm::coding::{Reader, put_varint};

/// A stored record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    attributes: &'a [u8],
    body: &'a [u8],
}

impl<'a> Record<'a> {
    /// Appends the stored form. `attributes` are (stable id, encoded value), gone through twice.
    pub fn encode<'v, I>(out: &mut Vec<u8>, attributes: I, body: &[u8])
    where
        I: Iterator<Item = (u32, &'v [u8])> + Clone,
    {
        let size = |(id, value): (u32, &[u8])| {
            varint_len(u64::from(id)) + varint_len(value.len() as u64) + value.len()
        };
        let total: usize = attributes.clone().map(size).sum();
        out.reserve(total + body.len() + 10);
        put_varint(out, total as u64);
        for (id, value) in attributes {
            put_varint(out, u64::from(id));
            lsm::coding::put_bytes(out, value);
        }
        out.extend_from_slice(body);
    }

    /// Reads a stored record, and checks that its attributes can be walked; `None` when not.
    pub fn parse(stored: &'a [u8]) -> Option<Record<'a>> {
        let record = Record::split(stored)?;
        let mut rest = Reader::new(record.attributes);
        while !rest.is_empty() {
            next_attribute(&mut rest)?;
        }
        Some(record)
    }

    /// The body of a stored record, without a look at its attributes; `None` when there is none.
    #[inline]
    pub fn body_of(stored: &'a [u8]) -> Option<&'a [u8]> {
        Some(Record::split(stored)?.body)
    }

    fn split(stored: &'a [u8]) -> Option<Record<'a>> {
        let mut input = Reader::new(stored);
        let attributes = input.bytes()?;
        Some(Record {
            attributes,
            body: input.rest(),
        })
    }

    /// The body as it was put.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The attributes: (stable id, encoded value), in the order in which they were encoded.
    #[inline]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes {
            rest: Reader::new(self.attributes),
        }
    }
}

/// Walks the attributes of a record.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    rest: Reader<'a>,
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u32, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(u32, &'a [u8])> {
        next_attribute(&mut self.rest)
    }
}

#[inline]
fn next_attribute<'a>(rest: &mut Reader<'a>) -> Option<(u32, &'a [u8])> {
    let id = u32::try_from(rest.varint()?).ok()?;
    Some((id, rest.bytes()?))
}

fn varint_len(v: u64) -> usize {
    (70 - (v | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
