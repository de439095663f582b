//! Bytes between nodes, and from clients to nodes: frames over TCP, with mutual TLS or (on loopback
//! alone) without. Threads that block; no protocol is known here.
//!
//! - `security`: keys and certificates, and where TLS is required; `name`: the name in a
//!   certificate; `handshake`: TLS until both sides know each other.
//! - `halves`: the two directions of a connection, which never wait for each other.
//! - `frame`: frames on a connection; `connection`: connecting and accepting.
//! - `links`: connections to peers that are restored when they break.
//! - `acceptor`: incoming connections; `replies`: what is sent on them.

mod acceptor;
mod connection;
mod error;
mod frame;
mod halves;
mod handshake;
mod links;
mod name;
mod queue;
mod replies;
mod security;
#[cfg(test)]
mod tests;

pub use acceptor::{Acceptor, Event, Limits};
pub use connection::{Connection, accept, connect, upgrade};
pub use error::Error;
pub use frame::{DEFAULT_MOST, HEADER, Receiver, Sender};
pub use halves::{Closer, ReadHalf, WriteHalf};
pub use links::{LinkEvent, LinkOptions, Links};
pub use name::node_name;
pub use queue::Part;
pub use replies::{Asked, ConnectionId, Refused, Replies};
pub use security::{Identity, Security, check_listen};
