//! The two orders of writes.

use esker_coding::{MAX_SEQ, Seq};

/// An order by the sequence number of the write: that in which indexes give their candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Recency {
    /// The most recently written first.
    #[default]
    Newest,
    /// The least recently written first.
    Oldest,
}

impl Recency {
    /// A number that is smaller for a write that comes earlier in this order.
    #[inline]
    pub fn rank(self, seq: Seq) -> u64 {
        match self {
            Recency::Newest => MAX_SEQ - seq.min(MAX_SEQ),
            Recency::Oldest => seq,
        }
    }

    /// The least and the greatest sequence number behind `after` and before `before` in this order.
    #[inline]
    pub fn between(self, after: Option<Seq>, before: Option<Seq>) -> (Seq, Seq) {
        let (above, below) = match self {
            Recency::Newest => (before, after),
            Recency::Oldest => (after, before),
        };
        (
            above.map_or(0, |seq| seq.saturating_add(1)),
            below.map_or(MAX_SEQ, |seq| seq.saturating_sub(1)),
        )
    }

    /// The best rank of all writes between two sequence numbers.
    #[inline]
    pub fn best_rank(self, min: Seq, max: Seq) -> u64 {
        match self {
            Recency::Newest => self.rank(max),
            Recency::Oldest => self.rank(min),
        }
    }

    /// The worst rank of all writes between two sequence numbers.
    #[inline]
    pub fn worst_rank(self, min: Seq, max: Seq) -> u64 {
        match self {
            Recency::Newest => self.rank(min),
            Recency::Oldest => self.rank(max),
        }
    }
}
