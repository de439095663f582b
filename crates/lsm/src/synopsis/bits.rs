//! Bit strings: written front to back, read at any position. Bit `i` is bit `i % 64` of word `i /
//! 64`; words are little-endian.

/// The widest field, in bits.
pub(super) const MAX_WIDTH: u32 = 57;

/// The width of the numbers up to `max`, in bits.
pub(super) fn width_of(max: u64) -> u32 {
    u64::BITS - max.leading_zeros()
}

/// A writer of bit strings.
#[derive(Default)]
pub(super) struct BitWriter {
    words: Vec<u64>,
    len: usize,
}

impl BitWriter {
    /// Bits written.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends the low `width` bits of a number.
    pub(super) fn put(&mut self, number: u64, width: u32) {
        debug_assert!(width <= MAX_WIDTH && number >> width == 0);
        let shift = (self.len % 64) as u32;
        if shift == 0 {
            self.words.push(number);
        } else {
            if let Some(last) = self.words.last_mut() {
                *last |= number << shift;
            }
            if shift + width > 64 {
                self.words.push(number >> (64 - shift));
            }
        }
        self.len += width as usize;
        // A field of width 0 adds no word.
        self.words.truncate(self.len.div_ceil(64));
    }

    /// Appends `zeros` zeros and a one.
    pub(super) fn put_unary(&mut self, mut zeros: u64) {
        while zeros >= u64::from(MAX_WIDTH) {
            self.put(0, MAX_WIDTH);
            zeros -= u64::from(MAX_WIDTH);
        }
        self.put(1 << zeros, zeros as u32 + 1);
    }

    /// Appends the words to `out`.
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        for word in &self.words {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.len = 0;
    }
}

/// A reader of bit strings.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    words: &'a [[u8; 8]],
}

impl<'a> Bits<'a> {
    /// The bits of whole words.
    pub(super) fn new(words: &'a [[u8; 8]]) -> Bits<'a> {
        Bits { words }
    }

    #[inline]
    fn word(&self, at: usize) -> Option<u64> {
        self.words.get(at).map(|word| u64::from_le_bytes(*word))
    }

    /// The number in `width` bits (at most [`MAX_WIDTH`]) from `at`; `None` behind the end.
    #[inline]
    pub(super) fn get(&self, at: usize, width: u32) -> Option<u64> {
        if width == 0 {
            return Some(0);
        }
        let (word, shift) = (at / 64, (at % 64) as u32);
        let mut number = self.word(word)? >> shift;
        if shift + width > 64 {
            number |= self.word(word + 1)? << (64 - shift);
        }
        Some(number & ((1 << width) - 1))
    }

    /// The number of zeros from `at` to the next one bit.
    pub(super) fn unary(&self, at: usize) -> Option<u64> {
        let mut index = at / 64;
        let mut word = self.word(index)? & (u64::MAX << (at % 64));
        while word == 0 {
            index += 1;
            word = self.word(index)?;
        }
        Some((index * 64 + word.trailing_zeros() as usize - at) as u64)
    }

    /// The position behind the `n`-th zero (counted from 1); 0 for none.
    #[inline]
    pub(super) fn behind_zero(&self, n: usize) -> Option<usize> {
        let mut left = n;
        if left == 0 {
            return Some(0);
        }
        for (index, word) in self.words.iter().enumerate() {
            let mut zeros = !u64::from_le_bytes(*word);
            let here = zeros.count_ones() as usize;
            if here >= left {
                for _ in 1..left {
                    zeros &= zeros - 1;
                }
                return Some(index * 64 + zeros.trailing_zeros() as usize + 1);
            }
            left -= here;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut writer, mut written) = (BitWriter::default(), Vec::new());
            for _ in 0..rng.usize(0..200) {
                let at = writer.len();
                if rng.bool() {
                    let width = rng.u32(0..=MAX_WIDTH);
                    let number = rng.u64(..) & ((1 << width) - 1);
                    writer.put(number, width);
                    written.push((at, Some(width), number));
                } else {
                    let most = [3, 200][rng.usize(..2)];
                    let zeros = rng.u64(..most);
                    writer.put_unary(zeros);
                    written.push((at, None, zeros));
                }
            }
            let mut bytes = Vec::new();
            writer.write_to(&mut bytes);
            assert_eq!(bytes.len(), writer.len().div_ceil(64) * 8);
            let bits = Bits::new(bytes.as_chunks().0);
            for (at, width, number) in written {
                let read = match width {
                    Some(width) => bits.get(at, width),
                    None => bits.unary(at),
                };
                assert_eq!(read, Some(number), "seed {seed}");
            }
            let zeros = (0..bytes.len() * 8).filter(|at| bits.get(*at, 1) == Some(0));
            let zeros: Vec<usize> = zeros.collect();
            assert_eq!(bits.behind_zero(0), Some(0));
            for (n, at) in zeros.iter().enumerate() {
                assert_eq!(bits.behind_zero(n + 1), Some(at + 1));
            }
            assert_eq!(bits.behind_zero(zeros.len() + 1), None);
            assert_eq!(bits.get(bytes.len() * 8, 1), None);
        }
    }
}
