//! Where memory ends: what a broker needs that keeps everything in memory, and what DualDB needs with a budget, the longer
//! subscriptions and publications live. Each in a process of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::brokers::{Esker, Naive, Setup, Subject, Told, Who};
use super::load::{Load, Operations, Places};
use crate::failure::Result;
use crate::measure::Row;
use crate::meter::{self, Latency};
use crate::run::Job;

/// The experiment's name.
pub const EXPERIMENT: &str = "memory";
/// Who takes part.
pub const WHO: [Who; 2] = [Who::Memory, Who::Dual];
/// Operations of a simulated second.
const PER_SECOND: u64 = 10_000;
/// Operations that are made ahead of being done.
const AHEAD: usize = 1000;
/// The last operations, by all: those that are timed.
const TIMED: f64 = 0.1;

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// Who does it.
    pub who: Who,
    /// Publications and subscriptions that are alive at a time.
    pub alive: usize,
    /// Bytes of memory that a store has.
    pub memory: usize,
}

impl Task {
    fn load(&self) -> Load {
        // Half of the operations are alive for twice the reach, the others for the reach.
        let reach = (self.alive as u64 * 2000 / 3 / PER_SECOND).max(1);
        Load {
            per_second: PER_SECOND,
            shares: (1, 1),
            places: Places::Grid,
            reach: reach as i64,
        }
    }
}

/// Operates until as many are alive as there will be, and goes on a while.
pub fn run(job: &Job, task: &Task) -> Result<()> {
    meter::forget_peak()?;
    let harness = meter::memory()?.0;
    let load = task.load();
    let mut naive = Naive::new(load.reach);
    let mut store = None;
    let subject: &mut dyn Subject = match task.who {
        Who::Memory => &mut naive,
        who => {
            let setup = Setup {
                memory: task.memory,
                is_direct: false,
                joins: false,
                load,
            };
            store.insert(Esker::create(&job.scratch, who, setup)?)
        }
    };
    let growing = (2 * load.reach) as u64 * PER_SECOND / 1000;
    let timed = ((growing as f64 * TIMED) as u64).max(AHEAD as u64);
    let mut operations = Operations::new(load, job.seed);
    let (mut done, mut told, mut latency) = (0, Told::default(), Latency::new()?);
    while done < growing + timed {
        let all = operations.take(AHEAD);
        for operation in &all {
            let start = std::time::Instant::now();
            subject.act(operation, &mut told)?;
            if done >= growing {
                latency.add(start.elapsed());
            }
            done += 1;
        }
    }
    subject.settle()?;
    let memory = meter::memory()?.1.saturating_sub(harness);
    let disk = meter::disk_bytes(&job.scratch)?;
    job.report(&Row {
        suite: job.suite.clone(),
        experiment: EXPERIMENT.to_string(),
        subject: task.who.name().to_string(),
        operation: "operation".to_string(),
        parameters: BTreeMap::from([("alive".to_string(), Json::from(task.alive))]),
        repeat: job.repeat,
        ops: latency.ops(),
        seconds: latency.wall().as_secs_f64(),
        cpu_us: 0.0,
        p50_us: latency.quantile_us(0.5),
        p99_us: latency.quantile_us(0.99),
        p999_us: latency.quantile_us(0.999),
        max_us: latency.quantile_us(1.0),
        figures: BTreeMap::from([
            ("memory_bytes".to_string(), memory as f64),
            ("budget_bytes".to_string(), task.memory as f64),
            ("disk_bytes".to_string(), disk as f64),
            ("told".to_string(), told.count as f64),
            (
                "mean_us".to_string(),
                latency.wall().as_secs_f64() * 1e6 / latency.ops().max(1) as f64,
            ),
        ]),
    })
}
