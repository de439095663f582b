//! The log as the group writes it: its segments, and making them durable for everybody at once.
//!
//! Whoever needs the log durable up to some write waits in one queue. The first to come leads: it syncs, without a
//! lock, whatever was appended when the sync begins, for all who have appended by then. Meanwhile the next group
//! gathers. When the sync has ended the leader hands the lead to one who is not covered yet, whose sync begins at
//! once, and only then wakes those who are: so the disk is never idle while somebody waits, and each sync is shared
//! by all who came during the one before.
//!
//! A failed sync poisons the group, and everybody in the queue fails: whether what they wrote is on disk is not known.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;

use parking_lot::Mutex;

use super::sequencer::{Sequencer, Writer};
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::stats::Counters;
use crate::version::{ClosedSegment, log_path};
use crate::wal::{AppendError, LogKind, LogWriter};

/// A log segment of this handle.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) log: LogWriter,
    /// The last write before its first.
    pub(super) after: Seq,
    /// The last write that was appended to it, or to the ones before it.
    pub(super) last: AtomicU64,
    /// Whether the file's name is durable.
    pub(super) named: AtomicBool,
}

/// The segments, and how far they are durable.
pub(super) struct Log {
    /// Those of generations that are not on disk yet, oldest first.
    pub(super) segments: Mutex<Vec<Arc<Segment>>>,
    /// All that are not written to any more and still there, oldest first, of earlier handles and flushed ones too.
    /// Locked before `segments` by who takes both.
    pub(super) closed: Mutex<Vec<ClosedSegment>>,
    /// The last write that is known to be durable.
    synced: AtomicU64,
    /// Appends that were taken back.
    taken_back: AtomicU64,
    /// How many of them no power cut can bring back any more.
    taken_back_durably: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Somebody syncs, or was signalled to.
    led: bool,
    /// A writer got the answer that its write is not durable: from then on nothing more is acknowledged.
    refused: bool,
    /// The last write that may be acknowledged.
    granted: Seq,
    waiting: Vec<Arc<Waiter>>,
}

struct Waiter {
    upto: Seq,
    thread: Thread,
    signal: AtomicU8,
}

/// What a waiter is to do: nothing yet, to look again, to lead.
const WAIT: u8 = 0;
const LOOK: u8 = 1;
const LEAD: u8 = 2;

impl Waiter {
    fn wait(&self) -> u8 {
        loop {
            match self.signal.load(Ordering::Acquire) {
                WAIT => std::thread::park(),
                signal => return signal,
            }
        }
    }
}

impl Log {
    /// `synced` is the last write that is known to be durable.
    pub(super) fn new(synced: Seq, closed: Vec<ClosedSegment>) -> Log {
        Log {
            segments: Mutex::default(),
            closed: Mutex::new(closed),
            synced: AtomicU64::new(synced),
            taken_back: AtomicU64::new(0),
            taken_back_durably: AtomicU64::new(0),
            queue: Mutex::default(),
        }
    }

    /// The last write that is known to be durable.
    #[inline]
    pub(super) fn synced(&self) -> Seq {
        self.synced.load(Ordering::Acquire)
    }

    /// Notes that everything up to `last` is durable.
    pub(super) fn note_synced(&self, last: Seq) {
        self.synced.fetch_max(last, Ordering::AcqRel);
    }

    /// Notes that an append was taken back.
    pub(super) fn note_taken_back(&self) {
        self.taken_back.fetch_add(1, Ordering::AcqRel);
    }

    fn covers(&self, upto: Seq) -> bool {
        self.synced() >= upto
            && self.taken_back_durably.load(Ordering::Acquire)
                == self.taken_back.load(Ordering::Acquire)
    }
}

impl Sequencer {
    /// Returns when the log is durable up to `upto`, and nothing that was taken back can come back behind it.
    ///
    /// # Errors
    /// Why the sync failed, if this thread was the one to make it; [`Error::Poisoned`] to the others.
    pub(super) fn wait_durable(&self, upto: Seq) -> Result<()> {
        while !self.log.covers(upto) {
            let turn = self.core.check_poison().and_then(|()| self.take_turn(upto));
            if let Err(error) = turn {
                return self.refuse(upto, error);
            }
        }
        Ok(())
    }

    /// Decides on a write whose sync, or one behind it, has failed: it is durable all the same, or it is not, and neither is
    /// anything that is synced later.
    fn refuse(&self, upto: Seq, error: Error) -> Result<()> {
        let mut queue = self.log.queue.lock();
        if queue.granted.max(self.log.synced()) >= upto {
            return Ok(());
        }
        queue.refused = true;
        Err(error)
    }

    /// Makes durable what was appended before this call, and segments that have nothing in them yet.
    pub(super) fn sync_all(&self) -> Result<()> {
        self.core.check_poison()?;
        // Nobody else's sync covers this, so the turn ends with one of its own, or a failure.
        self.take_turn(Seq::MAX)?;
        self.core.check_poison()
    }

    /// Syncs what was appended, or waits for who does so already. Afterwards `upto` may still not be covered.
    fn take_turn(&self, upto: Seq) -> Result<()> {
        let mut queue = self.log.queue.lock();
        // Who led before may have synced for this one just now.
        if self.log.covers(upto) {
            return Ok(());
        }
        let led = std::mem::replace(&mut queue.led, true);
        let waiter = led.then(|| {
            let waiter = Arc::new(Waiter {
                upto,
                thread: std::thread::current(),
                signal: AtomicU8::new(WAIT),
            });
            queue.waiting.push(waiter.clone());
            waiter
        });
        drop(queue);
        if let Some(waiter) = waiter
            && waiter.wait() == LOOK
        {
            return Ok(());
        }
        let synced = self.sync_segments();
        self.end_turn();
        synced
    }

    /// Hands the lead on, and wakes those who need not wait any more.
    fn end_turn(&self) {
        let mut queue = self.log.queue.lock();
        let failed = self.core.is_poisoned();
        let (done, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut queue.waiting)
            .into_iter()
            .partition(|waiter| failed || self.log.covers(waiter.upto));
        let mut waiting = waiting.into_iter();
        let next = waiting.next();
        queue.led = next.is_some();
        queue.waiting.extend(waiting);
        drop(queue);
        for (waiter, what) in next
            .map(|waiter| (waiter, LEAD))
            .into_iter()
            .chain(done.into_iter().map(|waiter| (waiter, LOOK)))
        {
            waiter.signal.store(what, Ordering::Release);
            waiter.thread.unpark();
        }
    }

    /// Syncs the segments that are not durable.
    fn sync_segments(&self) -> Result<()> {
        // The number first: the lengths are then those of a log that has the write. And before the sync, what was taken
        // back: an append that is taken back beside it needs another.
        let taken_back = self.log.taken_back.load(Ordering::Acquire);
        let segments: Vec<Arc<Segment>> = self.log.segments.lock().clone();
        let last = segments.last();
        let last = last.map_or(0, |segment| segment.last.load(Ordering::Acquire));
        for live in &segments {
            if live.log.is_durable() && live.named.load(Ordering::Acquire) {
                continue;
            }
            let result = live.log.sync().and_then(|()| self.name_segment(live));
            if let Err(error) = result {
                self.core.poison_with(&error);
                return Err(error);
            }
            Counters::add(&self.core.counters.log_syncs, 1);
        }
        let mut queue = self.log.queue.lock();
        if queue.refused {
            drop(queue);
            return self.core.check_poison();
        }
        queue.granted = queue.granted.max(last);
        drop(queue);
        // For readers beside this process, before anybody is acknowledged. Without they see it with the next mark, and a log
        // that this has broken says so with the next append.
        if let Some(live) = segments.last() {
            let _ = live.log.mark();
        }
        self.log.note_synced(last);
        self.log
            .taken_back_durably
            .fetch_max(taken_back, Ordering::AcqRel);
        Ok(())
    }

    /// Makes durable what is behind the last records, too, as a seal tells of it: marks, of which there are no more from here on.
    pub(super) fn sync_marks(&self) -> Result<()> {
        let segments: Vec<Arc<Segment>> = self.log.segments.lock().clone();
        for live in &segments {
            live.log.seal();
            if live.log.synced_len() < live.log.len()
                && let Err(error) = live.log.sync()
            {
                self.core.poison_with(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes durable everything that readers see, also what was found at opening.
    pub(super) fn sync(&self) -> Result<()> {
        self.core.check_poison()?;
        self.sync_found(&mut self.writer.lock())?;
        self.sync_all()
    }

    /// Makes durable what was found at opening: a process that was killed, or whose sync failed, may have left it in
    /// the system's cache.
    pub(super) fn sync_found(&self, writer: &mut Writer) -> Result<()> {
        for path in &writer.unsynced {
            if let Err(error) = self.core.source.fs.sync(path) {
                let error = Error::io(path, "sync", error);
                // As with any other sync, a next one that succeeds proves nothing.
                self.core.poison_with(&error);
                return Err(error);
            }
        }
        if !writer.unsynced.is_empty() {
            self.sync_names()?;
            writer.unsynced.clear();
        }
        Ok(())
    }

    /// Makes the names in the folder durable.
    pub(super) fn sync_names(&self) -> Result<()> {
        let dir = &self.core.source.dir;
        let synced = self.core.source.fs.sync_dir(dir);
        synced.map_err(|e| Error::io(dir, "sync", e))
    }

    /// Makes a segment's name durable.
    pub(super) fn name_segment(&self, segment: &Segment) -> Result<()> {
        if !segment.named.load(Ordering::Acquire) {
            self.sync_names()?;
            segment.named.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// What a failed append comes to. Where it was not taken back, or not for want of room, what is on disk is not known.
    pub(super) fn not_appended(&self, failed: AppendError) -> Error {
        self.log.note_taken_back();
        if !(failed.rolled_back && failed.error.is_disk_full()) {
            self.core.poison_with(&failed.error);
        }
        failed.error
    }

    /// `last` is the last write that is in the log so far.
    pub(super) fn create_segment(
        &self,
        number: u64,
        previous: Option<(u64, u64)>,
        last: Seq,
    ) -> Result<Arc<Segment>> {
        let path: PathBuf = log_path(&self.core.source.dir, number);
        let log = LogWriter::create(&*self.core.source.fs, &path, LogKind::Wal, number, previous)?;
        Ok(Arc::new(Segment {
            number,
            log,
            after: last,
            last: AtomicU64::new(last),
            named: AtomicBool::new(false),
        }))
    }
}
