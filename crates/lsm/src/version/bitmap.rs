//! The bitmaps of bitmap trees: what their tables hold, in memory. Read once when the group is opened;
//! later each installed version takes over the one before and adds what was written to its new tables ([`Edit::bits`]).
//!
//! A table that cannot be read costs nobody else the opening: the tree's bitmap has what could be read, which is true
//! of each number, and says that it may lack others ([`TreeVersion::damage`](super::TreeVersion::damage)).

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

    /// Brings the bitmaps up to date after `edit`, which was applied. What a tree's own merge writes is there already.
    pub(crate) fn extend_bitmaps(&mut self, edit: &Edit) {
        for (id, bits) in &edit.bits {
            if let Some(tree) = self.trees.get_mut(id).filter(|tree| tree.options.bitmap) {
                let bitmap = &mut Arc::make_mut(tree).bitmap;
                let bitmap = Arc::make_mut(bitmap);
                for seq in bits.iter() {
                    bitmap.insert(seq);
                }
            }
        }
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
