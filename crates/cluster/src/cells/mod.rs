//! What this crate asks of a store: tables of partitions, each with ordered rows of bytes. A write
//! has a timestamp; of several writes of one row the one with the greatest timestamp counts, and a
//! deletion counts before a put of the same timestamp.
//!
//! Calls take many writes or reads and return when all have been answered, so that an
//! implementation keeps many requests in flight. Reads see every write that was acknowledged before
//! they began, and what a read has shown every later read shows, too, unless it was deleted: a
//! write that only a minority has is completed before it is shown.

mod beside;
mod cassandra;
mod hbase;
mod swap;
mod tls;
mod types;

pub use cassandra::{Cassandra, Settings};
pub use hbase::{Coprocessor, HBase, HBaseSettings};
pub use swap::Swapped;
pub use types::{Cell, Cells, Mark, Page, Read, TableKind, Write};
