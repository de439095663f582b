//! The model of the upserts: which write each key's record is of now.

use crate::workload::upserts::Upserts;

/// No write yet.
const NONE: u32 = u32::MAX;

/// The state after some of the writes.
#[derive(Debug)]
pub struct Current<'u> {
    upserts: &'u Upserts,
    /// The write that each key's record is of.
    latest: Vec<u32>,
    /// Writes so far.
    writes: usize,
}

impl<'u> Current<'u> {
    /// Nothing is written yet.
    pub fn new(upserts: &'u Upserts) -> Current<'u> {
        Current {
            upserts,
            latest: Vec::new(),
            writes: 0,
        }
    }

    /// The next write replaces whatever record its key has.
    pub fn upsert(&mut self) {
        let number = self.next();
        self.latest[number] = self.writes as u32 - 1;
    }

    /// The next write is refused if its key has a record; tells whether it was accepted.
    pub fn insert(&mut self) -> bool {
        let number = self.next();
        let new = self.latest[number] == NONE;
        if new {
            self.latest[number] = self.writes as u32 - 1;
        }
        new
    }

    fn next(&mut self) -> usize {
        let number = self.upserts.number(self.writes);
        self.writes += 1;
        if number >= self.latest.len() {
            self.latest.resize(number + 1, NONE);
        }
        number
    }

    /// Writes so far, refused ones included.
    pub fn writes(&self) -> usize {
        self.writes
    }

    /// Keys so far.
    pub fn keys(&self) -> usize {
        self.latest.len()
    }

    /// The write that the record of a key is of.
    pub fn get(&self, number: usize) -> usize {
        self.latest[number] as usize
    }

    /// The writes whose records are current and have a value from `lo` to `hi`, newest first.
    pub fn with_value(&self, attribute: usize, lo: u64, hi: u64) -> Vec<usize> {
        self.current(|write| (lo..=hi).contains(&self.upserts.value(write, attribute)))
    }

    /// The same by time.
    pub fn with_time(&self, lo: u64, hi: u64) -> Vec<usize> {
        self.current(|write| (lo..=hi).contains(&self.upserts.time(write)))
    }

    fn current(&self, fits: impl Fn(usize) -> bool) -> Vec<usize> {
        let all = self.latest.iter().map(|&write| write as usize);
        let mut found: Vec<usize> = all.filter(|&write| fits(write)).collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::upserts::Skew;

    /// What a scan over the writes says of the key's record.
    fn naive(upserts: &Upserts, writes: usize, number: usize, first: bool) -> Option<usize> {
        let mut of_key = (0..writes).filter(|&write| upserts.number(write) == number);
        if first {
            of_key.next()
        } else {
            of_key.next_back()
        }
    }

    #[test]
    fn upserts_keep_the_last_write_of_a_key_and_inserts_the_first() {
        let upserts = Upserts::new(7, 400, 0.5, Skew::Uniform);
        let (mut last, mut first) = (Current::new(&upserts), Current::new(&upserts));
        for write in 0..upserts.len() {
            let new = naive(&upserts, write, upserts.number(write), true).is_none();
            last.upsert();
            assert_eq!(first.insert(), new);
        }
        assert_eq!(last.keys(), first.keys());
        for number in 0..last.keys() {
            assert_eq!(Some(last.get(number)), naive(&upserts, 400, number, false));
            assert_eq!(Some(first.get(number)), naive(&upserts, 400, number, true));
        }
    }

    #[test]
    fn only_current_records_are_found_newest_first() {
        let upserts = Upserts::new(7, 400, 0.5, Skew::Uniform);
        let mut current = Current::new(&upserts);
        (0..400).for_each(|_| current.upsert());
        let found = current.with_value(0, 0, 49_999);
        let mut expected: Vec<usize> = (0..current.keys())
            .filter_map(|number| naive(&upserts, 400, number, false))
            .filter(|&write| upserts.value(write, 0) < 50_000)
            .collect();
        expected.sort_unstable();
        expected.reverse();
        assert!(found.len() > 50 && found == expected);
        let middle = current.with_time(upserts.time(100), upserts.time(199));
        assert!(middle.iter().all(|write| (100..200).contains(write)));
        assert!(middle.len() < 100 && !middle.is_empty());
    }
}
