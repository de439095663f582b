//! The one iterator interface of the read stack: memtables, tables, runs and their merge all speak it.

use crate::entry::{Kind, Seq};
use crate::error::Result;
use crate::slice::Slice;

/// A position in entries ordered by [`crate::entry::compare`]. A fresh cursor is invalid until it is
/// moved; a cursor that ran off either end is invalid until it is sought again. The accessors may be
/// called only while [`Cursor::valid`]; otherwise they return empty bytes, 0 and `Kind::Delete`.
pub trait Cursor {
    /// True while the cursor stands on an entry.
    fn valid(&self) -> bool;
    /// The entry's user key.
    fn key(&self) -> &[u8];
    /// The entry's sequence number.
    fn seq(&self) -> Seq;
    /// The entry's kind.
    fn kind(&self) -> Kind;
    /// The entry's value.
    fn value(&self) -> &[u8];
    /// The entry's value, to be kept after the cursor moves on; shares the block where it can.
    fn value_slice(&self) -> Slice;
    /// To the first entry.
    fn seek_first(&mut self) -> Result<()>;
    /// To the last entry.
    fn seek_last(&mut self) -> Result<()>;
    /// To the first entry at or after `(key, seq)`; `(key, MAX_SEQ)` is the newest entry of `key`.
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()>;
    /// To the entry after this one.
    fn next(&mut self) -> Result<()>;
    /// To the entry before this one.
    fn prev(&mut self) -> Result<()>;
}
