//! A set of byte strings of bounded size, which is cleared often and at no cost.

use std::hash::{BuildHasher, RandomState};

use esker_lsm::coding::Own;

/// The most bytes of all strings in a set.
const MAX_BYTES: usize = 512 << 10;

/// The most strings in a set.
const MAX_LEN: usize = 32 << 10;

/// The size of the first table, which doubles when it is half full.
const FIRST_SLOTS: usize = 64;

/// The strings added since the last [`BoundedSet::clear`]. A full set adds no more strings, and
/// reports strings that it lacks as new.
#[derive(Default)]
pub(super) struct BoundedSet {
    hasher: RandomState,
    /// The strings, concatenated.
    bytes: Vec<u8>,
    /// The end of each string in `bytes`.
    ends: Vec<u32>,
    /// A hash table with open addressing.
    slots: Vec<Slot>,
    /// Changes at each [`BoundedSet::clear`], which so frees all slots at once. Never 0 once there
    /// are slots: that is the round of slots that were never filled.
    round: u32,
}

/// A slot of the hash table. It is free if it was filled in another round.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// The index of the string.
    place: u32,
    /// The round in which the slot was filled.
    round: u32,
}

/// Where the search for a string ends.
enum Found {
    /// The set has the string.
    String,
    /// The set lacks the string; this slot is free for it.
    FreeSlot(usize),
}

impl BoundedSet {
    /// Removes all strings.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.slots.fill(Slot::default());
            self.round = 1;
        }
    }

    /// Adds a string; false if the set has it.
    pub(super) fn insert(&mut self, string: &[u8]) -> bool {
        let full = self.ends.len() >= MAX_LEN || self.bytes.len() + string.len() > MAX_BYTES;
        let is_half_full = self.slots.len() < 2 * (self.ends.len() + 1);
        if self.slots.is_empty() || (is_half_full && !full) {
            self.grow();
        }
        match self.find(string) {
            Found::String => false,
            Found::FreeSlot(_) if full => true,
            Found::FreeSlot(slot) => {
                let place = self.ends.len() as u32;
                self.bytes.extend_from_slice(string);
                self.ends.push(self.bytes.len() as u32);
                self.put(slot, place);
                true
            }
        }
    }

    /// The string with this index.
    fn string(&self, place: u32) -> &[u8] {
        let place = place as usize;
        let end = |place: usize| *self.ends.own(place) as usize;
        let start = place.checked_sub(1).map_or(0, end);
        self.bytes.own(start..end(place))
    }

    /// Searches for a string, in a table that has slots. The table is at most half full, so the
    /// search ends after few steps.
    fn find(&self, string: &[u8]) -> Found {
        // The number of slots is a power of two.
        let mask = self.slots.len() - 1;
        let mut at = self.hasher.hash_one(string) as usize & mask;
        loop {
            let slot = self.slots.own(at);
            if slot.round != self.round {
                return Found::FreeSlot(at);
            }
            if self.string(slot.place) == string {
                return Found::String;
            }
            at = (at + 1) & mask;
        }
    }

    /// Fills a free slot.
    fn put(&mut self, slot: usize, place: u32) {
        *self.slots.own_mut(slot) = Slot {
            place,
            round: self.round,
        };
    }

    /// Doubles the table.
    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(FIRST_SLOTS);
        self.round = 1;
        self.slots.clear();
        self.slots.resize(slots, Slot::default());
        for place in 0..self.ends.len() as u32 {
            match self.find(self.string(place)) {
                Found::FreeSlot(slot) => self.put(slot, place),
                Found::String => debug_assert!(false, "the strings of a set differ"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn agrees_with_a_set_until_it_is_full() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut set = BoundedSet::default();
        for _ in 0..200 {
            let mut model = HashSet::new();
            let kinds = 1 << rng.usize(0..12);
            for _ in 0..rng.usize(0..1000) {
                let string = rng.usize(0..kinds).to_string().into_bytes();
                assert_eq!(set.insert(&string), model.insert(string));
            }
            set.clear();
        }
    }

    #[test]
    fn a_full_set_adds_no_strings_and_keeps_those_it_has() {
        let mut set = BoundedSet::default();
        for n in 0..2 * MAX_LEN {
            assert!(set.insert(&n.to_be_bytes()));
        }
        assert_eq!(set.ends.len(), MAX_LEN);
        assert!(!set.insert(&7usize.to_be_bytes()));
        assert!(set.insert(&MAX_LEN.to_be_bytes()));
        set.clear();
        assert!(set.insert(&vec![1; MAX_BYTES]));
        assert!(set.insert(b"2") && set.insert(b"2"));
        assert!(!set.insert(&vec![1; MAX_BYTES]));
        assert!(set.slots.len() <= 2 * MAX_LEN);
    }
}
