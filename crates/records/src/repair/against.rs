//! What index entries are validated against: the primary-key index, the keys written since an index began, or the data.
//! Of trees whose components span disjoint numbers only those with writes since the watermark are probed: what was
//! superseded before is known.

use std::sync::atomic::Ordering::Relaxed;

use esker_lsm::sort::Sorted;
use esker_lsm::version::ComponentId;
use esker_lsm::{Component, Cost, Cursor, Expected, LookupOptions, Seq};
use esker_model::definition::Merging;

use super::work::{ObsoleteCollector, Work};
use super::{READAHEAD, runs};
use crate::catalog::{Attribute, Coverage, Layout};
use crate::error::Result;

pub(super) struct Against<'w> {
    work: &'w Work<'w>,
    /// Components that may say something new, newest first, and the numbers that they span.
    probed: Vec<Component>,
    spans: Vec<ComponentId>,
    /// Those that cannot.
    pruned: Vec<ComponentId>,
    /// Spans do not overlap, and one version of a key counts: key filters may decide.
    filters: bool,
    /// What compactions of the tree dropped is known.
    drops_recorded: bool,
    /// The tree has an entry of each write of a record; else only of those that came after the index.
    own: bool,
    versions: usize,
}

/// What key filters say of an index entry.
pub(super) enum Shortcut {
    Valid,
    Obsolete,
    /// Nothing.
    None,
}

impl<'w> Against<'w> {
    pub(super) fn new(
        work: &'w Work<'w>,
        layout: &Layout,
        drops_recorded: bool,
        attribute: &Attribute,
    ) -> Against<'w> {
        let settings = &layout.stored.settings;
        // A change of strategy leaves behind what the trees of keys do not show: deletions, and what was
        // replaced before the index's own tree began.
        let converged = Coverage::at(layout, Some(work.watermark())).has_converged();
        let (tree, own) = match (layout.keys, attribute.deleted.filter(|_| converged)) {
            (Some(keys), _) => (keys, true),
            (None, Some(deleted)) => (deleted, false),
            (None, None) => (layout.data, true),
        };
        let levels = matches!(settings.merging, Merging::LazyLeveled | Merging::Leveled);
        let tiers = tree != layout.data || !levels;
        let filters = tiers && settings.versions == 1;
        let (mut probed, mut pruned) = (Vec::new(), Vec::new());
        for component in runs(work, tree) {
            match span(&component) {
                span if filters && converged && span.max <= work.watermark() => pruned.push(span),
                _ => probed.push(component),
            }
        }
        Against {
            work,
            spans: probed.iter().map(span).collect(),
            probed,
            pruned,
            filters,
            drops_recorded,
            own,
            versions: settings.versions as usize,
        }
    }

    /// How many entries may be probed.
    pub(super) fn entries(&self) -> u64 {
        super::entries(&self.probed)
    }

    /// True when the newest entry of a key decides.
    pub(super) fn by_points(&self) -> bool {
        self.versions == 1
    }

    /// What the key filters of the components say alone (the paper's Bloom filter optimization): an index entry that
    /// none but its own component can know of is valid, provided that its compaction reported what it dropped.
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
        Ok(match has_own || !self.own {
            true => Shortcut::Valid,
            false => Shortcut::Obsolete,
        })
    }

    /// True when an index entry is obsolete, given the newest entries of its key that were found.
    fn is_over(&self, seq: Seq, newest: &[Seq]) -> bool {
        match (newest, self.own) {
            ([], true) => !includes(&self.pruned, seq),
            (_, true) => !newest.contains(&seq),
            (_, false) => newest.first().is_some_and(|newest| *newest > seq),
        }
    }

    /// Validates index entries by going through all entries.
    pub(super) fn scan(
        &self,
        mut sorted: Sorted,
        mut tally: ObsoleteCollector<'_>,
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
                }
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            if self.is_over(seq, &newest) {
                tally.over(seq)?;
            }
            since += 1;
            if since >= 1024 {
                since = 0;
                tally.pause(&total(&cursor.cost()))?;
            }
        }
        tally.finish(&total(&cursor.cost()))
    }

    /// Validates index entries by looking their keys up, in batches.
    pub(super) fn points(
        &self,
        mut sorted: Sorted,
        mut tally: ObsoleteCollector<'_>,
        cost: Cost,
    ) -> Result<()> {
        let mut keys: Vec<u8> = Vec::new();
        // Where each key ends; and the index entries, each with the place of its key.
        let (mut ends, mut index_entries) = (Vec::new(), Vec::new());
        loop {
            let mut start = ends.last().copied().unwrap_or(0);
            let more = match sorted.next_pair()? {
                Some((key, seq)) => {
                    let last = ends
                        .len()
                        .checked_sub(2)
                        .and_then(|at| ends.get(at).copied());
                    let same = !ends.is_empty()
                        && keys.get(last.unwrap_or(0)..start).unwrap_or_default() == key;
                    if !same {
                        keys.extend_from_slice(key);
                        start = keys.len();
                        ends.push(start);
                    }
                    index_entries.push((ends.len() - 1, seq));
                    true
                }
                None => false,
            };
            let size =
                keys.len() + ends.len() * 32 + index_entries.len() * size_of::<(usize, Seq)>();
            if more && size < self.work.share() {
                continue;
            }
            self.look_up(&keys, &ends, &index_entries, &mut tally)?;
            let so_far = cost.clone();
            if !more {
                return tally.finish(&so_far);
            }
            tally.pause(&so_far)?;
            keys.clear();
            ends.clear();
            index_entries.clear();
        }
    }

    fn look_up(
        &self,
        keys: &[u8],
        ends: &[usize],
        index_entries: &[(usize, Seq)],
        tally: &mut ObsoleteCollector<'_>,
    ) -> Result<()> {
        let mut start = 0;
        let slices = ends.iter().map(|end| {
            let key = keys.get(start..*end).unwrap_or_default();
            start = *end;
            key
        });
        let slices: Vec<&[u8]> = slices.collect();
        let mut newest: Vec<Option<Seq>> = vec![None; slices.len()];
        let (expected, options) = (Expected::Unknown, LookupOptions::default());
        self.work
            .snapshot
            .lookup(&self.probed, &slices, expected, options, &tally.cost)
            .with_deletes()
            .visit_all(&mut |at, entry| {
                if let Some(slot) = newest.get_mut(at) {
                    *slot = Some(entry.seq);
                }
            })?;
        let looked_up = &self.work.counts().looked_up;
        looked_up.fetch_add(slices.len() as u64, Relaxed);
        for (at, seq) in index_entries {
            let newest = newest.get(*at).copied().flatten();
            if self.is_over(*seq, newest.as_slice()) {
                tally.over(*seq)?;
            }
        }
        Ok(())
    }
}

fn span(component: &Component) -> ComponentId {
    match component {
        Component::Run(run) => run.component(),
        Component::Memtable(_) => ComponentId { min: 0, max: 0 },
    }
}

fn includes(spans: &[ComponentId], seq: Seq) -> bool {
    spans.iter().any(|span| span.min <= seq && seq <= span.max)
}
