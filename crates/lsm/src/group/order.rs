//! The order of commits: sequence numbers that are never reused, positions, and the retention of the log.
//!
//! Sequence numbers are *reserved* in the manifest before they are allocated, many at a time and with edits that are
//! written anyway. After an end without a seal the next handle continues above the reserved ones: a power cut may
//! have lost writes that a reader saw, and their numbers must not name other writes. The numbers in between are
//! *lost*, and the store records them: a [`Position`] among them belongs to a history that was discarded.
//!
//! A segment of the log is removed when its generation is in tables, unless it is *retained*: for the last so many
//! bytes, for a time ([`KeepLog`]), or for a consumer that has not read it ([`Group::keep_log_for`]), each up to a
//! bound. The retained part is always the newest part of the log, without gaps.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::sequencer::Sequencer;
use super::version_set::Versions;
use super::{Group, Inner};
use crate::batch::check_limit;
use crate::entry::{Position, Seq};
use crate::error::{Error, Result};
use crate::options::KeepLog;
use crate::version::{ClosedSegment, Edit, Hold, Order, log_path};

/// How many numbers are reserved at a time.
const RESERVE: u64 = 1 << 20;

/// The longest name of a consumer of the log, in bytes. Longer than 255, the limit of earlier versions, by what a layer above
/// puts before the names that it is given.
const MAX_NAME: usize = 288;

/// The most named consumers of a log.
const MAX_CONSUMERS: usize = 1024;

impl Group {
    /// The position of readers: everything up to it is visible.
    pub fn position(&self) -> Position {
        self.inner
            .sequencer
            .position_of(self.inner.sequencer.visible())
    }

    /// The earliest position from which [`Group::tail`] can start.
    pub fn oldest_position(&self) -> Position {
        let oldest = self.inner.sequencer.oldest();
        self.inner.sequencer.position_of(oldest)
    }

    /// Retains the log behind `position` for the consumer `name`, across restarts, until this is called again with a
    /// later position: at most the newest `bytes`. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::PositionExpired`] and [`Error::OtherHistory`] as [`Group::tail`]; [`Error::Limit`] for a name over
    /// 288 bytes and for more than 1024 consumers; errors of writes.
    pub fn keep_log_for(&self, name: &str, position: Position, bytes: u64) -> Result<()> {
        self.keep_log_in_place_of(None, name, position, bytes)
    }

    /// [`Group::keep_log_for`], and removes the consumer `replaced` in the same edit of the manifest.
    ///
    /// # Errors
    /// As [`Group::keep_log_for`].
    pub fn keep_log_in_place_of(
        &self,
        replaced: Option<&str>,
        name: &str,
        position: Position,
        bytes: u64,
    ) -> Result<()> {
        self.inner.check_position(position)?;
        check_limit("the name of a consumer in bytes", MAX_NAME, name.len())?;
        self.inner.change_order(|order| {
            let hold = Hold {
                position: position.seq,
                bytes,
            };
            if let Some(replaced) = replaced {
                order.holds.remove(replaced);
            }
            order.holds.insert(name.to_string(), hold);
            check_limit("the number of consumers", MAX_CONSUMERS, order.holds.len())
        })?;
        self.inner.drop_segments();
        Ok(())
    }

    /// Removes the consumer `name`: the log is no longer retained for it. False when there is none.
    ///
    /// # Errors
    /// Errors of writes.
    pub fn release_log(&self, name: &str) -> Result<bool> {
        Ok(self.release_logs(&mut |other| other == name)? > 0)
    }

    /// Removes the consumers whose name `gone` accepts, in one edit, and returns how many they were.
    ///
    /// # Errors
    /// Errors of writes.
    pub fn release_logs(&self, gone: &mut dyn FnMut(&str) -> bool) -> Result<usize> {
        let mut found = 0;
        self.inner.change_order(|order| {
            let before = order.holds.len();
            order.holds.retain(|name, _| !gone(name));
            found = before - order.holds.len();
            Ok(())
        })?;
        self.inner.drop_segments();
        Ok(found)
    }

    /// Bytes of log from `position` on: those of the segments that have a write behind it, each as a whole.
    pub fn log_bytes_behind(&self, position: Position) -> u64 {
        if position.seq >= self.inner.sequencer.visible() {
            return 0;
        }
        let log = &self.inner.sequencer.log;
        let closed = log.closed.lock();
        let segments = log.segments.lock();
        let closed_bytes = closed.iter().filter(|one| one.last > position.seq);
        // A segment is in both lists while its generation is not in tables.
        let open = segments.iter().filter(|one| {
            let last = one.last.load(Ordering::Acquire);
            last > position.seq && closed.iter().all(|closed| closed.number != one.number)
        });
        let open_bytes: u64 = open.map(|one| one.log.len()).sum();
        closed_bytes.map(|one| one.len).sum::<u64>() + open_bytes
    }

    /// The named consumers of the log: name, position, and the most bytes retained for it.
    pub fn log_consumers(&self) -> Vec<(String, Position, u64)> {
        let versions = self.inner.versions.manifest.lock();
        let history = versions.order.history;
        let holds = versions.order.holds.iter();
        holds
            .map(|(name, hold)| {
                let seq = hold.position;
                (name.clone(), Position { history, seq }, hold.bytes)
            })
            .collect()
    }
}

impl Inner {
    /// Refuses a position from which the log cannot continue.
    pub(super) fn check_position(&self, position: Position) -> Result<()> {
        let other = Err(Error::OtherHistory {
            position,
            current: self.sequencer.position_of(self.sequencer.visible()),
        });
        let is_lost = |(after, upto): &(Seq, Seq)| *after < position.seq && position.seq <= *upto;
        if position.history != self.sequencer.history.load(Ordering::Acquire)
            || position.seq > self.sequencer.visible()
            || self.versions.manifest.lock().order.lost.iter().any(is_lost)
        {
            return other;
        }
        self.sequencer.check_kept(position.seq)
    }

    /// Ensures, under the writer lock, that numbers up to `upto` are reserved.
    pub(super) fn reserve(&self, upto: Seq) -> Result<()> {
        if upto < self.sequencer.reserved.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut versions = self.versions.manifest.lock();
        let mut order = versions.order.clone();
        order.reserved = upto + 1 + RESERVE;
        self.record_order(&mut versions, order)
    }

    /// Applies a change of the order, durably.
    fn change_order(&self, change: impl FnOnce(&mut Order) -> Result<()>) -> Result<()> {
        self.start_writing(&mut self.sequencer.writer.lock())?;
        let mut versions = self.versions.manifest.lock();
        let mut order = versions.order.clone();
        change(&mut order)?;
        order.kept = self.sequencer.keep(&order, versions.log);
        self.record_order(&mut versions, order)
    }

    fn record_order(&self, versions: &mut Versions, order: Order) -> Result<()> {
        let mut edit = Edit {
            order: Some(order),
            ..Edit::default()
        };
        self.record(versions, &mut edit)
    }

    /// True when segments may be retained after the next flush.
    pub(super) fn is_log_kept(&self) -> bool {
        self.core.options.keep_log != KeepLog::default()
            || !self.versions.manifest.lock().order.holds.is_empty()
            || !self.sequencer.tails.holds().is_empty()
    }

    /// Removes the segments that the manifest no longer lists.
    pub(super) fn drop_segments(&self) {
        let (log, kept) = {
            let versions = self.versions.manifest.lock();
            let kept = versions.order.kept.iter().map(|kept| kept.number);
            (versions.log, kept.collect::<HashSet<u64>>())
        };
        let is_needed = |number: u64| number >= log || kept.contains(&number);
        let gone: Vec<u64> = {
            let mut closed = self.sequencer.log.closed.lock();
            let gone = closed.iter().map(|closed| closed.number);
            let gone = gone.filter(|number| !is_needed(*number)).collect();
            closed.retain(|closed| is_needed(closed.number));
            self.sequencer
                .log
                .segments
                .lock()
                .retain(|segment| segment.number >= log);
            gone
        };
        for number in gone {
            // If the removal fails, the next opening retries it.
            let _ = self
                .core
                .source
                .fs
                .remove(&log_path(&self.core.source.dir, number));
        }
    }
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
        match seq < oldest {
            true => Err(Error::PositionExpired {
                oldest: self.position_of(oldest),
            }),
            false => Ok(()),
        }
    }

    /// The changes of the order that an edit should include: reservations before the reserved numbers run out, and,
    /// with a flush, segments to release.
    pub(super) fn next_order(&self, versions: &Versions, flushed: Option<u64>) -> Option<Order> {
        let mut order = versions.order.clone();
        let given = self.given.load(Ordering::Acquire);
        if order.reserved < given + RESERVE / 2 {
            order.reserved = given + RESERVE;
        }
        if let Some(log) = flushed {
            order.kept = self.keep(&order, log);
        }
        (order != versions.order).then_some(order)
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

    /// The retained ones among the segments before `log`, which recovery does not need.
    pub(super) fn keep(&self, order: &Order, log: u64) -> Vec<ClosedSegment> {
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
            let holds = order.holds.values();
            let is_held = holds
                .map(|hold| (hold.position, hold.bytes))
                .chain(self.tails.holds())
                .any(|(position, most)| position < segment.last && bytes <= most);
            if bytes > last && !is_young && !is_held {
                break;
            }
            kept.push(*segment);
        }
        kept.reverse();
        kept
    }
}
