//! The experiments of Qader & Hristidis, "High-throughput Publish/Subscribe on top of LSM-based Storage" (figures 10 to 17,
//! table 3), on Esker's three architectures and both granularities, beside a broker that keeps everything in memory.

mod brokers;
mod claims;
mod load;
mod memory;
mod mqtt;
pub mod sheets;
mod sustained;
mod turns;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use self::brokers::Who;
use self::load::{Load, Places, RADII};
use super::upkeep::Options;
use crate::failure::Result;
use crate::measure::Results;
use crate::only::Only;
use crate::run::{Job, Runner};

/// The suite's name.
pub const SUITE: &str = "pubsub";

/// Simulated seconds of a run.
const SECONDS: u64 = 60;
/// How far a subscription reaches either way, in milliseconds.
const REACH: i64 = 10_000;
/// Bytes that the lists need for an operation, on average.
const BYTES: usize = 250;
/// Operations on areas by those on topics: with fixed granularity each is a hundred.
const AREAS: f64 = 0.05;

/// Ratios of subscriptions to publications, by name.
const HEAVY: [(&str, (u32, u32)); 2] = [
    ("subscription-heavy", (3, 1)),
    ("publication-heavy", (1, 3)),
];
/// The ratio of the experiments on areas.
const EVEN: (&str, (u32, u32)) = ("even", (1, 1));

/// What memory there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Memory {
    /// An eighth of what is alive, and reads go round the page cache.
    Direct,
    /// All of it.
    Cached,
}

impl Memory {
    const BOTH: [Memory; 2] = [Memory::Direct, Memory::Cached];

    fn name(self) -> &'static str {
        match self {
            Memory::Direct => "direct",
            Memory::Cached => "cached",
        }
    }

    fn budget(self, alive: usize) -> usize {
        match self {
            Memory::Direct => (alive / 8).max(1 << 20),
            Memory::Cached => (2 * alive).max(64 << 20),
        }
    }
}

/// What subjects that take turns are told.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    experiment: String,
    places: String,
    shares: (u32, u32),
    joins: bool,
    cache: Memory,
    memory: usize,
    ops: usize,
    who: Vec<Who>,
}

impl Task {
    fn load(&self) -> Load {
        Load {
            per_second: (self.ops as u64 / SECONDS).max(1),
            shares: self.shares,
            places: match self.places.as_str() {
                "levels" => Places::Levels,
                "circles" => Places::Circles,
                _ => Places::Grid,
            },
            reach: REACH,
        }
    }

    fn is_direct(&self) -> bool {
        self.cache == Memory::Direct
    }

    fn cache(&self) -> &'static str {
        self.cache.name()
    }

    fn workload(&self) -> &'static str {
        let mut known = HEAVY.iter().chain([&EVEN]);
        known
            .find(|(_, shares)| *shares == self.shares)
            .map_or("", |(name, _)| name)
    }

    /// By what operations on areas differ, and its values.
    fn classes(&self) -> Option<(&'static str, Vec<Json>)> {
        match self.load().places {
            Places::Grid => None,
            Places::Levels => Some(("level", (0..=load::DEPTH).map(Json::from).collect())),
            Places::Circles => Some(("radius", RADII.iter().map(|r| Json::from(*r)).collect())),
        }
    }
}

/// A child to be started.
struct Planned {
    /// What `--only` selects by, beside its subjects: the experiment, the memory, the workload.
    names: Vec<String>,
    /// Of whom it has the share.
    subjects: Vec<String>,
    share: Share,
}

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Share {
    /// Figures 10 to 17, and table 3.
    Turns(Task),
    /// What the length of intervals costs.
    Memory(memory::Task),
    /// A real broker's part.
    Brokers(mqtt::Task),
    /// A steady load in real time.
    Sustained(sustained::Task),
}

/// Everything that a run does.
fn planned(options: &Options) -> Vec<Planned> {
    let mut all = Vec::new();
    for cache in Memory::BOTH {
        let mut plan = |experiment: &str, places: &str, shares, joins, ops: usize, who: &[Who]| {
            let task = Task {
                experiment: experiment.to_string(),
                places: places.to_string(),
                shares,
                joins,
                cache,
                memory: cache.budget(alive(ops)),
                ops,
                who: who.to_vec(),
            };
            all.push(Planned {
                names: [experiment, cache.name(), task.workload()]
                    .map(String::from)
                    .to_vec(),
                subjects: who.iter().map(|who| who.name().to_string()).collect(),
                share: Share::Turns(task),
            });
        };
        let ops = options.records(1.0);
        for (_, shares) in HEAVY {
            let who = [
                Who::Dual,
                Who::Two,
                Who::Repeated(1000),
                Who::Repeated(5000),
                Who::Memory,
            ];
            plan("simple", "grid", shares, false, ops, &who);
        }
        for (_, shares) in HEAVY {
            plan(
                "self-join",
                "grid",
                shares,
                true,
                ops,
                &[Who::Dual, Who::Two],
            );
        }
        let ops = options.records(AREAS);
        for places in ["levels", "circles"] {
            let who = [Who::Dual, Who::Fixed];
            plan(places, places, EVEN.1, false, ops, &who);
        }
    }
    all.extend(one_each(options));
    all
}

/// The experiments whose subjects have a process of their own.
fn one_each(options: &Options) -> Vec<Planned> {
    let mut all = Vec::new();
    let mut plan = |experiment: &str, subject: &str, share| {
        all.push(Planned {
            names: vec![experiment.to_string()],
            subjects: vec![subject.to_string()],
            share,
        });
    };
    let most = options.records(4.0);
    for shrunk in [32, 16, 8, 4, 2, 1] {
        for who in memory::WHO {
            let task = memory::Task {
                who,
                alive: most / shrunk,
                memory: (most * BYTES / 16).max(8 << 20),
            };
            plan(memory::EXPERIMENT, who.name(), Share::Memory(task));
        }
    }
    for shrunk in [4, 1] {
        for who in mqtt::Who::ALL {
            if who == mqtt::Who::Mosquitto && mqtt::installed().is_none() {
                continue;
            }
            let task = mqtt::Task {
                who,
                subscriptions: options.records(1.0) / shrunk,
                publications: options.records(0.25),
                memory: 64 << 20,
            };
            plan(mqtt::EXPERIMENT, who.name(), Share::Brokers(task));
        }
    }
    // A minute, at full size; with less, as many operations a second, of which less are alive.
    let lives = 60.0 * (options.records(1.0) as f64 / 1e6).min(1.0);
    let task = sustained::Task {
        lives,
        seconds: lives.max(10.0),
    };
    plan(sustained::EXPERIMENT, "DualDB", Share::Sustained(task));
    all
}

/// Bytes of the lists that are alive when so many operations were made in all: a publication lives for a third of the run.
fn alive(ops: usize) -> usize {
    ops * BYTES / 3
}

/// Runs the suite; returns what could not be measured.
pub fn run(options: &Options) -> Result<Vec<String>> {
    let planned = planned(options);
    let names = |of: &dyn Fn(&Planned) -> Vec<String>| {
        let mut names: Vec<String> = planned.iter().flat_map(of).collect();
        names.sort();
        names.dedup();
        names
    };
    let name = |at: usize| names(&|planned| planned.names.get(at).cloned().into_iter().collect());
    let subjects = names(&|planned| planned.subjects.clone());
    let only = Only::new(&options.only, &[&name(0), &name(1), &name(2), &subjects])?;
    let mut runner = Runner::new(&options.out)?;
    crate::settings::common(&mut runner)?;
    settings(&mut runner, options)?;
    for repeat in 0..options.repeat {
        for planned in &planned {
            let (mut share, mut subjects) = (planned.share.clone(), planned.subjects.clone());
            subjects.retain(|subject| only.has(subject));
            if let Share::Turns(task) = &mut share {
                task.who.retain(|who| only.has(who.name()));
            }
            if subjects.is_empty() || !planned.names.iter().all(|name| only.has(name)) {
                continue;
            }
            runner.run(&Job {
                suite: SUITE.to_string(),
                experiment: planned.names.join(" "),
                subject: subjects.join(" / "),
                repeat,
                seed: options.seed,
                parameters: serde_json::to_value(&share)?,
                scratch: PathBuf::new(),
            })?;
        }
    }
    let medians = Results::read(&options.out)?.medians();
    let claims = claims::all(&medians);
    for claim in &claims {
        runner.claim(claim)?;
    }
    super::table::print_claims(&claims);
    Ok(runner.failures)
}

fn settings(runner: &mut Runner, options: &Options) -> Result<()> {
    let ops = options.records(1.0);
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / 1048576.0);
    let alive = alive(ops);
    runner.setting("seed", options.seed)?;
    runner.setting(
        "repeats",
        format!("{}, figures are medians", options.repeat),
    )?;
    runner.setting(
        "operations",
        format!(
            "{ops}, of which a third is alive at a time ({} on areas), in {SECONDS} simulated seconds; subscriptions reach \
             {} seconds either way, publications live for twice that; the first third is not counted",
            options.records(AREAS),
            REACH / 1000
        ),
    )?;
    runner.setting(
        "turns",
        "all subjects in one process, a fifteenth of the operations each in turn, until nothing is left to merge; \
         ratios are medians of these",
    )?;
    runner.setting(
        "direct",
        format!(
            "{} of memory, an eighth of what is alive; reads go round the page cache",
            mib(Memory::Direct.budget(alive))
        ),
    )?;
    runner.setting(
        "cached",
        format!(
            "{} of memory, reads through the page cache",
            mib(Memory::Cached.budget(alive))
        ),
    )?;
    runner.setting("durability", "log written, no sync per write")?;
    let broker = match mqtt::installed() {
        Some(_) => "mosquitto, over the loopback",
        None => "none: mosquitto is not installed",
    };
    runner.setting("real broker", broker)
}

/// Does a task, in a process of its own.
pub fn child(job: &Job) -> Result<()> {
    match job.parameters()? {
        Share::Turns(task) => turns::run(job, &task),
        Share::Memory(task) => memory::run(job, &task),
        Share::Brokers(task) => mqtt::run(job, &task),
        Share::Sustained(task) => sustained::run(job, &task),
    }
}
