//! Creating, dropping and configuring trees.

use std::sync::Arc;

use super::background::no_tree;
use super::{Inner, Writer};
use crate::batch::TreeId;
use crate::error::{Error, Result};
use crate::generation::{Generation, View};
use crate::version::{Edit, MAX_TREE};

impl Inner {
    pub(super) fn create_trees(&self, trees: &[(String, Vec<u8>)]) -> Result<Vec<TreeId>> {
        let mut writer = self.writer.lock();
        self.start_writing(&mut writer)?;
        let view = self.view.load_full();
        let next = self.manifest.lock().next_tree;
        let mut edit = Edit::default();
        for (id, (name, config)) in (next..).zip(trees) {
            let taken = view.version.tree_named(name).is_some();
            if taken || edit.created.iter().any(|(_, other, _)| other == name) {
                return Err(Error::Invalid(format!("a tree called {name} exists")));
            }
            edit.created.push((id, name.clone(), config.clone()));
        }
        let after = next.saturating_add(trees.len() as TreeId);
        if after > MAX_TREE {
            return Err(Error::Limit {
                what: "the number of a tree",
                limit: MAX_TREE.into(),
                value: after.into(),
            });
        }
        edit.next_tree = Some(after);
        let ids = edit.created.iter().map(|(id, _, _)| *id).collect();
        self.change_trees(&mut writer, edit)?;
        self.manifest.lock().next_tree = after;
        Ok(ids)
    }

    pub(super) fn drop_trees(&self, trees: &[TreeId]) -> Result<()> {
        let edit = Edit {
            dropped: trees.to_vec(),
            ..Edit::default()
        };
        let _merges = self.merging.lock();
        let _flushes = self.flushing.lock();
        let mut writer = self.writer.lock();
        self.require(trees)?;
        self.start_writing(&mut writer)?;
        self.change_trees(&mut writer, edit)
    }

    pub(super) fn configure_tree(&self, tree: TreeId, config: Vec<u8>) -> Result<()> {
        let edit = Edit {
            configured: vec![(tree, config)],
            ..Edit::default()
        };
        let mut writer = self.writer.lock();
        self.require(&[tree])?;
        self.start_writing(&mut writer)?;
        self.change_trees(&mut writer, edit)
    }

    fn require(&self, trees: &[TreeId]) -> Result<()> {
        let view = self.view.load();
        match trees.iter().find(|id| !view.version.trees.contains_key(id)) {
            Some(id) => Err(no_tree(*id)),
            None => Ok(()),
        }
    }

    /// Installs an edit of trees, and starts a generation that has a memtable for each of them.
    fn change_trees(&self, writer: &mut Writer, edit: Edit) -> Result<()> {
        if !self.view.load().active.is_empty() {
            self.rotate(writer)?;
        }
        let after = writer.next_seq - 1;
        self.install(&edit, |view, version| {
            let active = Generation::new(&version, after);
            if let Some(log) = view.active.log() {
                active.set_log(log);
            }
            View {
                active,
                full: view.full.clone(),
                version: Arc::clone(&version),
            }
        })
    }
}
