//! Sets of sequence numbers: a Roaring container for each chunk of 65,536 numbers, as an array, a
//! bitmap or runs, whichever is smallest. So a range wholly inside or outside of the set costs next
//! to nothing.
//!
//! Persistent: a clone shares all chunks, and a change copies the chunk that it changes. So
//! versions pin sets at the cost of what changed since.

use std::fmt;
use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::coding::Own;
use crate::entry::Seq;

/// Bits of a sequence number within a chunk.
const LOW: u32 = 16;

/// The greatest low part of a number.
pub(super) const MAX_LOW: u32 = (1 << LOW) - 1;

/// Approximate size of a chunk without its container's content: two allocations and their counts.
const OVERHEAD: usize = 128;

/// The numbers of a chunk, by their low bits: one container, never empty.
pub(super) type Chunk = RoaringBitmap;

/// A set of sequence numbers. Empty chunks are not stored.
#[derive(Clone, Default)]
pub struct SeqSet {
    /// By the numbers' high bits, ascending.
    chunks: Vec<(u64, Arc<Chunk>)>,
    len: u64,
}

impl SeqSet {
    /// The empty set.
    pub fn new() -> SeqSet {
        SeqSet::default()
    }

    /// True when `seq` is in the set. Finds the chunk in O(1) where there are no gaps between
    /// chunks.
    #[inline]
    pub fn contains(&self, seq: Seq) -> bool {
        let chunk = self.find(seq >> LOW).and_then(|at| self.chunks.get(at));
        chunk.is_some_and(|(_, chunk)| chunk.contains(low(seq)))
    }

    /// Adds a number; false when it was in the set. A shared chunk is copied: at most 8 KiB.
    pub fn insert(&mut self, seq: Seq) -> bool {
        let high = seq >> LOW;
        let at = match self.find(high) {
            Some(at) => at,
            None => {
                let at = self.chunks.partition_point(|(other, _)| *other < high);
                self.chunks.insert(at, (high, Arc::default()));
                at
            }
        };
        let (_, chunk) = self.chunks.own_mut(at);
        // A number already in the set copies nothing.
        let is_new = !chunk.contains(low(seq)) && Arc::make_mut(chunk).insert(low(seq));
        self.len += u64::from(is_new);
        is_new
    }

    /// The number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The greatest number.
    pub fn last(&self) -> Option<Seq> {
        let (high, chunk) = self.chunks.last()?;
        Some(high << LOW | Seq::from(chunk.max()?))
    }

    /// Approximate bytes of memory, shared chunks included.
    pub fn memory(&self) -> usize {
        let chunks = self.chunks.iter();
        let sizes = chunks.map(|(_, chunk)| chunk.serialized_size() + OVERHEAD);
        sizes.sum()
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Seq> + '_ {
        self.chunks.iter().flat_map(|(high, chunk)| {
            let first = high << LOW;
            chunk.iter().map(move |low| first | Seq::from(low))
        })
    }

    /// True when a number in `first..=last` is in the set.
    pub fn meets(&self, first: Seq, last: Seq) -> bool {
        let begin = self
            .chunks
            .partition_point(|(high, _)| *high < first >> LOW);
        let chunks = self.chunks.iter().skip(begin);
        let mut chunks = chunks.take_while(|(high, _)| *high <= last >> LOW);
        chunks.any(|(high, chunk)| {
            let from = if *high == first >> LOW { low(first) } else { 0 };
            let to = if *high == last >> LOW {
                low(last)
            } else {
                MAX_LOW
            };
            from <= to && chunk.range_cardinality(from..=to) > 0
        })
    }

    /// Adds the numbers of another set. Chunks that only one of them has are shared.
    pub fn add_all(&mut self, other: &SeqSet) {
        for (high, chunk) in &other.chunks {
            self.add_chunk(*high, chunk.clone());
        }
    }

    /// Removes the numbers of another set.
    pub fn remove_all(&mut self, other: &SeqSet) {
        for (high, gone) in &other.chunks {
            if let Some(at) = self.find(*high)
                && let Some((_, chunk)) = self.chunks.get_mut(at)
            {
                let before = chunk.len();
                *Arc::make_mut(chunk) -= &**gone;
                self.len -= before - chunk.len();
            }
        }
        self.chunks.retain(|(_, chunk)| !chunk.is_empty());
    }

    /// Removes the numbers above `last`.
    pub fn truncate(&mut self, last: Seq) {
        let end = self
            .chunks
            .partition_point(|(high, _)| *high <= last >> LOW);
        self.chunks.truncate(end);
        if let Some((high, chunk)) = self.chunks.last_mut()
            && *high == last >> LOW
            && chunk.max() > Some(low(last))
        {
            Arc::make_mut(chunk).remove_range(low(last) + 1..=MAX_LOW);
        }
        self.chunks.retain(|(_, chunk)| !chunk.is_empty());
        self.len = self.chunks.iter().map(|(_, chunk)| chunk.len()).sum();
    }

    /// Gives each unshared chunk its smallest form.
    pub fn shrink(&mut self) {
        for (_, chunk) in &mut self.chunks {
            if let Some(chunk) = Arc::get_mut(chunk) {
                chunk.optimize();
            }
        }
    }

    /// The chunks: the first number of each, and its container.
    pub(super) fn chunks(&self) -> impl ExactSizeIterator<Item = (Seq, &Chunk)> {
        let chunks = self.chunks.iter();
        chunks.map(|(high, chunk)| (high << LOW, &**chunk))
    }

    /// Adds the numbers of the chunk that begins with `first`.
    pub(super) fn add(&mut self, first: Seq, chunk: Chunk) {
        self.add_chunk(first >> LOW, Arc::new(chunk));
    }

    fn add_chunk(&mut self, high: u64, new: Arc<Chunk>) {
        if new.is_empty() {
            return;
        }
        match self.find(high).and_then(|at| self.chunks.get_mut(at)) {
            Some((_, chunk)) => {
                let before = chunk.len();
                *Arc::make_mut(chunk) |= &*new;
                self.len += chunk.len() - before;
            }
            None => {
                let at = self.chunks.partition_point(|(other, _)| *other < high);
                self.len += new.len();
                self.chunks.insert(at, (high, new));
            }
        }
    }

    #[inline]
    fn find(&self, high: u64) -> Option<usize> {
        let (first, _) = self.chunks.first()?;
        // Without gaps the index is known.
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

impl PartialEq for SeqSet {
    /// Independent of the form of the chunks.
    fn eq(&self, other: &SeqSet) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for SeqSet {}

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

/// The low bits of a number.
#[inline]
fn low(seq: Seq) -> u32 {
    seq as u32 & MAX_LOW
}
