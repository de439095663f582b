//! Sets of numbers in which neighbours are frequent.

use std::collections::BTreeMap;
#[cfg(test)]
use std::ops::Range;

use esker_coding::{Reader, put_varint};

/// A set of numbers, kept as ranges. The largest `u64` is never in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(super) fn contains(&self, number: u64) -> bool {
        let before = self.0.range(..=number).next_back();
        before.is_some_and(|(_, end)| number < *end)
    }

    /// Adds a number. False where the set has it already, and for the largest `u64`.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        if number == u64::MAX || self.contains(number) {
            return false;
        }
        let end = self.0.remove(&(number + 1)).unwrap_or(number + 1);
        match self.0.range_mut(..number).next_back() {
            Some((_, before)) if *before == number => *before = end,
            _ => drop(self.0.insert(number, end)),
        }
        true
    }

    /// Removes the numbers below `floor`.
    pub(super) fn remove_below(&mut self, floor: u64) {
        let above = self.0.split_off(&floor);
        let last = self.0.last_key_value().map(|(_, end)| *end);
        self.0 = above;
        if let Some(end) = last.filter(|end| *end > floor) {
            self.0.insert(floor, end);
        }
    }

    /// Joins the lowest ranges, with what is between them, until there are at most `most`.
    pub(super) fn join_lowest(&mut self, most: usize) {
        while self.0.len() > most.max(1) {
            let Some((start, _)) = self.0.pop_first() else {
                return;
            };
            if let Some((_, end)) = self.0.pop_first() {
                self.0.insert(start, end);
            }
        }
    }

    /// How many numbers are in the set.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        let mut at = 0;
        for (start, end) in &self.0 {
            put_varint(out, start - at);
            put_varint(out, end - start);
            at = *end;
        }
    }

    /// Reads what `encode` wrote; `None` where the bytes are no set.
    pub(super) fn decode(from: &mut Reader<'_>) -> Option<Ranges> {
        let (mut ranges, mut at) = (BTreeMap::new(), 0u64);
        for index in 0..from.varint()? {
            let start = at.checked_add(from.varint()?)?;
            let end = start.checked_add(from.varint()?)?;
            if end == start || (index > 0 && start == at) {
                return None;
            }
            ranges.insert(start, end);
            at = end;
        }
        Some(Ranges(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_a_set() {
        for seed in esker_sim::seeds(50) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for _ in 0..200 {
                match rng.u8(0..20) {
                    0 => {
                        let floor = rng.u64(0..100);
                        ranges.remove_below(floor);
                        set.retain(|n| *n >= floor);
                    }
                    _ => {
                        let number = rng.u64(0..100);
                        assert_eq!(
                            ranges.insert(number),
                            set.insert(number),
                            "ESKER_SEED={seed}"
                        );
                    }
                }
                let all: BTreeSet<u64> = ranges.iter().flatten().collect();
                assert_eq!(all, set, "ESKER_SEED={seed}");
                assert_eq!(ranges.count(), set.len() as u64);
                assert!((0..101).all(|n| ranges.contains(n) == set.contains(&n)));
                let mut bytes = Vec::new();
                ranges.encode(&mut bytes);
                assert_eq!(
                    Ranges::decode(&mut Reader::new(&bytes)),
                    Some(ranges.clone())
                );
                for cut in 0..bytes.len() {
                    Ranges::decode(&mut Reader::new(&bytes[..cut]));
                }
            }
            ranges.join_lowest(3);
            assert!(ranges.iter().count() <= 3 && set.iter().all(|n| ranges.contains(*n)));
        }
    }
}
