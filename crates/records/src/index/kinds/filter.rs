//! The range filter (Luo & Carey sections 3 and 6.4.2): each component has its least and its
//! greatest value, nothing else. A query scans the components that this filter admits. To find out
//! which versions are the newest, it may need other components, depending on the maintenance
//! strategy:
//!
//! - *mutable-bitmap*: none. Every obsolete entry has its bit set, so each component, and each
//!   table, is read by itself (section 5.2).
//! - *validation*, and other strategies that do not know the old values: all newer components
//!   (section 4.2).
//! - *eager*: newer components that replaced a value of the range (section 3.1). The paper widens
//!   the filter of a component by the old values. Here the old values are keys of a separate tree,
//!   `d/widened/N`, written in the same batch: a component of the data has the values of those
//!   components there whose spans of sequence numbers overlap its own.
//!
//! Newer components are selected table by table: only tables matter that share keys with an older
//! admitted table.

use std::sync::Arc;

use esker_lsm::attributes::Summary;
use esker_lsm::coding::Own;
use esker_lsm::memtable::Memtable;
use esker_lsm::read::Part;
use esker_lsm::synopsis::ValueRange;
use esker_lsm::table::{ReadOptions, TableMeta};
use esker_lsm::version::{ComponentId, Run};
use esker_lsm::{Component, Cost, Cursor, Kind, MAX_SEQ, Seq, Superseded};

use super::embedded;
use crate::coverage::{Coverage, Source};
use crate::error::Result;
use crate::index::cost::{Access, Figures};
use crate::index::lookup::{value_range, zone_admits};
use crate::index::{
    Attribute, BestCandidates, FilterRule, IndexEntry, IndexType, Lookup, Origin, Range, Recency,
    Writes,
};
use crate::record;

/// The range filter.
pub(super) struct Filter;

/// Read-ahead of a scan; less than this is read through the cache.
const READAHEAD: usize = 256 << 10;

/// Receives matching records.
pub(crate) trait MatchVisitor {
    /// False if no record between these sequence numbers is needed.
    fn wants(&mut self, min: Seq, max: Seq) -> bool;
    /// Receives a record with a value in the range: sequence number, key, stored record. Each
    /// record comes once. Unless it `is_current`, a component that was not read may have a newer
    /// version.
    fn visit(&mut self, seq: Seq, key: &[u8], record: &[u8], is_current: bool) -> Result<()>;
}

impl IndexType for Filter {
    fn add(&self, _writes: &mut Writes, _entry: IndexEntry<'_>) -> Result<()> {
        Ok(())
    }

    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        match index_entry.attribute.widened {
            Some(tree) => writes.also(Kind::Put, tree, index_entry.value, &[]),
            None => Ok(()),
        }
    }

    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()> {
        let order = best.order();
        each_match(lookup, attribute, range, order, &mut Offer { best })
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        embedded::estimate(lookup, attribute, range, &value_range(range))
    }

    /// All admitted parts are read.
    fn work(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        expected: u64,
    ) -> Result<f64> {
        let parts = match ScanPlan::new(lookup, attribute, range) {
            ScanPlan::PartByPart { parts, .. } => parts,
            ScanPlan::Merged { components, .. } => components.iter().flat_map(parts_of).collect(),
        };
        let entries = parts.iter().map(|part| match part {
            Part::Memtable(memtable) => memtable.len() as u64,
            Part::Table(table) => table.meta().entries,
        });
        Ok(entries.sum::<u64>().max(expected) as f64 * self.weight())
    }

    fn summary(&self) -> Option<Summary> {
        Some(Summary::Zones)
    }

    fn is_filtered_scan(&self) -> bool {
        true
    }

    fn figures(&self) -> Figures {
        Figures {
            access: Access::Everything,
            write: 0.2,
            lookup: 0.0,
            row: 0.0,
            entry: 0.0,
            bytes: 0.0,
        }
    }

    /// Its selectivity depends on how components are compacted, which a sample does not show.
    fn is_advised(&self) -> bool {
        false
    }
}

/// Offers the matching records as candidates.
struct Offer<'b> {
    best: &'b mut BestCandidates,
}

impl MatchVisitor for Offer<'_> {
    fn wants(&mut self, min: Seq, max: Seq) -> bool {
        let wants = self.best.admits_span(min, max);
        if !wants {
            self.best.note_skipped();
        }
        wants
    }

    fn visit(&mut self, seq: Seq, key: &[u8], record: &[u8], is_current: bool) -> Result<()> {
        let origin = if is_current {
            Origin::Current
        } else {
            Origin::SomeComponents
        };
        // A copy: the record must not keep the other records of its block in memory.
        let bring = || Some((record.into(), origin));
        self.best.offer_with(seq, key, bring);
        Ok(())
    }
}

/// The plan of a scan.
enum ScanPlan {
    /// Each part is read by itself: entries that are not in the obsolete set are current.
    PartByPart {
        parts: Vec<Part>,
        obsolete: Superseded,
    },
    /// The components are merged. The newest entry of a key is current, except for entries up to
    /// `unsure_up_to`: their replacements were not necessarily recorded, so a component that is not
    /// read may have a newer one.
    Merged {
        components: Vec<Component>,
        unsure_up_to: Option<Seq>,
    },
}

impl ScanPlan {
    /// The plan for a range, by the maintenance strategy and the range filters of the components.
    fn new(lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> ScanPlan {
        let snapshot = lookup.snapshot;
        let components = snapshot.components(lookup.data);
        let zones = Zones {
            id: attribute.id,
            values: value_range(range),
        };
        let settings = lookup.settings;
        let superseded = lookup.superseded.and_then(|tree| snapshot.superseded(tree));
        let coverage = Coverage::new(settings, superseded.as_ref());
        let complete = coverage.complete_for(Source::DataVersions).is_always();
        let all: Vec<Part> = components.iter().flat_map(parts_of).collect();
        let probed = tables(&all);
        let plan = match (lookup.filter_rule, superseded, attribute.widened) {
            (FilterRule::ObsoleteSet, Some(obsolete), _) if complete => {
                let is_admitted = |part: &Part| match part {
                    Part::Memtable(_) => true,
                    Part::Table(table) => zones.admit(table.meta()),
                };
                ScanPlan::PartByPart {
                    parts: all.into_iter().filter(is_admitted).collect(),
                    obsolete,
                }
            }
            (FilterRule::ReplacedValues, _, Some(widened)) => {
                let replaced = zones.spans(&snapshot.components(widened));
                ScanPlan::Merged {
                    components: zones.components_to_merge(&components, Some(&replaced)),
                    unsure_up_to: Some(settings.since.max(attribute.since)),
                }
            }
            _ => ScanPlan::Merged {
                components: zones.components_to_merge(&components, None),
                unsure_up_to: None,
            },
        };
        let skipped = probed - plan.tables();
        Cost::add(&lookup.data_cost.synopses_probed, probed);
        Cost::add(&lookup.data_cost.synopses_negative, skipped);
        plan
    }

    /// The number of tables that are read.
    fn tables(&self) -> u64 {
        match self {
            ScanPlan::PartByPart { parts, .. } => tables(parts),
            ScanPlan::Merged { components, .. } => components
                .iter()
                .map(|component| tables(&parts_of(component)))
                .sum(),
        }
    }
}

/// The range filters of the components, for one range.
struct Zones {
    /// The id of the attribute.
    id: u32,
    values: ValueRange,
}

impl Zones {
    /// False if a table certainly has no value of the range. A table older than the index has no
    /// filter.
    fn admit(&self, meta: &TableMeta) -> bool {
        zone_admits(meta, self.id, &self.values).unwrap_or(true)
    }

    /// The spans of the components of replaced values that may have a value of the range.
    fn spans(&self, replaced: &[Component]) -> Vec<ComponentId> {
        let runs = replaced.iter().filter_map(run_of).filter(|run| {
            let ends = run.tables.first().zip(run.tables.last());
            ends.is_some_and(|(first, last)| {
                let (min, max) = (&first.meta().smallest, &last.meta().largest);
                self.values.overlaps(min, Some(max))
            })
        });
        runs.map(Run::component).collect()
    }

    /// The memtables, the admitted tables, and the tables that may have replaced or deleted records
    /// in these; if spans are given, only tables that overlap one.
    fn components_to_merge(
        &self,
        components: &[Component],
        widened: Option<&[ComponentId]>,
    ) -> Vec<Component> {
        let mut chosen = Vec::with_capacity(components.len());
        for (at, component) in components.iter().enumerate() {
            let Component::Run(run) = component else {
                chosen.push(component.clone());
                continue;
            };
            let older = components.own(at + 1..);
            let hides = |meta: &TableMeta| {
                older.iter().filter_map(run_of).any(|run| {
                    let mut between = run.between(&meta.smallest, &meta.largest);
                    between.any(|table| self.admit(table.meta()))
                })
            };
            let tables = run.tables.iter().filter(|table| {
                let span = table.component();
                let overlap = |other: &ComponentId| other.min <= span.max && span.min <= other.max;
                let replaces = || widened.is_none_or(|spans| spans.iter().any(overlap));
                self.admit(table.meta()) || (replaces() && hides(table.meta()))
            });
            chosen.push(Component::Run(Run {
                tables: Arc::new(tables.cloned().collect()),
                ..run.clone()
            }));
        }
        chosen
    }
}

/// The run of a component; `None` for a memtable.
fn run_of(component: &Component) -> Option<&Run> {
    match component {
        Component::Memtable(_) => None,
        Component::Run(run) => Some(run),
    }
}

/// The memtable, or the tables, of a component.
fn parts_of(component: &Component) -> Vec<Part> {
    component.parts(&[], None)
}

/// The number of tables among the parts.
fn tables(parts: &[Part]) -> u64 {
    let tables = parts.iter().filter(|part| matches!(part, Part::Table(_)));
    tables.count() as u64
}

/// Read options for this many bytes.
fn options(bytes: u64) -> ReadOptions {
    let readahead = if bytes > READAHEAD as u64 {
        READAHEAD
    } else {
        0
    };
    ReadOptions {
        fill_cache: readahead == 0,
        readahead,
    }
}

/// Passes to the visitor all records with a value in the range that it wants. Reads the best parts
/// first if the maintenance strategy allows reading parts by themselves.
///
/// # Errors
/// Any read error, and any error of the visitor.
pub(crate) fn each_match(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    order: Recency,
    visitor: &mut dyn MatchVisitor,
) -> Result<()> {
    let scan = Scan {
        lookup,
        attribute,
        range,
    };
    match ScanPlan::new(lookup, attribute, range) {
        ScanPlan::PartByPart {
            mut parts,
            obsolete,
        } => {
            parts.sort_by_key(|part| {
                let (min, max) = part.seq_bounds();
                order.best_rank(min, max)
            });
            for part in parts {
                let (min, max) = part.seq_bounds();
                if visitor.wants(min, max) {
                    scan.part(&part, &obsolete, visitor)?;
                }
            }
            Ok(())
        }
        ScanPlan::Merged {
            components,
            unsure_up_to,
        } => scan.merged(&components, unsure_up_to, visitor),
    }
}

/// The scan of a range.
struct Scan<'a> {
    lookup: &'a Lookup<'a>,
    attribute: &'a Attribute,
    range: &'a Range,
}

impl Scan<'_> {
    /// True if a stored record has a value in the range.
    ///
    /// # Errors
    /// Damage if the record is malformed.
    fn matches(&self, stored: &[u8]) -> Result<bool> {
        let record = record::parse(stored)?;
        let inside = |value: &[u8]| self.range.contains(value);
        Ok(self.attribute.any_value(&record, inside))
    }

    /// True if `value` is the first value of a stored record in the range.
    ///
    /// # Errors
    /// Damage if the record is malformed.
    fn matches_first(&self, stored: &[u8], value: &[u8]) -> Result<bool> {
        let record = record::parse(stored)?;
        let mut is_first = false;
        self.attribute.any_value(&record, |each| {
            let is_inside = self.range.contains(each);
            is_first = is_inside && each == value;
            is_inside
        });
        Ok(is_first)
    }

    /// Scans one part by itself.
    fn part(
        &self,
        part: &Part,
        superseded: &Superseded,
        visitor: &mut dyn MatchVisitor,
    ) -> Result<()> {
        let size = match part {
            Part::Memtable(memtable) => {
                if let Some(slot) = memtable.slot_of(self.attribute.id) {
                    return self.mapped(memtable, slot, superseded, visitor);
                }
                0
            }
            Part::Table(table) => table.meta().size,
        };
        let mut cursor = part.cursor(options(size), self.lookup.data_cost);
        cursor.seek_first()?;
        while cursor.valid() {
            let seq = cursor.seq();
            if cursor.kind() == Kind::Put
                && seq <= self.lookup.snapshot.seq()
                && visitor.wants(seq, seq)
                && !superseded.contains(seq)
                && self.matches(cursor.value())?
            {
                visitor.visit(seq, cursor.key(), cursor.value(), true)?;
            }
            cursor.next()?;
        }
        self.lookup.data_cost.absorb(&cursor.cost());
        Ok(())
    }

    /// Scans a memtable that has an ordered map of the attribute.
    fn mapped(
        &self,
        memtable: &Memtable,
        slot: usize,
        superseded: &Superseded,
        visitor: &mut dyn MatchVisitor,
    ) -> Result<()> {
        let (lo, hi) = self.range.key_bounds();
        let mut cursor = memtable.attribute_cursor(slot);
        cursor.seek(&lo, MAX_SEQ)?;
        while cursor.valid() && hi.as_deref().is_none_or(|hi| cursor.key() < hi) {
            self.lookup.data_cost.check()?;
            let (seq, key) = (cursor.seq(), cursor.value());
            if seq <= self.lookup.snapshot.seq()
                && visitor.wants(seq, seq)
                && !superseded.contains(seq)
                && let Some(entry) = memtable.get(key, seq)
                // A record with several values in the range is taken at its first one.
                && self.matches_first(entry.value, cursor.key())?
            {
                visitor.visit(seq, key, entry.value, true)?;
            }
            cursor.next()?;
        }
        Ok(())
    }

    /// Scans the components merged.
    fn merged(
        &self,
        components: &[Component],
        unsure_up_to: Option<Seq>,
        visitor: &mut dyn MatchVisitor,
    ) -> Result<()> {
        let size = components.iter().filter_map(run_of).map(Run::size).sum();
        let readahead = options(size).readahead;
        let snapshot = self.lookup.snapshot;
        let mut cursor = snapshot.cursor_over(components, readahead);
        cursor.seek_first()?;
        while cursor.valid() {
            let seq = cursor.seq();
            if cursor.kind() == Kind::Put
                && visitor.wants(seq, seq)
                && self.matches(cursor.value())?
            {
                let is_current = unsure_up_to.is_none_or(|unsure| seq > unsure);
                visitor.visit(seq, cursor.key(), cursor.value(), is_current)?;
            }
            cursor.next()?;
        }
        self.lookup.data_cost.absorb(&cursor.cost());
        Ok(())
    }
}
