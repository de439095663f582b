//! The order of an answer.

use std::fmt;
use std::str::FromStr;

use esker_coding::{MAX_SEQ, Seq};

use crate::error::Error;

/// The order of answers, by the sequence number of the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Order {
    /// The most recently written first.
    #[default]
    Newest,
    /// The least recently written first.
    Oldest,
}

impl Order {
    /// A number that is smaller for a write that comes earlier in this order.
    #[inline]
    pub fn rank(self, seq: Seq) -> u64 {
        match self {
            Order::Newest => MAX_SEQ - seq.min(MAX_SEQ),
            Order::Oldest => seq,
        }
    }

    /// The least and the greatest sequence number behind `after` and before `before` in this order.
    #[inline]
    pub fn between(self, after: Option<Seq>, before: Option<Seq>) -> (Seq, Seq) {
        let (above, below) = match self {
            Order::Newest => (before, after),
            Order::Oldest => (after, before),
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
            Order::Newest => self.rank(max),
            Order::Oldest => self.rank(min),
        }
    }

    /// The worst rank of all writes between two sequence numbers.
    #[inline]
    pub fn worst_rank(self, min: Seq, max: Seq) -> u64 {
        match self {
            Order::Newest => self.rank(min),
            Order::Oldest => self.rank(max),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Newest => "newest",
            Order::Oldest => "oldest",
        })
    }
}

impl FromStr for Order {
    type Err = Error;

    fn from_str(text: &str) -> Result<Order, Error> {
        match text {
            "newest" => Ok(Order::Newest),
            "oldest" => Ok(Order::Oldest),
            _ => Err(Error::bad_input(format!(
                "`{text}` is not an order: use newest or oldest"
            ))),
        }
    }
}
