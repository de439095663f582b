//! Sweeps of the sets of obsolete writes: numbers are forgotten that nobody can ask about any more (`obsolete/mod.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Inner;
use super::failures::Attempt;
use super::install::no_tree;
use crate::batch::TreeId;
use crate::compaction::sweep::{Sweep, allowance, is_clean, is_settled};
use crate::error::{Error, Result};
use crate::obsolete::{self, SeqSet};
use crate::version::{ComponentId, Edit, TreeVersion, Version};

/// Bytes that a sweep reads before merges have their turn again.
const STEP: u64 = 64 << 20;

/// Sweeps under way, and what those before have left. Behind its lock and the `merging` lock.
#[derive(Default)]
pub(super) struct Sweeps {
    under_way: BTreeMap<TreeId, Sweep>,
    /// Bytes of sets after their last sweep: a set is swept again when it has doubled.
    left: BTreeMap<TreeId, usize>,
}

impl Inner {
    /// Does a step of a sweep that is due, under the `merging` lock; false when there is none. Before sets are `times` as large as they may be,
    /// none is.
    pub(super) fn sweep_due(&self, times: usize) -> Result<bool> {
        let view = self.view.load_full();
        let is_there = |id: &TreeId| view.version.trees.contains_key(id);
        let mut sweeps = self.sweeps.lock();
        sweeps.under_way.retain(|id, _| is_there(id));
        sweeps.left.retain(|id, _| is_there(id));
        drop(sweeps);
        let slack = self.options.bitmap_slack;
        let is_due = |set: &TreeVersion| {
            let sweeps = self.sweeps.lock();
            let left = sweeps.left.get(&set.id).copied().unwrap_or(0);
            let small = (2 * left).saturating_add(slack).saturating_mul(times);
            let memory = set.bitmap().memory();
            // What is small need not be held against anything.
            memory > small
                && memory > (allowance(&view.version, set, slack) + 2 * left).saturating_mul(times)
        };
        let sets = view.version.trees.values();
        let due = sets.filter(|set| set.options.bitmap && is_due(set));
        let mut due = due.filter(|set| is_settled(&view.version, set));
        let due = due.find(|set| matches!(self.attempt(set.id), Attempt::Any));
        let Some(set) = due else {
            return Ok(false);
        };
        match self.sweep(set.id, STEP) {
            Ok(_) => Ok(true),
            Err(error) if self.is_contained(&error) => {
                self.note_merge_failure(&view.version, set, &error, true);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Sweeps sets from begin to end, and leaves each in one run; those that are gone are passed over. Returns the
    /// first failure that was one set's.
    pub(super) fn sweep_each(&self, sets: Vec<TreeId>) -> Result<Option<Error>> {
        let mut first = None;
        for id in sets {
            // Nothing is dropped under it.
            let _guard = self.merging.lock();
            if !self.view.load().version.trees.contains_key(&id) {
                continue;
            }
            if let Err(error) = self.sweep_whole(id) {
                self.goes_on_after(&error)?;
                first.get_or_insert(error);
            }
        }
        Ok(first)
    }

    fn sweep_whole(&self, set: TreeId) -> Result<()> {
        self.sweeps.lock().under_way.remove(&set);
        while !self.sweep(set, u64::MAX)? {}
        Ok(())
    }

    /// A step of a sweep, under the `merging` lock. True when it was the last.
    fn sweep(&self, id: TreeId, bytes: u64) -> Result<bool> {
        let view = self.view.load_full();
        let set = view.version.trees.get(&id).ok_or_else(|| no_tree(id))?;
        let mut sweep = self.sweeps.lock().under_way.remove(&id);
        let mut sweep = sweep.take().unwrap_or_else(|| Sweep::new(set));
        let go_on = || match self.closing.load(std::sync::atomic::Ordering::Relaxed) {
            true => Err(Error::Closed),
            false => Ok(()),
        };
        let mut view = view.clone();
        loop {
            let set = view.version.trees.get(&id).ok_or_else(|| no_tree(id))?;
            if !sweep.read_tables(&view.version, set, bytes, &go_on)? {
                self.sweeps.lock().under_way.insert(id, sweep);
                return Ok(false);
            }
            // Writers read lists, and write them with more, under their lock; and each reads the view from a copy of its
            // own, none of which may be older than what is loaded here.
            let now = {
                let _no_write = self.writer.lock();
                let _no_change = self.view_change.lock();
                self.view.load_full()
            };
            let same_tables = Arc::ptr_eq(&now.version, &view.version);
            view = now;
            // Otherwise a flush came in between.
            if same_tables {
                break;
            }
        }
        let set = view.version.trees.get(&id).ok_or_else(|| no_tree(id))?;
        let forgotten = match is_settled(&view.version, set) {
            true => sweep.finish(&view, set)?.unwrap_or_default(),
            false => SeqSet::new(),
        };
        let left = self.replace(set, &forgotten)?;
        self.clear_merge_failure(id);
        self.sweeps.lock().left.insert(id, left);
        Ok(true)
    }

    /// Writes a set without what is forgotten in place of all its tables. Returns the bytes that it takes then.
    fn replace(&self, set: &Arc<TreeVersion>, forgotten: &SeqSet) -> Result<usize> {
        let mut left = SeqSet::clone(set.bitmap());
        left.remove_all(forgotten);
        left.shrink();
        let (before, memory) = (set.bitmap().len(), left.memory());
        let entries: u64 = set.tables().map(|table| table.meta().entries).sum();
        let is_one = set.runs.len() <= 1 && entries == obsolete::entries(&left);
        if left.len() == before && is_one {
            return Ok(memory);
        }
        self.start_writing(&mut self.writer.lock())?;
        let left = Arc::new(left);
        let spans = set.tables().map(|table| table.component());
        let component = spans.reduce(ComponentId::hull);
        let Some(component) = component else {
            return Ok(memory);
        };
        let next_file = || self.new_file();
        let workshop = self.workshop(&next_file);
        let write = |edit: &mut Edit| {
            edit.swept = Some((set.id, left.clone()));
            let forgotten = set.forgotten + (before - left.len());
            edit.forgotten.push((set.id, forgotten));
            workshop.replace_set(set, &left, component, edit)
        };
        self.work(write, |view, version| view.with(version))?;
        Ok(memory)
    }

    /// Merges trees into one run each, where a table of theirs may have something of a write that is in the tree's set.
    pub(super) fn leave_out(&self, trees: &[TreeId]) -> Result<()> {
        let choose = |version: &Version, tree: &TreeVersion| {
            let by = tree.options.superseded.as_ref()?;
            let set = version.tree_named(&by.tree)?;
            let is_clean = |table: &Arc<_>| is_clean(tree, table, set.bitmap(), set.changed);
            let clean = set.bitmap().is_empty() || tree.tables().all(is_clean);
            (!clean).then(|| tree.options.policy.all(tree)).flatten()
        };
        let failed = self.merge_each(trees.to_vec(), &choose)?;
        failed.map_or(Ok(()), Err)
    }
}
