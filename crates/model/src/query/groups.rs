//! Groups while their records arrive, in memory, and as entries that can be sorted elsewhere.
//!
//! An entry is the group's key, then `00` and what is known of the group, or `01`, the slot, one of
//! its values and how often it occurred; at the end the length of the group's key. Keys of groups
//! are encoded values, none a prefix of another one, so that sorted entries have those of a group
//! together: what is known of it first, then the values of each slot in their order.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::convert::Infallible;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use esker_coding::Own;

use super::First;
use super::group::Group;
use super::group_state::State;
use super::grouping::Grouping;
use super::totals::{KNOWN, Totals, VALUE};
use crate::error::Result;
use crate::schema::ordered::{ABSENT, FieldValues};

/// Maps whose order depends on what was added alone.
type Map<V> = HashMap<Vec<u8>, V, BuildHasherDefault<DefaultHasher>>;

/// The memory of an item of a map beside its bytes, about.
const ITEM: usize = 64;

/// Groups in memory.
pub struct Groups {
    grouping: Arc<Grouping>,
    states: Map<State>,
    /// How often the values of slots occurred, by group, slot and value.
    values: Map<Occurrences>,
    bytes: usize,
    /// The parts of keys that the current record has, for each field that forms groups.
    fields: Vec<FieldParts>,
    /// Buffers.
    read: FieldValues,
    key: Vec<u8>,
    item: Vec<u8>,
}

/// How often a value occurred.
struct Occurrences {
    /// The length of the group's key.
    group: u32,
    count: u64,
}

/// The different parts of keys that a record's values of a field give, at least one. The record is
/// in a group for each combination of the fields' parts; these are visited one by one, since there
/// may be more of them than fit in memory.
#[derive(Default)]
struct FieldParts {
    parts: Vec<Part>,
    /// The part of the current combination.
    at: usize,
}

/// The part of a group's key that a value gives.
struct Part {
    bytes: Vec<u8>,
    is_number: bool,
}

impl Groups {
    /// No groups.
    pub fn new(grouping: Arc<Grouping>) -> Groups {
        Groups {
            grouping,
            states: Map::default(),
            values: Map::default(),
            bytes: 0,
            fields: Vec::new(),
            read: FieldValues::default(),
            key: Vec::new(),
            item: Vec::new(),
        }
    }

    /// The bytes of memory that the groups take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record to its groups.
    pub fn add(&mut self, json: &[u8]) {
        let Ok(()) = self.add_each(json, &mut |_| Ok::<_, Infallible>(()));
    }

    /// As [`Groups::add`], with a call of `after_each` whenever the record was added to one group:
    /// it may [`drain`](Groups::drain) the groups. A record with several arrays may belong to more
    /// groups than fit in memory.
    ///
    /// # Errors
    /// Those of `after_each`, after which the record is in some of its groups.
    pub fn add_each<E>(
        &mut self,
        json: &[u8],
        after_each: &mut dyn FnMut(&mut Groups) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.grouping.reader.read(json, &mut self.read);
        self.find_parts();
        loop {
            self.add_to_current();
            after_each(self)?;
            if !self.advance() {
                return Ok(());
            }
        }
    }

    /// Adds the record to the group of the current combination of parts.
    fn add_to_current(&mut self) {
        let Groups {
            grouping,
            states,
            values,
            bytes,
            fields,
            read,
            key,
            item,
        } = self;
        key.clear();
        let mut numbers = 0;
        for (at, field) in fields.iter().enumerate() {
            let part = field.parts.own(field.at);
            key.extend_from_slice(&part.bytes);
            numbers |= u64::from(part.is_number) << at;
        }
        let state = states.entry(key.clone()).or_insert_with(|| {
            let state = State::new(grouping);
            let slots = size_of_val(state.slots.as_slice());
            *bytes += key.len() + slots + size_of::<State>() + ITEM;
            state
        });
        state.numbers |= numbers;
        let mut kept = 0;
        let grown = state.add(grouping, read, &mut |slot, value| {
            item.clear();
            item.extend_from_slice(key);
            item.extend_from_slice(&[VALUE, slot as u8]);
            item.extend_from_slice(value);
            match values.get_mut(item.as_slice()) {
                Some(known) => known.count += 1,
                None => {
                    kept += item.len() + ITEM;
                    let group = key.len() as u32;
                    values.insert(item.clone(), Occurrences { group, count: 1 });
                }
            }
        });
        *bytes += grown + kept;
    }

    /// Goes on to the next combination of parts; false behind the last one.
    fn advance(&mut self) -> bool {
        for field in self.fields.iter_mut().rev() {
            field.at += 1;
            if field.at < field.parts.len() {
                return true;
            }
            field.at = 0;
        }
        false
    }

    /// Adds records of which nothing but the number matters ([`Aggregation::is_count`]).
    ///
    /// [`Aggregation::is_count`]: super::Aggregation::is_count
    pub fn add_counted(&mut self, records: u64) {
        let mut state = State::new(&self.grouping);
        state.count = records;
        self.states.insert(Vec::new(), state);
    }

    /// Finds the parts of the keys of the groups that the record belongs to, and begins with the
    /// first combination.
    fn find_parts(&mut self) {
        let by = &self.grouping.by;
        self.fields.resize_with(by.len(), FieldParts::default);
        for (by, FieldParts { parts, at }) in by.iter().zip(&mut self.fields) {
            *at = 0;
            parts.clear();
            for value in self.read.of(by.field) {
                let mut bytes = Vec::with_capacity(value.bytes.len());
                let has_bucket = match &by.buckets {
                    Some(buckets) => buckets.begin(value, &mut bytes),
                    None => {
                        bytes.extend_from_slice(value.bytes);
                        true
                    }
                };
                if has_bucket {
                    let is_number = value.is_number;
                    parts.push(Part { bytes, is_number });
                }
            }
            if parts.is_empty() {
                let (bytes, is_number) = (vec![ABSENT], false);
                parts.push(Part { bytes, is_number });
            }
            // Of equal values the number comes first.
            parts
                .sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes).then(b.is_number.cmp(&a.is_number)));
            parts.dedup_by(|a, b| a.bytes == b.bytes);
        }
    }

    /// Passes all groups as entries to `to`, in no order, and forgets them.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn drain<E>(
        &mut self,
        to: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut entry = Vec::new();
        for (key, state) in self.states.drain() {
            entry.clear();
            entry.extend_from_slice(&key);
            entry.push(KNOWN);
            state.encode(&mut entry);
            entry.extend_from_slice(&(key.len() as u32).to_be_bytes());
            to(&entry)?;
        }
        for (key, Occurrences { group, count }) in self.values.drain() {
            entry.clear();
            entry.extend_from_slice(&key);
            entry.extend_from_slice(&count.to_be_bytes());
            entry.extend_from_slice(&group.to_be_bytes());
            to(&entry)?;
        }
        self.bytes = 0;
        Ok(())
    }

    /// The results, all in memory.
    ///
    /// # Errors
    /// [`Error::Overflow`](crate::Error::Overflow) if a sum cannot be represented.
    pub fn finish(mut self) -> Result<Vec<Group>> {
        let mut entries: Vec<Vec<u8>> = Vec::new();
        self.drain(&mut |entry| {
            entries.push(entry.to_vec());
            Ok::<_, crate::Error>(())
        })?;
        entries.sort_unstable();
        let grouping = self.grouping;
        let mut totals = Totals::new(grouping.clone());
        let mut all = Vec::new();
        for entry in entries {
            all.extend(totals.push(&entry)?);
        }
        all.extend(totals.finish()?);
        let most = grouping.limit().unwrap_or(usize::MAX);
        if !grouping.is_ordered() {
            all.truncate(most);
            return Ok(all);
        }
        let (mut first, mut rank) = (First::new(most), Vec::new());
        for group in all {
            grouping.rank(&group, &mut rank);
            first.add(&rank, group);
        }
        let first = first.finish().into_iter();
        Ok(first.map(|(_, group)| group).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{DatasetDef, StoredDef};
    use crate::error::Error;
    use crate::query::{Aggregation, Shape};
    use crate::schema::KeyType;

    #[test]
    fn a_record_of_many_groups_leaves_the_memory_between_two_of_them() {
        let def = StoredDef::new(&DatasetDef::new("id", KeyType::Int));
        let mut aggregation = Aggregation::new(["count".parse().unwrap()]);
        aggregation.by = vec!["a".parse().unwrap(), "b".parse().unwrap()];
        let grouping = Grouping::new(&Shape::new(&def), &aggregation).unwrap();
        let numbers: Vec<u32> = (0..60).collect();
        let record = format!("{{\"id\":1,\"a\":{numbers:?},\"b\":{numbers:?}}}");
        let mut whole = Groups::new(grouping.clone());
        whole.add(record.as_bytes());
        let most = whole.bytes() / 20;
        let (mut groups, mut entries, mut highest) = (Groups::new(grouping.clone()), Vec::new(), 0);
        for _ in 0..2 {
            let mut bound = |groups: &mut Groups| {
                highest = highest.max(groups.bytes());
                if groups.bytes() < most {
                    return Ok(());
                }
                groups.drain(&mut |entry| {
                    entries.push(entry.to_vec());
                    Ok::<_, Error>(())
                })
            };
            groups.add_each(record.as_bytes(), &mut bound).unwrap();
        }
        assert!(highest <= 2 * most, "{highest} of {most}");
        let mut rest = |entry: &[u8]| {
            entries.push(entry.to_vec());
            Ok::<_, Error>(())
        };
        groups.drain(&mut rest).unwrap();
        entries.sort_unstable();
        let (mut totals, mut all) = (Totals::new(grouping), Vec::new());
        for entry in entries {
            all.extend(totals.push(&entry).unwrap());
        }
        all.extend(totals.finish().unwrap());
        whole.add(record.as_bytes());
        let expected = whole.finish().unwrap();
        assert_eq!(expected.len(), 3600);
        assert_eq!(format!("{all:?}"), format!("{expected:?}"));
    }
}
