//! The sets of bitmap trees: what their tables hold, in memory (`obsolete/mod.rs`). Read when the group is opened, a chunk at a time;
//! later each installed version takes over the one before and adds what its new tables have.
//!
//! A table that cannot be read costs nobody else the opening: the tree's set has what could be read, which is true
//! of each number, and says that it may lack others ([`TreeVersion::damage`](super::TreeVersion::damage)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Edit, RunCursor, TableFile, TreeVersion, Version};
use crate::batch::TreeId;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::obsolete::{SeqSet, decode};
use crate::table::ReadOptions;

const READAHEAD: usize = 256 << 10;

impl Version {
    /// Reads the sets of all bitmap trees: of a version that was rebuilt from the manifest.
    pub(crate) fn load_bitmaps(&mut self) {
        let ordinal = self.ordinal;
        for tree in self.trees.values_mut().filter(|tree| tree.options.bitmap) {
            let (mut bitmap, mut damage) = (SeqSet::new(), None);
            for table in tree.runs.iter().flat_map(|run| run.tables.iter()) {
                if let Err(error) = add_table(&mut bitmap, table) {
                    damage.get_or_insert(Arc::new(error));
                }
            }
            bitmap.shrink();
            let tree = Arc::make_mut(tree);
            (tree.bitmap, tree.damage) = (Arc::new(bitmap), damage);
            tree.changed = ordinal;
        }
    }

    /// Brings the sets up to date after `edit`. What a tree's own merge writes is there already.
    pub(crate) fn extend_bitmaps(&mut self, edit: &Edit) -> Result<()> {
        let merged: BTreeSet<_> = edit.removed.iter().map(|at| at.tree).collect();
        let mut added: BTreeMap<TreeId, BTreeSet<u64>> = BTreeMap::new();
        for new in &edit.added {
            added.entry(new.tree).or_default().insert(new.meta.number);
        }
        let ordinal = self.ordinal;
        if let Some((id, left)) = &edit.swept
            && let Some(tree) = self.trees.get_mut(id)
        {
            let tree = Arc::make_mut(tree);
            tree.bitmap = left.clone();
            // What came since the sweep looked.
            let new = added.get(id);
            let is_new = |number| new.is_some_and(|new| new.contains(&number));
            add_tables(tree, |number| !is_new(number), ordinal)?;
        }
        let mut told = Vec::new();
        for (id, new) in added.iter().filter(|(id, _)| !merged.contains(id)) {
            if let Some(tree) = self.trees.get_mut(id).filter(|tree| tree.options.bitmap) {
                told.push((tree.name.clone(), tree.changed));
                add_tables(Arc::make_mut(tree), |number| new.contains(&number), ordinal)?;
            }
        }
        for (set, before) in told {
            self.see_told(edit, &set, before);
        }
        Ok(())
    }

    /// Where a merge of one tree added to a set just what it dropped itself, its tables have nothing of that either.
    fn see_told(&self, edit: &Edit, set: &str, before: u64) {
        let mut merged: BTreeSet<TreeId> = edit.removed.iter().map(|at| at.tree).collect();
        let (Some(id), None) = (merged.pop_first(), merged.pop_first()) else {
            return;
        };
        let Some(tree) = self.trees.get(&id) else {
            return;
        };
        let by = tree.options.superseded.as_ref();
        if by.is_none_or(|by| by.tree != set) {
            return;
        }
        for table in tables(tree) {
            let number = table.meta().number;
            if edit.saw.get(&number).is_some_and(|saw| *saw >= before) {
                table.saw.store(self.ordinal, Ordering::Release);
            }
        }
    }
}

fn tables(tree: &TreeVersion) -> impl Iterator<Item = &Arc<TableFile>> {
    tree.runs.iter().flat_map(|run| run.tables.iter())
}

/// Adds the tables whose numbers are wanted.
fn add_tables(tree: &mut TreeVersion, wanted: impl Fn(u64) -> bool, ordinal: u64) -> Result<()> {
    let mut bitmap = tree.bitmap.clone();
    let mut changed = false;
    for table in tables(tree).filter(|table| wanted(table.meta().number)) {
        add_table(Arc::make_mut(&mut bitmap), table)?;
        changed = true;
    }
    if changed {
        Arc::make_mut(&mut bitmap).shrink();
        (tree.bitmap, tree.changed) = (bitmap, ordinal);
    }
    Ok(())
}

/// Adds what a table of a bitmap tree holds to a set.
pub(crate) fn add_table(bitmap: &mut SeqSet, table: &Arc<TableFile>) -> Result<()> {
    let options = ReadOptions {
        fill_cache: false,
        readahead: READAHEAD,
    };
    let mut entries = RunCursor::new(Arc::new(vec![table.clone()]), options);
    entries.seek_first()?;
    while entries.valid() {
        decode(entries.key(), entries.value(), bitmap)
            .map_err(|what| Error::corruption(&table.path(), 0, what))?;
        entries.next()?;
    }
    Ok(())
}
