//! NBD: a server of block devices by the protocol of `doc/proto.md` of NetworkBlockDevice/nbd, and
//! a small client.
//!
//! [`Server`] speaks the fixed newstyle handshake with structured replies, `base:allocation`, and
//! TLS through [`Upgrade`]. What it serves implements [`Exports`] and [`Device`]. A connection has
//! two threads: one reads requests and begins them, one writes replies in the order in which
//! requests end, as far as the thread that has a reply could not send it at once. What connections
//! may use is bounded by [`Limits`]: at a limit a connection is not read any further. A client that
//! breaks the protocol, stalls or disappears ends its own connection only.
//!
//! [`Client`] is for tests, the demo, and programs that need few lines; it takes any reader and
//! writer.

mod answers;
mod arriving;
mod client;
mod connection;
mod device;
mod direct;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod greeting;
mod handshake;
mod limits;
#[cfg(test)]
mod memory;
mod options;
mod protocol;
mod replies;
mod requests;
mod server;
#[cfg(test)]
mod tests;
mod transmission;
mod upgrade;

pub use client::{Client, Operation};
pub use device::{Device, Done, Ender, Exports, Failure, MOST_RUNS, Refused, Run};
pub(crate) use direct::replies_together;
pub use error::ClientError;
pub use limits::Limits;
pub use server::Server;
pub use upgrade::{Encrypted, Upgrade};
