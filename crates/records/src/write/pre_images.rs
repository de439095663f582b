//! Pre-images: the records that a batch replaces. Eager maintenance reads the old record and
//! cancels its index entries (Luo & Carey section 3.1). A mutable bitmap sets the bit of the old
//! write (section 5.2). Under any strategy an insert must replace nothing. All of them start with
//! the primary-key index, which distinguishes new keys from existing ones without reading records;
//! without that index they read the data.
//!
//! The lookup precedes the append and takes all keys of the batch together, so that writers do not
//! wait for each other's reads. Under the writer lock the result is only validated: newer writes of
//! a key are in the memtables, and are found without I/O.

use std::collections::HashMap;

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{Batch, Cost, Kind, LookupOptions, Seq, Slice, Snapshot, Time, TreeId};
use esker_model::record::RecordRef;

use crate::bodies::{self, Bodies};
use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::{IndexEntry, Writes};
use crate::maintenance::{self, AtCommit};
use crate::store::has_expired;

/// A key that a batch puts or deletes.
pub(crate) struct Touched {
    pub(crate) key: Vec<u8>,
    /// Its index among the batch's writes.
    pub(crate) ordinal: u32,
    /// The key must be new.
    pub(crate) insert: bool,
}

/// A condition on a key at the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expectation {
    pub(crate) key: Vec<u8>,
    /// The write that its record must be of; `None` if it must have no record.
    pub(crate) seq: Option<Seq>,
    /// An expired record counts as existing until it is deleted.
    pub(crate) as_stored: bool,
}

/// The current state of a key.
struct Found {
    key: Vec<u8>,
    /// The write of its record, if it has one.
    seq: Option<Seq>,
    /// The stored record. Read only if the feed includes replaced records.
    stored: Option<Slice>,
    /// The record exists and has expired. Determined only if the batch depends on it.
    expired: bool,
    /// The batch writes the key; otherwise it only has an expectation of it.
    written: bool,
}

/// The current state of a batch's keys.
pub(crate) struct Replaced {
    /// In ascending order, each key once.
    found: Vec<Found>,
    /// The last write that the lookup saw.
    seq: Seq,
    /// The time of the lookup.
    time: Time,
}

/// Why a batch cannot be completed.
pub(crate) enum Conflict {
    /// Another writer changed one of the keys: the lookup must be repeated.
    Changed,
    /// The key of an insert exists.
    Exists(Vec<u8>),
    /// The key is not as expected; with the write of its record.
    Unexpected(Vec<u8>, Option<Seq>),
    /// Not a conflict: a key was not looked up.
    Defect(Misplaced),
}

impl From<Misplaced> for Conflict {
    fn from(defect: Misplaced) -> Conflict {
        Conflict::Defect(defect)
    }
}

impl Replaced {
    /// Looks up all keys in one batch: in the primary-key index, or in the data if there is none.
    pub(crate) fn look_up(
        layout: &Layout,
        snapshot: &Snapshot,
        touched: &[Touched],
        expected: &[Expectation],
    ) -> Result<Replaced> {
        let inserts = || touched.iter().any(|touched| touched.insert);
        let depends = layout.expiry.is_some() && (!expected.is_empty() || inserts());
        let keeps_old = layout.old.is_some();
        let looks = layout.stored.settings.maintenance.looks_at_writes() || keeps_old;
        let needed = |t: &&Touched| t.insert || looks;
        let written = touched.iter().filter(needed);
        let written = written.map(|touched| (touched.key.clone(), true));
        let expected = expected
            .iter()
            .map(|expected| (expected.key.clone(), false));
        let found = written.chain(expected).map(|(key, written)| Found {
            key,
            seq: None,
            stored: None,
            expired: false,
            written,
        });
        let mut found: Vec<Found> = found.collect();
        found.sort_unstable_by(|a, b| (&a.key, !a.written).cmp(&(&b.key, !b.written)));
        found.dedup_by(|later, earlier| later.key == earlier.key);
        debug_assert!(
            found.is_sorted_by(|a, b| a.key < b.key),
            "ascending, each key once"
        );
        let keys: Vec<Vec<u8>> = found.iter().map(|found| found.key.clone()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        // The data gives the same numbers if there is no primary-key index, or while it lacks the
        // older records.
        let tree = looked_up(layout);
        let cost = Cost::default();
        let mut note_found = |at: usize, entry: esker_lsm::Found| {
            let slot = found.own_mut(at);
            slot.seq = Some(entry.seq);
            slot.stored = Some(entry.value).filter(|_| keeps_old && slot.written);
        };
        match keys.as_slice() {
            [key] => {
                if let Some(entry) = snapshot.get(tree, key, &cost)? {
                    note_found(0, entry);
                }
            }
            _ => snapshot.visit_batch(tree, &keys, &cost, &mut note_found)?,
        }
        if keeps_old {
            add_bodies(layout, snapshot, &mut found)?;
        }
        if depends {
            look_up_expired(layout, snapshot, &mut found)?;
        }
        Ok(Replaced {
            found,
            seq: snapshot.seq(),
            time: snapshot.time(),
        })
    }

    /// The first key that is not as expected, and the write of its record.
    pub(crate) fn unexpected(
        &self,
        expected: &[Expectation],
    ) -> Result<Option<(Vec<u8>, Option<Seq>)>> {
        for expected in expected {
            let found = self.found.item(self.place_of(&expected.key)?)?;
            let is_there = expected.as_stored || !found.expired;
            let there = found.seq.filter(|_| is_there);
            if there != expected.seq {
                return Ok(Some((expected.key.clone(), there)));
            }
        }
        Ok(None)
    }

    /// The place of a key that was looked up.
    fn place_of(&self, key: &[u8]) -> std::result::Result<usize, Misplaced> {
        let place = self.found.binary_search_by(|found| found.key[..].cmp(key));
        place.map_err(|_| Misplaced::here())
    }

    /// The number of written keys, and the number of those that exist.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let written = || self.found.iter().filter(|found| found.written);
        let there = written().filter(|found| found.seq.is_some());
        (written().count() as u64, there.count() as u64)
    }

    /// Adds the cancellations of the old records' index entries, except for values that the batch
    /// gives the record again: eager maintenance. Each replaced record takes a number of its own
    /// for this, with the bit of its write: its cancellations are in different lists, so they do
    /// not collide.
    pub(crate) fn cancel(
        &self,
        layout: &Layout,
        snapshot: &Snapshot,
        writes: &mut Writes,
    ) -> Result<()> {
        let mut new: HashMap<Vec<u8>, AttributeValues> = HashMap::new();
        writes.batch.each(&mut |tree, kind, key, value| {
            if tree == layout.data
                && kind == Kind::Put
                && let Some(record) = RecordRef::parse(value)
            {
                new.insert(key.to_vec(), entries_of(layout, &record));
            }
        });
        let known: Vec<(&[u8], Seq)> = self
            .found
            .iter()
            .filter(|found| found.written)
            .filter_map(|found| Some((found.key.as_slice(), found.seq?)))
            .collect();
        let keys: Vec<&[u8]> = known.iter().map(|(key, _)| *key).collect();
        let mut cancel = |at: usize, old: &[u8]| {
            let (key, seq) = *known.own(at);
            let stays = new.get(key).map_or(&[][..], Vec::as_slice);
            cancel_record(layout, writes, key, seq, old, stays)
        };
        // Attributes declared later are in the JSON only.
        let late = layout.has_late_attributes();
        let mut bodies = if late {
            Bodies::new(layout, snapshot)?
        } else {
            Bodies::not_needed(snapshot)
        };
        let (mut result, cost) = (Ok(()), Cost::default());
        snapshot.visit_batch(layout.data, &keys, &cost, &mut |at, old| {
            if result.is_err() {
                return;
            }
            result = if bodies.lacks(&old.value) {
                bodies.add(at, known.own(at).0, old.seq, &old.value)
            } else {
                cancel(at, &old.value)
            };
        })?;
        result?;
        bodies.read(LookupOptions::default(), &cost, &mut |at, old| {
            cancel(at, &old)
        })
    }

    /// Logs the replaced records for the feed: the number of each write, and its stored form.
    fn log_replaced(
        &self,
        old: TreeId,
        layout: &Layout,
        batch: &mut Batch,
        snapshot: &Snapshot,
    ) -> esker_lsm::Result<()> {
        for found in self.found.iter().filter(|found| found.written) {
            let mut log = |seq: Seq, stored: &[u8]| {
                batch.also_parts(old, &found.key, &[&seq.to_le_bytes(), stored])
            };
            match snapshot.get_in_memory(layout.data, &found.key) {
                Some(entry) if entry.seq > self.seq => {
                    if entry.kind == Kind::Put {
                        let stored = bodies::with_body_in_memory(
                            layout,
                            snapshot,
                            &found.key,
                            entry.seq,
                            entry.value,
                        );
                        let gone = || {
                            esker_lsm::Error::Invalid("a record is not at its location".to_string())
                        };
                        log(entry.seq, &stored.ok_or_else(gone)?)?;
                    }
                }
                _ => {
                    if let (Some(seq), Some(stored)) = (found.seq, &found.stored) {
                        log(seq, stored)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Called under the writer lock; `snapshot` has everything before the batch. Checks that the
    /// looked-up state is current, and sets the bits of the replaced writes.
    pub(crate) fn complete(
        &self,
        layout: &Layout,
        touched: &[Touched],
        expected: &[Expectation],
        batch: &mut Batch,
        snapshot: &Snapshot,
    ) -> std::result::Result<esker_lsm::Result<()>, Conflict> {
        // Writes since the lookup are in the memtables, unless these were flushed.
        if snapshot.flushed() > self.seq {
            return Err(Conflict::Changed);
        }
        let at_commit = maintenance::of(layout.stored.settings.maintenance).at_commit();
        let tree = looked_up(layout);
        let mut current = Vec::with_capacity(self.found.len());
        for found in &self.found {
            let (key, seq, written) = (&found.key, &found.seq, &found.written);
            current.push(match snapshot.get_in_memory(tree, key) {
                Some(entry) if entry.seq > self.seq => {
                    // A bit needs only the number of the last write; cancelled entries need its
                    // values.
                    if *written && at_commit == AtCommit::CancelsEntries {
                        return Err(Conflict::Changed);
                    }
                    let seq = Some(entry.seq).filter(|_| entry.kind == Kind::Put);
                    // A key and its record are in the same memtable.
                    let record = (layout.expiry)
                        .and_then(|_| snapshot.get_in_memory(layout.data, key))
                        .and_then(|record| RecordRef::expiry_of(&record.value));
                    (seq, record.is_some_and(|expires| expires <= self.time))
                }
                _ => (*seq, found.expired),
            });
        }
        let now = |key: &[u8], as_stored: bool| -> std::result::Result<Option<Seq>, Misplaced> {
            let (seq, expired) = *current.item(self.place_of(key)?)?;
            Ok(seq.filter(|_| as_stored || !expired))
        };
        for expected in expected {
            let there = now(&expected.key, expected.as_stored)?;
            if there != expected.seq {
                return Err(Conflict::Unexpected(expected.key.clone(), there));
            }
        }
        for touched in touched.iter().filter(|touched| touched.insert) {
            if now(&touched.key, false)?.is_some() {
                return Err(Conflict::Exists(touched.key.clone()));
            }
        }
        if let Some(old) = layout.old
            && let Err(error) = self.log_replaced(old, layout, batch, snapshot)
        {
            return Ok(Err(error));
        }
        let (AtCommit::SetsBits, Some(bitmap)) = (at_commit, layout.superseded) else {
            return Ok(Ok(()));
        };
        let mut set =
            |seq: Seq| batch.also(Kind::Put, bitmap, &esker_lsm::entry::seq_key(seq), &[]);
        let mut result = Ok(());
        let written = current.iter().zip(&self.found);
        for ((seq, _), _) in written.filter(|(_, found)| found.written) {
            if let Some(seq) = seq {
                result = result.and_then(|()| set(*seq));
            }
        }
        Ok(result)
    }
}

/// The tree that gives the write of a key's record.
fn looked_up(layout: &Layout) -> TreeId {
    match layout.old {
        // The data has the record, too.
        Some(_) => layout.data,
        None => layout.keys.unwrap_or(layout.data),
    }
}

/// Reads the missing bodies.
fn add_bodies(layout: &Layout, snapshot: &Snapshot, found: &mut [Found]) -> Result<()> {
    let mut bodies = Bodies::new(layout, snapshot)?;
    for (at, found) in found.iter().enumerate() {
        if let (Some(seq), Some(stored)) = (found.seq, &found.stored)
            && bodies.lacks(stored)
        {
            bodies.add(at, &found.key, seq, stored)?;
        }
    }
    bodies.read(
        LookupOptions::default(),
        &Cost::default(),
        &mut |at, record| {
            found.own_mut(at).stored = Some(record);
            Ok(())
        },
    )
}

/// Determines which of the existing records have expired. The primary-key index lacks expiry times.
fn look_up_expired(layout: &Layout, snapshot: &Snapshot, found: &mut [Found]) -> Result<()> {
    let there: Vec<usize> = (0..found.len())
        .filter(|at| found.own(*at).seq.is_some())
        .collect();
    let keys: Vec<Vec<u8>> = there.iter().map(|at| found.own(*at).key.clone()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    snapshot.visit_batch(layout.data, &keys, &Cost::default(), &mut |nth, record| {
        found.own_mut(*there.own(nth)).expired = has_expired(snapshot, &record.value);
    })?;
    Ok(())
}

/// Attribute ids and values of a record.
type AttributeValues = Vec<(u32, Vec<u8>)>;

/// The index entries of a record, including those of attributes declared after it was stored.
fn entries_of(layout: &Layout, record: &RecordRef<'_>) -> AttributeValues {
    let mut index_entries = AttributeValues::new();
    for (_, attribute) in layout.written() {
        attribute.any_value(record, |value| {
            index_entries.push((attribute.id, value.to_vec()));
            false
        });
    }
    index_entries
}

/// Cancels the index entries of an old record, the write `seq`, except those that the new record
/// has.
fn cancel_record(
    layout: &Layout,
    writes: &mut Writes,
    key: &[u8],
    seq: Seq,
    old: &[u8],
    new: &[(u32, Vec<u8>)],
) -> Result<()> {
    let Some(old) = RecordRef::parse(old) else {
        return Err(Error::damaged("a stored record is malformed"));
    };
    let bitmap = layout
        .superseded
        .ok_or_else(|| Error::damaged("eager maintenance: the dataset has no obsolete set"))?;
    writes
        .batch
        .put(bitmap, &esker_lsm::entry::seq_key(seq), &[])?;
    let mut widened = Vec::new();
    for (_, attribute) in layout.written() {
        let target = attribute.tree.or(attribute.widened);
        let Some(index) = attribute.index().filter(|_| target.is_some()) else {
            continue;
        };
        // A filter and its replacement under construction share a tree.
        if let Some(tree) = attribute.widened {
            if widened.contains(&tree) {
                continue;
            }
            widened.push(tree);
        }
        let mut had: Vec<Vec<u8>> = Vec::new();
        attribute.any_value(&old, |value| {
            had.push(value.to_vec());
            false
        });
        let has = new.iter().filter(|(id, _)| *id == attribute.id);
        attribute.tokenizer.each_lost(
            had.iter().map(Vec::as_slice),
            has.map(|(_, value)| value.as_slice()),
            |value| {
                let index_entry = IndexEntry {
                    attribute,
                    value,
                    key,
                    record: IndexEntry::APART,
                };
                index.cancel(writes, index_entry)
            },
        )?;
    }
    Ok(())
}
