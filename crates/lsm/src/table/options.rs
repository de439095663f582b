//! How tables are written and read.

use std::sync::Arc;

use super::digest::DigestSource;
use crate::attributes::Extractor;
use crate::synopsis::BITS_PER_VALUE;

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
    /// The digest of the table, if it gets one.
    pub digest: Option<DigestSource>,
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
            digest: None,
        }
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
