//! A tree group: several trees over one log, one sequence, one memory budget.
//!
//! Who holds what, outermost lock first (a thread takes them only in this order):
//!
//! | lock | guards | held for |
//! | --- | --- | --- |
//! | `merging`, `flushing` | that one merge, one flush runs at a time | a whole job |
//! | `writer` | the log's tail, the next sequence number, insertion into memtables | one batch |
//! | `log.queue` | who waits for a sync; one of them makes it, without the lock | no I/O |
//! | `reader` | how far a reader has followed the writer, if the group is one | a refresh |
//! | `manifest` | the manifest's tail; installing a version | one manifest record |
//! | `view_change` | replacing the view | no I/O |
//!
//! Readers take none of them: they load the view (an atomic pointer) and the visible sequence number.

mod bulk;
mod close;
mod commit;
mod compact;
mod failures;
mod flush;
mod install;
mod log;
mod manifest;
mod order;
mod reader;
mod recover;
mod space;
mod sweep;
mod tail;
mod threads;
mod trees;

pub use commit::Complete;
pub use failures::{Job, JobFailure, Retry};
pub use tail::{Commit, Observer, ShowOperation, Tail};
pub use trees::TreeChange;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use self::failures::Failures;
use self::log::Segment;
use self::reader::Reader;
use self::sweep::Sweeps;
use self::tail::Tails;
use self::threads::Workers;
use crate::batch::{Batch, TreeId};
use crate::cache::BlockCache;
use crate::compaction::job::WriteRun;
use crate::cost::Cost;
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::fs::Lock;
use crate::generation::{View, Views};
use crate::options::{Durability, Options, TreeProvider};
use crate::read::{Component, Snapshot};
use crate::stats::{Counters, ReadCounters, Stats};
use crate::table::TableMeta;
use crate::version::{Current, Manifest, Order, TableSource};

/// Generations that may wait for their flush before writers wait too.
const FULL_GENERATIONS: usize = 2;

/// Below this many bytes a clean close leaves the memtables to the log.
const FLUSH_AT_CLOSE: usize = 256 << 10;

/// An open tree group. Shared by reference between any number of threads; closed when dropped.
pub struct Group {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// True once there is nothing to start any more: every write asks, and takes no lock for it.
    started: AtomicBool,
}

/// Behind the `writer` lock.
#[derive(Default)]
struct Writer {
    next_seq: Seq,
    /// The last one that was given out and is not lost.
    last: Seq,
    /// The last write that asked to be durable before it is acknowledged.
    demanded: Seq,
    /// The segment of the active generation; `None` until the first write.
    segment: Option<Arc<Segment>>,
    /// The last segment that was replayed: its number and the length that was good.
    replayed: Option<(u64, u64)>,
    /// The manifest and the segments that were found, where they may be in the system's cache only.
    unsynced: Vec<PathBuf>,
    /// Segments that are no part of the log: they hold nothing that was acknowledged as durable.
    forsaken: Vec<PathBuf>,
    /// Microseconds of delay that pressure has put on writers and nobody has slept yet.
    delay: u64,
}

/// Behind the `manifest` lock.
struct Versions {
    manifest: Option<Manifest>,
    /// The first log segment that an opening must replay.
    log: u64,
    next_tree: TreeId,
    /// The last sequence number in tables.
    last_seq: Seq,
    /// What is remembered of the order of commits.
    order: Order,
    /// The length at which the manifest is written anew.
    renew_at: u64,
    /// What closing has still to write.
    seal: Option<Current>,
}

#[derive(Default)]
struct Signals {
    /// Raised to wake the background threads.
    work: bool,
    /// The last failure of a flush, when none has succeeded since, and how many there were in a row.
    flush_failure: Option<(Error, u64)>,
    /// When the log is to be synced for the writes that asked for it.
    sync_at: Option<Instant>,
}

struct Inner {
    source: TableSource,
    options: Options,
    provider: Arc<dyn TreeProvider>,
    counters: Counters,
    reads: ReadCounters,
    /// Shared with merges that ask for the version of the moment.
    view: Arc<Views>,
    view_change: Mutex<()>,
    /// The last sequence number that readers see.
    visible: AtomicU64,
    writer: Mutex<Writer>,
    /// Names the order of commits.
    history: AtomicU64,
    /// The next sequence number, and how far they are reserved.
    given: AtomicU64,
    reserved: AtomicU64,
    log: log::Log,
    tails: Tails,
    manifest: Mutex<Versions>,
    next_file: AtomicU64,
    flushing: Mutex<()>,
    merging: Mutex<()>,
    /// Up while a bulk load is under way.
    ingesting: AtomicBool,
    signals: Mutex<Signals>,
    /// Woken when there is background work.
    wake: Condvar,
    /// Woken when a flush has ended, well or not.
    flushed: Condvar,
    closing: AtomicBool,
    /// Held by the one who closes.
    closers: Mutex<()>,
    workers: Workers,
    failures: Mutex<Failures>,
    /// Shared files of which more than half is unused.
    sparse: Mutex<BTreeSet<u64>>,
    sweeps: Mutex<Sweeps>,
    poisoned: AtomicBool,
    poison: Mutex<Option<String>>,
    /// Merge backlog, as `f64` bits: 0 or less is none, 1 is the most.
    pressure: AtomicU64,
    /// Of a group that is read beside the one who writes it, how far that is.
    reader: Option<Mutex<Reader>>,
    /// Held by the one who writes.
    _lock: Option<Box<dyn Lock>>,
}

impl Group {
    /// Opens the group in `dir`. With `create`, makes an empty one where there is none; otherwise
    /// that is [`Error::NoStore`]. Nothing is written before the first write. Replays the log:
    /// costs time in proportion to what was not flushed.
    pub fn open(
        dir: &Path,
        options: Options,
        provider: Arc<dyn TreeProvider>,
        create: bool,
    ) -> Result<Group> {
        Ok(Group::new(recover::open(dir, options, provider, create)?))
    }

    fn new(inner: Inner) -> Group {
        Group {
            inner: Arc::new(inner),
            threads: Mutex::new(Vec::new()),
            started: AtomicBool::new(false),
        }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.inner.source.dir
    }

    /// The settings that the group was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// A consistent picture of all trees as of now.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// A picture of everything that has its place in the log, whether it is acknowledged or not: for
    /// writers that prepare something outside of [`Group::append_with`] and check there that it is still so.
    pub fn latest(&self) -> Snapshot {
        self.inner.latest()
    }

    /// Writes a batch, whole or not at all, and returns the last of its sequence numbers.
    /// The batch can be cleared and filled again afterwards.
    ///
    /// Errors: a full disk (nothing was written; try again when there is room);
    /// [`Error::Poisoned`] after a failure that left the log in an unknown state.
    pub fn write(&self, batch: &mut Batch, durability: Durability) -> Result<Seq> {
        let ticket = self.append(batch, durability)?;
        self.settle(ticket)?;
        Ok(ticket.last)
    }

    /// The first half of [`Group::write`]: the batch has its place in the log and in the memtables,
    /// but is not acknowledged, nor visible in snapshots, until [`Group::settle`] of it or of one behind it. Between
    /// the two a caller can release a lock that orders its writes, so that writers share syncs. Every ticket is to be
    /// settled: one that is not is acknowledged with the next write, and may never be durable as asked.
    pub fn append(&self, batch: &mut Batch, durability: Durability) -> Result<Ticket> {
        self.start_threads();
        self.inner.append(batch, durability, None)
    }

    /// As [`Group::append`], for a batch that depends on what is there: `complete` is called with
    /// the batch, the first sequence number that it will have, and a snapshot of everything written
    /// before it, and may add to the batch. No other write happens in between, so what it reads is
    /// still true when the batch is applied; other writers wait, so it should be quick.
    pub fn append_with(
        &self,
        batch: &mut Batch,
        durability: Durability,
        complete: &mut Complete<'_>,
    ) -> Result<Ticket> {
        self.start_threads();
        self.inner.append(batch, durability, Some(complete))
    }

    /// Waits until an appended batch is acknowledged: as durable as it asked, and everything before it as durable as
    /// that asked. It is visible then, with everything before it.
    ///
    /// # Errors
    /// A sync failed: of this batch, or of one before it. Nothing from the failed one on is ever visible in this handle.
    pub fn settle(&self, ticket: Ticket) -> Result<()> {
        self.inner.settle(ticket)
    }

    /// Makes durable what was written, also by earlier handles.
    pub fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    /// Writes all memtables to tables.
    pub fn flush(&self) -> Result<()> {
        self.start_threads();
        self.inner.flush_all()
    }

    /// Merges a tree (or all) into one run each, dropping everything that is obsolete. Trees that
    /// follow each other are merged together. Of a bitmap tree what is left are the numbers that its holders have something of.
    pub fn compact(&self, tree: Option<TreeId>) -> Result<()> {
        self.start_threads();
        self.inner.flush_all()?;
        match tree {
            Some(id) if self.inner.view.load().version.trees.contains_key(&id) => {
                self.inner.compact(Some(&[id]))
            }
            Some(id) => Err(install::no_tree(id)),
            None => self.inner.compact(None),
        }
    }

    /// The same for several trees; those that were dropped are passed over. Small ones are merged together.
    pub fn compact_trees(&self, trees: &[TreeId]) -> Result<()> {
        self.start_threads();
        self.inner.flush_all()?;
        self.inner.compact(Some(trees))
    }

    /// Merges trees into one run each, where some table of theirs may have something of a write that is known to be
    /// over ([`crate::SupersededBy`]). Trees that were dropped are passed over.
    pub fn leave_out(&self, trees: &[TreeId]) -> Result<()> {
        self.start_threads();
        self.inner.leave_out(trees)
    }

    /// Merges until no policy asks for more. Where the merge of a tree fails the others are merged all the same, and
    /// the first error is returned.
    pub fn settle_merges(&self) -> Result<()> {
        self.inner.merge_all()
    }

    /// The number of the tree called `name`.
    pub fn tree(&self, name: &str) -> Option<TreeId> {
        self.inner
            .view
            .load()
            .version
            .tree_named(name)
            .map(|tree| tree.id)
    }

    /// Creates trees, all or none: (name, configuration) each. Returns their numbers.
    pub fn create_trees(&self, trees: &[(String, Vec<u8>)]) -> Result<Vec<TreeId>> {
        self.inner.create_trees(trees)
    }

    /// Drops trees with all they hold, all or none.
    pub fn drop_trees(&self, trees: &[TreeId]) -> Result<()> {
        self.inner.drop_trees(trees)
    }

    /// Changes a tree's configuration; its options are asked for again.
    pub fn configure_tree(&self, tree: TreeId, config: Vec<u8>) -> Result<()> {
        self.inner.configure_tree(tree, config)
    }

    /// Carries out a change of trees, all of it or nothing, and returns the numbers of those that were
    /// created. `make` is told the last sequence number that was given out: everything up to it is
    /// durable and visible, and whatever is written later is written to the trees as they are after
    /// the change. Waits for a merge or flush that is under way.
    pub fn change_trees(
        &self,
        make: &mut dyn FnMut(Seq) -> Result<TreeChange>,
    ) -> Result<Vec<TreeId>> {
        self.inner.change(make)
    }

    /// Writes the first table of `tree` that `pick` picks again, in its place, with the options that
    /// the tree has now (an extractor with other attributes, for one). Returns its number of entries;
    /// `None` when there is no such table. Merges wait for the time that takes.
    pub fn rewrite_table(
        &self,
        tree: TreeId,
        pick: &dyn Fn(&TableMeta) -> bool,
    ) -> Result<Option<u64>> {
        self.start_threads();
        self.inner.rewrite_table(tree, pick)
    }

    /// Adds `numbers`, which must ascend, to the bitmap tree `tree`, and moves its mark to `mark`, in one
    /// step: up to it every superseded number is in the tree then. Both are durable when this returns.
    /// What the numbers were superseded by must be visible, and `mark` at most what is.
    pub fn supersede(
        &self,
        tree: TreeId,
        numbers: &mut dyn Iterator<Item = Result<Seq>>,
        mark: Option<Seq>,
    ) -> Result<()> {
        self.start_threads();
        self.inner.supersede(tree, numbers, mark)
    }

    /// Adds the cost of a query to the group's counters.
    pub fn count(&self, cost: &Cost) {
        self.inner.reads.count(cost);
    }

    /// The counters since opening.
    pub fn stats(&self) -> Stats {
        let mut stats = self.inner.counters.read();
        self.inner.reads.add_to(&mut stats);
        stats
    }

    /// Bytes of memtables now, those still pinned by snapshots after their flush left out.
    pub fn memtable_bytes(&self) -> usize {
        let view = self.inner.view.load();
        view.active.memory()
            + view
                .full
                .iter()
                .map(|generation| generation.memory())
                .sum::<usize>()
    }

    /// The block cache.
    pub fn cache(&self) -> &BlockCache {
        &self.inner.source.cache
    }

    /// What flushes and merges of this handle failed and have not succeeded since. A tree whose merge fails is left
    /// alone for growing pauses; others are merged as usual.
    pub fn failures(&self) -> Vec<JobFailure> {
        self.inner.list_failures()
    }

    /// Makes everything that was written durable, flushes what is large, and seals the store, so that the next
    /// opening knows how long every file must be. Writes are refused from here on ([`Error::Closed`]); reads still work.
    /// Jobs of other threads that are under way either end before the seal, or fail with [`Error::Closed`].
    /// Dropping the group does the same but cannot tell errors.
    ///
    /// # Errors
    /// Why the log could not be synced, a memtable not flushed, or the seal not written. All that can be done is done
    /// all the same, the sync first; closing again tries what is left. That a merge fails is no error.
    pub fn close(&self) -> Result<()> {
        let _alone = self.inner.closers.lock();
        self.inner.begin_closing();
        // It takes the writer lock: every write has either been appended or will be refused.
        let synced = match self.inner.reader {
            None => self.inner.sync(),
            Some(_) => Ok(()),
        };
        // Not to be locked while they are waited for.
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
        synced.and(self.inner.finish())
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
        // Closing takes the lock once it has begun: it finds the threads, or they are not started.
        let closing = self.inner.closing.load(Ordering::SeqCst);
        let reads = self.inner.reader.is_some();
        if self.inner.options.background
            && !reads
            && !closing
            && !self.started.load(Ordering::Acquire)
        {
            threads::start(&self.inner, &mut threads);
        }
        self.started.store(true, Ordering::Release);
    }

    pub(crate) fn source(&self) -> &TableSource {
        &self.inner.source
    }

    pub(crate) fn internals(&self) -> Internals<'_> {
        Internals(&self.inner)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // `close` has been here already when it was called: sealing twice changes nothing.
        let _ = self.close();
    }
}

/// A batch that was appended and not acknowledged yet.
#[derive(Clone, Copy)]
pub struct Ticket {
    last: Seq,
    /// What the log must be durable up to before the batch is acknowledged.
    durable: Seq,
    /// It asked for that itself.
    forces: bool,
    /// When it is to be durable.
    due: Option<Instant>,
}

impl Ticket {
    /// The last sequence number of the batch.
    pub fn last(&self) -> Seq {
        self.last
    }
}

/// What checkpoint and ingestion need of a group.
pub(crate) struct Internals<'a>(&'a Inner);

impl Internals<'_> {
    /// Refuses what only the process that writes can do.
    pub(crate) fn check_writer(&self) -> Result<()> {
        match self.0.reader {
            Some(_) => Err(Error::ReadOnly),
            None => Ok(()),
        }
    }

    pub(crate) fn ingest_newest(&self, tree: TreeId, write: &mut WriteRun<'_>) -> Result<u64> {
        self.0.ingest_newest(tree, write)
    }

    pub(crate) fn write_aside(&self, write: &mut WriteRun<'_>) -> Result<Component> {
        self.0.write_aside(write)
    }

    pub(crate) fn ingest_oldest(
        &self,
        tree: TreeId,
        write: &mut WriteRun<'_>,
        change: &mut dyn FnMut() -> Result<TreeChange>,
    ) -> Result<u64> {
        self.0.ingest_oldest(tree, write, change)
    }
}

impl Inner {
    fn snapshot(&self) -> Snapshot {
        loop {
            let view = self.view.load_full();
            let seq = self.visible.load(Ordering::Acquire);
            let seq = seq.max(view.version.flushed());
            // If the view was replaced in between, writes up to `seq` may be in memtables that the
            // old one does not have.
            if Arc::ptr_eq(&view, &self.view.load()) {
                return Snapshot::new(view, seq);
            }
        }
    }

    fn latest(&self) -> Snapshot {
        if self.reader.is_some() {
            return self.snapshot();
        }
        let writer = self.writer.lock();
        Snapshot::new(self.view.load_full(), writer.next_seq - 1)
    }

    fn new_file(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::SeqCst)
    }

    /// Replaces the view by what `change` makes of it.
    fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let _guard = self.view_change.lock();
        let next = change(&self.view.load());
        self.measure_pressure(&next);
        self.view.store(&next);
    }

    /// Measures the pressure again, when a tree's merges have begun or ceased to fail.
    fn change_pressure(&self) {
        let _guard = self.view_change.lock();
        self.measure_pressure(&self.view.load());
    }

    /// How far merges are behind. Trees whose merges fail do not count: slowing writers down does not help them.
    fn measure_pressure(&self, view: &View) {
        let failures = self.failures.lock();
        let trees = view.version.trees.values();
        let pressure = trees
            .filter(|tree| !failures.has(tree.id))
            .map(|tree| tree.due.pressure)
            .fold(0.0, f64::max);
        self.pressure
            .store(f64::to_bits(pressure), Ordering::Relaxed);
    }

    fn check_poison(&self) -> Result<()> {
        if self.reader.is_some() {
            return Err(Error::ReadOnly);
        }
        if !self.poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.poison.lock().clone().unwrap_or_default();
        Err(Error::Poisoned { cause })
    }

    /// Refuses all further writes: what is on disk is not known any more.
    fn poison_with(&self, error: &Error) {
        self.poison.lock().get_or_insert_with(|| error.to_string());
        self.poisoned.store(true, Ordering::Release);
        self.flushed.notify_all();
    }
}

#[cfg(test)]
mod tests;
