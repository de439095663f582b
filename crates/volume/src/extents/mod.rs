//! The append-only segments of a node, shared by all groups: records of logs, votes, and moved
//! data.
//!
//! The owner ([`Extents`]) places records in memory, at once. A [`Batch`] writes and syncs what was
//! placed, on another thread; a [`Reader`] reads it, before and after. Reading back at the start
//! ([`Extents::open`]) tells what an interrupted write left, which is cut, from damage to what was
//! durable, which is reported as a [`Loss`].
//!
//! A sync of a file that grows also commits the file system's metadata: its length, and the blocks
//! that it was given. Space for the latter is reserved ahead, which changes nothing that is read.
//! Zeros written ahead avoid both, for twice the bytes written: that is less than what a journal
//! writes where batches are small, and is done only there ([`Ahead`]).

mod batch;
mod folder;
mod heads;
mod pieces;
mod reader;
mod record;
mod recover;
mod scan;
mod shared;
mod store;
#[cfg(test)]
mod tests;
mod window;

pub use batch::{Ahead, Batch};
pub use heads::{FIRST_RECORD, heads, numbers};
pub use reader::{Pin, Reader};
pub use record::{HEADER_BYTES, Kind, MOST_PAYLOAD, RecordHeader};
pub use scan::{Found, Loss};
pub use store::{Extents, Head, Placed, Record, SegmentInfo, Settings};
