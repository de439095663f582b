//! Datasets on real clusters: DELI's experiments on Cassandra and HBase, beside an index that is
//! right at once, none, and Cassandra's own; and the goals of `esker-cluster`.

mod claims;
mod data;
mod driver;
mod lookups;
mod memory;
mod mixes;
mod repairs;
mod sai;
mod server;
pub mod sheets;
mod subject;
mod task;
mod totals;
mod writes;

use std::path::PathBuf;

use crate::failure::{Failure, Result};
use crate::measure::Results;
use crate::only::Only;
use crate::run::{Job, Runner};

use server::{Kind, Server};
pub use task::SUITE;
use task::Task;

/// How the suite is run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Size of everything: at 1, datasets have 20,000 keys
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    pub scale: f64,

    /// Only these experiments, separated by commas; a part of a name is enough
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,

    /// Folder for the results
    #[arg(long, default_value = "out", value_name = "DIR")]
    pub out: PathBuf,

    /// How often everything is measured; figures are medians
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub repeat: u32,

    /// Seed of keys and records
    #[arg(long, default_value_t = 7, value_name = "N")]
    pub seed: u64,

    /// Only these stores: cassandra, hbase
    #[arg(long, value_delimiter = ',', default_value = "cassandra,hbase")]
    pub stores: Vec<String>,

    /// How many nodes: 1, 3, or both
    #[arg(long, value_delimiter = ',', default_value = "1,3")]
    pub nodes: Vec<usize>,

    /// The command line's program, for `load` [default: ../target/release/esker, beside this workspace]
    #[arg(long, value_name = "PATH")]
    pub esker: Option<PathBuf>,

    /// HBase's coprocessor [default: crates/cluster/java/target/esker-hbase.jar]
    #[arg(long, value_name = "JAR")]
    pub coprocessor: Option<PathBuf>,
}

/// An experiment: name, what it needs, and what it does.
struct Experiment {
    name: &'static str,
    /// True if it is also run on three nodes.
    on_three: bool,
    /// True if only Cassandra has what it compares with.
    on_cassandra: bool,
    run: fn(&Job, &Task) -> Result<()>,
}

const fn each(name: &'static str, run: fn(&Job, &Task) -> Result<()>) -> Experiment {
    Experiment {
        name,
        on_three: false,
        on_cassandra: false,
        run,
    }
}

const EXPERIMENTS: [Experiment; 11] = [
    each(mixes::COMPACTION, mixes::compaction),
    each(mixes::PLAIN_MIX, mixes::plain_mix),
    Experiment {
        on_three: true,
        ..each(writes::WRITES, writes::writes)
    },
    each(writes::COLD_WRITES, writes::cold_writes),
    Experiment {
        on_three: true,
        ..each(mixes::MIX, mixes::mix)
    },
    each(repairs::OBSOLETE, repairs::obsolete),
    each(repairs::REPAIR, repairs::repair),
    each(totals::TOTALS, totals::totals),
    Experiment {
        on_three: true,
        ..each(lookups::LOOKUPS, lookups::lookups)
    },
    Experiment {
        on_cassandra: true,
        ..each(writes::LOAD, writes::load)
    },
    each(memory::MEMORY, memory::memory),
];

/// Runs the suite; returns what could not be measured.
pub fn run(options: &Options) -> Result<Vec<String>> {
    let names = EXPERIMENTS.map(|experiment| experiment.name.to_string());
    let only = Only::new(&options.only, &[&names])?;
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let found = |given: &Option<PathBuf>, usual: &str| {
        let path = given.clone().unwrap_or_else(|| root.join(usual));
        std::fs::canonicalize(path).ok()
    };
    let mut runner = Runner::new(&options.out)?;
    crate::settings::common(&mut runner)?;
    runner.setting("seed", options.seed)?;
    runner.setting("scale", options.scale)?;
    runner.setting(
        "repeats",
        format!("{}, figures are medians", options.repeat),
    )?;
    runner.setting(
        "records",
        "500 bytes; keys by YCSB's scrambled Zipf's law (0.99), values uniform",
    )?;
    runner.setting(
        "clients",
        format!("{}, each waits for its answer", driver::CLIENTS),
    )?;
    let caches = "blocks for less than the data; files are compacted only when asked; quorum";
    runner.setting("servers", caches)?;
    for repeat in 0..options.repeat {
        for (kind, nodes) in clusters(options)? {
            let server = Server { kind, nodes };
            let wanted: Vec<&Experiment> = EXPERIMENTS
                .iter()
                .filter(|e| only.has(e.name) && (nodes == 1 || e.on_three))
                .filter(|e| !e.on_cassandra || kind == Kind::Cassandra)
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let running = server.start()?;
            let task = Task {
                server,
                scale: options.scale,
                esker: found(&options.esker, "target/release/esker"),
                coprocessor: found(
                    &options.coprocessor,
                    "crates/cluster/java/target/esker-hbase.jar",
                ),
            };
            for experiment in wanted {
                runner.run(&Job {
                    suite: SUITE.to_string(),
                    experiment: experiment.name.to_string(),
                    subject: format!("{} × {nodes}", kind.name()),
                    repeat,
                    seed: options.seed,
                    parameters: serde_json::to_value(&task)?,
                    scratch: PathBuf::new(),
                })?;
            }
            drop(running);
        }
    }
    let claims = claims::all(&Results::read(&options.out)?.medians());
    for claim in &claims {
        runner.claim(claim)?;
    }
    super::table::print_claims(&claims);
    Ok(runner.failures)
}

/// The clusters of a run.
fn clusters(options: &Options) -> Result<Vec<(Kind, usize)>> {
    let mut clusters = Vec::new();
    for store in &options.stores {
        let kind = match store.as_str() {
            "cassandra" => Kind::Cassandra,
            "hbase" => Kind::HBase,
            other => return Err(Failure::new(format!("`{other}` is not cassandra or hbase"))),
        };
        for nodes in &options.nodes {
            match nodes {
                1 | 3 => clusters.push((kind, *nodes)),
                other => return Err(Failure::new(format!("{other} nodes: 1 or 3"))),
            }
        }
    }
    Ok(clusters)
}

/// Does a share, in a process of its own.
pub fn child(job: &Job) -> Result<()> {
    let task: Task = job.parameters()?;
    let found = EXPERIMENTS.iter().find(|e| e.name == job.experiment);
    let found = found.ok_or_else(|| Failure::new("no such experiment"))?;
    (found.run)(job, &task)
}
