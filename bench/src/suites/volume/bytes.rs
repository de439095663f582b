//! What is written for a byte that a user writes.

use std::time::Duration;

use rustix::fs::sync;

use super::cluster::{Cluster, Setup};
use super::load::{Kind, Load, Order};
use super::naive::Naive;
use super::task::{Task, row, timed, with};
use super::{load, proc};
use crate::failure::Result;
use crate::run::Job;

/// A volume that is written for the first time.
pub const FILL: &str = "fill";
/// A volume that is overwritten in random places.
pub const OVERWRITES: &str = "overwrites";
/// Sizes of writes in KiB.
pub const SIZES: [u32; 4] = [4, 16, 64, 128];
/// Shares of live bytes below which vacuum works, in percent.
pub const LIVE: [u8; 2] = [50, 70];
/// The replicas.
const REPLICAS: f64 = 3.0;

fn sequential(job: &Job, kib: u32, most: u64) -> Load {
    Load {
        kind: Kind::Write,
        bytes: kib << 10,
        depth: 16,
        order: Order::Sequential,
        seed: job.seed,
        most: most / u64::from(kib << 10),
        time: Duration::from_secs(600),
    }
}

/// Counts what reaches the disk.
struct Counts {
    device: u64,
    processes: Vec<(u32, u64)>,
}

impl Counts {
    fn now(job: &Job, pids: &[u32]) -> Counts {
        sync();
        Counts {
            device: proc::device_written(&job.scratch),
            processes: pids.iter().map(|pid| (*pid, proc::written(*pid))).collect(),
        }
    }

    /// Bytes since then, of the device and of the processes.
    fn since(&self, job: &Job) -> (f64, f64) {
        let of = |(pid, before): &(u32, u64)| proc::written(*pid).saturating_sub(*before);
        let processes: u64 = self.processes.iter().map(of).sum();
        sync();
        let device = proc::device_written(&job.scratch).saturating_sub(self.device);
        (device as f64, processes as f64)
    }
}

/// Fills a volume, by size of the writes: a cluster's, and the store's with a log and a state.
pub fn fill(job: &Job, task: &Task) -> Result<()> {
    let size = task.mib(512.0);
    for kib in SIZES {
        let parameters = [("kib", kib.into())];
        let one = sequential(job, kib, size);
        let dir = job.scratch.join(format!("esker{kib}"));
        let cluster = Cluster::start(&task.esker, &dir, Setup::default(), size)?;
        let counts = Counts::now(job, &cluster.pids());
        let taken = load::run(&mut cluster.connect(0)?, &one)?;
        cluster.settle()?;
        let (device, processes) = counts.since(job);
        let (written, user) = cluster.stop_and_count()?;
        let made = timed(
            row(job, "esker", "write", &parameters),
            &taken,
            0.0,
            one.bytes,
        );
        let each = REPLICAS * size as f64;
        let figures = [
            ("written", written / user.max(1.0)),
            ("device", device / each),
            ("dirtied", processes / each),
        ];
        job.report(&with(made, &figures))?;
        std::fs::remove_dir_all(&dir)?;

        let dir = job.scratch.join(format!("naive{kib}"));
        let naive = Naive::start(job, &dir, size)?;
        let mut client = naive.connect()?;
        let counts = Counts::now(job, &naive.pids());
        let taken = load::run(&mut client, &one)?;
        let (device, processes) = counts.since(job);
        let written = naive.written()? as f64;
        let made = timed(
            row(job, "log and state", "write", &parameters),
            &taken,
            0.0,
            one.bytes,
        );
        let figures = [
            ("written", written / each),
            ("device", device / each),
            ("dirtied", processes / each),
        ];
        job.report(&with(made, &figures))?;
        drop(naive);
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

/// Overwrites blocks of 4 KiB of a full volume: three times its size, then once more, counted.
pub fn overwrites(job: &Job, task: &Task) -> Result<()> {
    let size = task.mib(512.0);
    for live in LIVE {
        let dir = job.scratch.join(format!("live{live}"));
        let setup = Setup {
            live_percent: Some(live),
            is_unthrottled: true,
            ..Setup::default()
        };
        let cluster = Cluster::start(&task.esker, &dir, setup, size)?;
        let mut client = cluster.connect(0)?;
        load::run(&mut client, &sequential(job, 128, size))?;
        let random = |seed, times: u64| Load {
            depth: 64,
            order: Order::Random(size),
            seed,
            ..sequential(job, 4, size * times)
        };
        load::run(&mut client, &random(job.seed, 3))?;
        let before = cluster.settle()?;
        let counts = Counts::now(job, &cluster.pids());
        let taken = load::run(&mut client, &random(job.seed + 1, 1))?;
        let after = cluster.settle()?;
        let (device, processes) = counts.since(job);
        let sum = |of: fn(&esker_volume::admin::Status) -> u64| {
            let after: u64 = after.iter().map(of).sum();
            let before: u64 = before.iter().map(of).sum();
            after.saturating_sub(before) as f64
        };
        let user = sum(|s| s.user).max(1.0);
        let share = after.iter().map(|s| s.live as f64 / s.bytes.max(1) as f64);
        let parameters = [("live_percent", live.into())];
        let made = timed(
            row(job, "esker", "overwrite", &parameters),
            &taken,
            0.0,
            4096,
        );
        let figures = [
            (
                "written",
                (sum(|s| s.written) + sum(|s| s.map_written)) / user,
            ),
            ("map", sum(|s| s.map_written) / user),
            ("moved", sum(|s| s.moved) / user),
            ("live", share.sum::<f64>() / REPLICAS),
            ("device", device / user),
            ("dirtied", processes / user),
        ];
        job.report(&with(made, &figures))?;
        drop(cluster);
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}
