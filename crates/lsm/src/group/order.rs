//! The order of commits: sequence numbers that are never reused, positions, and the retention of
//! the log.
//!
//! Sequence numbers are *reserved* in the manifest before they are allocated, many at a time and
//! with edits that are written anyway. After an end without a seal the next handle continues above
//! the reserved ones: a power cut may have lost writes that a reader saw, and their numbers must
//! not name other writes. The numbers in between are *lost*, and the store records them: a
//! [`Position`] among them belongs to a history that was discarded.
//!
//! A segment of the log is removed when its generation is in tables, unless it is *retained*: for
//! the last so many bytes, for a time ([`KeepLog`]), or for a consumer that has not read it
//! ([`Group::keep_log_for`]), each up to a bound. The retained part is always the newest part of
//! the log, without gaps.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::manifest::record_order;
use super::rotate::start_writing;
use super::sequencer::Sequencer;
use super::version_set::{VersionSet, Versions};
use crate::entry::{Position, Seq};
use crate::error::{Error, Result};
use crate::fs::Lock;
use crate::options::KeepLog;
use crate::version::{ClosedSegment, ConsumerPlace, ConsumerPlaces, Order, log_path};

/// How many numbers are reserved at a time.
const RESERVE: u64 = 1 << 20;

/// Refuses a position from which the log cannot continue.
pub(super) fn check_position(
    sequencer: &Sequencer,
    versions: &VersionSet,
    position: Position,
) -> Result<()> {
    let other = Err(Error::OtherHistory {
        position,
        current: sequencer.position_of(sequencer.visible()),
    });
    let is_lost = |(after, upto): &(Seq, Seq)| *after < position.seq && position.seq <= *upto;
    if position.history != sequencer.history.load(Ordering::Acquire)
        || position.seq > sequencer.visible()
        || versions.manifest.lock().order.lost.iter().any(is_lost)
    {
        return other;
    }
    sequencer.check_kept(position.seq)
}

/// Ensures, under the writer lock, that numbers up to `upto` are reserved.
pub(super) fn reserve(sequencer: &Sequencer, versions: &VersionSet, upto: Seq) -> Result<()> {
    if upto < sequencer.reserved.load(Ordering::Acquire) {
        return Ok(());
    }
    let mut locked = versions.manifest.lock();
    let mut order = locked.order.clone();
    order.reserved = upto + 1 + RESERVE;
    record_order(sequencer, &mut locked, order)
}

/// Applies a change of the order, durably.
pub(super) fn change_order(
    sequencer: &Sequencer,
    versions: &VersionSet,
    change: impl FnOnce(&mut Order),
) -> Result<()> {
    start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
    let mut locked = versions.manifest.lock();
    let mut order = locked.order.clone();
    change(&mut order);
    record_order(sequencer, &mut locked, order)
}

/// True when segments may be retained after the next flush.
pub(super) fn is_log_kept(sequencer: &Sequencer, versions: &VersionSet) -> bool {
    sequencer.core.options.keep_log != KeepLog::default()
        || !versions.manifest.lock().order.holds.is_empty()
        || !sequencer.tails.holds().is_empty()
        || !sequencer.unconsumed.load(Ordering::Relaxed)
        || sequencer.places().is_any().unwrap_or(true)
}

/// Removes the segments that the manifest no longer lists.
pub(super) fn drop_segments(sequencer: &Sequencer, versions: &VersionSet) {
    let (log, kept) = {
        let locked = versions.manifest.lock();
        let kept = locked.order.kept.iter().map(|kept| kept.number);
        (locked.log, kept.collect::<HashSet<u64>>())
    };
    let is_needed = |number: u64| number >= log || kept.contains(&number);
    let gone: Vec<u64> = {
        let mut closed = sequencer.log.closed.lock();
        let gone = closed.iter().map(|closed| closed.number);
        let gone = gone.filter(|number| !is_needed(*number)).collect();
        closed.retain(|closed| is_needed(closed.number));
        sequencer
            .log
            .segments
            .lock()
            .retain(|segment| segment.number >= log);
        gone
    };
    for number in gone {
        // If the removal fails, the next opening retries it.
        let _ = sequencer
            .core
            .source
            .fs
            .remove(&log_path(&sequencer.core.source.dir, number));
    }
}

/// Removes what the manifest notes of consumers that have places of their own.
pub(super) fn supersede(order: &mut Order, places: &[ConsumerPlace]) {
    order.holds.retain(|name, _| {
        places
            .iter()
            .all(|place| place.name != *name && place.replaced.as_ref() != Some(name))
    });
}

impl Sequencer {
    /// The last write before the start of the log.
    pub(super) fn oldest(&self) -> Seq {
        let closed = self.log.closed.lock();
        let live = self.log.segments.lock();
        let first = closed.first().map(|closed| closed.after);
        let first = first.or(live.first().map(|live| live.after));
        drop((live, closed));
        first.unwrap_or_else(|| self.visible.load(Ordering::Acquire))
    }

    pub(super) fn check_kept(&self, seq: Seq) -> Result<()> {
        let oldest = self.oldest();
        if seq < oldest {
            Err(Error::PositionExpired {
                oldest: self.position_of(oldest),
            })
        } else {
            Ok(())
        }
    }

    /// The changes of the order that an edit should include: reservations before the reserved
    /// numbers run out, and, with a flush, segments to release. What is returned beside them is
    /// held until the edit is recorded.
    pub(super) fn next_order(
        &self,
        versions: &Versions,
        flushed: Option<u64>,
    ) -> (Option<Order>, Option<Box<dyn Lock>>) {
        let mut order = versions.order.clone();
        let given = self.given.load(Ordering::Acquire);
        if order.reserved < given + RESERVE / 2 {
            order.reserved = given + RESERVE;
        }
        let held = flushed.and_then(|log| self.keep(&mut order, log));
        ((order != versions.order).then_some(order), held)
    }

    /// The order for the first edit of a manifest.
    pub(super) fn first_order(&self, versions: &Versions) -> Order {
        let mut order = versions.order.clone();
        order.reserved = order
            .reserved
            .max(self.given.load(Ordering::Acquire) + RESERVE);
        order
    }

    /// Adopts the order now in the manifest.
    pub(super) fn note_order(&self, versions: &mut Versions, order: Order) {
        self.reserved.store(order.reserved, Ordering::Release);
        versions.order = order;
    }

    /// Has the order keep the retained ones among the segments before `log`, which recovery does
    /// not need. What is returned is held until the order is recorded: no consumer notes its place
    /// meanwhile.
    pub(super) fn keep(&self, order: &mut Order, log: u64) -> Option<Box<dyn Lock>> {
        let own: Vec<(Seq, u64)> = self.tails.holds();
        order.kept = self.retained(log, &own);
        let closed = self.log.closed.lock();
        let superfluous: Vec<ClosedSegment> = closed
            .iter()
            .filter(|closed| closed.number < log)
            .copied()
            .collect();
        drop(closed);
        if order.kept.len() == superfluous.len() {
            return None;
        }
        let places = self.places();
        let held = places.try_lock();
        let all = held.and_then(|held| Ok((held, self.durable_places()?)));
        let Ok((Some(held), all)) = all else {
            // A consumer is noting a place, or the places cannot be read or made durable: nothing
            // is removed this time.
            order.kept = superfluous;
            return None;
        };
        supersede(order, &all);
        let history = order.history;
        let places = all.iter().filter(|place| place.position.history == history);
        let places = places.map(|place| (place.position.seq, place.bytes));
        let noted = order.holds.values();
        let noted = noted.map(|hold| (hold.position, hold.bytes));
        let all: Vec<_> = own.into_iter().chain(places).chain(noted).collect();
        order.kept = self.retained(log, &all);
        Some(held)
    }

    /// The places of the consumers, durable: a power cut does not undo them. The writer of one may
    /// have failed, or ended, before it was.
    fn durable_places(&self) -> Result<Vec<ConsumerPlace>> {
        let places = self.places();
        let (all, _) = places.list()?;
        if !all.is_empty() || !self.unconsumed.load(Ordering::Relaxed) {
            places.sync()?;
        }
        self.consumed.store(!all.is_empty(), Ordering::Relaxed);
        self.unconsumed.store(all.is_empty(), Ordering::Relaxed);
        Ok(all)
    }

    /// The segments before `log` that options and holds, each a position and the most bytes for it,
    /// retain.
    fn retained(&self, log: u64, holds: &[(Seq, u64)]) -> Vec<ClosedSegment> {
        let closed = self.log.closed.lock();
        let superfluous = closed.iter().filter(|closed| closed.number < log);
        let mut kept: Vec<ClosedSegment> = Vec::new();
        let mut bytes = 0_u64;
        let KeepLog { bytes: last, age } = self.core.options.keep_log;
        let now = self.core.options.log_time();
        for segment in superfluous.rev() {
            bytes = bytes.saturating_add(segment.len);
            let is_young = age.is_some_and(|(age, most)| {
                bytes <= most && now.saturating_sub(segment.ended) <= age.as_millis() as u64
            });
            let is_held = holds
                .iter()
                .any(|(position, most)| *position < segment.last && bytes <= *most);
            if bytes > last && !is_young && !is_held {
                break;
            }
            kept.push(*segment);
        }
        kept.reverse();
        kept
    }

    /// Looks whether there are consumers. If that cannot be told, there are.
    pub(super) fn note_consumers(&self) {
        let is_any = self.places().is_any().unwrap_or(true);
        self.consumed.store(is_any, Ordering::Relaxed);
        self.unconsumed.fetch_and(!is_any, Ordering::Relaxed);
    }

    /// Looks whether there are durably no consumers: before the first write of a handle.
    pub(super) fn settle_consumers(&self) {
        if self.durable_places().is_err() {
            self.consumed.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn places(&self) -> ConsumerPlaces<'_> {
        ConsumerPlaces::new(&*self.core.source.fs, &self.core.source.dir)
    }
}
