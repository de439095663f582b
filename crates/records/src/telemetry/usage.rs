//! Usage counters of a dataset, for the advisor (`advise/`).
//!
//! They are statistics, not part of the store's data: a handle that wrote stores them in the file
//! `USAGE` when it is closed, without a sync. A missing or unreadable file counts as empty.

use std::collections::BTreeMap;
use std::io;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use esker_lsm::LazyStriped;
use esker_lsm::fs::Fs;
use esker_model::definition::MAX_INDEXES;
use esker_model::schema::Path;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{LiveMeasurements, Measured, StoredMaintenance};

/// The name of the file.
const NAME: &str = "USAGE";
/// The name of the file while it is written.
const TEMPORARY: &str = "USAGE.new";

/// A larger file is not a usage file.
const MAX_BYTES: u64 = 16 << 20;

/// The maximum number of attributes counted per dataset. Queries may use any path, so a program
/// that generates paths must not fill the memory.
const MAX_PATHS: usize = 2 * MAX_INDEXES;

/// The number of validations at which their counters are halved.
const WASTE_WINDOW: u64 = 1 << 20;

/// The number of queries that a stripe counts before they are folded into the shared counters.
const MAX_UNFOLDED: u64 = 64;

/// How queries used an attribute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QueryStats {
    /// Queries for one value that this attribute's index answered, or a scan if it has no index.
    pub lookups: u64,
    /// Queries for a range of values, answered likewise.
    pub ranges: u64,
    /// Of both, queries with a limit.
    pub limited: u64,
    /// The sum of these limits.
    pub limits: u64,
    /// Records that the ranges without a limit found.
    pub range_rows: u64,
    /// Of both, queries that a scan answered.
    pub scans: u64,
}

/// The counters of one attribute, in the order of [`QueryStats::values`], by stripe.
#[derive(Default)]
struct LiveQueryStats(LazyStriped<[AtomicU64; QueryStats::COUNTS]>);

impl QueryStats {
    /// The number of counts.
    const COUNTS: usize = 6;

    /// The counts, in the order of the fields.
    fn values(&self) -> [u64; QueryStats::COUNTS] {
        [
            self.lookups,
            self.ranges,
            self.limited,
            self.limits,
            self.range_rows,
            self.scans,
        ]
    }

    /// The inverse of [`QueryStats::values`].
    fn from_values(values: [u64; QueryStats::COUNTS]) -> QueryStats {
        let [lookups, ranges, limited, limits, range_rows, scans] = values;
        QueryStats {
            lookups,
            ranges,
            limited,
            limits,
            range_rows,
            scans,
        }
    }

    /// Limits all counts so that sums do not overflow.
    fn bounded(self) -> QueryStats {
        QueryStats::from_values(self.values().map(bounded))
    }
}

impl LiveQueryStats {
    fn new(queries: QueryStats) -> LiveQueryStats {
        let live = LiveQueryStats::default();
        live.add(queries);
        live
    }

    fn add(&self, queries: QueryStats) {
        for (counter, n) in self.0.mine().iter().zip(queries.values()) {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        }
    }

    fn read(&self) -> QueryStats {
        let mut sums = [0; QueryStats::COUNTS];
        for counters in self.0.iter() {
            for (sum, counter) in sums.iter_mut().zip(counters) {
                *sum += counter.load(Relaxed);
            }
        }
        QueryStats::from_values(sums)
    }
}

/// The counted operations of a dataset at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct UsageCounts {
    /// Records put or inserted, new or not.
    pub puts: u64,
    /// Keys deleted, whether or not they had a record.
    pub deletes: u64,
    /// Gets by primary key.
    pub gets: u64,
    /// How queries used each attribute, declared or not.
    pub attributes: BTreeMap<Path, QueryStats>,
    /// The measurements of its maintenance.
    #[serde(alias = "upkeep")]
    pub(crate) maintenance: StoredMaintenance,
}

impl UsageCounts {
    /// Decodes the counts of a file; zero if they are malformed.
    fn from_json(json: Json) -> UsageCounts {
        let counts: UsageCounts = serde_json::from_value(json).unwrap_or_default();
        let attributes = counts.attributes.into_iter().take(MAX_PATHS);
        UsageCounts {
            puts: bounded(counts.puts),
            deletes: bounded(counts.deletes),
            gets: bounded(counts.gets),
            attributes: attributes
                .map(|(path, queries)| (path, queries.bounded()))
                .collect(),
            maintenance: counts.maintenance,
        }
    }
}

/// Limits a count to 2^53, so that sums do not overflow.
fn bounded(n: u64) -> u64 {
    n.min(1 << 53)
}

/// The live counters of a dataset, shared by its handles.
///
/// Reads are counted by stripe, so that threads do not write to shared memory. Counters that
/// decisions use are folded into shared ones: after some queries, and completely when they are read
/// ([`Usage::maintenance`]).
#[derive(Default)]
pub(crate) struct Usage {
    puts: AtomicU64,
    deletes: AtomicU64,
    stripes: LazyStriped<StripeCounts>,
    attributes: ArcSwap<BTreeMap<Path, Arc<LiveQueryStats>>>,
    /// Obsolete candidates of indexes. Not stored.
    obsolete: AtomicU64,
    /// All validated candidates of indexes. Not stored.
    validated: AtomicU64,
    /// The write count when the counters were last stored.
    saved_writes: AtomicU64,
    live: LiveMeasurements,
}

/// The counts of one stripe.
#[derive(Default)]
struct StripeCounts {
    gets: AtomicU64,
    /// The queries since the counts below were folded into the shared counters.
    queries: AtomicU64,
    obsolete: AtomicU64,
    validated: AtomicU64,
    measured: [AtomicU64; Measured::COUNTS],
}

impl Usage {
    /// Begins with stored counts.
    pub(crate) fn new(counts: &UsageCounts) -> Usage {
        let usage = Usage {
            live: LiveMeasurements::new(counts.maintenance.clone()),
            ..Usage::default()
        };
        usage.puts.store(counts.puts, Relaxed);
        usage.deletes.store(counts.deletes, Relaxed);
        usage
            .saved_writes
            .store(counts.puts + counts.deletes, Relaxed);
        usage.stripes.mine().gets.store(counts.gets, Relaxed);
        let attributes = counts.attributes.iter();
        let live = attributes
            .map(|(path, queries)| (path.clone(), Arc::new(LiveQueryStats::new(*queries))));
        usage.attributes.store(Arc::new(live.collect()));
        usage
    }

    /// The measurements for maintenance, including all queries so far.
    pub(crate) fn maintenance(&self) -> &LiveMeasurements {
        for stripe in self.stripes.iter() {
            self.fold(stripe);
        }
        &self.live
    }

    /// All writes ever counted.
    pub(crate) fn writes(&self) -> u64 {
        self.puts.load(Relaxed) + self.deletes.load(Relaxed)
    }

    /// Counts a committed batch.
    pub(crate) fn count_batch(&self, puts: u64, deletes: u64, measured: Measured) {
        self.puts.fetch_add(puts, Relaxed);
        self.deletes.fetch_add(deletes, Relaxed);
        self.live.add(measured);
    }

    /// Counts a query: its obsolete candidates, all candidates that it validated, and its
    /// measurements.
    pub(crate) fn count_query(&self, obsolete: u64, validated: u64, measured: Measured) {
        let stripe = self.stripes.mine();
        add(&stripe.obsolete, obsolete);
        add(&stripe.validated, validated);
        for (counter, n) in stripe.measured.iter().zip(measured.values()) {
            add(counter, n);
        }
        if stripe.queries.fetch_add(1, Relaxed) + 1 >= MAX_UNFOLDED {
            self.fold(stripe);
        }
    }

    /// Moves the counts of a stripe to the shared counters.
    fn fold(&self, stripe: &StripeCounts) {
        if stripe.queries.swap(0, Relaxed) == 0 {
            return;
        }
        let obsolete = stripe.obsolete.swap(0, Relaxed);
        let validated = stripe.validated.swap(0, Relaxed);
        // Older queries count less.
        if self.validated.fetch_add(validated, Relaxed) > WASTE_WINDOW {
            self.validated
                .store(self.validated.load(Relaxed) / 2, Relaxed);
            self.obsolete
                .store(self.obsolete.load(Relaxed) / 2, Relaxed);
        }
        self.obsolete.fetch_add(obsolete, Relaxed);
        let measured = stripe.measured.each_ref();
        let measured = measured.map(|counter| counter.swap(0, Relaxed));
        self.live.add(Measured::from_values(measured));
    }

    /// True if so many candidates were obsolete that probing the primary-key index before fetching
    /// records pays off. May miss the last queries of other threads.
    pub(crate) fn is_wasteful(&self) -> bool {
        let stripe = self.stripes.mine();
        let obsolete = self.obsolete.load(Relaxed) + stripe.obsolete.load(Relaxed);
        let validated = self.validated.load(Relaxed) + stripe.validated.load(Relaxed);
        obsolete.saturating_mul(8) > validated
    }

    /// Counts a get.
    #[inline]
    pub(crate) fn count_get(&self) {
        self.stripes.mine().gets.fetch_add(1, Relaxed);
    }

    /// Counts a query of an attribute.
    pub(crate) fn count_attribute_query(&self, path: &Path, queries: QueryStats) {
        if let Some(live) = self.attributes.load().get(path) {
            return live.add(queries);
        }
        let fresh = Arc::new(LiveQueryStats::default());
        self.attributes.rcu(|known| {
            let mut next = BTreeMap::clone(known);
            if next.len() < MAX_PATHS {
                next.entry(path.clone()).or_insert_with(|| fresh.clone());
            }
            next
        });
        // Not counted if there are too many paths.
        if let Some(live) = self.attributes.load().get(path) {
            live.add(queries);
        }
    }

    /// The counts now.
    pub(crate) fn read(&self) -> UsageCounts {
        let attributes = self.attributes.load();
        UsageCounts {
            puts: self.puts.load(Relaxed),
            deletes: self.deletes.load(Relaxed),
            maintenance: self.maintenance().to_stored(),
            gets: (self.stripes.iter())
                .map(|stripe| stripe.gets.load(Relaxed))
                .sum(),
            attributes: attributes
                .iter()
                .map(|(path, live)| (path.clone(), live.read()))
                .collect(),
        }
    }

    /// True if writes were counted since the last call.
    pub(crate) fn take_written(&self) -> bool {
        let writes = self.writes();
        self.saved_writes.swap(writes, Relaxed) != writes
    }
}

/// Adds to a counter, without writing to it if `n` is 0.
fn add(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Relaxed);
    }
}

/// The stored counts of earlier handles, by dataset.
pub(crate) fn load(fs: &dyn Fs, dir: &FsPath) -> BTreeMap<String, UsageCounts> {
    let datasets = read(fs, &dir.join(NAME)).unwrap_or_default().into_iter();
    datasets
        .map(|(name, counts)| (name, UsageCounts::from_json(counts)))
        .collect()
}

/// The content of a file of usage counts; `None` if it is missing or unreadable.
fn read(fs: &dyn Fs, path: &FsPath) -> Option<Map<String, Json>> {
    if !fs.exists(path) {
        return None;
    }
    let file = fs.open(path).ok()?;
    let len = file.len().ok().filter(|len| *len <= MAX_BYTES)?;
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Replaces the stored counts.
pub(crate) fn save(
    fs: &dyn Fs,
    dir: &FsPath,
    datasets: &BTreeMap<String, UsageCounts>,
) -> io::Result<()> {
    let json = serde_json::to_vec(datasets)?;
    let temporary = dir.join(TEMPORARY);
    let file = fs.create(&temporary)?;
    file.append(&json)?;
    drop(file);
    fs.rename(&temporary, &dir.join(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Concurrent reads lose no count, and count nothing twice.
    #[test]
    fn counts_of_reads_are_exact() {
        const THREADS: u64 = 40;
        const QUERIES: u64 = 2 * MAX_UNFOLDED + 7;
        let usage = Usage::new(&UsageCounts {
            gets: 5,
            ..UsageCounts::default()
        });
        let path: Path = "a".parse().unwrap();
        let queries = QueryStats {
            lookups: 1,
            limits: 10,
            ..QueryStats::default()
        };
        let measured = Measured {
            fetching: 1,
            wasted: 3,
            ..Measured::default()
        };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..QUERIES {
                        usage.count_get();
                        usage.count_attribute_query(&path, queries);
                        usage.count_query(2, 4, measured);
                    }
                });
            }
            // Reading the counters in the meantime has no effect.
            for _ in 0..100 {
                assert!(usage.maintenance().operations() <= THREADS * QUERIES);
            }
        });
        let all = THREADS * QUERIES;
        assert_eq!(usage.maintenance().operations(), all);
        assert_eq!(usage.maintenance().wasted().probed, 0);
        assert_eq!(usage.maintenance().wasted().fetched_obsolete, 3 * all);
        assert_eq!(usage.validated.load(Relaxed), 4 * all);
        assert_eq!(usage.obsolete.load(Relaxed), 2 * all);
        let counts = usage.read();
        assert_eq!(counts.gets, 5 + all);
        assert_eq!(counts.attributes[&path].lookups, all);
        assert_eq!(counts.attributes[&path].limits, 10 * all);
    }

    #[test]
    fn a_thread_sees_its_own_waste_at_once() {
        let usage = Usage::default();
        usage.count_query(0, 100, Measured::default());
        assert!(!usage.is_wasteful());
        usage.count_query(30, 30, Measured::default());
        assert!(usage.is_wasteful());
        assert_eq!(usage.validated.load(Relaxed), 0, "nothing was folded yet");
    }
}
