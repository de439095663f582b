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
use crate::workload::upserts::Upserts;

/// The suite's name.
pub const SUITE: &str = "deli";

/// Shares of reads among the operations of a mix, in percent; more of them where writes prevail.
const READS: [u32; 6] = [0, 10, 25, 50, 75, 100];
/// Writes to a key on average, by Zipf's law.
const WRITES_A_KEY: usize = 3;

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
}

impl What {
    /// The experiment of its rows; `--only` selects by it.
    fn experiment(self) -> &'static str {
        match self {
            What::Compaction => "compaction",
            What::PlainMix => "plain-mix",
            What::Writes => "writes",
            What::Mix => "mix",
        }
    }
}

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Who {
    Esker(Strategy),
    Sqlite,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Esker(Strategy::Eager) => "update-in-place",
            Who::Esker(strategy) => strategy.name(),
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
                _ => u64::MAX,
            },
            blocked_filter: true,
        }
    }
}

/// Everything that a run does: subjects that are compared follow each other.
fn planned(options: &Options) -> Vec<Planned<Task>> {
    let mut all = Vec::new();
    let indexed = [
        Who::Esker(Strategy::NoIndex),
        Who::Esker(Strategy::Deferred),
        Who::Esker(Strategy::Eager),
    ];
    for cache in Cache::BOTH {
        let mut plan = |what: What, who: Who, reads, share| {
            let writes = options.records(share);
            all.push(Planned {
                experiment: what.experiment().to_string(),
                subject: who.name().to_string(),
                cache: cache.name(),
                task: Task {
                    what,
                    who,
                    cache,
                    memory: cache.budget(writes * RECORD),
                    writes,
                    reads,
                    time_ms: 1500,
                },
            });
        };
        plan(What::Compaction, Who::Esker(Strategy::NoIndex), 100, 1.0);
        for reads in READS {
            plan(What::PlainMix, Who::Esker(Strategy::NoIndex), reads, 0.5);
        }
        for who in indexed {
            plan(What::Writes, who, 0, 1.0);
        }
        for reads in READS {
            for who in indexed.into_iter().skip(1).chain([Who::Sqlite]) {
                plan(What::Mix, who, reads, 0.5);
            }
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
    let upserts = Upserts::of_keys(job.seed, task.writes, task.writes / WRITES_A_KEY);
    phases::run(job, &task, &upserts)
}
