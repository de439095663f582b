//! What one operation cost, counted where it happens. The papers argue in disk accesses; so do we.

use std::cell::Cell;

use crate::error::Result;
use crate::stop::{Stop, Watch};

/// The cost of reads against one tree, added up by the code that does them, and what may stop these reads. Not shared
/// between threads: a caller makes one (per tree it wants to tell apart) and hands it down by reference.
#[derive(Debug, Default, Clone)]
pub struct Cost {
    /// Blocks found in the block cache.
    pub blocks_cached: Cell<u64>,
    /// Blocks read from the file system.
    pub blocks_read: Cell<u64>,
    /// Bytes read from the file system.
    pub bytes_read: Cell<u64>,
    /// Of both, blocks that hold entries: what the papers call disk accesses, whose filters and block
    /// indexes are all in memory.
    pub data_blocks: Cell<u64>,
    /// Key filters asked.
    pub filters_asked: Cell<u64>,
    /// Key filters that said "not here".
    pub filters_negative: Cell<u64>,
    /// Key filters that said "maybe" for a key that was not there.
    pub filters_false: Cell<u64>,
    /// Synopses (zone maps, value filters) of files, partitions and blocks asked.
    pub synopses_asked: Cell<u64>,
    /// Synopses that said "not here".
    pub synopses_negative: Cell<u64>,
    watch: Watch,
}

impl Cost {
    /// The cost of reads that `stop` stops.
    #[inline]
    pub fn until(stop: Option<&Stop>) -> Cost {
        Cost {
            watch: Watch::new(stop),
            ..Cost::default()
        }
    }

    /// What stops the reads.
    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.watch.stop()
    }

    /// [`Error::Cancelled`](crate::Error::Cancelled) when the reads are to stop: for each block that is fetched, and each
    /// entry that is walked without a fetch.
    #[inline(always)]
    pub fn check(&self) -> Result<()> {
        self.watch.check()
    }

    /// The same before the file system is read.
    pub(crate) fn check_clock(&self) -> Result<()> {
        self.watch.check_clock()
    }

    /// Adds `n` to one of the counters.
    pub fn add(counter: &Cell<u64>, n: u64) {
        counter.set(counter.get().wrapping_add(n));
    }

    /// Adds everything that `other` counted.
    pub fn absorb(&self, other: &Cost) {
        for (mine, theirs) in [
            (&self.blocks_cached, &other.blocks_cached),
            (&self.blocks_read, &other.blocks_read),
            (&self.bytes_read, &other.bytes_read),
            (&self.data_blocks, &other.data_blocks),
            (&self.filters_asked, &other.filters_asked),
            (&self.filters_negative, &other.filters_negative),
            (&self.filters_false, &other.filters_false),
            (&self.synopses_asked, &other.synopses_asked),
            (&self.synopses_negative, &other.synopses_negative),
        ] {
            Cost::add(mine, theirs.get());
        }
    }
}
