//! Records from files: NDJSON and other JSON, or CSV. A reading thread decompresses into a short
//! queue of chunks, so that the importing thread only parses and writes.

mod csv;
mod event;
mod input;
mod lines;
mod message;
mod parsed;
mod reading;
mod scan;
mod stream;
mod table;

#[cfg(test)]
mod wrapper_tests;

pub use event::{Event, Place, Sample};
pub use message::LINE_MAX;
pub(crate) use scan::parts;
pub use stream::Feed;
#[cfg(test)]
pub(crate) use table::Cells as TestCells;
pub(crate) use table::Columns;
#[cfg(test)]
pub(crate) use table::cell;
