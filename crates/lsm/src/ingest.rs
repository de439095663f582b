//! Bulk load of sorted input: straight into tables, past the log and the memtables.

use std::sync::atomic::AtomicBool;

use crate::batch::TreeId;
use crate::error::Result;
use crate::group::Group;

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
}
