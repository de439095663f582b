//! Sorted string tables: immutable files of entries in the order of [`crate::entry::compare`].
//!
//! ```text
//! header | partition | partition | ... | maps and samples | top-level index | properties | footer
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
//! writes, `reader.rs` reads, `batch.rs` reads many keys at once, `cursor.rs` iterates, `extent.rs`
//! and `sampled.rs` estimate, `verify.rs` checks everything.

mod batch;
mod block;
mod builder;
mod cursor;
mod entries;
mod extent;
mod filter;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod hints;
mod index;
mod reader;
mod sampled;
mod samples;
mod search;
#[cfg(test)]
mod tests;
mod verify;

use std::sync::Arc;

use crate::attributes::Extractor;
use crate::coding::{Reader, put_bytes, put_varint};
use crate::entry::{Kind, Seq, Time};
use crate::synopsis::{BITS_PER_VALUE, Zone, put_zone, read_zone, zone_owned, zone_ref};
use esker_coding::Slice;

pub use batch::entries_of_blocks;
pub(crate) use batch::{Locator, WantedBlock, fetch, meet};
pub use builder::TableBuilder;
pub use cursor::TableCursor;
pub use entries::BlockEntries;
pub use extent::{Amount, Edge, Extent, part_before};
pub use filter::{KeyFilter, KeyFilterBuilder};
pub use hints::{KeyRange, ShowSummary};
pub use reader::Table;

/// How tables are written.
#[derive(Clone)]
pub struct TableOptions {
    /// Approximate bytes of a data block before compression.
    pub block_size: usize,
    /// Whether blocks are compressed (LZ4) where that saves an eighth.
    pub compress: bool,
    /// Bits of the key filters per user key; 0 writes none. 10 gives 1 % false positives.
    pub filter_bits_per_key: usize,
    /// Whether the bits of a key lie in one cache line of its filter, or anywhere in it.
    pub blocked_filter: bool,
    /// Bits of the value filters per distinct value of a block; 0 writes none.
    pub value_filter_bits: usize,
    /// The most data blocks in a partition.
    pub partition_blocks: usize,
    /// Extracts the attributes of synopses.
    pub extractor: Option<Arc<dyn Extractor>>,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            block_size: 4 << 10,
            compress: true,
            filter_bits_per_key: 10,
            blocked_filter: true,
            value_filter_bits: BITS_PER_VALUE,
            partition_blocks: 64,
            extractor: None,
        }
    }
}

/// The metadata of a table in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableMeta {
    /// The file's number, unique in its store.
    pub number: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Entries, of all kinds.
    pub entries: u64,
    /// Entries that are deletes.
    pub deletes: u64,
    /// Entries that are merge operands.
    pub operands: u64,
    /// The least user key.
    pub smallest: Vec<u8>,
    /// The greatest user key.
    pub largest: Vec<u8>,
    /// The least sequence number.
    pub min_seq: Seq,
    /// The greatest sequence number.
    pub max_seq: Seq,
    /// Per attribute that the table was built with, in the order of its slots: the attribute's
    /// number, and the zone map of its values; `None` when the table holds no value of it.
    pub zones: Vec<(u32, Option<Zone>)>,
    /// In a tree with a [`crate::Partitioner`]: the table's range in its order.
    pub bounds: Option<Bounds>,
    /// The expiry of its entries, if any expire.
    pub expiry: Option<Expiry>,
}

/// The expiry of a table's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// The number of entries that expire.
    pub entries: u64,
    /// The earliest expiry time.
    pub min: Time,
    /// The latest expiry time.
    pub max: Time,
}

impl Expiry {
    /// Adds an entry that expires at `expires`.
    pub(crate) fn with(before: Option<Expiry>, expires: Time) -> Expiry {
        before.map_or(
            Expiry {
                entries: 1,
                min: expires,
                max: expires,
            },
            |before| Expiry {
                entries: before.entries + 1,
                min: before.min.min(expires),
                max: before.max.max(expires),
            },
        )
    }
}

/// The range of a table in the order of a [`crate::Partitioner`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The partitioner's number.
    pub partitioner: u32,
    /// The partitioner's encoding of the range.
    pub bytes: Vec<u8>,
}

impl TableMeta {
    /// True when all of the table is hidden at `now`: it only has deletes and expired entries.
    pub fn is_expired(&self, now: Time) -> bool {
        let expiry = self.expiry.filter(|expiry| expiry.max <= now);
        expiry.is_some_and(|expiry| expiry.entries + self.deletes == self.entries)
    }

    /// Appends the record that [`TableMeta::decode`] reads: all but the bounds and the expiry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for n in [
            self.number,
            self.size,
            self.entries,
            self.deletes,
            self.operands,
            self.min_seq,
            self.max_seq,
        ] {
            put_varint(out, n);
        }
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        put_varint(out, self.zones.len() as u64);
        for (id, zone) in &self.zones {
            put_varint(out, u64::from(*id));
            put_zone(out, zone_ref(zone));
        }
    }

    /// Reads a record from the front of `reader`; `None` when it is malformed.
    pub fn decode(reader: &mut Reader<'_>) -> Option<TableMeta> {
        let mut meta = TableMeta {
            number: reader.varint()?,
            size: reader.varint()?,
            entries: reader.varint()?,
            deletes: reader.varint()?,
            operands: reader.varint()?,
            min_seq: reader.varint()?,
            max_seq: reader.varint()?,
            smallest: reader.bytes()?.to_vec(),
            largest: reader.bytes()?.to_vec(),
            zones: Vec::new(),
            bounds: None,
            expiry: None,
        };
        for _ in 0..reader.varint()? {
            let id = reader.varint()?.try_into().ok()?;
            meta.zones.push((id, zone_owned(read_zone(reader)?)));
        }
        Some(meta)
    }
}

/// The read mode of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether blocks that were not in the cache are put there.
    pub fill_cache: bool,
    /// Over 0: data blocks are read in ranges of this many bytes, past the cache. For compactions
    /// and scans of whole tables.
    pub readahead: usize,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            fill_cache: true,
            readahead: 0,
        }
    }
}

/// An entry returned by a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its sequence number.
    pub seq: Seq,
    /// Its kind.
    pub kind: Kind,
    /// Its value; a range of a cached block.
    pub value: Slice,
}

/// A data block that may hold the result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHint {
    /// The partition, from 0.
    pub partition: usize,
    /// The data block in the partition, from 0.
    pub block: usize,
    /// The least sequence number in the block.
    pub min_seq: Seq,
    /// The greatest sequence number in the block.
    pub max_seq: Seq,
}
