//! What is done after reading back, before anything new is written: what follows the end is cut,
//! and what may not be on the disk is written again.
//!
//! A system drops pages whose sync failed and yet reads them from its cache, so records that no
//! later record calls synced are not taken for durable: the last segment is replaced by a copy, and
//! a record in the copy says that all of it is synced. That record also keeps what was synced known
//! when the records that said it are cut.

use super::folder::{Folder, SEGMENT_HEADER};
use super::record::{HEADER_BYTES, Kind, RecordHeader};
use super::scan::{Read, Scanned};
use super::window::Window;
use crate::command::checksum;
use crate::error::{Error, Result};
use crate::ids::{Ballot, GroupId};
use crate::place::Place;

/// Bytes that are copied at a time.
const PIECE: u32 = 1 << 20;

/// Where writing continues.
pub(super) struct Recovered {
    pub(super) kept: Vec<Read>,
    /// The LSN of the next record.
    pub(super) end: u64,
    /// Everything before this LSN is synced.
    pub(super) synced: u64,
    /// Records on disk say that everything before this LSN is synced.
    pub(super) stated: u64,
    /// Bytes that were written.
    pub(super) written: u64,
}

/// Makes the segments hold exactly what was read.
pub(super) fn recover(folder: &Folder, scanned: Scanned) -> Result<Recovered> {
    let Scanned {
        mut kept,
        void,
        end,
        synced,
        last_number: _,
    } = scanned;
    let mut done = Recovered {
        kept: Vec::new(),
        end,
        synced: end,
        stated: synced,
        written: 0,
    };
    if let Some(last) = kept.pop() {
        let is_exact = last.valid == last.len && last.offset(end) == Some(last.valid);
        // Segments before it were synced before it was begun.
        let is_unsynced = last.last.is_some_and(|lsn| lsn >= synced);
        let last = if is_exact && !is_unsynced && void.is_empty() {
            // Where what an earlier process reserved stays, it costs space and nothing else.
            drop(folder.fs.unreserve(&folder.segment(last.number)));
            // What is not called synced are records that only say what is.
            if end > synced {
                let path = folder.segment(last.number);
                let synced = folder.fs.sync(&path);
                synced.map_err(|e| Error::io(&path, "sync", e))?;
                folder.sync()?;
            }
            last
        } else {
            finish(folder, last, &void, &mut done)?
        };
        kept.push(last);
    }
    done.kept = kept;
    if !void.is_empty() {
        for &number in void.iter().rev() {
            folder.remove(&folder.segment(number))?;
        }
        folder.sync()?;
    }
    Ok(done)
}

/// Replaces the last segment by a copy that ends with a record that says that all is synced.
fn finish(folder: &Folder, mut last: Read, void: &[u32], done: &mut Recovered) -> Result<Read> {
    let path = folder.segment(last.number);
    let Some(offset) = last.offset(done.end) else {
        let what = format!("begins at LSN {}, behind the end {}", last.first, done.end);
        return Err(Error::corruption(&path, 0, what));
    };
    let header = RecordHeader {
        kind: Kind::Sync,
        group: GroupId(0),
        // Segments after this one, up to this number, are void.
        slot: u64::from(void.last().copied().unwrap_or(0)),
        ballot: Ballot(0),
        lsn: done.end,
        synced: done.end,
        bytes: 0,
        checksum: checksum(&[]),
    };
    let mut record = Vec::with_capacity(HEADER_BYTES);
    let segment = last.number;
    header.encode(folder.disk, Place { segment, offset }, &mut record);
    done.written += rewrite(folder, &last, offset, &record)?;
    done.stated = done.end;
    done.end += header.occupied();
    done.synced = done.end;
    last.valid = offset.saturating_add(HEADER_BYTES as u32);
    last.len = last.valid;
    Ok(last)
}

/// Replaces a segment by a copy of its first `len` bytes, with zeros where the file is shorter, and
/// `more` behind them.
fn rewrite(folder: &Folder, read: &Read, len: u32, more: &[u8]) -> Result<u64> {
    let mut window = Window::open(folder, read.number)?;
    let there = len.min(read.valid).min(window.len);
    let path = folder.segment(read.number);
    folder.replace(&path, |append| {
        let mut at = 0;
        while at < len {
            let end = if at < there { there } else { len };
            let piece = PIECE.min(end - at);
            if at < there {
                append(window.get(at, piece as usize)?.unwrap_or_default())?
            } else {
                append(&vec![0; piece as usize])?
            }
            at += piece;
        }
        append(more)
    })?;
    debug_assert!(len >= SEGMENT_HEADER);
    Ok(u64::from(len) + more.len() as u64)
}
