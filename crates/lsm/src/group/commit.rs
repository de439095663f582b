//! The write path: log, then memtables, then (if requested) the sync, then visible to readers.
//!
//! Readers always see a prefix of the acknowledged writes. A write gets its place in the order with its sequence
//! number, allocated under the writer lock; under the same lock its ticket records the last write up to it that must
//! be durable before it is acknowledged (itself, or an earlier one). It is acknowledged, and everything up to it
//! becomes visible, when the log is durable up to there. So a write without a sync waits for the sync of an earlier
//! one; and where a sync fails no later write is acknowledged or ever visible.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::install::no_tree;
use super::manifest::begin_manifest;
use super::recover::{is_leftover, is_own};
use super::sequencer::{Stamped, Writer};
use super::{Inner, Ticket};
use crate::batch::{Batch, TreeId};
use crate::entry::{MAX_SEQ, Seq};
use crate::error::{Error, Result};
use crate::generation::{Generation, View};
use crate::options::Durability;
use crate::read::Snapshot;
use crate::stats::Counters;
use crate::version::{ClosedSegment, Current};

/// Adds writes to a batch that depend on the state it is applied to.
pub type Complete<'c> = dyn FnMut(&mut Batch, Seq, &Snapshot) -> Result<()> + 'c;

/// Full generations that may wait for their flush before writers wait, too.
const FULL_GENERATIONS: usize = 2;

/// Bytes per second to which writers are limited at the onset and at the maximum of compaction pressure.
const SLOW_RATE: (f64, f64) = (64e6, 2e6);

/// Bounds of periodic intervals: a write with a shorter one is synced before it returns, a longer one is clamped.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl Inner {
    /// `complete`, if any, is called under the writer lock with the first sequence number of the batch and a snapshot
    /// of everything written before it.
    pub(super) fn append(
        &self,
        batch: &mut Batch,
        durability: Durability,
        complete: Option<&mut Complete<'_>>,
    ) -> Result<Ticket> {
        self.core.check_poison()?;
        if !self.core.has_external_log() {
            // Hashed here, outside of the lock; the additions of `complete` are hashed under it.
            batch.hash();
        }
        let mut writer = self.sequencer.writer.lock();
        // While the lock is held it is the view of the active generation, and of the trees.
        let view = loop {
            if self.core.closing.load(Ordering::Relaxed) {
                return Err(Error::Closed);
            }
            self.start_writing(&mut writer)?;
            let view = self.versions.view.load();
            let limit = self.core.options.generation_bytes();
            let full = view.active.written() + batch.bytes() > limit / 4
                && view.active.memory() + batch.bytes() > limit
                && !view.active.is_empty();
            if !full {
                break view;
            }
            let may_rotate = view.full.len() < FULL_GENERATIONS;
            drop(view);
            if may_rotate {
                self.rotate(&mut writer)?;
                continue;
            }
            drop(writer);
            self.wait_for_flush()?;
            writer = self.sequencer.writer.lock();
        };
        if batch.is_stale(view.version.changes()) {
            return Err(Error::Stale);
        }
        if let Some(complete) = complete {
            let view = self.versions.view.load_full();
            let horizon = self.core.horizon(&view);
            let snapshot = Snapshot::new(view, writer.next_seq - 1, horizon);
            complete(batch, writer.next_seq, &snapshot)?;
        }
        let ticket = self.apply(&mut writer, &view, batch, durability)?;
        let delay = self.delay(&mut writer, &view, batch);
        drop((writer, view));
        if let Some(delay) = delay {
            Counters::add(&self.core.counters.slowed_micros, delay.as_micros() as u64);
            std::thread::sleep(delay);
        }
        Ok(ticket)
    }

    fn apply(
        &self,
        writer: &mut Writer,
        view: &View,
        batch: &mut Batch,
        durability: Durability,
    ) -> Result<Ticket> {
        let Some(segment) = &writer.segment else {
            return Err(Error::Closed);
        };
        let first = writer.next_seq;
        let (forces, due) = self.demand(durability);
        if batch.is_empty() {
            let appended = segment.last.load(Ordering::Acquire);
            return Ok(Ticket {
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
        self.reserve(last)?;
        let unknown = |tree: &&TreeId| !view.version.trees.contains_key(*tree);
        if let Some(tree) = batch.trees().iter().find(unknown) {
            return Err(no_tree(*tree));
        }
        if let Some(log) = &segment.log {
            let hash = batch.hash();
            let payload = batch.seal(first);
            let time = self.stamp(&mut writer.stamped, segment.number);
            let appended = log.append_hashed(payload, hash, forces, time);
            appended.map_err(|failed| {
                // The time is not in the log, either.
                writer.stamped.considered = (0, 0);
                self.sequencer.not_appended(failed)
            })?;
            Counters::add_alone(&self.core.counters.log_bytes, batch.bytes() as u64);
        }
        for operation in batch.operations(first) {
            let inserted = view.active.insert(&view.version, &operation);
            debug_assert!(inserted, "an entry was inserted twice");
        }
        let (bytes, operations) = (batch.bytes(), batch.len());
        view.active.applied(bytes + operations * 64, last);
        self.sequencer.given.store(last + 1, Ordering::Release);
        segment.last.store(last, Ordering::Release);
        writer.next_seq = last + 1;
        writer.last = last;
        // Nobody else counts these without the writer lock.
        let counters = &self.core.counters;
        Counters::add_alone(&counters.batches, 1);
        Counters::add_alone(&counters.operations, operations as u64);
        if forces {
            writer.demanded = last;
        }
        Ok(Ticket {
            last,
            durable: writer.demanded,
            forces,
            due,
        })
    }

    /// The time, where the log should say it: once a second and segment while somebody wants to know for how long
    /// changes have been waiting. 0 where it says one that is no longer that of the writes to come.
    fn stamp(&self, stamped: &mut Stamped, segment: u64) -> Option<u64> {
        let (consumed, background) = (&self.sequencer.consumed, self.core.options.background);
        let is_said = stamped.says == Some(segment);
        if !background && !is_said && !consumed.load(Ordering::Relaxed) {
            return None;
        }
        let now = (self.core.options.clock)();
        let due = (now / 1000, segment);
        if std::mem::replace(&mut stamped.considered, due) == due {
            return None;
        }
        // Another process may have become a consumer. Without background work that is noticed with a flush: the calls
        // do not depend on the time.
        if background {
            self.sequencer.note_consumers();
        }
        if consumed.load(Ordering::Relaxed) {
            stamped.says = Some(segment);
            return Some(now);
        }
        // Again with each second until the segment ends: a write that failed may have taken the last one back.
        is_said.then_some(0)
    }

    /// Returns when the batch is acknowledged: it and all before it are as durable as requested.
    pub(super) fn acknowledge(&self, ticket: Ticket) -> Result<()> {
        if self.sequencer.log.synced() < ticket.durable || ticket.forces {
            self.sequencer.wait_durable(ticket.durable)?;
        }
        // Everything up to here is in the log and as durable as requested: an acknowledged prefix.
        self.sequencer.publish(ticket.last);
        if let Some(due) = ticket.due {
            self.sync_before(due);
        }
        if !self.core.options.background {
            self.work_inline();
        }
        Ok(())
    }

    /// Called before any change: refuses it after a failure that left the log in an unknown state. The first change
    /// of this handle begins a new segment, a new manifest with the whole version, and a `CURRENT` without a seal.
    /// Leftovers of earlier handles are removed.
    pub(super) fn start_writing(&self, writer: &mut Writer) -> Result<()> {
        self.core.check_poison()?;
        if writer.segment.is_some() {
            return Ok(());
        }
        if self.core.closing.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        let (fs, dir) = (&*self.core.source.fs, &self.core.source.dir);
        // A sync of this handle guarantees everything before it.
        self.sequencer.sync_found(writer)?;
        let view = self.versions.view.load_full();
        let last = writer.last;
        self.sequencer.log.note_synced(last);
        self.sequencer.note_consumers();
        let segment =
            self.sequencer
                .create_segment(self.versions.new_file(), writer.replayed, last)?;
        let mut versions = self.versions.manifest.lock();
        let oldest = view.full.last().and_then(|generation| generation.log());
        let log = oldest.unwrap_or(segment.number);
        versions.log = log;
        // Replayed segments that only have writes of dropped trees need no flush.
        // Held until readers see what the manifest keeps.
        let held = self.sequencer.keep(&mut versions.order, log);
        versions.last_seq = view.full.last().map_or(last, |g| g.component().min - 1);
        let number = self.versions.new_file();
        let (manifest, order) = begin_manifest(
            &self.sequencer,
            &self.versions,
            number,
            &view.version,
            &mut versions,
        )?;
        Current {
            manifest: number,
            seal: None,
        }
        .write(fs, dir)?;
        segment.named.store(true, Ordering::Release);
        drop(held);
        self.sequencer.note_order(&mut versions, order);
        versions.manifest = Some(manifest);
        let kept: Vec<u64> = versions.order.kept.iter().map(|kept| kept.number).collect();
        let needs_log = |n: u64| n >= log || kept.contains(&n);
        let mut closed = self.sequencer.log.closed.lock();
        closed.retain(|closed| needs_log(closed.number));
        drop(closed);
        view.active.set_log(segment.number);
        if segment.log.is_some() {
            self.sequencer.log.segments.lock().push(segment.clone());
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
            let leftover =
                |name: &str| is_leftover(name, &|n| tables.contains(&n), &needs_log, number);
            let path = dir.join(&name);
            if name.to_str().is_some_and(leftover) && is_own(fs, &path) {
                // If the removal fails, the next opening retries it.
                let _ = fs.remove(&path);
            }
        }
        Ok(())
    }

    /// Makes the active generation a full one, and starts the next with its own segment.
    pub(super) fn rotate(&self, writer: &mut Writer) -> Result<()> {
        let before = writer.segment.as_ref();
        let number = self.versions.new_file();
        let log = before.and_then(|before| before.log.as_ref());
        let ended = log.map(|log| log.end(number)).transpose();
        let ended = ended.map_err(|failed| self.sequencer.not_appended(failed))?;
        let previous = before.zip(ended).map(|(before, end)| (before.number, end));
        // Not the last allocated number: some are for ingested runs.
        let last = before.map_or(0, |segment| segment.last.load(Ordering::Acquire));
        let segment = self.sequencer.create_segment(number, previous, last)?;
        let after = writer.last;
        let closed = before.filter(|_| log.is_some());
        let closed = closed.map(|before| ClosedSegment {
            number: before.number,
            after: before.after,
            last,
            len: ended.unwrap_or(0),
            ended: self.core.options.log_time(),
        });
        if segment.log.is_some() {
            let mut all = self.sequencer.log.closed.lock();
            all.extend(closed);
            self.sequencer.log.segments.lock().push(segment.clone());
        }
        self.versions.change(&self.scheduler, |view| {
            let active = Generation::new(after);
            let bytes = self.core.options.generation_bytes();
            active.count_in(&self.core.budget, bytes);
            view.active.is_full();
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
        self.scheduler.wake_background();
        Ok(())
    }

    /// Rotates a non-empty active generation.
    pub(super) fn rotate_now(&self) -> Result<()> {
        let mut writer = self.sequencer.writer.lock();
        self.core.check_poison()?;
        if self.versions.view.load().active.is_empty() {
            return Ok(());
        }
        self.start_writing(&mut writer)?;
        self.rotate(&mut writer)
    }

    /// Waits until a full generation is on disk; a flush that fails because the disk is full fails the writes that
    /// wait for it.
    fn wait_for_flush(&self) -> Result<()> {
        if !self.scheduler.workers.flush.load(Ordering::SeqCst) {
            self.flush_full()?;
            if self.core.options.background
                && self.scheduler.workers.compact.load(Ordering::SeqCst) == 0
            {
                self.compact_inline();
            }
            return Ok(());
        }
        let start = Instant::now();
        self.scheduler.wake_background();
        let mut signals = self.scheduler.signals.lock();
        while self.versions.view.load().full.len() >= FULL_GENERATIONS {
            if let Some((failure, _)) = &signals.flush_failure {
                return Err(failure.clone());
            }
            let gone = !self.scheduler.workers.flush.load(Ordering::SeqCst);
            let closing = self.core.closing.load(Ordering::Relaxed);
            if gone || closing || self.core.is_poisoned() {
                break;
            }
            self.scheduler
                .flushed
                .wait_for(&mut signals, Duration::from_millis(100));
        }
        drop(signals);
        Counters::add(
            &self.core.counters.stalled_micros,
            start.elapsed().as_micros() as u64,
        );
        self.core.check_poison()
    }

    /// How long this writer should sleep so that compactions keep up: in proportion to its bytes and to the backlog,
    /// never for the length of a compaction. Only the backlog of the trees it wrote to counts: writers to other trees
    /// are not slowed down.
    fn delay(&self, writer: &mut Writer, view: &View, batch: &Batch) -> Option<Duration> {
        let pressure = self.scheduler.pressure_of(&view.version, batch.trees());
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
    fn sync_before(&self, due: Instant) {
        let mut signals = self.scheduler.signals.lock();
        if signals.sync_at.is_none_or(|set| due < set) {
            signals.sync_at = Some(due);
            self.scheduler.wake.notify_all();
        }
    }

    /// What a durability requires: on disk before the write is acknowledged, or at a time, or neither.
    fn demand(&self, durability: Durability) -> (bool, Option<Instant>) {
        match durability {
            _ if self.core.has_external_log() => (false, None),
            Durability::Sync => (true, None),
            Durability::Os => (false, None),
            // Shorter intervals count as none, and without the thread nothing would sync later.
            Durability::Periodic(interval)
                if interval < SHORTEST || !self.scheduler.workers.sync.load(Ordering::SeqCst) =>
            {
                (true, None)
            }
            Durability::Periodic(interval) => (false, Some(Instant::now() + interval.min(LONGEST))),
        }
    }
}
