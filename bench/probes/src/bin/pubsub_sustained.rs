//! A steady load: subscriptions that live for a minute, and publications with about four matches
//! each.
//!
//! `cargo run --release -p probes --bin pubsub_sustained -- [SECONDS] [EACH_PER_MINUTE]`: four
//! publishers, one thread that subscribes, periodic durability, a budget of 256 MiB. Prints a line
//! every ten seconds: rates, the time from the call of `publish` to the notification in an inbox
//! (the slowest hundredth), matches, and the bytes on disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker::{Durability, Options, Seq};
use esker_pubsub::{Broker, Config, PubSub, Publication, Subscription, Topic};
use fastrand::Rng;

const PUBLISHERS: u64 = 4;
const LIVES: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Counts {
    subscriptions: AtomicU64,
    publications: AtomicU64,
    matches: AtomicU64,
    micros: Mutex<Vec<u32>>,
    told: Mutex<Vec<u32>>,
    done: AtomicBool,
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let seconds = arguments.next().unwrap_or(600_u64);
    let each = arguments.next().unwrap_or(1_000_000_u64);
    // As many as make four live subscriptions each.
    let topics = each / 4;
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new()
        .memory_budget(256 << 20)
        .durability(Durability::Periodic(Duration::from_millis(100)));
    let db = PubSub::create_or_open(dir.path(), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let counts = Counts::default();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for seed in 0..PUBLISHERS {
            let (broker, counts) = (&broker, &counts);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed);
                paced(&counts.done, each / PUBLISHERS, || {
                    let topic = topic(&mut rng, topics);
                    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(100));
                    let new = Publication::new(topic, body).lives(LIVES);
                    let start = Instant::now();
                    let made = broker.publish(&new).unwrap();
                    let micros = start.elapsed().as_micros() as u32;
                    counts.publications.fetch_add(1, Ordering::Relaxed);
                    counts
                        .matches
                        .fetch_add(made.matches.len() as u64, Ordering::Relaxed);
                    counts.micros.lock().unwrap().push(micros);
                });
            });
        }
        let (broker, counts) = (&broker, &counts);
        scope.spawn(move || {
            let mut rng = Rng::with_seed(99);
            paced(&counts.done, each, || {
                let subscription = Subscription::to(topic(&mut rng, topics).into()).lasting(LIVES);
                broker.subscribe(&subscription).unwrap();
                counts.subscriptions.fetch_add(1, Ordering::Relaxed);
            });
        });
        scope.spawn(move || listen(broker, counts));
        for _ in 0..seconds / 10 {
            std::thread::sleep(Duration::from_secs(10));
            report(counts, begin, dir.path());
        }
        counts.done.store(true, Ordering::Relaxed);
    });
}

/// One that listens, and publishes to itself ten times a second: from the call to the notification.
fn listen(broker: &Broker, counts: &Counts) {
    let id: Seq = broker
        .subscribe(&Subscription::to("own".parse().unwrap()))
        .unwrap()
        .id;
    let mut inbox = broker.inbox(id, None).unwrap();
    while !counts.done.load(Ordering::Relaxed) {
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                broker
                    .publish(&Publication::new("own".parse().unwrap(), "{}").lives(LIVES))
                    .unwrap()
            });
            while inbox.wait(Duration::from_millis(100)).unwrap().is_none() {}
            counts
                .told
                .lock()
                .unwrap()
                .push(start.elapsed().as_micros() as u32);
        });
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn topic(rng: &mut Rng, topics: u64) -> Topic {
    Topic::dewey(&[rng.u64(0..topics)]).unwrap()
}

/// Calls so often a minute, as well as it can.
fn paced(done: &AtomicBool, a_minute: u64, mut call: impl FnMut()) {
    let (begin, mut called) = (Instant::now(), 0_u64);
    while !done.load(Ordering::Relaxed) {
        let due = (begin.elapsed().as_secs_f64() * a_minute as f64 / 60.0) as u64;
        if called >= due {
            std::thread::sleep(Duration::from_micros(500));
            continue;
        }
        let until = due.min(called + 100);
        while called < until {
            call();
            called += 1;
        }
    }
}

fn report(counts: &Counts, begin: Instant, folder: &Path) {
    let slowest = |times: &Mutex<Vec<u32>>| {
        let mut times = std::mem::take(&mut *times.lock().unwrap());
        times.sort_unstable();
        let at = times.len() * 99 / 100;
        f64::from(times.get(at).copied().unwrap_or(0)) / 1000.0
    };
    let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
    let publications = take(&counts.publications);
    let size: u64 = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .map(|metadata| metadata.len())
        .sum();
    println!(
        "{:4.0} s: {:6} subscriptions and {:6} publications a second, {:.2} matches each; p99 {:.2} ms to publish, {:.2} ms to a notification; {} MiB",
        begin.elapsed().as_secs_f64(),
        take(&counts.subscriptions) / 10,
        publications / 10,
        take(&counts.matches) as f64 / publications.max(1) as f64,
        slowest(&counts.micros),
        slowest(&counts.told),
        size >> 20,
    );
}
