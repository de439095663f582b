//! The cost of operations under each kind of index: a small model, in microseconds of CPU time.
//!
//! The figures were measured with the tweet workload (`bench/`): one million records of 540 bytes,
//! everything in the cache, two cores, 25 records per value. Other machines and records have other
//! figures, but nearly the same ranking, and the ranking decides. The advisor ignores differences
//! below a tenth (`advise`).

use serde::{Deserialize, Serialize};

/// The number of records in a lookup whose cost is [`Figures::lookup`].
const FIRST_ROWS: f64 = 10.0;

/// Microseconds to read a record together with its neighbours.
const READ_WITH_NEIGHBOURS: f64 = 0.9;

/// Microseconds to find the first records of a range by the zone maps of blocks.
const FIND_RANGE_BY_BLOCKS: f64 = 40.0;

/// Microseconds to probe the filters of the blocks of a million records.
const PROBE_FILTERS_PER_MILLION: f64 = 2000.0;

/// The use of an attribute, as shares of all operations of the dataset.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Workload {
    /// Share of puts, inserts and deletes.
    pub writes: f64,
    /// Share of gets.
    pub gets: f64,
    /// Share of queries for a value of the attribute.
    pub lookups: f64,
    /// Share of queries for a range of the attribute.
    pub ranges: f64,
    /// Of its queries, the share with a limit.
    pub limited: f64,
    /// The mean of these limits (K).
    pub limit: f64,
    /// The number of records that a range query without a limit finds.
    pub range_rows: f64,
}

/// The properties of an attribute, estimated from a sample.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct AttributeProfile {
    /// About how many records have the attribute.
    pub records: f64,
    /// The share of blocks that a zone map (the least and the greatest value of a block) rules out
    /// for a value of another block; `None` for fewer than two blocks.
    pub pruned: Option<f64>,
    /// The number of different values, a lower estimate: a sample may miss rare ones.
    pub distinct: f64,
    /// The share of records that have the most frequent value.
    pub top_share: f64,
}

/// How queries reach the records of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// By reading all of them.
    Everything,
    /// By the blocks that summaries admit, whose filters are probed one by one.
    FilteredBlocks,
    /// By the blocks that summaries admit, found by one lookup per table.
    MappedBlocks,
    /// By entries of a tree.
    Entries,
}

/// The costs of an index kind, in microseconds of CPU time, and its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// How queries reach the records.
    pub access: Access,
    /// Put of one value, beyond a put without indexes.
    pub write: f64,
    /// Lookup of the newest ten of a value.
    pub lookup: f64,
    /// Each further record of the result, fetched and sorted. The kinds differ little: lists must
    /// be decoded and merged, entries by recency are almost sorted, entries by key lie in the order
    /// of the records.
    pub row: f64,
    /// Each further entry of a value that a query with a limit must read.
    pub entry: f64,
    /// Bytes on disk, as a percentage of the bytes of the data.
    pub bytes: f64,
}

impl Figures {
    /// The figures of an attribute without an index, whose queries read all records.
    pub(crate) const NO_INDEX: Figures = Figures {
        access: Access::Everything,
        write: 0.0,
        lookup: 0.0,
        row: 0.0,
        entry: 0.0,
        bytes: 0.0,
    };

    /// The mean cost of a query, in microseconds: of lookups and ranges, with and without a limit,
    /// in the workload's proportions. 0 if the workload has no queries.
    pub(crate) fn query(&self, work: &Workload, profile: &AttributeProfile) -> f64 {
        let queries = work.queries();
        if queries <= 0.0 {
            return 0.0;
        }
        // The mean of the cost with the mean limit and of the cost without a limit.
        let mean = |cost: &dyn Fn(Option<f64>) -> f64| {
            let limited = work.limited.clamp(0.0, 1.0);
            let mut sum = 0.0;
            if limited > 0.0 {
                sum += limited * cost(Some(work.limit));
            }
            if limited < 1.0 {
                sum += (1.0 - limited) * cost(None);
            }
            sum
        };
        let lookups = mean(&|limit| self.lookup_cost(limit, profile));
        let ranges = mean(&|limit| self.range_cost(limit, work.range_rows, profile));
        (work.lookups * lookups + work.ranges * ranges) / queries
    }

    /// The cost of a query for one value of the attribute, in microseconds.
    fn lookup_cost(&self, limit: Option<f64>, profile: &AttributeProfile) -> f64 {
        let matches = profile.matches();
        let (rows, entries) = self.limited(limit, matches);
        let searched = match self.access {
            Access::Everything => return READ_WITH_NEIGHBOURS * profile.records,
            Access::FilteredBlocks => {
                PROBE_FILTERS_PER_MILLION * profile.records / 1e6 * profile.admitted_share()
            }
            Access::MappedBlocks | Access::Entries => 0.0,
        };
        self.lookup + searched + self.row * (rows - FIRST_ROWS).max(0.0) + entries
    }

    /// The number of records that a query with `matches` matching records returns, and the cost of
    /// reading the entries of the others, in microseconds.
    fn limited(&self, limit: Option<f64>, matches: f64) -> (f64, f64) {
        match limit {
            Some(limit) => {
                let rows = limit.min(matches);
                (rows, self.entry * (matches - rows))
            }
            None => (matches, 0.0),
        }
    }

    /// The cost of a query for a range with `range_rows` records, in microseconds.
    fn range_cost(&self, limit: Option<f64>, range_rows: f64, profile: &AttributeProfile) -> f64 {
        let (rows, entries) = self.limited(limit, range_rows.min(profile.records));
        match self.access {
            Access::Everything => READ_WITH_NEIGHBOURS * profile.records,
            Access::FilteredBlocks | Access::MappedBlocks => {
                // Neither filters nor fingerprints help with ranges: both kinds use zone maps.
                let read = (profile.records * profile.admitted_share()).max(rows);
                FIND_RANGE_BY_BLOCKS + READ_WITH_NEIGHBOURS * (read - FIRST_ROWS).max(0.0)
            }
            Access::Entries => {
                // Records of near values that lie side by side are read together.
                let row = READ_WITH_NEIGHBOURS
                    + (self.row - READ_WITH_NEIGHBOURS) * profile.admitted_share();
                self.lookup + row * (rows - FIRST_ROWS).max(0.0) + entries
            }
        }
    }
}

/// A share as text.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl Workload {
    /// The share of queries of the attribute.
    pub(super) fn queries(&self) -> f64 {
        self.lookups + self.ranges
    }
}

impl AttributeProfile {
    /// The mean number of records per value.
    pub(crate) fn matches(&self) -> f64 {
        self.records / self.distinct.max(1.0)
    }

    /// The share of blocks that zone maps admit. With fewer than two blocks, nothing is known of
    /// zone maps, and the model assumes that they admit all.
    pub(super) fn admitted_share(&self) -> f64 {
        1.0 - self.pruned.unwrap_or(0.0)
    }
}
