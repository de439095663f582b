//! The trees against which index entries are validated: the primary-key index, the keys written
//! since an index began, or the data. If the components of a tree span disjoint numbers, only those
//! with writes since the watermark are probed, because all writes replaced before it are known.

use std::sync::atomic::Ordering::Relaxed;

use esker_lsm::coding::{ByteList, Misplaced, Own};
use esker_lsm::sort::Sorted;
use esker_lsm::version::ComponentId;
use esker_lsm::{Component, Cost, Cursor, Expected, LookupOptions, Seq};
use esker_model::definition::Merging;

use super::reading::{READAHEAD, entries, runs};
use super::work::{ObsoleteCollector, RepairRun, TaskResult};
use crate::catalog::Layout;
use crate::error::Result;
use crate::index::Attribute;

/// Validates the entries of an index.
pub(super) struct Validator<'w> {
    work: &'w RepairRun<'w>,
    /// The components that may show new obsolete entries, newest first.
    probed: Vec<Component>,
    /// The numbers that each of `probed` spans.
    spans: Vec<ComponentId>,
    /// The spans of the other components.
    pruned: Vec<ComponentId>,
    /// Key filters may decide: the spans are disjoint, and one version per key counts.
    filters_decide: bool,
    /// The writes that compactions of the tree dropped are known.
    drops_recorded: bool,
    /// The tree has an entry for each write of a record; otherwise only for writes since the index
    /// began.
    has_every_write: bool,
    /// The number of versions that the dataset keeps of a record.
    versions: usize,
}

/// An index entry that is to be validated by a lookup.
struct ProbedEntry {
    /// The index of its key among the keys of the lookup.
    key: usize,
    seq: Seq,
}

/// The memory of a lookup for each key, beside its bytes.
const LOOKUP_BYTES_PER_KEY: usize = size_of::<&[u8]>() + size_of::<Option<Seq>>();

/// The conclusion from key filters about an index entry.
pub(super) enum Shortcut {
    Valid,
    Obsolete,
    /// The filters do not decide.
    None,
}

impl<'w> Validator<'w> {
    /// Chooses the tree and its components. `drops_recorded` is true if compactions add every write
    /// that they drop to the obsolete set.
    pub(super) fn new(
        work: &'w RepairRun<'w>,
        layout: &Layout,
        drops_recorded: bool,
        attribute: &Attribute,
    ) -> Result<Validator<'w>> {
        let settings = &layout.stored.settings;
        // After a migration the key trees do not show everything: they lack deletions, and
        // replacements from before the index's own tree began.
        let converged = layout.coverage_at(Some(work.watermark())).has_converged();
        let (tree, has_every_write) = match (layout.keys, attribute.deleted.filter(|_| converged)) {
            (Some(keys), _) => (keys, true),
            (None, Some(deleted)) => (deleted, false),
            (None, None) => (layout.data, true),
        };
        let levels = matches!(settings.merging, Merging::LazyLeveled | Merging::Leveled);
        let tiers = tree != layout.data || !levels;
        let filters_decide = tiers && settings.versions == 1;
        let (mut probed, mut pruned, mut spans) = (Vec::new(), Vec::new(), Vec::new());
        for component in runs(work, tree) {
            let span = span(&component)?;
            if filters_decide && converged && span.max <= work.watermark() {
                pruned.push(span);
            } else {
                probed.push(component);
                spans.push(span);
            }
        }
        Ok(Validator {
            work,
            spans,
            probed,
            pruned,
            filters_decide,
            drops_recorded,
            has_every_write,
            versions: settings.versions as usize,
        })
    }

    /// The number of entries that may be probed.
    pub(super) fn entries(&self) -> u64 {
        entries(&self.probed)
    }

    /// True if the newest entry of a key decides.
    pub(super) fn by_points(&self) -> bool {
        self.versions == 1
    }

    /// The conclusion from the components' key filters alone (the paper's Bloom filter
    /// optimization). An index entry is valid if no component but its own may have the key,
    /// provided that the compaction of its component reported its drops.
    pub(super) fn shortcut(&self, key: &[u8], seq: Seq, cost: &Cost) -> Result<Shortcut> {
        if !self.filters_decide {
            return Ok(Shortcut::None);
        }
        let mut has_own = includes(&self.pruned, seq);
        for (component, span) in self.probed.iter().zip(&self.spans) {
            let is_own = span.min <= seq;
            if span.max < seq || (is_own && self.drops_recorded && !self.has_every_write) {
                continue;
            }
            let may_contain = component.may_contain(key, cost)?;
            if may_contain && !(is_own && self.drops_recorded) {
                return Ok(Shortcut::None);
            }
            has_own |= may_contain;
        }
        Ok(if has_own || !self.has_every_write {
            Shortcut::Valid
        } else {
            Shortcut::Obsolete
        })
    }

    /// True if an index entry is obsolete, given the newest entries found for its key.
    fn is_obsolete(&self, seq: Seq, newest: &[Seq]) -> bool {
        match (newest, self.has_every_write) {
            ([], true) => !includes(&self.pruned, seq),
            (_, true) => !newest.contains(&seq),
            (_, false) => newest.first().is_some_and(|newest| *newest > seq),
        }
    }

    /// Validates sorted index entries by a scan of all probed entries.
    pub(super) fn scan(
        &self,
        mut sorted: Sorted,
        mut collector: ObsoleteCollector<'_>,
        cost: Cost,
    ) -> TaskResult {
        let mut cursor = self.work.snapshot.entries_in(&self.probed, READAHEAD);
        let mut last: Option<Vec<u8>> = None;
        let mut newest: Vec<Seq> = Vec::new();
        cursor.seek_first()?;
        let total = |cursor: &Cost| {
            let total = cost.clone();
            total.absorb(cursor);
            total
        };
        while let Some((key, seq)) = sorted.next_pair()? {
            if last.as_deref() != Some(key) {
                newest.clear();
                while cursor.valid() && cursor.key() <= key {
                    if cursor.key() == key && newest.len() < self.versions {
                        newest.push(cursor.seq());
                    }
                    cursor.next()?;
                    collector.validation(|| total(&cursor.cost()))?;
                }
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            if self.is_obsolete(seq, &newest) {
                collector.add(seq)?;
            }
            collector.validation(|| total(&cursor.cost()))?;
        }
        collector.finish(&total(&cursor.cost()))
    }

    /// Validates sorted index entries by batched lookups of their keys.
    pub(super) fn points(
        &self,
        mut sorted: Sorted,
        mut collector: ObsoleteCollector<'_>,
        cost: Cost,
    ) -> TaskResult {
        // The keys in order, each once.
        let mut keys = ByteList::default();
        let mut index_entries: Vec<ProbedEntry> = Vec::new();
        while let Some((key, seq)) = sorted.next_pair()? {
            if keys.last() != Some(key) {
                keys.push(key);
            }
            let key = keys.len() - 1;
            index_entries.push(ProbedEntry { key, seq });
            let size = keys.bytes()
                + keys.len() * LOOKUP_BYTES_PER_KEY
                + index_entries.len() * size_of::<ProbedEntry>();
            if size >= self.work.share() {
                self.look_up(&keys, &index_entries, &mut collector)?;
                collector.pause(&cost)?;
                keys.clear();
                index_entries.clear();
            }
        }
        self.look_up(&keys, &index_entries, &mut collector)?;
        collector.finish(&cost)
    }

    /// Validates index entries by one lookup of their keys.
    fn look_up(
        &self,
        keys: &ByteList,
        index_entries: &[ProbedEntry],
        collector: &mut ObsoleteCollector<'_>,
    ) -> Result<()> {
        let slices: Vec<&[u8]> = keys.iter().collect();
        let mut newest: Vec<Option<Seq>> = vec![None; slices.len()];
        let (expected, options) = (Expected::Unknown, LookupOptions::default());
        self.work
            .snapshot
            .lookup(&self.probed, &slices, expected, options, &collector.cost)
            .with_deletes()
            .visit_all(&mut |at, entry| {
                *newest.own_mut(at) = Some(entry.seq);
            })?;
        let looked_up = &self.work.counts().looked_up;
        looked_up.fetch_add(slices.len() as u64, Relaxed);
        for entry in index_entries {
            let newest = newest.item(entry.key)?;
            if self.is_obsolete(entry.seq, newest.as_slice()) {
                collector.add(entry.seq)?;
            }
        }
        Ok(())
    }
}

/// The sequence numbers that a run spans. A repair reads no memtables.
fn span(component: &Component) -> std::result::Result<ComponentId, Misplaced> {
    match component {
        Component::Run(run) => Ok(run.component()),
        Component::Memtable(_) => Err(Misplaced::here()),
    }
}

/// True if one of the spans has the number.
fn includes(spans: &[ComponentId], seq: Seq) -> bool {
    spans.iter().any(|span| span.min <= seq && seq <= span.max)
}
