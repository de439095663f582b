//! The merge operator of posting lists.

use esker_lsm::Seq;
use esker_lsm::merge::MergeOperator;
use esker_model::posting::PostingMerge;

/// Joins fragments of posting lists in flushes and compactions.
pub(crate) struct PostingOperator(pub(crate) PostingMerge);

impl MergeOperator for PostingOperator {
    fn combine(
        &self,
        _key: &[u8],
        newer: &mut Vec<u8>,
        newer_seq: Seq,
        older: &[u8],
        older_seq: Seq,
    ) -> bool {
        self.0.combine(newer, newer_seq, older, older_seq)
    }

    fn finish(&self, _key: &[u8], seq: Seq, operand: &mut Vec<u8>, oldest: bool) -> bool {
        self.0.finish(seq, operand, oldest)
    }
}
