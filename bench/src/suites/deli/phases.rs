//! What each child does.

use std::time::Duration;

use esker::maintain::Compaction;
use esker::maintain::{RepairMethod, RepairOptions};
use fastrand::Rng;
use serde_json::Value as Json;

use super::sqlite::Sqlite;
use super::{Task, What, Who};
use crate::failure::{Failure, Result};
use crate::measure::Row;
use crate::meter::{Io, Latency, Measured, Meter};
use crate::run::Job;
use crate::suites::upkeep::session::{Limit, Parameters, Session};
use crate::suites::upkeep::store::{Range, Setup, Store, Strategy, Subject, Upsert};
use crate::workload::upserts::Upserts;

/// Gets at most.
const GETS_MOST: u64 = 20_000;
/// And at least.
const GETS_LEAST: u64 = 100;
/// Operations of a mix that are made ahead of being done.
const AHEAD: usize = 128;

/// Does the task.
pub fn run(job: &Job, task: &Task, upserts: &Upserts) -> Result<()> {
    let cache = Json::from(task.cache.name());
    let parameters = Parameters::from([("cache".to_string(), cache)]);
    let esker = |setup: &Setup| {
        let parameters = parameters.clone();
        Session::create(job, upserts, parameters, || {
            Store::create(&job.scratch, setup)
        })
    };
    match (task.what, task.who) {
        (What::Compaction, _) => compaction(task, &mut esker(&task.setup(Strategy::NoIndex))?),
        (What::Writes, Who::Esker(strategy)) => writes(task, &mut esker(&task.setup(strategy))?),
        (What::PlainMix, Who::Esker(strategy)) => {
            mix(task, &mut esker(&task.setup(strategy))?, Read::Key)
        }
        (What::Mix, Who::Esker(strategy)) => {
            mix(task, &mut esker(&task.setup(strategy))?, Read::Value)
        }
        (What::Mix, Who::Sqlite) => {
            let mut session = Session::create(job, upserts, parameters.clone(), || {
                Sqlite::create(&job.scratch, task.memory / 2)
            })?;
            mix(task, &mut session, Read::Value)
        }
        (What::Repair, who) => {
            let strategy = match who {
                Who::Esker(strategy) => strategy,
                _ => Strategy::DeferredStaged,
            };
            repair(task, &mut esker(&task.setup(strategy))?)
        }
        (What::Totals, Who::Esker(strategy)) => totals(task, &mut esker(&task.setup(strategy))?),
        (_, Who::Before) => Err(Failure::new("there is nothing to repair in this")),
        (_, Who::Sqlite) => Err(Failure::new("SQLite has no part in this")),
    }
}

/// Figure 1.
fn compaction(task: &Task, session: &mut Session<'_, Store>) -> Result<()> {
    session.upsert("compaction", task.writes)?;
    for when in ["before", "after"] {
        if when == "after" {
            session.store.compact()?;
        }
        session.check_records()?;
        session.store.reopen()?;
        let mut rng = session.rng(1);
        let (upserts, limit) = (
            session.upserts,
            Limit {
                most: GETS_MOST,
                least: GETS_LEAST,
                time: Duration::from_millis(task.time_ms),
            },
        );
        let mut row = session.measure("compaction", "get", &[], limit, |store| {
            let key = upserts.key(upserts.number(rng.usize(0..task.writes)));
            let mut records = 0;
            store.get(key, &mut |_| records += 1)?;
            Ok(records)
        })?;
        row.subject = format!("{when} compaction");
        row.figures
            .insert("data_runs".into(), session.store.runs()?.0 as f64);
        session.report(&row)?;
    }
    Ok(())
}

/// Figure 7.
fn writes(task: &Task, session: &mut Session<'_, Store>) -> Result<()> {
    let row = session.upsert("writes", task.writes)?;
    session.check_records()?;
    if task.who != Who::Esker(Strategy::NoIndex) {
        session.check_index()?;
    }
    session.report(&row)
}

/// One compaction, with what repairs the index: as the records are merged, or by a pass over them before or
/// after.
fn compact(task: &Task, store: &Store) -> Result<()> {
    let after = match task.who {
        Who::Esker(Strategy::DeferredStaged) => Some(Compaction::After),
        Who::Before => Some(Compaction::Before),
        _ => None,
    };
    if let Some(compaction) = after {
        store.repair(&RepairOptions {
            method: RepairMethod::Primary { compaction },
            ..RepairOptions::default()
        })?;
    }
    // Of the index, and of the records where they are not merged yet.
    store.compact()
}

/// Once is all that there is to measure.
const ONCE: Limit = Limit {
    most: 1,
    least: 1,
    time: Duration::ZERO,
};

/// Figure 9.
fn repair(task: &Task, session: &mut Session<'_, Store>) -> Result<()> {
    session.upsert("repair", task.writes)?;
    session.store.reopen()?;
    let more = [("versions", Json::from(task.versions))];
    let mut row = session.measure("repair", "compact", &more, ONCE, |store| {
        compact(task, store)?;
        Ok(0)
    })?;
    session.check()?;
    row.subject = match task.who {
        Who::Esker(Strategy::DeferredUnrepaired) => "no repair",
        Who::Esker(Strategy::Deferred) => "streaming",
        Who::Esker(Strategy::DeferredStaged) => "staged",
        _ => task.who.name(),
    }
    .to_string();
    session.report(&row)
}

/// Table II.
fn totals(task: &Task, session: &mut Session<'_, Store>) -> Result<()> {
    let mut online = session.upsert("totals", task.writes)?;
    let mut offline = session.measure("totals", "offline", &[], ONCE, |store| {
        compact(task, store)?;
        Ok(0)
    })?;
    session.check()?;
    let reads = |row: &Row| row.ops as f64 * row.figures.get("disk_reads").unwrap_or(&0.0);
    let (before, after) = (reads(&online), reads(&offline));
    // All writes are one operation here.
    let whole = |row: &mut Row, reads: f64| {
        row.ops = 1;
        row.figures.retain(|name, _| name == "disk_reads");
        row.figures.insert("disk_reads".into(), reads);
        row.figures.insert("total_seconds".into(), row.seconds);
    };
    let mut both = Row {
        operation: "both".to_string(),
        seconds: online.seconds + offline.seconds,
        ..online.clone()
    };
    online.operation = "online".to_string();
    whole(&mut online, before);
    whole(&mut offline, after);
    whole(&mut both, before + after);
    [online, offline, both]
        .iter()
        .try_for_each(|row| session.report(row))
}

/// What a read of a mix is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    /// The record of a key.
    Key,
    /// The records with a value.
    Value,
}

/// Figures 6 and 8: half of the writes are there, then reads (of keys and values that were written) and
/// further writes.
fn mix<S: Subject>(task: &Task, session: &mut Session<'_, S>, read: Read) -> Result<()> {
    let experiment = task.what.experiment();
    session.upsert(experiment, task.writes / 2)?;
    session.check_records()?;
    if read == Read::Value {
        session.check_index()?;
    }
    let time = Duration::from_millis(task.time_ms);
    let mut rng = session.rng(u64::from(task.reads));
    let (mut reads, mut writes) = (Latency::new()?, Latency::new()?);
    let mut records = vec![Upsert::default(); AHEAD];
    let (mut answers, mut meter) = (0u64, Meter::start()?);
    while meter.wall() < time && session.current.writes() + AHEAD <= task.writes {
        let first = session.current.writes();
        meter.aside(|| session.fill(first, &mut records));
        for _ in 0..AHEAD {
            let (took, of) = if rng.u32(0..100) < task.reads {
                let past = draw(session, &mut rng);
                let store = &session.store;
                let visit = &mut |_: &[u8]| answers += 1;
                let took = match read {
                    Read::Key => meter.time(|| store.get(past.0, visit))?.1,
                    Read::Value => meter.time(|| store.find(&past.1, visit))?.1,
                };
                (took, &mut reads)
            } else {
                let record = &records[session.current.writes() - first];
                session.current.upsert();
                let store = &mut session.store;
                (meter.time(|| store.upsert(record))?.1, &mut writes)
            };
            of.add(took);
        }
    }
    let settling = std::time::Instant::now();
    session.store.settle()?;
    let settling = settling.elapsed().as_secs_f64();
    let measured = meter.finish()?;
    let more = [("reads", Json::from(task.reads))];
    let mut row = session.row(experiment, "all", &more, &measured);
    row.seconds += settling;
    row.figures.insert("settle_seconds".into(), settling);
    row.figures
        .insert("rows".into(), answers as f64 / reads.ops().max(1) as f64);
    session.check_records()?;
    session.report(&row)?;
    for (operation, latency) in [("read", reads), ("write", writes)] {
        if latency.ops() > 0 {
            let measured = Measured {
                latency,
                cpu: Duration::ZERO,
                io: Io::default(),
            };
            session.report(&session.row(experiment, operation, &more, &measured))?;
        }
    }
    Ok(())
}

/// The key, and the value, of a write that was made.
fn draw<S: Subject>(session: &Session<'_, S>, rng: &mut Rng) -> (u64, Range) {
    let (upserts, writes) = (session.upserts, session.current.writes());
    let key = upserts.key(upserts.number(rng.usize(0..writes)));
    let value = upserts.value(rng.usize(0..writes), 0);
    let range = Range {
        attribute: 0,
        lo: value,
        hi: value,
    };
    (key, range)
}
