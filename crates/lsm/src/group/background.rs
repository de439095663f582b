//! Flushes and merges, and the threads that do them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Inner;
use super::failures::{Attempt, most_urgent};
use crate::batch::TreeId;
use crate::compaction::Choice;
use crate::compaction::job::Workshop;
use crate::error::{Error, Result};
use crate::generation::{Generation, View};
use crate::stats::Counters;
use crate::version::{Edit, TreeVersion, Version, log_path};

/// How long a thread waits for work before it looks again.
const IDLE: Duration = Duration::from_secs(1);

/// How long a failed flush is left alone before it is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// Which of a group's threads are alive. What a missing one would do (it could not be started, or has
/// panicked) is done by the writers that need it.
#[derive(Default)]
pub(super) struct Workers {
    pub(super) flush: AtomicBool,
    pub(super) merge: AtomicBool,
    pub(super) sync: AtomicBool,
}

/// A thread's loop, and its flag in [`Workers`].
type Job = (&'static str, fn(&Inner), fn(&Workers) -> &AtomicBool);

/// Starts the threads of a group: one flushes, one merges, one syncs for periodic durability.
pub(super) fn start(inner: &Arc<Inner>, threads: &mut Vec<JoinHandle<()>>) {
    let jobs: [Job; 3] = [
        ("esker-flush", flush_loop, |workers| &workers.flush),
        ("esker-merge", merge_loop, |workers| &workers.merge),
        ("esker-sync", sync_loop, |workers| &workers.sync),
    ];
    for (name, job, alive) in jobs {
        let shared = inner.clone();
        alive(&inner.workers).store(true, Ordering::SeqCst);
        let thread = std::thread::Builder::new()
            .name(name.to_string())
            .spawn(move || {
                let _alive = Raised::new(alive(&shared.workers));
                job(&shared);
            });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(_) => alive(&inner.workers).store(false, Ordering::SeqCst),
        }
    }
}

fn flush_loop(inner: &Inner) {
    let flush = |inner: &Inner| inner.flush_full().map(|()| false);
    inner.work_loop(flush, Inner::note_flush_failure);
}

fn merge_loop(inner: &Inner) {
    // Failures of trees are noted with them; what gets here is one of the store, which writers meet as well.
    let note = |inner: &Inner, _| Counters::add(&inner.counters.background_failures, 1);
    inner.work_loop(Inner::merge_once, note);
}

/// Syncs the log when the first of the periodic writes that are not synced yet wants it.
fn sync_loop(inner: &Inner) {
    let mut signals = inner.signals.lock();
    while !inner.closing.load(Ordering::SeqCst) {
        match signals.sync_at {
            None => inner.wake.wait(&mut signals),
            Some(due) if due > Instant::now() => {
                inner.wake.wait_until(&mut signals, due);
            }
            Some(_) => {
                signals.sync_at = None;
                parking_lot::MutexGuard::unlocked(&mut signals, || {
                    // A failure has poisoned the group, which the next write tells.
                    let _ = inner.sync_all();
                });
            }
        }
    }
}

impl Inner {
    pub(super) fn wake_background(&self) {
        let mut signals = self.signals.lock();
        signals.work = true;
        self.wake.notify_all();
    }

    /// Runs `job` whenever there may be work, again while it says that there is more.
    fn work_loop(
        &self,
        job: impl Fn(&Inner) -> Result<bool>,
        note_failure: impl Fn(&Inner, Error),
    ) {
        while !self.closing.load(Ordering::SeqCst) {
            let wait = match job(self) {
                Ok(true) => continue,
                Ok(false) => IDLE,
                Err(error) => {
                    note_failure(self, error);
                    RETRY
                }
            };
            let mut signals = self.signals.lock();
            // After a failure the pause is kept, whatever else there is to do.
            let more = signals.work && wait != RETRY;
            if !self.closing.load(Ordering::SeqCst) && !more {
                self.wake.wait_for(&mut signals, wait);
            }
            signals.work = false;
        }
    }

    /// Notes that a flush failed: writers that wait for it are told.
    fn note_flush_failure(&self, error: Error) {
        if self.closing.load(Ordering::SeqCst) {
            return;
        }
        Counters::add(&self.counters.background_failures, 1);
        let mut signals = self.signals.lock();
        let times = signals
            .flush_failure
            .as_ref()
            .map_or(0, |(_, times)| *times);
        signals.flush_failure = Some((error, times + 1));
        self.flushed.notify_all();
    }

    /// Without background threads: does what they would do, here and now. A failure is kept for the
    /// writers that run into it.
    pub(super) fn work_inline(&self) {
        if self.view.load().full.is_empty() {
            return;
        }
        match self.flush_full() {
            Ok(()) => self.merge_inline(),
            Err(error) => self.note_flush_failure(error),
        }
    }

    /// Does the merges that are due. Failures are noted with their trees, or met by the next flush.
    pub(super) fn merge_inline(&self) {
        self.begin_round();
        while let Ok(true) = self.merge_once() {}
    }

    pub(super) fn workshop<'a>(&'a self, next_file: &'a dyn Fn() -> u64) -> Workshop<'a> {
        let view = self.view.clone();
        Workshop {
            source: &self.source,
            options: &self.options,
            counters: &self.counters,
            next_file,
            closing: &self.closing,
            ingesting: &self.ingesting,
            version: self.view.load().version.clone(),
            now: Arc::new(move || view.load().version.clone()),
        }
    }

    pub(super) fn flush_all(&self) -> Result<()> {
        self.sync_found(&mut self.writer.lock())?;
        self.rotate_now()?;
        self.flush_full()
    }

    /// Flushes the full generations, oldest first.
    pub(super) fn flush_full(&self) -> Result<()> {
        let _guard = self.flushing.lock();
        loop {
            let view = self.view.load_full();
            let Some(generation) = view.full.last() else {
                return Ok(());
            };
            self.check_poison()?;
            self.start_writing(&mut self.writer.lock())?;
            self.flush(&view, generation)?;
        }
    }

    fn flush(&self, view: &View, generation: &Arc<Generation>) -> Result<()> {
        if self.visible.load(Ordering::Acquire) < generation.last() {
            // Some writer is still waiting for its sync. Tables have no unacknowledged writes in
            // them, so it is done here first.
            self.sync_all()?;
            self.visible.fetch_max(generation.last(), Ordering::AcqRel);
        }
        let next_file = || self.new_file();
        // A flush is not abandoned when the group closes: it is part of closing.
        let never = AtomicBool::new(false);
        let workshop = Workshop {
            closing: &never,
            ..self.workshop(&next_file)
        };
        let newer = view
            .full
            .len()
            .checked_sub(2)
            .and_then(|at| view.full.get(at));
        let next = newer.unwrap_or(&view.active);
        let log = next.log();
        let write = |edit: &mut Edit| {
            for (id, memtable) in generation.filled() {
                // A dropped tree has nothing to flush.
                if let Some(tree) = view.version.trees.get(&id) {
                    workshop.flush(tree, memtable, generation.component(), edit)?;
                }
            }
            // Also the numbers that nothing has any more: those of trees that were dropped.
            edit.last_seq = Some(next.component().min - 1);
            edit.log = log;
            let segments = self.log.segments.lock().clone();
            match segments.iter().find(|live| Some(live.number) == log) {
                Some(segment) => self.name_segment(segment),
                None => Ok(()),
            }
        };
        self.work(write, |view, version| View {
            active: view.active.clone(),
            full: view
                .full
                .iter()
                .filter(|full| !Arc::ptr_eq(full, generation))
                .cloned()
                .collect(),
            version,
        })?;
        Counters::add(&self.counters.flushes, 1);
        if let Some(done) = generation.log() {
            self.log
                .segments
                .lock()
                .retain(|segment| segment.number != done);
            // An old segment that stays is removed at the next opening.
            let _ = self.source.fs.remove(&log_path(&self.source.dir, done));
        }
        self.signals.lock().flush_failure = None;
        self.flushed.notify_all();
        self.wake_background();
        Ok(())
    }

    /// Does `work`, which writes tables into an edit, and installs the edit.
    pub(super) fn work(
        &self,
        work: impl FnOnce(&mut Edit) -> Result<()>,
        change: impl FnOnce(&View, Arc<Version>) -> View,
    ) -> Result<()> {
        self.work_on(|edit| {
            work(edit)?;
            self.install(edit, change)?;
            self.warm(edit);
            Ok(())
        })
    }

    /// Readies the tables that an edit added for reading.
    fn warm(&self, edit: &Edit) {
        if !self.options.background {
            return;
        }
        let version = self.view.load().version.clone();
        for new in edit.new_tables() {
            let tables = version.trees.values().flat_map(|tree| &tree.runs);
            let mut tables = tables.flat_map(|run| run.tables.iter());
            let table = tables.find(|table| table.meta().number == new.meta.number);
            if let Some(Ok(table)) = table.map(|table| table.table()) {
                table.warm();
            }
        }
    }

    /// Does `work`, which writes tables into an edit and installs it. If it fails the tables are
    /// removed again, so that a full disk is not filled further by trying.
    pub(super) fn work_on<T>(&self, work: impl FnOnce(&mut Edit) -> Result<T>) -> Result<T> {
        let mut edit = Edit::default();
        let result = work(&mut edit);
        // After a failed sync of the manifest it may or may not name them.
        if result.is_err() && !self.poisoned.load(Ordering::Acquire) {
            for new in edit.new_tables() {
                let _ = self.source.fs.remove(&self.source.path(new.meta.number));
            }
        }
        result
    }

    /// Appends `edit` to the manifest and makes its version the current one.
    pub(super) fn install(
        &self,
        edit: &mut Edit,
        change: impl FnOnce(&View, Arc<Version>) -> View,
    ) -> Result<()> {
        let mut versions = self.manifest.lock();
        self.check_poison()?;
        let before = self.view.load_full();
        let options = |name: &str, config: &[u8]| self.provider.tree_options(name, config);
        let Some(manifest) = &mut versions.manifest else {
            return Err(Error::Closed);
        };
        let mut version = before
            .version
            .apply(edit, &self.source, &options, &self.source.dir)?;
        version.extend_bitmaps(edit)?;
        if edit.new_tables().next().is_some() {
            // The manifest must not name what a power cut can take.
            self.sync_names()?;
        }
        // What the edit refers to was synced before it was made.
        edit.synced = Some(self.log.synced());
        if let Err(failed) = manifest.append(edit) {
            if !(failed.rolled_back && failed.error.is_disk_full()) {
                // What of the record is on disk is not known.
                self.poison_with(&failed.error);
            }
            return Err(failed.error);
        }
        versions.log = edit.log.unwrap_or(versions.log);
        versions.next_tree = edit.next_tree.unwrap_or(versions.next_tree);
        versions.last_seq = edit.last_seq.unwrap_or(0).max(versions.last_seq);
        let version = Arc::new(version);
        self.change_view(|view| change(view, version.clone()));
        let kept: HashSet<u64> = edit.added.iter().map(|new| new.meta.number).collect();
        let gone: HashSet<u64> = edit
            .removed
            .iter()
            .map(|at| at.number)
            .filter(|number| !kept.contains(number))
            .collect();
        let dropped = |id: &TreeId| edit.dropped.contains(id);
        for (id, tree) in &before.version.trees {
            for table in tree.runs.iter().flat_map(|run| run.tables.iter()) {
                if dropped(id) || gone.contains(&table.meta().number) {
                    table.mark_obsolete();
                }
            }
        }
        self.renew_manifest(&mut versions);
        Ok(())
    }

    /// Does the most urgent merge; false when there is none. A merge that fails is noted with its tree, and counts
    /// as done: the next one is another tree's.
    pub(super) fn merge_once(&self) -> Result<bool> {
        let _guard = self.merging.lock();
        if self.closing.load(Ordering::Relaxed) {
            return Ok(false);
        }
        // A set that is much too large does not wait for merges to end.
        Ok(self.sweep_due(2)? || self.merge_one(u64::MAX, &self.closing)? || self.sweep_due(1)?)
    }

    /// The same for merges of at most `bytes`, under the `merging` lock.
    pub(super) fn merge_one(&self, bytes: u64, closing: &AtomicBool) -> Result<bool> {
        let view = self.view.load_full();
        let picked = most_urgent(&view, bytes, |tree| self.attempt(tree));
        let Some((tree, choice, whole)) = picked else {
            return Ok(false);
        };
        self.start_writing(&mut self.writer.lock())?;
        match self.merge(&view, tree, choice, closing, whole) {
            Err(error) if !self.is_contained(&error) => Err(error),
            _ => Ok(true),
        }
    }

    /// Merges until no policy asks for more. Trees whose merges failed before are tried, too; what fails now is
    /// passed over, and the first error returned in the end.
    pub(super) fn merge_all(&self) -> Result<()> {
        let mut failed: BTreeMap<TreeId, Error> = BTreeMap::new();
        let mut first = None;
        loop {
            let _guard = self.merging.lock();
            self.check_open()?;
            let view = self.view.load_full();
            let picked = most_urgent(&view, u64::MAX, |tree| match failed.contains_key(&tree) {
                true => Attempt::None,
                false => Attempt::Any,
            });
            let Some((tree, choice, whole)) = picked else {
                return first.map_or(Ok(()), Err);
            };
            self.start_writing(&mut self.writer.lock())?;
            if let Err(error) = self.merge(&view, tree, choice, &self.closing, whole) {
                self.goes_on_after(&error)?;
                first.get_or_insert_with(|| error.clone());
                failed.insert(tree.id, error);
            }
        }
    }

    /// The error itself, unless it is one tree's and others may do better.
    fn goes_on_after(&self, error: &Error) -> Result<()> {
        match self.is_contained(error) && !error.is_disk_full() {
            true => Ok(()),
            false => Err(error.clone()),
        }
    }

    /// Carries out `choice` on `tree`, and the same components of the trees that follow it, and
    /// installs all of it at once. `whole` tells that the tree is in order again when that succeeds.
    pub(super) fn merge(
        &self,
        view: &View,
        tree: &Arc<TreeVersion>,
        choice: Choice,
        closing: &AtomicBool,
        whole: bool,
    ) -> Result<()> {
        let next_file = || self.new_file();
        let workshop = Workshop {
            closing,
            ..self.workshop(&next_file)
        };
        let write = |edit: &mut Edit| {
            for follower in view.version.trees.values() {
                if follower.options.follows.as_ref() == Some(&tree.name) {
                    let choice = choice.followed_by(follower);
                    if choice.inputs.len() > 1 {
                        workshop.merge(follower, &choice, edit)?;
                    }
                }
            }
            workshop.merge(tree, &choice, edit)
        };
        let result = self.work(write, |view, version| View {
            active: view.active.clone(),
            full: view.full.clone(),
            version,
        });
        match &result {
            Ok(()) if whole => self.clear_merge_failure(tree.id),
            Ok(()) => {}
            Err(error) => self.note_merge_failure(&view.version, tree, error, whole),
        }
        result
    }

    pub(super) fn compact(&self, only: Option<TreeId>) -> Result<()> {
        let _guard = self.merging.lock();
        let version = self.view.load().version.clone();
        // Trees that follow each other are merged together, the lead first.
        let lead = |tree: &TreeVersion| match &tree.options.follows {
            Some(name) => version.tree_named(name).map_or(tree.id, |lead| lead.id),
            None => tree.id,
        };
        let only = match only {
            Some(id) => Some(lead(version.trees.get(&id).ok_or_else(|| no_tree(id))?)),
            None => None,
        };
        let mut trees: Vec<(TreeId, bool, TreeId)> = version
            .trees
            .values()
            .map(|tree| (lead(tree), lead(tree) != tree.id, tree.id))
            .filter(|(lead, ..)| only.is_none_or(|only| only == *lead))
            .collect();
        // Sets of obsolete writes come last: by then they have what merges told, and trees have left it out.
        let is_set = |id: &TreeId| {
            let tree = version.trees.get(id);
            tree.is_some_and(|tree| tree.options.bitmap)
        };
        trees.sort_unstable_by_key(|(lead, follows, id)| (is_set(id), *lead, *follows, *id));
        let mut first = None;
        for (_, _, id) in trees {
            let view = self.view.load_full();
            let Some(tree) = view.version.trees.get(&id) else {
                continue;
            };
            let result = match is_set(&id) && tree.damage().is_none() {
                true => self.sweep_whole(id),
                false => match tree.options.policy.pick_all(tree) {
                    Some(choice) => {
                        self.start_writing(&mut self.writer.lock())?;
                        self.merge(&view, tree, choice, &self.closing, true)
                    }
                    None => Ok(()),
                },
            };
            if let Err(error) = result {
                // One damaged tree does not keep the others from being merged.
                self.goes_on_after(&error)?;
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }
}

/// A flag that is up until this is dropped.
struct Raised<'a>(&'a AtomicBool);

impl Raised<'_> {
    fn new(flag: &AtomicBool) -> Raised<'_> {
        flag.store(true, Ordering::SeqCst);
        Raised(flag)
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

pub(super) fn no_tree(id: TreeId) -> Error {
    Error::Invalid(format!("the group has no tree {id}"))
}

impl super::Internals<'_> {
    pub(crate) fn ingest<'e>(
        &self,
        tree: TreeId,
        entries: &mut dyn Iterator<Item = Result<(&'e [u8], &'e [u8])>>,
        stop: &AtomicBool,
    ) -> Result<u64> {
        let inner = self.0;
        // Runs are ordered by sequence number; no merge may put newer entries below this one.
        let _merges = inner.merging.lock();
        let _ingesting = Raised::new(&inner.ingesting);
        inner.rotate_now()?;
        let seq = {
            let mut writer = inner.writer.lock();
            inner.start_writing(&mut writer)?;
            if !inner.view.load().active.is_empty() {
                inner.rotate(&mut writer)?;
            }
            writer.next_seq += 1;
            writer.next_seq - 1
        };
        inner.flush_full()?;
        let view = inner.view.load_full();
        let Some(tree) = view.version.trees.get(&tree) else {
            return Err(no_tree(tree));
        };
        let next_file = || inner.new_file();
        let workshop = Workshop {
            closing: stop,
            ..inner.workshop(&next_file)
        };
        let mut count = 0;
        let write = |edit: &mut Edit| {
            edit.last_seq = Some(seq);
            count = workshop.ingest(tree, seq, entries, edit)?;
            // Before the run is there, so that no snapshot has it that does not reach `seq`.
            inner.visible.fetch_max(seq, Ordering::AcqRel);
            Ok(())
        };
        inner.work(write, |view, version| View {
            active: view.active.clone(),
            full: view.full.clone(),
            version,
        })?;
        Ok(count)
    }
}
