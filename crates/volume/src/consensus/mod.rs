//! The protocol of one group, without I/O and without data: Multi-Paxos with an ordered log.
//!
//! A replica accepts a slot only after the slots before it, and promises only to a candidate whose
//! log is at least as far as its own: by the ballot of its last entry, then by its slot. A new
//! leader therefore has everything that was chosen. While the leader is stable, a command costs one
//! message to each follower and one back.
//!
//! - `message.rs`: what replicas say to each other. `metas.rs`: the log, without commands.
//! - `types.rs`: what goes in and comes out. `core.rs`: the state. `election.rs`: ballots and
//!   promises.
//! - `accept.rs`: what a follower does with entries. `lead.rs`: how a leader sends them, and what
//!   is chosen. `progress.rs`: what it knows of the others.
//! - `reads.rs`, `rounds.rs`: leases and rounds of heartbeats, so that reads see all that was
//!   acknowledged.

mod accept;
mod core;
mod election;
mod lead;
mod message;
mod metas;
mod progress;
mod reads;
mod rounds;
#[cfg(test)]
mod tests;
mod types;

pub use self::core::Core;
pub use message::{Message, Meta};
pub use types::{Damage, NOTHING_BYTES, Output, ProposeError, Role, Settings, Start, Time};
