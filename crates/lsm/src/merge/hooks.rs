//! What capabilities hang into a merge: filters.

use crate::entry::{Kind, Seq};
use crate::obsolete::Over;

/// What a filter wants done with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Keep it as it is.
    Keep,
    /// Leave it out, as if it had never been written. Older versions of the key stay hidden.
    Drop,
    /// Keep it with this value instead.
    Rewrite(Vec<u8>),
}

/// May drop or rewrite entries as they are merged (expiry, for one; or what a newer entry of the
/// same key has made useless). Called on flush and merge threads.
pub trait MergeFilter: Send + Sync {
    /// A judge of one flush or merge, told which writes are over.
    fn begin(&self, over: &Over) -> Box<dyn Judge>;

    /// True when entries may also move down without being judged, where that saves rewriting them:
    /// for filters that only clean up.
    fn may_be_passed_over(&self) -> bool {
        false
    }

    /// True when a judge remembers anything of one key for entries of another. Merges of such a tree are done in one piece
    /// (`compaction/pieces.rs`).
    fn spans_keys(&self) -> bool {
        true
    }

    /// Shows the numbers of the writes that an entry holds something of which a query could take for current. False when that
    /// cannot be told; then no number is forgotten by the set of obsolete writes (`obsolete/mod.rs`).
    fn writes(&self, entry: Judged<'_>, show: &mut dyn FnMut(Seq)) -> bool {
        show(entry.seq);
        true
    }

    /// True when nothing that [`MergeFilter::writes`] shows of an entry which was judged is a write that is over, as the judge was told.
    fn leaves_out(&self) -> bool {
        false
    }
}

/// Judges the entries that survive one flush or merge, one by one, in their order: so it may
/// remember the entries before, within bounded memory. Must be deterministic given its own clock,
/// must not block or call into the engine.
pub trait Judge {
    /// What to do with this entry. Never called for deletes. `is_oldest` tells whether no component
    /// older than the merged ones can hold the key (it costs a search).
    fn judge(&mut self, entry: Judged<'_>, is_oldest: &mut dyn FnMut() -> bool) -> Verdict;
}

/// An entry that a [`Judge`] is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its sequence number.
    pub seq: Seq,
    /// Its kind.
    pub kind: Kind,
    /// Its value.
    pub value: &'a [u8],
}
