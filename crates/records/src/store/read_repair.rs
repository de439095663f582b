//! Online repair (DELI section IV-B): queries record the obsolete writes that they find. Later
//! queries of this process skip these at once. A flush or close of a handle that writes puts them
//! into the obsolete set; a handle that only reads forgets them.
//!
//! Nothing depends on these notes: queries find again what was forgotten.

use std::collections::BTreeSet;

use esker_lsm::{Cursor, Group, Kind, Seq};

use crate::catalog::Layout;
use crate::error::Result;
use crate::store::DatasetState;

/// Read-ahead of the scan over the records.
const READAHEAD: usize = 256 << 10;

impl DatasetState {
    /// To be called after each write: makes the notes durable when the buffer is full.
    pub(crate) fn wrote(&self, group: &Group) {
        if self.findings.wrote()
            && let Some(_alone) = self.findings.keep()
        {
            // The write has succeeded, even if this fails.
            self.try_keep_obsolete(group);
        }
    }

    /// As [`DatasetState::keep_obsolete`], but a failure only shows in the statistics.
    pub(crate) fn try_keep_obsolete(&self, group: &Group) {
        if let Err(error) = self.keep_obsolete(group) {
            self.usage.maintenance().remembered.lock().not_kept = Some(error.to_string());
        }
    }

    /// Makes the notes durable, if this handle writes. Notes that cannot be written are forgotten:
    /// queries find them again, and a permanent failure must not slow every write.
    ///
    /// The log is synced first: a number must not be obsolete on disk while the write that replaced
    /// it can still be lost, because compactions drop obsolete writes.
    pub(crate) fn keep_obsolete(&self, group: &Group) -> Result<()> {
        if !self.findings.writes() {
            return Ok(());
        }
        let Some((mut numbers, mut dangling)) = self.findings.numbers() else {
            return Ok(());
        };
        let taken: Vec<Seq> = numbers.union(&dangling).copied().collect();
        let result = self.write_obsolete(group, &mut numbers, &mut dangling);
        self.findings.forget(&taken);
        if result.is_ok() {
            self.usage.maintenance().remembered.lock().not_kept = None;
        }
        result
    }

    fn write_obsolete(
        &self,
        group: &Group,
        numbers: &mut BTreeSet<Seq>,
        dangling: &mut BTreeSet<Seq>,
    ) -> Result<()> {
        let snapshot = group.snapshot();
        let layout = self.layout_in(snapshot.version());
        let known = layout.superseded.and_then(|tree| snapshot.superseded(tree));
        if let (Some(tree), Some(known)) = (layout.superseded, known) {
            remove_written(group, &layout, dangling)?;
            numbers.append(dangling);
            numbers.retain(|seq| !known.contains(*seq));
            if !numbers.is_empty() {
                group.sync()?;
                group.supersede(tree, &mut numbers.iter().copied().map(Ok), None)?;
            }
        }
        Ok(())
    }
}

/// Removes the numbers that a record has.
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
