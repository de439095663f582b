//! Groups while their records arrive, in memory, and as entries that can be sorted elsewhere.
//!
//! An entry is the group's key, then `00` and what is known of the group, or `01`, the slot, one of
//! its values and how often it occurred; at the end the length of the group's key. Keys of groups
//! are encoded values, none a prefix of another one, so that sorted entries have those of a group
//! together: what is known of it first, then the values of each slot in their order.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

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
    /// Buffers.
    read: FieldValues,
    keys: Vec<Key>,
    item: Vec<u8>,
}

/// How often a value occurred.
struct Occurrences {
    /// The length of the group's key.
    group: u32,
    count: u64,
}

/// The key of a group that a record belongs to, and a bit for each field that has a number.
#[derive(Default, Clone)]
struct Key {
    bytes: Vec<u8>,
    numbers: u64,
}

impl Groups {
    /// No groups.
    pub fn new(grouping: Arc<Grouping>) -> Groups {
        Groups {
            grouping,
            states: Map::default(),
            values: Map::default(),
            bytes: 0,
            read: FieldValues::default(),
            keys: Vec::new(),
            item: Vec::new(),
        }
    }

    /// The bytes of memory that the groups take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record to its groups.
    ///
    /// # Errors
    /// [`Error::Overflow`](crate::Error::Overflow) if the begin of a bucket cannot be represented.
    pub fn add(&mut self, json: &[u8]) -> Result<()> {
        self.grouping.reader.read(json, &mut self.read);
        self.find_keys()?;
        let Groups {
            grouping,
            states,
            values,
            bytes,
            read,
            keys,
            item,
        } = self;
        for key in keys.iter() {
            let state = states.entry(key.bytes.clone()).or_insert_with(|| {
                let state = State::new(grouping);
                let slots = size_of_val(state.slots.as_slice());
                *bytes += key.bytes.len() + slots + size_of::<State>() + ITEM;
                state
            });
            state.numbers |= key.numbers;
            let mut kept = 0;
            let grown = state.add(grouping, read, &mut |slot, value| {
                item.clear();
                item.extend_from_slice(&key.bytes);
                item.extend_from_slice(&[VALUE, slot as u8]);
                item.extend_from_slice(value);
                match values.get_mut(item.as_slice()) {
                    Some(known) => known.count += 1,
                    None => {
                        kept += item.len() + ITEM;
                        let group = key.bytes.len() as u32;
                        values.insert(item.clone(), Occurrences { group, count: 1 });
                    }
                }
            });
            *bytes += grown + kept;
        }
        Ok(())
    }

    /// Adds records of which nothing but the number matters ([`Aggregation::is_count`]).
    ///
    /// [`Aggregation::is_count`]: super::Aggregation::is_count
    pub fn add_counted(&mut self, records: u64) {
        let mut state = State::new(&self.grouping);
        state.count = records;
        self.states.insert(Vec::new(), state);
    }

    /// Finds the keys of the groups that the record belongs to.
    fn find_keys(&mut self) -> Result<()> {
        let Groups {
            grouping,
            read,
            keys,
            ..
        } = self;
        keys.clear();
        keys.push(Key::default());
        for (at, by) in grouping.by.iter().enumerate() {
            let mut parts: Vec<(Vec<u8>, bool)> = Vec::new();
            for value in read.of(by.field) {
                let mut part = Vec::with_capacity(value.bytes.len());
                let has_bucket = match &by.buckets {
                    Some(buckets) => buckets.begin(value, &mut part)?,
                    None => {
                        part.extend_from_slice(value.bytes);
                        true
                    }
                };
                if has_bucket {
                    parts.push((part, value.is_number));
                }
            }
            if parts.is_empty() {
                parts.push((vec![ABSENT], false));
            }
            // Of equal values the number comes first.
            parts.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            parts.dedup_by(|a, b| a.0 == b.0);
            let before = std::mem::take(keys);
            for key in before {
                for (part, is_number) in &parts {
                    let mut key = key.clone();
                    key.bytes.extend_from_slice(part);
                    key.numbers |= u64::from(*is_number) << at;
                    keys.push(key);
                }
            }
        }
        Ok(())
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
