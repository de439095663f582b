//! Nodes that die, that are slow, that get another disk, and that are away.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use esker_volume::nbd::Operation;
use rustix::process::Signal;

use super::cluster::{Cluster, PATIENCE, Setup, pause_until};
use super::load::{Kind, Load, Order};
use super::task::{Task, row, timed, with};
use super::{load, proc};
use crate::failure::{Failure, Result};
use crate::meter::Latency;
use crate::run::Job;

/// The leader is killed.
pub const FAIL_OVER: &str = "fail-over";
/// A node gets an empty disk.
pub const REBUILD: &str = "rebuild";
/// A follower stands still.
pub const MEMORY: &str = "memory";
/// How often the leader is killed.
const KILLS: usize = 20;
/// How long a slow node stands still.
const SLOW: Duration = Duration::from_millis(300);
/// Bytes of neighbouring blocks of a volume that one group has.
const RANGE: u64 = 4 << 20;

fn writes(job: &Job, kib: u32, depth: usize, most: u64, size: u64) -> Load {
    Load {
        kind: Kind::Write,
        bytes: kib << 10,
        depth,
        order: Order::Random(size),
        seed: job.seed,
        most,
        time: Duration::from_secs(600),
    }
}

/// Kills nodes that lead: how long until a write to each group is acknowledged. Then nodes stand
/// still for a moment, and no group may get another leader.
pub fn fail_over(job: &Job, task: &Task) -> Result<()> {
    let size = task.mib(256.0);
    let mut cluster = Cluster::start(&task.esker, &job.scratch, Setup::default(), size)?;
    let ranges = (size / RANGE).min(16);
    let mut latency = Latency::new()?;
    for number in 0..KILLS {
        cluster.settle()?;
        let (victim, client) = (number % 3, (number + 1) % 3);
        let mut client = cluster.connect(client)?;
        load::run(&mut client, &writes(job, 4, 16, 200, size))?;
        let all = (0..ranges).map(|range| Operation::Write {
            offset: range * RANGE,
            data: vec![number as u8; 4096],
            fua: true,
        });
        let all: Vec<Operation> = all.collect();
        cluster.kill(victim)?;
        let start = Instant::now();
        let (mut last, mut failed) = (Duration::ZERO, None);
        client.pipeline(all, ranges as usize, |_, outcome| {
            last = start.elapsed();
            failed = failed.take().or(outcome.err());
        })?;
        if let Some(failure) = failed {
            return Err(Failure::from(failure).context("a write after the leader was killed"));
        }
        latency.add(last);
        cluster.start_node(victim)?;
    }
    let taken = load::Taken {
        wall: latency.wall(),
        latency,
    };
    job.report(&timed(row(job, "esker", "kill", &[]), &taken, 0.0, 0))?;
    cluster.settle()?;
    let (mut elections, mut pauses) = (0, 0);
    for node in (0..3).cycle().take(6) {
        let before = ballots(&cluster)?;
        cluster.signal(node, Signal::STOP)?;
        std::thread::sleep(SLOW);
        cluster.signal(node, Signal::CONT)?;
        std::thread::sleep(Duration::from_secs(1));
        let after = ballots(&cluster)?;
        elections += after
            .iter()
            .filter(|(group, ballot)| before.get(group) != Some(ballot))
            .count();
        pauses += 1;
    }
    let made = row(job, "esker", "pause", &[]);
    let figures = [
        ("elections", elections as f64),
        ("pauses", f64::from(pauses)),
    ];
    job.report(&with(made, &figures))
}

fn ballots(cluster: &Cluster) -> Result<BTreeMap<u16, u64>> {
    let mut ballots = BTreeMap::new();
    for node in 0..3 {
        for group in cluster.status(node)?.groups {
            let ballot = ballots.entry(group.group).or_insert(0);
            *ballot = group.ballot.max(*ballot);
        }
    }
    Ok(ballots)
}

/// A node gets an empty folder, and is made a member again: the time until it has everything,
/// beside a copy of another node's folder.
pub fn rebuild(job: &Job, task: &Task) -> Result<()> {
    let size = task.mib(1024.0);
    for is_unthrottled in [true, false] {
        let dir = job.scratch.join(format!("unthrottled-{is_unthrottled}"));
        let setup = Setup {
            is_unthrottled,
            ..Setup::default()
        };
        let mut cluster = Cluster::start(&task.esker, &dir, setup, size)?;
        let most = size / (128 << 10);
        let fill = Load {
            order: Order::Sequential,
            ..writes(job, 128, 16, most, size)
        };
        load::run(&mut cluster.connect(0)?, &fill)?;
        cluster.settle()?;
        rustix::fs::sync();
        cluster.kill(2)?;
        if is_unthrottled {
            let (from, to) = (cluster.folder(2), job.scratch.join("copy"));
            let bytes = proc::folder_bytes(&from);
            let start = Instant::now();
            let copied = Command::new("cp").arg("-r").arg(&from).arg(&to).status()?;
            Command::new("sync").arg("-f").arg(&to).status()?;
            let seconds = start.elapsed().as_secs_f64();
            if !copied.success() {
                return Err(Failure::new("cp failed"));
            }
            std::fs::remove_dir_all(&to)?;
            rustix::fs::sync();
            job.report(&copied_row(
                job,
                "cp and sync",
                bytes,
                seconds,
                is_unthrottled,
            ))?;
        }
        std::fs::remove_dir_all(cluster.folder(2))?;
        rustix::fs::sync();
        cluster.start_node(2)?;
        let start = Instant::now();
        let end = start + 10 * PATIENCE;
        let address = cluster.listen(2).to_string();
        let replace = ["member", "replace", "3", &address, "--wait", "600"];
        while !cluster.ask(0, &replace)? {
            pause_until(end, "the node was not made a member again")?;
        }
        cluster.catch_up()?;
        let seconds = start.elapsed().as_secs_f64();
        job.report(&copied_row(job, "esker", size, seconds, is_unthrottled))?;
        drop(cluster);
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

fn copied_row(
    job: &Job,
    subject: &str,
    bytes: u64,
    seconds: f64,
    is_unthrottled: bool,
) -> crate::measure::Row {
    let mut made = row(
        job,
        subject,
        "rebuild",
        &[("unthrottled", is_unthrottled.into())],
    );
    made.seconds = seconds;
    let rate = bytes as f64 / 1048576.0 / seconds.max(1e-9);
    with(made, &[("mib_per_second", rate)])
}

/// The most memory of a node while a follower stands still and 64 writes are in flight.
pub fn memory(job: &Job, task: &Task) -> Result<()> {
    let size = task.mib(512.0);
    let setup = Setup {
        groups: Some(1),
        ..Setup::default()
    };
    for kib in [4, 128] {
        let dir = job.scratch.join(format!("memory{kib}"));
        let cluster = Cluster::start(&task.esker, &dir, setup.clone(), size)?;
        let (leader, other) = cluster.leader()?;
        let mut client = cluster.connect(leader)?;
        cluster.signal(other, Signal::STOP)?;
        let one = writes(job, kib, 64, size / u64::from(kib << 10), size);
        let taken = load::run(&mut client, &one);
        // It takes no other signal but SIGKILL while it stands still.
        cluster.signal(other, Signal::CONT)?;
        let taken = taken?;
        let peaks = cluster.pids().into_iter().map(proc::peak_memory);
        let peak = peaks.max().unwrap_or(0) as f64;
        let made = timed(
            row(job, "esker", "write", &[("kib", kib.into())]),
            &taken,
            0.0,
            one.bytes,
        );
        job.report(&with(made, &[("peak_memory_bytes", peak)]))?;
        drop(cluster);
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}
