//! The merge operator: how operands of a key are combined, on reads and on merges.

use crate::entry::{Seq, Time};

/// Combines operands of one user key. Operands are appended blindly (LevelDB++'s lazy posting lists,
/// DualDB's value lists) and combined whenever a flush or a merge brings them together.
///
/// The engine never needs a key's whole list: it hands over operands from newest to oldest, two
/// neighbours at a time, and lets the operator say when a piece is large enough. Called on flush and
/// merge threads; must be deterministic and associative, must not block or call into the engine.
pub trait MergeOperator: Send + Sync {
    /// Appends `older` to `newer`, two neighbouring operands of `key`, and returns true; or leaves
    /// `newer` as it is and returns false, when the two should stay apart (the piece is full, or
    /// either cannot be read). The numbers are those of the entries that hold them; a combined operand
    /// keeps the number of its newest part.
    fn combine(
        &self,
        key: &[u8],
        newer: &mut Vec<u8>,
        newer_seq: Seq,
        older: &[u8],
        older_seq: Seq,
    ) -> bool;

    /// True when elements of operands carry times of their own, which [`MergeOperator::prune`] knows. Then operands that expire at
    /// different times are combined, to one that expires at the last of these; without, only those of the same time are.
    fn times_elements(&self) -> bool {
        false
    }

    /// Of an operand that expires, what is left without the elements that nobody sees at `now`; `None` when that is all of it.
    /// Asked by reads and by merges.
    fn prune(&self, key: &[u8], operand: &[u8], now: Time) -> Option<Vec<u8>> {
        let _ = (key, operand, now);
        None
    }

    /// Rewrites a finished operand before it is stored. `oldest` is true when no older operand of
    /// the key can exist below. Returns false when nothing of it needs to be kept.
    fn finish(&self, key: &[u8], seq: Seq, operand: &mut Vec<u8>, oldest: bool) -> bool {
        let _ = (key, seq, oldest);
        !operand.is_empty()
    }
}
