//! The bitmaps of bitmap trees: what their tables hold, in memory. Read once when the group is opened;
//! later each installed version takes over the one before and adds what its new tables have.
//!
//! A table that cannot be read costs nobody else the opening: the tree's bitmap has what could be read, which is true
//! of each number, and says that it may lack others ([`TreeVersion::damage`](super::TreeVersion::damage)).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Edit, RunCursor, TableFile, Version};
use crate::cursor::Cursor;
use crate::entry::key_seq;
use crate::error::{Error, Result};
use crate::seqset::SeqSet;
use crate::table::ReadOptions;

const READAHEAD: usize = 256 << 10;

impl Version {
    /// Reads the bitmaps of all bitmap trees: of a version that was rebuilt from the manifest.
    pub(crate) fn load_bitmaps(&mut self) {
        for tree in self.trees.values_mut().filter(|tree| tree.options.bitmap) {
            let (mut bitmap, mut damage) = (SeqSet::new(), None);
            for table in tree.runs.iter().flat_map(|run| run.tables.iter()) {
                if let Err(error) = add_table(&mut bitmap, table) {
                    damage.get_or_insert(Arc::new(error));
                }
            }
            let tree = Arc::make_mut(tree);
            (tree.bitmap, tree.damage) = (Arc::new(bitmap), damage);
        }
    }

    /// Brings the bitmaps up to date after `edit`. What a tree's own merge writes is there already.
    pub(crate) fn extend_bitmaps(&mut self, edit: &Edit) -> Result<()> {
        let merged: BTreeSet<_> = edit.removed.iter().map(|at| at.tree).collect();
        for new in edit.added.iter().filter(|new| !merged.contains(&new.tree)) {
            let Some(tree) = self.trees.get_mut(&new.tree) else {
                continue;
            };
            if !tree.options.bitmap {
                continue;
            }
            let tables = tree.runs.iter().flat_map(|run| run.tables.iter());
            let mut tables = tables.filter(|table| table.meta().number == new.meta.number);
            let Some(table) = tables.next().cloned() else {
                continue;
            };
            let tree = Arc::make_mut(tree);
            add_table(Arc::make_mut(&mut tree.bitmap), &table)?;
        }
        Ok(())
    }
}

fn add_table(bitmap: &mut SeqSet, table: &Arc<TableFile>) -> Result<()> {
    let options = ReadOptions {
        fill_cache: false,
        readahead: READAHEAD,
    };
    let mut entries = RunCursor::new(Arc::new(vec![table.clone()]), options);
    entries.seek_first()?;
    while entries.valid() {
        let seq = key_seq(entries.key())
            .ok_or_else(|| Error::corruption(&table.path(), 0, "a key is not a sequence number"))?;
        bitmap.insert(seq);
        entries.next()?;
    }
    Ok(())
}
