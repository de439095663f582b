//! What an experiment hands to a process of its own, and the rows that it reports.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::load;
use crate::measure::Row;
use crate::run::Job;

/// The suite's name.
pub const SUITE: &str = "volume";

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Share {
    /// An experiment.
    Experiment(Task),
    /// A replica of the store with a log and a state.
    Naive(Replica),
}

/// An experiment's settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) esker: PathBuf,
    pub(super) scale: f64,
}

impl Task {
    /// So many MiB at scale 1, in bytes; whole MiB, and at least 16.
    pub(super) fn mib(&self, mib: f64) -> u64 {
        ((mib * self.scale) as u64).max(16) << 20
    }
}

/// A row without times.
pub(super) fn row(job: &Job, subject: &str, operation: &str, parameters: &[(&str, Json)]) -> Row {
    let parameters = parameters
        .iter()
        .map(|(name, value)| (name.to_string(), value.clone()));
    Row {
        suite: job.suite.clone(),
        experiment: job.experiment.clone(),
        subject: subject.to_string(),
        operation: operation.to_string(),
        parameters: parameters.collect(),
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

/// Puts what a load took into a row.
pub(super) fn timed(mut row: Row, taken: &load::Taken, cpu_us: f64, bytes: u32) -> Row {
    let latency = &taken.latency;
    let (ops, seconds) = (latency.ops(), taken.wall.as_secs_f64());
    row.ops = ops;
    row.seconds = seconds;
    row.cpu_us = cpu_us / ops.max(1) as f64;
    row.p50_us = latency.quantile_us(0.5);
    row.p99_us = latency.quantile_us(0.99);
    row.p999_us = latency.quantile_us(0.999);
    row.max_us = latency.quantile_us(1.0);
    let rate = ops as f64 * f64::from(bytes) / seconds.max(1e-9) / 1048576.0;
    with(row, &[("mib_per_second", rate)])
}

/// What a replica is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Replica {
    pub(super) dir: PathBuf,
    pub(super) size: u64,
    /// Where it listens for the leader, or for whoever asks how much it wrote.
    pub(super) listen: String,
    /// The leader alone: where it serves NBD, and where the others listen.
    pub(super) leads: Option<(String, Vec<String>)>,
}
