//! Reads by one thread and by two, in turn: whether they get in each other's way.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::session::Eaten;
use crate::failure::Result;
use crate::meter::{Latency, thread_cpu};
use crate::subjects::{Reads, Visit};

/// Rounds of each number of threads; figures are medians.
const ROUNDS: usize = 5;
/// How long a round goes on.
const ROUND: Duration = Duration::from_millis(500);

/// Asks one question.
pub type Ask<'a> = dyn Fn(&dyn Reads, &mut Rng, Visit<'_>) -> Result<()> + Sync + 'a;

/// What so many threads did.
#[derive(Debug)]
pub struct Rate {
    /// Operations per second, of all threads together.
    pub per_second: f64,
    /// CPU time of the threads per operation, in µs.
    pub cpu_us: f64,
    /// All their operations.
    pub latency: Latency,
    /// CPU time of the threads.
    pub cpu: Duration,
    /// Wall time of the rounds.
    pub wall: Duration,
}

/// One round of one thread.
struct Share {
    latency: Latency,
    wall: Duration,
    cpu: Duration,
    eaten: Eaten,
}

/// What one thread does, and what two do.
pub fn one_and_two(reads: &dyn Reads, seed: u64, ask: &Ask<'_>) -> Result<[Rate; 2]> {
    let mut rounds: [Vec<Vec<Share>>; 2] = Default::default();
    // Warms the cache.
    round(reads, 1, seed, ask)?;
    for n in 0..ROUNDS {
        for threads in [1, 2] {
            let shares = round(reads, threads, seed + n as u64, ask)?;
            rounds[threads - 1].push(shares);
        }
    }
    let [one, two] = rounds;
    Ok([rate(&one)?, rate(&two)?])
}

fn round(reads: &dyn Reads, threads: usize, seed: u64, ask: &Ask<'_>) -> Result<Vec<Share>> {
    let together = Barrier::new(threads);
    let one = |seed: u64| -> Result<Share> {
        let mut rng = Rng::with_seed(seed);
        together.wait();
        let (mut latency, mut eaten) = (Latency::new()?, Eaten::default());
        let (begin, cpu) = (Instant::now(), thread_cpu());
        let mut now = begin;
        while now - begin < ROUND {
            ask(reads, &mut rng, &mut |body| eaten.eat(body))?;
            let after = Instant::now();
            latency.add(after - now);
            now = after;
        }
        Ok(Share {
            latency,
            wall: now - begin,
            cpu: thread_cpu() - cpu,
            eaten,
        })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads as u64)
            .map(|n| {
                let one = &one;
                scope.spawn(move || one(seed ^ (n << 32)))
            })
            .collect();
        let shares = threads.into_iter().map(|thread| match thread.join() {
            Ok(share) => share,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        shares.collect()
    })
}

fn rate(rounds: &[Vec<Share>]) -> Result<Rate> {
    let per_second = |share: &Share| share.latency.ops() as f64 / share.wall.as_secs_f64();
    let mut rates: Vec<f64> = rounds
        .iter()
        .map(|shares| shares.iter().map(per_second).sum())
        .collect();
    rates.sort_by(f64::total_cmp);
    let (mut latency, mut cpu, mut wall) = (Latency::new()?, Duration::ZERO, Duration::ZERO);
    for shares in rounds {
        for share in shares {
            latency.absorb(&share.latency)?;
            cpu += share.cpu;
            std::hint::black_box(share.eaten.sum());
        }
        wall += shares
            .iter()
            .map(|share| share.wall)
            .max()
            .unwrap_or_default();
    }
    Ok(Rate {
        per_second: rates.get(rates.len() / 2).copied().unwrap_or_default(),
        cpu_us: cpu.as_secs_f64() * 1e6 / latency.ops().max(1) as f64,
        latency,
        cpu,
        wall,
    })
}
