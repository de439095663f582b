//! The K best candidates of a search (top-K), and the bounds by which the search skips the rest.
//!
//! Up to K candidates are a plain list. From then on they are a heap with the worst on top, and
//! only a candidate with a better rank than that one is kept.

use std::collections::BinaryHeap;
use std::sync::Arc;

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{Seq, Slice, Superseded};
use esker_model::query::Recency;

use super::ranked::Ranked;

/// A record that may match, as an index returns it.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) seq: Seq,
    pub(crate) key: Vec<u8>,
    /// The stored record, if the index read it, and where.
    pub(crate) record: Option<(Slice, Origin)>,
}

/// Where a candidate's record was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// In this component of the data, counted from the newest: a newer one may replace it.
    Component(usize),
    /// In some components of the data, merged: any other one may replace it.
    SomeComponents,
    /// In all components that matter: it is known to be current.
    Current,
    /// With its index entry: it is validated like a candidate without a record.
    IndexEntry,
}

impl Candidate {
    /// Its size in memory.
    pub(crate) fn bytes(&self) -> usize {
        let record = self.record.as_ref().map_or(0, |(record, _)| record.len());
        size_of::<Candidate>() + self.key.len() + record
    }
}

/// The candidates that a search needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) order: Recency,
    /// Only candidates after the one with this sequence number.
    pub(crate) after: Option<Seq>,
    /// The number of candidates (K).
    pub(crate) want: usize,
    /// The search returns fewer candidates if their keys take more than this many bytes.
    pub(crate) bytes: usize,
}

/// The writes whose entries are sought, and which of them were found.
pub(crate) struct SoughtWrites {
    /// Ascending.
    seqs: Vec<Seq>,
    /// For each, whether an entry of it was offered.
    found: Vec<bool>,
    /// The worst rank of a write.
    worst_rank: u64,
}

impl SoughtWrites {
    /// The writes of `candidates`, which are in this order, best first, and the window of a search
    /// for their entries; `None` without candidates.
    pub(crate) fn with_window(
        order: Recency,
        candidates: &[Candidate],
    ) -> Option<(Window, SoughtWrites)> {
        let (first, last) = candidates.first().zip(candidates.last())?;
        let after = if order == Recency::Newest {
            first.seq.checked_add(1)
        } else {
            first.seq.checked_sub(1)
        };
        debug_assert!(
            candidates.is_sorted_by_key(|candidate| order.rank(candidate.seq)),
            "best first"
        );
        let mut seqs: Vec<Seq> = candidates.iter().map(|candidate| candidate.seq).collect();
        seqs.sort_unstable();
        seqs.dedup();
        let sought = SoughtWrites {
            found: vec![false; seqs.len()],
            seqs,
            worst_rank: order.rank(last.seq),
        };
        let window = Window {
            order,
            after,
            ..Window::all()
        };
        Some((window, sought))
    }

    /// Notes that an entry of a write was offered.
    fn note(&mut self, seq: Seq) {
        if let Ok(at) = self.seqs.binary_search(&seq) {
            *self.found.own_mut(at) = true;
        }
    }

    /// The sequence numbers of which an entry was offered, in ascending order.
    fn into_found(self) -> Vec<Seq> {
        let all = self.seqs.into_iter().zip(self.found);
        all.filter_map(|(seq, is_found)| is_found.then_some(seq))
            .collect()
    }
}

impl Window {
    /// All candidates.
    pub(crate) fn all() -> Window {
        Window {
            order: Recency::Newest,
            after: None,
            want: usize::MAX,
            bytes: usize::MAX,
        }
    }
}

/// Keeps the best of the offered candidates, as many as the query needs, so that this number bounds
/// its memory.
pub struct BestCandidates {
    window: Window,
    /// The candidates in arrival order, while there are fewer than wanted.
    early: Vec<Ranked<Candidate>>,
    /// All candidates from then on, the worst on top.
    heap: BinaryHeap<Ranked<Candidate>>,
    /// The rank of the last candidate that the query has returned: only worse ones are wanted.
    after_rank: Option<u64>,
    /// True if a candidate was rejected or dropped.
    overflowed: bool,
    /// Bytes of the records that candidates contain.
    record_bytes: usize,
    /// Bytes of the candidates themselves, without their records.
    bytes: usize,
    /// Obsolete writes, whose entries are skipped.
    obsolete: Option<Arc<Superseded>>,
    /// The number of skipped entries.
    skipped: u64,
    /// The writes whose entries are sought, if they are known.
    sought: Option<SoughtWrites>,
    /// Entries offered so far; counted only if `sought` is set.
    offered: u64,
}

/// The size of a candidate without its key, in bytes.
const CANDIDATE_BYTES: usize = 96;

/// Initial capacity for candidates.
const EXPECTED: usize = 32;

/// The most bytes of records that candidates may contain; beyond it only their keys are kept.
const MAX_RECORD_BYTES: usize = 4 << 20;

impl BestCandidates {
    /// No candidates yet, of those that a search with this window needs.
    pub(crate) fn new(window: Window) -> BestCandidates {
        let after_rank = window.after.map(|seq| window.order.rank(seq));
        BestCandidates {
            window,
            // Allocated once, because growing a vector always takes the allocator's lock.
            early: Vec::with_capacity(window.want.min(EXPECTED)),
            heap: BinaryHeap::new(),
            after_rank,
            overflowed: false,
            record_bytes: 0,
            bytes: 0,
            obsolete: None,
            skipped: 0,
            sought: None,
            offered: 0,
        }
    }

    /// Notes which of some writes have entries, and keeps no candidates.
    pub(crate) fn only(self, sought: SoughtWrites) -> BestCandidates {
        BestCandidates {
            sought: Some(sought),
            ..self
        }
    }

    /// The sequence numbers of the writes that were sought and have entries, in ascending order.
    ///
    /// # Errors
    /// [`Misplaced`] if no writes were sought.
    pub(crate) fn into_found(self) -> Result<Vec<Seq>, Misplaced> {
        let sought = self.sought.ok_or_else(|| Misplaced::here())?;
        Ok(sought.into_found())
    }

    /// The number of entries between the first and the last of the writes that are sought.
    pub(crate) fn offered(&self) -> u64 {
        self.offered
    }

    /// True if no sought write has this rank or a worse one.
    #[inline]
    fn is_behind(&self, rank: u64) -> bool {
        self.sought
            .as_ref()
            .is_some_and(|sought| rank > sought.worst_rank)
    }

    /// Skips the index entries of the writes in `obsolete`.
    pub(crate) fn without(self, obsolete: Option<Arc<Superseded>>) -> BestCandidates {
        BestCandidates { obsolete, ..self }
    }

    /// The number of entries that were skipped as obsolete.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The order that decides which candidates are best.
    pub fn order(&self) -> Recency {
        self.window.order
    }

    /// True if it holds as many candidates as the query needs.
    pub fn is_full(&self) -> bool {
        self.len() >= self.window.want
    }

    /// The number of candidates.
    #[inline]
    fn len(&self) -> usize {
        debug_assert!(
            self.early.is_empty() || self.heap.is_empty(),
            "a list, then a heap"
        );
        self.early.len() + self.heap.len()
    }

    /// The number of candidates that the query needs.
    pub(crate) fn wanted(&self) -> usize {
        self.window.want
    }

    /// The number of candidates still missing.
    pub(crate) fn missing(&self) -> usize {
        debug_assert!(self.len() <= self.window.want, "no more than wanted");
        self.window.want - self.len()
    }

    /// True if a candidate of this rank would be kept. To be checked before building a candidate,
    /// and with the best rank of a file or block before reading it.
    #[inline]
    pub(crate) fn admits(&self, rank: u64) -> bool {
        self.after_rank.is_none_or(|after| rank > after)
            && !self.is_behind(rank)
            && (!self.is_full() || self.heap.peek().is_some_and(|worst| rank < worst.rank))
    }

    /// True if neither a candidate of this rank nor any worse one would be kept: a search from best
    /// to worst can stop.
    #[inline]
    pub(crate) fn is_beyond(&self, rank: u64) -> bool {
        self.is_behind(rank)
            || self.is_full() && self.heap.peek().is_some_and(|worst| rank >= worst.rank)
    }

    /// The least and the greatest sequence number that a candidate needs to be kept.
    #[inline]
    pub(crate) fn span(&self) -> (Seq, Seq) {
        let worst = self.heap.peek().filter(|_| self.is_full());
        let worst = worst.map(|worst| worst.item.seq);
        let (after, order) = (self.window.after, self.window.order);
        order.between(after, worst)
    }

    /// True if a candidate between these sequence numbers could be kept.
    pub fn admits_span(&self, min: Seq, max: Seq) -> bool {
        let order = self.window.order;
        let fresh = self
            .after_rank
            .is_none_or(|after| order.worst_rank(min, max) > after);
        let good = !self.is_full()
            || self
                .heap
                .peek()
                .is_some_and(|worst| order.best_rank(min, max) < worst.rank);
        fresh && good && !self.is_behind(order.best_rank(min, max))
    }

    /// The best rank of the candidates between two sequence numbers that the query still wants.
    pub(super) fn best_wanted_rank(&self, min: Seq, max: Seq) -> u64 {
        let best = self.window.order.best_rank(min, max);
        self.after_rank
            .map_or(best, |after| best.max(after.saturating_add(1)))
    }

    /// Offers a candidate.
    #[inline]
    pub fn offer(&mut self, seq: Seq, key: &[u8]) {
        self.offer_with(seq, key, || None);
    }

    /// Offers a candidate, with its record if `record` returns one.
    #[inline]
    pub(crate) fn offer_with(
        &mut self,
        seq: Seq,
        key: &[u8],
        record: impl FnOnce() -> Option<(Slice, Origin)>,
    ) {
        let rank = self.window.order.rank(seq);
        if !self.admits(rank) {
            self.overflowed |= self.is_beyond(rank);
            return;
        }
        if let Some(sought) = &mut self.sought {
            self.offered += 1;
            return sought.note(seq);
        }
        if self.obsolete.as_ref().is_some_and(|set| set.contains(seq)) {
            self.skipped += 1;
            return;
        }
        if self.is_full() {
            self.drop_worst();
        }
        let record = if self.record_bytes < MAX_RECORD_BYTES {
            record()
        } else {
            None
        };
        self.record_bytes += record.as_ref().map_or(0, |(record, _)| record.len());
        self.bytes += key.len() + CANDIDATE_BYTES;
        let candidate = Candidate {
            seq,
            key: key.to_vec(),
            record,
        };
        let ranked = Ranked {
            rank,
            item: candidate,
        };
        if self.heap.is_empty() {
            self.early.push(ranked);
            if self.is_full() || self.bytes > self.window.bytes {
                self.heap = std::mem::take(&mut self.early).into();
            }
        } else {
            self.heap.push(ranked);
        }
        while self.bytes > self.window.bytes && self.heap.len() > 1 {
            // The keys are long: continue with fewer candidates than wanted.
            self.drop_worst();
            self.window.want = self.heap.len();
        }
    }

    /// Drops the worst candidate of the heap.
    fn drop_worst(&mut self) {
        self.overflowed = true;
        let worst = self.heap.pop();
        debug_assert!(worst.is_some(), "as many candidates as wanted are a heap");
        if let Some(Ranked { item: worst, .. }) = worst {
            self.record_bytes -= worst.record.map_or(0, |(record, _)| record.len());
            self.bytes -= worst.key.len() + CANDIDATE_BYTES;
        }
    }

    /// Records that a candidate was skipped because it could not be among the best.
    pub fn note_skipped(&mut self) {
        self.overflowed |= self.is_full();
    }

    /// The candidates, best first, each record once; and whether more may follow.
    pub(crate) fn finish(self) -> (Vec<Candidate>, bool) {
        let mut ranked = if self.heap.is_empty() {
            self.early
        } else {
            self.heap.into_vec()
        };
        // A stable sort is fast here: candidates often arrive sorted, reversed, or as a few sorted
        // runs.
        ranked.sort_by_key(|ranked| ranked.rank);
        let mut candidates = Vec::with_capacity(ranked.len());
        candidates.extend(ranked.into_iter().map(|ranked| ranked.item));
        candidates.dedup_by(|b, a| {
            let same = a.seq == b.seq && a.key == b.key;
            if same && a.record.is_none() {
                a.record = b.record.take();
            }
            same
        });
        (candidates, self.overflowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_are_sought_are_noted_and_not_kept_however_many_entries_they_have() {
        let candidates = [9, 7, 4].map(|seq| Candidate {
            seq,
            key: vec![],
            record: None,
        });
        let (window, sought) = SoughtWrites::with_window(Recency::Newest, &candidates).unwrap();
        let mut best = BestCandidates::new(window).only(sought);
        for _ in 0..10_000 {
            for seq in [3, 4, 5, 9, 10] {
                best.offer(seq, b"a key");
            }
        }
        assert_eq!((best.len(), best.bytes), (0, 0));
        assert_eq!(best.offered(), 30_000, "those from 4 to 9");
        assert_eq!(best.into_found().unwrap(), [4, 9]);
    }
}
