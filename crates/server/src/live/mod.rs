//! What streams of events share, and what outlives them: the end of the server, how many there are
//! of each caller, whose turn it is to read, and the named consumers of changes.
//!
//! **Invariants.** A stream costs a task and no thread while it waits. At most `TURNS` streams
//! read at the same time, so that a commit for which thousands wait leaves most threads of the
//! engine to requests.

mod consumers;
mod group;
mod id;
mod recent;
mod source;
mod streams;
mod worker;

pub(crate) use consumers::Joining;
pub(crate) use id::EventId;
pub(crate) use recent::{Follower, Recent};
pub(crate) use source::{
    Event, Feed, Found, Next, STEP_TIME, Source, Step, change_json, condition, push_json,
};
pub(crate) use streams::{Connection, Listener, Live, Slot};
