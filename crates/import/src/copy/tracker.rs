//! What is written of each part: chunks are written by several writers, and a copy continues behind
//! the first one that is missing.

use std::collections::BTreeMap;

use super::stored::Done;

/// A part.
#[derive(Debug, Default)]
struct Written {
    /// All chunks before this one are written.
    next: u64,
    /// Chunks behind it that are written.
    ahead: BTreeMap<u64, Done>,
}

/// All parts.
#[derive(Debug)]
pub(super) struct Tracker {
    parts: BTreeMap<u32, Written>,
    /// What may be stored.
    pub(super) done: BTreeMap<u32, Done>,
}

impl Tracker {
    /// Goes on from what is stored.
    pub(super) fn new(done: BTreeMap<u32, Done>) -> Tracker {
        let parts = BTreeMap::new();
        Tracker { parts, done }
    }

    /// A chunk is written; `behind` is where the part continues.
    pub(super) fn written(&mut self, part: u32, chunk: u64, behind: Done) {
        let written = self.parts.entry(part).or_default();
        written.ahead.insert(chunk, behind);
        while let Some(behind) = written.ahead.remove(&written.next) {
            written.next += 1;
            self.done.insert(part, behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_counts_when_all_before_it_are_written() {
        let mut tracker = Tracker::new(BTreeMap::from([(2, Done::All)]));
        let at = |mark: u8| Done::Before(vec![mark]);
        tracker.written(0, 1, at(1));
        tracker.written(0, 3, Done::All);
        assert_eq!(tracker.done.get(&0), None);
        tracker.written(0, 0, at(0));
        assert_eq!(tracker.done.get(&0), Some(&at(1)));
        tracker.written(1, 0, at(9));
        tracker.written(0, 2, at(2));
        assert_eq!(tracker.done.get(&0), Some(&Done::All));
        assert_eq!(tracker.done.len(), 3);
    }
}
