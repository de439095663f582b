//! Syncs of the log, shared by all writers (group commit).
//!
//! Every thread that needs the log durable up to some write waits in one queue. The first thread
//! leads: without a lock, it syncs everything appended when the sync begins. Meanwhile the next
//! threads gather. When the sync has ended the leader passes the lead to a thread that is not
//! covered yet, whose sync begins at once, and only then wakes those that are: so the disk is never
//! idle while a thread waits, and each sync is shared by all that arrived during the previous one.
//!
//! A failed sync poisons the group and fails all threads in the queue: it is unknown whether their
//! writes are on disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::log::{CHECK, LEAD, Segment, WAIT, Waiter};
use super::sequencer::{Sequencer, Writer};
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::stats::Counters;
use crate::version::log_path;
use crate::wal::{AppendError, LogFormat, LogWriter};

/// A segment and its file.
fn with_log(segment: &Arc<Segment>) -> Option<(&Arc<Segment>, &LogWriter)> {
    Some((segment, segment.log.as_ref()?))
}

impl Sequencer {
    /// Returns when the log is durable up to `upto`, and no append that was rolled back can
    /// reappear behind it.
    ///
    /// # Errors
    /// The error of the sync in the thread that led it; [`Error::Poisoned`] in the others.
    pub(super) fn wait_durable(&self, upto: Seq) -> Result<()> {
        while !self.log.covers(upto) {
            let turn = self.core.check_poison().and_then(|()| self.take_turn(upto));
            if let Err(error) = turn {
                return self.refuse(upto, error);
            }
        }
        Ok(())
    }

    /// Settles a write whose sync, or a later one, has failed: either it is durable after all, or
    /// it is refused, and so is everything synced later.
    fn refuse(&self, upto: Seq, error: Error) -> Result<()> {
        let mut queue = self.log.queue.lock();
        if queue.granted.max(self.log.synced()) >= upto {
            return Ok(());
        }
        queue.refused = true;
        Err(error)
    }

    /// Makes durable what was appended before this call, and segments that are still empty.
    pub(super) fn sync_all(&self) -> Result<()> {
        self.core.check_poison()?;
        // No other thread's sync covers this, so the turn ends with its own sync, or a failure.
        self.take_turn(Seq::MAX)?;
        self.core.check_poison()
    }

    /// Leads a sync, or waits for the current one. Afterwards `upto` may still not be covered.
    fn take_turn(&self, upto: Seq) -> Result<()> {
        let mut queue = self.log.queue.lock();
        // The previous leader may just have covered this thread.
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
            && waiter.wait() == CHECK
        {
            return Ok(());
        }
        let synced = self.sync_segments();
        self.end_turn();
        synced
    }

    /// Passes the lead on, and wakes the threads that are covered.
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
            .chain(done.into_iter().map(|waiter| (waiter, CHECK)))
        {
            waiter.signal.store(what, Ordering::Release);
            waiter.thread.unpark();
        }
    }

    /// Syncs the segments that are not durable.
    fn sync_segments(&self) -> Result<()> {
        // The number is read first: the lengths then belong to a log that has the write. The count
        // of rollbacks is read before the sync: an append that is rolled back beside it needs
        // another sync.
        let taken_back = self.log.taken_back.load(Ordering::Acquire);
        let segments: Vec<Arc<Segment>> = self.log.segments.lock().clone();
        let last = segments.last();
        let last = last.map_or(0, |segment| segment.last.load(Ordering::Acquire));
        for (live, log) in segments.iter().filter_map(with_log) {
            if log.is_durable() && live.named.load(Ordering::Acquire) {
                continue;
            }
            let result = log.sync().and_then(|()| self.name_segment(live));
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
        // For reader processes, before any write is acknowledged. If it fails they see the writes
        // with the next marker, and a log damaged by the failure reports it at the next append.
        if let Some((_, log)) = segments.last().and_then(with_log) {
            let _ = log.append_marker();
        }
        self.log.note_synced(last);
        self.log
            .taken_back_durably
            .fetch_max(taken_back, Ordering::AcqRel);
        Ok(())
    }

    /// Makes the files' lengths durable, because a seal covers them: sync markers behind the last
    /// records, and the truncation of one that did not fit. None are written afterwards.
    pub(super) fn sync_marks(&self) -> Result<()> {
        let segments: Vec<Arc<Segment>> = self.log.segments.lock().clone();
        for (_, log) in segments.iter().filter_map(with_log) {
            log.seal();
            if let Err(error) = log.sync() {
                self.core.poison_with(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes everything visible durable, including writes found at opening.
    pub(super) fn sync(&self) -> Result<()> {
        self.core.check_poison()?;
        self.sync_found(&mut self.writer.lock())?;
        self.sync_all()
    }

    /// Makes the writes found at opening durable: a process that was killed, or whose sync failed,
    /// may have left them in the system's cache.
    pub(super) fn sync_found(&self, writer: &mut Writer) -> Result<()> {
        for path in &writer.unsynced {
            if let Err(error) = self.core.source.fs.sync(path) {
                let error = Error::io(path, "sync", error);
                // As after any failed sync, a later success proves nothing.
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

    /// The error for a failed append. Unless it was rolled back and the disk is full, the state on
    /// disk is unknown.
    pub(super) fn not_appended(&self, failed: AppendError) -> Error {
        self.log.note_taken_back();
        if !(failed.rolled_back && failed.error.is_disk_full()) {
            self.core.poison_with(&failed.error);
        }
        failed.error
    }

    /// `last` is the last write in the log so far.
    pub(super) fn create_segment(
        &self,
        number: u64,
        previous: Option<(u64, u64)>,
        last: Seq,
    ) -> Result<Arc<Segment>> {
        let path: PathBuf = log_path(&self.core.source.dir, number);
        let fs = &*self.core.source.fs;
        let log = if self.core.has_external_log() {
            None
        } else {
            Some(LogWriter::create(
                fs,
                &path,
                LogFormat::WAL,
                number,
                previous,
            )?)
        };
        Ok(Arc::new(Segment {
            number,
            log,
            after: last,
            last: AtomicU64::new(last),
            named: AtomicBool::new(false),
        }))
    }
}
