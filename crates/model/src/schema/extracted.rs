//! The values that were extracted from a record.

use esker_coding::{Own, Reader};

use super::compound::FoundFields;
use super::point_at::Coordinates;
use super::types::Type;
use super::value::Value;
use super::wanted::Remark;

/// The values extracted from a record. Reusable: its buffers keep their capacity.
#[derive(Debug, Clone, Default)]
pub struct Extracted {
    pub(super) key: Vec<u8>,
    /// The encoded fields of a composite key; empty where a field was not found.
    pub(super) key_fields: Vec<Vec<u8>>,
    pub(super) values: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    /// The coordinates found of attributes that are points.
    pub(super) points: Vec<(u32, Coordinates)>,
    /// The times found of attributes that are points at a time.
    pub(super) times: Vec<(u32, i64)>,
    /// The values found of the fields of attributes that have several.
    pub(super) fields: FoundFields,
    /// The attributes with a value at their path that is not indexed.
    pub(super) unindexed: Vec<u32>,
    pub(super) remarks: Vec<(u32, Remark)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) attribute: u32,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Extracted {
    /// The encoded primary key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Every attribute value: (index of the attribute in the list, encoded value), ascending and
    /// without duplicates.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> + Clone {
        self.entries
            .iter()
            .map(|entry| (entry.attribute as usize, bytes_of(&self.values, entry)))
    }

    /// The distinct encoded values of the attribute with index `attribute`, ascending.
    pub fn values(&self, attribute: usize) -> impl Iterator<Item = &[u8]> + Clone {
        self.iter()
            .filter(move |(a, _)| *a == attribute)
            .map(|(_, value)| value)
    }

    /// The attributes (by their index in the list) at whose paths the record has something that is
    /// not indexed: an object instead of a value, or an invalid point.
    pub fn unindexed(&self) -> impl Iterator<Item = usize> + Clone {
        self.unindexed.iter().map(|attribute| *attribute as usize)
    }

    /// Remarks about the record, each with the index of its attribute.
    pub fn remarks(&self) -> impl Iterator<Item = (usize, Remark)> + Clone {
        let remarks = self.remarks.iter();
        remarks.map(|(attribute, remark)| (*attribute as usize, *remark))
    }

    /// The earliest value of an attribute of type [`Type::Time`], in microseconds since 1970.
    pub fn time(&self, attribute: usize) -> Option<i64> {
        let first = self.values(attribute).next()?;
        match Value::decode(Type::Time, &mut Reader::new(first))? {
            Value::Time(micros) => Some(micros),
            _ => None,
        }
    }

    /// The bytes that the buffers have allocated.
    pub fn memory(&self) -> usize {
        let times = self.times.capacity() * size_of::<(u32, i64)>();
        let points = self.points.capacity() * size_of::<(u32, Coordinates)>();
        let entries = self.entries.capacity() * size_of::<Entry>();
        let unindexed = self.unindexed.capacity() * size_of::<u32>();
        let remarks = self.remarks.capacity() * size_of::<(u32, Remark)>();
        let found = points + times + self.fields.memory() + unindexed + remarks;
        self.key.capacity() + self.values.capacity() + entries + found
    }

    pub(super) fn clear(&mut self) {
        self.key.clear();
        self.key_fields.iter_mut().for_each(Vec::clear);
        self.values.clear();
        self.entries.clear();
        self.points.clear();
        self.times.clear();
        self.fields.clear();
        self.unindexed.clear();
        self.remarks.clear();
    }

    /// Sorts the entries and drops duplicates. Records have few entries, nearly sorted.
    pub(super) fn normalise(&mut self) {
        self.unindexed.sort_unstable();
        self.unindexed.dedup();
        let Extracted {
            values, entries, ..
        } = self;
        if entries.len() < 2 {
            return;
        }
        let rank = |entry: &Entry| (entry.attribute, bytes_of(values, entry));
        entries.sort_unstable_by(|a, b| rank(a).cmp(&rank(b)));
        entries.dedup_by(|a, b| rank(a) == rank(b));
    }
}

#[inline]
fn bytes_of<'a>(values: &'a [u8], entry: &Entry) -> &'a [u8] {
    values.own(entry.start..entry.end)
}
