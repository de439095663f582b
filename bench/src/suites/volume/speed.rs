//! How fast a cluster is: writes, reads at the leader and at any replica, deletes; at the leader's
//! node and forwarded; beside others, in turn.

use std::time::{Duration, Instant};

use esker_volume::nbd;
use fastrand::Rng;

use super::cluster::{Cluster, Setup, VOLUME};
use super::load::{Kind, Load, Order, Taken};
use super::naive::Naive;
use super::plain::{Nbdkit, round_trip, synced};
use super::task::{Task, row, timed};
use super::{load, proc};
use crate::failure::{Failure, Result};
use crate::meter::Latency;
use crate::run::Job;

/// Latency and throughput.
pub const SPEED: &str = "speed";
/// Throughput by the number of groups.
pub const GROUPS: &str = "groups";
/// Requests in flight.
pub const DEPTHS: [usize; 3] = [1, 16, 64];
/// Bytes of a request in KiB.
pub const SIZES: [u32; 3] = [4, 64, 128];
/// How often subjects take turns.
const ROUNDS: u32 = 3;

/// Who is asked.
struct Subject<'a> {
    /// What a load ends with, within its time.
    settle: Option<&'a Naive>,
    name: &'static str,
    client: nbd::Client,
    pids: Vec<u32>,
    kinds: &'static [Kind],
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Write => "write",
        Kind::Read => "global read",
        Kind::Delete => "delete",
    }
}

fn cpu(pids: &[u32]) -> f64 {
    pids.iter().map(|pid| proc::cpu_us(*pid)).sum()
}

fn time(task: &Task) -> Duration {
    Duration::from_secs_f64((1.0 * task.scale).clamp(0.2, 5.0))
}

/// Fills what is read later.
fn fill(client: &mut nbd::Client, job: &Job, size: u64) -> Result<()> {
    let bytes: u32 = 128 << 10;
    load::run(
        client,
        &Load {
            kind: Kind::Write,
            bytes,
            depth: 16,
            order: Order::Sequential,
            seed: job.seed,
            most: size / u64::from(bytes),
            time: Duration::from_secs(600),
        },
    )?;
    Ok(())
}

/// All operations by all subjects, in turn. One group, so that one node leads.
pub fn speed(job: &Job, task: &Task) -> Result<()> {
    let size = task.mib(256.0);
    let setup = Setup {
        groups: Some(1),
        ..Setup::default()
    };
    let cluster = Cluster::start(&task.esker, &job.scratch.join("esker"), setup, size)?;
    let naive = Naive::start(job, &job.scratch.join("naive"), size)?;
    let nbdkit = Nbdkit::start(&job.scratch.join("file"), size)?;
    let (leader, other) = cluster.leader()?;
    let all = &[Kind::Write, Kind::Read, Kind::Delete][..];
    let mut subjects = vec![
        Subject {
            settle: None,
            name: "esker",
            client: cluster.connect(leader)?,
            pids: cluster.pids(),
            kinds: all,
        },
        Subject {
            settle: None,
            name: "esker, forwarded",
            client: cluster.connect(other)?,
            pids: cluster.pids(),
            kinds: all,
        },
        Subject {
            settle: Some(&naive),
            name: "log and state",
            client: naive.connect()?,
            pids: naive.pids(),
            kinds: &[Kind::Write],
        },
    ];
    if let Some(nbdkit) = &nbdkit {
        subjects.push(Subject {
            settle: None,
            name: "nbdkit",
            client: nbdkit.connect()?,
            pids: vec![nbdkit.pid()],
            // It does not sync what it trims.
            kinds: &[Kind::Write, Kind::Read],
        });
    }
    for subject in subjects.iter_mut().filter(|s| s.name != "esker, forwarded") {
        fill(&mut subject.client, job, size)?;
    }
    for round in 0..ROUNDS {
        let job = &Job {
            repeat: job.repeat * ROUNDS + round,
            ..job.clone()
        };
        bounds(job, task)?;
        for kib in SIZES {
            for depth in DEPTHS {
                turns(job, task, &mut subjects, (kib, depth), size)?;
                local_reads(job, task, &cluster, other, (kib, depth), size)?;
            }
        }
    }
    Ok(())
}

/// What disk and loopback allow.
fn bounds(job: &Job, task: &Task) -> Result<()> {
    let report = |operation: &str, latency: Latency| {
        let wall = latency.wall();
        let taken = Taken { latency, wall };
        job.report(&timed(row(job, "bare", operation, &[]), &taken, 0.0, 4096))
    };
    report("fdatasync", synced(&job.scratch, time(task))?)?;
    report("round trip", round_trip(5_000)?)
}

fn turns(
    job: &Job,
    task: &Task,
    subjects: &mut [Subject<'_>],
    (kib, depth): (u32, usize),
    size: u64,
) -> Result<()> {
    // What deletes leave is written again by the next size's writes, and holes read faster: they
    // come last, and half of the volume is left alone.
    for kind in [Kind::Write, Kind::Read, Kind::Delete] {
        for subject in subjects.iter_mut().filter(|s| s.kinds.contains(&kind)) {
            let one = Load {
                kind,
                bytes: kib << 10,
                depth,
                order: Order::Random(match kind {
                    Kind::Delete => size / 8,
                    _ => size,
                }),
                seed: job.seed + u64::from(job.repeat),
                most: u64::MAX,
                time: time(task),
            };
            let before = cpu(&subject.pids);
            let start = Instant::now();
            let mut taken = load::run(&mut subject.client, &one)?;
            if let Some(naive) = subject.settle {
                naive.settle()?;
                taken.wall = start.elapsed();
            }
            let used = cpu(&subject.pids) - before;
            let parameters = [("kib", kib.into()), ("depth", depth.into())];
            let made = row(job, subject.name, name(kind), &parameters);
            job.report(&timed(made, &taken, used, one.bytes))?;
        }
    }
    Ok(())
}

/// Reads of whatever a follower has, by as many connections of the cluster's own client.
fn local_reads(
    job: &Job,
    task: &Task,
    cluster: &Cluster,
    node: usize,
    (kib, depth): (u32, usize),
    size: u64,
) -> Result<()> {
    let (bytes, start, time) = (kib << 10, Instant::now(), time(task));
    let before = cpu(&cluster.pids());
    let read = |number: usize| -> Result<Latency> {
        let mut client = cluster.client(node)?;
        let (mut latency, mut rng) = (Latency::new()?, Rng::with_seed(job.seed + number as u64));
        while start.elapsed() < time {
            let offset = rng.u64(0..size / u64::from(bytes)) * u64::from(bytes);
            let begun = Instant::now();
            client.read_local(VOLUME, offset, bytes)?;
            latency.add(begun.elapsed());
        }
        Ok(latency)
    };
    let mut latency = Latency::new()?;
    std::thread::scope(|scope| {
        let read = &read;
        let threads: Vec<_> = (0..depth).map(|n| scope.spawn(move || read(n))).collect();
        for thread in threads {
            let read = thread
                .join()
                .map_err(|_| Failure::new("a reader panicked"))?;
            latency.absorb(&read?)?;
        }
        Ok::<(), Failure>(())
    })?;
    let used = cpu(&cluster.pids()) - before;
    let taken = Taken {
        latency,
        wall: start.elapsed(),
    };
    let parameters = [("kib", kib.into()), ("depth", depth.into())];
    let made = row(job, "esker", "local read", &parameters);
    job.report(&timed(made, &taken, used, bytes))
}

/// Writes and reads by the number of groups.
pub fn groups(job: &Job, task: &Task) -> Result<()> {
    let size = task.mib(256.0);
    for groups in [1, 2, 4, 8] {
        let setup = Setup {
            groups: Some(groups),
            ..Setup::default()
        };
        let dir = job.scratch.join(format!("groups{groups}"));
        let cluster = Cluster::start(&task.esker, &dir, setup, size)?;
        let mut client = cluster.connect(0)?;
        fill(&mut client, job, size)?;
        for kind in [Kind::Write, Kind::Read] {
            for kib in [4, 64] {
                let one = Load {
                    kind,
                    bytes: kib << 10,
                    depth: 16,
                    order: Order::Random(size),
                    seed: job.seed,
                    most: u64::MAX,
                    time: time(task),
                };
                let before = cpu(&cluster.pids());
                let taken = load::run(&mut client, &one)?;
                let used = cpu(&cluster.pids()) - before;
                let parameters = [
                    ("groups", groups.into()),
                    ("kib", kib.into()),
                    ("depth", 16.into()),
                ];
                let made = row(job, "esker", name(kind), &parameters);
                job.report(&timed(made, &taken, used, one.bytes))?;
            }
        }
        drop(cluster);
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}
