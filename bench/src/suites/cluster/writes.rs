//! Writes a second (figure 7): from memory, with cold caches, and `esker load`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::data::{Record, Records, all_keys};
use super::driver::{CLIENTS, Driven, Load, cold, drive};
use super::sai::Inserts;
use super::server::{Kind, Reads, Server};
use super::subject::{How, Space, Subject};
use super::task::{Task, driven, row, timed, with};
use crate::failure::{Failure, Result};
use crate::measure::median;
use crate::meter::{Latency, process_cpu};
use crate::run::Job;

/// Figure 7, from memory.
pub(super) const WRITES: &str = "writes";
/// Figure 7, with cold caches and records in several files.
pub(super) const COLD_WRITES: &str = "cold-writes";
/// `esker load` beside prepared inserts.
pub(super) const LOAD: &str = "load";

/// Keys of a dataset at scale 1.
pub(super) const KEYS: u64 = 20_000;
/// Different values.
pub(super) const VALUES: u64 = 10_000;
/// Rounds in which subjects take turns; one more before them is not counted.
const ROUNDS: u64 = 5;
/// Writes of a round at scale 1.
const OPS: u64 = 6_000;
/// The longest round.
const LONGEST: Duration = Duration::from_secs(20);

/// The subjects of a store.
pub(super) fn subjects(task: &Task) -> Vec<How> {
    match task.server.kind {
        Kind::Cassandra => vec![How::Esker, How::InPlace, How::NoIndex, How::Sai],
        Kind::HBase => vec![How::Esker, How::InPlace, How::NoIndex],
    }
}

/// Writes all keys of each subject so many times, each time to files of their own.
pub(super) fn fill(
    space: &Space,
    subjects: &[Subject],
    job: &Job,
    task: &Task,
    files: u64,
) -> Result<()> {
    for turn in 0..files {
        for subject in subjects {
            let mut records = Records::new(VALUES, job.seed + turn);
            let keys = task.scaled(KEYS);
            all_keys(keys, &mut records, &mut |group| subject.put(group))?;
        }
        if files > 1 {
            space.flush()?;
        }
    }
    Ok(())
}

/// What a subject did in all rounds.
pub(super) struct Turns {
    pub(super) done: Driven,
    /// Operations a second, round by round.
    pub(super) rates: Vec<f64>,
    /// Reads of the servers.
    pub(super) reads: Reads,
    /// Processor time of the servers and of this process, in µs.
    pub(super) cpu_us: f64,
}

/// Rounds in which subjects take turns.
pub(super) fn turns(
    server: &Server,
    subjects: &[Subject],
    rounds: u64,
    load: &dyn Fn(u64) -> Load,
) -> Result<Vec<Turns>> {
    let mut all: Vec<Option<Turns>> = subjects.iter().map(|_| None).collect();
    for round in 0..=rounds {
        for (subject, sum) in subjects.iter().zip(&mut all) {
            let read = |_: u64, value: u64| subject.find(value).map(drop);
            let write = |records: &[Record]| subject.put(records);
            let before = (server.reads(), cpu_us(server));
            let done = drive(&load(round), &read, &write)?;
            let reads = server.reads().since(before.0);
            let cpu_us = cpu_us(server) - before.1;
            match sum {
                // The servers compile their code in the first round.
                _ if round == 0 => {}
                Some(sum) => {
                    sum.rates.push(done.per_second());
                    sum.done.add(&done)?;
                    sum.reads.disk += reads.disk;
                    sum.reads.calls += reads.calls;
                    sum.cpu_us += cpu_us;
                }
                None => {
                    let rates = vec![done.per_second()];
                    *sum = Some(Turns {
                        done,
                        rates,
                        reads,
                        cpu_us,
                    });
                }
            }
        }
    }
    Ok(all.into_iter().flatten().collect())
}

fn cpu_us(server: &Server) -> f64 {
    server.cpu_us() + process_cpu().as_secs_f64() * 1e6
}

/// The figures of a subject: its rate, and beside those of others, round by round.
pub(super) fn figures(
    subjects: &[Subject],
    turns: &[Turns],
    of: usize,
) -> Vec<(&'static str, f64)> {
    let Some(own) = turns.get(of) else {
        return Vec::new();
    };
    let ops = own.done.ops().max(1) as f64;
    let mut figures = vec![
        ("per_second", median(own.rates.clone())),
        ("disk_reads_per_op", own.reads.disk as f64 / 4096.0 / ops),
        ("read_calls_per_op", own.reads.calls as f64 / ops),
    ];
    figures.push(("cpu_us", own.cpu_us / ops));
    for (how, name, cpu_name) in [
        (How::InPlace, "times_in_place", "cpu_times_in_place"),
        (How::NoIndex, "times_no_index", "cpu_times_no_index"),
        (How::Sai, "times_sai", "cpu_times_sai"),
    ] {
        let other = subjects.iter().position(|subject| subject.how == how);
        if let Some(other) = other.and_then(|at| turns.get(at)) {
            let rates = own.rates.iter().zip(&other.rates);
            let ratios = rates.map(|(own, other)| own / other.max(1e-9));
            figures.push((name, median(ratios.collect())));
            let cpu = other.cpu_us / other.done.ops().max(1) as f64;
            figures.push((cpu_name, cpu * ops / own.cpu_us.max(1e-9)));
        }
    }
    figures
}

fn compare(job: &Job, task: &Task, cache: &str, files: u64) -> Result<()> {
    let space = Space::new(
        &task.server,
        &format!("bench_writes_{cache}_{}", job.repeat),
        "",
    )?;
    let made = subjects(task).into_iter().map(|how| space.subject(how));
    let made: Vec<Subject> = made.collect::<Result<_>>()?;
    fill(&space, &made, job, task, files)?;
    let load = |round: u64| Load {
        clients: CLIENTS,
        ops: task.scaled(OPS),
        most: LONGEST,
        reads: 0,
        keys: task.scaled(KEYS),
        values: VALUES,
        seed: job.seed + 100 + round,
    };
    let run = || turns(&task.server, &made, ROUNDS, &load);
    let done = match cache {
        "cold" => cold(&task.server, run)?,
        _ => run()?,
    };
    for (at, (subject, turns)) in made.iter().zip(&done).enumerate() {
        let parameters = [("cache", Json::from(cache))];
        let base = row(job, task, subject.how.name(), "write", &parameters);
        let figures = figures(&made, &done, at);
        let rows = driven(&base, &turns.done, &figures);
        if let Some(row) = rows.first() {
            job.report(row)?;
        }
    }
    Ok(())
}

/// Figure 7, from memory.
pub(super) fn writes(job: &Job, task: &Task) -> Result<()> {
    compare(job, task, "memory", 1)
}

/// Figure 7, with cold caches and each record in four files.
pub(super) fn cold_writes(job: &Job, task: &Task) -> Result<()> {
    compare(job, task, "cold", 4)
}

/// `esker load` of lines of JSON, beside the same rows and entries by prepared inserts.
pub(super) fn load(job: &Job, task: &Task) -> Result<()> {
    let Some(esker) = &task.esker else {
        let hint = "the command line's program is missing: cargo build --release -p esker-cli";
        return Err(Failure::new(hint));
    };
    let keys = task.scaled(3 * KEYS);
    let file = job.scratch.join("records.ndjson");
    let mut records = Records::new(VALUES, job.seed);
    let made: Vec<Record> = (0..keys).map(|key| records.record(key)).collect();
    let mut out = std::io::BufWriter::new(std::fs::File::create(&file)?);
    for record in &made {
        writeln!(out, "{}", record.json)?;
    }
    out.flush()?;
    let keyspace = format!("bench_load_{}", job.repeat);
    Space::new(&task.server, &keyspace, "")?;
    let inserts = Inserts::new(&task.server, &keyspace)?;
    let (mut own, mut bare) = (Vec::new(), Vec::new());
    for round in 0..4 {
        let start = Instant::now();
        for group in made.chunks(2048) {
            inserts.put(group)?;
        }
        let inserted = start.elapsed().as_secs_f64();
        let address = task.server.address(&keyspace);
        let start = Instant::now();
        let name = format!("loaded{round}");
        let status = Command::new(esker)
            .args([
                "load",
                &address,
                &name,
                "--key",
                "id",
                "--index",
                "v:composite:int",
            ])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(Failure::new(format!("esker load: {status}")));
        }
        // The servers compile their code in the first round.
        if round > 0 {
            own.push(start.elapsed().as_secs_f64());
            bare.push(inserted);
        }
    }
    for (subject, seconds) in [("esker load", own), ("prepared inserts", bare)] {
        let mut latency = Latency::new()?;
        seconds
            .iter()
            .for_each(|s| latency.add(Duration::from_secs_f64(*s)));
        let seconds = median(seconds);
        let base = row(job, task, subject, "load", &[]);
        let mut timed = timed(base, &latency, seconds);
        timed.ops = keys;
        job.report(&with(
            timed,
            &[("per_second", keys as f64 / seconds.max(1e-9))],
        ))?;
    }
    Ok(())
}
