//! What lookups return: an entry, or a block that may hold one.

use crate::entry::{Kind, Seq};
use esker_coding::Slice;

/// An entry returned by a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its sequence number.
    pub seq: Seq,
    /// Its kind.
    pub kind: Kind,
    /// Its value; a range of a cached block.
    pub value: Slice,
}

/// A data block that may hold the result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHint {
    /// The partition, from 0.
    pub partition: usize,
    /// The data block in the partition, from 0.
    pub block: usize,
    /// The least sequence number in the block.
    pub min_seq: Seq,
    /// The greatest sequence number in the block.
    pub max_seq: Seq,
}
