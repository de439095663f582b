//! Live bytes of segments: those that entries of the map refer to.

use std::collections::BTreeMap;

use esker_lsm::Seq;

/// What a batch changes: by segment, bytes that become live less bytes that become garbage.
pub(super) type Delta = BTreeMap<u32, i64>;

/// Live bytes of segments. A segment without live bytes is not listed.
#[derive(Debug, Default)]
pub(super) struct Usage {
    live: BTreeMap<u32, u64>,
    /// Segments that lost their last live byte since the map was opened, and the write that took
    /// it.
    emptied: BTreeMap<u32, Seq>,
}

impl Usage {
    pub(super) fn new(live: BTreeMap<u32, u64>) -> Usage {
        Usage {
            live,
            emptied: BTreeMap::new(),
        }
    }

    /// Live bytes of a segment.
    pub(super) fn get(&self, segment: u32) -> u64 {
        self.live.get(&segment).copied().unwrap_or(0)
    }

    /// Live bytes of a segment after a change.
    pub(super) fn after(&self, segment: u32, change: i64) -> u64 {
        self.get(segment).saturating_add_signed(change)
    }

    /// Applies a change that was written by `seq`.
    pub(super) fn apply(&mut self, delta: &Delta, seq: Seq) {
        for (segment, change) in delta {
            match self.after(*segment, *change) {
                0 => {
                    if self.live.remove(segment).is_some() || *change < 0 {
                        self.emptied.insert(*segment, seq);
                    }
                }
                live => {
                    self.live.insert(*segment, live);
                    self.emptied.remove(segment);
                }
            }
        }
    }

    pub(super) fn all(&self) -> &BTreeMap<u32, u64> {
        &self.live
    }

    /// True where a segment has no live bytes, as of the write `durable`.
    pub(super) fn is_free(&self, segment: u32, durable: Seq) -> bool {
        let emptied = self.emptied.get(&segment);
        self.get(segment) == 0 && emptied.is_none_or(|seq| *seq <= durable)
    }

    /// The segments that were emptied since the map was opened, as of the write `durable`.
    pub(super) fn free(&self, durable: Seq) -> Vec<u32> {
        let free = self.emptied.iter().filter(|(_, seq)| **seq <= durable);
        free.map(|(segment, _)| *segment).collect()
    }

    /// Forgets a segment that was removed.
    pub(super) fn forget(&mut self, segment: u32) {
        self.emptied.remove(&segment);
    }
}
