//! The K best candidates so far, and what the search for them may skip.

use std::collections::BinaryHeap;
use std::sync::Arc;

use esker_lsm::{Seq, Slice, Superseded};
use esker_model::query::Order;

use super::Candidate;
use super::queue::Ranked;

impl Candidate {
    /// What it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let record = self.record.as_ref().map_or(0, |(record, _)| record.len());
        size_of::<Candidate>() + self.key.len() + record
    }
}

/// Which candidates a search wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) order: Order,
    /// Only candidates after the one with this sequence number.
    pub(crate) after: Option<Seq>,
    /// How many.
    pub(crate) want: usize,
    /// Fewer when their keys take more than so many bytes.
    pub(crate) bytes: usize,
}

impl Window {
    /// All candidates.
    pub(crate) fn all() -> Window {
        Window {
            order: Order::Newest,
            after: None,
            want: usize::MAX,
            bytes: usize::MAX,
        }
    }
}

/// Keeps the best candidates that it is offered, as many as the query needs, so that memory is
/// bounded by that number.
pub struct Best {
    window: Window,
    /// The candidates while there are fewer than wanted, as they came.
    early: Vec<Ranked<Candidate>>,
    /// All of them from then on, the worst on top.
    heap: BinaryHeap<Ranked<Candidate>>,
    after_rank: Option<u64>,
    /// Whether anything was turned away or pushed out.
    overflowed: bool,
    /// Bytes of records that candidates brought along.
    held: usize,
    /// Bytes of the candidates themselves.
    bytes: usize,
    /// Writes that are known to be obsolete, whose index entries are passed over; and how many were.
    over: Option<Arc<Superseded>>,
    passed_over: u64,
}

/// What a candidate takes beside its key, in bytes.
const CANDIDATE_BYTES: usize = 96;

/// Candidates for which there is room at once.
const EXPECTED: usize = 32;

/// Bytes of records that candidates may bring along; beyond it only their keys are kept.
const HELD_LIMIT: usize = 4 << 20;

impl Best {
    pub(crate) fn new(window: Window) -> Best {
        let after_rank = window.after.map(|seq| window.order.rank(seq));
        Best {
            window,
            // A vector that grows is the one thing for which the allocator's lock is always taken.
            early: Vec::with_capacity(window.want.min(EXPECTED)),
            heap: BinaryHeap::new(),
            after_rank,
            overflowed: false,
            held: 0,
            bytes: 0,
            over: None,
            passed_over: 0,
        }
    }

    /// The same, for index entries of which those of the writes in `over` are obsolete.
    pub(crate) fn without(self, over: Option<Arc<Superseded>>) -> Best {
        Best { over, ..self }
    }

    /// How many candidates were known to be obsolete.
    pub(crate) fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// The order that decides which candidates are best.
    pub fn order(&self) -> Order {
        self.window.order
    }

    /// True when it holds as many candidates as the query needs.
    pub fn is_full(&self) -> bool {
        self.early.len() + self.heap.len() >= self.window.want
    }

    /// How many are wanted.
    pub(crate) fn wanted(&self) -> usize {
        self.window.want
    }

    /// How many more are wanted.
    pub(crate) fn missing(&self) -> usize {
        self.window
            .want
            .saturating_sub(self.early.len() + self.heap.len())
    }

    /// True when a candidate of this rank would be kept: to be asked before one is built, and with
    /// the best rank of a file or block before it is read.
    #[inline]
    pub(crate) fn admits(&self, rank: u64) -> bool {
        self.after_rank.is_none_or(|after| rank > after)
            && (!self.is_full() || self.heap.peek().is_some_and(|worst| rank < worst.rank))
    }

    /// True when neither a candidate of this rank nor any of a worse one would be kept: a search
    /// that goes from best to worst can stop.
    #[inline]
    pub(crate) fn is_beyond(&self, rank: u64) -> bool {
        self.is_full() && self.heap.peek().is_some_and(|worst| rank >= worst.rank)
    }

    /// The least and the greatest sequence number that a candidate can have to be kept.
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
        fresh && good
    }

    /// Offers a candidate.
    #[inline]
    pub fn offer(&mut self, seq: Seq, key: &[u8]) {
        self.offer_with(seq, key, || None);
    }

    /// Offers a candidate that may bring its record.
    #[inline]
    pub(crate) fn offer_with(
        &mut self,
        seq: Seq,
        key: &[u8],
        record: impl FnOnce() -> Option<(Slice, usize)>,
    ) {
        let rank = self.window.order.rank(seq);
        if !self.admits(rank) {
            self.overflowed |= self.is_beyond(rank);
            return;
        }
        if self.over.as_ref().is_some_and(|over| over.contains(seq)) {
            self.passed_over += 1;
            return;
        }
        if self.is_full() {
            self.drop_worst();
        }
        let record = if self.held < HELD_LIMIT {
            record()
        } else {
            None
        };
        self.held += record.as_ref().map_or(0, |(record, _)| record.len());
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
            // Long keys: fewer candidates than were wanted have to do.
            self.drop_worst();
            self.window.want = self.heap.len();
        }
    }

    fn drop_worst(&mut self) {
        self.overflowed = true;
        if let Some(Ranked {
            item: candidate, ..
        }) = self.heap.pop()
        {
            self.held -= candidate.record.map_or(0, |(record, _)| record.len());
            self.bytes -= candidate.key.len() + CANDIDATE_BYTES;
        }
    }

    /// Notes that a candidate was skipped because it could not be among the best.
    pub fn note_skipped(&mut self) {
        self.overflowed |= self.is_full();
    }

    /// The candidates, best first, each record once; and whether there may be more behind them.
    pub(crate) fn finish(self) -> (Vec<Candidate>, bool) {
        let mut ranked = if self.heap.is_empty() {
            self.early
        } else {
            self.heap.into_vec()
        };
        // They often come in order, or in the opposite one, or in a few such runs.
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
