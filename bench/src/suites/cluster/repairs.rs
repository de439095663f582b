//! Obsolete entries over time, and repair with a compaction (figure 9): none, staged, before the
//! compaction, and streaming in HBase's coprocessor.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use esker_cluster::{RepairOptions, Repaired};
use serde_json::Value as Json;

use super::data::{Record, Records, all_keys};
use super::driver::{CLIENTS, Load, cold, drive};
use super::server::{Kind, Reads};
use super::subject::{How, Space, Subject};
use super::task::{Task, row, with};
use super::writes::{KEYS, VALUES, fill};
use crate::failure::{Failure, Result};
use crate::run::Job;

/// Obsolete entries over time.
pub(super) const OBSOLETE: &str = "obsolete";
/// Figure 9.
pub(super) const REPAIR: &str = "repair";

/// Runs a repair over all that is obsolete.
pub(super) fn repaired(space: &Space, subject: &Subject) -> Result<Repaired> {
    let none = || Failure::new("nothing to repair");
    let name = subject.dataset().ok_or_else(none)?.name().to_string();
    // By a clock that is not behind.
    let dataset = space.store.dataset(&name)?;
    let done = dataset.repair(RepairOptions::default(), &mut |_| ControlFlow::Continue(()))?;
    match done.complete {
        true => Ok(done),
        false => Err(Failure::new("a repair has not ended")),
    }
}

/// Obsolete entries by writes, with and without reads, which remove what they find; and after a
/// repair.
pub(super) fn obsolete(job: &Job, task: &Task) -> Result<()> {
    let space = Space::new(&task.server, &format!("bench_obsolete_{}", job.repeat), "")?;
    let keys = task.scaled(KEYS);
    for (reads, name) in [(0, "writes alone"), (50, "half reads")] {
        let dataset = format!("esker_{reads}");
        let subject = space.old_named(How::Esker, &dataset)?;
        fill(&space, std::slice::from_ref(&subject), job, task, 1)?;
        let read = |_: u64, value: u64| subject.find(value).map(drop);
        let write = |records: &[Record]| subject.put(records);
        let mut written = 0;
        let report = |written: u64, operation: &str| -> Result<()> {
            let entries = space.entries(&subject)?;
            let share = 100.0 * entries.saturating_sub(keys) as f64 / entries.max(1) as f64;
            let base = row(job, task, name, operation, &[("writes", written.into())]);
            let figures = [
                ("entries", entries as f64),
                ("obsolete", entries.saturating_sub(keys) as f64),
                ("obsolete_percent", share),
            ];
            job.report(&with(base, &figures))
        };
        report(0, "write")?;
        for step in 0..4 {
            let load = Load {
                clients: CLIENTS,
                ops: task.scaled(5_000) * 100 / u64::from(100 - reads),
                most: Duration::from_secs(30),
                reads,
                keys,
                values: VALUES,
                seed: job.seed + 400 + step,
            };
            written += drive(&load, &read, &write)?.writes.ops();
            report(written, "write")?;
        }
        repaired(&space, &subject)?;
        report(written, "repair")?;
    }
    Ok(())
}

/// Ways to repair with a compaction.
const WAYS: [&str; 4] = ["no repair", "staged", "before compaction", "streaming"];

/// One compaction of all that was written.
pub(super) fn repair(job: &Job, task: &Task) -> Result<()> {
    // The servers compile their code in the first one.
    for (versions, way, is_counted) in [(3, "no repair", false)].into_iter().chain(
        [1, 3]
            .into_iter()
            .flat_map(|n| WAYS.map(|way| (n, way, true))),
    ) {
        if way == "streaming" && task.server.kind == Kind::Cassandra {
            continue;
        }
        let parameters = hook(task, way == "streaming")?;
        let number = WAYS.iter().position(|known| *known == way).unwrap_or(0);
        let of = u8::from(is_counted);
        let name = format!("bench_repair_{versions}_{number}_{of}_{}", job.repeat);
        let space = Space::new(&task.server, &name, &parameters)?;
        let subject = made(&space, way == "streaming", How::Esker)?;
        populate(&space, &subject, job, task, versions)?;
        settle(way == "streaming" && versions > 1);
        let tables = subject.tables();
        let records = tables.first().cloned().unwrap_or_default();
        let before = (task.server.reads(), Instant::now());
        let (mut compact_s, mut repair_s, mut found) = (0.0, 0.0, Repaired::default());
        let mut repair = || -> Result<()> {
            let begun = Instant::now();
            found = repaired(&space, &subject)?;
            repair_s = begun.elapsed().as_secs_f64();
            Ok(())
        };
        cold(&task.server, || {
            if way == "before compaction" {
                repair()?;
            }
            compact_s = task.server.compact(&name, &records)?;
            if way == "staged" {
                repair()?;
            }
            Ok(())
        })?;
        let reads = task.server.reads().since(before.0);
        let entries = space.entries(&subject)?;
        if is_counted {
            let parameters = [("versions", Json::from(versions))];
            let base = row(job, task, way, "compact", &parameters);
            let keys = task.scaled(KEYS);
            report(
                job,
                base,
                (compact_s, repair_s),
                reads,
                (found.obsolete, entries.saturating_sub(keys)),
            )?;
        }
        drop_all(&space)?;
    }
    Ok(())
}

/// A subject whose obsolete versions can be removed at once; with the coprocessor, which refuses
/// what is written late, a minute later ([`settle`]).
pub(super) fn made(space: &Space, is_hooked: bool, how: How) -> Result<Subject> {
    match is_hooked {
        true => space.subject(how),
        false => space.old_subject(how),
    }
}

/// Waits until a compaction may remove what has become obsolete.
pub(super) fn settle(is_needed: bool) {
    if is_needed {
        std::thread::sleep(Duration::from_secs(70));
    }
}

/// The parameters of an address with the coprocessor.
pub(super) fn hook(task: &Task, is_wanted: bool) -> Result<String> {
    if task.server.kind == Kind::Cassandra {
        return Ok(String::new());
    }
    if !is_wanted {
        return Ok("?regions=1".to_string());
    }
    let jar = task.coprocessor.as_deref().map(Path::display);
    let jar = jar.ok_or_else(|| {
        Failure::new("the coprocessor is missing: `mvn package` in crates/cluster/java makes it")
    })?;
    Ok(format!("?regions=1&coprocessor=file://{jar}"))
}

/// All keys, once or three times on average, in four files.
fn populate(space: &Space, subject: &Subject, job: &Job, task: &Task, versions: u64) -> Result<()> {
    let keys = task.scaled(KEYS);
    if versions > 1 {
        return fill(space, std::slice::from_ref(subject), job, task, versions);
    }
    let mut records = Records::new(VALUES, job.seed);
    let mut count = 0;
    all_keys(keys, &mut records, &mut |group| {
        subject.put(group)?;
        let before = count * 4 / keys;
        count += group.len() as u64;
        if count * 4 / keys > before {
            space.flush()?;
        }
        Ok(())
    })
}

pub(super) fn drop_all(space: &Space) -> Result<()> {
    for name in space.store.dataset_names()? {
        space.store.drop_dataset(&name)?;
    }
    Ok(())
}

fn report(
    job: &Job,
    row: crate::measure::Row,
    (compact_s, repair_s): (f64, f64),
    reads: Reads,
    (removed, left): (u64, u64),
) -> Result<()> {
    let total = compact_s + repair_s;
    let mut row = with(
        row,
        &[
            ("compact_seconds", compact_s),
            ("repair_seconds", repair_s),
            ("total_seconds", total),
            ("disk_reads", reads.disk as f64 / 4096.0),
            ("read_calls", reads.calls as f64),
            ("removed", removed as f64),
            ("obsolete", left as f64),
        ],
    );
    row.seconds = total;
    job.report(&row)
}
