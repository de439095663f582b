//! Where the entries of one group's log are: on disk, and the newest also in memory.

use std::collections::VecDeque;

use crate::body::Body;
use crate::ids::{Ballot, Slot};
use crate::place::Place;

/// An entry that was appended.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The ballot that it was accepted in.
    pub(super) ballot: Ballot,
    /// Where its record begins.
    pub(super) record: Place,
    /// Where its command begins.
    pub(super) payload: Place,
    /// The log sequence number behind its record: durable once that is synced.
    pub(super) end: u64,
    /// Its command, while it is in memory.
    pub(super) body: Option<Body>,
}

/// The entries of a group behind its base.
#[derive(Debug)]
pub(super) struct Log {
    base: (Slot, Ballot),
    entries: VecDeque<Entry>,
    /// Bytes of commands in memory.
    held: usize,
    /// Entries before this index have no command in memory.
    bare: usize,
    /// The disk has entries behind the last one that are void, and nothing there says so.
    is_shortened: bool,
}

impl Log {
    /// An empty log behind `base`.
    pub(super) fn new(base: (Slot, Ballot)) -> Log {
        Log {
            base,
            entries: VecDeque::new(),
            held: 0,
            bare: 0,
            is_shortened: false,
        }
    }

    /// The last slot before the log.
    pub(super) fn base(&self) -> (Slot, Ballot) {
        self.base
    }

    /// The last slot.
    pub(super) fn last(&self) -> Slot {
        Slot(self.base.0.0 + self.entries.len() as u64)
    }

    /// The slot and ballot of the last entry, or of the base.
    pub(super) fn last_entry(&self) -> (Slot, Ballot) {
        let ballot = self
            .entries
            .back()
            .map_or(self.base.1, |entry| entry.ballot);
        (self.last(), ballot)
    }

    /// How many entries it has.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The slot and ballot of the last entry up to `slot`, or of the base.
    pub(super) fn ballot_at(&self, slot: Slot) -> Option<Ballot> {
        match self.get(slot) {
            Some(entry) => Some(entry.ballot),
            None if slot == self.base.0 => Some(self.base.1),
            None => None,
        }
    }

    /// The entry at `slot`.
    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(self.index(slot)?)
    }

    fn index(&self, slot: Slot) -> Option<usize> {
        usize::try_from(slot.0.checked_sub(self.base.0.0 + 1)?).ok()
    }

    /// Puts an entry at `slot`, and removes those from there on. False where a slot before is
    /// missing.
    pub(super) fn put(&mut self, slot: Slot, entry: Entry) -> bool {
        let Some(index) = self
            .index(slot)
            .filter(|index| *index <= self.entries.len())
        else {
            return false;
        };
        self.truncate(index);
        self.held += entry.body.as_ref().map_or(0, |body| body.len());
        self.entries.push_back(entry);
        true
    }

    /// Removes the entries behind `slot`.
    pub(super) fn end_at(&mut self, slot: Slot) {
        let keep = slot.0.saturating_sub(self.base.0.0) as usize;
        self.truncate(keep.min(self.entries.len()));
    }

    fn truncate(&mut self, index: usize) {
        self.is_shortened |= index < self.entries.len();
        for entry in self.entries.drain(index..) {
            self.held -= entry.body.map_or(0, |body| body.len());
        }
        self.bare = self.bare.min(index);
    }

    /// The disk has entries behind the last one that do not count.
    pub(super) fn note_void_entries(&mut self) {
        self.is_shortened = true;
    }

    /// True where the disk is to say that the log ends here before it gets the next entry. False
    /// until the log is shortened again.
    pub(super) fn take_shortened(&mut self) -> bool {
        std::mem::take(&mut self.is_shortened)
    }

    /// Forgets the entries up to `slot`.
    pub(super) fn cut(&mut self, slot: Slot) {
        while self.base.0 < slot {
            let Some(entry) = self.entries.pop_front() else {
                return;
            };
            self.base = (self.base.0.next(), entry.ballot);
            self.held -= entry.body.map_or(0, |body| body.len());
            self.bare = self.bare.saturating_sub(1);
        }
    }

    /// Takes commands out of memory, the oldest first, while they have more than `most` bytes.
    /// Those behind `durable`, and behind `applied`, stay.
    pub(super) fn shrink(&mut self, most: usize, upto: Slot) {
        while self.held > most {
            let slot = Slot(self.base.0.0 + self.bare as u64 + 1);
            let Some(entry) = self.entries.get_mut(self.bare).filter(|_| slot <= upto) else {
                return;
            };
            self.held -= entry.body.take().map_or(0, |body| body.len());
            self.bare += 1;
        }
    }

    /// The last slot whose record is durable once everything before `end` is.
    pub(super) fn durable(&self, end: u64, from: Slot) -> Slot {
        let mut slot = from.max(self.base.0);
        while self.get(slot.next()).is_some_and(|entry| entry.end <= end) {
            slot = slot.next();
        }
        slot
    }

    /// The last slot all of whose entries up to it lie in segments up to `segment`.
    pub(super) fn last_within(&self, segment: u32) -> Slot {
        let count = self
            .entries
            .partition_point(|entry| entry.record.segment <= segment);
        Slot(self.base.0.0 + count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ballot: u64, end: u64, bytes: usize) -> Entry {
        let place = Place {
            segment: end as u32 / 10,
            offset: 0,
        };
        Entry {
            ballot: Ballot(ballot),
            record: place,
            payload: place,
            end,
            body: Some(vec![0; bytes].into()),
        }
    }

    #[test]
    fn entries_are_replaced_cut_and_taken_out_of_memory() {
        let mut log = Log::new((Slot(4), Ballot(1)));
        assert!(!log.put(Slot(6), entry(1, 1, 10)), "slot 5 is missing");
        for slot in 5..=9 {
            assert!(log.put(Slot(slot), entry(1, slot * 10, 10)));
        }
        assert!(log.put(Slot(8), entry(2, 100, 10)));
        assert_eq!((log.last(), log.held), (Slot(8), 40));
        assert_eq!(log.ballot_at(Slot(8)), Some(Ballot(2)));
        assert_eq!(log.ballot_at(Slot(4)), Some(Ballot(1)));
        assert_eq!(log.durable(70, Slot(0)), Slot(7));
        log.shrink(15, Slot(6));
        assert!(log.get(Slot(6)).unwrap().body.is_none());
        assert!(log.get(Slot(7)).unwrap().body.is_some(), "not applied yet");
        log.cut(Slot(6));
        assert_eq!((log.base(), log.held), ((Slot(6), Ballot(1)), 20));
        log.shrink(0, Slot(8));
        assert_eq!(log.held, 0);
        assert_eq!(log.last_within(7), Slot(7));
    }
}
