//! Esker, with each kind of index, beside its peers: the same records, the same work.

use std::collections::BTreeMap;
use std::time::Duration;

use esker::IndexKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bars::{self, Names};
use super::session::{Limit, Session};
use super::{Options, many, synced, table};
use crate::failure::Result;
use crate::measure::Results;
use crate::only::Only;
use crate::run::{Job, Runner};
use crate::settings;
use crate::subjects::{self, Setup};
use crate::workload::plan::{Mix, Plan};
use crate::workload::profile::{Profile, SeedSet};

/// The suite's name.
pub const SUITE: &str = "peers";

const MILLION: f64 = 1e6;
const CACHE_BYTES: usize = 64 << 20;
/// Records past memory, in millions; not more at a larger scale.
const PAST_MEMORY: f64 = 2.0;
/// The share of the default number of records with which Esker's `eager` is measured, because it
/// slows down as its lists grow.
const EAGER_SHARE: f64 = 0.1;
/// How long questions of one kind are asked at most.
const ASK: Duration = Duration::from_secs(2);

const PEERS: [&str; 10] = [
    "rocksdb none",
    "rocksdb blind",
    "rocksdb eager",
    "fjall none",
    "fjall blind",
    "fjall eager",
    "sqlite off",
    "sqlite normal",
    "lmdb eager",
    "redb eager",
];

/// How long a mixed phase of a million records goes on at most, longer with more. Nobody needs it
/// who does not search blocks for a user.
const MIX: Duration = Duration::from_secs(30);

const OPERATIONS: [&str; 11] = [
    "load",
    "get",
    GET_BY_TWO,
    "lookup K=10",
    LOOKUP_BY_TWO,
    "lookup",
    "range 60 s",
    "range 10 users K=10",
    "mixed",
    GET_UPDATED,
    LOOKUP_UPDATED,
];

/// The same after the mixed phase, and after the subject has settled: the trees are no longer those of a load of rising keys.
const GET_UPDATED: &str = "get after updates";
const LOOKUP_UPDATED: &str = "lookup K=10 after updates";

/// Reads by two threads beside those by one, of data in the cache.
pub(super) const GET_BY_TWO: &str = "get by two threads";
pub(super) const LOOKUP_BY_TWO: &str = "lookup K=10 by two threads";

/// What a child is told.
#[derive(Debug, Serialize, Deserialize)]
struct Parameters {
    /// Records of the load.
    records: usize,
    /// Operations of the mixed phase.
    mixed: usize,
    /// Block cache.
    cache_bytes: usize,
    /// Past memory: nothing else caches.
    direct: bool,
    /// The operations to measure.
    operations: Vec<String>,
    /// What the records are like.
    seed_set: Option<SeedSet>,
}

/// The experiments of a run.
struct Experiments {
    all: Vec<Experiment>,
    cached: String,
    fifth: String,
    past: String,
    records: usize,
}

struct Experiment {
    name: String,
    subjects: Vec<String>,
    records: usize,
    mixed: usize,
    cache_bytes: usize,
    direct: bool,
}

/// Esker with each kind for both attributes, and with the best for each.
fn esker(except: &[IndexKind]) -> Vec<String> {
    let kinds = IndexKind::ALL
        .into_iter()
        .filter(|kind| !except.contains(kind));
    let mut names: Vec<String> = kinds.map(|kind| format!("esker {kind}")).collect();
    names.push("esker lazy+embedded".to_string());
    names
}

fn experiments(options: &Options) -> Experiments {
    let size = |millions: f64| ((options.scale * millions * MILLION) as usize).max(1000);
    let (all, fifth, few) = (size(1.0), size(0.2), size(EAGER_SHARE));
    let many = size(PAST_MEMORY).min((PAST_MEMORY * MILLION) as usize);
    let mut cached = esker(&[IndexKind::Eager]);
    cached.extend(PEERS.map(String::from));
    let mut past = esker(&[IndexKind::Eager, IndexKind::None]);
    past.extend(["rocksdb blind", "rocksdb eager"].map(String::from));
    // Past memory, the cache shrinks with the data.
    let little = ((CACHE_BYTES as f64 * options.scale.min(1.0)) as usize).max(1 << 20);
    // Memory grows with the data, beyond a million records and from a fifth of them to all.
    let cache = (CACHE_BYTES as f64 * options.scale.max(1.0)) as usize;
    let in_cache = |name, subjects, records: usize, cache_bytes| Experiment {
        name,
        subjects,
        records,
        mixed: records / 2,
        cache_bytes,
        direct: false,
    };
    let names = [
        format!("{} cached", short(all)),
        format!("{} cached (a fifth)", short(fifth)),
        format!("{} past memory", short(many)),
    ];
    let growing = cached
        .iter()
        .filter(|name| ["esker", "rocksdb"].iter().any(|s| name.starts_with(s)));
    let growing = growing
        .filter(|name| subjects::has_indexes(name))
        .cloned()
        .collect();
    let [cached_name, fifth_name, past_name] = names.clone();
    let mut experiments = vec![
        in_cache(cached_name, cached, all, cache),
        in_cache(fifth_name, growing, fifth, cache / 5),
        in_cache(
            format!("{} cached (eager)", short(few)),
            vec!["esker eager".to_string()],
            few,
            cache,
        ),
        Experiment {
            name: past_name,
            subjects: past,
            records: many,
            mixed: many / 10,
            cache_bytes: little,
            direct: true,
        },
    ];
    if options.past_memory {
        experiments.retain(|experiment| experiment.direct);
    }
    let [cached, fifth, past] = names;
    Experiments {
        all: experiments,
        cached,
        fifth,
        past,
        records: all,
    }
}

/// A number of records, for people.
fn short(records: usize) -> String {
    match records {
        n if n >= 1_000_000 => format!("{}M", n as f64 / 1e6),
        n => format!("{}k", n as f64 / 1e3),
    }
}

/// Runs the suite.
pub fn run(options: &Options) -> Result<Vec<String>> {
    let made = experiments(options);
    let experiments = &made.all;
    let mut subjects: Vec<String> = Vec::new();
    for subject in experiments
        .iter()
        .flat_map(|experiment| &experiment.subjects)
    {
        if !subjects.contains(subject) {
            subjects.push(subject.clone());
        }
    }
    let operations = OPERATIONS.map(String::from);
    let mut names: Vec<String> = experiments.iter().map(|e| e.name.clone()).collect();
    let mut known = operations.to_vec();
    if !options.past_memory {
        names.extend([synced::EXPERIMENT, many::EXPERIMENT].map(String::from));
        known.extend(synced::operations());
        known.extend(many::operations());
    }
    let only = Only::new(&options.only, &[&subjects, &known, &names])?;

    let mut runner = Runner::new(&options.out)?;
    settings::common(&mut runner)?;
    settings(&mut runner, options)?;
    for repeat in 0..options.repeat {
        for experiment in experiments.iter().filter(|e| only.has(&e.name)) {
            for subject in experiment.subjects.iter().filter(|s| only.has(s)) {
                let parameters = Parameters {
                    records: experiment.records,
                    mixed: experiment.mixed,
                    cache_bytes: experiment.cache_bytes,
                    direct: experiment.direct,
                    seed_set: options.seed_set.clone(),
                    operations: operations.iter().filter(|o| only.has(o)).cloned().collect(),
                };
                runner.run(&Job {
                    suite: SUITE.to_string(),
                    experiment: experiment.name.clone(),
                    subject: subject.clone(),
                    repeat,
                    seed: options.seed,
                    parameters: serde_json::to_value(parameters)?,
                    scratch: Default::default(),
                })?;
            }
        }
        for job in of_writes(options, &only, &names)? {
            runner.run(&Job { repeat, ..job })?;
        }
    }
    let results = Results::read(&options.out)?;
    let medians = results.medians();
    table::print_settings(&results.settings);
    table::print(&medians);
    let names = Names {
        cached: &made.cached,
        fifth: &made.fifth,
        past: &made.past,
        records: made.records,
    };
    let claims = bars::claims(&medians, &names);
    for claim in &claims {
        runner.claim(claim)?;
    }
    table::print_claims(&claims);
    Ok(runner.failures)
}

/// The experiments that are one job each: synced puts by several threads, all stores in turn, and many datasets.
fn of_writes(options: &Options, only: &Only, names: &[String]) -> Result<Vec<Job>> {
    let any = |operations: &[String]| operations.iter().any(|operation| only.has(operation));
    let wanted = |name: &str, operations: &[String]| {
        names.iter().any(|known| known == name) && only.has(name) && any(operations)
    };
    let job = |experiment: &str, subject: &str, parameters: Value| Job {
        suite: SUITE.to_string(),
        experiment: experiment.to_string(),
        subject: subject.to_string(),
        repeat: 0,
        seed: options.seed,
        parameters,
        scratch: Default::default(),
    };
    let mut jobs = Vec::new();
    let subjects = synced::SUBJECTS.into_iter().filter(|s| only.has(s));
    let subjects: Vec<String> = subjects.map(String::from).collect();
    if wanted(synced::EXPERIMENT, &synced::operations()) && !subjects.is_empty() {
        let name = subjects.join(", ");
        let parameters = synced::Parameters {
            subjects,
            cache_bytes: CACHE_BYTES,
            scale: options.scale,
        };
        let parameters = serde_json::to_value(parameters)?;
        jobs.push(job(synced::EXPERIMENT, &name, parameters));
    }
    if wanted(many::EXPERIMENT, &many::operations()) && only.has(many::SUBJECT) {
        let parameters = serde_json::to_value(many::Parameters {
            cache_bytes: CACHE_BYTES,
            scale: options.scale,
        })?;
        jobs.push(job(many::EXPERIMENT, many::SUBJECT, parameters));
    }
    Ok(jobs)
}

fn settings(runner: &mut Runner, options: &Options) -> Result<()> {
    let records = match &options.seed_set {
        Some(set) => format!("made like those of {}", set.file.display()),
        None => "tweets of 540 bytes, two attributes; users by Zipf's law (0.95), about 30 records each; 35 records a second".to_string(),
    };
    let text = [
        ("records", records),
        ("scale", options.scale.to_string()),
        ("seed", options.seed.to_string()),
        ("repeats", format!("{}, figures are medians", options.repeat)),
        ("clients", "one thread, one operation at a time; where it says so, two threads beside one".to_string()),
        ("durability", "log written, no sync per write: a killed process loses nothing (redb: a commit per 10,000 writes; SQLite normal: sync at checkpoints)".to_string()),
        ("synced puts", "one record a time and thread, with fdatasync before it returns (RocksDB: sync; fjall: insert, then persist of data); the stores take turns in one process".to_string()),
        ("block cache", "64 MiB each, more in proportion beyond a million records, and a fifth of it for a fifth of the records (Esker: half of a memory budget of 128 MiB, which holds memtables too; LMDB: the page cache)".to_string()),
        ("past memory", "64 MiB and direct reads and table writes: of block cache for RocksDB, in all for Esker".to_string()),
        ("compression", "LZ4 for Esker, RocksDB and fjall, none for SQLite, LMDB and redb".to_string()),
        ("filters", "Bloom, 10 bits a key".to_string()),
        ("RocksDB", "two background jobs, write buffers of 64 MiB a column family, other options as they come".to_string()),
        ("indexes of the key-value stores", "composite: (value, complement of the write's number) to the key; attributes are handed over with the record. Esker is given the JSON alone and finds them in it".to_string()),
    ];
    for (name, value) in text {
        runner.setting(name, value)?;
    }
    Ok(())
}

/// Does one subject's share, in a process of its own.
pub fn child(job: &Job) -> Result<()> {
    match job.experiment.as_str() {
        synced::EXPERIMENT => return synced::child(job),
        many::EXPERIMENT => return many::child(job),
        _ => {}
    }
    let parameters: Parameters = job.parameters()?;
    let setup = |folder: &str| Setup {
        dir: job.scratch.join(folder),
        cache_bytes: parameters.cache_bytes,
        direct: parameters.direct,
    };
    small_check(job, &setup("small"))?;

    let Parameters { records, mixed, .. } = parameters;
    let profile = Profile::of(parameters.seed_set.as_ref(), records as u64)?;
    let plan = Plan::new(job.seed, profile, records, mixed, Mix::UPDATE_HEAVY);
    let shown = BTreeMap::from([
        ("records".to_string(), Value::from(records)),
        (
            "cache_bytes".to_string(),
            Value::from(parameters.cache_bytes),
        ),
    ]);
    let mut session = Session::open(job, &plan, &job.subject, &setup("full"), shown)?;
    session.load()?;
    session.check(100)?;
    let limit = |ops| Limit { ops, time: ASK };
    let indexed = subjects::has_indexes(&job.subject);
    for operation in &parameters.operations {
        match operation.as_str() {
            "get" | GET_UPDATED => session.gets(operation, limit(100_000))?,
            GET_BY_TWO | LOOKUP_BY_TWO if parameters.direct => {}
            GET_BY_TWO => session.gets_by_two(operation)?,
            "mixed" => {
                session.mixed(MIX.mul_f64(parameters.records as f64 / MILLION).max(MIX))?;
                session.check(100)?;
            }
            _ if !indexed => {}
            "lookup K=10" | LOOKUP_UPDATED => {
                session.finds(operation, limit(30_000), |q, rng| q.any_user(rng, Some(10)))?
            }
            LOOKUP_BY_TWO => {
                session.finds_by_two(operation, |q, rng| q.any_user(rng, Some(10)))?;
            }
            "lookup" => session.finds(operation, limit(10_000), |q, rng| q.any_user(rng, None))?,
            "range 60 s" => {
                session.finds(operation, limit(400), |q, rng| q.seconds(rng, 60, None))?
            }
            "range 10 users K=10" => {
                session.finds(operation, limit(10_000), |q, rng| {
                    q.users(rng, 10, Some(10))
                })?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Answers must be right before anything is timed: at every stage of a small run with many updates.
fn small_check(job: &Job, setup: &Setup) -> Result<()> {
    let plan = Plan::new(
        job.seed + 1,
        Profile::synthetic(3000),
        3000,
        3000,
        Mix::UPDATE_HEAVY,
    );
    let mut session = Session::open(job, &plan, &job.subject, setup, BTreeMap::new())?;
    session.check_writes(500, 100)
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;
