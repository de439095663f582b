//! A read of a batch, and how it is read alone.

use std::cell::Cell;
use std::io;

use crate::ReadFile;

/// A range of a file to read.
#[derive(Clone, Copy)]
pub struct ReadRequest<'a> {
    /// The file.
    pub file: &'a dyn ReadFile,
    /// The offset of the range.
    pub offset: u64,
    /// Its length in bytes.
    pub len: usize,
}

/// Receives the position of a request and its bytes.
pub(crate) type VisitRead<'v> = dyn FnMut(usize, io::Result<&[u8]>) + 'v;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A scratch buffer larger than this is not kept.
const KEPT: usize = 1 << 20;

/// Reads one request.
pub(crate) fn read_one(at: usize, request: &ReadRequest<'_>, visit: &mut VisitRead<'_>) {
    // Taken, not borrowed: `visit` may read, too.
    let mut scratch = SCRATCH.take();
    if scratch.len() < request.len {
        scratch.resize(request.len, 0);
    }
    let buf = scratch.get_mut(..request.len).unwrap_or_default();
    let read = request.file.read_at(request.offset, buf);
    visit(at, read.map(|()| &*buf));
    if scratch.len() <= KEPT {
        SCRATCH.set(scratch);
    }
}
