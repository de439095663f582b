//! The sample of a table: the attribute values of some of its entries, which tell about how many
//! entries have values in a range. A table that is small has one entry in eight in it; a large one
//! keeps halving the share, so that it has a few thousand.
//!
//! An entry is in the sample by the hash of its key alone, so a sample is the same whichever job
//! writes the table.
//!
//! ```text
//! block of a slot  entries in the sample varint, then per entry that has a value:
//!                  number of values varint, each value bytes
//! ```

use crate::coding::{Own, Reader, put_bytes, put_varint};

/// One entry in so many is in the sample of a small table: a power of two.
const ONE_IN: u64 = 8;

/// The most entries in a sample.
const MOST: usize = 4096;

/// The most values of an entry that are kept, and the most bytes of each.
const MOST_VALUES: usize = 16;
const MOST_BYTES: usize = 64;

/// Collects the sample of a table.
pub(crate) struct SampleBuilder {
    /// An entry is in the sample when these bits of its hash are zero.
    mask: u64,
    /// The entries in the sample, by hash.
    sampled: Vec<u64>,
    /// The number of the current entry, if it is in the sample.
    open: Option<u64>,
    begun: u64,
    slots: Vec<Vec<SampledEntry>>,
}

/// The values that an entry has of one attribute.
struct SampledEntry {
    number: u64,
    hash: u64,
    count: usize,
    values: Vec<u8>,
}

impl SampleBuilder {
    pub(crate) fn new(slots: usize) -> SampleBuilder {
        SampleBuilder {
            mask: ONE_IN - 1,
            sampled: Vec::new(),
            open: None,
            begun: 0,
            slots: (0..slots).map(|_| Vec::new()).collect(),
        }
    }

    /// Begins an entry, given the hash of its key.
    #[inline]
    pub(crate) fn begin(&mut self, hash: u64) {
        self.open = None;
        if hash & self.mask == 0 {
            self.begin_sampled(hash);
        }
    }

    fn begin_sampled(&mut self, hash: u64) {
        if self.sampled.len() >= MOST {
            self.halve();
        }
        if hash & self.mask == 0 {
            self.begun += 1;
            self.open = Some(self.begun);
            self.sampled.push(hash);
        }
    }

    /// Adds a value of the current entry.
    #[inline]
    pub(crate) fn add(&mut self, slot: usize, value: &[u8]) {
        if let Some(number) = self.open {
            self.add_sampled(number, slot, value);
        }
    }

    fn add_sampled(&mut self, number: u64, slot: usize, value: &[u8]) {
        let (Some(slot), Some(&hash)) = (self.slots.get_mut(slot), self.sampled.last()) else {
            return;
        };
        let value = value.get(..MOST_BYTES).unwrap_or(value);
        if slot.last().is_none_or(|last| last.number != number) {
            slot.push(SampledEntry {
                number,
                hash,
                count: 0,
                values: Vec::new(),
            });
        }
        if let Some(entry) = slot.last_mut().filter(|entry| entry.count < MOST_VALUES) {
            entry.count += 1;
            put_bytes(&mut entry.values, value);
        }
    }

    fn halve(&mut self) {
        self.mask = self.mask << 1 | 1;
        let mask = self.mask;
        self.sampled.retain(|hash| hash & mask == 0);
        for slot in &mut self.slots {
            slot.retain(|entry| entry.hash & mask == 0);
        }
    }

    /// Appends the block of a slot. False, and nothing is appended, when the sample is empty.
    pub(crate) fn encode(&self, slot: usize, out: &mut Vec<u8>) -> bool {
        if self.sampled.is_empty() {
            return false;
        }
        let entries = self.slots.own(slot);
        put_varint(out, self.sampled.len() as u64);
        for entry in entries {
            put_varint(out, entry.count as u64);
            out.extend_from_slice(&entry.values);
        }
        true
    }
}

/// How many entries of a sample meet a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sampled {
    /// Entries that were looked at.
    pub entries: u64,
    /// Those of them that have a value that meets it.
    pub matches: u64,
}

/// So many entries of samples are enough to tell how many there are in all.
const ENOUGH: u64 = 8;

/// Where none of a sample meets a condition, so many times what one of it stands for.
const OF_NONE: f64 = 0.3;

/// What the samples of several tables tell together.
#[derive(Debug, Clone, Copy, Default)]
pub struct SampleShare {
    entries: u64,
    sampled: u64,
    matches: u64,
    found: f64,
}

impl SampleShare {
    /// Adds a table of so many entries.
    pub fn add(&mut self, entries: u64, counted: Sampled) {
        if counted.entries == 0 {
            return;
        }
        self.entries += entries;
        self.sampled += counted.entries;
        self.matches += counted.matches;
        self.found += entries as f64 * counted.matches as f64 / counted.entries as f64;
    }

    /// The entries of the tables.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// How many entries one of the samples stands for.
    pub fn weight(&self) -> f64 {
        self.entries as f64 / self.sampled.max(1) as f64
    }

    /// True when nothing of the samples meets the condition.
    pub fn has_none(&self) -> bool {
        self.matches == 0
    }

    /// True when so much of the samples meets the condition that they tell how much there is.
    pub fn is_enough(&self) -> bool {
        self.matches >= ENOUGH
    }

    /// About how many entries of the tables meet the condition; `None` without any sample. Where
    /// none of the samples does, a part of what one of them stands for.
    pub fn told(&self) -> Option<f64> {
        match (self.sampled, self.matches) {
            (0, _) => None,
            (_, 0) => Some(OF_NONE * self.weight()),
            _ => Some(self.found),
        }
    }

    /// True when so few entries are in question that samples do not tell them apart.
    pub fn leaves_open(&self, entries: f64) -> bool {
        entries <= ENOUGH as f64 * self.weight()
    }
}

/// Counts the entries of a block in which `meets` is true of a value; `None` when it is malformed.
pub(crate) fn count(bytes: &[u8], meets: &dyn Fn(&[u8]) -> bool) -> Option<Sampled> {
    let mut reader = Reader::new(bytes);
    let entries = reader.varint()?;
    let (mut matches, mut with_values) = (0, 0_u64);
    while !reader.is_empty() {
        with_values += 1;
        let mut is_met = false;
        for _ in 0..reader.varint().filter(|count| *count > 0)? {
            let value = reader.bytes()?;
            is_met = is_met || meets(value);
        }
        matches += u64::from(is_met);
    }
    (with_values <= entries).then_some(Sampled { entries, matches })
}

#[cfg(test)]
mod tests {
    use super::{MOST, SampleBuilder, count};

    fn hash(key: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&key.to_be_bytes())
    }

    fn sampled(entries: u64, meets: &dyn Fn(&[u8]) -> bool) -> (u64, u64) {
        let mut sample = SampleBuilder::new(2);
        for key in 0..entries {
            sample.begin(hash(key));
            sample.add(0, &key.to_be_bytes());
            if key % 2 == 0 {
                sample.add(1, b"a");
                sample.add(1, b"b");
            }
        }
        let mut bytes = Vec::new();
        assert!(sample.encode(0, &mut bytes));
        let of_first = count(&bytes, meets).unwrap();
        bytes.clear();
        assert!(sample.encode(1, &mut bytes));
        let both = count(&bytes, &|value| value == b"b").unwrap();
        assert_eq!(both.entries, of_first.entries);
        let share = both.matches as f64 / both.entries as f64;
        assert!((0.4..0.6).contains(&share), "{share}");
        (of_first.entries, of_first.matches)
    }

    #[test]
    fn a_sample_has_the_shares_of_its_table() {
        for entries in [2_000_u64, 30_000, 100_000] {
            let below = (entries / 4).to_be_bytes();
            let (all, matches) = sampled(entries, &|value| value < below.as_slice());
            assert!(all <= MOST as u64, "{all}");
            assert!(all >= (entries / 10).min(MOST as u64 * 2 / 5), "{all}");
            let share = matches as f64 / all as f64;
            assert!((0.2..0.3).contains(&share), "{share}");
        }
    }

    #[test]
    fn a_malformed_sample_is_noticed() {
        let mut sample = SampleBuilder::new(1);
        for key in 0..200 {
            sample.begin(hash(key));
            sample.add(0, b"some value");
        }
        let mut bytes = Vec::new();
        assert!(sample.encode(0, &mut bytes));
        let all = |_: &[u8]| true;
        assert!(count(&bytes, &all).is_some());
        for len in 1..bytes.len() {
            // Where an entry ends the rest is a sample, of fewer.
            if (len - 1) % 12 != 0 {
                assert_eq!(count(&bytes[..len], &all), None, "{len}");
            }
        }
        bytes[0] = 1;
        assert_eq!(count(&bytes, &all), None);
        assert_eq!(count(&[], &all), None);
        assert!(!SampleBuilder::new(1).encode(0, &mut bytes));
    }
}
