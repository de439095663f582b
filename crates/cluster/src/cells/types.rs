//! The trait and its arguments.

use std::ops::Range;
use std::sync::Arc;

use esker_coding::Seq;

use super::swap::Swapped;
use crate::error::Result;

/// What a table is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// Versions of records: each partition is a key.
    Versions,
    /// Entries of an index. A deleted entry may come back with a node that was down: reads check
    /// each entry, so deletions need not be kept long.
    Entries,
    /// Rows that are changed by [`Cells::swap`] alone.
    Swapped,
}

/// A put or a deletion of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The table.
    pub table: Arc<str>,
    /// The partition.
    pub partition: Vec<u8>,
    /// The row.
    pub row: Vec<u8>,
    /// The value; `None` deletes the row.
    pub value: Option<Vec<u8>>,
    /// The timestamp.
    pub at: Seq,
}

/// A read of rows of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The table.
    pub table: Arc<str>,
    /// The partition.
    pub partition: Vec<u8>,
    /// The first row.
    pub from: Vec<u8>,
    /// The rows before this one; `None` for all.
    pub to: Option<Vec<u8>>,
    /// At most this many rows, the first ones in the order.
    pub most: usize,
    /// True for descending rows.
    pub reverse: bool,
    /// True for the rows alone: values are empty then.
    pub rows_only: bool,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The partition; empty for a read of one partition.
    pub partition: Vec<u8>,
    /// The row.
    pub row: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// The place in a table behind a page of a scan. It stays valid, in other processes too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(pub Vec<u8>);

/// Rows of a scan: all rows of a partition are one behind the other, ascending. A partition may
/// continue on the next page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The rows.
    pub cells: Vec<Cell>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Mark>,
}

/// A store of partitions and rows.
pub trait Cells: Send + Sync {
    /// The store's clock, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable).
    fn now(&self) -> Result<u64>;

    /// Creates a table that may exist already, or that another process creates at the same moment,
    /// and waits until all nodes that are alive know it.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable).
    fn create_table(&self, table: &str, kind: TableKind) -> Result<()>;

    /// Drops a table that may be gone already.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable).
    fn drop_table(&self, table: &str) -> Result<()>;

    /// Writes rows; the order of the outcomes is that of the writes. A failed write may still take
    /// effect, also later.
    fn write(&self, writes: Vec<Write>) -> Vec<Result<()>>;

    /// True if the compactions of a table of versions repair it themselves.
    fn has_compaction_hook(&self, table: &Arc<str>) -> bool {
        let _ = table;
        false
    }

    /// Writes versions of records, each with the puts of its index entries, which have been
    /// written. A store whose compactions repair notes them with the version.
    fn write_versions(&self, versions: Vec<(Write, Vec<Write>)>) -> Vec<Result<()>> {
        self.write(versions.into_iter().map(|(version, _)| version).collect())
    }

    /// Reads rows; the order of the answers is that of the reads.
    fn read(&self, reads: Vec<Read>) -> Vec<Result<Vec<Cell>>>;

    /// The number of parts in which a table can be scanned. Each partition belongs to one part.
    fn parts(&self) -> u32;

    /// Does work on parts, several at the same time where the store can.
    ///
    /// # Errors
    /// The first error of the work.
    fn beside(&self, parts: Range<u32>, work: &(dyn Fn(u32) -> Result<()> + Sync)) -> Result<()> {
        let mut parts = parts;
        parts.try_for_each(work)
    }

    /// A page of a part of a table: about `most` rows.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable); [`BadInput`](crate::Error::BadInput) for a mark
    /// of another store.
    fn scan(
        &self,
        table: &Arc<str>,
        part: u32,
        from: Option<&Mark>,
        most: usize,
        rows_only: bool,
    ) -> Result<Page>;

    /// Sets a row to `to` if it is `expected` (`None`: if it does not exist). Calls for one row are
    /// linearizable, with each other and with [`Cells::swapped`]. No two calls for one row have the
    /// same value in `to`, so that a row says whether a call without an answer has happened.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable): it may have happened, or may happen later.
    fn swap(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Swapped>;

    /// The rows of a partition that is changed by [`Cells::swap`], ascending.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable).
    fn swapped(&self, table: &Arc<str>, partition: &[u8]) -> Result<Vec<Cell>>;
}
