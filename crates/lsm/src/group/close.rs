//! Closing. The order is the protocol:
//!
//! 1. The store is marked as closing: later writes are refused, merges give up, the threads end.
//! 2. The log is synced, before anything that may fail: what was written is durable then.
//! 3. Memtables that are large are flushed. A failure is returned in the end, and stops nothing: the log has their writes.
//! 4. Small merges that are due are done. Nothing depends on them, so a failure is only noted.
//! 5. Under the writer lock and the manifest lock the manifest is taken away, and `CURRENT` records how long it and
//!    the log segments are. Whatever job is at work still cannot install a version from then on
//!    ([`Error::Closed`]), so nothing on disk changes behind the seal.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{FLUSH_AT_CLOSE, Inner};
use crate::error::Result;
use crate::version::{Current, Edit, Seal};

/// Bytes of the largest merge that closing waits for.
const SMALL_MERGE: u64 = 4 << 20;

impl Inner {
    /// From here on writes are refused, and jobs give up where they can.
    pub(super) fn begin_closing(&self) {
        let signals = self.scheduler.signals.lock();
        self.core.closing.store(true, Ordering::SeqCst);
        self.scheduler.wake.notify_all();
        self.scheduler.flushed.notify_all();
        drop(signals);
        self.sequencer.tails.wake();
    }

    /// Does what is left to do when the threads have ended. Called again after a failure it tries again what is left.
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
        self.merge_small();
        self.take_manifest()?;
        self.write_seal()?;
        flushed
    }

    fn flush_at_close(&self) -> Result<()> {
        self.flush_full()?;
        if self.versions.view.load().active.memory() >= FLUSH_AT_CLOSE {
            self.rotate_now()?;
            self.flush_full()?;
        }
        Ok(())
    }

    /// Does the small merges that are due: a store that is opened for a few writes at a time has no
    /// other moment for them, and would gather runs. Trees that somebody else works on are not waited for.
    fn merge_small(&self) {
        let never = AtomicBool::new(false);
        // What fails is passed over from then on, so this ends.
        while let Ok(true) = self.merge_some(SMALL_MERGE, &never) {}
    }

    /// Ends installing: what the seal says stays true.
    fn take_manifest(&self) -> Result<()> {
        let mut writer = self.sequencer.writer.lock();
        for live in self.sequencer.log.segments.lock().iter() {
            live.log.trim();
        }
        self.sequencer.sync_all()?;
        self.sequencer.sync_marks()?;
        let mut versions = self.versions.manifest.lock();
        self.core.check_poison()?;
        let appended = writer.segment.as_ref();
        let appended = appended.map_or(0, |segment| segment.last.load(Ordering::Acquire));
        if versions.manifest.is_some() && writer.last > appended.max(versions.last_seq) {
            // A run that was to be ingested has failed. Its number may have been seen, and is not given out again.
            let mut edit = Edit {
                last_seq: Some(writer.last),
                ..Edit::default()
            };
            self.record(&mut versions, &mut edit)?;
        }
        if let Some(manifest) = &versions.manifest {
            manifest.sync()?;
            // Those before `log` are flushed, and may be removed any moment.
            let segments = self.sequencer.log.segments.lock();
            let needed = segments.iter().filter(|live| live.number >= versions.log);
            let logs = needed.map(|live| (live.number, live.log.len())).collect();
            versions.seal = Some(Current {
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

    /// Writes the seal that is still to be written, if any.
    fn write_seal(&self) -> Result<()> {
        let mut versions = self.versions.manifest.lock();
        if let Some(current) = &versions.seal {
            current.write(&*self.core.source.fs, &self.core.source.dir)?;
            versions.seal = None;
        }
        Ok(())
    }
}
