//! Repair by index (Luo & Carey section 4.4, figure 7): validates the entries of each index that
//! are not known to be obsolete, sorted by primary key. It needs no reports from compactions, so it
//! also finds the writes that they dropped silently.

use std::sync::atomic::Ordering::Relaxed;

use esker_lsm::sort::Sorter;

use super::options::{Lookups, OnRepair};
use super::reading::{ENTRIES_PER_LOOKUP, READAHEAD, entries, runs};
use super::validator::{Shortcut, Validator};
use super::work::{ObsoleteCollector, RepairRun, Reporter, TaskResult};
use crate::catalog::Layout;
use crate::index::{self, Attribute};

/// Repairs every index that has a tree, one task each. `drops_recorded` is true if compactions add
/// every write that they drop to the obsolete set.
pub(super) fn run(
    work: &RepairRun<'_>,
    layout: &Layout,
    drops_recorded: bool,
    progress: &mut OnRepair<'_>,
) -> TaskResult {
    let attributes = layout.attributes.iter();
    let indexes: Vec<&Attribute> = attributes.filter(|a| a.tree.is_some()).collect();
    let trees = indexes.iter().filter_map(|attribute| attribute.tree);
    let total = trees.map(|tree| entries(&runs(work, tree))).sum();
    work.run(indexes, total, progress, |attribute, reporter| {
        repair_index(work, reporter, layout, drops_recorded, attribute)
    })
}

/// Repairs one index: sorts the entries that are not known to be obsolete by key, and validates
/// them by a scan or by lookups, whichever reads less.
fn repair_index(
    work: &RepairRun<'_>,
    reporter: &Reporter<'_>,
    layout: &Layout,
    drops_recorded: bool,
    attribute: &Attribute,
) -> TaskResult {
    let validator = Validator::new(work, layout, drops_recorded, attribute)?;
    let mut collector = ObsoleteCollector::new(work, reporter);
    let mut sorter = Sorter::new(
        work.group.options().fs.clone(),
        work.group.dir(),
        work.share(),
    );
    let mut cursor = index::all_entries::AllEntries::new(&work.snapshot, attribute, READAHEAD)?;
    while cursor.next_entry()? {
        let (collector, sorter) = (&mut collector, &mut sorter);
        cursor.each(&mut |key, seq| {
            // Newer writes may be in memory only.
            if seq > work.target || work.known.contains(seq) {
                return Ok(());
            }
            if work.options.bloom {
                match validator.shortcut(key, seq, &collector.cost)? {
                    Shortcut::Valid => return Ok(()),
                    Shortcut::Obsolete => return collector.add(seq),
                    Shortcut::None => {}
                }
            }
            Ok(sorter.add(key, seq)?)
        })?;
        collector.entry(|| cursor.cost())?;
    }
    let scanned = cursor.cost();
    drop(cursor);
    let candidates = sorter.added();
    work.counts().sorted.fetch_add(candidates, Relaxed);
    let spilled = match sorter.spilled() {
        0 => 0,
        // The last piece is spilled at the end.
        before => before + 1,
    };
    work.counts().spilled.fetch_add(spilled, Relaxed);
    if candidates == 0 {
        return collector.finish(&scanned);
    }
    let sorted = sorter.finish()?;
    let scans = match work.options.lookups {
        Lookups::Auto => candidates.saturating_mul(ENTRIES_PER_LOOKUP) >= validator.entries(),
        Lookups::Points => false,
        Lookups::MergeScan => true,
    };
    collector.pause(&scanned)?;
    if scans || !validator.by_points() {
        validator.scan(sorted, collector, scanned)
    } else {
        validator.points(sorted, collector, scanned)
    }
}
