//! The writes of a batch to one dataset: each record becomes its stored form and its index entries
//! (`encode.rs`), in one batch of the engine.
//!
//! Invariant: a put or deletion and its index entries share one sequence number. One that fails
//! leaves the writes unchanged.

use std::cell::Cell;
use std::sync::Arc;

use esker_lsm::{Kind, Seq, Snapshot, TreeId};
use esker_model::Key;
use esker_model::schema::{Extracted, RecordError, RecordErrorKind};

use super::auto_key;
use super::pre_images::{Expectation, Replaced, Replacements, Touched, UnexpectedRecord};
use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::{Writes, WritesSavepoint};
use crate::store::{ExpiryEntry, Handle, Store, expiry_key};
use crate::telemetry::Measured;

/// Whether a put or a deletion is part of an insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRule {
    /// The key may have a record before the batch.
    MayExist,
    /// An insert: the commit fails if the key has a record before the batch.
    MustBeNew,
}

/// The writes of a batch to one dataset. A batch of several datasets has a part for each.
pub(crate) struct DatasetWrites {
    pub(crate) dataset: Handle,
    /// The layout that the writes were encoded for. A commit under a newer layout encodes them
    /// again.
    pub(super) layout: Arc<Layout>,
    pub(super) writes: Writes,
    /// The record that is added.
    pub(super) extracted: Extracted,
    /// A buffer for its stored form.
    pub(super) value: Vec<u8>,
    /// The encoded key of the last record that was put; empty if the part has none.
    pub(super) last_key: Vec<u8>,
    /// The written keys, if the commit must look up what they replace.
    pub(super) touched: Vec<Touched>,
    /// True if a written key must be new.
    has_inserts: bool,
    /// Conditions that the commit checks.
    pub(super) expected: Vec<Expectation>,
    /// Notes beside the records.
    pub(super) notes: Vec<Note>,
    /// A snapshot from the first write of the batch. Index entries of old versions in its memtables
    /// are cancelled at once; queries find out about others.
    pub(super) before: Option<Snapshot>,
    pub(super) counts: Counts,
    /// True if the part deletes expired records ([`super::expire`]). It is not encoded again for a
    /// newer layout.
    pub(super) is_sweep: bool,
    /// The state of the writes before the commit added to them.
    saved: Option<WritesSavepoint>,
    /// The number of sequence numbers that the part takes in the committed batch.
    pub(super) sequences: u32,
}

/// A note to be written.
pub(super) struct Note {
    pub(super) tree: TreeId,
    pub(super) name: String,
    /// `None` deletes the note.
    pub(super) value: Option<Vec<u8>>,
}

/// What a batch does to one dataset, in numbers.
#[derive(Default)]
pub(super) struct Counts {
    /// Puts, inserts and deletions.
    pub(super) records: usize,
    /// The deletions among them.
    deletes: usize,
    replacements: Replacements,
}

/// The allocations of a [`DatasetWrites`].
#[derive(Default)]
struct Buffers {
    writes: Writes,
    extracted: Extracted,
    value: Vec<u8>,
    last_key: Vec<u8>,
}

/// The largest size of the allocations that a thread keeps for its next part, in bytes. Larger ones
/// are freed.
const MAX_SPARE: usize = 64 << 10;

thread_local! {
    /// The allocations of the thread's last part, for the next: a single put is a part of its own.
    static SPARE: Cell<Option<Buffers>> = const { Cell::new(None) };
}

impl Drop for DatasetWrites {
    fn drop(&mut self) {
        let mut buffers = Buffers {
            writes: std::mem::take(&mut self.writes),
            extracted: std::mem::take(&mut self.extracted),
            value: std::mem::take(&mut self.value),
            last_key: std::mem::take(&mut self.last_key),
        };
        let bytes = buffers.writes.batch.memory() + buffers.extracted.memory();
        if bytes + buffers.value.capacity() + buffers.last_key.capacity() <= MAX_SPARE {
            buffers.writes.clear();
            buffers.last_key.clear();
            let _ = SPARE.try_with(|spare| spare.set(Some(buffers)));
        }
    }
}

impl DatasetWrites {
    /// No writes yet, for the latest layout of the dataset.
    pub(crate) fn new(dataset: Handle) -> DatasetWrites {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let Buffers {
            writes,
            extracted,
            value,
            last_key,
        } = spare.unwrap_or_default();
        debug_assert!(last_key.is_empty(), "the key of an earlier part");
        DatasetWrites {
            layout: dataset.state.latest_layout(),
            dataset,
            writes,
            extracted,
            value,
            last_key,
            touched: Vec::new(),
            has_inserts: false,
            expected: Vec::new(),
            notes: Vec::new(),
            before: None,
            counts: Counts::default(),
            is_sweep: false,
            saved: None,
            sequences: 0,
        }
    }

    /// Adds a record. An error leaves the part unchanged.
    ///
    /// # Errors
    /// [`Error::Record`] if the record does not fit the dataset; any error of the batch, if it gets
    /// too large.
    pub(crate) fn put(&mut self, json: &[u8], rule: KeyRule) -> Result<()> {
        let extracted = self
            .layout
            .extraction
            .extract_new(json, &mut self.extracted);
        match extracted {
            Ok(()) => self.put_extracted(json, rule),
            Err(error) if self.layout.stored.auto_key => self.put_without_key(json, rule, error),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a key to a record that was refused for lack of one, and adds the record.
    fn put_without_key(&mut self, json: &[u8], rule: KeyRule, error: RecordError) -> Result<()> {
        let with_key = match &error.kind {
            RecordErrorKind::KeyMissing { path } => auto_key::with_generated_key(path, json),
            _ => None,
        };
        let Some(with_key) = with_key else {
            return Err(error.into());
        };
        let extraction = &self.layout.extraction;
        extraction.extract_new(&with_key, &mut self.extracted)?;
        self.put_extracted(&with_key, rule)
    }

    /// The encoded key of the last record that was put; empty if the part has none.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Adds the extracted record.
    fn put_extracted(&mut self, json: &[u8], rule: KeyRule) -> Result<()> {
        let savepoint = self.writes.savepoint();
        let sequences_before = self.writes.batch.sequences();
        let result = self.add_extracted(json);
        if result.is_err() {
            self.writes.rewind(savepoint);
            return result;
        }
        self.extracted.key().clone_into(&mut self.last_key);
        debug_assert_eq!(
            self.writes.batch.sequences(),
            sequences_before + 1,
            "a record and its index entries share one number"
        );
        self.counts.records += 1;
        self.has_inserts |= rule == KeyRule::MustBeNew;
        self.touch(rule, None);
        self.remark();
        Ok(())
    }

    /// Adds a condition: the commit fails unless the record of `key` is then that of the write
    /// `seq`; with `None`, unless the key has no record.
    pub(crate) fn expect(&mut self, key: &Key, seq: Option<Seq>) {
        self.expected.push(Expectation {
            key: key.as_bytes().to_vec(),
            seq,
            as_stored: false,
        });
    }

    /// Deletes an expired record if it still exists. The deletion of its entry in `d/expiry`, under
    /// the same number, marks the change as an expiry in the feed.
    pub(super) fn delete_expired(&mut self, tree: TreeId, due: &ExpiryEntry) -> Result<()> {
        self.delete_encoded(&due.key, KeyRule::MayExist)?;
        self.counts.deletes += 1;
        let entry = expiry_key(due.expires, &due.key);
        self.writes.batch.also(Kind::Delete, tree, &entry, &[])?;
        self.expect_stored(&due.key, Some(due.seq));
        Ok(())
    }

    /// Deletes the expiry entry of a replaced record, on condition that the key's record is that of
    /// the write `current`.
    pub(super) fn forget_expiry(
        &mut self,
        tree: TreeId,
        due: &ExpiryEntry,
        current: Option<Seq>,
    ) -> Result<()> {
        let entry = expiry_key(due.expires, &due.key);
        self.writes.batch.delete(tree, &entry)?;
        self.expect_stored(&due.key, current);
        Ok(())
    }

    /// As [`DatasetWrites::expect`], where an expired record counts until it is deleted.
    fn expect_stored(&mut self, key: &[u8], seq: Option<Seq>) {
        self.expected.push(Expectation {
            key: key.to_vec(),
            seq,
            as_stored: true,
        });
    }

    /// As [`DatasetWrites::put`], for a record whose key must be `key`.
    pub(crate) fn put_at(&mut self, key: &Key, json: &[u8]) -> Result<()> {
        self.layout
            .extraction
            .extract_new(json, &mut self.extracted)?;
        if self.extracted.key() != key.as_bytes() {
            return Err(Error::bad_input(format!(
                "the new record of key {key} has another key, {}",
                Key::display(self.dataset.key_type(), self.extracted.key())
            )));
        }
        self.put_extracted(json, KeyRule::MayExist)
    }

    /// Adds the deletion of a key, which need not exist.
    pub(crate) fn delete(&mut self, key: &Key) -> Result<()> {
        self.delete_encoded(key.as_bytes(), KeyRule::MayExist)?;
        self.counts.deletes += 1;
        Ok(())
    }

    /// Adds the deletion of an encoded key. A key that the same batch inserted before must still be
    /// new before the batch. An error leaves the writes unchanged.
    pub(super) fn delete_encoded(&mut self, key: &[u8], rule: KeyRule) -> Result<()> {
        let savepoint = self.writes.savepoint();
        if let Err(error) = self.add_deletion(key) {
            self.writes.rewind(savepoint);
            return Err(error);
        }
        self.counts.records += 1;
        self.has_inserts |= rule == KeyRule::MustBeNew;
        self.touch(rule, Some(key));
        Ok(())
    }

    /// Notes the written key, if the commit must look up the record that it replaces: `deleted`, or
    /// the key of the extracted record.
    fn touch(&mut self, rule: KeyRule, deleted: Option<&[u8]>) {
        let must_be_new = rule == KeyRule::MustBeNew;
        let looks_up = self.layout.stored.settings.maintenance.looks_at_writes();
        if must_be_new || looks_up || self.layout.old.is_some() {
            let key = deleted.unwrap_or_else(|| self.extracted.key()).to_vec();
            self.touched.push(Touched {
                key,
                // A record takes one number, which its index entries share.
                ordinal: self.writes.batch.sequences() - 1,
                must_be_new,
            });
        }
    }

    /// The number of puts, inserts and deletions.
    pub(crate) fn len(&self) -> usize {
        self.counts.records
    }

    /// True if there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.records == 0 && self.notes.is_empty() && !self.is_sweep
    }

    /// The bytes that the batch takes in the log.
    pub(crate) fn bytes(&self) -> usize {
        self.writes.batch.bytes()
    }

    /// Removes all writes.
    pub(crate) fn clear(&mut self) {
        self.writes.clear();
        self.last_key.clear();
        self.touched.clear();
        self.has_inserts = false;
        self.expected.clear();
        self.notes.clear();
        self.before = None;
        self.counts = Counts::default();
        self.dataset.state.refresh_layout(&mut self.layout);
    }

    /// Saves the state that [`DatasetWrites::restore`] returns to.
    pub(super) fn save(&mut self) {
        self.saved = Some(self.writes.savepoint());
    }

    /// Removes the additions of the commit since [`DatasetWrites::save`].
    pub(super) fn restore(&mut self) {
        debug_assert!(self.saved.is_some(), "nothing was saved");
        if let Some(saved) = self.saved {
            self.writes.rewind(saved);
        }
    }

    /// True if the commit must read the current records (inserts, expectations, pre-image
    /// strategies, old records for the feed).
    pub(super) fn depends_on_records(&self) -> bool {
        let maintenance = self.layout.stored.settings.maintenance;
        let looks_up = maintenance.looks_at_writes() || self.layout.old.is_some();
        self.has_inserts || !self.expected.is_empty() || looks_up
    }

    /// True if the writes were encoded for the layout of this snapshot.
    pub(super) fn is_of(&self, snapshot: &Snapshot) -> bool {
        let layout = self.dataset.state.layout_in(snapshot.version());
        Arc::ptr_eq(&layout, &self.layout)
    }

    /// True if the commit depends on no current state.
    pub(super) fn is_blind(&self) -> bool {
        !self.depends_on_records() && self.writes.deferred.is_empty() && !self.layout.has_unique()
    }

    /// Counts the replaced records, if the maintenance strategy looks them up.
    pub(super) fn note_replaced(&mut self, replaced: Option<&Replaced>) {
        let maintenance = self.layout.stored.settings.maintenance;
        let replaced = replaced.filter(|_| maintenance.looks_at_writes());
        self.counts.replacements = replaced.map_or_else(Default::default, Replaced::counts);
    }

    /// Counts the writes and removes them. To be called when the batch is acknowledged.
    pub(super) fn committed(&mut self, store: &Arc<Store>) {
        let is_written = !self.is_empty();
        let counts = std::mem::take(&mut self.counts);
        let measured = Measured {
            written: counts.records as u64,
            known: counts.replacements.looked_up,
            replaced: counts.replacements.replaced,
            ..Measured::default()
        };
        let usage = &self.dataset.state.usage;
        debug_assert!(
            counts.deletes <= counts.records,
            "deletions are records, too"
        );
        let puts = counts.records - counts.deletes;
        usage.count_batch(puts as u64, counts.deletes as u64, measured);
        self.clear();
        if is_written {
            self.dataset.state.wrote(&store.group);
            if let Some(background) = &self.dataset.background {
                background.wrote(store);
            }
        }
    }

    /// The error for an insert of a key that has a record.
    pub(super) fn exists_error(&self, key: &[u8]) -> Error {
        let key = Key::display(self.dataset.key_type(), key);
        Error::exists(format!("a record of key {key} already exists"))
    }

    /// The error for a key whose record is not as expected.
    pub(super) fn unexpected_error(&self, record: UnexpectedRecord) -> Error {
        let key = Key::from_encoded(self.dataset.key_type(), record.key);
        let state = match record.seq {
            Some(seq) => format!("it has a record, number {seq}"),
            None => "it has no record".to_string(),
        };
        Error::conflict_of(key, state)
    }
}
