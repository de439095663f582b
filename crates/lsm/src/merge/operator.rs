//! The merge operator: combines the operands of a key, in reads and in compactions.

use crate::entry::{Seq, Time};

/// Combines operands of one user key. Operands are appended blindly (LevelDB++'s lazy posting
/// lists, DualDB's value lists) and combined whenever a flush or a compaction merges them.
///
/// The engine never needs a key's whole list: it passes operands from newest to oldest, two
/// neighbours at a time, and the operator says when a piece is large enough. Called on flush and
/// compaction threads; must be deterministic and associative, must not block or call into the
/// engine.
pub trait MergeOperator: Send + Sync {
    /// Appends `older` to `newer`, two neighbouring operands of `key`, and returns true; or leaves
    /// `newer` unchanged and returns false, when the two should stay apart (the piece is full, or
    /// one is malformed). The numbers are those of the entries that hold them; a combined operand
    /// keeps the number of its newest part.
    fn combine(
        &self,
        key: &[u8],
        newer: &mut Vec<u8>,
        newer_seq: Seq,
        older: &[u8],
        older_seq: Seq,
    ) -> bool;

    /// True when elements of operands have their own expiry times, which [`MergeOperator::prune`]
    /// applies. Then operands that expire at different times are combined, into one that expires at
    /// the latest of these; otherwise only those of the same time are.
    fn times_elements(&self) -> bool {
        false
    }

    /// Removes the elements that have expired at `now` from an operand that expires. Returns the
    /// elements that are left, perhaps none; `None` if no element has expired. Called in reads and
    /// in compactions.
    fn prune(&self, key: &[u8], operand: &[u8], now: Time) -> Option<Vec<u8>> {
        let _ = (key, operand, now);
        None
    }

    /// Rewrites a complete operand before it is stored. `oldest` is true when no older operand of
    /// the key can exist below. Returns false when nothing of it needs to be kept.
    fn finish(&self, key: &[u8], seq: Seq, operand: &mut Vec<u8>, oldest: bool) -> bool {
        let _ = (key, seq, oldest);
        !operand.is_empty()
    }
}
