//! Merges: those that are due most, all that are due, and those that somebody asks for.
//!
//! A store of a thousand datasets has small trees that want to be merged by the thousand at a time. So a job takes the
//! most urgent merge and, if that is small, other small ones with it: their tables share files, and all of them are
//! installed with one manifest record. They stay apart otherwise: where the merge of one tree fails the others go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Inner;
use super::failures::Attempt;
use super::install::no_tree;
use crate::batch::TreeId;
use crate::compaction::Choice;
use crate::compaction::job::Workshop;
use crate::error::{Error, Result};
use crate::generation::View;
use crate::version::{Edit, TreeVersion};

/// A merge of at most so many bytes is done together with others.
const SMALL: u64 = 1 << 20;

/// Bytes, and merges, that are done together.
const TOGETHER: u64 = 8 << 20;
const MOST: usize = 1024;

/// A merge that is to be done.
pub(super) struct Merge {
    tree: Arc<TreeVersion>,
    choice: Choice,
    /// Whether the tree is in order again when it succeeds.
    whole: bool,
}

impl Inner {
    /// Does the merges that are due. Failures are noted with their trees, or met by the next flush.
    pub(super) fn merge_inline(&self) {
        self.begin_round();
        while let Ok(true) = self.merge_once() {}
    }

    /// Does the most urgent merges; false when there is none. A merge that fails is noted with its tree, and counts
    /// as done: the next one is another tree's.
    pub(super) fn merge_once(&self) -> Result<bool> {
        let _guard = self.merging.lock();
        if self.closing.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.merge_some(u64::MAX, &self.closing)
    }

    /// The same for merges of at most `bytes` each, under the `merging` lock.
    pub(super) fn merge_some(&self, bytes: u64, closing: &AtomicBool) -> Result<bool> {
        self.move_tables()?;
        let view = self.view.load_full();
        let merges = due(&view, bytes, |tree| self.attempt(tree));
        if merges.is_empty() {
            return Ok(false);
        }
        self.start_writing(&mut self.writer.lock())?;
        let failed = self.merge(&view, &merges, closing);
        let store = failed.into_iter().find(|(_, e)| !self.is_contained(e));
        store.map_or(Ok(true), |(_, error)| Err(error))
    }

    /// Merges until no policy asks for more. Trees whose merges failed before are tried, too; what fails now is
    /// passed over, and the first error returned in the end.
    pub(super) fn merge_all(&self) -> Result<()> {
        let mut failed: BTreeMap<TreeId, Error> = BTreeMap::new();
        let mut first = None;
        loop {
            let _guard = self.merging.lock();
            self.check_open()?;
            self.move_tables()?;
            let view = self.view.load_full();
            let merges = due(&view, u64::MAX, |id| match failed.contains_key(&id) {
                true => Attempt::None,
                false => Attempt::Any,
            });
            if merges.is_empty() {
                return first.map_or(Ok(()), Err);
            }
            self.start_writing(&mut self.writer.lock())?;
            for (id, error) in self.merge(&view, &merges, &self.closing) {
                self.goes_on_after(&error)?;
                first.get_or_insert_with(|| error.clone());
                failed.insert(id, error);
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

    /// Carries out merges, each with those of the same components of the trees that follow its tree, and installs all
    /// of them at once. Returns what failed: nothing of it is installed.
    fn merge(&self, view: &View, merges: &[Merge], closing: &AtomicBool) -> Vec<(TreeId, Error)> {
        let next_file = || self.new_file();
        let shared = self.shared_files(merges.len());
        let workshop = Workshop {
            closing,
            shared: shared.as_ref(),
            ..self.workshop(&next_file)
        };
        let mut failed: BTreeMap<TreeId, Error> = BTreeMap::new();
        let write = |edit: &mut Edit| {
            for merge in merges {
                let mut part = Edit::default();
                let Err(error) = merge_one(&workshop, view, merge, &mut part) else {
                    edit.absorb(part);
                    continue;
                };
                self.remove_files(&part);
                let shared_failed = shared.as_ref().is_some_and(|shared| shared.failed());
                failed.insert(merge.tree.id, error.clone());
                if shared_failed || !self.is_contained(&error) || failed.len() == merges.len() {
                    return Err(error);
                }
            }
            shared.as_ref().map_or(Ok(()), |shared| shared.finish(edit))
        };
        if let Err(error) = self.work(write, |view, version| view.with(version)) {
            for merge in merges {
                failed.entry(merge.tree.id).or_insert_with(|| error.clone());
            }
        }
        for Merge { tree, whole, .. } in merges {
            match failed.get(&tree.id) {
                Some(error) => self.note_merge_failure(&view.version, tree, error, *whole),
                None if *whole => self.clear_merge_failure(tree.id),
                None => {}
            }
        }
        failed.into_iter().collect()
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
        let mut first = None;
        for (_, _, id) in trees {
            let view = self.view.load_full();
            let Some(tree) = view.version.trees.get(&id) else {
                continue;
            };
            let Some(choice) = tree.options.policy.pick_all(tree) else {
                continue;
            };
            self.start_writing(&mut self.writer.lock())?;
            let merge = Merge {
                tree: tree.clone(),
                choice,
                whole: true,
            };
            for (_, error) in self.merge(&view, &[merge], &self.closing) {
                // One damaged tree does not keep the others from being merged.
                self.goes_on_after(&error)?;
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
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
            self.start_writing(&mut self.writer.lock())?;
            let merge = Merge {
                tree: tree.clone(),
                choice,
                whole: true,
            };
            let failed = self.merge(&view, &[merge], &self.closing);
            return failed
                .into_iter()
                .next()
                .map_or(Ok(()), |(_, error)| Err(error));
        }
        Ok(())
    }
}

/// Carries out a merge, and the same components of the trees that follow, into `edit`.
fn merge_one(workshop: &Workshop<'_>, view: &View, merge: &Merge, edit: &mut Edit) -> Result<()> {
    let Merge { tree, choice, .. } = merge;
    for follower in view.version.followers(&tree.name) {
        let choice = choice.followed_by(follower);
        if choice.inputs.len() > 1 {
            workshop.merge(follower, &choice, edit)?;
        }
    }
    workshop.merge(tree, choice, edit)
}

/// The merge of at most `bytes` that is the most urgent, of those that `attempt` allows, and if it is small others
/// that are, the most urgent first. Trees that follow others are merged with them.
fn due(view: &View, bytes: u64, attempt: impl Fn(TreeId) -> Attempt) -> Vec<Merge> {
    let trees = view.version.trees.values();
    let leads = trees.filter(|tree| tree.options.follows.is_none());
    let due = leads.filter_map(|tree| match attempt(tree.id) {
        Attempt::Any => {
            let (score, size) = tree.due.merge?;
            (size <= bytes).then_some((score, tree, None))
        }
        Attempt::Newer(above) => {
            let (score, choice) = tree.options.policy.pick_above(tree, above)?;
            (choice.size() <= bytes).then_some((score, tree, Some(choice)))
        }
        Attempt::None => None,
    });
    let mut due: Vec<_> = due.collect();
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut merges: Vec<Merge> = Vec::new();
    let mut total = 0;
    for (_, tree, newer) in due {
        let whole = newer.is_none();
        let picked = || Some(tree.options.policy.pick(tree)?.1);
        let Some(choice) = newer.or_else(picked) else {
            continue;
        };
        let size = choice.size();
        if !merges.is_empty() && (size > SMALL || total + size > TOGETHER) {
            continue;
        }
        total += size;
        merges.push(Merge {
            tree: tree.clone(),
            choice,
            whole,
        });
        if total > SMALL && merges.len() == 1 || merges.len() >= MOST {
            break;
        }
    }
    merges
}
