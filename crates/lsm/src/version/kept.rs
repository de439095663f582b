//! The versions of named snapshots (`group/snapshots.rs` keeps and drops them).
//!
//! A kept version is a separate version beside the newest one: trees with their configurations and
//! watermarks, and tables, which are shared with the newest version and other kept ones as far as
//! they have the same ([`Known`]). So compactions need not care: they remove any table from the
//! newest version, and its file stays, since tables are counted once for each version that has them
//! ([`TableFile::hold_on`](super::TableFile::hold_on)). Everything that a reader needs is a
//! function of the version: the obsolete writes (the sets of bitmap trees are read from the tables
//! that they had then), how far these are complete (the watermarks), the layout of the trees (their
//! configurations).
//!
//! In the manifest it is one item of an edit, which contains the version as a nested edit: so it is
//! added atomically.

use std::sync::Arc;

use super::edit::{Edit, NewKept, Pictured};
use super::known::Known;
use super::version::{Kept, Version};

impl Version {
    /// The version without the kept ones beside it, as the edit that creates it.
    pub(crate) fn as_picture(&self) -> Edit {
        Edit {
            cursors: Vec::new(),
            ..self.own_snapshot()
        }
    }

    /// The kept versions beside this one, for the edit that creates all of it.
    pub(super) fn kept_pictures(&self) -> Vec<NewKept> {
        let kept = self.kept.iter().map(|(name, kept)| NewKept {
            name: name.clone(),
            seq: kept.seq,
            time: kept.time,
            picture: kept.picture().as_picture(),
            of: Pictured::default(),
        });
        kept.collect()
    }

    /// Replaces own tables by the same ones in `tables`, in the kept versions, too.
    pub(super) fn reuse_tables(&mut self, tables: &Known) {
        self.reuse_own_tables(tables);
        if self.kept.is_empty() {
            return;
        }
        let kept = self.kept.iter().map(|(name, kept)| {
            let mut version = kept.picture().clone();
            version.reuse_own_tables(tables);
            let kept = Kept::new(kept.seq, kept.time, version);
            (name.clone(), Arc::new(kept))
        });
        self.kept = Arc::new(kept.collect());
    }

    fn reuse_own_tables(&mut self, tables: &Known) {
        for tree in self.trees.values_mut() {
            for run in &mut Arc::make_mut(tree).runs {
                for table in Arc::make_mut(&mut run.tables) {
                    if let Some(known) = tables.same(table) {
                        *table = Arc::clone(known);
                    }
                }
            }
        }
    }
}
