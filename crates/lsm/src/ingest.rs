//! Bulk load of sorted input: straight into tables, past the log and the memtables.

use std::sync::atomic::AtomicBool;

use crate::batch::TreeId;
use crate::compaction::job::WriteRun;
use crate::error::Result;
use crate::group::{Group, TreeChange};
use crate::read::Component;

impl Group {
    /// Puts every (key, value) of `entries`, which must ascend strictly, into `tree` at once: all of
    /// them become visible and durable together when this returns, or none. They count as one write
    /// and share a sequence number. Merges of the group wait meanwhile; writers do not.
    pub fn ingest<'e>(
        &self,
        tree: TreeId,
        entries: &mut dyn Iterator<Item = Result<(&'e [u8], &'e [u8])>>,
    ) -> Result<u64> {
        let stop = AtomicBool::new(false);
        self.internals().ingest(tree, entries, &stop)
    }

    /// Puts a run of entries with sequence numbers of their own above all that `tree` holds. `write`
    /// gives them to a sink, in the order of [`crate::entry::compare`]. All of them are there and
    /// durable when this returns, or none; memory is bounded by what a table's builder needs.
    /// Writers, flushes and merges go on.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) where a number is not above all of the tree's, was not given out yet, or the
    /// entries are out of order.
    pub fn ingest_newest(&self, tree: TreeId, write: &mut WriteRun<'_>) -> Result<u64> {
        self.start_threads();
        self.internals().ingest_newest(tree, write)
    }

    /// Writes entries with sequence numbers of their own, which `write` gives to a sink in the order of
    /// [`crate::entry::compare`], into tables that are part of no tree: a sorted piece of work in progress,
    /// read by [`crate::Snapshot::entries_in`]. The files are removed with the last clone of the component; what a
    /// killed process left of them, at the next opening.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) where the entries are out of order, [`Error::Io`](crate::Error::Io); whatever `write` returns.
    pub fn write_aside(&self, write: &mut WriteRun<'_>) -> Result<Component> {
        self.start_threads();
        self.internals().write_aside(write)
    }

    /// Puts a run of entries with sequence numbers of their own below all that `tree` holds, and
    /// carries out a change of trees, both in one step. While the tables are written everything goes
    /// on; only to install them a merge or flush under way is waited for, and then `change` is called.
    ///
    /// The tree should be [`incomplete`](crate::TreeOptions::incomplete) until then: otherwise
    /// tombstones that should cover these entries may be gone.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) where a number is not below all of the tree's, or the entries are out of
    /// order; whatever `write` and `change` return. Then nothing has changed.
    pub fn ingest_oldest(
        &self,
        tree: TreeId,
        write: &mut WriteRun<'_>,
        change: &mut dyn FnMut() -> Result<TreeChange>,
    ) -> Result<u64> {
        self.start_threads();
        self.internals().ingest_oldest(tree, write, change)
    }
}
