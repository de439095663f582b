//! The key filter of a memtable: most keys looked up are not in it, and a search of the list costs
//! a cache miss per level. A blocked Bloom filter, as in tables, in pieces: each has room for
//! several times as many keys as the one before, and is created when that is full. So it grows
//! without a rebuild, and a probe reads one line per piece.
//!
//! One thread adds at a time. Readers need no lock: the bits of a key are set before its entry is
//! in the list, so a reader that can see the entry sees them, if it learned of the entry
//! afterwards, as through the visible sequence number.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use crate::coding::Own;

/// Capacity of the first piece, in keys.
const FIRST: usize = 512;
/// Growth factor of the pieces' capacity.
const GROWTH: usize = 8;
/// Number of pieces; the last is for a billion keys, and accepts more.
const PIECES: usize = 8;
const BITS_PER_KEY: usize = 10;
/// Bits set by a key.
const PROBES: u32 = 6;
/// Derives the next probe from the state; odd.
const STEP: u32 = 0x9e37_79b9;

/// A cache line.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

#[derive(Default)]
pub(super) struct KeyFilter {
    pieces: [OnceLock<Box<[Line]>>; PIECES],
    keys: AtomicUsize,
}

impl KeyFilter {
    /// The piece for the key after `keys` others, and its number of lines.
    fn piece_for(keys: usize) -> (usize, usize) {
        let (mut piece, mut room, mut before) = (0, FIRST, 0);
        while keys - before >= room && piece + 1 < PIECES {
            before += room;
            room *= GROWTH;
            piece += 1;
        }
        (piece, (room * BITS_PER_KEY).div_ceil(512))
    }

    /// Adds a key. Returns the bytes that it allocated. One thread at a time.
    #[inline]
    pub(super) fn add(&self, key: &[u8]) -> usize {
        let hash = xxh3_64(key);
        let keys = self.keys.load(Ordering::Relaxed);
        let (piece, lines) = KeyFilter::piece_for(keys);
        let piece = self.pieces.own(piece);
        let made = piece.get().is_none();
        let all = piece.get_or_init(|| (0..lines).map(|_| Line::default()).collect());
        let mut is_new = false;
        let Line(words) = all.own(line_of(hash, all.len()));
        for (word, bit) in bits_of(hash) {
            let word = words.own(word);
            // No other thread writes, so no read-modify-write is needed.
            let bits = word.load(Ordering::Relaxed);
            if bits & bit == 0 {
                is_new = true;
                word.store(bits | bit, Ordering::Relaxed);
            }
        }
        // A repeated key takes no capacity, at least within the same piece.
        self.keys
            .store(keys + usize::from(is_new), Ordering::Relaxed);
        if made { size_of_val(&**all) } else { 0 }
    }

    /// False when the key was certainly not added.
    #[inline]
    pub(super) fn may_contain(&self, key: &[u8]) -> bool {
        let hash = xxh3_64(key);
        let pieces = self.pieces.iter().map_while(OnceLock::get);
        let mut lines = pieces.filter_map(|all| all.get(line_of(hash, all.len())));
        lines.any(|Line(words)| {
            let is_set = |(word, bit): (usize, u64)| {
                let word: Option<&AtomicU64> = words.get(word);
                word.is_none_or(|word| word.load(Ordering::Relaxed) & bit != 0)
            };
            bits_of(hash).all(is_set)
        })
    }
}

/// The upper half of the hash selects the line, the lower half the bits.
#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

#[inline]
fn bits_of(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    let mut state = hash as u32;
    (0..PROBES).map(move |_| {
        let bit = state >> 23;
        state = state.wrapping_mul(STEP);
        ((bit >> 6) as usize, 1 << (bit & 63))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn has_each_key_that_was_added_and_few_others_however_many_there_are() {
        let filter = KeyFilter::default();
        let key = |n: u32| n.to_be_bytes();
        let (mut bytes, mut added) = (0, 0);
        for count in [100, 511, 512, 513, 5_000, 40_000] {
            for n in added..count {
                bytes += filter.add(&key(n));
                assert!(filter.may_contain(&key(n)));
            }
            added = count;
            assert!((0..count).all(|n| filter.may_contain(&key(n))));
            let wrong = (0..20_000).filter(|n| filter.may_contain(&key(1 << 30 | n)));
            assert!(wrong.count() < 1_000, "of 20,000 at {count}");
        }
        // 512, 4,096 and 32,768 keys, and the rest of 262,144.
        let lines = |keys: usize| (keys * BITS_PER_KEY).div_ceil(512);
        let all = [512, 4096, 32_768, 262_144].map(lines);
        assert_eq!(bytes, all.iter().sum::<usize>() * 64);
    }

    #[test]
    fn a_key_that_is_added_again_takes_no_room() {
        let filter = KeyFilter::default();
        for _ in 0..2_000 {
            filter.add(b"a");
        }
        assert_eq!(filter.keys.load(Ordering::Relaxed), 1);
        assert!(!KeyFilter::default().may_contain(b"a"));
    }

    #[test]
    fn the_last_piece_takes_what_comes() {
        assert_eq!(KeyFilter::piece_for(0).0, 0);
        assert_eq!(KeyFilter::piece_for(FIRST).0, 1);
        assert_eq!(KeyFilter::piece_for(usize::MAX).0, PIECES - 1);
    }
}
