//! What an operation costs with each kind of index: a small model, in microseconds of CPU time.
//!
//! The figures were measured with the tweet workload (`bench/`): one million records of 540 bytes,
//! everything in the cache, two cores, 25 records a value. Other machines and records have other figures,
//! but nearly the same order, and the order is what a choice needs. A kind that is better by less than a tenth is
//! not called better ([`super::WORTH`]).

use model::definition::IndexKind;

use super::sample::Facts;
use super::{Mix, Workload};

/// The kinds that are compared, none aside. Eager is never recommended: its writes grow with its lists.
/// Nor is a filter: how much it passes over depends on how components are merged, which no sample tells.
pub(super) const CANDIDATES: [IndexKind; 5] = [
    IndexKind::Embedded,
    IndexKind::Fingerprint,
    IndexKind::Lazy,
    IndexKind::Composite,
    IndexKind::Recent,
];

/// Records of a lookup whose cost is in [`Figures::lookup`].
const FIRST_ROWS: f64 = 10.0;

/// Each record that is read in passing, with its neighbours.
const PASSING: f64 = 0.9;

/// Asking the filters of the blocks of a million records.
const FILTERS: f64 = 2000.0;

/// What a kind costs.
struct Figures {
    /// Put of one value, beyond a put without indexes.
    write: f64,
    /// Lookup of the newest ten of a value.
    lookup: f64,
    /// Each further record, fetched and brought into order. The kinds differ by little: a list has to be
    /// decoded and merged, entries by recency are ordered already but for the keys, entries by key lie as the records do.
    row: f64,
    /// Each further entry of a value that has to be looked at when there is a limit.
    entry: f64,
    /// Bytes on disk, in per cent of the data's.
    bytes: f64,
}

const fn figures(write: f64, lookup: f64, row: f64, entry: f64, bytes: f64) -> Figures {
    Figures {
        write,
        lookup,
        row,
        entry,
        bytes,
    }
}

fn of(kind: IndexKind) -> Figures {
    match kind {
        IndexKind::None => figures(0.0, 0.0, 0.0, 0.0, 0.0),
        IndexKind::Embedded => figures(0.3, 40.0, 5.2, 0.0, 4.0),
        IndexKind::Fingerprint => figures(0.35, 60.0, 5.2, 0.0, 4.0),
        IndexKind::Filter => figures(0.2, 0.0, 0.0, 0.0, 0.0),
        IndexKind::Eager => figures(15.0, 20.0, 5.2, 0.0, 6.0),
        IndexKind::Lazy => figures(1.4, 40.0, 5.2, 0.0, 5.0),
        IndexKind::Composite => figures(1.1, 45.0, 5.0, 0.05, 6.0),
        IndexKind::Recent => figures(1.5, 42.0, 5.1, 0.0, 6.0),
    }
}

/// Bytes on disk of an index, in per cent of the data's.
pub(super) fn bytes(kind: IndexKind) -> f64 {
    of(kind).bytes
}

/// A put of the attribute's value, beyond a put without indexes.
pub(super) fn write(kind: IndexKind) -> f64 {
    of(kind).write
}

/// A query: the mean of lookups and ranges, with and without limit, as the workload has them. 0 when there are none.
pub(super) fn query(kind: IndexKind, work: &Workload, facts: &Facts) -> f64 {
    let asked = work.lookups + work.ranges;
    if asked <= 0.0 {
        return 0.0;
    }
    let both = |cost: &dyn Fn(Option<f64>) -> f64| {
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
    let lookups = both(&|limit| lookup(kind, limit, facts));
    let ranges = both(&|limit| range(kind, limit, work.range_rows, facts));
    (work.lookups * lookups + work.ranges * ranges) / asked
}

fn lookup(kind: IndexKind, limit: Option<f64>, facts: &Facts) -> f64 {
    if matches!(kind, IndexKind::None | IndexKind::Filter) {
        return PASSING * facts.records;
    }
    let figures = of(kind);
    let matches = facts.matches();
    let rows = limit.map_or(matches, |limit| limit.min(matches));
    let searched = match kind {
        IndexKind::Embedded => FILTERS * facts.records / 1e6 * facts.kept(),
        _ => 0.0,
    };
    let entries = limit.map_or(0.0, |_| figures.entry * (matches - rows));
    figures.lookup + searched + figures.row * (rows - FIRST_ROWS).max(0.0) + entries
}

fn range(kind: IndexKind, limit: Option<f64>, range_rows: f64, facts: &Facts) -> f64 {
    let figures = of(kind);
    let matches = range_rows.min(facts.records);
    let rows = limit.map_or(matches, |limit| limit.min(matches));
    match kind {
        IndexKind::None | IndexKind::Filter => PASSING * facts.records,
        IndexKind::Embedded | IndexKind::Fingerprint => {
            let read = (facts.records * facts.kept()).max(rows);
            of(IndexKind::Embedded).lookup + PASSING * (read - FIRST_ROWS).max(0.0)
        }
        _ => {
            // Records of near values that lie side by side are read in passing.
            let row = PASSING + (figures.row - PASSING) * facts.kept();
            let entries = limit.map_or(0.0, |_| figures.entry * (matches - rows));
            figures.lookup + row * (rows - FIRST_ROWS).max(0.0) + entries
        }
    }
}

impl Facts {
    /// Records of a value.
    pub(super) fn matches(&self) -> f64 {
        self.records / self.distinct.max(1.0)
    }

    /// The share of blocks that zone maps do not rule out.
    fn kept(&self) -> f64 {
        1.0 - self.pruned.unwrap_or(0.0)
    }
}

impl Default for Mix {
    /// What is assumed where nothing was counted.
    fn default() -> Mix {
        Mix {
            puts: 50.0,
            gets: 40.0,
            lookups: 10.0,
            ranges: 0.0,
            limit: Some(10),
        }
    }
}
