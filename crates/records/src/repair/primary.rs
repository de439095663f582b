//! Repair from the records (DELI section V, algorithm 3): a scan of all versions of all records, by
//! key. Compactions have kept each replaced version (`Repair::Staged`) or added its write to the
//! obsolete set (`Repair::Merge`), so the scan finds every obsolete write that the
//! set lacks.

use esker_lsm::{Cursor, Kind, TreeId};

use super::options::OnRepair;
use super::reading::{READAHEAD, entries, runs};
use super::work::{KeyPiece, ObsoleteCollector, RepairRun, Reporter, TaskResult};
use crate::catalog::Layout;

/// Repairs all indexes at once, by ranges of keys.
pub(super) fn run(
    work: &RepairRun<'_>,
    layout: &Layout,
    progress: &mut OnRepair<'_>,
) -> TaskResult {
    let (data, versions) = (layout.data, layout.stored.settings.versions);
    let components = runs(work, data);
    let ranges = work.ranges(&components)?;
    work.run(ranges, entries(&components), progress, |range, reporter| {
        scan(work, reporter, data, versions, range)
    })
}

/// Collects the obsolete versions of the records in a range of keys: all but the newest `versions`
/// of each. Deletions count as versions, as in compactions.
fn scan(
    work: &RepairRun<'_>,
    reporter: &Reporter<'_>,
    data: TreeId,
    versions: u32,
    keys: KeyPiece,
) -> TaskResult {
    let mut collector = ObsoleteCollector::new(work, reporter);
    let mut cursor = work.snapshot.entries_in(&runs(work, data), READAHEAD);
    let mut key: Option<Vec<u8>> = None;
    // The number of newer versions of the key.
    let mut newer = 0;
    cursor.within(&keys.from, keys.to.as_deref());
    cursor.seek_first()?;
    while cursor.valid() {
        if key.as_deref() != Some(cursor.key()) {
            let key = key.get_or_insert_default();
            key.clear();
            key.extend_from_slice(cursor.key());
            newer = 0;
        }
        if newer >= versions && cursor.kind() == Kind::Put {
            collector.add(cursor.seq())?;
        }
        // Only compared with `versions`.
        newer = newer.saturating_add(1);
        collector.entry(|| cursor.cost())?;
        cursor.next()?;
    }
    collector.finish(&cursor.cost())
}
