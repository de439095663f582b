//! A cursor over all index entries of an index, including older ones of the same value and key: a
//! compaction may drop the newer entries that hide them. Repairs by index read with it.

use esker_lsm::{Cost, Cursor, EntryCursor, Kind, Seq, Snapshot};

use super::each::index_entries;
use super::kind::Attribute;
use crate::error::Result;

/// A cursor over the entries of an index, in the order of its tree.
pub(crate) struct AllEntries<'a> {
    attribute: &'a Attribute,
    cursor: EntryCursor,
    has_begun: bool,
}

impl<'a> AllEntries<'a> {
    /// A cursor before the first entry of the attribute's index.
    ///
    /// # Errors
    /// If the index has no tree.
    pub(crate) fn new(
        snapshot: &Snapshot,
        attribute: &'a Attribute,
        readahead: usize,
    ) -> Result<AllEntries<'a>> {
        Ok(AllEntries {
            cursor: snapshot.entries(attribute.index_tree()?, readahead),
            attribute,
            has_begun: false,
        })
    }

    /// Advances to the next entry; false at the end.
    pub(crate) fn next_entry(&mut self) -> Result<bool> {
        if std::mem::replace(&mut self.has_begun, true) {
            self.cursor.next()?
        } else {
            self.cursor.seek_first()?
        }
        Ok(self.cursor.valid())
    }

    /// Visits the index entries of the current entry, except for cancellations: key and sequence
    /// number.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(&[u8], Seq) -> Result<()>) -> Result<()> {
        let cursor = &self.cursor;
        if cursor.kind() == Kind::Delete {
            return Ok(());
        }
        let mut index_entry = |_: &[u8], key: &[u8], seq| visit(key, seq);
        index_entries(
            self.attribute,
            cursor.key(),
            cursor.seq(),
            cursor.value(),
            &mut index_entry,
        )
    }

    /// The cost so far.
    pub(crate) fn cost(&self) -> Cost {
        self.cursor.cost()
    }
}
