//! The iterator interface of the whole read stack: memtables, tables, runs and merges implement it.

use crate::entry::{Kind, Seq};
use crate::error::Result;
use esker_coding::Slice;

/// A position in entries ordered by [`crate::entry::compare`]. A new cursor is invalid until it is
/// moved; a cursor moved past either end is invalid until the next seek. The accessors may be
/// called only while [`Cursor::valid`]; otherwise they return empty bytes, 0 and `Kind::Delete`.
pub trait Cursor {
    /// True while the cursor is on an entry.
    fn valid(&self) -> bool;
    /// The entry's user key.
    fn key(&self) -> &[u8];
    /// The entry's sequence number.
    fn seq(&self) -> Seq;
    /// The entry's kind.
    fn kind(&self) -> Kind;
    /// The entry's value.
    fn value(&self) -> &[u8];
    /// The entry's value, valid after the cursor moves on; shares the block where it can.
    fn value_slice(&self) -> Slice;
    /// Moves to the first entry.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after `(key, seq)`; `(key, MAX_SEQ)` is the newest entry of
    /// `key`.
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()>;
    /// Moves to the next entry.
    fn next(&mut self) -> Result<()>;
    /// Moves to the previous entry.
    fn prev(&mut self) -> Result<()>;
}
