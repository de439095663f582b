//! Runs whose tables are disjoint in another order than that of keys.

use std::fmt;

use crate::entry::MAX_KEY_LEN;

/// Decides where the output of flushes and merges is cut into tables, and in which order the tables of a run are disjoint.
/// A tree without one is cut where a table has its size, so its tables are disjoint by key. One for points cuts by place, so
/// that what is near each other is in few tables, whatever their keys.
///
/// A *place* is a function of the key: entries of one key belong to the same table of a run. Each table has *bounds*, bytes
/// that only the partitioner understands, which cover the keys in it; they are in the manifest. Bounds of the tables of a run
/// do not overlap, which is checked with each version and at each opening, and `check` compares them with the keys.
/// Within a table entries are ordered by key. All methods are pure functions, called on all threads; bounds may be damaged, and
/// must not make them panic.
pub trait Partitioner: Send + Sync + fmt::Debug {
    /// A number that stands for the order and for what bounds mean. It is on disk: a tree whose tables have bounds of
    /// another partitioner is refused.
    fn id(&self) -> u32;

    /// Makes bounds cover a key, too; `bounds` is empty before the first. The longest are those of a key, 256 KiB.
    fn cover(&self, bounds: &mut Vec<u8>, key: &[u8]);

    /// True when the bounds cover the key.
    fn covers(&self, bounds: &[u8], key: &[u8]) -> bool;

    /// True when some key may be covered by both.
    fn overlap(&self, a: &[u8], b: &[u8]) -> bool;

    /// Begins to cut the output of a flush or merge.
    fn cut(&self, output: &Cutting<'_>) -> Box<dyn Cutter>;
}

/// What is to be cut.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cutting<'a> {
    /// About so many bytes come.
    pub bytes: u64,
    /// A table should have so many.
    pub table_size: u64,
    /// Keys of what comes, about evenly spread over it, in order. May be empty.
    pub sample: &'a [Vec<u8>],
    /// The bounds of tables that are in the same run and stay: the new tables must not overlap them. No key that comes is
    /// covered by them.
    pub beside: &'a [&'a [u8]],
}

/// Cuts the output of one flush or merge.
pub trait Cutter {
    /// The number of the table that the entries of this key go to, from 0 on: keys come in order, tables may take turns. All of the
    /// tables are open until the last key has come; at most [`MOST_PARTS`] are.
    fn part(&mut self, key: &[u8]) -> usize;
}

/// The most tables that a [`Cutter`] may cut an output to: each that is open takes memory.
pub const MOST_PARTS: usize = 256;

/// The longest bounds.
pub(crate) const MAX_BOUNDS: usize = MAX_KEY_LEN;
