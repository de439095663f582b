//! Sets of sequence numbers: the validity bitmaps of Luo & Carey (sections 4.4 and 5), with one bit
//! per *write* in place of one per entry of a component.
//!
//! A record and its index entries share a sequence number, so one set tells of all of them which are
//! over, whatever component of whatever tree they are in, and however often they were merged. A
//! position would have to be found anew in each component; a number stays what it is.
//!
//! Persistent: a clone shares all chunks, and a change copies the chunk that it changes. So versions
//! pin sets as they were, at the cost of what changed since.

use std::fmt;
use std::sync::Arc;

use crate::entry::Seq;

/// Bits of a sequence number within a chunk.
const LOW: u32 = 16;
const WORDS: usize = 1 << (LOW - 6);

type Chunk = [u64; WORDS];

/// A set of sequence numbers: a bit each, in chunks of 65,536 (8 KiB). Chunks without a number take
/// nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SeqSet {
    /// By the numbers' upper bits, ascending.
    chunks: Vec<(u64, Arc<Chunk>)>,
    len: u64,
}

impl SeqSet {
    /// The empty set.
    pub fn new() -> SeqSet {
        SeqSet::default()
    }

    /// True when `seq` is in the set. O(1) where the chunks have no gaps, else O(log n).
    #[inline]
    pub fn contains(&self, seq: Seq) -> bool {
        let Some(at) = self.find(seq >> LOW) else {
            return false;
        };
        let word = self
            .chunks
            .get(at)
            .and_then(|(_, chunk)| chunk.get(word_of(seq)));
        word.is_some_and(|word| word & bit_of(seq) != 0)
    }

    /// Adds a number; false when it was there. O(1) in a chunk that is not shared, else a copy of 8 KiB.
    pub fn insert(&mut self, seq: Seq) -> bool {
        let high = seq >> LOW;
        let at = match self.find(high) {
            Some(at) => at,
            None => {
                let at = self.chunks.partition_point(|(other, _)| *other < high);
                self.chunks.insert(at, (high, Arc::new([0; WORDS])));
                at
            }
        };
        let Some((_, chunk)) = self.chunks.get_mut(at) else {
            return false;
        };
        let is_there = chunk
            .get(word_of(seq))
            .is_some_and(|word| word & bit_of(seq) != 0);
        if is_there {
            return false;
        }
        if let Some(word) = Arc::make_mut(chunk).get_mut(word_of(seq)) {
            *word |= bit_of(seq);
        }
        self.len += 1;
        true
    }

    /// How many numbers are in the set.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory, shared chunks included.
    pub fn memory(&self) -> usize {
        self.chunks.len() * (size_of::<Chunk>() + size_of::<(u64, Arc<Chunk>)>())
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Seq> + '_ {
        self.chunks.iter().flat_map(|(high, chunk)| {
            chunk.iter().enumerate().flat_map(move |(at, word)| {
                let first = high << LOW | (at as u64) << 6;
                bits(*word).map(move |bit| first | bit)
            })
        })
    }

    #[inline]
    fn find(&self, high: u64) -> Option<usize> {
        let (first, _) = self.chunks.first()?;
        // Without gaps the place is known.
        let guess = usize::try_from(high.wrapping_sub(*first)).ok()?;
        if self
            .chunks
            .get(guess)
            .is_some_and(|(found, _)| *found == high)
        {
            return Some(guess);
        }
        self.chunks
            .binary_search_by_key(&high, |(other, _)| *other)
            .ok()
    }
}

impl FromIterator<Seq> for SeqSet {
    fn from_iter<I: IntoIterator<Item = Seq>>(numbers: I) -> SeqSet {
        let mut set = SeqSet::new();
        set.extend(numbers);
        set
    }
}

impl Extend<Seq> for SeqSet {
    fn extend<I: IntoIterator<Item = Seq>>(&mut self, numbers: I) {
        for seq in numbers {
            self.insert(seq);
        }
    }
}

impl fmt::Debug for SeqSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[inline]
fn word_of(seq: Seq) -> usize {
    (seq as usize & ((1 << LOW) - 1)) >> 6
}

#[inline]
fn bit_of(seq: Seq) -> u64 {
    1 << (seq & 63)
}

/// The places of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = u64::from(word.trailing_zeros());
            word &= word - 1;
            bit
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::entry::MAX_SEQ;

    #[test]
    fn agrees_with_a_model_and_clones_stay_as_they_were() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut set, mut model) = (SeqSet::new(), BTreeSet::new());
        let mut pinned = Vec::new();
        for round in 0..20_000 {
            let seq = match random.u8(..4) {
                0 => random.u64(..200),
                1 => random.u64(60_000..70_000),
                2 => random.u64(..1 << 20),
                _ => MAX_SEQ - random.u64(..100),
            };
            assert_eq!(set.insert(seq), model.insert(seq));
            let probe = random.u64(..1 << 20);
            assert_eq!(set.contains(probe), model.contains(&probe));
            if round % 4000 == 0 {
                pinned.push((set.clone(), model.clone()));
            }
        }
        pinned.push((set, model));
        for (set, model) in pinned {
            assert_eq!(set.len(), model.len() as u64);
            assert!(set.iter().eq(model.iter().copied()));
            assert_eq!(set, model.into_iter().collect());
        }
    }
}
