//! What an experiment is given, and the rows that it reports.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::driver::Driven;
use super::server::Server;
use crate::measure::Row;
use crate::meter::Latency;
use crate::run::Job;

/// The suite's name.
pub const SUITE: &str = "cluster";

/// What an experiment is given.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) server: Server,
    pub(super) scale: f64,
    /// The command line's program, if there is one.
    pub(super) esker: Option<PathBuf>,
    /// HBase's coprocessor, if there is one.
    pub(super) coprocessor: Option<PathBuf>,
}

impl Task {
    /// So many at scale 1; at least 16.
    pub(super) fn scaled(&self, at_one: u64) -> u64 {
        ((at_one as f64 * self.scale) as u64).max(16)
    }
}

/// A row of a subject, with the cluster in its parameters.
pub(super) fn row(
    job: &Job,
    task: &Task,
    subject: &str,
    operation: &str,
    parameters: &[(&str, Json)],
) -> Row {
    let mut all: BTreeMap<String, Json> = parameters
        .iter()
        .map(|(name, value)| (name.to_string(), value.clone()))
        .collect();
    all.insert("store".to_string(), task.server.kind.name().into());
    all.insert("nodes".to_string(), task.server.nodes.into());
    Row {
        suite: job.suite.clone(),
        experiment: job.experiment.clone(),
        subject: subject.to_string(),
        operation: operation.to_string(),
        parameters: all,
        repeat: job.repeat,
        ops: 1,
        seconds: 0.0,
        cpu_us: 0.0,
        p50_us: 0.0,
        p99_us: 0.0,
        p999_us: 0.0,
        max_us: 0.0,
        figures: BTreeMap::new(),
    }
}

/// Sets figures of a row.
pub(super) fn with(mut row: Row, figures: &[(&str, f64)]) -> Row {
    let figures = figures
        .iter()
        .map(|(name, value)| (name.to_string(), *value));
    row.figures.extend(figures);
    row
}

/// Puts wall times into a row.
pub(super) fn timed(mut row: Row, latency: &Latency, seconds: f64) -> Row {
    row.ops = latency.ops();
    row.seconds = seconds;
    row.p50_us = latency.quantile_us(0.5);
    row.p99_us = latency.quantile_us(0.99);
    row.p999_us = latency.quantile_us(0.999);
    row.max_us = latency.quantile_us(1.0);
    let mean = latency.wall().as_secs_f64() * 1e3 / latency.ops().max(1) as f64;
    with(row, &[("mean_ms", mean)])
}

/// Puts what clients did into rows: of all operations, reads, writes.
pub(super) fn driven(base: &Row, done: &Driven, figures: &[(&str, f64)]) -> Vec<Row> {
    let seconds = done.wall.as_secs_f64();
    let mut rows = Vec::new();
    let mut all = done.reads.clone();
    // Histograms of the same bounds can be added.
    drop(all.absorb(&done.writes));
    for (operation, latency) in [
        ("all", &all),
        ("read", &done.reads),
        ("write", &done.writes),
    ] {
        if latency.ops() == 0 {
            continue;
        }
        let mut row = base.clone();
        row.operation = operation.to_string();
        let row = timed(row, latency, seconds);
        rows.push(match operation {
            "all" => with(row, figures),
            _ => row,
        });
    }
    rows
}
