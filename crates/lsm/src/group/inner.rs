//! The parts of a group, and the views of them that every operation needs.

use std::sync::Arc;

use parking_lot::Mutex;

use super::core::Core;
use super::reader::{Reader, refresh};
use super::scheduler::Scheduler;
use super::sequencer::Sequencer;
use super::version_set::VersionSet;
use crate::error::Result;
use crate::fs::Gate;
use crate::read::Snapshot;

/// The parts of a group. Operations on several of them have a file each; operations on one are in
/// its file.
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
    /// The parts that most operations need.
    pub(super) fn parts(&self) -> (&Sequencer, &VersionSet, &Scheduler) {
        (&self.sequencer, &self.versions, &self.scheduler)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.versions.snapshot(&self.sequencer)
    }

    /// Catches up with the writer, in a read-only group.
    pub(super) fn refresh(&self) -> Result<()> {
        let (sequencer, versions, scheduler) = self.parts();
        match &self.reader {
            Some(reader) => {
                self.core.check_open()?;
                refresh(sequencer, versions, scheduler, &mut reader.lock())
            }
            None => Ok(()),
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
