//! Closing. The order is the protocol:
//!
//! 1. The store is marked as closing: later writes are refused, compactions abort, the threads end.
//! 2. The log is synced, before any step that may fail: all writes are durable then.
//! 3. Large memtables are flushed. A failure is returned in the end, and stops nothing: the log has
//!    their writes.
//! 4. Small compactions that are due are done. Nothing depends on them, so a failure is only
//!    recorded.
//! 5. Under the writer lock and the manifest lock the manifest is taken away, and `CURRENT` records
//!    its length and those of the log segments. A job that is still running cannot install a
//!    version from then on ([`Error::Closed`]), so nothing on disk changes after the seal.
//! 6. Reads are refused, and the folder is given up (`fs/gate.rs`), and the consumers of the log:
//!    others can open it, and be those, whatever handles still exist.

use std::sync::atomic::{AtomicBool, Ordering};

use super::compact::compact_some;
use super::core::Core;
use super::flush::flush_full;
use super::manifest::record;
use super::rotate::rotate_now;
use super::scheduler::Scheduler;
use super::sequencer::Sequencer;
use super::version_set::VersionSet;
use crate::error::Result;
use crate::fs::Gate;
use crate::version::{Current, Edit, Seal};

/// Below this many bytes a clean close leaves the memtables in the log.
const FLUSH_AT_CLOSE: usize = 256 << 10;

/// Bytes of the largest compaction that closing waits for.
const SMALL_COMPACTION: u64 = 4 << 20;

/// From here on writes are refused, and jobs abort where they can.
pub(super) fn begin_closing(core: &Core, scheduler: &Scheduler) {
    let signals = scheduler.signals.lock();
    core.closing.store(true, Ordering::SeqCst);
    scheduler.wake.notify_all();
    scheduler.flushed.notify_all();
    drop(signals);
    core.note_end();
}

/// Refuses reads from now on, and lets others open the folder.
pub(super) fn give_up(sequencer: &Sequencer, versions: &VersionSet, gate: Option<&Gate>) {
    versions.view.load().closed.store(true, Ordering::Relaxed);
    if let Some(gate) = gate {
        gate.give_up();
    }
    sequencer.consumers.give_up();
}

/// The last steps, after the threads have ended. Called again after a failure, it retries the
/// failed steps.
pub(super) fn finish(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<()> {
    let core = &*sequencer.core;
    // What reads have hidden stays hidden.
    let timed = !core.is_reader() && versions.view.load().is_timed();
    let kept = if timed { core.clock.sync() } else { Ok(()) };
    finish_writing(sequencer, versions, scheduler).and(kept)
}

fn finish_writing(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<()> {
    let core = &*sequencer.core;
    if sequencer.writer.lock().segment.is_none() {
        return write_seal(core, versions);
    }
    core.check_poison()?;
    let flushed = flush_at_close(sequencer, versions, scheduler);
    compact_small(sequencer, versions, scheduler);
    take_manifest(sequencer, versions)?;
    write_seal(core, versions)?;
    flushed
}

fn flush_at_close(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<()> {
    let core = &*sequencer.core;
    flush_full(sequencer, versions, scheduler)?;
    let memory = versions.view.load().active.memory();
    // Nothing else of this store would have it.
    if memory >= FLUSH_AT_CLOSE || core.has_external_log() {
        rotate_now(sequencer, versions, scheduler)?;
        flush_full(sequencer, versions, scheduler)?;
    }
    Ok(())
}

/// Runs the small compactions that are due: a store that is opened for a few writes at a time has
/// no other opportunity, and would accumulate runs. Trees claimed by other jobs are skipped.
fn compact_small(sequencer: &Sequencer, versions: &VersionSet, scheduler: &Scheduler) {
    let never = AtomicBool::new(false);
    // A failed compaction is skipped in later rounds, so this terminates.
    while let Ok(true) = compact_some(sequencer, versions, scheduler, SMALL_COMPACTION, &never) {}
}

/// Ends installations, so that the seal stays true.
fn take_manifest(sequencer: &Sequencer, versions: &VersionSet) -> Result<()> {
    let core = &*sequencer.core;
    let mut writer = sequencer.writer.lock();
    for live in sequencer.log.segments.lock().iter() {
        live.log.iter().for_each(|log| log.trim());
    }
    sequencer.sync_all()?;
    sequencer.sync_marks()?;
    let mut locked = versions.manifest.lock();
    core.check_poison()?;
    let appended = writer.segment.as_ref();
    let appended = appended.map_or(0, |segment| segment.last.load(Ordering::Acquire));
    // Without a log, writes that are in no table are lost here. Their numbers were seen: without a
    // seal the next handle does not use them again.
    let view = versions.view.load();
    let is_flushed = view.active.is_empty() && view.full.is_empty();
    let is_whole = is_flushed || !core.has_external_log();
    let is_ahead = writer.last > appended.max(locked.last_seq);
    if locked.manifest.is_some() && is_ahead && is_whole {
        // A run was to be ingested and failed. Its number may have been seen, and is not allocated
        // again.
        let mut edit = Edit {
            last_seq: Some(writer.last),
            ..Edit::default()
        };
        record(sequencer, &mut locked, &mut edit)?;
    }
    if let Some(manifest) = &locked.manifest {
        manifest.sync()?;
        // Segments before `log` are flushed, and may be removed at any moment.
        let segments = sequencer.log.segments.lock();
        let needed = segments.iter().filter(|live| live.number >= locked.log);
        let logs = needed.filter_map(|live| Some((live.number, live.log.as_ref()?.len())));
        let logs = logs.collect();
        locked.seal = is_whole.then(|| Current {
            manifest: manifest.number(),
            seal: Some(Seal {
                manifest_len: manifest.len(),
                logs,
            }),
        });
    }
    locked.manifest = None;
    writer.segment = None;
    Ok(())
}

/// Writes the pending seal, if any.
fn write_seal(core: &Core, versions: &VersionSet) -> Result<()> {
    let mut locked = versions.manifest.lock();
    if let Some(current) = &locked.seal {
        current.write(&*core.source.fs, &core.source.dir)?;
        locked.seal = None;
    }
    Ok(())
}
