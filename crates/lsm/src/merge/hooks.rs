//! What capabilities hang into a merge: filters.

use std::sync::Arc;

use crate::entry::{Kind, Seq, Time};
use crate::obsolete::ObsoleteWrites;

/// What a filter wants done with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Keep it as it is.
    Keep,
    /// Leave it out, as if it had never been written. Older versions of the key stay hidden.
    Drop,
    /// Keep it with this value instead.
    Rewrite(Vec<u8>),
}

/// May drop or rewrite entries as they are merged (what a newer entry of the same key has made useless, for one).
/// Several on one tree: [`Filters`]. Called on flush and merge threads.
pub trait CompactionFilterFactory: Send + Sync {
    /// A judge of one flush or merge, reported which writes are obsolete.
    fn begin(&self, over: &ObsoleteWrites) -> Box<dyn CompactionFilter>;

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
    /// cannot be reported; then no number is forgotten by the obsolete set (`obsolete/mod.rs`).
    fn writes(&self, entry: FilteredEntry<'_>, show: &mut dyn FnMut(Seq)) -> bool {
        show(entry.seq);
        true
    }

    /// True when nothing that [`CompactionFilterFactory::writes`] shows of an entry which was judged is a write that is obsolete, as the judge knows.
    fn drops_obsolete(&self) -> bool {
        false
    }
}

/// FilterChain the entries that survive one flush or merge, one by one, in their order: so it may
/// remember the entries before, within bounded memory. Must be deterministic given its own clock,
/// must not block or call into the engine.
pub trait CompactionFilter {
    /// What to do with this entry. Never called for deletes. `is_oldest` tells whether no component
    /// older than the merged ones can hold the key (it costs a search).
    fn decide(&mut self, entry: FilteredEntry<'_>, is_oldest: &mut dyn FnMut() -> bool)
    -> Decision;
}

/// An entry that a [`CompactionFilter`] is asked about.
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
    /// From when on nobody sees it, if it expires.
    pub expires: Option<Time>,
}

/// Several filters on one tree: each is asked of what those before it keep, as they keep it.
pub struct Filters(Vec<Arc<dyn CompactionFilterFactory>>);

impl Filters {
    /// One filter that is all of these, in this order.
    pub fn all(filters: Vec<Arc<dyn CompactionFilterFactory>>) -> Arc<dyn CompactionFilterFactory> {
        Arc::new(Filters(filters))
    }
}

impl CompactionFilterFactory for Filters {
    fn begin(&self, over: &ObsoleteWrites) -> Box<dyn CompactionFilter> {
        let judges = self.0.iter().map(|filter| filter.begin(over));
        Box::new(FilterChain(judges.collect()))
    }

    fn may_be_passed_over(&self) -> bool {
        self.0.iter().all(|filter| filter.may_be_passed_over())
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
