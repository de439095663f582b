//! A comparison of two sets of index entries without holding them: sums of their hashes, by hash.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3Default;

/// The sums, a power of two.
const SUMS: usize = 1 << 18;

/// Of each sum: what is expected, less what was found. The order does not count.
pub(crate) struct Sketch(Vec<u128>);

impl Sketch {
    pub(crate) fn new() -> Sketch {
        Sketch(vec![0; SUMS])
    }

    /// Adds entries that are expected.
    pub(crate) fn expect(&mut self, hashes: &[u128]) {
        for hash in hashes {
            if let Some(sum) = self.0.get_mut(place(*hash)) {
                *sum = sum.wrapping_add(*hash);
            }
        }
    }

    /// Adds entries that were found.
    pub(crate) fn find(&mut self, hashes: &[u128]) {
        for hash in hashes {
            if let Some(sum) = self.0.get_mut(place(*hash)) {
                *sum = sum.wrapping_sub(*hash);
            }
        }
    }

    /// True if the two sets are the same.
    pub(crate) fn is_equal(&self) -> bool {
        self.0.iter().all(|sum| *sum == 0)
    }

    /// True if the two sets differ among the entries with which this one is added up.
    pub(crate) fn differs(&self, hash: u128) -> bool {
        self.0.get(place(hash)).is_some_and(|sum| *sum != 0)
    }
}

fn place(hash: u128) -> usize {
    (hash >> 64) as usize & (SUMS - 1)
}

/// The hash of an entry: of its table, its partition and its row.
pub(crate) fn hash(table: &Arc<str>, partition: &[u8], row: &[u8]) -> u128 {
    let mut hash = Xxh3Default::new();
    for bytes in [table.as_bytes(), partition, row] {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    hash.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_equal_in_any_order_and_differences_are_found() {
        let table: Arc<str> = "t".into();
        let all: Vec<u128> = (0..100_000_u32)
            .map(|n| hash(&table, b"p", &n.to_be_bytes()))
            .collect();
        let mut sketch = Sketch::new();
        sketch.expect(&all);
        let reversed: Vec<u128> = all.iter().rev().copied().collect();
        sketch.find(&reversed);
        assert!(sketch.is_equal());
        sketch.find(&all[7..8]);
        sketch.expect(&all[9..10]);
        assert!(!sketch.is_equal());
        let differing = all.iter().filter(|hash| sketch.differs(**hash)).count();
        assert!((2..100).contains(&differing), "{differing}");
        assert!(sketch.differs(all[7]) && sketch.differs(all[9]));
    }

    #[test]
    fn the_parts_of_an_entry_are_told_apart() {
        let (a, ab): (Arc<str>, Arc<str>) = ("a".into(), "ab".into());
        let hashes = [
            hash(&a, b"bc", b"d"),
            hash(&ab, b"c", b"d"),
            hash(&a, b"b", b"cd"),
        ];
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
    }
}
