//! Writes and one compaction together (table II).

use std::time::Duration;

use super::data::Record;
use super::driver::{CLIENTS, Load, cold, drive};
use super::repairs::{drop_all, hook, made, repaired, settle};
use super::server::Kind;
use super::subject::How;
use super::task::{Task, row, with};
use super::writes::{KEYS, VALUES, fill};
use crate::failure::Result;
use crate::run::Job;

/// Table II.
pub(super) const TOTALS: &str = "totals";

/// Writes with cold caches, then a compaction: with a repair for the index that needs one, inside
/// the compaction where the store can do that.
pub(super) fn totals(job: &Job, task: &Task) -> Result<()> {
    let is_streaming = task.server.kind == Kind::HBase && task.coprocessor.is_some();
    for (number, how) in [How::Esker, How::Esker, How::InPlace]
        .into_iter()
        .enumerate()
    {
        let parameters = hook(task, is_streaming && how == How::Esker)?;
        let name = format!("bench_totals_{number}_{}", job.repeat);
        let space = super::subject::Space::new(&task.server, &name, &parameters)?;
        let is_hooked = is_streaming && how == How::Esker;
        let subject = made(&space, is_hooked, how)?;
        fill(&space, std::slice::from_ref(&subject), job, task, 4)?;
        let load = Load {
            clients: CLIENTS,
            ops: task.scaled(30_000),
            most: Duration::from_secs(60),
            reads: 0,
            keys: task.scaled(KEYS),
            values: VALUES,
            seed: job.seed + 500,
        };
        let read = |_: u64, _: u64| Ok(());
        let write = |records: &[Record]| subject.put(records);
        let mut figures = Vec::new();
        cold(&task.server, || {
            let before = task.server.reads();
            let done = drive(&load, &read, &write)?;
            let online = task.server.reads().since(before);
            let scale = load.ops as f64 / done.ops().max(1) as f64;
            let seconds = done.wall.as_secs_f64() * scale;
            figures.push(("online", seconds, online.disk, online.calls));
            settle(is_hooked && number > 0);
            let before = task.server.reads();
            let tables = subject.tables();
            let records = tables.first().cloned().unwrap_or_default();
            let mut offline_s = task.server.compact(&name, &records)?;
            if how == How::Esker && !is_streaming {
                let begun = std::time::Instant::now();
                repaired(&space, &subject)?;
                offline_s += begun.elapsed().as_secs_f64();
            }
            let offline = task.server.reads().since(before);
            figures.push(("offline", offline_s, offline.disk, offline.calls));
            figures.push((
                "both",
                seconds + offline_s,
                online.disk + offline.disk,
                online.calls + offline.calls,
            ));
            Ok(())
        })?;
        // The servers compile their code in the first one.
        if number > 0 {
            for (operation, seconds, disk, calls) in figures {
                let mut base = row(job, task, how.name(), operation, &[]);
                base.seconds = seconds;
                let figures = [
                    ("total_seconds", seconds),
                    ("disk_reads", disk as f64 / 4096.0),
                    ("read_calls", calls as f64),
                ];
                job.report(&with(base, &figures))?;
            }
        }
        drop_all(&space)?;
    }
    Ok(())
}
