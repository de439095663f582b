//! The parts of a group, and the views of them that every operation needs.

use std::sync::Arc;

use parking_lot::Mutex;

use super::core::Core;
use super::reader::Reader;
use super::scheduler::Scheduler;
use super::sequencer::Sequencer;
use super::version_set::VersionSet;
use crate::fs::Gate;
use crate::read::Snapshot;

/// The parts of a group. Operations on several of them have a file each; operations on one are in its file.
pub(super) struct Inner {
    pub(super) core: Arc<Core>,
    pub(super) sequencer: Sequencer,
    pub(super) versions: VersionSet,
    pub(super) scheduler: Scheduler,
    /// The reader's progress, in a read-only group beside the writer.
    pub(super) reader: Option<Mutex<Reader>>,
    /// Holds the folder, in the process that writes.
    pub(super) gate: Option<Arc<Gate>>,
}

impl Inner {
    pub(super) fn snapshot(&self) -> Snapshot {
        loop {
            let view = self.versions.view.load_full();
            let seq = self.sequencer.visible();
            let seq = seq.max(view.version.flushed());
            // If the view was replaced in between, writes up to `seq` may be in memtables that the old one lacks.
            if Arc::ptr_eq(&view, &self.versions.view.load()) {
                let horizon = self.core.horizon(&view);
                return Snapshot::new(view, seq, horizon);
            }
        }
    }

    pub(super) fn latest(&self) -> Snapshot {
        if self.reader.is_some() {
            return self.snapshot();
        }
        let writer = self.sequencer.writer.lock();
        let view = self.versions.view.load_full();
        let horizon = self.core.horizon(&view);
        Snapshot::new(view, writer.next_seq - 1, horizon)
    }
}
