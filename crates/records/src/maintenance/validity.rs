//! Validation of candidates without their records: whether a candidate is current, as far as the
//! obsolete set and the key trees of the maintenance strategy show it.
//!
//! Candidates of a stand-alone index are index entries (value, key, number). An entry is obsolete
//! if its record has a newer write. The checks, cheapest first:
//!
//! - the obsolete set ([`esker_lsm::Superseded`]): one bit. A mutable bitmap has all of them;
//! - a key tree (the primary-key index, or an index's own under deleted-key maintenance): does it
//!   have an entry of the key with a larger number? This is Luo & Carey's timestamp validation
//!   (section 4.3). Only components that may have such an entry, unknown to the set, are probed;
//! - the record itself: does it have the number of the index entry? This is direct validation.

use std::sync::{Arc, OnceLock};

use esker_lsm::table::{KeyFilter, ReadOptions};
use esker_lsm::version::ComponentId;
use esker_lsm::{Component, Cost, Cursor, Seq, Snapshot, Superseded, TreeId};
use esker_model::definition::{IndexKind, Repair};

use super::strategies::strategy_of;
use super::strategy::MissingEntry;
use crate::catalog::Layout;
use crate::coverage::{Complete, Coverage, Source};
use crate::error::Result;
use crate::index::{Attribute, Candidate};
use crate::store::{CachedFilter, ComponentState, KeptFilter};

/// A key filter pays off if it has fewer than this many keys per candidate: adding a key takes
/// about 70 ns, looking one up over 1 us.
const KEYS_PER_CANDIDATE: u64 = 16;

/// The most keys in such a filter: 1.5 MiB, and 8 MiB while it is built.
const MOST_KEYS: u64 = 1 << 20;

/// Bits per key of that filter.
const FILTER_BITS: usize = 12;

/// What one snapshot shows about the validity of the candidates of a query, without records.
pub(crate) struct Validity {
    /// The obsolete set, if the dataset has one.
    obsolete: Option<Arc<Superseded>>,
    /// How far the obsolete set is complete for the candidates of this query.
    complete: Complete,
    /// The probe of a key tree, where the set is not complete.
    probe: Option<KeyProbe>,
}

impl Validity {
    /// For candidates of the indexes of `attributes`; without attributes, for those of a scan.
    /// `kept` keeps filters of keys between queries.
    pub(crate) fn new(
        snapshot: &Snapshot,
        layout: &Layout,
        attributes: &[&Attribute],
        kept: &Arc<KeptFilter>,
    ) -> Validity {
        let obsolete = layout
            .superseded
            .and_then(|tree| snapshot.superseded(tree))
            .map(Arc::new);
        let settings = &layout.stored.settings;
        let strategy = strategy_of(settings.maintenance);
        let coverage = Coverage::new(settings, obsolete.as_deref());
        let kinds: Vec<IndexKind> = attributes.iter().map(|a| a.kind).collect();
        let source = Source::of_kinds(&kinds);
        let complete = coverage.complete_for(source);
        let missing_entry = match settings.repair {
            Repair::Merge => MissingEntry::InObsoleteSet,
            Repair::None | Repair::Staged => strategy.missing_entry(),
        };
        let probe = match complete {
            // A key tree lacks the writes under another strategy: the set must have these.
            Complete::UpTo(watermark)
                if source == Source::IndexEntries && coverage.has_converged() =>
            {
                let mut trees = attributes.iter().map(|a| strategy.key_tree(layout, a));
                let first = trees.next().flatten();
                // A tree of the keys of one index lacks those of another one.
                let of_all = first.filter(|tree| trees.all(|other| other == Some(*tree)));
                of_all.map(|tree| {
                    KeyProbe::new(snapshot, tree, watermark, missing_entry, kept.clone())
                })
            }
            Complete::UpTo(_) | Complete::Always => None,
        };
        Validity {
            obsolete,
            complete,
            probe,
        }
    }

    /// True if candidates can be validated without records.
    pub(crate) fn validates_without_records(&self) -> bool {
        self.is_exact() || self.probe.is_some()
    }

    /// True if a key tree is probed.
    pub(crate) fn probes_keys(&self) -> bool {
        self.probe.is_some()
    }

    /// True if the write is in the obsolete set.
    #[inline]
    pub(crate) fn is_obsolete(&self, seq: Seq) -> bool {
        self.obsolete.as_ref().is_some_and(|set| set.contains(seq))
    }

    /// True if the set alone decides: a candidate that is not in it is current.
    pub(crate) fn is_exact(&self) -> bool {
        self.complete.is_always()
    }

    /// The obsolete set, for the code that collects candidates.
    pub(crate) fn obsolete(&self) -> Option<Arc<Superseded>> {
        self.obsolete.clone()
    }

    /// Drops the entries for which the key tree, if there is one, has a newer write. `total` is the
    /// estimated number of entries that the whole query validates.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn retain(
        &self,
        index_entries: &mut Vec<Candidate>,
        total: u64,
        cost: &Cost,
    ) -> Result<()> {
        self.prepare(total, cost)?;
        let mut result = Ok(());
        index_entries.retain(|index_entry| {
            if result.is_err() {
                return true;
            }
            match self.is_superseded(index_entry.seq, &index_entry.key, cost) {
                Ok(superseded) => !superseded,
                Err(error) => {
                    result = Err(error);
                    true
                }
            }
        });
        result
    }

    /// True if the key tree, if there is one, has a newer write of `key` than `seq`.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn is_superseded(&self, seq: Seq, key: &[u8], cost: &Cost) -> Result<bool> {
        match &self.probe {
            Some(probe) => probe.has_newer(seq, key, cost),
            None => Ok(false),
        }
    }

    /// As [`Validity::is_superseded`], without I/O; `None` if the answer needs a read.
    #[inline]
    pub(crate) fn is_superseded_in_memory(&self, seq: Seq, key: &[u8]) -> Option<bool> {
        match &self.probe {
            Some(probe) => probe.has_newer_in_memory(seq, key),
            None => Some(false),
        }
    }

    /// Prepares for the validation of about `total` candidates: builds a filter of keys if that
    /// pays off. To be called before the validation.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn prepare(&self, total: u64, cost: &Cost) -> Result<()> {
        match &self.probe {
            Some(probe) => probe.prepare(total, cost),
            None => Ok(()),
        }
    }
}

/// A probe of a key tree for newer entries than an index entry.
struct KeyProbe {
    tree: TreeId,
    /// The components that may have a newer entry unknown to the set, newest first.
    components: Vec<ProbedComponent>,
    /// The last number that the snapshot sees.
    seq: Seq,
    /// The repair watermark: the set has all writes that were replaced up to this number.
    watermark: Seq,
    /// The meaning of a write's missing entry.
    missing_entry: MissingEntry,
    /// If a missing entry means obsolete: the numbers that each component spans, including the
    /// components that are not probed.
    spans: Vec<ComponentId>,
    /// The keys of the newest components, and the number of these components: one filter probe
    /// shows that almost any current index entry is current (the superseded keys filter).
    filter: OnceLock<(usize, Arc<KeyFilter>)>,
    /// Keeps the filter for other queries.
    kept: Arc<KeptFilter>,
}

/// A component of the key tree and the numbers that it spans.
struct ProbedComponent {
    component: Component,
    span: ComponentId,
    /// If an entry of this component overwrote another one, the set has the overwritten one.
    reports_drops: bool,
}

impl KeyProbe {
    /// A probe of `tree`, of which only components behind the repair watermark are read.
    fn new(
        snapshot: &Snapshot,
        tree: TreeId,
        watermark: Seq,
        missing_entry: MissingEntry,
        kept: Arc<KeptFilter>,
    ) -> KeyProbe {
        let components = snapshot
            .components(tree)
            .into_iter()
            .filter_map(|component| {
                let (span, is_run) = match &component {
                    Component::Memtable(memtable) => {
                        // Without bounds, it has no entry that the snapshot sees.
                        let (min, max) = memtable.seq_bounds()?;
                        (ComponentId { min, max }, false)
                    }
                    Component::Run(run) => (run.component(), true),
                };
                Some(ProbedComponent {
                    component,
                    span,
                    reports_drops: missing_entry == MissingEntry::InObsoleteSet && is_run,
                })
            });
        let mut components: Vec<ProbedComponent> = components.collect();
        debug_assert!(
            components.is_sorted_by(|newer, older| newer.span.min > older.span.max),
            "components of a tree of keys are disjoint, newest first"
        );
        let spans = match missing_entry {
            MissingEntry::Obsolete => components.iter().map(|probed| probed.span).collect(),
            MissingEntry::InObsoleteSet | MissingEntry::Unknown => Vec::new(),
        };
        components.retain(|probed| probed.span.max > watermark);
        KeyProbe {
            tree,
            spans,
            components,
            seq: snapshot.seq(),
            watermark,
            missing_entry,
            filter: OnceLock::new(),
            kept,
        }
    }

    /// Builds a filter of the keys of the newest components, for as many components as the expected
    /// number of probes justifies.
    fn prepare(&self, total: u64, cost: &Cost) -> Result<()> {
        if self.filter.get().is_some() {
            return Ok(());
        }
        let mut states: Vec<ComponentState> =
            self.components.iter().map(ProbedComponent::state).collect();
        let mut left = total.saturating_mul(KEYS_PER_CANDIDATE).min(MOST_KEYS);
        let mut wanted = 0;
        for state in &states {
            let Some(rest) = left.checked_sub(state.entries) else {
                break;
            };
            left = rest;
            wanted += 1;
        }
        if wanted == 0 {
            return Ok(());
        }
        if let Some(filter) = self.kept.get(self.tree, &states, wanted) {
            // Another thread may have set one since.
            let _ = self.filter.set(filter);
            return Ok(());
        }
        states.truncate(wanted);
        let mut keys = KeyFilter::builder();
        for probed in self.components.iter().take(states.len()) {
            for part in probed.component.parts(&[], None) {
                let options = ReadOptions {
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
        let _ = self.filter.set((states.len(), filter.clone()));
        self.kept.put(CachedFilter {
            tree: self.tree,
            components: states,
            filter,
        });
        Ok(())
    }

    /// The number of the newest components that lack the key, as far as the filter shows.
    #[inline]
    fn components_without(&self, key: &[u8]) -> usize {
        match self.filter.get() {
            Some((count, filter)) if !filter.may_contain(key) => *count,
            _ => 0,
        }
    }

    /// As [`KeyProbe::has_newer`], without I/O; `None` if the answer needs a read.
    #[inline]
    fn has_newer_in_memory(&self, seq: Seq, key: &[u8]) -> Option<bool> {
        let mut without = None;
        for (at, probed) in self.components.iter().enumerate() {
            if self.ends_before(probed, seq) {
                break;
            }
            if at >= *without.get_or_insert_with(|| self.components_without(key)) {
                return None;
            }
            if self.missing_entry == MissingEntry::Obsolete && probed.span.min <= seq {
                return Some(true);
            }
        }
        Some(self.has_vanished(seq))
    }

    /// True if no component spans the write `seq`: a compaction dropped all entries that it read,
    /// as overwritten or deleted, and wrote no component.
    #[inline]
    fn has_vanished(&self, seq: Seq) -> bool {
        let includes = |span: &ComponentId| (span.min..=span.max).contains(&seq);
        self.missing_entry == MissingEntry::Obsolete && !self.spans.iter().any(includes)
    }

    /// True if neither this component nor an older one can have a newer entry unknown to the set.
    #[inline]
    fn ends_before(&self, probed: &ProbedComponent, seq: Seq) -> bool {
        let span = probed.span;
        span.max <= seq.max(self.watermark) || (probed.reports_drops && span.min <= seq)
    }

    /// True if the tree shows that a newer write superseded the write `seq` of `key`.
    fn has_newer(&self, seq: Seq, key: &[u8], cost: &Cost) -> Result<bool> {
        let without = self.components_without(key);
        // Newest first.
        for (at, probed) in self.components.iter().enumerate() {
            if self.ends_before(probed, seq) {
                break;
            }
            if at >= without
                && let Some(newest) = probed.component.newest(key, self.seq, cost)?
            {
                return Ok(newest > seq);
            }
            if self.missing_entry == MissingEntry::Obsolete && probed.span.min <= seq {
                return Ok(true);
            }
        }
        Ok(self.has_vanished(seq))
    }
}

impl ProbedComponent {
    fn state(&self) -> ComponentState {
        ComponentState {
            min: self.span.min,
            max: self.span.max,
            entries: self.component.entries(),
        }
    }
}
