//! Every index entry that an index holds, older ones of the same value and key included: compactions may drop what
//! hides them now.

use esker_lsm::{Cost, Cursor, EntryCursor, Kind, Seq, Snapshot};

use super::{index_entries, tree_of};
use crate::catalog::Attribute;
use crate::error::Result;

/// Goes through the entries of an index, in the order of its tree.
pub(crate) struct EveryFact<'a> {
    attribute: &'a Attribute,
    cursor: EntryCursor,
    begun: bool,
}

impl<'a> EveryFact<'a> {
    pub(crate) fn new(
        snapshot: &Snapshot,
        attribute: &'a Attribute,
        readahead: usize,
    ) -> Result<EveryFact<'a>> {
        Ok(EveryFact {
            cursor: snapshot.entries(tree_of(attribute)?, readahead),
            attribute,
            begun: false,
        })
    }

    /// Goes to the next entry; false when there is none.
    pub(crate) fn next_entry(&mut self) -> Result<bool> {
        match std::mem::replace(&mut self.begun, true) {
            false => self.cursor.seek_first()?,
            true => self.cursor.next()?,
        }
        Ok(self.cursor.valid())
    }

    /// Gives the index entries of the entry, but for those that take others back, to `visit`: key and sequence number.
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

    /// What it has cost so far.
    pub(crate) fn cost(&self) -> Cost {
        self.cursor.cost()
    }
}
