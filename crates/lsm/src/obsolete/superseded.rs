//! The obsolete writes as of a snapshot: the set in a bitmap tree's tables, which the snapshot's
//! version pins, and its memtables, whose entries may be newer than the snapshot. So a bit set for
//! a later write hides nothing from an older reader.

use std::sync::{Arc, OnceLock};

use super::SeqSet;
use crate::cursor::Cursor;
use crate::entry::{Seq, key_seq, seq_key};
use crate::memtable::Memtable;

/// Probes after which the memtables' numbers are collected into a set as well.
const MANY_PROBES: u32 = 256;

/// The numbers of a bitmap tree in a snapshot ([`crate::Snapshot::superseded`]).
pub struct Superseded {
    bitmap: Arc<SeqSet>,
    memtables: Vec<Arc<Memtable>>,
    seq: Seq,
    /// The numbers in the memtables, after many probes.
    gathered: OnceLock<SeqSet>,
    probes: std::sync::atomic::AtomicU32,
    repair_watermark: Seq,
    is_whole: bool,
}

impl Superseded {
    pub(crate) fn new(
        bitmap: Arc<SeqSet>,
        memtables: Vec<Arc<Memtable>>,
        seq: Seq,
        repair_watermark: Seq,
        is_whole: bool,
    ) -> Superseded {
        Superseded {
            bitmap,
            repair_watermark,
            is_whole,
            memtables,
            seq,
            gathered: OnceLock::new(),
            probes: std::sync::atomic::AtomicU32::new(0),
        }
    }

    /// True when the write `seq` is obsolete. O(1), and a search in each memtable that is not
    /// empty.
    #[inline]
    pub fn contains(&self, seq: Seq) -> bool {
        self.bitmap.contains(seq) || (!self.memtables.is_empty() && self.in_memory(seq))
    }

    /// True when a write with a number in `first..=last` is obsolete.
    pub fn meets(&self, first: Seq, last: Seq) -> bool {
        let gathered = || self.gathered.get_or_init(|| self.gather());
        self.bitmap.meets(first, last)
            || (!self.memtables.is_empty() && gathered().meets(first, last))
    }

    /// The repair watermark: every superseded number up to it that a tree still has entries of is
    /// in the set, if the set [is whole](Superseded::is_whole).
    pub fn repair_watermark(&self) -> Seq {
        self.repair_watermark
    }

    /// False when a table could not be read when the group was opened: the numbers in the set are
    /// correct, but others may be missing.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    fn in_memory(&self, seq: Seq) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        if let Some(gathered) = self.gathered.get() {
            return gathered.contains(seq);
        }
        if self.probes.fetch_add(1, Relaxed) < MANY_PROBES {
            let key = seq_key(seq);
            return self
                .memtables
                .iter()
                .any(|memtable| memtable.get(&key, self.seq).is_some());
        }
        self.gathered.get_or_init(|| self.gather()).contains(seq)
    }

    fn gather(&self) -> SeqSet {
        let mut gathered = SeqSet::new();
        for memtable in &self.memtables {
            let mut cursor = memtable.cursor();
            // A cursor over memory does not fail.
            let mut more = cursor.seek_first();
            while more.is_ok() && cursor.valid() {
                if cursor.seq() <= self.seq {
                    gathered.extend(key_seq(cursor.key()));
                }
                more = cursor.next();
            }
        }
        gathered
    }
}
