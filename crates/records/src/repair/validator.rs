//! The trees against which index entries are validated: the primary-key index, the keys written
//! since an index began, or the data. If the components of a tree span disjoint numbers, only those
//! with writes since the watermark are probed, because everything superseded before is known.

use std::sync::atomic::Ordering::Relaxed;

use esker_lsm::coding::{ByteList, Own};
use esker_lsm::sort::Sorted;
use esker_lsm::version::ComponentId;
use esker_lsm::{Component, Cost, Cursor, Expected, LookupOptions, Seq};
use esker_model::definition::Merging;

use super::reading::{READAHEAD, entries, runs};
use super::work::{ObsoleteCollector, Work};
use crate::catalog::Layout;
use crate::error::Result;
use crate::index::Attribute;

/// Entries between two looks at the rate limit and the stop.
const PAUSE: u64 = 1024;

/// Validates the entries of an index.
pub(super) struct Validator<'w> {
    work: &'w Work<'w>,
    /// The components that may show new obsolete entries, newest first, and the numbers that they
    /// span.
    probed: Vec<Component>,
    spans: Vec<ComponentId>,
    /// The spans of the other components.
    pruned: Vec<ComponentId>,
    /// Key filters may decide: the spans are disjoint, and one version per key counts.
    filters: bool,
    /// The writes that compactions of the tree dropped are known.
    drops_recorded: bool,
    /// The tree has an entry for each write of a record; otherwise only for writes since the index
    /// began.
    own: bool,
    versions: usize,
}

/// The conclusion from key filters about an index entry.
pub(super) enum Shortcut {
    Valid,
    Obsolete,
    /// The filters do not decide.
    None,
}

impl<'w> Validator<'w> {
    pub(super) fn new(
        work: &'w Work<'w>,
        layout: &Layout,
        drops_recorded: bool,
        attribute: &Attribute,
    ) -> Validator<'w> {
        let settings = &layout.stored.settings;
        // After a change of strategy the key trees do not show everything: they lack deletions, and
        // replacements from before the index's own tree began.
        let converged = layout.coverage_at(Some(work.watermark())).has_converged();
        let (tree, own) = match (layout.keys, attribute.deleted.filter(|_| converged)) {
            (Some(keys), _) => (keys, true),
            (None, Some(deleted)) => (deleted, false),
            (None, None) => (layout.data, true),
        };
        let levels = matches!(settings.merging, Merging::LazyLeveled | Merging::Leveled);
        let tiers = tree != layout.data || !levels;
        let filters = tiers && settings.versions == 1;
        let (mut probed, mut pruned, mut spans) = (Vec::new(), Vec::new(), Vec::new());
        for component in runs(work, tree) {
            let span = span(&component);
            if filters && converged && span.max <= work.watermark() {
                pruned.push(span);
            } else {
                probed.push(component);
                spans.push(span);
            }
        }
        Validator {
            work,
            spans,
            probed,
            pruned,
            filters,
            drops_recorded,
            own,
            versions: settings.versions as usize,
        }
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
        if !self.filters {
            return Ok(Shortcut::None);
        }
        let mut has_own = includes(&self.pruned, seq);
        for (component, span) in self.probed.iter().zip(&self.spans) {
            let is_own = span.min <= seq;
            if span.max < seq || (is_own && self.drops_recorded && !self.own) {
                continue;
            }
            let may_contain = component.may_contain(key, cost)?;
            if may_contain && !(is_own && self.drops_recorded) {
                return Ok(Shortcut::None);
            }
            has_own |= may_contain;
        }
        Ok(if has_own || !self.own {
            Shortcut::Valid
        } else {
            Shortcut::Obsolete
        })
    }

    /// True if an index entry is obsolete, given the newest entries found for its key.
    fn is_obsolete(&self, seq: Seq, newest: &[Seq]) -> bool {
        match (newest, self.own) {
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
    ) -> Result<()> {
        let mut cursor = self.work.snapshot.entries_in(&self.probed, READAHEAD);
        let mut last: Option<Vec<u8>> = None;
        let mut newest: Vec<Seq> = Vec::new();
        cursor.seek_first()?;
        let total = |cursor: &Cost| {
            let total = cost.clone();
            total.absorb(cursor);
            total
        };
        let mut since = 0_u64;
        while let Some((key, seq)) = sorted.next_pair()? {
            if last.as_deref() != Some(key) {
                newest.clear();
                while cursor.valid() && cursor.key() <= key {
                    if cursor.key() == key && newest.len() < self.versions {
                        newest.push(cursor.seq());
                    }
                    cursor.next()?;
                    since += 1;
                    if since >= PAUSE {
                        since = 0;
                        collector.pause(&total(&cursor.cost()))?;
                    }
                }
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            if self.is_obsolete(seq, &newest) {
                collector.add(seq)?;
            }
            since += 1;
            if since >= PAUSE {
                since = 0;
                collector.pause(&total(&cursor.cost()))?;
            }
        }
        collector.finish(&total(&cursor.cost()))
    }

    /// Validates sorted index entries by batched lookups of their keys.
    pub(super) fn points(
        &self,
        mut sorted: Sorted,
        mut collector: ObsoleteCollector<'_>,
        cost: Cost,
    ) -> Result<()> {
        // The keys, each once; and the index entries, each with the index of its key.
        let (mut keys, mut index_entries) = (ByteList::default(), Vec::new());
        loop {
            let more = match sorted.next_pair()? {
                Some((key, seq)) => {
                    if keys.last() != Some(key) {
                        keys.push(key);
                    }
                    index_entries.push((keys.len() - 1, seq));
                    true
                }
                None => false,
            };
            let size =
                keys.bytes() + keys.len() * 32 + index_entries.len() * size_of::<(usize, Seq)>();
            if more && size < self.work.share() {
                continue;
            }
            self.look_up(&keys, &index_entries, &mut collector)?;
            if !more {
                return collector.finish(&cost);
            }
            collector.pause(&cost)?;
            keys.clear();
            index_entries.clear();
        }
    }

    fn look_up(
        &self,
        keys: &ByteList,
        index_entries: &[(usize, Seq)],
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
        for (at, seq) in index_entries {
            let newest = newest.item(*at)?;
            if self.is_obsolete(*seq, newest.as_slice()) {
                collector.add(*seq)?;
            }
        }
        Ok(())
    }
}

fn span(component: &Component) -> ComponentId {
    match component {
        Component::Run(run) => run.component(),
        Component::Memtable(memtable) => {
            let (min, max) = memtable.seq_bounds().unwrap_or((0, 0));
            ComponentId { min, max }
        }
    }
}

fn includes(spans: &[ComponentId], seq: Seq) -> bool {
    spans.iter().any(|span| span.min <= seq && seq <= span.max)
}
