//! Followers return the publications after a sequence number, first from the lists, then from the
//! log.
//!
//! A follower stores nothing, and works beside the process that publishes. Its position is the
//! number of the last publication that it returned: a program that stores this number and resumes
//! there misses nothing and receives nothing twice. If the log no longer reaches back to the
//! position, the follower reads the lists again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::changes::{Listening, Wake};
use esker::extension::{Commit, Kind, Tail, Timed};
use esker::{Error, Result, Seq};
use esker_coding::Misplaced;

use crate::broker::{Broker, Inner};
use crate::deliver::MAX_QUEUED;
use crate::forms::element::{Element, Elements, NEVER, StoredPublication, damaged};
use crate::forms::keys::{List, ListKey};
use crate::forms::message::{Notification, Subscription, bad_input};
use crate::forms::topic::Topic;
use crate::matching::PublicationParts;
use crate::search::prepared::PreparedSubscription;

/// How often a follower beside the writer reads the log while it has publications to return.
const LOG_INTERVAL: Duration = Duration::from_millis(5);

/// The shortest time between two checks whether the interval has ended.
const MIN_END_CHECK: Duration = Duration::from_millis(1);

/// The longest time between them: the clock may be set forward while a follower waits.
const MAX_END_CHECK: Duration = Duration::from_secs(1);

/// Returns publications in the order of their numbers ([`Broker::follow`]).
pub struct Follow {
    inner: Arc<Inner>,
    prepared: PreparedSubscription,
    tail: Tail,
    /// Publications to return, in the order of their numbers.
    pending: VecDeque<Notification>,
    /// An upper bound on the publications in `pending` that came from the log.
    from_log: usize,
    /// The time at which the follower last read the log.
    log_read: Instant,
    /// True if the follower has read the whole log after its interval ended.
    is_complete: bool,
    /// Publications up to this number were returned, are in `pending`, or do not match.
    seen: Seq,
}

impl Broker {
    /// Follows the publications for a subscription without storing the subscription: from the
    /// publication after number `after` on, or, without `after`, from the first in the
    /// subscription's interval. It does not return publications that are withdrawn before it
    /// reaches them, unless it is more than 1,024 matching publications behind.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the subscription depends on other data: a self-join, or a
    /// subscription to changes; also any read error.
    pub fn follow(&self, subscription: &Subscription, after: Option<Seq>) -> Result<Follow> {
        let inner = &self.inner;
        if subscription.is_self_join || subscription.change.is_some() {
            return bad_input(
                "a subscription that is followed without being stored can neither be a self-join nor ask for changes of a number",
            );
        }
        let prepared = inner.prepare(subscription)?;
        let tail = inner.store.tail(inner.store.position())?;
        let mut follow = Follow {
            inner: inner.clone(),
            prepared,
            tail,
            pending: VecDeque::new(),
            from_log: 0,
            log_read: Instant::now(),
            is_complete: false,
            // No publication has the number 0.
            seen: after.unwrap_or(0),
        };
        follow.catch_up()?;
        Ok(follow)
    }
}

impl Follow {
    /// The next publication, or `None` if there is none yet.
    ///
    /// # Errors
    /// Any read error; the next call tries again. If publications of a commit are malformed,
    /// [`Error::Damaged`] reports the first of them, once. The next call returns the readable
    /// publications of the commit and continues with the next commit.
    #[allow(
        clippy::should_implement_trait,
        reason = "it can be called again after `None`"
    )]
    pub fn next(&mut self) -> Result<Option<Notification>> {
        loop {
            let log = self.read_log()?;
            let first = self.take_first();
            if first.is_some() || log == LogRead::ToEnd {
                return Ok(first);
            }
        }
    }

    /// Waits up to `timeout` for the next publication. Returns `None` after the timeout, or if the
    /// subscription's interval has ended ([`Follow::is_over`]).
    ///
    /// # Errors
    /// The errors of [`Follow::next`]; after the last publication, [`Error::Closed`] if the store
    /// was closed, and [`Error::Poisoned`] if it refuses writes after a failure.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Notification>> {
        // `None` if the clock cannot express the time: waits forever.
        let until = Instant::now().checked_add(timeout);
        loop {
            if let Some(next) = self.next()? {
                return Ok(Some(next));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if self.is_over() || left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let wait = left.unwrap_or(Duration::MAX).min(self.end_wait());
            let read = self.tail.wait(wait);
            self.take_read(read.map_err(Error::from))?;
        }
    }

    /// How long the follower may wait before it checks again whether its interval has ended.
    fn end_wait(&self) -> Duration {
        if self.prepared.to == NEVER {
            return Duration::MAX;
        }
        let after_end = self.prepared.to.saturating_add(1);
        let wait = self.inner.duration_until(after_end);
        wait.clamp(MIN_END_CHECK, MAX_END_CHECK)
    }

    /// Calls `wake` whenever there may be a publication, until the returned value is dropped: after
    /// each commit of the store, when the store is closed, and when it refuses writes after a
    /// failure, but not when the subscription's interval ends. After `listen`, and after each call,
    /// call [`Follow::next`] until it returns `None`.
    /// `wake` must not block and not use the store ([`Wake`]).
    ///
    /// # Errors
    /// In a store that is open for reading: the thread that polls the writer's files cannot be
    /// started.
    pub fn listen(&self, wake: Arc<Wake>) -> Result<Listening> {
        Ok(self.tail.listen(wake)?)
    }

    /// True if the store was closed or refuses writes. If [`Follow::next`] then returns `None`, no
    /// more publications come.
    pub fn is_ended(&self) -> bool {
        self.tail.is_ended()
    }

    /// Every matching publication up to this number was returned, has expired or was withdrawn: a
    /// new follower resumes after it.
    pub fn seen(&self) -> Seq {
        match self.pending.front() {
            Some(next) => self.seen.min(next.seq - 1),
            None => self.seen,
        }
    }

    /// True if the subscription's interval has ended and the follower has returned every
    /// publication in it, except those that are published later with a time in the past. Beside the
    /// writing process a publication whose write is not acknowledged yet may follow, too. Only
    /// `next` and `wait` update this.
    pub fn is_over(&self) -> bool {
        self.pending.is_empty() && self.is_complete
    }

    /// Takes the first publication in `pending` that has not expired.
    fn take_first(&mut self) -> Option<Notification> {
        while let Some(next) = self.pending.pop_front() {
            self.from_log = self.from_log.min(self.pending.len());
            if !self.inner.has_expired(&next) {
                return Some(next);
            }
        }
        None
    }

    /// Reads the log up to now, even if `pending` is not empty: the log may withdraw publications
    /// in it. Stops early if `pending` is full, or if the log was read just before.
    fn read_log(&mut self) -> Result<LogRead> {
        // Beside the writer each read costs calls to the file system.
        let is_early = self.inner.store.is_reader() && self.log_read.elapsed() < LOG_INTERVAL;
        if is_early && !self.pending.is_empty() {
            return Ok(LogRead::Partly);
        }
        self.log_read = Instant::now();
        let store = &self.inner.store;
        let has_ended = self.inner.now() > self.prepared.to;
        if has_ended && !self.is_complete && !store.is_reader() && !store.is_ended() {
            // A publication gets its time before it is visible: one that is not acknowledged yet
            // may belong to the interval.
            self.inner.acknowledged_snapshot()?;
        }
        let mut target = None;
        while self.from_log < MAX_QUEUED {
            let read = self.tail.next();
            let has_more = self.take_read(read.map_err(Error::from))?;
            // Taken after the first read, which refreshes a store beside the writer. Later commits
            // are left to the next call, so that a busy log cannot hold this one.
            let target = target.get_or_insert_with(|| self.inner.store.position().seq);
            if !has_more || self.tail.position().seq >= *target {
                self.is_complete = has_ended;
                return Ok(LogRead::ToEnd);
            }
        }
        Ok(LogRead::Partly)
    }

    /// Processes the result of reading the log. Returns false if it has no commit.
    fn take_read(&mut self, read: Result<Option<Commit>>) -> Result<bool> {
        match read {
            Ok(Some(commit)) => self.take(&commit).map(|()| true),
            Ok(None) => Ok(false),
            Err(Error::PositionExpired { .. }) => {
                // The missing part of the log may have withdrawn publications in `pending`.
                self.seen = self.seen();
                self.pending.clear();
                self.from_log = 0;
                let tail = self.inner.store.tail(self.inner.store.position())?;
                // Before the tail is replaced: if the lists cannot be read, the next call reads
                // them.
                self.catch_up()?;
                self.tail = tail;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the publications after `seen` from the lists.
    fn catch_up(&mut self) -> Result<()> {
        // The tail began before the snapshot, so every publication is in one of them; those in both
        // are recognised by their numbers.
        let snapshot = self.inner.store.snapshot();
        let prepared = PreparedSubscription {
            made_at: self.inner.now(),
            ..self.prepared.clone()
        };
        let view = self.inner.view(&snapshot)?;
        let past = (self.inner).publications_after(&view, &prepared, self.seen)?;
        self.pending.extend(past);
        self.seen = self.seen.max(snapshot.seq());
        Ok(())
    }

    /// Processes a commit.
    fn take(&mut self, commit: &Commit) -> Result<()> {
        // The tail has passed this commit and does not return it again: every readable publication
        // is taken now, and the first error is reported.
        let mut failed = None;
        commit.each(&mut |tree, _, kind, key, value| {
            if tree != self.inner.trees.publications || kind != Kind::Timed {
                return;
            }
            if let Err(error) = self.take_operand(key, value) {
                failed.get_or_insert(error);
            }
        });
        debug_assert!(self.pending.back().is_none_or(|last| last.seq <= self.seen));
        self.from_log = self.from_log.min(self.pending.len());
        failed.map_or(Ok(()), Err)
    }

    /// Processes an operand of a commit.
    fn take_operand(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        // The engine has checked the form of a timed operand.
        let timed = Timed::parse(value).ok_or_else(|| Misplaced::here())?;
        match self.log_event(key, timed.value)? {
            Some(LogEvent::Publication(new)) => {
                debug_assert!(self.pending.back().is_none_or(|last| last.seq < new.seq));
                self.pending.push_back(new);
                self.from_log += 1;
            }
            Some(LogEvent::Retraction(seq)) => self.pending.retain(|pending| pending.seq != seq),
            None => {}
        }
        Ok(())
    }

    /// Decodes an operand of the list at `key`: a new publication that matches, or a withdrawal;
    /// `None` for a publication that does not match or is not new. Moves `seen` on to a new one.
    fn log_event(&mut self, key: &[u8], operand: &[u8]) -> Result<Option<LogEvent>> {
        let list = ListKey::parse(key)?;
        if list.list != List::Publications {
            return Ok(None);
        }
        let element = Elements::of(operand).next().transpose()?;
        let raw = element.ok_or_else(|| damaged("an operand of a list has no element"))?;
        let publication = match raw.decode()? {
            Element::Publication(publication) => publication,
            Element::Retracted { publication, .. } => {
                return Ok(Some(LogEvent::Retraction(publication)));
            }
            Element::Subscription(_) | Element::Ended { .. } => {
                return Err(damaged(
                    "a list of publications has an element of subscriptions",
                ));
            }
        };
        // A publication in several cells is written several times.
        if raw.seq <= self.seen {
            return Ok(None);
        }
        self.seen = raw.seq;
        let topic = list.topic()?;
        if !self.matches(&topic, &publication)? {
            return Ok(None);
        }
        let new = Notification::of(&publication, raw.seq, topic);
        Ok((!self.inner.has_expired(&new)).then_some(LogEvent::Publication(new)))
    }

    /// True if the subscription receives a publication, provided that it has not expired meanwhile.
    fn matches(&self, topic: &Topic, publication: &StoredPublication<'_>) -> Result<bool> {
        let cache = &self.inner.match_cache;
        let place = cache.extent(&publication.place)?;
        let parts = PublicationParts {
            time: publication.time,
            place: &place,
            body: publication.body,
        };
        // No subscription receives a publication that expires at or before its own time.
        Ok(self.prepared.topics.matches(topic)
            && publication.is_alive(publication.time)
            && cache.admits(&self.prepared.parts(), &parts)?)
    }
}

/// How far a call has read the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogRead {
    /// Up to the last commit when the call began.
    ToEnd,
    Partly,
}

/// The content of an operand in the log.
enum LogEvent {
    Publication(Notification),
    Retraction(Seq),
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
