//! Gets before and after a compaction (figure 1), reads and writes without an index (figure 6), and
//! reads by value and writes (figure 8).

use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::data::{Keys, Record};
use super::driver::{CLIENTS, Load, cold, drive};
use super::subject::{How, Space, Subject};
use super::task::{Task, driven, row, timed, with};
use super::writes::{KEYS, VALUES, figures, fill, subjects, turns};
use crate::failure::{Failure, Result};
use crate::meter::Latency;
use crate::run::Job;

/// Figure 1.
pub(super) const COMPACTION: &str = "compaction";
/// Figure 6.
pub(super) const PLAIN_MIX: &str = "plain-mix";
/// Figure 8.
pub(super) const MIX: &str = "mix";

/// Shares of reads, more of them where writes prevail, as in the paper.
const READS: [u32; 6] = [0, 10, 25, 50, 75, 100];
/// Files in which the versions of a record lie.
const FILES: u64 = 6;

/// Gets before and after a compaction, the caches cold.
pub(super) fn compaction(job: &Job, task: &Task) -> Result<()> {
    let space = Space::new(&task.server, &format!("bench_files_{}", job.repeat), "")?;
    let subject = space.subject(How::NoIndex)?;
    fill(&space, std::slice::from_ref(&subject), job, task, FILES)?;
    for (state, is_counted) in [("warm-up", false), ("before", true), ("after", true)] {
        if state == "after" {
            for table in subject.tables() {
                space.server.compact(&space.name, &table)?;
            }
        }
        let before = task.server.reads();
        let latency = cold(&task.server, || gets(job, task, &subject))?;
        let reads = task.server.reads().since(before);
        if !is_counted {
            continue;
        }
        let name = format!("{state} compaction");
        let ops = latency.ops().max(1) as f64;
        let base = row(job, task, &name, "get", &[("cache", "cold".into())]);
        let row = timed(base, &latency, latency.wall().as_secs_f64());
        let figures = [
            ("disk_reads", reads.disk as f64 / 4096.0 / ops),
            ("read_calls_per_op", reads.calls as f64 / ops),
        ];
        job.report(&with(row, &figures))?;
    }
    Ok(())
}

/// Gets by one client, of any key.
fn gets(job: &Job, task: &Task, subject: &Subject) -> Result<Latency> {
    let mut keys = Keys::new(task.scaled(KEYS), job.seed + 50);
    let mut latency = Latency::new()?;
    let start = Instant::now();
    for _ in 0..task.scaled(2_000) {
        let key = keys.uniform();
        let at = Instant::now();
        let found = subject.get(&[key])?;
        latency.add(at.elapsed());
        if found != 1 {
            return Err(Failure::new(format!("key {key} is missing")));
        }
        if start.elapsed() > Duration::from_secs(20) {
            break;
        }
    }
    Ok(latency)
}

/// Reads by key and writes, by the share of reads.
pub(super) fn plain_mix(job: &Job, task: &Task) -> Result<()> {
    let space = Space::new(&task.server, &format!("bench_plain_{}", job.repeat), "")?;
    let subject = space.subject(How::NoIndex)?;
    fill(&space, std::slice::from_ref(&subject), job, task, FILES)?;
    let read = |key: u64, _: u64| subject.get(&[key]).map(drop);
    let write = |records: &[Record]| subject.put(records);
    cold(&task.server, || {
        for (at, reads) in [50].into_iter().chain(READS).enumerate() {
            let load = Load {
                clients: CLIENTS,
                ops: task.scaled(6_000),
                most: Duration::from_secs(10),
                reads,
                keys: task.scaled(KEYS),
                values: VALUES,
                seed: job.seed + 200 + at as u64,
            };
            let done = drive(&load, &read, &write)?;
            // The servers compile their code at first.
            if at == 0 {
                continue;
            }
            let base = row(job, task, "no index", "all", &[("reads", reads.into())]);
            for row in driven(&base, &done, &[("per_second", done.per_second())]) {
                job.report(&row)?;
            }
        }
        Ok(())
    })
}

/// Reads by value and writes, by the share of reads.
pub(super) fn mix(job: &Job, task: &Task) -> Result<()> {
    let space = Space::new(&task.server, &format!("bench_mix_{}", job.repeat), "")?;
    let made = subjects(task)
        .into_iter()
        .filter(|how| *how != How::NoIndex);
    let made: Vec<Subject> = made.map(|how| space.subject(how)).collect::<Result<_>>()?;
    fill(&space, &made, job, task, 4)?;
    cold(&task.server, || {
        for (at, reads) in READS.into_iter().enumerate() {
            let load = |round: u64| Load {
                clients: CLIENTS,
                ops: task.scaled(2_000),
                most: Duration::from_secs(8),
                reads,
                keys: task.scaled(KEYS),
                values: VALUES,
                seed: job.seed + 300 + 20 * at as u64 + round,
            };
            let done = turns(&task.server, &made, 3, &load)?;
            for (place, (subject, turns)) in made.iter().zip(&done).enumerate() {
                let parameters = [("reads", Json::from(reads))];
                let base = row(job, task, subject.how.name(), "all", &parameters);
                for row in driven(&base, &turns.done, &figures(&made, &done, place)) {
                    job.report(&row)?;
                }
            }
        }
        Ok(())
    })
}
