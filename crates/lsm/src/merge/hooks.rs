//! What capabilities hang into a merge: filters and observers.

use crate::entry::{Kind, Seq};
use crate::error::Result;
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

/// A version that a flush or merge is about to leave out.
#[derive(Debug, Clone, Copy)]
pub struct Dropped<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its sequence number.
    pub seq: Seq,
    /// Its kind.
    pub kind: Kind,
    /// Its value.
    pub value: &'a [u8],
    /// The sequence number of the version that shadows it; its own for anti-matter that has
    /// nothing left to shadow.
    pub shadowed_by: Seq,
}

/// Sees every version that a flush or merge drops, with what shadowed it, before the result is
/// installed. Who only wants the numbers of the dropped puts kept, in the same edit, needs none:
/// [`crate::LeavesOut::Told`] (streaming repair, DELI section V). Called on flush and merge threads, in key order;
/// must not call into the engine. An error abandons the merge: nothing is dropped.
pub trait MergeObserver: Send + Sync {
    /// A version that will be gone once the result is installed.
    fn dropped(&self, version: Dropped<'_>) -> Result<()>;
    /// The result is complete and about to be installed: what `dropped` prepared must be durable
    /// when this returns.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}
