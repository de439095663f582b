//! Repair by index (Luo & Carey section 4.4, figure 7): validates the entries of each index that
//! are not known to be obsolete, sorted by primary key. It needs no reports from compactions, so it
//! also finds what they dropped silently.

use std::sync::atomic::Ordering::Relaxed;

use esker_lsm::sort::Sorter;

use super::options::{Lookups, OnRepair};
use super::reading::{ENTRIES_PER_LOOKUP, READAHEAD, entries, runs};
use super::validator::{Shortcut, Validator};
use super::work::{ObsoleteCollector, Reporter, Work};
use crate::catalog::Layout;
use crate::error::Result;
use crate::index;
use crate::index::Attribute;

/// `reported`: compactions report every write that they drop.
pub(super) fn run(
    work: &Work<'_>,
    layout: &Layout,
    reported: bool,
    progress: &mut OnRepair<'_>,
) -> Result<()> {
    let attributes = layout.attributes.iter();
    let indexes: Vec<&Attribute> = attributes.filter(|a| a.tree.is_some()).collect();
    let trees = indexes.iter().filter_map(|attribute| attribute.tree);
    let total = trees.map(|tree| entries(&runs(work, tree))).sum();
    work.run(indexes, total, progress, |attribute, reporter| {
        one(work, reporter, layout, reported, attribute)
    })
}

/// Repairs one index, on one thread.
fn one(
    work: &Work<'_>,
    reporter: &Reporter<'_>,
    layout: &Layout,
    reported: bool,
    attribute: &Attribute,
) -> Result<()> {
    let validator = Validator::new(work, layout, reported, attribute);
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
    let (candidates, spilled) = (sorter.added(), sorter.spilled());
    work.counts().sorted.fetch_add(candidates, Relaxed);
    let spilled = spilled + u64::from(spilled > 0);
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
