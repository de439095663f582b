//! The stored form of a record: its attributes, then its body exactly as it was put.
//!
//! ```text
//! varint    attributes below this id were extracted
//! varint    bytes of all attributes
//! repeated  varint id, varint length, encoded value
//! rest      the body
//! ```
//!
//! With the attributes in front, flushes and merges read them without parsing JSON, and a reader
//! that wants the body skips them in one step. An attribute that was declared after a record was
//! stored is read out of the body.

use lsm::coding::{Reader, put_varint};
use lsm::{Seq, Slice};

use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::key::Key;

/// A record that a read returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    key: Vec<u8>,
    seq: Seq,
    stored: Slice,
    body_at: usize,
}

impl Record {
    pub(crate) fn new(key: Vec<u8>, seq: Seq, stored: Slice) -> Result<Record> {
        let body = RecordRef::body_of(&stored).map(<[u8]>::len);
        let body = body.ok_or_else(|| Error::damaged("a stored record is malformed"))?;
        Ok(Record {
            key,
            seq,
            body_at: stored.len() - body,
            stored,
        })
    }

    /// The JSON exactly as it was put.
    pub fn body(&self) -> &[u8] {
        self.stored.get(self.body_at..).unwrap_or_default()
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The sequence number of the write that put it: larger is newer.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The primary key as text.
    pub fn key_text(&self, dataset: &Dataset) -> String {
        Key::display(dataset.key_type(), &self.key)
    }
}

/// Appends the stored form. `attributes` are (stable id, encoded value), gone through twice: all
/// that the record has of ids below `known`.
pub(crate) fn encode<'v, I>(out: &mut Vec<u8>, known: u32, attributes: I, body: &[u8])
where
    I: Iterator<Item = (u32, &'v [u8])> + Clone,
{
    let size = |(id, value): (u32, &[u8])| {
        varint_len(u64::from(id)) + varint_len(value.len() as u64) + value.len()
    };
    let total: usize = attributes.clone().map(size).sum();
    out.reserve(total + body.len() + 15);
    put_varint(out, u64::from(known));
    put_varint(out, total as u64);
    for (id, value) in attributes {
        put_varint(out, u64::from(id));
        lsm::coding::put_bytes(out, value);
    }
    out.extend_from_slice(body);
}

/// A stored record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordRef<'a> {
    known: u32,
    attributes: &'a [u8],
    body: &'a [u8],
}

impl<'a> RecordRef<'a> {
    /// Reads a stored record, and checks that its attributes can be walked; `None` when not.
    pub(crate) fn parse(stored: &'a [u8]) -> Option<RecordRef<'a>> {
        let record = RecordRef::split(stored)?;
        let mut rest = Reader::new(record.attributes);
        while !rest.is_empty() {
            next_attribute(&mut rest)?;
        }
        Some(record)
    }

    /// The body of a stored record, without a look at its attributes; `None` when there is none.
    #[inline]
    pub(crate) fn body_of(stored: &'a [u8]) -> Option<&'a [u8]> {
        Some(RecordRef::split(stored)?.body)
    }

    fn split(stored: &'a [u8]) -> Option<RecordRef<'a>> {
        let mut input = Reader::new(stored);
        let known = u32::try_from(input.varint()?).ok()?;
        let attributes = input.bytes()?;
        Some(RecordRef {
            known,
            attributes,
            body: input.rest(),
        })
    }

    /// The body as it was put.
    #[inline]
    pub(crate) fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Attributes with ids below this one were extracted when the record was stored.
    #[inline]
    pub(crate) fn known(&self) -> u32 {
        self.known
    }

    /// The attributes: (stable id, encoded value), in the order in which they were encoded.
    #[inline]
    pub(crate) fn attributes(&self) -> Attributes<'a> {
        Attributes {
            rest: Reader::new(self.attributes),
        }
    }
}

/// Walks the attributes of a record.
#[derive(Debug, Clone)]
pub(crate) struct Attributes<'a> {
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
