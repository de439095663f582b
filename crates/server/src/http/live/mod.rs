//! Live: changes of datasets, their consumers, fences and topics, as server-sent events and over
//! WebSocket.

mod begin;
pub(super) mod changes;
pub(super) mod consumers;
pub(super) mod fence;
mod follow;
mod message;
mod socket;
mod sse;
mod stream;
pub(super) mod subscribe;
pub(super) mod topics;
