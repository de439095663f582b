//! Compaction filters: how capabilities drop or rewrite entries in flushes and compactions.

use std::sync::Arc;

use crate::entry::{Kind, Seq, Time};
use crate::obsolete::ObsoleteWrites;

/// The decision of a filter on an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Keep it as it is.
    Keep,
    /// Drop it, as if it had never been written. Older versions of the key stay hidden.
    Drop,
    /// Keep it with this value.
    Rewrite(Vec<u8>),
}

/// Drops or rewrites entries in flushes and compactions (for example those that a newer entry of
/// the same key has made useless). Several on one tree: [`Filters`]. Called on flush and compaction
/// threads.
pub trait CompactionFilterFactory: Send + Sync {
    /// Begins a filter for one flush or compaction, given the obsolete writes.
    fn begin(&self, obsolete: &ObsoleteWrites) -> Box<dyn CompactionFilter>;

    /// True when entries may also move down unfiltered, where that saves rewriting them: for
    /// filters that only clean up.
    fn may_be_skipped(&self) -> bool {
        false
    }

    /// True when a filter keeps state of one key for entries of another. Such a tree is compacted
    /// in one piece (`compaction/pieces.rs`).
    fn spans_keys(&self) -> bool {
        true
    }

    /// Shows the numbers of the writes that an entry refers to in a way that a query could take for
    /// current. False when that cannot be determined; then the obsolete set keeps all numbers
    /// (`obsolete/mod.rs`).
    fn writes(&self, entry: FilteredEntry<'_>, show: &mut dyn FnMut(Seq)) -> bool {
        show(entry.seq);
        true
    }

    /// True when nothing that [`CompactionFilterFactory::writes`] shows of a filtered entry is a
    /// write that the filter knows to be obsolete.
    fn drops_obsolete(&self) -> bool {
        false
    }
}

/// Filters the surviving entries of one flush or compaction, one by one and in order, so it may
/// keep state of earlier entries, within bounded memory. Must be deterministic given its own clock,
/// must not block or call into the engine.
pub trait CompactionFilter {
    /// The decision on this entry. Never called for deletes. `is_oldest` returns whether no
    /// component older than the inputs can hold the key (it costs a search).
    fn decide(&mut self, entry: FilteredEntry<'_>, is_oldest: &mut dyn FnMut() -> bool)
    -> Decision;
}

/// The input of [`CompactionFilter::decide`].
#[derive(Debug, Clone, Copy)]
pub struct FilteredEntry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its sequence number.
    pub seq: Seq,
    /// Its kind.
    pub kind: Kind,
    /// Its value.
    pub value: &'a [u8],
    /// The time from which it is hidden, if it expires.
    pub expires: Option<Time>,
}

/// Several filters on one tree: each sees the entries that the earlier ones keep, as rewritten by
/// them.
pub struct Filters(Vec<Arc<dyn CompactionFilterFactory>>);

impl Filters {
    /// Combines filters in this order.
    pub fn all(filters: Vec<Arc<dyn CompactionFilterFactory>>) -> Arc<dyn CompactionFilterFactory> {
        Arc::new(Filters(filters))
    }
}

impl CompactionFilterFactory for Filters {
    fn begin(&self, obsolete: &ObsoleteWrites) -> Box<dyn CompactionFilter> {
        let judges = self.0.iter().map(|filter| filter.begin(obsolete));
        Box::new(FilterChain(judges.collect()))
    }

    fn may_be_skipped(&self) -> bool {
        self.0.iter().all(|filter| filter.may_be_skipped())
    }

    fn spans_keys(&self) -> bool {
        self.0.iter().any(|filter| filter.spans_keys())
    }

    fn writes(&self, entry: FilteredEntry<'_>, show: &mut dyn FnMut(Seq)) -> bool {
        self.0.iter().all(|filter| filter.writes(entry, show))
    }

    fn drops_obsolete(&self) -> bool {
        self.0.iter().any(|filter| filter.drops_obsolete())
    }
}

struct FilterChain(Vec<Box<dyn CompactionFilter>>);

impl CompactionFilter for FilterChain {
    fn decide(
        &mut self,
        entry: FilteredEntry<'_>,
        is_oldest: &mut dyn FnMut() -> bool,
    ) -> Decision {
        let mut value: Option<Vec<u8>> = None;
        for judge in &mut self.0 {
            let entry = FilteredEntry {
                value: value.as_deref().unwrap_or(entry.value),
                ..entry
            };
            match judge.decide(entry, is_oldest) {
                Decision::Keep => {}
                Decision::Drop => return Decision::Drop,
                Decision::Rewrite(new) => value = Some(new),
            }
        }
        value.map_or(Decision::Keep, Decision::Rewrite)
    }
}
