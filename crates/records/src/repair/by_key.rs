//! Repair by key: finds the writes replaced since the watermark, from the primary-key index alone.
//! Serves all indexes at once, because a record and its index entries share one number.
//!
//! Components newer than the watermark are read in full. A key that occurs twice in them was
//! replaced there. To find the version before those, the older components are probed by sorted,
//! batched lookups (for a new key this costs a probe of a key filter), or read together with the
//! new components if many keys are probed. Only the newest older version matters: the others were
//! replaced before the watermark.

use std::sync::atomic::Ordering::Relaxed;

use esker_lsm::coding::ByteList;
use esker_lsm::{Component, Cursor, EntryCursor, Expected, Kind, LookupOptions, Seq};

use super::options::{Lookups, OnRepair};
use super::reading::{ENTRIES_PER_LOOKUP, READAHEAD, entries, runs};
use super::work::{KeyPiece, ObsoleteCollector, RepairRun, Reporter, TaskResult};
use crate::catalog::Layout;
use crate::error::{Error, Result};

/// Repairs all indexes at once, by ranges of keys.
pub(super) fn run(
    work: &RepairRun<'_>,
    layout: &Layout,
    progress: &mut OnRepair<'_>,
) -> TaskResult {
    let missing = || Error::damaged("the primary-key index is missing");
    let keys = layout.keys.ok_or_else(missing)?;
    let is_old = |run: &Component| match run {
        Component::Run(run) => run.component().max <= work.watermark(),
        Component::Memtable(_) => false,
    };
    // The spans of the components are disjoint, so the older components come last.
    let mut recent = runs(work, keys);
    let mut older = recent.split_off(recent.partition_point(|run| !is_old(run)));
    let (new, old) = (entries(&recent), entries(&older));
    if new == 0 {
        return Ok(());
    }
    let scans = match work.options.lookups {
        Lookups::Auto => new.saturating_mul(ENTRIES_PER_LOOKUP) >= old,
        Lookups::Points => false,
        Lookups::MergeScan => true,
    };
    let mut total = new;
    if scans {
        recent.append(&mut older);
        total += old;
    }
    let ranges = work.ranges(&recent)?;
    work.run(ranges, total, progress, |range, reporter| {
        let cursor = work.snapshot.entries_in(&recent, READAHEAD);
        KeyRepair::new(work, reporter, &older).run(cursor, range)
    })
}

/// The repair of a range of keys.
struct KeyRepair<'w> {
    work: &'w RepairRun<'w>,
    /// The components that lookups probe.
    older: &'w [Component],
    collector: ObsoleteCollector<'w>,
    /// The keys to look up, in order.
    probes: ByteList,
}

impl<'w> KeyRepair<'w> {
    fn new(
        work: &'w RepairRun<'w>,
        reporter: &'w Reporter<'w>,
        older: &'w [Component],
    ) -> KeyRepair<'w> {
        KeyRepair {
            work,
            older,
            collector: ObsoleteCollector::new(work, reporter),
            probes: ByteList::default(),
        }
    }

    /// Reads the entries of the range with a cursor over the new components.
    fn run(mut self, mut cursor: EntryCursor, keys: KeyPiece) -> TaskResult {
        let watermark = self.work.watermark();
        // The previous entry: its key and its number.
        let mut key = Vec::new();
        let mut previous: Option<Seq> = None;
        cursor.within(&keys.from, keys.to.as_deref());
        cursor.seek_first()?;
        while cursor.valid() {
            let seq = cursor.seq();
            match previous {
                // Of the same key, the previous entry is newer.
                Some(newer) if key == cursor.key() => {
                    if newer > watermark && cursor.kind() == Kind::Put {
                        self.collector.add(seq)?;
                    }
                }
                _ => {
                    self.end_key(&key, previous, &cursor)?;
                    key.clear();
                    key.extend_from_slice(cursor.key());
                }
            }
            previous = Some(seq);
            self.collector.entry(|| cursor.cost())?;
            cursor.next()?;
        }
        self.end_key(&key, previous, &cursor)?;
        self.look_up()?;
        self.collector.finish(&cursor.cost())
    }

    /// Ends a key whose oldest new entry is `oldest`, which may have replaced an older version;
    /// `None` before the first key.
    fn end_key(&mut self, key: &[u8], oldest: Option<Seq>, cursor: &EntryCursor) -> TaskResult {
        let watermark = self.work.watermark();
        if self.older.is_empty() || oldest.is_none_or(|oldest| oldest <= watermark) {
            return Ok(());
        }
        self.probes.push(key);
        let size = self.probes.bytes() + self.probes.len() * size_of::<(usize, &[u8])>();
        if size < self.work.share() {
            return Ok(());
        }
        self.look_up()?;
        self.collector.pause(&cursor.cost())
    }

    /// Looks up the collected keys in the older components: the newest version of each was
    /// replaced.
    fn look_up(&mut self) -> Result<()> {
        let keys: Vec<&[u8]> = self.probes.iter().collect();
        let mut found = Vec::new();
        let (expected, options) = (Expected::Unknown, LookupOptions::default());
        self.work
            .snapshot
            .lookup(self.older, &keys, expected, options, &self.collector.cost)
            .visit_all(&mut |_, entry| found.push(entry.seq))?;
        let looked_up = &self.work.counts().looked_up;
        looked_up.fetch_add(keys.len() as u64, Relaxed);
        for seq in found {
            self.collector.add(seq)?;
        }
        self.probes.clear();
        Ok(())
    }
}
