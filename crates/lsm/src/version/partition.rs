//! Partitioners: runs whose tables are disjoint in another order than that of keys.

use std::fmt;

use crate::entry::MAX_KEY_LEN;

/// Decides where the output of flushes and compactions is cut into tables, and in which order the
/// tables of a run are disjoint. A tree without one is cut at the table size, so its tables are
/// disjoint by key. A partitioner for points cuts by location, so that nearby points are in few
/// tables, whatever their keys.
///
/// A *place* is a function of the key: entries of one key belong to the same table of a run. Each
/// table has *bounds*, opaque bytes of the partitioner, which cover its keys; they are in the
/// manifest. Bounds of the tables of a run do not overlap, which is checked with each version and
/// at each opening, and `check` compares them with the keys. Within a table entries are ordered by
/// key. All methods are pure functions, called on any thread; bounds may be damaged, and must not
/// make them panic.
pub trait Partitioner: Send + Sync + fmt::Debug {
    /// A number for the order and for the encoding of bounds. It is on disk: a tree whose tables
    /// have bounds of another partitioner is refused.
    fn id(&self) -> u32;

    /// Extends bounds to cover a key; `bounds` is empty before the first. The longest are those of
    /// a key, 256 KiB.
    fn cover(&self, bounds: &mut Vec<u8>, key: &[u8]);

    /// True when the bounds cover the key.
    fn covers(&self, bounds: &[u8], key: &[u8]) -> bool;

    /// True when some key may be covered by both.
    fn overlap(&self, a: &[u8], b: &[u8]) -> bool;

    /// Where a table with these bounds stands in the order in which the tables of a level take
    /// their turn to be compacted. By default that is the order of the smallest keys.
    fn turn(&self, bounds: &[u8]) -> Option<Vec<u8>> {
        let _ = bounds;
        None
    }

    /// Begins to cut the output of a flush or compaction.
    fn cut(&self, output: &Cutting<'_>) -> Box<dyn Cutter>;
}

/// The expected output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cutting<'a> {
    /// Approximate bytes.
    pub bytes: u64,
    /// The target size of a table.
    pub table_size: u64,
    /// A sample of the keys, about evenly spread, in order. May be empty.
    pub sample: &'a [Vec<u8>],
    /// The bounds of the tables that are merged: each key of the output is covered by one of them.
    /// Empty where that is not known, as in a flush.
    pub within: &'a [&'a [u8]],
    /// The bounds of the tables that stay in the same run: the new tables must not overlap them.
    /// They cover no key of the output.
    pub beside: &'a [&'a [u8]],
}

/// Cuts the output of one flush or compaction.
pub trait Cutter {
    /// The index of the table for the entries of this key, from 0 on: keys come in order, tables
    /// may alternate. All of the tables stay open until the last key; at most [`MOST_PARTS`] are.
    fn part(&mut self, key: &[u8]) -> usize;
}

/// The most tables of one output: each open table takes memory.
pub const MOST_PARTS: usize = 256;

/// The longest bounds.
pub(crate) const MAX_BOUNDS: usize = MAX_KEY_LEN;
