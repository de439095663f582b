//! Batched reads: concurrent where the platform supports it, so that a lookup of many scattered records waits for the
//! disk about once, not once per record.

use std::cell::Cell;
use std::io;

#[cfg(not(target_os = "linux"))]
use std::sync::Arc;

use super::ReadFile;
#[cfg(target_os = "linux")]
pub use super::uring::Rings;

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
pub(super) type VisitRead<'v> = dyn FnMut(usize, io::Result<&[u8]>) + 'v;

/// Reads every request and passes it to `visit`, once each, in any order. A single request is a plain read; several
/// requests whose files have a [`ReadFile::descriptor`] are submitted together (io_uring on Linux), and read one
/// after another where that is unavailable.
///
/// Buffers up to 1 MiB at a time, or the largest request.
pub fn read_many(requests: &[ReadRequest<'_>], visit: &mut dyn FnMut(usize, io::Result<&[u8]>)) {
    #[cfg(target_os = "linux")]
    if requests.len() > 1 && super::uring::read_many(requests, visit) {
        return;
    }
    for (at, request) in requests.iter().enumerate() {
        read_one(at, request, visit);
    }
}

/// Injects faults into batched reads, for tests ([`super::faulty::Faulty`]). Errors are numbers (`errno`).
pub trait RingFaults: Send + Sync {
    /// The error of setting up a ring, if it fails: called for each set-up.
    fn set_up(&self) -> Option<i32>;
    /// The error that leaves the outcome of submitted reads unknown, if any: called for each submission.
    fn lose(&self) -> Option<i32>;
    /// Maps the `result` of a read: the number of bytes read, or a negative error.
    fn end(&self, result: i32) -> i32;
}

/// Queues for batched reads: this platform has none.
#[cfg(not(target_os = "linux"))]
pub struct Rings;

#[cfg(not(target_os = "linux"))]
impl Rings {
    /// The queues of the process.
    pub fn shared() -> &'static Rings {
        &Rings
    }

    /// Separate queues, with injected faults.
    pub fn with_faults(_: Arc<dyn RingFaults>) -> Rings {
        Rings
    }
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A scratch buffer larger than this is not kept.
const KEPT: usize = 1 << 20;

/// Reads one request.
pub(super) fn read_one(at: usize, request: &ReadRequest<'_>, visit: &mut VisitRead<'_>) {
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
