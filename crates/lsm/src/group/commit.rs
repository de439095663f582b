//! The write path: log, then memtables, then (if requested) the sync, then visible to readers.
//!
//! Readers always see a prefix of the acknowledged writes. A write gets its place in the order with
//! its sequence number, allocated under the writer lock; under the same lock its ticket records the
//! last write up to it that must be durable before it is acknowledged (itself, or an earlier one).
//! It is acknowledged, and everything up to it becomes visible, when the log is durable up to
//! there. So a write without a sync waits for the sync of an earlier one; and where a sync fails no
//! later write is acknowledged or ever visible.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::compact::compact_inline;
use super::core::Core;
use super::flush::flush_full;
use super::install::no_tree;
use super::order::reserve;
use super::report::note_flush_failure;
use super::rotate::{rotate, start_writing};
use super::scheduler::Scheduler;
use super::sequencer::{Sequencer, Stamped, Writer};
use super::ticket::Ticket;
use super::version_set::VersionSet;
use crate::batch::{Batch, TreeId};
use crate::entry::{MAX_SEQ, Seq};
use crate::error::{Error, Result};
use crate::generation::View;
use crate::options::Durability;
use crate::read::Snapshot;
use crate::stats::Counters;

/// Adds writes to a batch that depend on the state it is applied to.
pub type Complete<'c> = dyn FnMut(&mut Batch, Seq, &Snapshot) -> Result<()> + 'c;

/// Full generations that may wait for their flush before writers wait, too.
const FULL_GENERATIONS: usize = 2;

/// Bytes per second to which writers are limited at the onset and at the maximum of compaction
/// pressure.
const SLOW_RATE: (f64, f64) = (64e6, 2e6);

/// Bounds of periodic intervals: a write with a shorter one is synced before it returns, a longer
/// one is clamped.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// `complete`, if any, is called under the writer lock with the first sequence number of the batch
/// and a snapshot of everything written before it.
pub(super) fn append(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    batch: &mut Batch,
    durability: Durability,
    complete: Option<&mut Complete<'_>>,
) -> Result<Ticket> {
    let core = &*sequencer.core;
    core.check_poison()?;
    if !core.has_external_log() {
        // Hashed here, outside of the lock; the additions of `complete` are hashed under it.
        batch.hash();
    }
    let mut writer = sequencer.writer.lock();
    // While the lock is held it is the view of the active generation, and of the trees.
    let view = loop {
        if core.closing.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        start_writing(sequencer, versions, &mut writer)?;
        let view = versions.view.load();
        let limit = core.options.generation_bytes();
        let full = view.active.written() + batch.bytes() > limit / 4
            && view.active.memory() + batch.bytes() > limit
            && !view.active.is_empty();
        if !full {
            break view;
        }
        let may_rotate = view.full.len() < FULL_GENERATIONS;
        drop(view);
        if may_rotate {
            rotate(sequencer, versions, scheduler, &mut writer)?;
            continue;
        }
        drop(writer);
        wait_for_flush(sequencer, versions, scheduler)?;
        writer = sequencer.writer.lock();
    };
    if batch.is_stale(view.version.changes()) {
        return Err(Error::Stale);
    }
    if let Some(complete) = complete {
        let view = versions.view.load_full();
        let horizon = core.horizon(&view);
        let snapshot = Snapshot::new(view, writer.next_seq - 1, horizon);
        complete(batch, writer.next_seq, &snapshot)?;
    }
    let ticket = apply(
        sequencer,
        versions,
        scheduler,
        &mut writer,
        &view,
        batch,
        durability,
    )?;
    let delay = delay(scheduler, &mut writer, &view, batch);
    drop((writer, view));
    if let Some(delay) = delay {
        Counters::add(&core.counters.slowed_micros, delay.as_micros() as u64);
        std::thread::sleep(delay);
    }
    Ok(ticket)
}

fn apply(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    writer: &mut Writer,
    view: &View,
    batch: &mut Batch,
    durability: Durability,
) -> Result<Ticket> {
    let core = &*sequencer.core;
    let Some(segment) = &writer.segment else {
        return Err(Error::Closed);
    };
    let first = writer.next_seq;
    debug_assert!(first > writer.last, "a sequence number is used twice");
    let (forces, due) = demand(core, scheduler, durability);
    if batch.is_empty() {
        let appended = segment.last.load(Ordering::Acquire);
        return Ok(Ticket {
            first: writer.last,
            // Not the number before the next one, which a power cut may have lost.
            last: writer.last,
            durable: if forces { appended } else { writer.demanded },
            forces,
            due,
        });
    }
    let last = first + u64::from(batch.sequences()) - 1;
    if last >= MAX_SEQ {
        return Err(Error::Limit {
            what: "sequence number",
            limit: MAX_SEQ,
            value: last,
        });
    }
    reserve(sequencer, versions, last)?;
    let unknown = |tree: &&TreeId| !view.version.trees.contains_key(*tree);
    if let Some(tree) = batch.trees().iter().find(unknown) {
        return Err(no_tree(*tree));
    }
    if let Some(log) = &segment.log {
        let hash = batch.hash();
        let payload = batch.seal(first);
        let time = stamp(sequencer, &mut writer.stamped, segment.number);
        let appended = log.append_hashed(payload, hash, forces, time);
        appended.map_err(|failed| {
            // The time is not in the log, either.
            writer.stamped.considered = (0, 0);
            sequencer.not_appended(failed)
        })?;
        Counters::add_alone(&core.counters.log_bytes, batch.bytes() as u64);
    }
    for operation in batch.operations(first) {
        let inserted = view.active.insert(&view.version, &operation);
        debug_assert!(inserted, "an entry was inserted twice");
    }
    let (bytes, operations) = (batch.bytes(), batch.len());
    view.active.applied(bytes + operations * 64, last);
    sequencer.given.store(last + 1, Ordering::Release);
    segment.last.store(last, Ordering::Release);
    writer.next_seq = last + 1;
    writer.last = last;
    // These are counted under the writer lock only.
    let counters = &core.counters;
    Counters::add_alone(&counters.batches, 1);
    Counters::add_alone(&counters.operations, operations as u64);
    if forces {
        writer.demanded = last;
    }
    Ok(Ticket {
        first,
        last,
        durable: writer.demanded,
        forces,
        due,
    })
}

/// The time, where the log should say it: once a second and segment while a consumer's waiting
/// time is to be known. 0 where it says one that is no longer that of the writes
/// to come.
fn stamp(sequencer: &Sequencer, stamped: &mut Stamped, segment: u64) -> Option<u64> {
    let core = &*sequencer.core;
    let (consumed, background) = (&sequencer.consumed, core.options.background);
    let is_said = stamped.says == Some(segment);
    if !background && !is_said && !consumed.load(Ordering::Relaxed) {
        return None;
    }
    let now = (core.options.clock)();
    let due = (now / 1000, segment);
    if std::mem::replace(&mut stamped.considered, due) == due {
        return None;
    }
    // Another process may have become a consumer. Without background work that is noticed with a
    // flush: the calls do not depend on the time.
    if background {
        sequencer.note_consumers();
    }
    if consumed.load(Ordering::Relaxed) {
        stamped.says = Some(segment);
        return Some(now);
    }
    // Again with each second until the segment ends: a write that failed may have taken the last
    // one back.
    is_said.then_some(0)
}

/// Returns when the batch is acknowledged: it and all before it are as durable as requested.
pub(super) fn acknowledge(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    ticket: Ticket,
) -> Result<()> {
    let core = &*sequencer.core;
    if sequencer.log.synced() < ticket.durable || ticket.forces {
        sequencer.wait_durable(ticket.durable)?;
    }
    // Everything up to here is in the log and as durable as requested: an acknowledged prefix.
    sequencer.publish(ticket.last);
    if let Some(due) = ticket.due {
        sync_before(scheduler, due);
    }
    if !core.options.background {
        work_inline(sequencer, versions, scheduler);
    }
    Ok(())
}

/// Waits until a full generation is on disk; a flush that fails because the disk is full fails the
/// writes that wait for it.
fn wait_for_flush(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<()> {
    let core = &*sequencer.core;
    if !scheduler.workers.flush.load(Ordering::SeqCst) {
        flush_full(sequencer, versions, scheduler)?;
        if core.options.background && scheduler.workers.compact.load(Ordering::SeqCst) == 0 {
            compact_inline(sequencer, versions, scheduler);
        }
        return Ok(());
    }
    let start = Instant::now();
    scheduler.wake_background();
    let mut signals = scheduler.signals.lock();
    while versions.view.load().full.len() >= FULL_GENERATIONS {
        if let Some((failure, _)) = &signals.flush_failure {
            return Err(failure.clone());
        }
        let gone = !scheduler.workers.flush.load(Ordering::SeqCst);
        let closing = core.closing.load(Ordering::Relaxed);
        if gone || closing || core.is_poisoned() {
            break;
        }
        scheduler
            .flushed
            .wait_for(&mut signals, Duration::from_millis(100));
    }
    drop(signals);
    Counters::add(
        &core.counters.stalled_micros,
        start.elapsed().as_micros() as u64,
    );
    core.check_poison()
}

/// How long this writer should sleep so that compactions keep up: in proportion to its bytes and to
/// the backlog, never for the length of a compaction. Only the backlog of the trees it wrote to
/// counts: writers to other trees are not slowed down.
fn delay(
    scheduler: &Scheduler,
    writer: &mut Writer,
    view: &View,
    batch: &Batch,
) -> Option<Duration> {
    let pressure = scheduler.pressure_of(&view.version, batch.trees());
    if pressure <= 0.0 {
        return None;
    }
    let (onset, height) = SLOW_RATE;
    let rate = onset * (height / onset).powf(pressure.min(1.0));
    writer.delay += (batch.bytes() as f64 / rate * 1e6) as u64;
    (writer.delay >= 500)
        .then(|| Duration::from_micros(std::mem::take(&mut writer.delay).min(20_000)))
}

/// Schedules a sync of the log for `due`.
fn sync_before(scheduler: &Scheduler, due: Instant) {
    let mut signals = scheduler.signals.lock();
    if signals.sync_at.is_none_or(|set| due < set) {
        signals.sync_at = Some(due);
        scheduler.wake.notify_all();
    }
}

/// What a durability requires: on disk before the write is acknowledged, or at a time, or neither.
fn demand(core: &Core, scheduler: &Scheduler, durability: Durability) -> (bool, Option<Instant>) {
    match durability {
        _ if core.has_external_log() => (false, None),
        Durability::Sync => (true, None),
        Durability::Os => (false, None),
        // Shorter intervals count as none, and without the thread nothing would sync later.
        Durability::Periodic(interval)
            if interval < SHORTEST || !scheduler.workers.sync.load(Ordering::SeqCst) =>
        {
            (true, None)
        }
        Durability::Periodic(interval) => (false, Some(Instant::now() + interval.min(LONGEST))),
    }
}

/// Does the work of the background threads inline. A failure is kept for the writers that run into
/// it.
fn work_inline(sequencer: &Sequencer, versions: &VersionSet, scheduler: &Scheduler) {
    let core = &*sequencer.core;
    if versions.view.load().full.is_empty() {
        return;
    }
    match flush_full(sequencer, versions, scheduler) {
        Ok(()) => compact_inline(sequencer, versions, scheduler),
        Err(error) => note_flush_failure(core, scheduler, error),
    }
}
