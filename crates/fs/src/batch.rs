//! Batched reads: concurrent where the platform supports it, so that a lookup of many scattered
//! records waits for the disk about once, not once per record.

use std::io;

use crate::request::{ReadRequest, read_one};

/// Reads every request and passes it to `visit`, once each, in any order. A single request is a
/// plain read; several requests whose files have a [`crate::ReadFile::descriptor`] are submitted
/// together (io_uring on Linux), and read one after another where that is unavailable.
///
/// Buffers up to 1 MiB at a time, or the largest request.
pub fn read_many(requests: &[ReadRequest<'_>], visit: &mut dyn FnMut(usize, io::Result<&[u8]>)) {
    #[cfg(target_os = "linux")]
    if requests.len() > 1 && crate::uring::read_many(requests, visit) {
        return;
    }
    for (at, request) in requests.iter().enumerate() {
        read_one(at, request, visit);
    }
}
