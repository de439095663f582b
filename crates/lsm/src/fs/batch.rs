//! Reads that are wanted together: in flight at the same time where the platform can, so that a
//! lookup of many scattered records waits for the disk about once, not once per record.

use std::cell::Cell;
use std::io;

#[cfg(not(target_os = "linux"))]
use std::sync::Arc;

use super::ReadFile;
#[cfg(target_os = "linux")]
pub use super::uring::Rings;

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

/// What goes wrong with reads that go to the operating system together, for tests ([`super::faulty::Faulty`]). Errors
/// are given by their numbers (`errno`).
pub trait RingFaults: Send + Sync {
    /// Why there is no ring: asked each time that one would be set up.
    fn set_up(&self) -> Option<i32>;
    /// Why it is not known which of the reads that the kernel was given have ended: asked each time that it
    /// was given some.
    fn lose(&self) -> Option<i32>;
    /// What becomes of a read that ended with `result`: the number of bytes that arrived, or if negative, an error.
    fn end(&self, result: i32) -> i32;
}

/// The ways to the operating system for reads together: there are none here.
#[cfg(not(target_os = "linux"))]
pub struct Rings;

#[cfg(not(target_os = "linux"))]
impl Rings {
    /// Those of the process.
    pub fn shared() -> &'static Rings {
        &Rings
    }

    /// Others, with which something may go wrong.
    pub fn with_faults(_: Arc<dyn RingFaults>) -> Rings {
        Rings
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
