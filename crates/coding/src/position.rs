//! Positions in the order of a store's commits.

use std::fmt;
use std::str::FromStr;

use crate::{MAX_SEQ, Seq};

/// A position in the order of a store's commits: immediately after the write `seq`. It includes the
/// store's history, so that positions of other stores, or of a copy whose history has diverged, are
/// recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The store's history.
    pub history: u64,
    /// The last write before the position; 0 precedes all writes.
    pub seq: Seq,
}

impl Position {
    /// Why a store that is at `current` cannot read on from this position: it is of another
    /// history, or ahead.
    pub fn unknown_at(self, current: Position) -> String {
        if self.history == current.history && self.seq > current.seq {
            return format!(
                "there is no write {} yet: the last one is {}",
                self.seq, current.seq
            );
        }
        format!(
            "{self} is a position of another store, of a copy that diverged, or of writes that a power cut took: this store is at {current}"
        )
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.history, self.seq)
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Position, String> {
        let parts = text
            .split_once('-')
            .filter(|(history, _)| history.len() == 16);
        let position = parts.and_then(|(history, seq)| {
            let history = u64::from_str_radix(history, 16).ok()?;
            let seq = seq.parse().ok().filter(|seq| *seq <= MAX_SEQ)?;
            Some(Position { history, seq })
        });
        position
            .ok_or_else(|| format!("`{text}` is no position: 16 hexadecimal digits, `-`, a number"))
    }
}
