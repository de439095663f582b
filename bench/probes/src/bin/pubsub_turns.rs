//! The three architectures beside each other, as `bench pubsub` has them: in one process, a slice
//! of the same operations each in turn, until nothing is left to merge. Says wall and CPU time an
//! operation, the medians of ratios to the first one, and what was read, flushed and merged.
//!
//! `cargo run --release -p probes --bin pubsub_turns -- simple|join 3:1|1:3 direct|cached
//! [OPERATIONS] [SUBJECTS] [BACKGROUND]`: subjects are some of the letters `d`, `t` and `r`; with
//! `alone` behind them nothing happens in the background, so that counted instructions repeat.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker::{Database, Durability, Options};
use esker_pubsub::{
    Architecture, Broker, Config, PubSub, Publication, RepeatedQueries, Subscription, Threshold,
    Topic,
};
use fastrand::Rng;

const SECONDS: u64 = 60;
const REACH: i64 = 10_000;
const SLICES: usize = 15;
const GROWING: usize = 5;

struct Subject {
    letter: char,
    db: Database,
    broker: Broker,
    repeated: Option<RepeatedQueries>,
    clock: Arc<AtomicU64>,
    told: u64,
    wall: Vec<Duration>,
    cpu: Vec<Duration>,
    runs: u64,
}

#[derive(Clone)]
struct Operation {
    time: i64,
    topic: u64,
    user: u32,
    body: Option<Vec<u8>>,
}

fn cpu() -> Duration {
    let mut nanos = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        nanos += text
            .split(' ')
            .next()
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Duration::from_nanos(nanos)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = |n: usize, or: &str| arguments.get(n).cloned().unwrap_or(or.to_owned());
    let joins = at(0, "simple") == "join";
    let (subscriptions, publications) = match at(1, "1:3").as_str() {
        "3:1" => (3, 1),
        _ => (1, 3),
    };
    let is_direct = at(2, "direct") == "direct";
    let operations: usize = at(3, "200000").parse().unwrap();
    let letters = at(4, "dt");
    let is_alone = at(5, "") == "alone";
    let alive = operations * 250 / 3;
    let budget = if is_direct {
        (alive / 8).max(1 << 20)
    } else {
        (2 * alive).max(64 << 20)
    };
    let per_second = (operations as u64 / SECONDS).max(1);
    let live = (per_second as i64 * 2 * REACH) as f64 / 1000.0;
    let side = (live / 2.6).sqrt().ceil();
    let users = (live / 8.0) as u32 + 1;

    let dirs: Vec<_> = letters
        .chars()
        .map(|_| tempfile::tempdir().unwrap())
        .collect();
    let mut subjects: Vec<Subject> = Vec::new();
    for (letter, dir) in letters.chars().zip(&dirs) {
        let clock = Arc::new(AtomicU64::new(0));
        let now = clock.clone();
        let mut options = Options::new()
            .memory_budget(budget)
            .durability(Durability::Os)
            .clock(Arc::new(move || now.load(Ordering::Relaxed)))
            .background(!is_alone);
        if is_direct {
            options = options.fs(Arc::new(esker::fs::disk::Disk::direct()));
        }
        let db = PubSub::create_or_open(dir.path(), options).unwrap();
        let architecture = match letter {
            'd' => Architecture::DualDb,
            't' => Architecture::TwoDb,
            _ => Architecture::RepQueries,
        };
        let config = Config::new().architecture(architecture).depth(5);
        let broker = Broker::create_or_open(&db, config).unwrap();
        subjects.push(Subject {
            letter,
            repeated: (letter == 'r').then(|| RepeatedQueries::new(&broker, 1000)),
            broker,
            db,
            clock,
            told: 0,
            wall: Vec::new(),
            cpu: Vec::new(),
            runs: 0,
        });
    }
    let mut rng = Rng::with_seed(1);
    let mut number = 0;
    let count = subjects.len();
    let price: esker::Path = "v".parse().unwrap();
    for slice in 0..SLICES {
        let slice_of: Vec<Operation> = (0..operations / SLICES)
            .map(|_| {
                let time = 1_000_000 + (number * 1000 / per_second) as i64;
                number += 1;
                let is_subscription = rng.u32(0..subscriptions + publications) < subscriptions;
                let mut skewed = || (rng.f64() * rng.f64() * side) as u64;
                let topic = skewed() * side as u64 + skewed();
                let body = (!is_subscription).then(|| {
                    let value = rng.u32(100..1000);
                    let mut body =
                        format!("{{\"n\":\"{number:010}\",\"v\":{value},\"text\":\"").into_bytes();
                    body.extend((0..140).map(|_| rng.lowercase() as u8));
                    body.extend_from_slice(b"\"}");
                    body
                });
                Operation {
                    time,
                    topic,
                    user: rng.u32(0..users),
                    body,
                }
            })
            .collect();
        for turn in 0..count {
            let subject = &mut subjects[(slice + turn) % count];
            let (before, start) = (cpu(), Instant::now());
            for (n, operation) in slice_of.iter().enumerate() {
                if n % 64 == 0 && slice >= GROWING {
                    let snapshot = subject.db.group().snapshot();
                    let trees = snapshot.version().trees.values();
                    subject.runs += trees.map(|tree| tree.runs.len() as u64).sum::<u64>();
                }
                subject.act(operation, joins, &price);
            }
            subject.db.group().run_compactions().unwrap();
            if slice >= GROWING {
                subject.wall.push(start.elapsed());
                subject.cpu.push(cpu() - before);
            }
        }
    }
    let counted = (operations / SLICES * (SLICES - GROWING)) as f64;
    let sum = |of: &[Duration]| of.iter().sum::<Duration>().as_secs_f64() * 1e6 / counted;
    let median = |a: &[Duration], b: &[Duration]| {
        let ratio = |(a, b): (&Duration, &Duration)| a.as_secs_f64() / b.as_secs_f64();
        let mut ratios: Vec<f64> = a.iter().zip(b).map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    };
    let names: Vec<&str> = arguments.iter().take(3).map(String::as_str).collect();
    for subject in &subjects {
        let (reads, stats) = (subject.broker.read_stats(), subject.db.group().stats());
        let of = |n: u64| n as f64 / operations as f64;
        let mut runs = String::new();
        let snapshot = subject.db.group().snapshot();
        for tree in snapshot.version().trees.values() {
            runs += &format!(" {}:", tree.name);
            for run in &tree.runs {
                runs += &format!(" L{} {}x{}K", run.level, run.tables.len(), run.size() >> 10);
            }
        }
        println!(
            "{} {}: wall {:.2} cpu {:.2} us; x{:.2} wall x{:.2} cpu of d; told {:.2}; {:.2} data blocks {:.2} read {:.2} skipped; log {:.0} flush {:.0} read {:.0} merged {:.0} B; {} flushes {} merges {} drops {} moves; runs {:.1};{runs}",
            names.join(" "),
            subject.letter,
            sum(&subject.wall),
            sum(&subject.cpu),
            median(&subject.wall, &subjects[0].wall),
            median(&subject.cpu, &subjects[0].cpu),
            of(subject.told),
            of(reads.data_blocks),
            of(reads.blocks_read),
            of(reads.tables_skipped),
            of(stats.log_bytes),
            of(stats.flush_bytes),
            of(stats.merge_read_bytes),
            of(stats.merge_write_bytes),
            stats.flushes,
            stats.merges,
            stats.drops,
            stats.moves,
            subject.runs as f64 / counted * 64.0,
        );
    }
}

impl Subject {
    fn act(&mut self, operation: &Operation, joins: bool, price: &esker::Path) {
        let time = operation.time;
        if let Some(repeated) = &mut self.repeated
            && repeated.next_due().is_some_and(|due| due < time)
        {
            repeated
                .advance(time - 1, &mut |_, _, _| self.told += 1)
                .unwrap();
        }
        self.clock.store(time as u64, Ordering::Relaxed);
        let topic = Topic::dewey(&[operation.topic]).unwrap();
        if let Some(body) = &operation.body {
            let publication = Publication::new(topic, body.as_slice())
                .lives(Duration::from_millis(2 * REACH as u64));
            self.told += self.broker.publish(&publication).unwrap().matches.len() as u64;
            return;
        }
        let mut subscription = Subscription::to(topic.into())
            .tag(time.to_be_bytes())
            .from(time - REACH)
            .until(time + REACH);
        if joins {
            subscription = subscription
                .user(operation.user.to_be_bytes())
                .join()
                .on_change(price.clone(), Threshold::Percent(5.0));
        }
        match &mut self.repeated {
            Some(repeated) => {
                repeated
                    .subscribe(&subscription, &mut |_, _, _| self.told += 1)
                    .unwrap();
            }
            None => self.told += self.broker.subscribe(&subscription).unwrap().past.len() as u64,
        }
    }
}
