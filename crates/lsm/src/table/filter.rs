//! The key filter of a partition: a Bloom filter. Usually a *blocked* one, whose bits of one key
//! all lie in one line of 512 bits, so that a probe costs one cache miss (Putze, Sanders, Singler:
//! "Cache-, Hash- and Space-Efficient Bloom Filters", 2007). A *standard* one spreads the bits of a
//! key over the whole filter, and has slightly fewer false positives for its size.
//!
//! ```text
//! bits      blocked: n x 64 bytes; standard: n bytes
//! probes    u8, bits set by a key; the highest bit is set in a standard filter
//! ```

use xxhash_rust::xxh3::xxh3_64;

use crate::coding::Own;

const LINE: usize = 64;
/// The most bits set by a key.
const MAX_PROBES: u8 = 16;
/// Marks a standard filter.
const STANDARD: u8 = 0x80;
/// Derives the next probe from the state; odd.
const STEP: u32 = 0x9e37_79b9;

/// The hash of a user key.
#[inline]
pub(super) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Appends a filter over the keys with these hashes to `out`.
pub(super) fn build(hashes: &[u64], bits_per_key: usize, blocked: bool, out: &mut Vec<u8>) {
    if blocked {
        build_blocked(hashes, bits_per_key, out);
    } else {
        build_standard(hashes, bits_per_key, out);
    }
}

/// False when the filter excludes the key with this hash; `None` when it is malformed.
#[inline]
pub(super) fn may_contain(filter: &[u8], hash: u64) -> Option<bool> {
    let (&form, bits) = filter.split_last()?;
    bits_admit(bits, form, hash)
}

/// As [`may_contain`], for a filter whose last byte is stored apart from its bits.
#[inline]
pub(super) fn bits_admit(bits: &[u8], form: u8, hash: u64) -> Option<bool> {
    let standard = form & STANDARD != 0;
    let probes = form & !STANDARD;
    if probes == 0 || probes > MAX_PROBES {
        return None;
    }
    if standard {
        in_standard(bits, probes, hash)
    } else {
        in_blocked(bits, probes, hash)
    }
}

fn build_blocked(hashes: &[u64], bits_per_key: usize, out: &mut Vec<u8>) {
    // The optimum is bits * ln 2; a little less, because lines do not fill evenly.
    let probes = (bits_per_key * 6 / 10).clamp(1, MAX_PROBES as usize) as u8;
    let size = (hashes.len() * bits_per_key).div_ceil(LINE * 8).max(1) * LINE;
    let start = out.len();
    out.resize(start + size, 0);
    let (lines, _) = out.own_mut(start..).as_chunks_mut::<LINE>();
    let count = lines.len();
    for &hash in hashes {
        let line = lines.own_mut(scaled((hash >> 32) as u32, count));
        let mut state = hash as u32;
        for _ in 0..probes {
            let bit = (state >> 23) as usize;
            line[bit >> 3] |= 1 << (bit & 7);
            state = state.wrapping_mul(STEP);
        }
    }
    out.push(probes);
}

#[inline]
fn in_blocked(bits: &[u8], probes: u8, hash: u64) -> Option<bool> {
    let (lines, []) = bits.as_chunks::<LINE>() else {
        return None;
    };
    // The upper half of the hash selects the line, the lower half the bits.
    let line = lines.get(scaled((hash >> 32) as u32, lines.len()))?;
    let mut state = hash as u32;
    for _ in 0..probes {
        let bit = (state >> 23) as usize;
        if line[bit >> 3] & (1 << (bit & 7)) == 0 {
            return Some(false);
        }
        state = state.wrapping_mul(STEP);
    }
    Some(true)
}

fn build_standard(hashes: &[u64], bits_per_key: usize, out: &mut Vec<u8>) {
    // Bits * ln 2.
    let probes = (bits_per_key * 69 / 100).clamp(1, MAX_PROBES as usize) as u8;
    let size = (hashes.len() * bits_per_key).div_ceil(8).max(1);
    let start = out.len();
    out.resize(start + size, 0);
    let bits = out.own_mut(start..);
    for &hash in hashes {
        for bit in standard_bits(hash, probes, size) {
            *bits.own_mut(bit >> 3) |= 1 << (bit & 7);
        }
    }
    out.push(probes | STANDARD);
}

#[inline]
fn in_standard(bits: &[u8], probes: u8, hash: u64) -> Option<bool> {
    for bit in standard_bits(hash, probes, bits.len()) {
        if bits.get(bit >> 3)? & (1 << (bit & 7)) == 0 {
            return Some(false);
        }
    }
    Some(true)
}

/// The bits of a key in a standard filter of `size` bytes: the hash's lower half selects the first,
/// the upper half the distance from each to the next (Kirsch and Mitzenmacher: "Less Hashing, Same
/// Performance", 2006).
#[inline]
fn standard_bits(hash: u64, probes: u8, size: usize) -> impl Iterator<Item = usize> {
    let (first, step) = (hash as u32, (hash >> 32) as u32 | 1);
    (0..u32::from(probes)).map(move |n| scaled(first.wrapping_add(step.wrapping_mul(n)), size * 8))
}

/// A number below `count`, proportional to `hash`.
#[inline]
fn scaled(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(keys: u64, bits_per_key: usize, blocked: bool) -> Vec<u8> {
        let hashes: Vec<u64> = (0..keys).map(|key| hash(&key.to_be_bytes())).collect();
        let mut filter = Vec::new();
        build(&hashes, bits_per_key, blocked, &mut filter);
        filter
    }

    #[test]
    fn no_key_is_denied_and_few_others_are_not() {
        for blocked in [true, false] {
            for (keys, bits_per_key, most) in [(1, 10, 0.02), (500, 10, 0.013), (40_000, 10, 0.013)]
            {
                let filter = built(keys, bits_per_key, blocked);
                let says = |key: u64| may_contain(&filter, hash(&key.to_be_bytes())).unwrap();
                assert!((0..keys).all(says), "blocked {blocked}, {keys} keys");
                let others = 100_000;
                let wrong = (keys..keys + others).filter(|key| says(*key)).count();
                let rate = wrong as f64 / others as f64;
                assert!(rate < most, "blocked {blocked}, {keys} keys: {rate}");
                if keys > 1 {
                    assert!(rate > 0.004, "blocked {blocked}, {keys} keys: {rate}");
                }
            }
            for bits_per_key in [1, 5, 20, 40] {
                let filter = built(300, bits_per_key, blocked);
                let says = |key: u64| may_contain(&filter, hash(&key.to_be_bytes())).unwrap();
                assert!((0..300).all(says), "blocked {blocked}, {bits_per_key} bits");
            }
        }
    }

    #[test]
    fn filters_name_their_form_and_malformed_ones_are_refused() {
        let (blocked, standard) = (built(100, 10, true), built(100, 10, false));
        assert_eq!(*blocked.last().unwrap(), 6);
        assert_eq!(*standard.last().unwrap(), 0x86);
        assert_eq!((blocked.len() % LINE, standard.len()), (1, 126));
        for malformed in [
            &[][..],
            &[6],
            &[0x86],
            &[0; 65],
            &[0x80; 65],
            &[17; 65],
            &[0x91; 9],
            &blocked[1..],
        ] {
            assert_eq!(may_contain(malformed, 7), None, "{malformed:?}");
        }
    }
}

/// A key filter in memory, over any set of keys.
pub struct KeyFilter(Vec<u8>);

/// Collects keys for a [`KeyFilter`].
#[derive(Default)]
pub struct KeyFilterBuilder(Vec<u64>);

impl KeyFilter {
    /// An empty builder.
    pub fn builder() -> KeyFilterBuilder {
        KeyFilterBuilder::default()
    }

    /// False when `key` is certainly not among the keys. One cache miss.
    #[inline]
    pub fn may_contain(&self, key: &[u8]) -> bool {
        may_contain(&self.0, hash(key)).unwrap_or(true)
    }
}

impl KeyFilterBuilder {
    /// Adds a key.
    #[inline]
    pub fn add(&mut self, key: &[u8]) {
        self.0.push(hash(key));
    }

    /// Builds the filter, with this many bits per key.
    pub fn build(self, bits_per_key: usize) -> KeyFilter {
        let mut bytes = Vec::new();
        build(&self.0, bits_per_key, true, &mut bytes);
        KeyFilter(bytes)
    }
}
