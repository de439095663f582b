//! The experiments of DELI, "Deferred lightweight indexing for log-structured key-value stores" (figures 1
//! and 6 to 9, table II), on Esker's ways to maintain indexes. *Update-in-place* is the paper's name for reading
//! the old record at each write: Esker's eager maintenance. SQLite stands for the B-tree database.

mod claims;
mod phases;
pub mod sheets;
mod sqlite;

use serde::{Deserialize, Serialize};

use super::upkeep::store::{Cache, Setup, Strategy};
use super::upkeep::{self, LARGEST, Options, Planned, RECORD};
use crate::failure::Result;
use crate::run::Job;
use crate::workload::upserts::{Skew, Upserts};

/// The suite's name.
pub const SUITE: &str = "deli";

/// Shares of reads among the operations of a mix, in percent; more of them where writes prevail.
const READS: [u32; 6] = [0, 10, 25, 50, 75, 100];
/// Writes to a key on average, by Zipf's law.
const WRITES_A_KEY: usize = 3;

/// What is compared throughout.
const DEFERRED: Who = Who::Esker(Strategy::Deferred);
const IN_PLACE: Who = Who::Esker(Strategy::Eager);

/// What a child does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// Gets before and after a compaction (figure 1).
    Compaction,
    /// Gets and writes of a store without indexes (figure 6).
    PlainMix,
    /// Writes (figure 7).
    Writes,
    /// Reads by value and writes (figure 8).
    Mix,
    /// A compaction with repair (figure 9).
    Repair,
    /// Writes, then a compaction with repair (table II).
    Totals,
}

impl What {
    /// The experiment of its rows; `--only` selects by it.
    fn experiment(self) -> &'static str {
        match self {
            What::Compaction => "compaction",
            What::PlainMix => "plain-mix",
            What::Writes => "writes",
            What::Mix => "mix",
            What::Repair => "repair",
            What::Totals => "totals",
        }
    }
}

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Who {
    Esker(Strategy),
    /// What the index needs is looked for in the records, before they are merged.
    Before,
    Sqlite,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Esker(Strategy::Eager) => "update-in-place",
            Who::Esker(strategy) => strategy.name(),
            Who::Before => "before compaction",
            Who::Sqlite => "sqlite",
        }
    }
}

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    what: What,
    who: Who,
    cache: Cache,
    memory: usize,
    /// Writes that are planned, of which a mix has half before it begins.
    writes: usize,
    /// Percent of reads in a mix.
    reads: u32,
    /// Versions of a record that were written, on average, where there is something to repair.
    versions: u32,
    /// Milliseconds that a mix, or questions, take at most.
    time_ms: u64,
}

impl Task {
    fn setup(&self, strategy: Strategy) -> Setup {
        Setup {
            strategy,
            indexes: 1,
            cache: self.cache,
            memory: self.memory,
            largest_mergeable: match self.what {
                // Something is to be left for the compaction.
                What::Compaction => ((self.writes * RECORD) as f64 * LARGEST) as u64,
                // There is one merge, and it is the one that is measured.
                What::Repair => 0,
                _ => u64::MAX,
            },
            blocked_filter: true,
            range_filter: false,
            correlated: false,
        }
    }
}

/// Everything that a run does: subjects that are compared follow each other.
fn planned(options: &Options) -> Vec<Planned<Task>> {
    let mut all = Vec::new();
    for cache in Cache::BOTH {
        let task = |what, who, share| {
            let writes = options.records(share);
            Task {
                what,
                who,
                cache,
                memory: cache.budget(writes * RECORD),
                writes,
                reads: 0,
                versions: 1,
                time_ms: 1500,
            }
        };
        let mut plan = |task: Task| {
            all.push(Planned {
                experiment: task.what.experiment().to_string(),
                subject: task.who.name().to_string(),
                cache: cache.name(),
                task,
            });
        };
        let plain = Who::Esker(Strategy::NoIndex);
        plan(task(What::Compaction, plain, 1.0));
        for reads in READS {
            let task = task(What::PlainMix, plain, 0.5);
            plan(Task { reads, ..task });
        }
        for who in [plain, DEFERRED, IN_PLACE] {
            plan(task(What::Writes, who, 1.0));
        }
        for reads in READS {
            for who in [DEFERRED, IN_PLACE, Who::Sqlite] {
                let task = task(What::Mix, who, 0.5);
                plan(Task { reads, ..task });
            }
        }
        for versions in [1, 3] {
            for who in [
                Who::Esker(Strategy::DeferredUnrepaired),
                DEFERRED,
                Who::Esker(Strategy::DeferredStaged),
                Who::Before,
            ] {
                let task = task(What::Repair, who, 1.0);
                plan(Task { versions, ..task });
            }
        }
        for who in [DEFERRED, IN_PLACE] {
            plan(task(What::Totals, who, 1.0));
        }
    }
    all
}

/// Runs the suite; returns what could not be measured.
pub fn run(options: &Options) -> Result<Vec<String>> {
    let writes = options.records(1.0);
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / 1048576.0);
    let settings = [
        (
            "writes",
            format!(
                "{writes} of {RECORD} bytes; keys of {} by Zipf's law (0.99), values uniform in 0..100,000; mixes have a \
                 quarter of that before they begin",
                writes / WRITES_A_KEY
            ),
        ),
        (
            "direct",
            format!(
                "{} of memory, an eighth of the JSON (a mix: half of that); reads go round the page cache. SQLite cannot: it has \
                 that much as its cache, and the page cache beside it",
                mib(Cache::Small.budget(writes * RECORD))
            ),
        ),
        (
            "cached",
            format!(
                "{} of memory, reads through the page cache",
                mib(Cache::All.budget(writes * RECORD))
            ),
        ),
        (
            "compactions",
            "in `repair` nothing is merged before the one compaction; keys uniform, none or two thirds of the writes updates"
                .to_string(),
        ),
        (
            "durability",
            "log written, no sync per write; SQLite likewise, a transaction a write".to_string(),
        ),
        (
            "throughput",
            "by wall time of the operations and of the merges that they leave behind".to_string(),
        ),
    ];
    upkeep::run(SUITE, options, &settings, &planned(options), claims::all)
}

/// Does one subject's share, in a process of its own.
pub fn child(job: &Job) -> Result<()> {
    let task: Task = job.parameters()?;
    let upserts = match task.what {
        What::Repair => {
            let updates = 1.0 - 1.0 / f64::from(task.versions);
            Upserts::new(job.seed, task.writes, updates, Skew::Uniform)
        }
        _ => Upserts::of_keys(job.seed, task.writes, task.writes / WRITES_A_KEY),
    };
    phases::run(job, &task, &upserts)
}
