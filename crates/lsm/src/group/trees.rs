//! Creating, dropping and configuring trees.

use super::Inner;
use super::install::{Retired, no_tree};
use super::sequencer::Writer;
use crate::batch::TreeId;
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::generation::{Generation, View};
use crate::version::{Edit, MAX_TREE};

/// Changes of trees that happen together or not at all.
#[derive(Debug, Clone, Default)]
pub struct TreeChange {
    /// Trees to create: name and configuration of each. A tree that is dropped leaves its name free.
    pub created: Vec<(String, Vec<u8>)>,
    /// Trees that get another configuration; their options are asked for again.
    pub configured: Vec<(TreeId, Vec<u8>)>,
    /// Trees to drop with all they hold.
    pub dropped: Vec<TreeId>,
}

impl Inner {
    /// Carries out the change that `make` returns when it is told the last sequence number so far.
    pub(super) fn change(
        &self,
        make: &mut dyn FnMut(Seq) -> Result<TreeChange>,
    ) -> Result<Vec<TreeId>> {
        // A flush or merge under way may be about to add to a tree that is dropped.
        let _merges = self.scheduler.merging.lock();
        let _flushes = self.scheduler.flushing.lock();
        self.change_without_drops(make)
    }

    /// The same for a change that drops nothing: needs not wait for merges and flushes.
    fn change_without_drops(
        &self,
        make: &mut dyn FnMut(Seq) -> Result<TreeChange>,
    ) -> Result<Vec<TreeId>> {
        // Dropped after the lock.
        let _retired;
        let mut writer = self.sequencer.writer.lock();
        self.start_writing(&mut writer)?;
        let last = writer.last;
        self.sequencer.sync_all()?;
        self.sequencer.publish(last);
        let change = make(last)?;
        let mut edit = Edit::default();
        self.add_change(change, &mut edit)?;
        _retired = self.change_trees(&mut writer, &mut edit)?;
        Ok(edit.created.iter().map(|(id, _, _)| *id).collect())
    }

    pub(super) fn create_trees(&self, trees: &[(String, Vec<u8>)]) -> Result<Vec<TreeId>> {
        self.change_without_drops(&mut |_| {
            Ok(TreeChange {
                created: trees.to_vec(),
                ..TreeChange::default()
            })
        })
    }

    pub(super) fn drop_trees(&self, trees: &[TreeId]) -> Result<()> {
        let drop = |_| {
            Ok(TreeChange {
                dropped: trees.to_vec(),
                ..TreeChange::default()
            })
        };
        self.change(&mut { drop }).map(|_| ())
    }

    pub(super) fn configure_tree(&self, tree: TreeId, config: Vec<u8>) -> Result<()> {
        let configure = |_| {
            Ok(TreeChange {
                configured: vec![(tree, config.clone())],
                ..TreeChange::default()
            })
        };
        self.change_without_drops(&mut { configure }).map(|_| ())
    }

    /// Checks a change against the trees that are there, and puts it into `edit`. Under the writer
    /// lock, so that it stays true.
    pub(super) fn add_change(&self, change: TreeChange, edit: &mut Edit) -> Result<()> {
        let view = self.versions.view.load();
        let known = change.dropped.iter();
        let mut known = known.chain(change.configured.iter().map(|(id, _)| id));
        if let Some(unknown) = known.find(|id| !view.version.trees.contains_key(id)) {
            return Err(no_tree(*unknown));
        }
        let next = self.versions.manifest.lock().next_tree;
        let after = next.saturating_add(change.created.len() as TreeId);
        for (id, (name, config)) in (next..).zip(change.created) {
            let named = view.version.tree_named(&name);
            let taken = named.is_some_and(|tree| !change.dropped.contains(&tree.id));
            if taken || edit.created.iter().any(|(_, other, _)| *other == name) {
                return Err(Error::Invalid(format!("a tree called {name} exists")));
            }
            edit.created.push((id, name, config));
        }
        if after > MAX_TREE {
            return Err(Error::Limit {
                what: "the number of a tree",
                limit: MAX_TREE.into(),
                value: after.into(),
            });
        }
        edit.next_tree = (after > next).then_some(after);
        edit.configured = change.configured;
        edit.dropped = change.dropped;
        Ok(())
    }

    /// Installs an edit of trees, and starts a generation: its memtables are made with the options that a tree has.
    pub(super) fn change_trees(&self, writer: &mut Writer, edit: &mut Edit) -> Result<Retired> {
        if !self.versions.view.load().active.is_empty() {
            self.rotate(writer)?;
        }
        let after = writer.last;
        self.install(edit, |view, version| {
            let active = Generation::new(after);
            let bytes = self.core.options.generation_bytes();
            active.count_in(&self.core.budget, bytes);
            if let Some(log) = view.active.log() {
                active.set_log(log);
            }
            View {
                active,
                ..view.with(version)
            }
        })
    }
}
