//! What a server serves: exports and devices. The rest of the crate implements these traits.

use std::fmt;
use std::sync::Arc;

/// Why a request failed, as the protocol says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// An error number of the protocol, one of the constants of this type.
    pub errno: u32,
    /// What happened, in a sentence. Sent to clients that negotiated structured replies.
    pub text: String,
}

impl Failure {
    /// Not permitted, for example a write to a read-only export.
    pub const EPERM: u32 = 1;
    /// The device failed.
    pub const EIO: u32 = 5;
    /// No memory.
    pub const ENOMEM: u32 = 12;
    /// The request is wrong, for example a read past the end.
    pub const EINVAL: u32 = 22;
    /// No space, and a write past the end.
    pub const ENOSPC: u32 = 28;
    /// The request is too large.
    pub const EOVERFLOW: u32 = 75;
    /// Not supported.
    pub const ENOTSUP: u32 = 95;
    /// The server is about to stop.
    pub const ESHUTDOWN: u32 = 108;

    /// A failure with this number and text.
    pub fn new(errno: u32, text: impl Into<String>) -> Failure {
        let text = text.into();
        Failure { errno, text }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (errno {})", self.text, self.errno)
    }
}

impl std::error::Error for Failure {}

/// Called once with the outcome of a request, on any thread, also before the call that was given it
/// returns. It does not wait. One that is dropped instead fails the request with EIO.
pub type Done<T> = Box<dyn FnOnce(Result<T, Failure>) + Send>;

/// Ends a connection at once, without waiting, from any thread: its client sees it close, and may
/// connect again. Requests that are not answered stay so, and their outcomes go nowhere.
pub type Ender = Box<dyn Fn() + Send>;

/// A range of a device that is all allocated, or all not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Bytes.
    pub length: u64,
    /// True where nothing is stored and zeros are read.
    pub is_hole: bool,
}

/// The most runs of one answer of [`Device::extents`] that are sent; the rest is ignored.
pub const MOST_RUNS: usize = 4096;

/// What a connection reads and writes: one for each connection that opens an export, so it can be a
/// session of its own.
///
/// Ranges lie within the size, at any alignment, and lengths are at least 1. Requests are begun in
/// the order of the connection, and end in any. A server announces that clients may use several
/// connections at once (`NBD_FLAG_CAN_MULTI_CONN`): this holds where each write, discard and flush
/// calls `done` only when it is durable and visible to all connections, and implementations must
/// keep to that.
pub trait Device: Send + Sync {
    /// Bytes. It may grow while connections are open, and never shrinks.
    fn size(&self) -> u64;
    /// The preferred size and alignment of requests in bytes, a power of two.
    fn block_size(&self) -> u32;
    /// True where writes and discards are refused.
    fn read_only(&self) -> bool;
    /// What the device is, for people; sent when a client asks.
    fn description(&self) -> Option<String> {
        None
    }
    /// Reads exactly `length` bytes.
    fn read(&self, offset: u64, length: u32, done: Done<Vec<u8>>);
    /// Reads as [`Device::read`], where no other request of the connection is under way nor has
    /// arrived: the calling thread may wait for the data, since it has nothing else to do.
    fn read_alone(&self, offset: u64, length: u32, done: Done<Vec<u8>>) {
        self.read(offset, length, done);
    }
    /// Writes. `done` is called only when the data are durable, whether the client asked for that
    /// (FUA) or not.
    fn write(&self, offset: u64, data: Vec<u8>, done: Done<()>);
    /// Writes as [`Device::write`], where no other request of the connection is under way nor has
    /// arrived: the calling thread may wait for the disk.
    fn write_alone(&self, offset: u64, data: Vec<u8>, done: Done<()>) {
        self.write(offset, data, done);
    }
    /// Frees a range. With `zeros` it must read as zeros afterwards; without, any part may be left
    /// as it is.
    fn discard(&self, offset: u64, length: u64, zeros: bool, done: Done<()>);
    /// Ends when each write and discard that has ended before is durable.
    fn flush(&self, done: Done<()>);
    /// The allocation of a range from `offset` on. The runs follow each other; they may cover only
    /// a first part of the range, also none, or more than it. At most [`MOST_RUNS`] are used.
    fn extents(&self, offset: u64, length: u64, done: Done<Vec<Run>>);
    /// The requests that are begun from now on, up to the next such call with `false`, came
    /// together: the device may wait with them until then, and carry them out together. That call
    /// comes without waiting for anything.
    fn together(&self, are_more: bool) {
        let _ = are_more;
    }
    /// The connection is about to send requests; `end` ends it, where the device can serve it no
    /// longer. Called at most once, before any request; not for a client that only asks for
    /// information.
    fn begins(&self, end: Ender) {
        drop(end);
    }
    /// The connection ended. Called once, last; outcomes of requests that are still running reach
    /// no client any more.
    fn closed(&self);
}

/// Why an export cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// There is no export of this name.
    Unknown,
    /// The client may not use it; why, in a sentence.
    Forbidden(String),
    /// It cannot be used now; why, in a sentence.
    Unavailable(String),
    /// The server is about to stop.
    Stopping,
}

/// The exports of a server. Its methods may wait; each connection calls them on its own thread.
pub trait Exports: Send + Sync {
    /// The names that clients may know of.
    fn list(&self) -> Vec<String>;
    /// Opens an export. `name` is valid UTF-8 of at most 4096 bytes; the empty name asks for a
    /// default. `client` is the name in the client's certificate, where there is one. A client that
    /// only asks for information opens the export, too, and closes it.
    fn open(&self, name: &str, client: Option<&str>) -> Result<Arc<dyn Device>, Refused>;
}
