//! Estimates of what lies in an area: in many ranges of keys, of which each has a few blocks. The
//! samples of the tables tell it, of what is not rare.

use super::{Component, Snapshot};
use crate::batch::TreeId;
use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Timed};
use crate::error::Result;
use crate::memtable::Memtable;
use crate::synopsis::SampleShare;
use crate::table::KeyRange;
use crate::version::{Run, TableFile};

/// Entries of a memtable that are looked at, to see what share of those in a range is sought.
const SHOWN: usize = 32;

/// What lies in several ranges, where keys do not tell all: in a tree of points, those in an area.
#[derive(Clone, Copy)]
pub struct Scattered<'a> {
    /// The ranges, ascending and without overlap.
    pub ranges: &'a [KeyRange<'a>],
    /// True of the keys that are sought.
    pub inside: &'a dyn Fn(&[u8]) -> bool,
    /// True for tables that may have some.
    pub meets: &'a dyn Fn(&TableFile) -> bool,
    /// The attribute that is the key.
    pub attribute: u32,
}

impl Snapshot {
    /// About how many entries of a tree, deletes not counted, lie in some ranges.
    ///
    /// # Errors
    /// What reading block indexes and samples fails with.
    pub fn estimate_scattered(
        &self,
        tree: TreeId,
        sought: Scattered<'_>,
        cost: &Cost,
    ) -> Result<u64> {
        let (mut in_memory, mut in_runs) = (0.0, InRuns::default());
        for component in self.components(tree) {
            match component {
                Component::Memtable(memtable) => in_memory += of_memtable(&memtable, sought)?,
                Component::Run(run) => in_runs.add(&run, sought, cost)?,
            }
        }
        let InRuns {
            by_keys,
            unsampled,
            entries,
            sample,
        } = in_runs;
        let of_sampled = match sample.told() {
            Some(told) if sample.is_enough() => told,
            Some(told) if !sample.leaves_open(entries) && !sample.has_none() => told,
            Some(told) if !sample.leaves_open(entries) => told.min(by_keys),
            _ => by_keys,
        };
        let of_runs = of_sampled + unsampled;
        Ok((in_memory + of_runs).round() as u64)
    }
}

/// What is known of the runs.
#[derive(Default)]
struct InRuns {
    /// What lies in the ranges, if keys lie evenly in blocks: in tables with a sample, and in
    /// others.
    by_keys: f64,
    unsampled: f64,
    /// The entries of these blocks of tables with a sample.
    entries: f64,
    sample: SampleShare,
}

impl InRuns {
    fn add(&mut self, run: &Run, sought: Scattered<'_>, cost: &Cost) -> Result<()> {
        for file in run.tables.iter().filter(|file| (sought.meets)(file)) {
            let meta = file.meta();
            let puts = meta.entries - meta.deletes.min(meta.entries);
            let of_all = puts as f64 / meta.entries.max(1) as f64;
            let (mut by_keys, mut entries) = (0.0, 0.0);
            for (lo, hi) in sought.ranges {
                let apart = hi.is_some_and(|hi| meta.smallest.as_slice() >= hi);
                if apart || meta.largest.as_slice() < *lo {
                    continue;
                }
                let extent = file.table()?.extent(lo, *hi, cost)?;
                by_keys += extent.whole.entries as f64 * of_all;
                entries += extent.whole.entries as f64;
                for edge in extent.edges {
                    by_keys += edge.amount.entries as f64 * edge.share * of_all;
                    entries += edge.amount.entries as f64;
                }
            }
            if by_keys <= 0.0 {
                continue;
            }
            let table = file.table()?;
            let sampled = match table.slot_of(sought.attribute) {
                Some(slot) => table.sampled(slot, cost, sought.inside)?,
                None => None,
            };
            match sampled {
                Some(sampled) => {
                    self.sample.add(puts, sampled);
                    self.by_keys += by_keys;
                    self.entries += entries;
                }
                None => self.unsampled += by_keys,
            }
        }
        Ok(())
    }
}

fn of_memtable(memtable: &Memtable, sought: Scattered<'_>) -> Result<f64> {
    let mut cursor = memtable.cursor();
    let (mut all, mut shown, mut inside) = (0.0, 0, 0);
    for (lo, hi) in sought.ranges {
        let most = shown + SHOWN;
        all += cursor.between(lo, *hi) as f64;
        cursor.seek(lo, MAX_SEQ)?;
        while shown < most && cursor.valid() && hi.is_none_or(|hi| cursor.key() < hi) {
            let is_put = Timed::of(cursor.kind(), cursor.value()).0 != Kind::Delete;
            inside += u64::from(is_put && (sought.inside)(cursor.key()));
            shown += 1;
            cursor.next()?;
        }
    }
    Ok(all * inside as f64 / shown.max(1) as f64)
}
