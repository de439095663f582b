//! Clients: threads that each wait for an answer before they ask again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::data::{Keys, Record, Records};
use super::server::Server;
use crate::failure::{Failure, Result};
use crate::meter::Latency;

/// Clients.
pub(super) const CLIENTS: usize = 16;

/// What clients did.
pub(super) struct Driven {
    pub(super) reads: Latency,
    pub(super) writes: Latency,
    pub(super) wall: Duration,
}

impl Driven {
    pub(super) fn ops(&self) -> u64 {
        self.reads.ops() + self.writes.ops()
    }

    pub(super) fn per_second(&self) -> f64 {
        self.ops() as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    pub(super) fn add(&mut self, other: &Driven) -> Result<()> {
        self.reads.absorb(&other.reads)?;
        self.writes.absorb(&other.writes)?;
        self.wall += other.wall;
        Ok(())
    }
}

/// What clients are to do.
pub(super) struct Load {
    pub(super) clients: usize,
    /// Operations of all of them.
    pub(super) ops: u64,
    /// It ends after this time, too.
    pub(super) most: Duration,
    /// Of a hundred operations, so many are reads.
    pub(super) reads: u32,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) seed: u64,
}

/// Writes and reads with all clients.
pub(super) fn drive(
    load: &Load,
    read: &(dyn Fn(u64, u64) -> Result<()> + Sync),
    write: &(dyn Fn(&[Record]) -> Result<()> + Sync),
) -> Result<Driven> {
    let begun = AtomicU64::new(0);
    let start = Instant::now();
    let client = |number: u64| -> Result<(Latency, Latency)> {
        let seed = load.seed.wrapping_mul(1000) + number;
        let mut keys = Keys::new(load.keys, seed);
        let mut records = Records::new(load.values, seed + 1);
        let mut rng = fastrand::Rng::with_seed(seed + 2);
        let (mut reads, mut writes) = (Latency::new()?, Latency::new()?);
        while begun.fetch_add(1, Ordering::Relaxed) < load.ops && start.elapsed() < load.most {
            let key = keys.next();
            if rng.u32(0..100) < load.reads {
                let value = records.value();
                let at = Instant::now();
                read(key, value)?;
                reads.add(at.elapsed());
            } else {
                let record = [records.record(key)];
                let at = Instant::now();
                write(&record)?;
                writes.add(at.elapsed());
            }
        }
        Ok((reads, writes))
    };
    let done: Vec<Result<(Latency, Latency)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.clients as u64)
            .map(|number| scope.spawn(move || client(number)))
            .collect();
        let lost = || Err(Failure::new("a client has ended early"));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| lost()))
            .collect()
    });
    let wall = start.elapsed();
    let (mut reads, mut writes) = (Latency::new()?, Latency::new()?);
    for client in done {
        let (read, written) = client?;
        reads.absorb(&read)?;
        writes.absorb(&written)?;
    }
    Ok(Driven {
        reads,
        writes,
        wall,
    })
}

/// Does something while the page cache has nothing of the servers' files for long.
pub(super) fn cold<T>(server: &Server, work: impl FnOnce() -> Result<T>) -> Result<T> {
    rustix::fs::sync();
    server.evict();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (is_done, server) = (&is_done, &server);
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                server.evict();
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let done = work();
        is_done.store(true, Ordering::Relaxed);
        done
    })
}
