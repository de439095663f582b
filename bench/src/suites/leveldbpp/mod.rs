//! The experiments of the LevelDB++ paper (section 5, appendix C), on Esker's kinds of index.
//!
//! Esker is set up small, so that a data set that fits a benchmark has as many levels as the paper's
//! hundred gigabytes: memtables, tables and cache shrink together. What the paper counts as disk
//! accesses are accesses to data blocks here, whether a cache has them or not: the paper had no block
//! cache, and all filters and block indexes in memory.

mod claims;
mod cost;
mod data;
mod phases;
pub mod sheets;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use esker::IndexKind;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::failure::{Failure, Result};
use crate::measure::Results;
use crate::only::Only;
use crate::run::{Job, Runner};
use crate::workload::Attribute;
use crate::workload::plan::Mix;
use data::{Data, Set};
use phases::Session;

/// The suite's name.
pub const SUITE: &str = "leveldbpp";

/// Records of the static experiments at scale 1.
const RECORDS: f64 = 200e3;
/// Operations of a mixed experiment at scale 1.
const OPERATIONS: f64 = 200e3;
/// What `--full` multiplies both by.
const FULL: f64 = 10.0;
/// The share that `eager` gets of what others get, where its lists grow: it would take a night.
const EAGER_SHARE: f64 = 0.1;
/// Memory of a store, at scale 1 and above; half of it is block cache, an eighth a memtable.
const MEMORY: usize = 16 << 20;
/// Bytes of a table file, at scale 1 and above: LevelDB's.
const TABLE_SIZE: u64 = 2 << 20;
/// Records that are there before mixed operations begin, so that there is something to read.
const BEFORE_MIXED: usize = 1000;
/// Bits of value filters that are tried; 10 is what Esker uses.
const FILTER_BITS: [usize; 6] = [2, 5, 10, 20, 50, 100];
/// The records that a minute has in the synthetic set; real events are asked for spans that have
/// as many.
const RECORDS_A_MINUTE: f64 = 2100.0;

/// How the suite is run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Size of everything: at 1, 200,000 records and as many mixed operations
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    pub scale: f64,

    /// Ten times the size: for a night
    #[arg(long)]
    pub full: bool,

    /// Only these experiments, kinds of index or data sets, separated by commas; a part of a name is
    /// enough
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,

    /// Folder for the results, and for the data while it runs
    #[arg(long, default_value = "out", value_name = "DIR")]
    pub out: PathBuf,

    /// How often everything is measured; figures are medians
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub repeat: u32,

    /// Seed of the records and of the questions
    #[arg(long, default_value_t = 7, value_name = "N")]
    pub seed: u64,

    /// Real events, as JSON lines (may be .zst); looked for beside the repository unless given
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
}

/// What a child does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// Load, get, look up, range (figures 8 to 11, tables 3 and 5).
    Static,
    /// Mixed operations (figures 12 to 15).
    WriteHeavy,
    ReadHeavy,
    UpdateHeavy,
    /// Value filters of another length (table 8).
    FilterLength,
    /// Blocks compressed or not (figures 18 and 19).
    Compression,
    /// Several threads (figure 20).
    Threads,
}

impl What {
    /// The experiment that its job is named after; `--only` selects by it.
    fn experiment(self) -> &'static str {
        match self {
            What::Static => "static",
            What::WriteHeavy => "mixed-write",
            What::ReadHeavy => "mixed-read",
            What::UpdateHeavy => "mixed-update",
            What::FilterLength => "filter-length",
            What::Compression => "compression",
            What::Threads => "threads",
        }
    }

    fn mix(self) -> Mix {
        match self {
            What::ReadHeavy => Mix::READ_HEAVY,
            What::UpdateHeavy => Mix::UPDATE_HEAVY,
            _ => Mix::WRITE_HEAVY,
        }
    }

    const ALL: [What; 7] = [
        What::Static,
        What::WriteHeavy,
        What::ReadHeavy,
        What::UpdateHeavy,
        What::FilterLength,
        What::Compression,
        What::Threads,
    ];
}

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    what: What,
    set: Set,
    kind: String,
    /// The indexed attribute: `user`, `time`, or empty.
    index: String,
    records: usize,
    operations: usize,
    /// Seconds that hold as many records as a minute of tweets.
    minute: u64,
    memory: usize,
    table_size: u64,
    value_filter_bits: usize,
    compress: bool,
    /// Milliseconds that questions of a kind are asked.
    ask_ms: u64,
}

impl Task {
    fn attribute(&self) -> Option<Attribute> {
        match self.index.as_str() {
            "user" => Some(Attribute::User),
            "time" => Some(Attribute::Time),
            _ => None,
        }
    }

    fn index(&self) -> Result<Option<(Attribute, IndexKind)>> {
        let kind: IndexKind = self.kind.parse()?;
        Ok(self.attribute().map(|attribute| (attribute, kind)))
    }

    fn setup(&self) -> Result<store::Setup> {
        Ok(store::Setup {
            index: self.index()?,
            memory: self.memory,
            table_size: self.table_size,
            compress: self.compress,
            value_filter_bits: self.value_filter_bits,
        })
    }

    fn ask(&self) -> Duration {
        Duration::from_millis(self.ask_ms)
    }

    /// Parameters of the experiment itself, for rows.
    fn shown(&self) -> Vec<(&'static str, Json)> {
        match self.what {
            What::FilterLength => vec![("bits", self.value_filter_bits.into())],
            What::Compression => vec![("compression", self.compression())],
            _ => Vec::new(),
        }
    }

    fn compression(&self) -> Json {
        Json::from(if self.compress { "LZ4" } else { "uncompressed" })
    }
}

/// Memory of a store: less with less data, so that it has as many levels.
fn memory(scale: f64) -> usize {
    ((MEMORY as f64 * scale.min(1.0)) as usize).max(1 << 20)
}

/// Bytes of a table file, likewise.
fn table_size(scale: f64) -> u64 {
    ((TABLE_SIZE as f64 * scale.min(1.0)) as u64).max(64 << 10)
}

/// The kinds that keep an index; new ones join by themselves.
fn kinds() -> Vec<IndexKind> {
    IndexKind::ALL
        .into_iter()
        .filter(|kind| *kind != IndexKind::None)
        .collect()
}

/// Everything that a run does.
fn tasks(scale: f64, sets: &[(Set, u64)]) -> Vec<Task> {
    let size = |n: f64| ((n * scale) as usize).max(2000);
    let engine = esker_lsm::Options::default();
    let mut tasks = Vec::new();
    for (set, minute) in sets {
        let task = |what, kind: IndexKind, index: &str, share: f64| Task {
            what,
            set: set.clone(),
            kind: kind.to_string(),
            index: index.to_string(),
            records: size(RECORDS * share),
            operations: 0,
            minute: *minute,
            memory: memory(scale),
            table_size: table_size(scale),
            value_filter_bits: engine.value_filter_bits,
            compress: engine.compress,
            ask_ms: (600.0 * scale.clamp(0.25, 10.0)) as u64,
        };
        let share = |kind, index: &str| {
            if kind == IndexKind::Eager && index == "user" {
                EAGER_SHARE
            } else {
                1.0
            }
        };
        tasks.push(task(What::Static, IndexKind::None, "", 1.0));
        for index in ["user", "time"] {
            for kind in kinds() {
                tasks.push(task(What::Static, kind, index, share(kind, index)));
            }
        }
        for what in [What::WriteHeavy, What::ReadHeavy, What::UpdateHeavy] {
            for kind in kinds() {
                tasks.push(Task {
                    records: BEFORE_MIXED,
                    // The store begins empty: less memory, so that more than a few writes leave it.
                    memory: memory(scale) / 4,
                    operations: size(OPERATIONS * share(kind, "user")),
                    ..task(what, kind, "user", 1.0)
                });
            }
        }
        if *set != Set::Tweets {
            continue;
        }
        for value_filter_bits in FILTER_BITS {
            let embedded = task(What::FilterLength, IndexKind::Embedded, "user", 1.0);
            tasks.push(Task {
                value_filter_bits,
                ..embedded
            });
        }
        for compress in [true, false] {
            for kind in kinds() {
                let share = 0.5 * share(kind, "user");
                tasks.push(Task {
                    compress,
                    ..task(What::Compression, kind, "user", share)
                });
            }
        }
        for kind in kinds() {
            tasks.push(task(What::Threads, kind, "user", 0.5 * share(kind, "user")));
        }
    }
    tasks
}

/// The sets: the generator, and the real events where there are any. Says where none are.
fn sets(options: &Options) -> Result<Vec<(Set, u64)>> {
    let beside = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../shared/data/events.ndjson.zst"
    );
    let file = options.data.clone().unwrap_or_else(|| beside.into());
    let mut sets = vec![(Set::Tweets, 60)];
    if file.exists() {
        let set = Set::Events(file);
        let data = Data::new(&set, 0, (usize::MAX, 0), Mix::WRITE_HEAVY)?;
        let history = data.history();
        let last = history.len().saturating_sub(1);
        let seconds = history.second(last).saturating_sub(history.second(0));
        let minute = seconds as f64 * RECORDS_A_MINUTE / history.len() as f64;
        sets.push((set, minute.max(1.0) as u64));
    } else if options.data.is_some() {
        return Err(Failure::new(format!("{} is not there", file.display())));
    } else {
        eprintln!(
            "no real events at {}: skipped (--data FILE names others)",
            file.display()
        );
    }
    Ok(sets)
}

/// Runs the suite; returns what could not be measured.
pub fn run(options: &Options) -> Result<Vec<String>> {
    let scale = options.scale * if options.full { FULL } else { 1.0 };
    let sets = sets(options)?;
    let names = |names: Vec<&str>| names.into_iter().map(String::from).collect::<Vec<_>>();
    let experiments = names(What::ALL.map(What::experiment).to_vec());
    let set_names = names(sets.iter().map(|(set, _)| set.name()).collect());
    let kind_names: Vec<String> = IndexKind::ALL.iter().map(IndexKind::to_string).collect();
    let only = Only::new(&options.only, &[&experiments, &kind_names, &set_names])?;
    let chosen = |task: &&Task| {
        only.has(task.what.experiment()) && only.has(&task.kind) && only.has(task.set.name())
    };
    let mut runner = Runner::new(&options.out)?;
    crate::settings::common(&mut runner)?;
    settings(&mut runner, options, scale, &sets)?;
    let tasks = tasks(scale, &sets);
    for repeat in 0..options.repeat {
        for task in tasks.iter().filter(chosen) {
            runner.run(&Job {
                suite: SUITE.to_string(),
                experiment: format!(
                    "{} {} {}",
                    task.what.experiment(),
                    task.set.name(),
                    task.index
                ),
                subject: task.kind.clone(),
                repeat,
                seed: options.seed,
                parameters: serde_json::to_value(task)?,
                scratch: PathBuf::new(),
            })?;
        }
    }
    let medians = Results::read(&options.out)?.medians();
    let claims = claims::all(&medians);
    for claim in &claims {
        runner.claim(claim)?;
    }
    crate::suites::table::print_claims(&claims);
    Ok(runner.failures)
}

fn settings(runner: &mut Runner, options: &Options, scale: f64, sets: &[(Set, u64)]) -> Result<()> {
    let mib = |bytes: u64| format!("{:.2} MiB", bytes as f64 / 1048576.0);
    let records = (RECORDS * scale) as u64;
    runner.setting(
        "scale",
        format!(
            "{scale}: {records} records, {} mixed operations",
            (OPERATIONS * scale) as u64
        ),
    )?;
    runner.setting(
        "eager",
        format!("on users {EAGER_SHARE} of that: its lists are written anew at each put"),
    )?;
    runner.setting("seed", options.seed)?;
    runner.setting(
        "repeats",
        format!("{}, figures are medians", options.repeat),
    )?;
    runner.setting(
        "memory",
        format!(
            "{} a store, a quarter of it in mixed workloads, which begin empty: half block cache, an eighth a memtable",
            mib(memory(scale) as u64)
        ),
    )?;
    runner.setting(
        "tables",
        format!(
            "{}, the first level {}, each next ten times more",
            mib(table_size(scale)),
            mib(2 * table_size(scale))
        ),
    )?;
    runner.setting(
        "blocks",
        "4 KiB before compression (LZ4); key filters and value filters 10 bits each",
    )?;
    runner.setting("durability", "log written, no sync per write")?;
    runner.setting("disk accesses", "data blocks accessed, cached or not: the paper had no block cache and all filters in memory")?;
    runner.setting(
        "one index at a time",
        "on the user or on the time, as in the paper",
    )?;
    for (set, minute) in sets {
        let what = match set {
            Set::Tweets => {
                "synthetic: 540 bytes, 30 a user by Zipf's law (0.95), 35 a second".to_string()
            }
            Set::Events(_) => format!(
                "real: commits of five repositories as they were; user: the author, \"minute\": {:.0} days, which hold as many records as a minute of tweets",
                *minute as f64 / 86400.0
            ),
        };
        runner.setting(set.name(), what)?;
    }
    if sets.len() < 2 {
        runner.setting("events", "SKIPPED: the file of real events was not found")?;
    }
    Ok(())
}

/// Does one store's share, in a process of its own.
pub fn child(job: &Job) -> Result<()> {
    let task: Task = job.parameters()?;
    let data = Data::new(
        &task.set,
        job.seed,
        (task.records, task.operations),
        task.what.mix(),
    )?;
    let mut session = Session::create(job, &task, &data)?;
    let experiment = task.what.experiment();
    match task.what {
        What::Static => {
            session.load("basics", Some("put-over-time"))?;
            session.check()?;
            session.gets("basics")?;
            task.attribute()
                .map_or(Ok(()), |attribute| session.questions(attribute))
        }
        What::WriteHeavy | What::ReadHeavy | What::UpdateHeavy => session.mixed(experiment),
        What::FilterLength => {
            session.load(experiment, None)?;
            session.check()?;
            session.filter_length(experiment)
        }
        What::Compression => {
            session.load(experiment, None)?;
            session.check()?;
            session.compression(experiment)
        }
        What::Threads => {
            session.load(experiment, None)?;
            session.check()?;
            session.threads(experiment)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting beyond the limits of the store is not noticed before its experiment runs.
    #[test]
    fn the_store_accepts_what_every_experiment_sets() {
        let mut lengths = Vec::new();
        for task in tasks(0.01, &[(Set::Tweets, 60)]) {
            if task.what == What::FilterLength {
                lengths.push(task.value_filter_bits);
            }
            let dir = tempfile::tempdir().unwrap();
            store::Store::create(dir.path(), &task.set, &task.setup().unwrap()).unwrap();
        }
        assert_eq!(lengths, FILTER_BITS);
    }
}
