//! Merges: the one that is due most, all that are due, and those that somebody asks for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Inner;
use super::failures::{Attempt, most_urgent};
use super::install::no_tree;
use crate::batch::TreeId;
use crate::compaction::Choice;
use crate::compaction::job::Workshop;
use crate::error::{Error, Result};
use crate::generation::View;
use crate::version::{Edit, TreeVersion};

impl Inner {
    /// Does the merges that are due. Failures are noted with their trees, or met by the next flush.
    pub(super) fn merge_inline(&self) {
        self.begin_round();
        while let Ok(true) = self.merge_once() {}
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
