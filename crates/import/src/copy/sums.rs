//! Counts and checksums by range of keys.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;

use esker::{Error, Key, Result};
use esker_store::Records;

use super::items::{Versions, digest};

/// At most twice as many ranges are held; then two become one.
const RANGES: usize = 256;
/// Records of a range at first.
const FIRST: u64 = 256;
/// Keys that stand for all, of a store without an order of keys.
const SAMPLE: usize = 4096;

/// The number of records of a range, and the sum of their digests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) records: u64,
    digests: u128,
}

impl Sum {
    pub(super) fn add(&mut self, digest: u128) {
        self.records += 1;
        self.digests = self.digests.wrapping_add(digest);
    }

    fn merge(&mut self, other: Sum) {
        self.records += other.records;
        self.digests = self.digests.wrapping_add(other.digests);
    }
}

/// The sums of all ranges. `bounds` are the first keys of all ranges but the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) bounds: Vec<Vec<u8>>,
    pub(super) sums: Vec<Sum>,
}

/// The range of a key.
pub(super) fn range_of(bounds: &[Vec<u8>], key: &[u8]) -> usize {
    bounds.partition_point(|bound| bound.as_slice() <= key)
}

impl Sums {
    /// The number of records.
    pub(super) fn records(&self) -> u64 {
        self.sums.iter().map(|sum| sum.records).sum()
    }

    /// Of a store with an order of keys: the ranges are made of what is read.
    pub(super) fn ordered(reading: &Reading<'_>) -> Result<Sums> {
        let mut growing = Growing::default();
        reading.part(0, &mut |key, digest| growing.add(key, digest))?;
        Ok(growing.finish())
    }

    /// By ranges that are given.
    pub(super) fn by(reading: &Reading<'_>, bounds: &[Vec<u8>], workers: usize) -> Result<Sums> {
        let parts = reading.records.parts();
        let workers = u32::try_from(workers.max(1)).unwrap_or(1).min(parts);
        let mut sums = vec![Sum::default(); bounds.len() + 1];
        let all = scope(|threads| {
            let worker = |first: u32| {
                let mut own = vec![Sum::default(); bounds.len() + 1];
                for part in (first..parts).step_by(workers as usize) {
                    reading.part(part, &mut |key, digest| {
                        if let Some(sum) = own.get_mut(range_of(bounds, key.as_bytes())) {
                            sum.add(digest);
                        }
                    })?;
                }
                Ok(own)
            };
            let begun: Vec<_> = (0..workers)
                .map(|first| threads.spawn(move || worker(first)))
                .collect();
            let joined = begun.into_iter().map(|thread| {
                let failed = |_| Error::Unavailable("a thread that compares failed".to_string());
                thread.join().map_err(failed)?
            });
            joined.collect::<Result<Vec<Vec<Sum>>>>()
        })?;
        for own in all {
            for (sum, own) in sums.iter_mut().zip(own) {
                sum.merge(own);
            }
        }
        let bounds = bounds.to_vec();
        Ok(Sums { bounds, sums })
    }

    /// Bounds of ranges of about the same size, of a store whose order is that of hashes of keys.
    pub(super) fn sampled(records: &dyn Records) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for part in 0..records.parts() {
            let left = SAMPLE.saturating_sub(keys.len());
            for record in records.part(part, None)?.take(left.min(SAMPLE / 4)) {
                keys.push(record?.key().as_bytes().to_vec());
            }
        }
        keys.sort_unstable();
        let step = keys.len().div_ceil(RANGES).max(1);
        let mut bounds: Vec<Vec<u8>> = keys.into_iter().step_by(step).skip(1).collect();
        bounds.dedup();
        Ok(bounds)
    }

    /// The ranges that differ.
    pub(super) fn differing(&self, other: &Sums) -> Vec<usize> {
        let pairs = self.sums.iter().zip(&other.sums).enumerate();
        pairs
            .filter(|(_, (a, b))| a != b)
            .map(|(at, _)| at)
            .collect()
    }
}

/// Ranges that grow with what is read in the order of keys.
#[derive(Debug)]
struct Growing {
    firsts: Vec<Vec<u8>>,
    sums: Vec<Sum>,
    size: u64,
}

impl Default for Growing {
    fn default() -> Growing {
        Growing {
            firsts: Vec::new(),
            sums: Vec::new(),
            size: FIRST,
        }
    }
}

impl Growing {
    fn add(&mut self, key: &Key, digest: u128) {
        match self.sums.last_mut() {
            Some(last) if last.records < self.size => return last.add(digest),
            _ => {}
        }
        if self.sums.len() >= 2 * RANGES {
            self.halve();
        }
        let mut sum = Sum::default();
        sum.add(digest);
        self.firsts.push(key.as_bytes().to_vec());
        self.sums.push(sum);
    }

    /// Two ranges become one.
    fn halve(&mut self) {
        self.size *= 2;
        let pairs = self.sums.chunks(2).map(|pair| {
            let mut sum = Sum::default();
            pair.iter().for_each(|one| sum.merge(*one));
            sum
        });
        self.sums = pairs.collect();
        self.firsts = std::mem::take(&mut self.firsts)
            .into_iter()
            .step_by(2)
            .collect();
    }

    fn finish(self) -> Sums {
        let mut sums = self.sums;
        if sums.is_empty() {
            sums.push(Sum::default());
        }
        let bounds = self.firsts.into_iter().skip(1).collect();
        Sums { bounds, sums }
    }
}

/// A side that is read for a comparison.
pub(super) struct Reading<'a> {
    pub(super) records: &'a dyn Records,
    pub(super) versions: Versions,
    /// Records that were read, of both sides.
    pub(super) read: &'a AtomicU64,
    /// True if the comparison should end.
    pub(super) is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Reading<'_> {
    /// Passes each key of a part with its digest.
    pub(super) fn part(&self, part: u32, each: &mut dyn FnMut(&Key, u128)) -> Result<()> {
        let mut records = self.records.part(part, None)?;
        loop {
            let items = self.versions.chunk(self.records, &mut *records)?;
            if items.is_empty() || self.stop().is_break() {
                return Ok(());
            }
            self.read.fetch_add(items.len() as u64, Ordering::Relaxed);
            for item in items {
                if let Some(newest) = item.first() {
                    each(newest.key(), digest(&item));
                }
            }
        }
    }

    pub(super) fn stop(&self) -> ControlFlow<()> {
        if (self.is_stopped)() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker::KeyType;

    fn key(number: u64) -> Key {
        Key::parse(KeyType::Int, &number.to_string()).unwrap()
    }

    #[test]
    fn ranges_grow_and_stay_few() {
        let mut growing = Growing::default();
        let count = FIRST * 5000 + 7;
        for number in 0..count {
            growing.add(&key(number), u128::from(number));
        }
        let sums = growing.finish();
        assert!(sums.sums.len() > RANGES / 2 && sums.sums.len() <= 2 * RANGES);
        assert_eq!(sums.records(), count);
        // The same by any order of the keys.
        let mut others = vec![Sum::default(); sums.sums.len()];
        for number in (0..count).rev() {
            others[range_of(&sums.bounds, key(number).as_bytes())].add(u128::from(number));
        }
        assert_eq!(others, sums.sums);
    }

    #[test]
    fn a_sum_knows_counts_and_contents() {
        let sum = |digests: &[u128]| {
            let mut sum = Sum::default();
            digests.iter().for_each(|one| sum.add(*one));
            sum
        };
        assert_eq!(sum(&[1, 2]), sum(&[2, 1]));
        assert_ne!(sum(&[3]), sum(&[1, 2]));
        assert_ne!(sum(&[1, 2]), sum(&[1, 3]));
        let of = |sums: Vec<Sum>| Sums {
            bounds: vec![vec![5]],
            sums,
        };
        let (a, b) = (
            of(vec![sum(&[1]), sum(&[2])]),
            of(vec![sum(&[1]), sum(&[4])]),
        );
        assert_eq!(a.differing(&b), [1]);
    }
}
