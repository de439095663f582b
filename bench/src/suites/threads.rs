//! What several threads do at once, in rounds; reads by one and by two in turn: whether they get in each other's way.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::session::Eaten;
use crate::failure::Result;
use crate::meter::{Latency, thread_cpu};
use crate::subjects::{Reads, Visit};

/// Rounds of each number of threads; figures are medians.
const ROUNDS: usize = 5;
/// How long a round of reads goes on.
const ROUND: Duration = Duration::from_millis(500);

/// What a thread does again and again.
pub struct Work<'a> {
    each: Box<dyn FnMut() -> Result<()> + 'a>,
    pause: Duration,
}

impl<'a> Work<'a> {
    /// One operation after the other.
    pub fn new(each: impl FnMut() -> Result<()> + 'a) -> Work<'a> {
        Work {
            each: Box::new(each),
            pause: Duration::ZERO,
        }
    }

    /// The same with a pause before each, which is not measured: so that operations begin at any moment, and not only
    /// when it is their thread's turn anyway.
    pub fn pausing(self, pause: Duration) -> Work<'a> {
        Work { pause, ..self }
    }
}

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
#[derive(Debug)]
pub struct Share {
    latency: Latency,
    wall: Duration,
    cpu: Duration,
}

/// What one thread does, and what two do.
pub fn one_and_two(reads: &dyn Reads, seed: u64, ask: &Ask<'_>) -> Result<[Rate; 2]> {
    let mut rounds: [Vec<Vec<Share>>; 2] = Default::default();
    let of = |threads: usize, seed: u64| {
        round(threads, ROUND, &|n| {
            let mut rng = Rng::with_seed(seed ^ ((n as u64) << 32));
            let mut eaten = Eaten::default();
            Ok(Work::new(move || {
                ask(reads, &mut rng, &mut |body| eaten.eat(body))?;
                std::hint::black_box(eaten.sum());
                Ok(())
            }))
        })
    };
    // Warms the cache.
    of(1, seed)?;
    for n in 0..ROUNDS {
        for threads in [1, 2] {
            rounds[threads - 1].push(of(threads, seed + n as u64)?);
        }
    }
    let [one, two] = rounds;
    Ok([rate(&one)?, rate(&two)?])
}

/// One round: so many threads, which begin together, each do what `work` gives for its number, for so long.
pub fn round<'a>(
    threads: usize,
    time: Duration,
    work: &(dyn Fn(usize) -> Result<Work<'a>> + Sync),
) -> Result<Vec<Share>> {
    let together = Barrier::new(threads);
    let one = |number: usize| -> Result<Share> {
        let work = work(number);
        together.wait();
        let (mut work, mut latency) = (work?, Latency::new()?);
        let (begin, cpu) = (Instant::now(), thread_cpu());
        let mut now = begin;
        while now - begin < time {
            if !work.pause.is_zero() {
                std::thread::sleep(work.pause);
                now = Instant::now();
            }
            (work.each)()?;
            let after = Instant::now();
            latency.add(after - now);
            now = after;
        }
        Ok(Share {
            latency,
            wall: now - begin,
            cpu: thread_cpu() - cpu,
        })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|n| {
                let one = &one;
                scope.spawn(move || one(n))
            })
            .collect();
        let shares = threads.into_iter().map(|thread| match thread.join() {
            Ok(share) => share,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        shares.collect()
    })
}

/// What the rounds come to.
pub fn rate(rounds: &[Vec<Share>]) -> Result<Rate> {
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
