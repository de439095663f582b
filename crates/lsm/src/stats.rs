//! Counters of a group since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cost::Cost;
use crate::stripe::Striped;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

        /// The counters of a group at one moment.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Stats {
            fn add(&mut self, other: &Stats) {
                $(self.$name += other.$name;)*
            }

            /// The counters by name.
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Batches written.
    batches,
    /// Write operations in them, index entries included.
    operations,
    /// Bytes appended to the log.
    log_bytes,
    /// Syncs of the log.
    log_syncs,
    /// Generations flushed.
    flushes,
    /// Bytes of tables that flushes wrote.
    flush_bytes,
    /// Compactions done, moves not counted.
    merges,
    /// Pieces of the compactions that ran in more than one.
    pieces,
    /// Bytes of tables that compactions read.
    merge_read_bytes,
    /// Bytes of tables that compactions wrote.
    merge_write_bytes,
    /// Tables that moved down a level without a rewrite.
    moves,
    /// Tables that were dropped unread, because all of their entries had expired.
    drops,
    /// Entries that flushes and compactions dropped.
    entries_dropped,
    /// Microseconds that writers were slowed down, because compactions are behind.
    slowed_micros,
    /// Microseconds that writers waited for a flush.
    stalled_micros,
    /// Background failures that were retried.
    background_failures,
    /// Blocks that queries found in the cache.
    blocks_cached,
    /// Blocks that queries read from files.
    blocks_read,
    /// Bytes that queries read from files.
    bytes_read,
    /// Of both, blocks that hold entries; the rest are filters and block indexes.
    data_blocks,
    /// Key filters that queries probed.
    filters_probed,
    /// False positives of key filters: "maybe" for a key that was not there.
    filters_false,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// As [`Counters::add`], of a counter that only one thread at a time adds to.
    pub(crate) fn add_alone(counter: &AtomicU64, n: u64) {
        counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }
}

/// The cost of queries, added up by the threads that ran them, each on its own stripe.
#[derive(Default)]
pub(crate) struct ReadCounters(Striped<Counters>);

impl ReadCounters {
    pub(crate) fn count(&self, cost: &Cost) {
        let counters = self.0.mine();
        for (counter, n) in [
            (&counters.blocks_cached, cost.blocks_cached.get()),
            (&counters.blocks_read, cost.blocks_read.get()),
            (&counters.bytes_read, cost.bytes_read.get()),
            (&counters.data_blocks, cost.data_blocks.get()),
            (&counters.filters_probed, cost.filters_probed.get()),
            (&counters.filters_false, cost.filters_false.get()),
        ] {
            if n > 0 {
                Counters::add(counter, n);
            }
        }
    }

    /// Adds the counts to `stats`.
    pub(crate) fn add_to(&self, stats: &mut Stats) {
        for counters in self.0.iter() {
            stats.add(&counters.read());
        }
    }
}
