//! The handle of a group: what can be done with it, each a call of an operation; opening, threads
//! and closing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::bulk::{rewrite_table, supersede};
use super::close::{begin_closing, finish, give_up};
use super::commit::{Complete, acknowledge, append};
use super::compact::{compact, compact_due, drop_obsolete};
use super::failures::JobFailure;
use super::flush::flush_all;
use super::inner::Inner;
use super::jobs::{EndedJob, RunningJob};
use super::ticket::Ticket;
use super::trees::{TreeChange, change, configure_tree, create_trees, drop_trees, rename_trees};
use super::{bulk, install, open, report, threads};
use crate::batch::{Batch, TreeId};
use crate::budget::{Budget, MemoryUse};
use crate::cache::BlockCache;
use crate::compaction::job::WriteRun;
use crate::cost::Cost;
use crate::entry::{Position, Seq, Time};
use crate::error::Result;
use crate::options::{Durability, Options};
use crate::read::Snapshot;
use crate::stats::Stats;
use crate::table::TableMeta;
use crate::version::{Edit, TableSource, TreeProvider};

/// An open tree group. Shared by reference between any number of threads; closed when dropped.
pub struct Group {
    pub(super) inner: Arc<Inner>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
    /// True once all threads are started: checked by every write, without a lock.
    pub(super) started: AtomicBool,
}

impl Group {
    /// Opens the group in `dir`. With `create`, creates an empty one where there is none; otherwise
    /// that is [`Error::NoStore`](crate::Error::NoStore). Writes nothing before the first write.
    /// Replays the log: costs time in proportion to the unflushed writes.
    pub fn open(
        dir: &Path,
        options: Options,
        provider: Arc<dyn TreeProvider>,
        create: bool,
    ) -> Result<Group> {
        Ok(Group::new(open::open(dir, options, provider, create)?))
    }

    /// Opens the group in `dir` to read it beside the writing process (or without one). It sees the
    /// current state; [`Group::refresh`] catches up with later writes, and so does a
    /// [tail](Group::tail) that has returned everything. Writes are refused with
    /// [`Error::ReadOnly`](crate::Error::ReadOnly). Takes no lock, and writes no file of the store.
    ///
    /// Keeps the files of all tables open. Costs time in proportion to the trees and tables, and to
    /// the unflushed writes.
    ///
    /// # Errors
    /// As [`Group::open`], but for [`Error::Locked`](crate::Error::Locked).
    pub fn open_reader(
        dir: &Path,
        options: Options,
        provider: Arc<dyn TreeProvider>,
    ) -> Result<Group> {
        let inner = open::open_reader(dir, options, provider)?;
        let group = Group::new(inner);
        group.refresh()?;
        Ok(group)
    }

    pub(super) fn new(inner: Inner) -> Group {
        Group {
            inner: Arc::new(inner),
            threads: Mutex::new(Vec::new()),
            started: AtomicBool::new(false),
        }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.inner.core.source.dir
    }

    /// The settings that the group was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.core.options
    }

    /// A consistent snapshot of all trees as of now.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// A snapshot that includes writes in the log that are not acknowledged yet: for writers that
    /// prepare a batch outside of [`Group::append_with`] and validate it there.
    pub fn latest(&self) -> Snapshot {
        self.inner.latest()
    }

    /// True when the group was opened with [`Group::open_reader`].
    pub fn is_reader(&self) -> bool {
        self.inner.reader.is_some()
    }

    /// In a read-only group, catches up with everything acknowledged by now. Later snapshots see
    /// it. Costs time in proportion to the writes since (and to the number of tables, where tables
    /// have changed). Does nothing in a writing group.
    ///
    /// # Errors
    /// [`Error::OtherHistory`](crate::Error::OtherHistory) when another store has replaced this
    /// one. Damage, and read errors; the state reached before is kept.
    pub fn refresh(&self) -> Result<()> {
        self.inner.refresh()
    }

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

    /// Writes a batch atomically, and returns the last of its sequence numbers. The batch can be
    /// cleared and reused afterwards.
    ///
    /// Errors: a full disk (nothing was written; try again when there is room);
    /// [`Error::Poisoned`](crate::Error::Poisoned) after a failure that left the log in an unknown
    /// state.
    pub fn write(&self, batch: &mut Batch, durability: Durability) -> Result<Seq> {
        let ticket = self.append(batch, durability)?;
        self.acknowledge(ticket)?;
        Ok(ticket.last)
    }

    /// The first half of [`Group::write`]: the batch is in the log and in the memtables, but
    /// neither acknowledged nor visible in snapshots until [`Group::acknowledge`] is called for it
    /// or a later one. Between the two a caller can release a lock that orders its writes, so that
    /// writers share syncs. Every ticket must be acknowledged: otherwise its batch is acknowledged
    /// with the next write, and may never be as durable as requested.
    pub fn append(&self, batch: &mut Batch, durability: Durability) -> Result<Ticket> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.start_threads();
        append(sequencer, versions, scheduler, batch, durability, None)
    }

    /// As [`Group::append`], for a batch that depends on the current state: `complete` is called
    /// with the batch, the first sequence number that it will have, and a snapshot of everything
    /// written before it, and may add to the batch. No other write happens in between, so what it
    /// reads is still valid when the batch is applied; other writers wait, so it should be quick.
    pub fn append_with(
        &self,
        batch: &mut Batch,
        durability: Durability,
        complete: &mut Complete<'_>,
    ) -> Result<Ticket> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.start_threads();
        append(
            sequencer,
            versions,
            scheduler,
            batch,
            durability,
            Some(complete),
        )
    }

    /// Waits until an appended batch is acknowledged: it and everything before it are as durable as
    /// requested. It is visible then, with everything before it.
    ///
    /// # Errors
    /// The sync of this batch, or of an earlier one, failed. No write from the failed one on is
    /// ever visible in this handle.
    pub fn acknowledge(&self, ticket: Ticket) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        acknowledge(sequencer, versions, scheduler, ticket)
    }

    /// Waits until every write that was appended before this call is visible: for a writer that was
    /// refused because of a write that readers do not see yet, and wants to read again.
    ///
    /// # Errors
    /// As [`Group::acknowledge`]: those writes will never be visible in this handle.
    pub fn wait_for_appended(&self) -> Result<()> {
        let ticket = self.append(&mut Batch::new(), Durability::Os)?;
        self.acknowledge(ticket)
    }

    /// The last write that is durable, with everything before it: in tables, or in the log of this
    /// group. A caller that has the log ([`LogMode::External`](crate::LogMode)) applies what is
    /// behind it again after a crash.
    pub fn durable_seq(&self) -> Seq {
        let flushed = self.inner.versions.manifest.lock().last_seq;
        flushed.max(self.inner.sequencer.log.synced())
    }

    /// Makes all writes durable, including those of earlier handles: by a sync of the log, or,
    /// where that is the caller's, by a flush.
    pub fn sync(&self) -> Result<()> {
        self.inner.versions.check_open()?;
        if self.inner.core.has_external_log() {
            return self.flush();
        }
        self.inner.sequencer.sync()
    }

    /// Writes all memtables to tables.
    pub fn flush(&self) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.inner.versions.check_open()?;
        self.start_threads();
        flush_all(sequencer, versions, scheduler)
    }

    /// Compacts a tree (or all) into one run each, dropping everything obsolete. Trees that follow
    /// each other are compacted together. A bitmap tree keeps only the numbers that its holders
    /// still have entries of.
    pub fn compact(&self, tree: Option<TreeId>) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.inner.versions.check_open()?;
        self.start_threads();
        flush_all(sequencer, versions, scheduler)?;
        match tree {
            Some(id)
                if self
                    .inner
                    .versions
                    .view
                    .load()
                    .version
                    .trees
                    .contains_key(&id) =>
            {
                compact(sequencer, versions, scheduler, Some(&[id]))
            }
            Some(id) => Err(install::no_tree(id)),
            None => compact(sequencer, versions, scheduler, None),
        }
    }

    /// As [`Group::compact`], for several trees; dropped trees are skipped. Small ones are
    /// compacted together.
    pub fn compact_trees(&self, trees: &[TreeId]) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.inner.versions.check_open()?;
        self.start_threads();
        flush_all(sequencer, versions, scheduler)?;
        compact(sequencer, versions, scheduler, Some(trees))
    }

    /// Compacts those trees into one run each that have a table which may contain entries of a
    /// write known to be obsolete ([`crate::SupersededBy`]). Dropped trees are skipped.
    pub fn drop_obsolete(&self, trees: &[TreeId]) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.inner.versions.check_open()?;
        self.start_threads();
        drop_obsolete(sequencer, versions, scheduler, trees)
    }

    /// Compacts until no policy has work left. Where the compaction of a tree fails the others
    /// continue, and the first error is returned.
    pub fn run_compactions(&self) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.inner.versions.check_open()?;
        compact_due(sequencer, versions, scheduler)
    }

    /// The number of the tree called `name`.
    pub fn tree(&self, name: &str) -> Option<TreeId> {
        self.inner
            .versions
            .view
            .load()
            .version
            .tree_named(name)
            .map(|tree| tree.id)
    }

    /// Creates trees, all or none: (name, configuration) each. Returns their numbers.
    pub fn create_trees(&self, trees: &[(String, Vec<u8>)]) -> Result<Vec<TreeId>> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        create_trees(sequencer, versions, scheduler, trees)
    }

    /// Drops trees with their contents, all or none.
    pub fn drop_trees(&self, trees: &[TreeId]) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        drop_trees(sequencer, versions, scheduler, trees)
    }

    /// Gives trees other names, all or none, durably: their options are resolved again, and what
    /// refers to them by number (the log, snapshots) keeps finding them. Waits for a flush, and for
    /// their compactions. Trees may swap names.
    pub fn rename_trees(&self, trees: &[(TreeId, String)]) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        rename_trees(sequencer, versions, scheduler, trees)
    }

    /// Changes a tree's configuration; its options are resolved again.
    pub fn configure_tree(&self, tree: TreeId, config: Vec<u8>) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        configure_tree(sequencer, versions, scheduler, tree, config)
    }

    /// Applies a change of trees atomically, and returns the numbers of the created ones. `make`
    /// gets the last allocated sequence number: everything up to it is durable and visible, and
    /// later writes go to the trees as they are after the change. Waits for a flush, and for
    /// compactions of the trees that it drops, renames or configures, and of those compacted with
    /// them; `make` may be called again after a wait, which discards its previous result.
    pub fn change_trees(
        &self,
        make: &mut dyn FnMut(Seq) -> Result<TreeChange>,
    ) -> Result<Vec<TreeId>> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        change(sequencer, versions, scheduler, make)
    }

    /// Rewrites the first table of `tree` that `pick` selects, in place, with the current options
    /// of the tree (an extractor with other attributes, for example). Returns its number of
    /// entries; `None` when there is no such table. Compactions wait meanwhile.
    pub fn rewrite_table(
        &self,
        tree: TreeId,
        pick: &dyn Fn(&TableMeta) -> bool,
    ) -> Result<Option<u64>> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.start_threads();
        rewrite_table(sequencer, versions, scheduler, tree, pick)
    }

    /// Adds `numbers`, which must ascend, to the bitmap tree `tree`, and advances its repair
    /// watermark to `repair_watermark`, atomically: every superseded number up to it is then in the
    /// tree. Both are durable when this returns. The writes that superseded the numbers must be
    /// visible, and so must be `repair_watermark`.
    pub fn supersede(
        &self,
        tree: TreeId,
        numbers: &mut dyn Iterator<Item = Result<Seq>>,
        repair_watermark: Option<Seq>,
    ) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        self.start_threads();
        supersede(
            sequencer,
            versions,
            scheduler,
            tree,
            numbers,
            repair_watermark,
        )
    }

    /// Adds the cost of a query to the group's counters.
    pub fn count(&self, cost: &Cost) {
        self.inner.core.reads.count(cost);
    }

    /// The counters since opening.
    pub fn stats(&self) -> Stats {
        let mut stats = self.inner.core.counters.read();
        self.inner.core.reads.add_to(&mut stats);
        stats
    }

    /// Bytes of memtables now, without flushed ones that snapshots pin.
    pub fn memtable_bytes(&self) -> usize {
        let view = self.inner.versions.view.load();
        view.active.memory()
            + view
                .full
                .iter()
                .map(|generation| generation.memory())
                .sum::<usize>()
    }

    /// The memory budget, which lends large buffers.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.inner.core.budget
    }

    /// The use of the memory budget by account.
    pub fn memory(&self) -> MemoryUse {
        self.inner
            .core
            .count_memory(&self.inner.versions.view.load());
        self.inner.core.budget.memory()
    }

    /// The time by which reads act now: what the clock says, and never before what was acted on.
    pub fn time(&self) -> Time {
        self.inner.core.clock.read_time()
    }

    /// The time up to which what has expired may be dropped for good: as [`Group::time`], but for a
    /// clock that is not believed yet.
    pub fn believed_time(&self) -> Time {
        self.inner.core.clock.drop_time()
    }

    /// The time of the clock; never before a time by which entries were hidden or dropped.
    pub fn now(&self) -> Time {
        self.inner.core.clock.read_time()
    }

    /// The time of the clock, where it is more than a day past the last time that the store acted
    /// by: nothing that expires is dropped before it is [confirmed](Group::confirm_time).
    pub fn unconfirmed_time(&self) -> Option<Time> {
        let is_timed = self.inner.versions.view.load().is_timed();
        is_timed
            .then(|| self.inner.core.clock.unconfirmed())
            .flatten()
    }

    /// Accepts the clock's time, however far it is ahead of the last time that the store acted by.
    /// Durable when it returns.
    ///
    /// # Errors
    /// It could not be persisted. It is accepted in this handle anyway.
    pub fn confirm_time(&self) -> Result<()> {
        self.inner.versions.check_open()?;
        let confirmed = self.inner.core.clock.confirm();
        self.inner.scheduler.wake_background();
        confirmed
    }

    /// The block cache.
    pub fn cache(&self) -> &BlockCache {
        &self.inner.core.source.cache
    }

    /// Flushes and compactions of this handle that failed and have not succeeded since. A tree
    /// whose compaction fails is paused for growing intervals; others are compacted as usual.
    pub fn failures(&self) -> Vec<JobFailure> {
        report::list_failures(
            &self.inner.core,
            &self.inner.versions,
            &self.inner.scheduler,
        )
    }

    /// The running jobs.
    pub fn jobs(&self) -> Vec<RunningJob> {
        self.inner.scheduler.jobs.list()
    }

    /// The last jobs that ended in this handle, newest first; a limited number is kept.
    pub fn ended_jobs(&self) -> Vec<EndedJob> {
        self.inner.scheduler.jobs.list_ended()
    }

    /// Makes all writes durable, flushes large memtables, and seals the store, so that the next
    /// opening can verify the length of every file. From here on writes are refused with
    /// [`Error::Closed`](crate::Error::Closed), and when the seal is written, reads that begin,
    /// too; then others can open the folder. Running jobs of other threads either end before the
    /// seal, or fail with the same error. Dropping the group does the same but cannot report
    /// errors.
    ///
    /// # Errors
    /// The log could not be synced, a memtable not flushed, or the seal not written. All other
    /// steps are done anyway, the sync first; closing again retries the failed ones. A failed
    /// compaction is no error.
    pub fn close(&self) -> Result<()> {
        let (sequencer, versions, scheduler) = self.inner.parts();
        let _alone = self.inner.scheduler.closers.lock();
        if self.inner.versions.check_open().is_err() {
            return Ok(());
        }
        begin_closing(&self.inner.core, &self.inner.scheduler);
        // Takes the writer lock: every write has either been appended or will be refused.
        let synced = match self.inner.reader {
            None => self.inner.sequencer.sync(),
            Some(_) => Ok(()),
        };
        // The lock must be released before joining the threads.
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
        synced.and(finish(sequencer, versions, scheduler))?;
        give_up(
            &self.inner.sequencer,
            &self.inner.versions,
            self.inner.gate.as_deref(),
        );
        Ok(())
    }

    /// Ends all use of the folder after a [`Group::close`] that failed, without trying again: the
    /// next opening finds what is durable.
    pub fn give_up(&self) {
        let _alone = self.inner.scheduler.closers.lock();
        begin_closing(&self.inner.core, &self.inner.scheduler);
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
        give_up(
            &self.inner.sequencer,
            &self.inner.versions,
            self.inner.gate.as_deref(),
        );
    }

    #[inline]
    pub(crate) fn start_threads(&self) {
        if !self.started.load(Ordering::Acquire) {
            self.start_threads_once();
        }
    }

    #[cold]
    fn start_threads_once(&self) {
        let mut threads = self.threads.lock();
        // Closing takes the lock after setting the flag: either it finds the threads, or they are
        // not started.
        let closing = self.inner.core.closing.load(Ordering::SeqCst);
        let reads = self.inner.reader.is_some();
        if self.inner.core.options.background
            && !reads
            && !closing
            && !self.started.load(Ordering::Acquire)
        {
            threads::start(&self.inner, &mut threads);
        }
        self.started.store(true, Ordering::Release);
    }

    pub(crate) fn source(&self) -> &TableSource {
        &self.inner.core.source
    }

    pub(crate) fn internals(&self) -> Internals<'_> {
        Internals(&self.inner)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // `close` may have been called already: sealing twice changes nothing.
        let _ = self.close();
    }
}

/// The internals that checkpoints and ingestion use.
pub(crate) struct Internals<'a>(pub(super) &'a Inner);

impl Internals<'_> {
    pub(crate) fn ingest<'e>(
        &self,
        tree: TreeId,
        entries: &mut dyn Iterator<Item = Result<(&'e [u8], &'e [u8])>>,
        stop: &AtomicBool,
    ) -> Result<u64> {
        let (sequencer, versions, scheduler) = self.0.parts();
        bulk::ingest(sequencer, versions, scheduler, tree, entries, stop)
    }

    pub(crate) fn ingest_newest(&self, tree: TreeId, write: &mut WriteRun<'_>) -> Result<u64> {
        let (sequencer, versions, scheduler) = self.0.parts();
        bulk::ingest_newest(sequencer, versions, scheduler, tree, write)
    }

    pub(crate) fn ingest_oldest(
        &self,
        tree: TreeId,
        write: &mut WriteRun<'_>,
        change: &mut dyn FnMut() -> Result<TreeChange>,
    ) -> Result<u64> {
        let (sequencer, versions, scheduler) = self.0.parts();
        bulk::ingest_oldest(sequencer, versions, scheduler, tree, write, change)
    }

    /// Writes the memtable entries visible to `snapshot` to tables of another store, into `edit`.
    pub(crate) fn copy_memtables(
        &self,
        snapshot: &Snapshot,
        to: &TableSource,
        new_file: &(dyn Fn() -> u64 + Sync),
        edit: &mut Edit,
    ) -> Result<()> {
        bulk::copy_memtables(&self.0.core, snapshot, to, new_file, edit)
    }

    /// The last time that the store acted by.
    pub(crate) fn kept_time(&self) -> Time {
        self.0.core.clock.kept()
    }

    /// The next file and tree numbers: larger than in any version so far.
    pub(crate) fn next_numbers(&self) -> (u64, TreeId) {
        let next_tree = self.0.versions.manifest.lock().next_tree;
        let next_file = self.0.versions.next_file();
        let Some(reader) = &self.0.reader else {
            return (next_file, next_tree);
        };
        // The numbers of the process that writes, as of the last refresh.
        let reader = reader.lock();
        let found = reader.recovered();
        let next_tree = next_tree.max(found.next_tree);
        (next_file.max(found.next_file), next_tree)
    }
}
