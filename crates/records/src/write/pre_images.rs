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
use esker_lsm::{Batch, Cost, Found, Kind, LookupOptions, Seq, Slice, Snapshot, Time, TreeId};
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
    /// The index of its write among those of the batch.
    pub(crate) ordinal: u32,
    /// The key is inserted: it may not have a record before the batch.
    pub(crate) must_be_new: bool,
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

/// A key of a batch, and its record as the lookup found it.
struct KeyState {
    key: Vec<u8>,
    record: RecordState,
    /// The stored record. Read only if the feed includes replaced records.
    stored: Option<Slice>,
    /// The batch writes the key; otherwise it only has an expectation of it.
    is_written: bool,
}

/// The record of a key.
#[derive(Clone, Copy, Default)]
struct RecordState {
    /// The write of the record; `None` if the key has no record.
    seq: Option<Seq>,
    /// The record exists and has expired. Determined only if the batch depends on it.
    is_expired: bool,
}

impl RecordState {
    /// The write of the record, for a condition that counts expired records (`as_stored`) or not.
    fn counted(self, as_stored: bool) -> Option<Seq> {
        self.seq.filter(|_| as_stored || !self.is_expired)
    }
}

/// The records that a batch replaces or has expectations of, as the lookup found them.
pub(crate) struct Replaced {
    /// In ascending order, each key once.
    keys: Vec<KeyState>,
    /// The last write that the lookup saw.
    seq: Seq,
    /// The time of the lookup.
    time: Time,
}

/// A key whose record is not as the batch expects.
pub(crate) struct UnexpectedRecord {
    pub(crate) key: Vec<u8>,
    /// The write of the record that the key has, if it has one.
    pub(crate) seq: Option<Seq>,
}

/// How many of the keys that a batch writes were looked up, and how many of these have a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Replacements {
    pub(crate) looked_up: u64,
    pub(crate) replaced: u64,
}

/// Why a batch cannot be completed.
pub(crate) enum Conflict {
    /// Another writer changed one of the keys: the lookup must be repeated.
    Changed,
    /// The key of an insert exists.
    Exists(Vec<u8>),
    Unexpected(UnexpectedRecord),
    /// Not a conflict, but an error: the batch exceeds a limit, or a key was not looked up.
    Failed(esker_lsm::Error),
}

impl From<Misplaced> for Conflict {
    fn from(defect: Misplaced) -> Conflict {
        Conflict::Failed(defect.into())
    }
}

impl From<esker_lsm::Error> for Conflict {
    /// An index reports with the engine's `Conflict` that its state has changed
    /// ([`Completion::complete`](crate::index::Completion::complete)).
    fn from(error: esker_lsm::Error) -> Conflict {
        match error {
            esker_lsm::Error::Conflict(_) => Conflict::Changed,
            error => Conflict::Failed(error),
        }
    }
}

impl Replaced {
    /// Looks up all keys in one batch: in the primary-key index, or in the data if there is none.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn look_up(
        layout: &Layout,
        snapshot: &Snapshot,
        touched: &[Touched],
        expected: &[Expectation],
    ) -> Result<Replaced> {
        let has_inserts = || touched.iter().any(|touched| touched.must_be_new);
        let needs_expiry = layout.expiry.is_some() && (!expected.is_empty() || has_inserts());
        let keeps_old = layout.old.is_some();
        let mut states = keys_of(layout, touched, expected);
        let keys: Vec<Vec<u8>> = states.iter().map(|state| state.key.clone()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        // The data gives the same numbers if there is no primary-key index, or while it lacks the
        // older records.
        let tree = probed_tree(layout);
        let cost = Cost::default();
        let mut note_record = |at: usize, entry: Found| {
            let state = states.own_mut(at);
            state.record.seq = Some(entry.seq);
            state.stored = Some(entry.value).filter(|_| keeps_old && state.is_written);
        };
        match keys.as_slice() {
            [key] => {
                if let Some(entry) = snapshot.get(tree, key, &cost)? {
                    note_record(0, entry);
                }
            }
            _ => snapshot.visit_batch(tree, &keys, &cost, &mut note_record)?,
        }
        if keeps_old {
            add_bodies(layout, snapshot, &mut states)?;
        }
        if needs_expiry {
            look_up_expired(layout, snapshot, &mut states)?;
        }
        Ok(Replaced {
            keys: states,
            seq: snapshot.seq(),
            time: snapshot.time(),
        })
    }

    /// The first key whose record is not as expected.
    ///
    /// # Errors
    /// A key that was not looked up: a defect.
    pub(crate) fn unexpected(&self, expected: &[Expectation]) -> Result<Option<UnexpectedRecord>> {
        for expected in expected {
            let state = self.keys.item(self.index_of(&expected.key)?)?;
            let seq = state.record.counted(expected.as_stored);
            if seq != expected.seq {
                let key = expected.key.clone();
                return Ok(Some(UnexpectedRecord { key, seq }));
            }
        }
        Ok(None)
    }

    /// The index of a key that was looked up.
    fn index_of(&self, key: &[u8]) -> std::result::Result<usize, Misplaced> {
        let at = self.keys.binary_search_by(|state| state.key[..].cmp(key));
        at.map_err(|_| Misplaced::here())
    }

    /// The keys that the batch writes.
    fn written(&self) -> impl Iterator<Item = &KeyState> {
        self.keys.iter().filter(|state| state.is_written)
    }

    /// Counts the written keys that were looked up.
    pub(crate) fn counts(&self) -> Replacements {
        let existing = self.written().filter(|state| state.record.seq.is_some());
        Replacements {
            looked_up: self.written().count() as u64,
            replaced: existing.count() as u64,
        }
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
        let new = new_values(layout, &writes.batch)?;
        let known: Vec<KnownWrite<'_>> = self
            .written()
            .filter_map(|state| {
                let key = state.key.as_slice();
                state.record.seq.map(|seq| KnownWrite { key, seq })
            })
            .collect();
        let keys: Vec<&[u8]> = known.iter().map(|write| write.key).collect();
        let mut cancel = |at: usize, old: &[u8]| {
            let write = known.own(at);
            // A deleted record has no new values.
            let new_values = new.get(write.key).map_or(&[][..], Vec::as_slice);
            cancel_record(layout, writes, write, old, new_values)
        };
        // Attributes declared later are in the JSON only.
        let mut bodies = if layout.has_late_attributes() {
            Bodies::new(layout, snapshot)?
        } else {
            Bodies::not_needed(snapshot)
        };
        let cost = Cost::default();
        let mut result = Ok(());
        snapshot.visit_batch(layout.data, &keys, &cost, &mut |at, old| {
            if result.is_err() {
                return;
            }
            result = if bodies.lacks(&old.value) {
                bodies.add(at, known.own(at).key, old.seq, &old.value)
            } else {
                cancel(at, &old.value)
            };
        })?;
        result?;
        bodies.read(LookupOptions::default(), &cost, &mut |at, old| {
            cancel(at, &old)
        })
    }

    /// Logs the replaced records for the feed, in the tree `old_records`: the number of each write,
    /// and its stored form.
    fn log_replaced(
        &self,
        old_records: TreeId,
        layout: &Layout,
        batch: &mut Batch,
        snapshot: &Snapshot,
    ) -> esker_lsm::Result<()> {
        for state in self.written() {
            let mut log = |seq: Seq, stored: &[u8]| {
                batch.also_parts(old_records, &state.key, &[&seq.to_le_bytes(), stored])
            };
            match snapshot.get_in_memory(layout.data, &state.key) {
                Some(Found { seq, kind, value }) if seq > self.seq => {
                    if kind == Kind::Put {
                        let stored =
                            bodies::with_body_in_memory(layout, snapshot, &state.key, seq, value)?;
                        log(seq, &stored)?;
                    }
                }
                _ => {
                    if let Some(seq) = state.record.seq {
                        // The lookup reads the stored records of all written keys if they are
                        // logged.
                        log(seq, state.stored.as_ref().ok_or_else(|| Misplaced::here())?)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Called under the writer lock; `snapshot` has everything before the batch. Checks that the
    /// looked-up state is current and meets the conditions of the batch, logs the replaced records
    /// for the feed, and sets the bits of the replaced writes.
    ///
    /// # Errors
    /// [`Conflict`]; the batch is then not written.
    pub(crate) fn complete(
        &self,
        layout: &Layout,
        touched: &[Touched],
        expected: &[Expectation],
        batch: &mut Batch,
        snapshot: &Snapshot,
    ) -> std::result::Result<(), Conflict> {
        let at_commit = maintenance::strategy_of(layout.stored.settings.maintenance).at_commit();
        let current = self.current_records(layout, at_commit, snapshot)?;
        self.check_conditions(&current, touched, expected)?;
        if let Some(old_records) = layout.old {
            self.log_replaced(old_records, layout, batch, snapshot)?;
        }
        let (AtCommit::SetsBits, Some(bitmap)) = (at_commit, layout.superseded) else {
            return Ok(());
        };
        debug_assert_eq!(current.len(), self.keys.len());
        for (record, state) in current.iter().zip(&self.keys) {
            if let Some(seq) = record.seq.filter(|_| state.is_written) {
                batch.also(Kind::Put, bitmap, &esker_lsm::entry::seq_key(seq), &[])?;
            }
        }
        Ok(())
    }

    /// The current records of the keys, in their order, under the writer lock.
    fn current_records(
        &self,
        layout: &Layout,
        at_commit: AtCommit,
        snapshot: &Snapshot,
    ) -> std::result::Result<Vec<RecordState>, Conflict> {
        // Writes since the lookup are in the memtables, unless these were flushed.
        if snapshot.flushed() > self.seq {
            return Err(Conflict::Changed);
        }
        let tree = probed_tree(layout);
        let mut current = Vec::with_capacity(self.keys.len());
        for state in &self.keys {
            current.push(match snapshot.get_in_memory(tree, &state.key) {
                Some(entry) if entry.seq > self.seq => {
                    // A bit needs only the number of the last write; cancelled entries need its
                    // values.
                    if state.is_written && at_commit == AtCommit::CancelsEntries {
                        return Err(Conflict::Changed);
                    }
                    // A key and its record are in the same memtable.
                    let expires = (layout.expiry)
                        .and_then(|_| snapshot.get_in_memory(layout.data, &state.key))
                        .and_then(|record| RecordRef::expiry_of(&record.value));
                    RecordState {
                        seq: Some(entry.seq).filter(|_| entry.kind == Kind::Put),
                        is_expired: expires.is_some_and(|expires| expires <= self.time),
                    }
                }
                _ => state.record,
            });
        }
        Ok(current)
    }

    /// Checks the expectations and the inserts of the batch against the current records.
    fn check_conditions(
        &self,
        current: &[RecordState],
        touched: &[Touched],
        expected: &[Expectation],
    ) -> std::result::Result<(), Conflict> {
        debug_assert_eq!(current.len(), self.keys.len());
        let record_of = |key: &[u8], as_stored: bool| {
            let record = current.item(self.index_of(key)?)?;
            Ok::<_, Misplaced>(record.counted(as_stored))
        };
        for expected in expected {
            let seq = record_of(&expected.key, expected.as_stored)?;
            if seq != expected.seq {
                let key = expected.key.clone();
                return Err(Conflict::Unexpected(UnexpectedRecord { key, seq }));
            }
        }
        for touched in touched.iter().filter(|touched| touched.must_be_new) {
            if record_of(&touched.key, false)?.is_some() {
                return Err(Conflict::Exists(touched.key.clone()));
            }
        }
        Ok(())
    }
}

/// The keys to look up, in ascending order, each once: those that the batch writes, if the commit
/// depends on what they replace, and those with an expectation.
fn keys_of(layout: &Layout, touched: &[Touched], expected: &[Expectation]) -> Vec<KeyState> {
    let maintenance = layout.stored.settings.maintenance;
    let all_written = maintenance.looks_at_writes() || layout.old.is_some();
    let written = touched.iter().filter(|t| t.must_be_new || all_written);
    let written = written.map(|touched| (&touched.key, true));
    let expected = expected.iter().map(|expected| (&expected.key, false));
    let states = written.chain(expected).map(|(key, is_written)| KeyState {
        key: key.clone(),
        record: RecordState::default(),
        stored: None,
        is_written,
    });
    let mut states: Vec<KeyState> = states.collect();
    // Of a key with an expectation that is also written, the written one stays.
    states.sort_unstable_by(|a, b| (&a.key, !a.is_written).cmp(&(&b.key, !b.is_written)));
    states.dedup_by(|later, earlier| later.key == earlier.key);
    debug_assert!(
        states.is_sorted_by(|a, b| a.key < b.key),
        "ascending, each key once"
    );
    states
}

/// The tree that gives the write of a key's record.
fn probed_tree(layout: &Layout) -> TreeId {
    match layout.old {
        // The data has the record, too.
        Some(_) => layout.data,
        None => layout.keys.unwrap_or(layout.data),
    }
}

/// Reads the bodies that the stored records lack.
fn add_bodies(layout: &Layout, snapshot: &Snapshot, states: &mut [KeyState]) -> Result<()> {
    let mut bodies = Bodies::new(layout, snapshot)?;
    for (at, state) in states.iter().enumerate() {
        if let (Some(seq), Some(stored)) = (state.record.seq, &state.stored)
            && bodies.lacks(stored)
        {
            bodies.add(at, &state.key, seq, stored)?;
        }
    }
    bodies.read(
        LookupOptions::default(),
        &Cost::default(),
        &mut |at, record| {
            states.own_mut(at).stored = Some(record);
            Ok(())
        },
    )
}

/// Determines which of the existing records have expired. The primary-key index lacks expiry times.
fn look_up_expired(layout: &Layout, snapshot: &Snapshot, states: &mut [KeyState]) -> Result<()> {
    let existing: Vec<usize> = (0..states.len())
        .filter(|at| states.own(*at).record.seq.is_some())
        .collect();
    let keys: Vec<Vec<u8>> = existing
        .iter()
        .map(|at| states.own(*at).key.clone())
        .collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    snapshot.visit_batch(layout.data, &keys, &Cost::default(), &mut |nth, record| {
        let state = states.own_mut(*existing.own(nth));
        state.record.is_expired = has_expired(snapshot, &record.value);
    })?;
    Ok(())
}

/// A value of an attribute in a record.
struct AttributeValue {
    /// The number of the attribute.
    id: u32,
    value: Vec<u8>,
}

/// A write of a record that the batch replaces.
struct KnownWrite<'a> {
    key: &'a [u8],
    seq: Seq,
}

/// The indexed values of the records that a batch puts, by key.
///
/// # Errors
/// [`Misplaced`] if a put of the batch is not a record.
fn new_values(
    layout: &Layout,
    batch: &Batch,
) -> std::result::Result<HashMap<Vec<u8>, Vec<AttributeValue>>, Misplaced> {
    let mut new = HashMap::new();
    let mut defect = None;
    batch.each(&mut |tree, kind, key, value| {
        if tree != layout.data || kind != Kind::Put {
            return;
        }
        match RecordRef::parse(value) {
            Some(record) => {
                new.insert(key.to_vec(), values_of(layout, &record));
            }
            None => defect = Some(Misplaced::here()),
        }
    });
    defect.map_or(Ok(new), Err)
}

/// The indexed values of a record, including those of attributes declared after it was stored.
fn values_of(layout: &Layout, record: &RecordRef<'_>) -> Vec<AttributeValue> {
    let mut values = Vec::new();
    for (_, attribute) in layout.written() {
        attribute.any_value(record, |value| {
            values.push(AttributeValue {
                id: attribute.id,
                value: value.to_vec(),
            });
            false
        });
    }
    values
}

/// Cancels the index entries of an old record, except those that the new record has.
fn cancel_record(
    layout: &Layout,
    writes: &mut Writes,
    write: &KnownWrite<'_>,
    old: &[u8],
    new: &[AttributeValue],
) -> Result<()> {
    let KnownWrite { key, seq } = *write;
    let old = crate::record::parse(old)?;
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
        let has = new.iter().filter(|value| value.id == attribute.id);
        attribute.tokenizer.each_lost(
            had.iter().map(Vec::as_slice),
            has.map(|value| value.value.as_slice()),
            |value| {
                let index_entry = IndexEntry {
                    attribute,
                    value,
                    key,
                    record: None,
                };
                index.cancel(writes, index_entry)
            },
        )?;
    }
    Ok(())
}
