//! Sequence numbers in bounded memory: exactly, or a superset of them.

use esker_lsm::{Seq, SeqSet};

/// Sequence numbers that entries are compared with. Whether an entry is in it is exact until they
/// take more memory than they may; from then on some others are admitted as well.
#[derive(Debug)]
pub(super) enum SeqFilter {
    Exact(SeqSet),
    Blurred(Blurred),
}

/// A bit for each hash of a sequence number. With as many bits as numbers, two thirds of all others
/// are admitted, with ten times as many, a tenth.
#[derive(Debug)]
pub(super) struct Blurred {
    /// A power of two of them.
    words: Vec<u64>,
}

impl Blurred {
    /// The bits of some sequence numbers, in up to `bytes` of memory.
    pub(super) fn of(seqs: &SeqSet, bytes: usize) -> Blurred {
        let words = (bytes / size_of::<u64>()).max(1);
        let words = 1 << words.ilog2();
        let mut blurred = Blurred {
            words: vec![0; words],
        };
        seqs.iter().for_each(|seq| blurred.add(seq));
        blurred
    }

    /// The place of the bit of a sequence number: its word, and the bit in that.
    fn place(&self, seq: Seq) -> (usize, u64) {
        // Neighbours go to different words (Fibonacci hashing).
        let hash = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
        let word = (hash >> 6) as usize & (self.words.len() - 1);
        (word, 1 << (hash & 63))
    }

    pub(super) fn add(&mut self, seq: Seq) {
        let (word, bit) = self.place(seq);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }

    fn may_contain(&self, seq: Seq) -> bool {
        let (word, bit) = self.place(seq);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }
}

impl SeqFilter {
    /// Adds sequence numbers, and leaves none of them in `seqs`. If the set takes more than
    /// `max_bytes` then, it is blurred.
    pub(super) fn add_all(&mut self, seqs: &mut Vec<Seq>, max_bytes: usize) {
        match self {
            SeqFilter::Exact(set) => {
                // In ascending order, so that none is inserted before others in the set.
                seqs.sort_unstable();
                set.extend(seqs.drain(..));
                if set.memory() > max_bytes {
                    *self = SeqFilter::Blurred(Blurred::of(set, max_bytes));
                }
            }
            SeqFilter::Blurred(blurred) => seqs.drain(..).for_each(|seq| blurred.add(seq)),
        }
    }

    /// True for all its sequence numbers; if it is blurred, for some others, too.
    pub(super) fn admits(&self, seq: Seq) -> bool {
        match self {
            SeqFilter::Exact(set) => set.contains(seq),
            SeqFilter::Blurred(blurred) => blurred.may_contain(seq),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blurred_filter_admits_all_its_numbers_and_few_others() {
        let seqs: SeqSet = (0..1000).map(|n| n * n * 7 + 3).collect();
        for (bytes, most_others) in [(0, 1.0), (100, 1.0), (1 << 10, 0.15), (1 << 14, 0.02)] {
            let blurred = SeqFilter::Blurred(Blurred::of(&seqs, bytes));
            let all = 0..10_000_000_u64;
            assert!(seqs.iter().all(|seq| blurred.admits(seq)), "{bytes} bytes");
            let others = all.step_by(997).filter(|seq| !seqs.contains(*seq));
            let (mut count, mut admitted) = (0.0, 0.0);
            others.for_each(|seq| {
                count += 1.0;
                admitted += f64::from(u8::from(blurred.admits(seq)));
            });
            assert!(
                admitted <= most_others * count,
                "{bytes} bytes: {admitted} of {count}"
            );
        }
    }
}
