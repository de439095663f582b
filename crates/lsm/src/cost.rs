//! The cost of one operation, counted where it arises. The papers measure in disk accesses, and so
//! does Esker.

use std::cell::Cell;

use crate::error::Result;
use crate::stop::{Stop, Watch};

/// The cost of reads of one tree, summed by the code that does them, and the token that may stop
/// these reads. Not shared between threads: a caller creates one (per tree to be counted apart) and
/// passes it down by reference.
#[derive(Debug, Default, Clone)]
pub struct Cost {
    /// Blocks found in the block cache.
    pub blocks_cached: Cell<u64>,
    /// Blocks read from the file system.
    pub blocks_read: Cell<u64>,
    /// Bytes read from the file system.
    pub bytes_read: Cell<u64>,
    /// Of both, blocks that hold entries: the disk accesses of the papers, whose filters and block
    /// indexes are all in memory.
    pub data_blocks: Cell<u64>,
    /// Key filter probes.
    pub filters_probed: Cell<u64>,
    /// Key filter probes that answered "not here".
    pub filters_negative: Cell<u64>,
    /// False positives of key filters: "maybe" for a key that was not there.
    pub filters_false: Cell<u64>,
    /// Probes of synopses (zone maps, value filters) of files, partitions and blocks.
    pub synopses_probed: Cell<u64>,
    /// Synopsis probes that answered "not here".
    pub synopses_negative: Cell<u64>,
    watch: Watch,
}

impl Cost {
    /// A cost whose reads `stop` stops.
    #[inline]
    pub fn until(stop: Option<&Stop>) -> Cost {
        Cost {
            watch: Watch::new(stop),
            ..Cost::default()
        }
    }

    /// The token that stops the reads.
    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.watch.stop()
    }

    /// Returns [`Error::Cancelled`](crate::Error::Cancelled) when the reads are to stop. Called for
    /// each fetched block, and for each entry read without a fetch.
    #[inline(always)]
    pub fn check(&self) -> Result<()> {
        self.watch.check()
    }

    /// As [`Cost::check`], with a look at the clock: called before each read from the file system.
    pub(crate) fn check_clock(&self) -> Result<()> {
        self.watch.check_clock()
    }

    /// Adds `n` to one of the counters.
    pub fn add(counter: &Cell<u64>, n: u64) {
        counter.set(counter.get().wrapping_add(n));
    }

    /// Adds the counts of `other`.
    pub fn absorb(&self, other: &Cost) {
        for (mine, theirs) in [
            (&self.blocks_cached, &other.blocks_cached),
            (&self.blocks_read, &other.blocks_read),
            (&self.bytes_read, &other.bytes_read),
            (&self.data_blocks, &other.data_blocks),
            (&self.filters_probed, &other.filters_probed),
            (&self.filters_negative, &other.filters_negative),
            (&self.filters_false, &other.filters_false),
            (&self.synopses_probed, &other.synopses_probed),
            (&self.synopses_negative, &other.synopses_negative),
        ] {
            Cost::add(mine, theirs.get());
        }
    }
}
