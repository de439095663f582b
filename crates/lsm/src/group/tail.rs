//! Following the commits: every written batch in order, from a position on, and then the later
//! ones.
//!
//! A tail reads only the log, including the segment being written, so it costs writers nothing,
//! however slow it is. It returns a batch once it is visible, not before. Writers notify the
//! group's signal then: it wakes waiting threads and calls listeners ([`Tail::listen`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Group;
use super::inner::Inner;
use super::order::check_position;
use super::poll::{POLL, Polls};
use super::sequencer::Sequencer;
use super::tails::Held;
use crate::batch::{TreeId, decode};
use crate::entry::{Kind, Position, Seq};
use crate::error::{Error, Result};
use crate::signal::{Listening, Wake};
use crate::version::{ClosedSegment, log_path};
use crate::wal::{Follower, LogFormat, Record};

/// The longest wait, a century: what is added to the present has to be a time.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The most log that is retained for an observer.
const OBSERVER_BYTES: u64 = 64 << 20;

/// A committed batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    position: Position,
    payload: Vec<u8>,
}

/// Visits an operation of a commit: tree, sequence number, kind, key, value. One that expires is
/// shown as it is stored ([`crate::entry::Timed`]).
pub type ShowOperation<'v> = dyn FnMut(TreeId, Seq, Kind, &[u8], &[u8]) + 'v;

impl Commit {
    /// The position behind it, from which a tail continues with the next commit.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The batch as the log has it.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Visits each operation, in the order of addition to the batch. Values of deletes are empty.
    pub fn each(&self, visit: &mut ShowOperation<'_>) {
        decode(&self.payload, |operation| {
            visit(
                operation.tree,
                operation.seq,
                operation.kind,
                operation.key,
                operation.value,
            )
        });
    }
}

/// Reads commits in order ([`Group::tail`]).
pub struct Tail {
    inner: Arc<Inner>,
    /// Everything up to it was returned.
    position: Seq,
    reader: Option<(u64, Follower)>,
    /// What the segment says last of when its records were appended.
    time: Option<u64>,
    held: Option<Arc<Held>>,
}

impl Group {
    /// Calls `wake` when this group is closed, and when it refuses writes after a failure, until
    /// the returned value is dropped. What `wake` may do: [`Wake`].
    pub fn listen_for_end(&self, wake: Arc<Wake>) -> Listening {
        self.inner.core.ends.listen(wake)
    }

    /// True when the group was closed or refuses writes.
    pub fn is_ended(&self) -> bool {
        self.inner.core.is_ended()
    }

    /// The commits behind `position`, in order: those still in the log, then later ones. Only
    /// writes that go through the log: ingested runs do not.
    ///
    /// The log is not retained for it, unless [`Options::keep_log`](crate::Options::keep_log) or
    /// [`Group::keep_log_for`] does so.
    ///
    /// # Errors
    /// [`Error::PositionExpired`] names the earliest position available; [`Error::OtherHistory`]
    /// for a position of another store, or of writes lost in a power cut; [`Error::NoLog`] where
    /// the log is the caller's.
    pub fn tail(&self, position: Position) -> Result<Tail> {
        self.inner.refresh()?;
        Tail::new(self.inner.clone(), position)
    }

    /// Calls `observe` with every later commit, in order, after it is visible, on a separate
    /// thread: a slow observer delays no writer. The log is retained for it, up to 64 MiB; when it
    /// falls further behind, it gets [`Error::PositionExpired`], and continues with the oldest
    /// commit available. Any other error is its last call. Observing ends when the observer is
    /// dropped, which waits for a running call, or the store is closed.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn observe(
        &self,
        mut observe: impl FnMut(std::result::Result<&Commit, &Error>) + Send + 'static,
    ) -> Result<Observer> {
        let mut tail = self.tail(self.position())?;
        tail.hold(OBSERVER_BYTES);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let watch = move || {
            while !stopped.load(Ordering::Acquire) {
                match tail.wait_or(Instant::now() + LONGEST, &stopped) {
                    Ok(Some(commit)) => observe(Ok(&commit)),
                    Ok(None) => {}
                    Err(Error::Closed) => return,
                    Err(error) => {
                        observe(Err(&error));
                        let Error::PositionExpired { oldest } = error else {
                            return;
                        };
                        tail.go_to(oldest.seq);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("esker-observer".to_string())
            .spawn(watch);
        let thread = thread.map_err(|e| Error::io(self.dir(), "start a thread for", e))?;
        Ok(Observer {
            stop,
            inner: self.inner.clone(),
            thread: Some(thread),
        })
    }
}

/// Keeps a function subscribed to commits ([`Group::observe`]).
pub struct Observer {
    stop: Arc<AtomicBool>,
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.inner.core.commits.notify();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// The location of a commit.
pub(super) struct Place {
    pub(super) segment: u64,
    /// Bytes written to the segment, and the last write in them.
    pub(super) end: u64,
    pub(super) last: Seq,
}

impl Sequencer {
    /// The segment with the first write behind `position`; `None` when there is no such write.
    fn place_after(&self, position: Seq) -> Result<Option<Place>> {
        self.check_kept(position)?;
        let closed = self.log.closed.lock();
        // A segment without writes may be gone already.
        let has_more = |closed: &&ClosedSegment| closed.last > position.max(closed.after);
        if let Some(closed) = closed.iter().find(has_more) {
            return Ok(Some(Place {
                segment: closed.number,
                end: closed.len,
                last: closed.last,
            }));
        }
        let live = self.log.segments.lock();
        Ok(live.last().and_then(|live| {
            // The number is read first: the length then belongs to a log that has the write.
            let last = live.last.load(Ordering::Acquire);
            let log = live.log.as_ref().filter(|_| last > position)?;
            Some(Place {
                segment: live.number,
                end: log.len(),
                last,
            })
        }))
    }
}

/// True when the segment is no longer part of the log.
fn is_gone(inner: &Inner, number: u64) -> Result<bool> {
    inner.refresh()?;
    let closed = inner.sequencer.log.closed.lock();
    let live = inner.sequencer.log.segments.lock();
    let is_there = closed.iter().any(|closed| closed.number == number)
        || live.iter().any(|live| live.number == number);
    Ok(!is_there)
}

impl Tail {
    pub(super) fn new(inner: Arc<Inner>, position: Position) -> Result<Tail> {
        inner.core.options.needs_log("a tail of the log")?;
        check_position(&inner.sequencer, &inner.versions, position)?;
        Ok(Tail {
            inner,
            position: position.seq,
            reader: None,
            time: None,
            held: None,
        })
    }

    /// Everything up to this position was returned.
    pub fn position(&self) -> Position {
        self.inner.sequencer.position_of(self.position)
    }

    /// When the last commit that was returned was written, in milliseconds since 1970, to the
    /// second; `None` where the log does not say: it does for what was written while there were
    /// [consumers](Group::keep_log_for).
    pub fn time(&self) -> Option<u64> {
        self.time
    }

    /// True if there are visible commits that were not returned.
    pub fn is_behind(&self) -> bool {
        self.position < self.inner.sequencer.visible.load(Ordering::SeqCst)
    }

    /// Retains the log for this tail while it lives, up to `bytes`.
    pub fn hold(&mut self, bytes: u64) {
        let tails = &self.inner.sequencer.tails;
        self.held = Some(tails.hold(self.position, bytes));
    }

    fn go_to(&mut self, position: Seq) {
        self.position = position;
        if let Some(held) = &self.held {
            held.position.store(position, Ordering::Release);
        }
    }

    /// The next commit, if it is visible already.
    ///
    /// # Errors
    /// [`Error::PositionExpired`]: the next commit is no longer in the log, and the tail keeps its
    /// position. Damage of the log, and read errors.
    #[allow(
        clippy::should_implement_trait,
        reason = "it can be called again after `None`"
    )]
    pub fn next(&mut self) -> Result<Option<Commit>> {
        loop {
            let mut visible = self.inner.sequencer.visible.load(Ordering::SeqCst);
            if self.position >= visible && self.inner.reader.is_some() {
                self.inner.refresh()?;
                visible = self.inner.sequencer.visible.load(Ordering::SeqCst);
            }
            if self.position >= visible {
                return Ok(None);
            }
            let Some(place) = self.inner.sequencer.place_after(self.position)? else {
                // Numbers without a commit.
                self.go_to(visible);
                continue;
            };
            let mut reader = match self.reader.take() {
                Some((segment, reader)) if segment == place.segment => reader,
                _ => {
                    self.time = None;
                    let path = log_path(&self.inner.core.source.dir, place.segment);
                    let fs = &*self.inner.core.source.fs;
                    match Follower::open(fs, &path, LogFormat::WAL, place.segment, 0) {
                        // The segment was removed meanwhile: the position has expired.
                        Err(Error::Io { source, .. })
                            if source.kind() == std::io::ErrorKind::NotFound
                                && is_gone(&self.inner, place.segment)? =>
                        {
                            continue;
                        }
                        opened => opened?,
                    }
                }
            };
            let (mut last, offset) = (0, reader.offset());
            let time = &mut self.time;
            let read = reader.next(place.end, |record| {
                let payload = match record {
                    Record::Data { payload, .. } => payload,
                    Record::Time { millis } => {
                        *time = Some(millis).filter(|millis| *millis > 0);
                        return Ok(Some(None));
                    }
                    _ => return Ok(Some(None)),
                };
                last = decode(payload, |_| ()).ok_or_else(|| {
                    let path = log_path(&self.inner.core.source.dir, place.segment);
                    Error::corruption(&path, offset, "malformed batch")
                })?;
                let new = || Some(payload.to_vec()).filter(|_| last > self.position);
                Ok((last <= visible).then(new))
            });
            let read = read?;
            let is_through = reader.offset() >= place.end;
            self.reader = Some((place.segment, reader));
            match read {
                // The last numbers have no commit.
                None if is_through => self.go_to(place.last.min(visible)),
                None => return Ok(None),
                Some(None) => {}
                Some(Some(payload)) => {
                    self.go_to(last);
                    return Ok(Some(Commit {
                        position: self.inner.sequencer.position_of(last),
                        payload,
                    }));
                }
            }
        }
    }

    /// The next commit; waits for it for `most` at most.
    ///
    /// # Errors
    /// As [`Tail::next`]; when everything was returned, [`Error::Closed`] if the store was closed,
    /// and [`Error::Poisoned`] if it refuses writes after a failure.
    pub fn wait(&mut self, most: Duration) -> Result<Option<Commit>> {
        let until = Instant::now() + most.min(LONGEST);
        self.wait_or(until, &AtomicBool::new(false))
    }

    /// The next commit; waits for it until the time, or until another thread stops the tail
    /// and notifies the group's signal.
    fn wait_or(&mut self, until: Instant, stop: &AtomicBool) -> Result<Option<Commit>> {
        let inner = self.inner.clone();
        let core = &inner.core;
        loop {
            if let Some(commit) = self.next()? {
                return Ok(Some(commit));
            }
            let is_there = || inner.sequencer.visible.load(Ordering::SeqCst) > self.position;
            let is_stopped = || stop.load(Ordering::SeqCst);
            // A reader beside the writer has to poll.
            let look = inner.reader.as_ref().map(|_| Instant::now() + POLL);
            let wake = look.map_or(until, |look| look.min(until));
            core.commits
                .wait_until(wake, || is_there() || core.is_ended() || is_stopped());
            if let Some(end) = core.end().filter(|_| !is_there()) {
                return Err(end);
            }
            if is_stopped() || Instant::now() >= until {
                return self.next();
            }
        }
    }

    /// Calls `wake` whenever there may be something new until the returned value is dropped: after
    /// each commit becomes visible, after trees have changed, after a read error of a read-only
    /// group, when the group is closed, and when it refuses writes after a failure. After `listen`,
    /// and after each call, [`next`](Tail::next) is to be called until it returns nothing. What
    /// `wake` may do, and what holds while this is dropped:
    /// [`Signal::listen`](crate::Signal::listen).
    ///
    /// A writing group needs no thread for it. A read-only one polls in one thread for all who
    /// listen.
    ///
    /// # Errors
    /// That thread cannot be started.
    pub fn listen(&self, wake: Arc<Wake>) -> Result<Listening> {
        let listening = self.inner.core.commits.listen(wake);
        match self.inner.reader {
            Some(_) => Ok(listening.keeping(Polls::new(&self.inner)?)),
            None => Ok(listening),
        }
    }

    /// True when the group was closed or refuses writes: when [`next`](Tail::next) then returns
    /// nothing, nothing more comes.
    pub fn is_ended(&self) -> bool {
        self.inner.core.is_ended()
    }
}
