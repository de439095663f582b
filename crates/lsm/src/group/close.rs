//! Closing. The order is the protocol:
//!
//! 1. The store is marked as closing: later writes are refused, compactions abort, the threads end.
//! 2. The log is synced, before any step that may fail: all writes are durable then.
//! 3. Large memtables are flushed. A failure is returned in the end, and stops nothing: the log has their writes.
//! 4. Small compactions that are due are done. Nothing depends on them, so a failure is only recorded.
//! 5. Under the writer lock and the manifest lock the manifest is taken away, and `CURRENT` records its length and
//!    those of the log segments. A job that is still running cannot install a version from then on
//!    ([`Error::Closed`]), so nothing on disk changes after the seal.
//! 6. Reads are refused, and the folder is given up (`fs/gate.rs`), and the consumers of the log: others can open it,
//!    and be those, whatever handles still exist.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Inner;
use super::compact::compact_some;
use super::flush::flush_full;
use super::manifest::record;
use super::rotate::rotate_now;
use crate::error::Result;
use crate::version::{Current, Edit, Seal};

/// Below this many bytes a clean close leaves the memtables in the log.
const FLUSH_AT_CLOSE: usize = 256 << 10;

/// Bytes of the largest compaction that closing waits for.
const SMALL_COMPACTION: u64 = 4 << 20;

impl Inner {
    /// From here on writes are refused, and jobs abort where they can.
    pub(super) fn begin_closing(&self) {
        let signals = self.scheduler.signals.lock();
        self.core.closing.store(true, Ordering::SeqCst);
        self.scheduler.wake.notify_all();
        self.scheduler.flushed.notify_all();
        drop(signals);
        self.core.note_end();
    }

    /// Refuses operations after the group was closed.
    pub(super) fn check_open(&self) -> Result<()> {
        self.versions.view.load().check_open()
    }

    /// Refuses reads from now on, and lets others open the folder.
    pub(super) fn give_up(&self) {
        self.versions
            .view
            .load()
            .closed
            .store(true, Ordering::Relaxed);
        if let Some(gate) = &self.gate {
            gate.give_up();
        }
        self.sequencer.consumers.give_up();
    }

    /// The last steps, after the threads have ended. Called again after a failure, it retries the failed steps.
    pub(super) fn finish(&self) -> Result<()> {
        // What reads have hidden stays hidden.
        let timed = self.reader.is_none() && self.versions.view.load().is_timed();
        let kept = if timed {
            self.core.clock.sync()
        } else {
            Ok(())
        };
        self.finish_writing().and(kept)
    }

    fn finish_writing(&self) -> Result<()> {
        if self.sequencer.writer.lock().segment.is_none() {
            return self.write_seal();
        }
        self.core.check_poison()?;
        let flushed = self.flush_at_close();
        self.compact_small();
        self.take_manifest()?;
        self.write_seal()?;
        flushed
    }

    fn flush_at_close(&self) -> Result<()> {
        flush_full(&self.sequencer, &self.versions, &self.scheduler)?;
        let memory = self.versions.view.load().active.memory();
        // Nothing else of this store would have it.
        if memory >= FLUSH_AT_CLOSE || self.core.has_external_log() {
            rotate_now(&self.sequencer, &self.versions, &self.scheduler)?;
            flush_full(&self.sequencer, &self.versions, &self.scheduler)?;
        }
        Ok(())
    }

    /// Runs the small compactions that are due: a store that is opened for a few writes at a time has no other
    /// opportunity, and would accumulate runs. Trees claimed by other jobs are skipped.
    fn compact_small(&self) {
        let never = AtomicBool::new(false);
        // A failed compaction is skipped in later rounds, so this terminates.
        while let Ok(true) = compact_some(
            &self.sequencer,
            &self.versions,
            &self.scheduler,
            SMALL_COMPACTION,
            &never,
        ) {}
    }

    /// Ends installations, so that the seal stays true.
    fn take_manifest(&self) -> Result<()> {
        let mut writer = self.sequencer.writer.lock();
        for live in self.sequencer.log.segments.lock().iter() {
            live.log.iter().for_each(|log| log.trim());
        }
        self.sequencer.sync_all()?;
        self.sequencer.sync_marks()?;
        let mut versions = self.versions.manifest.lock();
        self.core.check_poison()?;
        let appended = writer.segment.as_ref();
        let appended = appended.map_or(0, |segment| segment.last.load(Ordering::Acquire));
        // Without a log, writes that are in no table are lost here. Their numbers were seen: without a seal the next
        // handle does not use them again.
        let view = self.versions.view.load();
        let is_flushed = view.active.is_empty() && view.full.is_empty();
        let is_whole = is_flushed || !self.core.has_external_log();
        let is_ahead = writer.last > appended.max(versions.last_seq);
        if versions.manifest.is_some() && is_ahead && is_whole {
            // A run was to be ingested and failed. Its number may have been seen, and is not allocated again.
            let mut edit = Edit {
                last_seq: Some(writer.last),
                ..Edit::default()
            };
            record(&self.sequencer, &mut versions, &mut edit)?;
        }
        if let Some(manifest) = &versions.manifest {
            manifest.sync()?;
            // Segments before `log` are flushed, and may be removed at any moment.
            let segments = self.sequencer.log.segments.lock();
            let needed = segments.iter().filter(|live| live.number >= versions.log);
            let logs = needed.filter_map(|live| Some((live.number, live.log.as_ref()?.len())));
            let logs = logs.collect();
            versions.seal = is_whole.then(|| Current {
                manifest: manifest.number(),
                seal: Some(Seal {
                    manifest_len: manifest.len(),
                    logs,
                }),
            });
        }
        versions.manifest = None;
        writer.segment = None;
        Ok(())
    }

    /// Writes the pending seal, if any.
    fn write_seal(&self) -> Result<()> {
        let mut versions = self.versions.manifest.lock();
        if let Some(current) = &versions.seal {
            current.write(&*self.core.source.fs, &self.core.source.dir)?;
            versions.seal = None;
        }
        Ok(())
    }
}
