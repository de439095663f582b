//! Bytes of a segment that are not in its file yet. Short ones are copied; long ones stay where
//! they are, in the log's memory or in the frame that brought them.

use crate::bytes::Bytes;

/// From so many bytes on they are not copied.
const LONG: usize = 8 << 10;

/// Bytes, one behind the other.
#[derive(Default)]
pub(super) struct Pieces {
    copied: Vec<u8>,
    /// Bytes that are not copied, and how many copied ones are before them.
    long: Vec<(usize, Bytes)>,
    len: usize,
}

impl Pieces {
    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True where there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory that it keeps when it is empty.
    pub(super) fn capacity(&self) -> usize {
        self.copied.capacity()
    }

    /// Appends a copy.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends bytes that something else may have, too.
    pub(super) fn push_shared(&mut self, bytes: &Bytes) {
        if bytes.len() < LONG {
            return self.push(bytes);
        }
        self.long.push((self.copied.len(), bytes.clone()));
        self.len += bytes.len();
    }

    /// Removes all bytes. Memory for copied ones stays.
    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.long.clear();
        self.len = 0;
    }

    /// All bytes, in order.
    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.long.iter().map(|(before, _)| *before));
        let ends = self.long.iter().map(|(before, _)| *before);
        let ends = ends.chain(std::iter::once(self.copied.len()));
        let copied = starts.zip(ends);
        let copied = copied.map(|(start, end)| self.copied.get(start..end).unwrap_or_default());
        let long = self.long.iter().map(|(_, bytes)| &**bytes);
        let long = long.chain(std::iter::once(&[][..]));
        let both = copied.zip(long).flat_map(|(copied, long)| [copied, long]);
        both.filter(|slice| !slice.is_empty())
    }

    /// Fills the beginning of `out` with the bytes from `from` on, as many as there are.
    pub(super) fn copy(&self, mut from: usize, mut out: &mut [u8]) {
        for slice in self.slices() {
            let Some(bytes) = slice.get(from..) else {
                from -= slice.len();
                continue;
            };
            from = 0;
            let count = bytes.len().min(out.len());
            let (there, rest) = out.split_at_mut(count);
            there.copy_from_slice(bytes.get(..count).unwrap_or_default());
            out = rest;
            if out.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_and_shared_bytes_keep_their_order() {
        let mut rng = fastrand::Rng::with_seed(5);
        let (mut pieces, mut all) = (Pieces::default(), Vec::new());
        for round in 0..3 {
            for _ in 0..rng.usize(..12) {
                let length = rng.choice([0, 1, 100, LONG - 1, LONG, 3 * LONG]).unwrap();
                let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(length).collect();
                all.extend_from_slice(&bytes);
                if rng.bool() {
                    pieces.push(&bytes);
                } else {
                    pieces.push_shared(&bytes.into());
                }
            }
            assert_eq!(pieces.len(), all.len());
            assert_eq!(pieces.slices().collect::<Vec<_>>().concat(), all);
            for _ in 0..200 {
                let from = rng.usize(..=all.len());
                let mut out = vec![7; rng.usize(..=all.len() - from)];
                pieces.copy(from, &mut out);
                assert_eq!(out, all[from..from + out.len()]);
            }
            let mut out = [7; 3];
            pieces.copy(all.len().saturating_sub(1), &mut out);
            assert_eq!(out[1..], [7; 2], "nothing is behind the end");
            if round > 0 {
                pieces.clear();
                all.clear();
                assert!(pieces.is_empty() && pieces.slices().next().is_none());
            }
        }
    }
}
