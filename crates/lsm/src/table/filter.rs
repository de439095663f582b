//! The key filter of a partition: a Bloom filter whose bits of one key all lie in one line of 512
//! bits, so that a question costs one cache miss (Putze, Sanders, Singler: "Cache-, Hash- and
//! Space-Efficient Bloom Filters", 2007).
//!
//! ```text
//! lines     n x 64 bytes
//! probes    u8, bits set by a key
//! ```

use xxhash_rust::xxh3::xxh3_64;

const LINE: usize = 64;

/// The hash of a user key.
#[inline]
pub(super) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Bytes of a filter over `keys` keys.
pub(super) fn size(keys: usize, bits_per_key: usize) -> usize {
    (keys * bits_per_key).div_ceil(LINE * 8).max(1) * LINE + 1
}

/// Appends a filter over the keys with these hashes to `out`.
pub(super) fn build(hashes: &[u64], bits_per_key: usize, out: &mut Vec<u8>) {
    // The best number is bits * ln 2; a little less, because lines do not fill evenly.
    let probes = (bits_per_key * 6 / 10).clamp(1, 16) as u8;
    let start = out.len();
    out.resize(start + size(hashes.len(), bits_per_key), probes);
    let Some((lines, _)) = out.get_mut(start..).map(|all| all.as_chunks_mut::<LINE>()) else {
        return;
    };
    lines.as_flattened_mut().fill(0);
    let count = lines.len();
    for &hash in hashes {
        if let Some(line) = lines.get_mut(line_of(hash, count)) {
            let mut state = hash as u32;
            for _ in 0..probes {
                let bit = (state >> 23) as usize;
                line[bit >> 3] |= 1 << (bit & 7);
                state = state.wrapping_mul(0x9e37_79b9);
            }
        }
    }
}

/// False when the filter rules the key with this hash out; `None` when it is malformed.
#[inline]
pub(super) fn may_contain(filter: &[u8], hash: u64) -> Option<bool> {
    let (lines, probes) = filter.as_chunks::<LINE>();
    let [probes] = probes else { return None };
    let line = lines.get(line_of(hash, lines.len()))?;
    let mut state = hash as u32;
    for _ in 0..*probes {
        let bit = (state >> 23) as usize;
        if line[bit >> 3] & (1 << (bit & 7)) == 0 {
            return Some(false);
        }
        state = state.wrapping_mul(0x9e37_79b9);
    }
    Some(true)
}

/// The line of a key: its hash's upper half, scaled. The lower half picks the bits.
#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    ((hash >> 32).wrapping_mul(lines as u64) >> 32) as usize
}

/// A key filter in memory, of keys that are gathered from here and there.
pub struct KeyFilter(Vec<u8>);

/// Gathers keys for a [`KeyFilter`].
#[derive(Default)]
pub struct KeyFilterBuilder(Vec<u64>);

impl KeyFilter {
    /// No keys yet.
    pub fn builder() -> KeyFilterBuilder {
        KeyFilterBuilder::default()
    }

    /// False when `key` is not among the keys. One cache miss.
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

    /// The filter, with so many bits per key.
    pub fn build(self, bits_per_key: usize) -> KeyFilter {
        let mut bytes = Vec::new();
        build(&self.0, bits_per_key, &mut bytes);
        KeyFilter(bytes)
    }
}
