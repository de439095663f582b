//! The stored form of a record: its attributes, then its body exactly as it was put.
//!
//! ```text
//! varint    attributes below this id were extracted
//! varint    bytes of all attributes
//! repeated  varint id, varint length, encoded value
//! rest      the body
//! ```
//!
//! Since the attributes come first, flushes and compactions read them without parsing JSON, and
//! readers of the body skip them in one step. If an attribute was declared after a record was
//! stored, it is extracted from the body.
//!
//! In a dataset stored by location, a record without a body is a *stub*: the same record is stored
//! elsewhere with its body. JSON is never empty, so an empty body always means a stub.
//!
//! The first attribute of a record that expires is [`EXPIRES`]: the time, as eight bytes. The next
//! one is [`UNINDEXED`] if the record has a value at an attribute's path that is not indexed.

use esker_coding::{Own, Reader, Seq, Slice, put_varint};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::key::Key;
use crate::typed::PrimaryKey;

/// A reserved attribute id: under it a record stores the time at which it expires.
pub const EXPIRES: u32 = u32::MAX;

/// A reserved attribute id: under it a record stores the ids of the attributes at whose paths it
/// has something that is not indexed ([`crate::schema::Extracted::unindexed`]), as ascending
/// varints.
pub const UNINDEXED: u32 = u32::MAX - 1;

/// Appends the stored form. `attributes` are pairs (stable id, encoded value), iterated twice: all
/// values of the record for ids below `known`.
pub fn encode<'v, I>(out: &mut Vec<u8>, known: u32, attributes: I, body: &[u8])
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
        esker_coding::put_bytes(out, value);
    }
    out.extend_from_slice(body);
}

/// A stored record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    known: u32,
    attributes: &'a [u8],
    body: &'a [u8],
}

impl<'a> RecordRef<'a> {
    /// Parses a stored record; `None` if its attributes are malformed.
    pub fn parse(stored: &'a [u8]) -> Option<RecordRef<'a>> {
        let record = RecordRef::split(stored)?;
        let mut rest = Reader::new(record.attributes);
        while !rest.is_empty() {
            next_attribute(&mut rest)?;
        }
        Some(record)
    }

    /// The body of a stored record, without parsing its attributes; `None` if it has none.
    #[inline]
    pub fn body_of(stored: &'a [u8]) -> Option<&'a [u8]> {
        Some(RecordRef::split(stored)?.body)
    }

    /// True if the JSON of the record is stored elsewhere.
    #[inline]
    pub fn lacks_body(stored: &[u8]) -> bool {
        RecordRef::body_of(stored).is_some_and(<[u8]>::is_empty)
    }

    /// The time at which the record expires, in milliseconds since 1970, without parsing its other
    /// attributes; `None` if it never expires.
    #[inline]
    pub fn expiry_of(stored: &[u8]) -> Option<u64> {
        let mut input = Reader::new(stored);
        input.varint()?;
        let mut attributes = Reader::new(input.bytes()?);
        if attributes.varint()? != u64::from(EXPIRES) {
            return None;
        }
        let time = attributes.bytes()?.first_chunk()?;
        Some(u64::from_be_bytes(*time))
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

    /// The body as written.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Attributes with ids below this one were extracted when the record was stored.
    #[inline]
    pub fn known(&self) -> u32 {
        self.known
    }

    /// The ids of the attributes at whose paths it has something that is not indexed.
    pub fn unindexed(&self) -> impl Iterator<Item = u32> {
        let mut attributes = self.attributes().take(2);
        let listed = attributes.find_map(|(id, list)| (id == UNINDEXED).then_some(list));
        let mut rest = Reader::new(listed.unwrap_or_default());
        std::iter::from_fn(move || u32::try_from(rest.varint()?).ok())
    }

    /// The attributes: (stable id, encoded value), in the order of encoding.
    #[inline]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes {
            rest: Reader::new(self.attributes),
        }
    }
}

/// An iterator over the attributes of a record.
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

/// A record that a read returned.
///
/// ```
/// use esker_model::schema::KeyType;
/// use esker_model::{Key, Record};
///
/// let key = Key::parse(KeyType::Int, "7")?;
/// let record = Record::from_json(key, 42, br#"{"id": 7, "name": "Ann"}"#);
/// let parsed: serde_json::Value = record.parse()?;
/// assert_eq!((record.seq(), &parsed["name"]), (42, &"Ann".into()));
/// # Ok::<(), esker_model::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<K = Key> {
    key: K,
    seq: Seq,
    stored: Slice,
    body_at: usize,
}

impl Record {
    /// A record in its stored form (see the [module](self)).
    ///
    /// # Errors
    /// [`Error::Damaged`] if the bytes are malformed, or lack the JSON.
    pub fn new(key: Key, seq: Seq, stored: Slice) -> Result<Record> {
        let body = RecordRef::body_of(&stored).map(<[u8]>::len);
        let body = body
            .filter(|body| *body > 0)
            .ok_or_else(|| Error::damaged("a stored record is malformed"))?;
        Ok(Record {
            key,
            seq,
            body_at: stored.len() - body,
            stored,
        })
    }

    /// A record of a store that has no stored form.
    pub fn from_json(key: Key, seq: Seq, json: &[u8]) -> Record {
        let mut stored = Vec::with_capacity(json.len() + 2);
        encode(&mut stored, 0, std::iter::empty(), json);
        Record {
            key,
            seq,
            body_at: stored.len() - json.len(),
            stored: stored.into(),
        }
    }

    /// The record with its key as a type of the program.
    ///
    /// # Errors
    /// If the key is not of that type.
    pub fn typed<K: PrimaryKey>(self) -> Result<Record<K>> {
        Ok(Record {
            key: K::from_key(self.key)?,
            seq: self.seq,
            stored: self.stored,
            body_at: self.body_at,
        })
    }
}

impl<K> Record<K> {
    /// The stored form: the extracted attributes and the JSON.
    pub fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// The JSON exactly as it was put.
    pub fn json(&self) -> &[u8] {
        self.stored.own(self.body_at..)
    }

    /// The record as a value of the program. Floats are read as `serde_json` reads them: to the
    /// last bit with its feature `float_roundtrip`.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the JSON does not fit `T`.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        let parsed = serde_json::from_slice(self.json());
        parsed.map_err(|why| Error::bad_input(format!("the record of write {}: {why}", self.seq)))
    }

    /// Its primary key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The sequence number of the write that put it: larger is newer.
    pub fn seq(&self) -> Seq {
        self.seq
    }
}

/// Appends a record as JSON.
///
/// # Errors
/// [`Error::BadInput`] if it cannot be serialised.
pub fn serialise(record: &(impl Serialize + ?Sized), json: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(json, record)
        .map_err(|why| Error::bad_input(format!("a record that cannot be written as JSON: {why}")))
}

/// The new state of a record, which an update decides from the old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// This JSON replaces it. It must have the same key.
    Put(Vec<u8>),
    /// The record is deleted.
    Delete,
    /// The record stays as it is.
    Keep,
}

impl Update {
    /// Replaces it with this record: anything that serialises as a JSON object with the same key.
    /// The error is of the type that the caller returns.
    ///
    /// # Errors
    /// [`Error::BadInput`] if it cannot be serialised.
    pub fn put<E: From<Error>>(
        record: &(impl Serialize + ?Sized),
    ) -> std::result::Result<Update, E> {
        let mut json = Vec::new();
        serialise(record, &mut json)?;
        Ok(Update::Put(json))
    }
}

/// What reads of a dataset return: [`Record`]s, or any type that deserialises from their JSON.
pub trait FromRecord<K>: Sized {
    /// The value of a record.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the record's JSON does not fit the type.
    fn from_record(record: Record<K>) -> Result<Self>;
}

impl<K> FromRecord<K> for Record<K> {
    #[inline]
    fn from_record(record: Record<K>) -> Result<Record<K>> {
        Ok(record)
    }
}

impl<K, V: DeserializeOwned> FromRecord<K> for V {
    fn from_record(record: Record<K>) -> Result<V> {
        record.parse()
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
