//! What nodes say to each other, and clients to nodes: one frame each, encoded here and carried by
//! `net`.
//!
//! - `frame.rs`: frames. `op.rs`: what a group's leader is asked for. `answer.rs`: what it answers.

mod answer;
mod frame;
mod op;
mod read;

pub use crate::system::Source;
pub use answer::{Refusal, Reply};
pub(crate) use answer::{decode_result, encode_result};
pub use frame::{Formation, Frame, Hello, Packet, VERSION};
pub use op::{Change, Op};
