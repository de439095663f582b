//! The in-memory sets of bitmap trees: the numbers in their tables (`obsolete/mod.rs`). Read when
//! the group is opened, a chunk at a time; later each installed version inherits the set of the one
//! before and adds the numbers in its new tables ([`Edit::bits`]).
//!
//! An unreadable table does not fail the opening: the tree's set has the numbers that could be
//! read, which are correct, and is marked as possibly incomplete
//! ([`TreeVersion::damage`](super::TreeVersion::damage)).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::edit::Edit;
use super::file::TableFile;
use super::run_cursor::RunCursor;
use super::tree::TreeVersion;
use super::version::Version;
use crate::batch::TreeId;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::obsolete::{SeqSet, decode};
use crate::table::ReadOptions;

const READAHEAD: usize = 256 << 10;

impl Version {
    /// Reads the sets of all bitmap trees, in a version rebuilt from the manifest.
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

    /// Updates the sets after `edit` was applied. A compaction of the bitmap tree itself adds no
    /// numbers.
    pub(crate) fn extend_bitmaps(&mut self, edit: &Edit) {
        let ordinal = self.ordinal;
        for (&id, swept) in &edit.swept {
            let Some(tree) = self.trees.get_mut(&id) else {
                continue;
            };
            let tree = Arc::make_mut(tree);
            // Numbers added since the sweep read the set: few, if any.
            let mut late = SeqSet::clone(&tree.bitmap);
            late.remove_all(&swept.before);
            tree.bitmap = swept.left.clone();
            tree.add_bits(&late, ordinal);
        }
        let mut changed_sets = Vec::new();
        for (id, bits) in &edit.bits {
            if let Some(tree) = self.trees.get_mut(id).filter(|tree| tree.options.bitmap) {
                changed_sets.push((tree.name.clone(), tree.changed));
                Arc::make_mut(tree).add_bits(bits, ordinal);
            }
        }
        if !changed_sets.is_empty() {
            let merged: BTreeSet<TreeId> = edit.removed.iter().map(|at| at.tree).collect();
            for (set, before) in changed_sets {
                self.note_own_drops(edit, &merged, &set, before);
            }
        }
    }

    /// Where a compaction of one tree added only its own drops to a set, its tables have no entries
    /// of these either.
    fn note_own_drops(&self, edit: &Edit, merged: &BTreeSet<TreeId>, set: &str, before: u64) {
        let trees = merged.iter().filter_map(|id| self.trees.get(id));
        let mut trees = trees.filter(|tree| {
            let by = tree.options.superseded.as_ref();
            by.is_some_and(|by| by.tree == set)
        });
        let (Some(tree), None) = (trees.next(), trees.next()) else {
            return;
        };
        for table in tree.tables() {
            let number = table.meta().number;
            if edit.saw.get(&number).is_some_and(|saw| *saw >= before) {
                table.see(self.ordinal);
            }
        }
    }
}

impl Version {
    /// Updates the sets after another process's edits, applied to `before`. An unreadable table is
    /// damage, as at opening.
    pub(crate) fn follow_bitmaps(&mut self, before: &Version) {
        let ordinal = self.ordinal;
        for tree in self.trees.values_mut().filter(|tree| tree.options.bitmap) {
            let known = before.trees.get(&tree.id);
            if known.is_some_and(|known| Arc::ptr_eq(known, tree)) {
                continue;
            }
            let there: BTreeSet<u64> = tree.tables().map(|table| table.meta().number).collect();
            let read = known.filter(|known| known.damage.is_none() && known.is_within(&there));
            let numbers: BTreeSet<u64> = read
                .into_iter()
                .flat_map(|read| read.tables().map(|table| table.meta().number))
                .collect();
            let mut bitmap = read.map_or_else(SeqSet::new, |read| SeqSet::clone(&read.bitmap));
            let mut damage = None;
            for table in tree.tables() {
                if numbers.contains(&table.meta().number) {
                    continue;
                }
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
}

impl TreeVersion {
    /// True when all tables of the tree have these numbers.
    fn is_within(&self, numbers: &BTreeSet<u64>) -> bool {
        self.tables()
            .all(|table| numbers.contains(&table.meta().number))
    }

    /// Adds numbers to the set of a bitmap tree, in the version `ordinal`.
    fn add_bits(&mut self, bits: &SeqSet, ordinal: u64) {
        if !bits.is_empty() {
            let bitmap = Arc::make_mut(&mut self.bitmap);
            bitmap.add_all(bits);
            bitmap.shrink();
            self.changed = ordinal;
        }
    }
}

/// Adds the numbers in a table of a bitmap tree to a set.
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
