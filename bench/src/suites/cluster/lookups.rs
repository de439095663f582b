//! Lookups of rare values beside the server's own index, with what they ask of the nodes; and
//! lookups of ten records beside batches of ten gets.

use std::time::Instant;

use serde_json::Value as Json;

use super::data::{Record, Records};
use super::repairs::repaired;
use super::sai::Session;
use super::server::Kind;
use super::subject::{How, Space, Subject};
use super::task::{Task, row, timed, with};
use super::writes::KEYS;
use crate::failure::{Failure, Result};
use crate::meter::Latency;
use crate::run::Job;

/// Lookups.
pub(super) const LOOKUPS: &str = "lookups";

/// Lookups of a kind at scale 1.
const OPS: u64 = 1_500;

/// Each value has so many records: a value of every other key, then of the next.
fn value_of(key: u64, each: u64, turn: u64) -> u64 {
    key / each + turn * 1_000_000
}

pub(super) fn lookups(job: &Job, task: &Task) -> Result<()> {
    // One copy of each row, so that a node has a part of the data.
    let parameters = match (task.server.kind, task.server.nodes) {
        (Kind::Cassandra, 3) => "?replicas=1",
        _ => "",
    };
    let space = Space::new(
        &task.server,
        &format!("bench_look_{}", job.repeat),
        parameters,
    )?;
    let mut kinds = vec![How::Esker];
    if task.server.kind == Kind::Cassandra {
        kinds.push(How::Sai);
    }
    let keys = task.scaled(KEYS) / 10 * 10;
    for each in [1, 10] {
        for how in &kinds {
            let subject = space.old_named(*how, &format!("each{each}"))?;
            // The first values are obsolete.
            for turn in 0..2 {
                write(job, &subject, keys, each, turn)?;
            }
            if *how == How::Esker {
                repaired(&space, &subject)?;
            }
            space.flush()?;
            for table in subject.tables() {
                space.server.compact(&space.name, &table)?;
            }
            measure(job, task, &space, &subject, keys, each)?;
        }
    }
    Ok(())
}

fn write(job: &Job, subject: &Subject, keys: u64, each: u64, turn: u64) -> Result<()> {
    let mut records = Records::new(1, job.seed + turn);
    let mut group: Vec<Record> = Vec::new();
    for key in 0..keys {
        group.push(records.of(key, value_of(key, each, turn)));
        if group.len() == 512 || key + 1 == keys {
            subject.put(&group)?;
            group.clear();
        }
    }
    Ok(())
}

/// Lookups of values and of none, and batches of gets; each kind twice, of which one counts.
fn measure(
    job: &Job,
    task: &Task,
    space: &Space,
    subject: &Subject,
    keys: u64,
    each: u64,
) -> Result<()> {
    let counter = match task.server.kind {
        Kind::Cassandra => Some(Session::new(&task.server)?),
        Kind::HBase => None,
    };
    let asked = || match &counter {
        Some(counter) => counter.requests_of_nodes(&space.name),
        None => Ok(0),
    };
    let mut rng = fastrand::Rng::with_seed(job.seed + 600);
    for (turn, operation) in ["lookup", "gets", "lookup", "gets", "none"]
        .into_iter()
        .enumerate()
    {
        let ops = task.scaled(OPS);
        let before = asked()?;
        let mut latency = Latency::new()?;
        for _ in 0..ops {
            let expected = if operation == "none" { 0 } else { each };
            let key = rng.u64(0..keys);
            let value = match operation {
                "none" => value_of(key, each, 7),
                _ => value_of(key, each, 1),
            };
            let of: Vec<u64> = (0..each).map(|_| rng.u64(0..keys)).collect();
            let at = Instant::now();
            let found = match operation {
                "gets" => subject.get(&of)?,
                _ => subject.find(value)?,
            };
            latency.add(at.elapsed());
            if found as u64 != expected {
                let text = format!("{operation} of value {value}: {found}, not {expected}");
                return Err(Failure::new(text));
            }
        }
        if turn < 2 {
            continue;
        }
        let requests = asked()?.saturating_sub(before) as f64 / ops as f64;
        let parameters = [("records", Json::from(each))];
        let base = row(job, task, subject.how.name(), operation, &parameters);
        let timed = timed(base, &latency, latency.wall().as_secs_f64());
        job.report(&match counter {
            Some(_) => with(timed, &[("node_reads", requests)]),
            None => timed,
        })?;
    }
    Ok(())
}
