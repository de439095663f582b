//! Flushes and merges, and the threads that do them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Inner;
use crate::batch::TreeId;
use crate::compaction::Choice;
use crate::compaction::job::Workshop;
use crate::error::{Error, Result};
use crate::generation::{Generation, View};
use crate::stats::Counters;
use crate::version::{Edit, TreeVersion, Version, log_path};

/// Bytes of the largest merge that closing waits for.
const SMALL_MERGE: u64 = 4 << 20;

/// How long a failed job is left alone before it is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Starts the threads of a group: one flushes, one merges, one syncs for periodic durability.
pub(super) fn start(inner: &Arc<Inner>, threads: &mut Vec<JoinHandle<()>>) {
    type Job = fn(&Inner);
    let jobs: [(&str, Job); 3] = [
        ("esker-flush", flush_loop),
        ("esker-merge", merge_loop),
        ("esker-sync", sync_loop),
    ];
    for (name, job) in jobs {
        let inner = inner.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_string())
            .spawn(move || job(&inner));
        // Without threads the work is done when writers wait for it.
        threads.extend(thread.ok());
    }
}

fn flush_loop(inner: &Inner) {
    inner.work_loop(Duration::from_secs(1), |inner| {
        inner.flush_full()?;
        Ok(false)
    });
}

fn merge_loop(inner: &Inner) {
    inner.work_loop(Duration::from_secs(1), Inner::merge_once);
}

fn sync_loop(inner: &Inner) {
    loop {
        let mut signals = inner.signals.lock();
        if inner.closing.load(Ordering::SeqCst) {
            return;
        }
        let wait = signals.periodic.unwrap_or(Duration::from_secs(3600));
        inner.wake_sync(&mut signals, wait);
        let due = signals.periodic.is_some();
        drop(signals);
        if due && !inner.closing.load(Ordering::SeqCst) {
            // A failure has poisoned the group, which the next write tells.
            let _ = inner.sync_all();
        }
    }
}

impl Inner {
    fn wake_sync(&self, signals: &mut parking_lot::MutexGuard<'_, super::Signals>, wait: Duration) {
        let until = std::time::Instant::now() + wait;
        let set = signals.periodic;
        while !self.closing.load(Ordering::SeqCst) && signals.periodic == set {
            if self.wake.wait_until(signals, until).timed_out() {
                return;
            }
        }
    }

    pub(super) fn wake_background(&self) {
        let mut signals = self.signals.lock();
        signals.work = true;
        self.wake.notify_all();
    }

    /// Runs `job` whenever there may be work, again while it says that there is more.
    fn work_loop(&self, pause: Duration, job: impl Fn(&Inner) -> Result<bool>) {
        while !self.closing.load(Ordering::SeqCst) {
            let wait = match job(self) {
                Ok(true) => continue,
                Ok(false) => pause,
                Err(error) => {
                    self.note_failure(error);
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

    fn note_failure(&self, error: Error) {
        if self.closing.load(Ordering::SeqCst) {
            return;
        }
        Counters::add(&self.counters.background_failures, 1);
        self.signals.lock().failure = Some(error);
        self.flushed.notify_all();
    }

    /// Without background threads: does what they would do, here and now. A failure is kept for the
    /// writers that run into it.
    pub(super) fn work_inline(&self) {
        if self.view.load().full.is_empty() {
            return;
        }
        let work = || -> Result<()> {
            self.flush_full()?;
            while self.merge_once()? {}
            Ok(())
        };
        if let Err(error) = work() {
            self.note_failure(error);
        }
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
        let log = newer.unwrap_or(&view.active).log();
        let write = |edit: &mut Edit| {
            for (id, memtable) in generation.filled() {
                // A dropped tree has nothing to flush.
                if let Some(tree) = view.version.trees.get(&id) {
                    workshop.flush(tree, memtable, generation.component(), edit)?;
                }
            }
            edit.last_seq = Some(generation.last());
            edit.log = log;
            let segments = self.segments.lock().clone();
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
            self.segments
                .lock()
                .retain(|segment| segment.number != done);
            // An old segment that stays is removed at the next opening.
            let _ = self.source.fs.remove(&log_path(&self.source.dir, done));
        }
        self.signals.lock().failure = None;
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
        edit: &Edit,
        change: impl FnOnce(&View, Arc<Version>) -> View,
    ) -> Result<()> {
        let mut versions = self.manifest.lock();
        self.check_poison()?;
        let before = self.view.load_full();
        let options = |name: &str, config: &[u8]| self.provider.tree_options(name, config);
        let Some(manifest) = &mut versions.manifest else {
            return Err(Error::Invalid(
                "no manifest to install a version in".to_string(),
            ));
        };
        let mut version = before
            .version
            .apply(edit, &self.source, &options, &self.source.dir)?;
        version.extend_bitmaps(edit)?;
        if edit.new_tables().next().is_some() {
            // The manifest must not name what a power cut can take.
            self.sync_names()?;
        }
        if let Err(failed) = manifest.append(edit) {
            if !(failed.rolled_back && failed.error.is_disk_full()) {
                // What of the record is on disk is not known.
                self.poison_with(&failed.error);
            }
            return Err(failed.error);
        }
        versions.log = edit.log.unwrap_or(versions.log);
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
        Ok(())
    }

    /// Does the most urgent merge; false when there is none.
    pub(super) fn merge_once(&self) -> Result<bool> {
        let _guard = self.merging.lock();
        if self.closing.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let view = self.view.load_full();
        let Some((tree, choice)) = most_urgent(&view, u64::MAX) else {
            return Ok(false);
        };
        self.merge(&view, tree, choice, &self.closing)?;
        Ok(true)
    }

    /// Does the small merges that are due, as a part of closing: a store that is opened for a few
    /// writes at a time has no other moment for them, and would gather runs.
    pub(super) fn merge_small(&self) -> Result<()> {
        let _guard = self.merging.lock();
        let never = AtomicBool::new(false);
        loop {
            let view = self.view.load_full();
            let Some((tree, choice)) = most_urgent(&view, SMALL_MERGE) else {
                return Ok(());
            };
            self.merge(&view, tree, choice, &never)?;
        }
    }

    /// Carries out `choice` on `tree`, and the same components of the trees that follow it, and
    /// installs all of it at once.
    fn merge(
        &self,
        view: &View,
        tree: &Arc<TreeVersion>,
        choice: Choice,
        closing: &AtomicBool,
    ) -> Result<()> {
        self.start_writing(&mut self.writer.lock())?;
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
        self.work(write, |view, version| View {
            active: view.active.clone(),
            full: view.full.clone(),
            version,
        })
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
        trees.sort_unstable();
        for (_, _, id) in trees {
            let view = self.view.load_full();
            let Some(tree) = view.version.trees.get(&id) else {
                continue;
            };
            if let Some(choice) = tree.options.policy.pick_all(tree) {
                self.merge(&view, tree, choice, &self.closing)?;
            }
        }
        Ok(())
    }

    pub(super) fn leave_out(&self, tree: TreeId) -> Result<()> {
        let _guard = self.merging.lock();
        let view = self.view.load_full();
        let tree = view.version.trees.get(&tree).ok_or_else(|| no_tree(tree))?;
        let by = tree.options.superseded.as_ref();
        let bitmap = by.and_then(|by| view.version.tree_named(&by.tree));
        let numbers = |tree: &TreeVersion| {
            let tables = tree.runs.iter().flat_map(|run| run.tables.iter());
            tables.map(|table| table.meta().number).collect::<Vec<_>>()
        };
        // Files are numbered as they are begun.
        let told = bitmap.and_then(|bitmap| numbers(bitmap).into_iter().max());
        if numbers(tree).into_iter().min() < told
            && let Some(choice) = tree.options.policy.all(tree)
        {
            self.merge(&view, tree, choice, &self.closing)?;
        }
        Ok(())
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

/// The merge of at most `bytes` that is the most urgent: its tree and what to merge. Trees that
/// follow others are merged with them.
fn most_urgent(view: &View, bytes: u64) -> Option<(&Arc<TreeVersion>, Choice)> {
    let trees = view.version.trees.values();
    let leads = trees.filter(|tree| tree.options.follows.is_none());
    let picked = leads.filter_map(|tree| {
        let (score, choice) = tree.options.policy.pick(tree)?;
        (choice.size() <= bytes).then_some((score, tree, choice))
    });
    let (_, tree, choice) = picked.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((tree, choice))
}

pub(super) fn no_tree(id: TreeId) -> Error {
    Error::Invalid(format!("the group has no tree {id}"))
}

impl super::Internals<'_> {
    pub(crate) fn next_tree(&self) -> TreeId {
        self.0.manifest.lock().next_tree
    }

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
