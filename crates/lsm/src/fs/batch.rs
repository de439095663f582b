//! Reads that are wanted together: in flight at the same time where the platform can, so that a
//! lookup of many scattered records waits for the disk about once, not once per record.

use std::cell::Cell;
use std::io;

use super::ReadFile;

/// A piece of a file that is wanted.
#[derive(Clone, Copy)]
pub struct ReadRequest<'a> {
    /// The file.
    pub file: &'a dyn ReadFile,
    /// Where the piece begins.
    pub offset: u64,
    /// How many bytes.
    pub len: usize,
}

/// Is given the position of a request and its bytes.
pub(super) type VisitRead<'v> = dyn FnMut(usize, io::Result<&[u8]>) + 'v;

/// Reads every request and gives it to `visit`, once each, in any order. One request is a plain read;
/// several go to the operating system together (io_uring on Linux), those whose file has a
/// [`ReadFile::descriptor`], and one after another where that is not to be had.
///
/// Holds up to 1 MiB of what was read at a time, or the largest request.
pub fn read_many(requests: &[ReadRequest<'_>], visit: &mut dyn FnMut(usize, io::Result<&[u8]>)) {
    #[cfg(target_os = "linux")]
    if requests.len() > 1 && super::uring::read_many(requests, visit) {
        return;
    }
    for (at, request) in requests.iter().enumerate() {
        read_one(at, request, visit);
    }
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A scratch buffer larger than this is not kept.
const KEPT: usize = 1 << 20;

/// Reads one request by itself.
pub(super) fn read_one(at: usize, request: &ReadRequest<'_>, visit: &mut VisitRead<'_>) {
    // Taken, not borrowed: `visit` may read as well.
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
