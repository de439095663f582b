//! Measures whether reads scale with cores: gets, and lookups of the newest 10 of a value, by one
//! thread and by two, in turn.
//!
//! ```text
//! cargo run --release -p probes --bin readers -- [RECORDS] [BUDGET_MIB] [KIND] [ROUNDS]
//! ```
//!
//! Prints the medians of all rounds: operations per second, and operations per second of CPU time
//! (what the threads themselves used: it counts what they wait for each other's cache lines, and
//! not what other programs take). Two threads that share nothing get twice as many per second, and
//! as many per second of CPU time. Where one thread reads another counts to itself, so that both
//! measurements have the same clock and the same neighbours.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esker::{
    Database, Dataset, DatasetDef, Durability, IndexKind, KeyType, Options, Path, Type, field,
};

const ROUND: Duration = Duration::from_millis(1000);

/// Users write by about this many records each.
const RECORDS_A_USER: u64 = 30;

/// What the calling thread has used, from the scheduler.
fn thread_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = stat.split_whitespace().next().unwrap();
    Duration::from_nanos(nanos.parse().unwrap())
}

fn load(dataset: &Dataset, records: u64) {
    let users = (records / RECORDS_A_USER).max(1);
    let mut batch = dataset.batch();
    let text = "x".repeat(400);
    for n in 0..records {
        let user = fastrand::u64(0..users);
        batch
            .put_json(format!("{{\"id\":{n},\"user\":{user},\"text\":\"{text}\"}}").as_bytes())
            .unwrap();
        if n % 1000 == 999 {
            batch.durability(Durability::Os).commit().unwrap();
            batch = dataset.batch();
        }
    }
    batch.durability(Durability::Os).commit().unwrap();
}

/// Operations per second, and per second of CPU time.
fn round(threads: usize, operation: &(dyn Fn(&mut fastrand::Rng) + Sync)) -> (f64, f64) {
    let barrier = Barrier::new(threads);
    let one = |seed: usize| {
        let mut rng = fastrand::Rng::with_seed(seed as u64);
        barrier.wait();
        let (begin, cpu, mut count) = (Instant::now(), thread_cpu(), 0_u64);
        while begin.elapsed() < ROUND {
            for _ in 0..64 {
                operation(&mut rng);
            }
            count += 64;
        }
        (count, begin.elapsed(), thread_cpu() - cpu)
    };
    let over = AtomicBool::new(false);
    let done: Vec<(u64, Duration, Duration)> = std::thread::scope(|scope| {
        if threads == 1 {
            scope.spawn(|| {
                let mut counted = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    counted = black_box(counted + 1);
                }
            });
        }
        let handles: Vec<_> = (0..threads)
            .map(|n| {
                // For profilers, which tell threads by their names.
                let named = std::thread::Builder::new().name(format!("readers-{threads}"));
                named.spawn_scoped(scope, move || one(n)).unwrap()
            })
            .collect();
        let done = handles.into_iter().map(|h| h.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        done
    });
    let rate = done
        .iter()
        .map(|(n, wall, _)| *n as f64 / wall.as_secs_f64());
    let count: u64 = done.iter().map(|(n, ..)| n).sum();
    let cpu: Duration = done.iter().map(|(.., cpu)| *cpu).sum();
    (rate.sum(), count as f64 / cpu.as_secs_f64())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(name: &str, rounds: usize, operation: impl Fn(&mut fastrand::Rng) + Sync) {
    // Warms the cache.
    round(1, &operation);
    let (mut wall, mut cpu) = ([vec![], vec![]], [vec![], vec![]]);
    for _ in 0..rounds {
        for threads in [1, 2] {
            let (per_second, per_cpu) = round(threads, &operation);
            wall[threads - 1].push(per_second);
            cpu[threads - 1].push(per_cpu);
        }
    }
    let [one, two] = wall.map(|mut rates| median(&mut rates));
    let [one_cpu, two_cpu] = cpu.map(|mut rates| median(&mut rates));
    println!(
        "{name:<24} 1 thread {one:>9.0}/s  2 threads {two:>9.0}/s  x{:.2}   per CPU second {one_cpu:>9.0} {two_cpu:>9.0}  x{:.2}",
        two / one,
        2.0 * two_cpu / one_cpu
    );
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize, or| args.get(at).map_or(or, |arg| arg.parse().unwrap());
    let (records, budget, rounds) = (number(1, 200_000), number(2, 512), number(4, 7));
    let kind = args
        .get(3)
        .map_or(IndexKind::Composite, |kind| kind.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().memory_budget((budget as usize) << 20);
    let store = Database::create_or_open(dir.path(), options).unwrap();
    let user: Path = "user".parse().unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index(user.clone(), esker::Index::new(kind).of_type(Type::Int));
    let dataset = store.create_dataset::<esker::Key>("d", def).unwrap();
    load(&dataset, records);
    store.compact(None).unwrap();
    let get = |rng: &mut fastrand::Rng| {
        let key = dataset.parse_key(&rng.u64(0..records).to_string()).unwrap();
        assert!(dataset.get(&key).unwrap().is_some());
    };
    measure("get", rounds as usize, get);
    let lookup = |rng: &mut fastrand::Rng| {
        let value = rng.u64(0..(records / RECORDS_A_USER).max(1));
        let answer = dataset
            .find(field(&user).eq(value))
            .limit(Some(10))
            .run()
            .unwrap();
        assert!(answer.count() > 0 || kind == IndexKind::None);
    };
    measure("lookup of 10", rounds as usize, lookup);
}
