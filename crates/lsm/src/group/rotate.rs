//! The beginning of a handle's writing, and the change from one generation of memtables, with its
//! log segment, to the next.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use super::log::Segment;
use super::manifest::begin_manifest;
use super::recover::{is_leftover, is_own};
use super::scheduler::Scheduler;
use super::sequencer::{Sequencer, Writer};
use super::version_set::VersionSet;
use crate::error::{Error, Result};
use crate::generation::{Generation, View};
use crate::version::{ClosedSegment, Current, TableSource, log_path, manifest_path};

/// Called before any change: refuses it after a failure that left the log in an unknown state. The
/// first change of this handle begins a new segment, a new manifest with the whole version, and a
/// `CURRENT` without a seal. Leftovers of earlier handles are removed.
pub(super) fn start_writing(
    sequencer: &Sequencer,
    versions: &VersionSet,
    writer: &mut Writer,
) -> Result<()> {
    let core = &*sequencer.core;
    core.check_poison()?;
    if writer.segment.is_some() {
        return Ok(());
    }
    if core.closing.load(Ordering::Relaxed) {
        return Err(Error::Closed);
    }
    let (fs, dir) = (&*core.source.fs, &core.source.dir);
    // A sync of this handle guarantees everything before it.
    sequencer.sync_found(writer)?;
    let view = versions.view.load_full();
    let last = writer.last;
    sequencer.log.note_synced(last);
    sequencer.settle_consumers();
    let segment = sequencer.create_segment(versions.new_file(), writer.replayed, last)?;
    let mut locked = versions.manifest.lock();
    let oldest = view.full.last().and_then(|generation| generation.log());
    let log = oldest.unwrap_or(segment.number);
    locked.log = log;
    // Replayed segments that only have writes of dropped trees need no flush.
    // Held until readers see what the manifest keeps.
    let held = sequencer.keep(&mut locked.order, log);
    locked.last_seq = view.full.last().map_or(last, |g| g.component().min - 1);
    let number = versions.new_file();
    let current = Current {
        manifest: number,
        seal: None,
    };
    let begun = begin_manifest(sequencer, versions, number, &view.version, &mut locked)
        .and_then(|begun| current.write(fs, dir).map(|()| begun));
    let (manifest, order) =
        begun.inspect_err(|_| remove_unnamed(&core.source, &segment, number))?;
    segment.named.store(true, Ordering::Release);
    drop(held);
    sequencer.note_order(&mut locked, order);
    locked.manifest = Some(manifest);
    let kept: Vec<u64> = locked.order.kept.iter().map(|kept| kept.number).collect();
    let needs_log = |n: u64| n >= log || kept.contains(&n);
    let mut closed = sequencer.log.closed.lock();
    closed.retain(|closed| needs_log(closed.number));
    drop(closed);
    view.active.set_log(segment.number);
    if segment.log.is_some() {
        sequencer.log.segments.lock().push(segment.clone());
    }
    writer.segment = Some(segment);
    for path in writer.discarded.drain(..) {
        // Replay skips a file that stays.
        if is_own(fs, &path) {
            let _ = fs.remove(&path);
        }
    }
    let tables = view.version.all_tables();
    let tables: std::collections::HashSet<u64> =
        tables.map(|table| table.file().number()).collect();
    for name in fs.list(dir).unwrap_or_default() {
        let leftover = |name: &str| is_leftover(name, &|n| tables.contains(&n), &needs_log, number);
        let path = dir.join(&name);
        if name.to_str().is_some_and(leftover) && is_own(fs, &path) {
            // If the removal fails, the next opening retries it.
            let _ = fs.remove(&path);
        }
    }
    Ok(())
}

/// Removes the segment and the manifest of a first change that failed, so that retries do not fill
/// the disk. They stay where `CURRENT` may name them: a failure to replace it may come after the
/// rename.
fn remove_unnamed(source: &TableSource, segment: &Segment, manifest: u64) {
    let (fs, dir) = (&*source.fs, &source.dir);
    let is_unnamed = match Current::read(fs, dir) {
        Ok(current) => current.manifest != manifest,
        Err(Error::Io { source, .. }) => source.kind() == ErrorKind::NotFound,
        Err(_) => false,
    };
    if is_unnamed {
        let _ = fs.remove(&manifest_path(dir, manifest));
        if segment.log.is_some() {
            let _ = fs.remove(&log_path(dir, segment.number));
        }
    }
}

/// Makes the active generation a full one, and starts the next with its own segment.
pub(super) fn rotate(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    writer: &mut Writer,
) -> Result<()> {
    let core = &*sequencer.core;
    let before = writer.segment.as_ref();
    let number = versions.new_file();
    let log = before.and_then(|before| before.log.as_ref());
    let ended = log.map(|log| log.end(number)).transpose();
    let ended = ended.map_err(|failed| sequencer.not_appended(failed))?;
    let previous = before.zip(ended).map(|(before, end)| (before.number, end));
    // Not the last allocated number: some are for ingested runs.
    let last = before.map_or(0, |segment| segment.last.load(Ordering::Acquire));
    let segment = sequencer.create_segment(number, previous, last)?;
    let after = writer.last;
    let closed = before.filter(|_| log.is_some());
    let closed = closed.map(|before| ClosedSegment {
        number: before.number,
        after: before.after,
        last,
        len: ended.unwrap_or(0),
        ended: core.options.log_time(),
    });
    if segment.log.is_some() {
        let mut all = sequencer.log.closed.lock();
        all.extend(closed);
        sequencer.log.segments.lock().push(segment.clone());
    }
    versions.change(scheduler, |view| {
        let active = Generation::new(after);
        let bytes = core.options.generation_bytes();
        active.count_in(&core.budget, bytes);
        view.active.mark_full();
        active.set_log(segment.number);
        let mut full = vec![view.active.clone()];
        full.extend(view.full.iter().cloned());
        View {
            active,
            full,
            version: view.version.clone(),
            closed: view.closed.clone(),
        }
    });
    writer.segment = Some(segment);
    scheduler.wake_background();
    Ok(())
}

/// Rotates a non-empty active generation.
pub(super) fn rotate_now(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<()> {
    let mut writer = sequencer.writer.lock();
    sequencer.core.check_poison()?;
    if versions.view.load().active.is_empty() {
        return Ok(());
    }
    start_writing(sequencer, versions, &mut writer)?;
    rotate(sequencer, versions, scheduler, &mut writer)
}
