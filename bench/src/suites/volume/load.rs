//! Load on an NBD server, with the wall time of each request.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use esker_volume::nbd::{Client, Operation};
use fastrand::Rng;

use crate::failure::{Failure, Result};
use crate::meter::Latency;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Writes, durable when they are answered.
    Write,
    /// Reads.
    Read,
    /// Trims.
    Delete,
}

/// Where requests go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One behind the other, from the beginning.
    Sequential,
    /// Anywhere in the first so many bytes.
    Random(u64),
}

/// A load.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// What is done.
    pub kind: Kind,
    /// Bytes of a request.
    pub bytes: u32,
    /// Requests in flight.
    pub depth: usize,
    /// Where they go.
    pub order: Order,
    /// Seed of places and data.
    pub seed: u64,
    /// It ends after so many requests.
    pub most: u64,
    /// And after this time.
    pub time: Duration,
}

/// What a load took.
pub struct Taken {
    /// Wall time of each request.
    pub latency: Latency,
    /// From the first request to the last answer.
    pub wall: Duration,
}

/// Runs a load on one connection.
pub fn run(client: &mut Client, load: &Load) -> Result<Taken> {
    let begun: Mutex<Vec<Instant>> = Mutex::new(Vec::new());
    let mut ended: Vec<(u64, Instant)> = Vec::new();
    let mut failed = None;
    let (size, start) = (client.size(), Instant::now());
    let mut rng = Rng::with_seed(load.seed);
    let mut noise = vec![0; load.bytes as usize + 4096];
    rng.fill(&mut noise);
    let step = u64::from(load.bytes);
    let operation = |number: u64| {
        let offset = match load.order {
            Order::Sequential => number * step % size.max(step),
            Order::Random(within) => rng.u64(0..(within.min(size) / step).max(1)) * step,
        };
        match load.kind {
            Kind::Write => {
                let from = rng.usize(0..4096);
                let data = noise.get(from..from + load.bytes as usize);
                Operation::Write {
                    offset,
                    data: data.unwrap_or_default().to_vec(),
                    fua: true,
                }
            }
            Kind::Read => Operation::Read {
                offset,
                length: load.bytes,
            },
            Kind::Delete => Operation::Trim {
                offset,
                length: load.bytes,
            },
        }
    };
    let operations = (0..load.most)
        .take_while(|_| start.elapsed() < load.time)
        .map(operation)
        .inspect(|_| lock(&begun).push(Instant::now()));
    client.pipeline(operations, load.depth, |number, outcome| {
        ended.push((number, Instant::now()));
        if let Err(failure) = outcome {
            failed.get_or_insert(failure);
        }
    })?;
    if let Some(failure) = failed {
        return Err(Failure::from(failure).context(format!("{:?}", load.kind)));
    }
    let wall = start.elapsed();
    let begun = lock(&begun);
    let mut latency = Latency::new()?;
    for (number, end) in &ended {
        // It was made ready earlier, and sent when there was room: when so many had ended.
        let room = (*number as usize).checked_sub(load.depth);
        let room = room.and_then(|at| ended.get(at)).map(|(_, end)| *end);
        let ready = begun.get(*number as usize).copied();
        let sent = ready.max(room).unwrap_or(start);
        latency.add(end.saturating_duration_since(sent));
    }
    drop(begun);
    Ok(Taken { latency, wall })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No thread panics while it has it.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
