//! Is a candidate current? What the maintenance strategy knows of it before the record is fetched.
//!
//! Candidates of a stand-alone index are index entries (value, key, number): over once the record has a newer
//! write. In the order of what it costs to find that out:
//! - the obsolete set ([`esker_lsm::Superseded`]): one bit. With a mutable bitmap it has all of them;
//! - a tree of keys (the primary-key index, or an index's own under deleted-key maintenance): is there
//!   an entry of the key with a larger number? Luo & Carey's timestamp validation (section 4.3). Only
//!   components are probed that can have one which the set lacks;
//! - the record itself, whose number is the index entry's or not: direct validation.

use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use esker_lsm::table::KeyFilter;
use esker_lsm::{Component, Cost, Cursor, Seq, Slice, Snapshot, Superseded, TreeId};
use esker_model::definition::Repair;

use crate::catalog::{Attribute, Complete, Coverage, Layout, Source};
use crate::error::{Error, Result};
use crate::store::{Kept, KeptFilter, Name};

/// A record that may match: what an index gives.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) seq: Seq,
    pub(crate) key: Vec<u8>,
    /// The stored record, where the index came by it, and which component it was found in: no newer one
    /// may have the key. [`CURRENT`] when that is known already, [`APART`] when it is found out as of candidates without it.
    pub(crate) record: Option<(Slice, usize)>,
}

/// In the place of a component: the record is known to be current.
pub(crate) const CURRENT: usize = usize::MAX;

/// In the place of a component: the record came with its index entry, and which of a key is current is found out as of other
/// entries.
pub(crate) const APART: usize = usize::MAX - 1;

/// How candidates of an index are validated (Luo & Carey section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Validation {
    /// As it is expected to cost least: timestamps where many candidates have turned out to be obsolete, and for
    /// answers without records.
    #[default]
    Auto,
    /// The records are fetched, and decide. Answers without records need them too.
    Direct,
    /// The primary-key index is probed first, where the strategy has one.
    Timestamp,
}

impl FromStr for Validation {
    type Err = Error;
    fn from_str(text: &str) -> Result<Validation> {
        match text {
            "auto" => Ok(Validation::Auto),
            "direct" => Ok(Validation::Direct),
            "timestamp" => Ok(Validation::Timestamp),
            _ => Err(Error::bad_input(format!(
                "unknown validation `{text}`: use one of auto, direct, timestamp"
            ))),
        }
    }
}

/// Fewer entries than this many times the candidates are worth a filter of their keys: to gather a key takes
/// some 70 ns, to look one up over 1 us.
const WORTH: u64 = 16;

/// The most keys of such a filter: 1.5 MiB, and 8 MiB while it is made.
const MOST_KEYS: u64 = 1 << 20;

/// Bits of that filter per key.
const FILTER_BITS: usize = 12;

/// What a snapshot knows of the index entries of one index.
pub(crate) struct Validity {
    over: Option<Arc<Superseded>>,
    /// How far the set is complete for the candidates of this query.
    complete: Complete,
    newer: Option<Newer>,
}

impl Validity {
    /// What is known of candidates of the indexes of `attributes`, of which there is one each; of a scan without.
    pub(crate) fn new(
        snapshot: &Snapshot,
        layout: &Layout,
        attributes: &[&Attribute],
        kept: &Arc<KeptFilter>,
    ) -> Validity {
        let over = layout
            .superseded
            .and_then(|tree| snapshot.superseded(tree))
            .map(Arc::new);
        let settings = &layout.stored.settings;
        let strategy = super::of(settings.maintenance);
        let coverage = Coverage::new(layout, over.as_deref());
        let source = Source::of(attributes);
        let complete = coverage.of(source);
        let probed = match complete {
            // A tree of keys says nothing of what was written by another strategy: that must be in the set.
            Complete::UpTo(watermark)
                if source == Source::IndexEntries && coverage.has_converged() =>
            {
                let tree = attributes
                    .first()
                    .and_then(|attribute| strategy.key_tree(layout, attribute));
                tree.map(|tree| (tree, watermark))
            }
            _ => None,
        };
        let newer = probed.map(|(tree, watermark)| {
            let dropped = match settings.repair {
                Repair::Merge => Dropped::InTheSet,
                _ => strategy.dropped_silently(),
            };
            Newer::new(snapshot, tree, watermark, dropped, kept.clone())
        });
        Validity {
            over,
            complete,
            newer,
        }
    }

    /// True when it can be decided without records which candidates are current.
    pub(crate) fn can_tell(&self) -> bool {
        self.is_exact() || self.newer.is_some()
    }

    /// True when there is a tree of keys to be probed.
    pub(crate) fn probes_keys(&self) -> bool {
        self.newer.is_some()
    }

    /// True when the write is known to be obsolete.
    #[inline]
    pub(crate) fn is_over(&self, seq: Seq) -> bool {
        self.over.as_ref().is_some_and(|over| over.contains(seq))
    }

    /// True when the set alone decides: a candidate that it lacks is current.
    pub(crate) fn is_exact(&self) -> bool {
        self.complete.is_always()
    }

    /// The set, to be probed by whoever gathers candidates.
    pub(crate) fn over(&self) -> Option<Arc<Superseded>> {
        self.over.clone()
    }

    /// Asks the tree of keys, if there is one, about `index_entries`, and drops those that
    /// are obsolete. `total` is about how many index entries there will be in all.
    pub(crate) fn retain(
        &self,
        index_entries: &mut Vec<Candidate>,
        total: u64,
        cost: &Cost,
    ) -> Result<()> {
        self.prepare(total, cost)?;
        let mut failed = None;
        index_entries.retain(|index_entry| {
            match self.is_superseded(index_entry.seq, &index_entry.key, cost) {
                Ok(superseded) => !superseded,
                Err(error) => {
                    failed.get_or_insert(error);
                    true
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// True when the tree of keys, if there is one, has a newer write of the key of an index entry.
    pub(crate) fn is_superseded(&self, seq: Seq, key: &[u8], cost: &Cost) -> Result<bool> {
        match &self.newer {
            Some(newer) => newer.has(seq, key, cost),
            None => Ok(false),
        }
    }

    /// The same as far as it is known without reading anything.
    #[inline]
    pub(crate) fn knows_superseded(&self, seq: Seq, key: &[u8]) -> Option<bool> {
        match &self.newer {
            Some(newer) => newer.knows(seq, key),
            None => Some(false),
        }
    }

    /// Call with the expected number of candidates before validating them.
    pub(crate) fn prepare(&self, total: u64, cost: &Cost) -> Result<()> {
        match &self.newer {
            Some(newer) => newer.prepare(total, cost),
            None => Ok(()),
        }
    }
}

/// The components of a tree of keys, as far as they may have a newer entry than an index entry.
struct Newer {
    tree: TreeId,
    components: Vec<Span>,
    /// The last number that the snapshot sees.
    seq: Seq,
    /// The set knows all that was superseded up to this number.
    mark: Seq,
    dropped: Dropped,
    /// Where what is gone is obsolete: the numbers that each component spans, those that need not be probed included.
    spans: Vec<(Seq, Seq)>,
    /// The keys of the newest components, and how many these are: almost every current index entry is known to be
    /// so by one question (the superseded keys filter).
    filter: OnceLock<(usize, Arc<KeyFilter>)>,
    /// Where the filter is kept for other queries.
    kept: Arc<KeptFilter>,
}

/// What is known of a write whose entry a tree of keys has no more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// It is in the set: compactions report what they drop.
    InTheSet,
    /// It is obsolete: every record has its entry here, so this one's was overwritten or deleted, and compactions
    /// dropped it without a report, with the tombstone maybe.
    Obsolete,
    /// Nothing: records from before the tree began have no entry.
    Unknown,
}

/// A component and the numbers that it spans.
struct Span {
    component: Component,
    min: Seq,
    max: Seq,
    /// An entry of it that was overwritten by another of it is in the set.
    reported: bool,
}

impl Newer {
    fn new(
        snapshot: &Snapshot,
        tree: TreeId,
        mark: Seq,
        dropped: Dropped,
        kept: Arc<KeptFilter>,
    ) -> Newer {
        let components = snapshot.components(tree).into_iter().map(|component| {
            let (min, max, is_run) = match &component {
                Component::Memtable(memtable) => {
                    let (min, max) = memtable.seq_bounds().unwrap_or((0, 0));
                    (min, max, false)
                }
                Component::Run(run) => {
                    let id = run.component();
                    (id.min, id.max, true)
                }
            };
            Span {
                component,
                min,
                max,
                reported: dropped == Dropped::InTheSet && is_run,
            }
        });
        let mut components: Vec<Span> = components.collect();
        let spans = match dropped {
            Dropped::Obsolete => components.iter().map(|span| (span.min, span.max)).collect(),
            Dropped::InTheSet | Dropped::Unknown => Vec::new(),
        };
        components.retain(|span| span.max > mark);
        Newer {
            tree,
            spans,
            components,
            seq: snapshot.seq(),
            mark,
            dropped,
            filter: OnceLock::new(),
            kept,
        }
    }

    /// Where many index entries are to be asked about, gathers the keys of the newest components in a filter: as
    /// many as that pays for.
    fn prepare(&self, total: u64, cost: &Cost) -> Result<()> {
        if self.filter.get().is_some() {
            return Ok(());
        }
        let mut names: Vec<Name> = self.components.iter().map(Span::name).collect();
        let mut left = total.saturating_mul(WORTH).min(MOST_KEYS);
        let fits = names.iter().take_while(|name| {
            let rest = left.checked_sub(name.entries);
            left = rest.unwrap_or(0);
            rest.is_some()
        });
        let wanted = fits.count();
        if wanted == 0 {
            return Ok(());
        }
        if let Some(filter) = self.kept.get(self.tree, &names, wanted) {
            let _ = self.filter.set(filter);
            return Ok(());
        }
        names.truncate(wanted);
        let mut keys = KeyFilter::builder();
        for span in self.components.iter().take(names.len()) {
            for part in span.component.parts(&[], None) {
                let options = esker_lsm::table::ReadOptions {
                    fill_cache: true,
                    readahead: 0,
                };
                let mut cursor = part.cursor(options, cost);
                cursor.seek_first()?;
                while cursor.valid() {
                    keys.add(cursor.key());
                    cursor.next()?;
                }
                cost.absorb(&cursor.cost());
            }
        }
        let filter = Arc::new(keys.build(FILTER_BITS));
        let _ = self.filter.set((names.len(), filter.clone()));
        self.kept.put(Kept {
            tree: self.tree,
            names,
            filter,
        });
        Ok(())
    }

    /// How many of the newest components are known not to have the key.
    #[inline]
    fn without(&self, key: &[u8]) -> usize {
        match self.filter.get() {
            Some((count, filter)) if !filter.may_contain(key) => *count,
            _ => 0,
        }
    }

    /// What [`Newer::has`] says, where nothing need be read for it.
    #[inline]
    fn knows(&self, seq: Seq, key: &[u8]) -> Option<bool> {
        let mut without = None;
        for (at, span) in self.components.iter().enumerate() {
            if self.ends_before(span, seq) {
                break;
            }
            if at >= *without.get_or_insert_with(|| self.without(key)) {
                return None;
            }
            if self.dropped == Dropped::Obsolete && span.min <= seq {
                return Some(true);
            }
        }
        Some(self.has_vanished(seq))
    }

    /// True when the entry of the write `seq` is gone with its whole component: all that a compaction read was overwritten or
    /// deleted, and it wrote nothing.
    #[inline]
    fn has_vanished(&self, seq: Seq) -> bool {
        let spans = |(min, max): &(Seq, Seq)| (*min..=*max).contains(&seq);
        self.dropped == Dropped::Obsolete && !self.spans.iter().any(spans)
    }

    /// True when neither a component nor an older one can have a newer entry that the set lacks.
    #[inline]
    fn ends_before(&self, span: &Span, seq: Seq) -> bool {
        span.max <= seq.max(self.mark) || (span.reported && span.min <= seq)
    }

    /// True when there is an entry of `key` with a larger number than `seq`, which the set lacks.
    fn has(&self, seq: Seq, key: &[u8], cost: &Cost) -> Result<bool> {
        let without = self.without(key);
        // Newest first.
        for (at, span) in self.components.iter().enumerate() {
            if self.ends_before(span, seq) {
                break;
            }
            if at >= without
                && let Some(newest) = span.component.newest(key, self.seq, cost)?
            {
                return Ok(newest > seq);
            }
            if self.dropped == Dropped::Obsolete && span.min <= seq {
                return Ok(true);
            }
        }
        Ok(self.has_vanished(seq))
    }
}

impl Span {
    fn name(&self) -> Name {
        Name {
            min: self.min,
            max: self.max,
            entries: self.component.entries(),
        }
    }
}
