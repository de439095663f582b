//! Sorted string tables: immutable files of entries in the order of [`crate::entry::compare`].
//!
//! ```text
//! header | partition | ... | maps, samples, digest | top-level index | properties | footer
//!            |
//!            data blocks ... | index | key filter | synopsis
//! ```
//!
//! A *partition* is some 64 data blocks with the three blocks that describe them: their locations
//! (`index.rs`), their keys (`filter.rs`), and their attribute values and sequence numbers
//! (`crate::synopsis`). Those three are read through the block cache like the data, so that a large
//! table needs little memory: only the top-level index, one record per partition, is pinned. A
//! point lookup reads at most a filter block, an index block and a data block.
//!
//! One user key may have any number of entries (versions, merge operands), newest first, which may
//! span blocks and partitions; tables treat each entry separately.
//!
//! `format.rs` has the framing of the file and of blocks, `block.rs` the data blocks, `builder.rs`
//! writes, `reader.rs` reads, `blocks.rs` fetches blocks, from the file or from its map
//! (`mapped.rs`), `batch.rs` reads many keys at once, `cursor.rs` iterates, `extent.rs` and
//! `sampled.rs` estimate, `verify.rs` checks everything.

mod batch;
mod block;
mod blocks;
mod builder;
mod bytes;
mod cursor;
mod digest;
mod digested;
mod entries;
mod extent;
mod filter;
mod format;
mod found;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod hints;
mod index;
mod mapped;
mod meta;
mod options;
mod reader;
mod sampled;
mod samples;
mod search;
#[cfg(test)]
mod tests;
mod verify;

pub use batch::entries_of_blocks;
pub(crate) use batch::{Locator, WantedBlock, fetch, meet};
pub use builder::TableBuilder;
pub use cursor::TableCursor;
pub use digest::{DigestSource, TableDigest};
pub use entries::BlockEntries;
pub use extent::{Amount, Edge, Extent, part_before};
pub use filter::{KeyFilter, KeyFilterBuilder};
pub use found::{BlockHint, Found};
pub use hints::{KeyRange, ShowSummary};
pub use meta::{Bounds, Expiry, TableMeta};
pub use options::{ReadOptions, TableOptions};
pub use reader::Table;
