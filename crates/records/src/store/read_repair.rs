//! Online repair (DELI section IV-B): queries note the obsolete writes that they find
//! (`findings.rs`). Later queries of this process skip these at once. A process that writes puts
//! them into the obsolete set when it flushes or closes the store, or when the buffer is full; a
//! process that only reads discards them.
//!
//! No answer depends on these notes: later queries find the same writes again.

use std::collections::BTreeSet;

use esker_lsm::{Cursor, Group, Kind, Seq};

use super::findings::ObsoleteNotes;
use crate::catalog::Layout;
use crate::error::Result;
use crate::store::DatasetState;

/// Read-ahead of the scan over the records.
const READAHEAD: usize = 256 << 10;

impl DatasetState {
    /// To be called after each write: makes the notes durable when the buffer is full. A failure
    /// does not fail the write, which has succeeded.
    pub(crate) fn wrote(&self, group: &Group) {
        if self.findings.note_write()
            && let Some(_claim) = self.findings.try_claim_flush()
        {
            self.try_save_obsolete_notes(group);
        }
    }

    /// As [`DatasetState::save_obsolete_notes`], but reports a failure only in the statistics.
    pub(crate) fn try_save_obsolete_notes(&self, group: &Group) {
        if let Err(error) = self.save_obsolete_notes(group) {
            self.usage.maintenance().state.lock().obsolete_save_error = Some(error.to_string());
        }
    }

    /// Makes the notes durable, if this process writes, and removes them from the buffer. They are
    /// removed even if they could not be written: queries find the writes again, and a permanent
    /// failure must not slow every write.
    ///
    /// The log is synced first: a number must not be obsolete on disk while the write that replaced
    /// it can still be lost, because compactions drop obsolete writes.
    ///
    /// # Errors
    /// Any I/O error.
    pub(crate) fn save_obsolete_notes(&self, group: &Group) -> Result<()> {
        if !self.findings.has_written() {
            return Ok(());
        }
        let Some(notes) = self.findings.copy() else {
            return Ok(());
        };
        let numbers = notes.obsolete.keys().chain(&notes.dangling);
        let noted: Vec<Seq> = numbers.copied().collect();
        let result = self.write_obsolete(group, notes);
        self.findings.forget(&noted);
        if result.is_ok() {
            self.usage.maintenance().state.lock().obsolete_save_error = None;
        }
        result
    }

    /// Adds the noted writes to the obsolete set, and dangling ones only if no record has their
    /// number. Does nothing in a dataset without a readable set.
    fn write_obsolete(&self, group: &Group, notes: ObsoleteNotes) -> Result<()> {
        let ObsoleteNotes {
            obsolete,
            mut dangling,
        } = notes;
        let snapshot = group.snapshot();
        let layout = self.layout_in(snapshot.version());
        let known = layout.superseded.and_then(|tree| snapshot.superseded(tree));
        if let (Some(tree), Some(known)) = (layout.superseded, known) {
            remove_written(group, &layout, &mut dangling)?;
            let mut numbers: BTreeSet<Seq> = obsolete.into_keys().collect();
            numbers.append(&mut dangling);
            numbers.retain(|seq| !known.contains(*seq));
            if !numbers.is_empty() {
                group.sync()?;
                group.supersede(tree, &mut numbers.iter().copied().map(Ok), None)?;
            }
        }
        Ok(())
    }
}

/// Removes the numbers that a record has, by a scan of all records.
fn remove_written(group: &Group, layout: &Layout, numbers: &mut BTreeSet<Seq>) -> Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    let mut records = group.snapshot().entries(layout.data, READAHEAD);
    records.seek_first()?;
    while records.valid() {
        if records.kind() == Kind::Put {
            numbers.remove(&records.seq());
        }
        records.next()?;
    }
    Ok(())
}
