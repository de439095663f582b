//! The check of the expiry tree against the records.

use esker_lsm::{Cursor, Seq, SeqSet, Snapshot};
use esker_model::record::RecordRef;

use super::entries::EntrySum;
use super::obsolete::READAHEAD;
use crate::catalog::Layout;
use crate::error::Result;
use crate::store::expiry_key;

/// The records that expire.
#[derive(Default)]
pub(super) struct ExpiringRecords {
    seqs: SeqSet,
    sum: EntrySum,
}

impl ExpiringRecords {
    /// Adds a current record.
    pub(super) fn add(&mut self, stored: &[u8], key: &[u8], seq: Seq) {
        if let Some(expires) = RecordRef::expiry_of(stored) {
            self.seqs.insert(seq);
            self.sum.add(&expiry_key(expires, key), &[], seq);
        }
    }

    /// The error in the expiry tree, if any. It may also have entries of replaced records.
    pub(super) fn finish(self, layout: &Layout, snapshot: &Snapshot) -> Result<Option<String>> {
        let mut found = EntrySum::default();
        if let Some(tree) = layout.expiry {
            let mut cursor = snapshot.cursor(tree, READAHEAD);
            cursor.seek_first()?;
            while cursor.valid() {
                if self.seqs.contains(cursor.seq()) {
                    found.add(cursor.key(), &[], cursor.seq());
                }
                cursor.next()?;
            }
        }
        let (expiring, entries) = (self.sum.index_entries, found.index_entries);
        Ok((found != self.sum).then(|| {
            format!("{expiring} records expire, but the tree of expiry times has {entries} entries for them, or entries with another time")
        }))
    }
}
