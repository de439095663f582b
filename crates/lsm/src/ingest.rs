//! Bulk load of sorted input: written directly into tables, without log and memtables.

use std::sync::atomic::AtomicBool;

use crate::batch::TreeId;
use crate::compaction::job::WriteRun;
use crate::error::Result;
use crate::group::{Group, TreeChange};

impl Group {
    /// Loads every (key, value) of `entries`, which must ascend strictly, into `tree`: all of them
    /// become visible and durable together when this returns, or none. They count as one write and
    /// share a sequence number. Compactions of the group wait meanwhile; writers do not.
    pub fn ingest<'e>(
        &self,
        tree: TreeId,
        entries: &mut dyn Iterator<Item = Result<(&'e [u8], &'e [u8])>>,
    ) -> Result<u64> {
        let stop = AtomicBool::new(false);
        self.internals().ingest(tree, entries, &stop)
    }

    /// Installs a run of entries with their own sequence numbers above all entries of `tree`.
    /// `write` passes them to a sink, in the order of [`crate::entry::compare`]. All of them are
    /// visible and durable when this returns, or none; memory is bounded by the needs of a table
    /// builder. Writers, flushes and compactions continue.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) where a number is not above all of the tree's, was
    /// not allocated yet, or the entries are out of order.
    pub fn ingest_newest(&self, tree: TreeId, write: &mut WriteRun<'_>) -> Result<u64> {
        self.start_threads();
        self.internals().ingest_newest(tree, write)
    }

    /// Installs a run of entries with their own sequence numbers below all entries of `tree`, and
    /// applies a change of trees, both atomically. Everything continues while the tables are
    /// written; only the installation waits for running compactions and flushes, and then calls
    /// `change`.
    ///
    /// The tree should be [`incomplete`](crate::TreeOptions::incomplete) until then: otherwise
    /// tombstones that should cover these entries may be gone.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) where a number is not below all of the tree's, or
    /// the entries are out of order; errors of `write` and `change`. Then nothing has changed.
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
