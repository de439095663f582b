//! Which slot of a group is in tables: writes of the engine, and the slots that were applied as of
//! each.

use std::collections::VecDeque;

use esker_lsm::Seq;

use crate::ids::Slot;

/// The most pairs that are kept. With more, every second is dropped, and new ones are as far apart:
/// a slot is then known to be durable a little later.
const MOST: usize = 512;

/// The slots of a group that were applied and are not known to be durable, and the last one that
/// is.
#[derive(Debug, Default)]
pub(super) struct Positions {
    durable: Slot,
    pending: VecDeque<(Seq, Slot)>,
    /// Slots between pairs; the newest one is kept in any case.
    stride: u64,
}

impl Positions {
    /// A group that is durable up to `slot`.
    pub(super) fn new(slot: Slot) -> Positions {
        Positions {
            durable: slot,
            ..Positions::default()
        }
    }

    /// Notes that the write `seq` applied `slot`. A slot that is not behind the last one begins
    /// anew: the state of the group was replaced.
    pub(super) fn note(&mut self, seq: Seq, slot: Slot) {
        let last = self.pending.back().map_or(self.durable, |(_, slot)| *slot);
        if slot <= last {
            *self = Positions::new(slot.min(self.durable));
        }
        let before = self.pending.iter().rev().nth(1).map(|(_, slot)| slot.0);
        if before.is_some_and(|before| slot.0.saturating_sub(before) <= self.stride) {
            self.pending.pop_back();
        }
        if self.pending.len() >= MOST {
            let mut keep = false;
            self.pending.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride = (2 * self.stride).max(2);
        }
        self.pending.push_back((seq, slot));
    }

    /// The last slot that is in tables, given the last write that is.
    pub(super) fn durable(&mut self, upto: Seq) -> Slot {
        while let Some((_, slot)) = self.pending.front().filter(|(seq, _)| *seq <= upto) {
            self.durable = *slot;
            self.pending.pop_front();
        }
        if self.pending.len() < MOST / 4 {
            self.stride = 0;
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
        assert!((4_940..=5_003).contains(&slot), "{slot}");
        let slot = positions.durable(99_989).0;
        assert!((9_940..=10_001).contains(&slot), "{slot}");
        assert_eq!(positions.durable(99_990), Slot(3 + 9_999));
        positions.note(100_000, Slot(0));
        assert_eq!(positions.durable(99_990), Slot(0));
        positions.note(100_001, Slot(700));
        assert_eq!(positions.durable(100_000), Slot(0));
        assert_eq!(positions.durable(100_001), Slot(700));
    }
}
