//! The experiments of Luo & Carey, "Efficient data ingestion and query processing for LSM-based storage
//! systems" (section 6), on Esker's ways to maintain indexes.
//!
//! The store is set up small: memory is a fraction of the data, and reads go round the page cache, so that
//! a look at an old record costs a read, as it did on the paper's disks. The same with everything in
//! memory stands beside it.

mod claims;
mod phases;
pub mod sheets;

use serde::{Deserialize, Serialize};

use super::upkeep::store::{Cache, Setup, Strategy};
use super::upkeep::{self, LARGEST, Options, Planned, RECORD};
use crate::failure::Result;
use crate::run::Job;
use crate::workload::upserts::{Skew, Upserts};

/// The suite's name.
pub const SUITE: &str = "luo-carey";

/// Shares of updates that are tried, in percent.
const UPDATES: [u32; 4] = [0, 10, 25, 50];
/// Shares of duplicates among inserts, in percent.
const DUPLICATES: [u32; 3] = [0, 10, 50];
/// Largest components that are merged, as shares of all JSON.
const LARGEST_MERGEABLE: [f64; 3] = [1.0 / 120.0, LARGEST, 1.0];
/// Numbers of indexes that are tried.
const INDEXES: [usize; 3] = [1, 3, 5];

/// What a child does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// Lookups through an index, by selectivity, beside a scan (figure 10).
    Lookups,
    /// Inserts, some refused (figure 11).
    Inserts,
    /// Upserts, by share of updates (figure 12).
    Upserts,
    /// The same by the largest component that is merged (figure 13a).
    MergeSize,
    /// The same by number of indexes (figure 13b).
    Indexes,
    /// Questions after upserts (figures 14 and 15).
    Queries,
    /// Ranges of time, with a range filter (figure 16).
    RangeFilter,
    /// Repairs as data accumulates (figure 17).
    Repair,
    /// The same with more indexes (figure 18).
    RepairIndexes,
}

/// How a repair finds what is obsolete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Method {
    /// By index: its entries are validated against the primary-key index.
    Secondary,
    /// The same, but keys that no key filter knows are not sorted; with merges of all trees together.
    SecondaryBloom,
    /// By key: from what is new in the primary-key index, for all indexes at once. Esker's own.
    Key,
    /// From the records.
    Primary,
    /// From the records, which are merged into one component before.
    PrimaryMerge,
}

impl Method {
    const ALL: [Method; 5] = [
        Method::Secondary,
        Method::SecondaryBloom,
        Method::Key,
        Method::Primary,
        Method::PrimaryMerge,
    ];

    fn name(self) -> &'static str {
        match self {
            Method::Secondary => "secondary",
            Method::SecondaryBloom => "secondary + bloom",
            Method::Key => "by key",
            Method::Primary => "primary",
            Method::PrimaryMerge => "primary + merge",
        }
    }

    /// The strategy that it goes with.
    fn strategy(self) -> Strategy {
        match self {
            Method::Primary | Method::PrimaryMerge => Strategy::DeferredStaged,
            _ => Strategy::ValidationRepaired,
        }
    }
}

impl What {
    /// The experiment that its job is named after; `--only` selects by it.
    fn experiment(self) -> &'static str {
        match self {
            What::Lookups => "lookups",
            What::Inserts => "inserts",
            What::Upserts => "upserts",
            What::MergeSize => "merge-size",
            What::Indexes => "indexes",
            What::Queries => "queries",
            What::RangeFilter => "range-filter",
            What::Repair => "repair",
            What::RepairIndexes => "repair-indexes",
        }
    }
}

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    what: What,
    setup: Setup,
    records: usize,
    /// Percent of the writes that are of a known key.
    updates: u32,
    skew: Skew,
    /// The largest component that is merged, as a share of all JSON.
    largest: f64,
    /// How a repair goes.
    method: Method,
    /// Milliseconds that questions of a kind are asked.
    ask_ms: u64,
}

/// Everything that a run does: subjects that are compared follow each other.
fn planned(options: &Options) -> Vec<Planned<Task>> {
    use Strategy::{Deferred, DeletedKey, Eager, MutableBitmap, Validation, ValidationRepaired};
    let mut all = Vec::new();
    for cache in Cache::BOTH {
        let task = |what, strategy, share: f64| {
            let records = options.records(share);
            let bytes = records * RECORD;
            Task {
                what,
                setup: Setup {
                    strategy,
                    indexes: 1,
                    cache,
                    memory: cache.budget(bytes),
                    largest_mergeable: (bytes as f64 * LARGEST) as u64,
                    blocked_filter: true,
                    range_filter: false,
                    correlated: false,
                },
                records,
                updates: 10,
                skew: Skew::Uniform,
                largest: LARGEST,
                method: Method::Secondary,
                ask_ms: 300,
            }
        };
        let mut plan = |subject: &str, task: Task| {
            all.push(Planned {
                experiment: task.what.experiment().to_string(),
                subject: subject.to_string(),
                cache: cache.name(),
                task,
            });
        };
        let lookups = task(What::Lookups, Validation, 1.0);
        plan(
            "validation",
            Task {
                updates: 0,
                ..lookups
            },
        );
        for updates in DUPLICATES {
            for (subject, strategy) in [
                ("primary-key index", Validation),
                ("records alone", Deferred),
            ] {
                let task = task(What::Inserts, strategy, 0.5);
                plan(subject, Task { updates, ..task });
            }
        }
        let compared = [Eager, Validation, ValidationRepaired, MutableBitmap];
        for skew in [Skew::Uniform, Skew::Zipf] {
            for updates in UPDATES {
                // Without updates both are the same.
                if updates == 0 && skew == Skew::Zipf {
                    continue;
                }
                for strategy in compared {
                    let task = task(What::Upserts, strategy, 1.0);
                    plan(
                        strategy.name(),
                        Task {
                            updates,
                            skew,
                            ..task
                        },
                    );
                }
            }
        }
        for largest in LARGEST_MERGEABLE {
            for strategy in compared {
                let mut task = task(What::MergeSize, strategy, 0.5);
                let bytes = (task.records * RECORD) as f64;
                task.setup.largest_mergeable = (bytes * largest) as u64;
                plan(strategy.name(), Task { largest, ..task });
            }
        }
        for indexes in INDEXES {
            for strategy in [Eager, Validation, ValidationRepaired, DeletedKey] {
                let mut task = task(What::Indexes, strategy, 0.5);
                task.setup.indexes = indexes;
                plan(strategy.name(), task);
            }
        }
        for updates in [0, 50] {
            for strategy in [Eager, Validation, ValidationRepaired] {
                let task = task(What::Queries, strategy, 1.0);
                plan(strategy.name(), Task { updates, ..task });
            }
            for strategy in [Eager, Validation, MutableBitmap] {
                let mut task = task(What::RangeFilter, strategy, 1.0);
                task.setup.range_filter = true;
                plan(strategy.name(), Task { updates, ..task });
            }
        }
        for (what, updates, indexes) in [
            (What::Repair, 0, 1),
            (What::Repair, 50, 1),
            (What::RepairIndexes, 10, 1),
            (What::RepairIndexes, 10, 5),
        ] {
            for method in Method::ALL {
                let mut task = task(what, method.strategy(), 0.5);
                task.setup.indexes = indexes;
                task.setup.correlated = method == Method::SecondaryBloom;
                plan(
                    method.name(),
                    Task {
                        updates,
                        method,
                        ..task
                    },
                );
            }
        }
    }
    all
}

/// Runs the suite; returns what could not be measured.
pub fn run(options: &Options) -> Result<Vec<String>> {
    let records = options.records(1.0);
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / 1048576.0);
    let settings = [
        (
            "records",
            format!(
                "{records} upserts of {RECORD} bytes, random 63-bit keys, attributes uniform in 0..100,000; half as many in \
                 `inserts`, `merge-size`, `indexes` and `repair`"
            ),
        ),
        (
            "direct",
            format!(
                "{} of memory, an eighth of the JSON; reads go round the page cache",
                mib(Cache::Small.budget(records * RECORD))
            ),
        ),
        (
            "merges",
            format!(
                "tiers of ratio 1.2; a component of 1/{:.0} of the JSON is not merged any more",
                1.0 / LARGEST
            ),
        ),
        (
            "cached",
            format!(
                "{} of memory, reads through the page cache",
                mib(Cache::All.budget(records * RECORD))
            ),
        ),
        ("durability", "log written, no sync per write".to_string()),
        (
            "throughput",
            "by wall time of the writes and of the merges that they leave behind".to_string(),
        ),
    ];
    upkeep::run(SUITE, options, &settings, &planned(options), claims::all)
}

/// Does one store's share, in a process of its own.
pub fn child(job: &Job) -> Result<()> {
    let task: Task = job.parameters()?;
    let updates = f64::from(task.updates) / 100.0;
    let upserts = Upserts::new(job.seed, task.records, updates, task.skew);
    phases::run(job, &task, &upserts)
}
