//! Which slot of a group is in tables: writes of the engine, and the slots that were applied as of each.

use std::collections::VecDeque;

use esker_lsm::Seq;

use crate::ids::Slot;

/// The most pairs that are kept. With more, every second is dropped: a slot is then known to be durable a little
/// later.
const MOST: usize = 512;

/// The slots of a group that were applied and are not known to be durable, and the last one that is.
#[derive(Debug, Default)]
pub(super) struct Positions {
    durable: Slot,
    pending: VecDeque<(Seq, Slot)>,
}

impl Positions {
    /// A group that is durable up to `slot`.
    pub(super) fn new(slot: Slot) -> Positions {
        Positions {
            durable: slot,
            pending: VecDeque::new(),
        }
    }

    /// Notes that the write `seq` applied `slot`.
    pub(super) fn note(&mut self, seq: Seq, slot: Slot) {
        if self.pending.len() >= MOST {
            let mut keep = false;
            self.pending.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.pending.push_back((seq, slot));
    }

    /// The last slot that is in tables, given the last write that is.
    pub(super) fn durable(&mut self, upto: Seq) -> Slot {
        while let Some((_, slot)) = self.pending.front().filter(|(seq, _)| *seq <= upto) {
            self.durable = *slot;
            self.pending.pop_front();
        }
        self.durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_durable_when_its_write_is() {
        let mut positions = Positions::new(Slot(3));
        for n in 1..10_000u64 {
            positions.note(10 * n, Slot(3 + n));
            assert!(positions.pending.len() <= MOST);
        }
        assert_eq!(positions.durable(9), Slot(3));
        let slot = positions.durable(50_000).0;
        assert!((4_000..=5_003).contains(&slot), "{slot}");
        assert_eq!(positions.durable(99_989), Slot(3 + 9_998));
        assert_eq!(positions.durable(99_990), Slot(3 + 9_999));
    }
}
