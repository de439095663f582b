//! A steady load in real time: four publishers, one that subscribes, one that listens, as many operations a minute as are
//! asked for, each alive for a while. The log is synced every 100 ms.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use esker::{Durability, Options};
use esker_pubsub::{Broker, Config, PubSub, Publication, Subscription, Topic};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::measure::Row;
use crate::meter::{self, Latency};
use crate::run::Job;

/// The experiment's name.
pub const EXPERIMENT: &str = "sustained";
/// Publications a minute, and subscriptions.
pub const A_MINUTE: u64 = 1_000_000;
/// Bytes of memory.
pub const MEMORY: usize = 256 << 20;
/// Subscriptions that a publication is for, on average.
const MATCHES: u64 = 4;
const PUBLISHERS: u64 = 4;

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// Seconds that subscriptions and publications live.
    pub lives: f64,
    /// Seconds that are measured, when as many are alive as there will be.
    pub seconds: f64,
}

/// What all threads share.
struct Shared {
    broker: Broker,
    lives: Duration,
    topics: u64,
    begin: Instant,
    /// When measuring begins.
    from: Instant,
    done: AtomicBool,
}

/// What a thread measured.
struct Share {
    latency: Latency,
    matches: u64,
}

impl Shared {
    fn topic(&self, rng: &mut Rng) -> Result<Topic> {
        Ok(Topic::dewey(&[rng.u64(0..self.topics)])?)
    }

    fn publish(&self, seed: u64) -> Result<Share> {
        let mut rng = Rng::with_seed(seed);
        self.paced(A_MINUTE / PUBLISHERS, |share, is_measured| {
            let body = format!("{{\"text\":\"{}\"}}", "x".repeat(100));
            let new = Publication::new(self.topic(&mut rng)?, body).lives(self.lives);
            let start = Instant::now();
            let made = self.broker.publish(&new)?;
            made.unread.map_or(Ok(()), Err)?;
            if is_measured {
                share.latency.add(start.elapsed());
                share.matches += made.matches.len() as u64;
            }
            Ok(())
        })
    }

    fn subscribe(&self, seed: u64) -> Result<Share> {
        let mut rng = Rng::with_seed(seed);
        self.paced(A_MINUTE, |share, is_measured| {
            let new = Subscription::to(self.topic(&mut rng)?.into()).lasting(self.lives);
            let start = Instant::now();
            self.broker.subscribe(&new)?;
            if is_measured {
                share.latency.add(start.elapsed());
            }
            Ok(())
        })
    }

    /// Publishes to itself some twenty times a second: from the call to the notification in an inbox.
    fn listen(&self) -> Result<Share> {
        let id = self.broker.subscribe(&Subscription::to("own".parse()?))?.id;
        let mut inbox = self.broker.inbox(id, None)?;
        let mut latency = Latency::new()?;
        while !self.done.load(Ordering::Relaxed) {
            let start = Instant::now();
            std::thread::scope(|scope| {
                let new = Publication::new("own".parse()?, "{}").lives(self.lives);
                let publisher = scope.spawn(move || self.broker.publish(&new));
                while inbox.wait(Duration::from_millis(100))?.is_none() {}
                if start >= self.from {
                    latency.add(start.elapsed());
                }
                publisher.join().map_err(|_| stopped())??;
                Ok::<_, Failure>(())
            })?;
            sleep(Duration::from_millis(40));
        }
        Ok(Share {
            latency,
            matches: 0,
        })
    }

    /// Calls so often a minute, as well as it can. What comes late is caught up with.
    fn paced(
        &self,
        a_minute: u64,
        mut call: impl FnMut(&mut Share, bool) -> Result<()>,
    ) -> Result<Share> {
        let mut share = Share {
            latency: Latency::new()?,
            matches: 0,
        };
        let mut called = 0;
        while !self.done.load(Ordering::Relaxed) {
            let due = (self.begin.elapsed().as_secs_f64() * a_minute as f64 / 60.0) as u64;
            if called >= due {
                sleep(Duration::from_micros(500));
                continue;
            }
            let is_measured = Instant::now() >= self.from;
            let until = due.min(called + 100);
            while called < until {
                call(&mut share, is_measured)?;
                called += 1;
            }
        }
        Ok(share)
    }
}

fn stopped() -> Failure {
    Failure::new("a thread stopped")
}

fn join(thread: JoinHandle<Result<Share>>) -> Result<Share> {
    thread.join().map_err(|_| stopped())?
}

/// Does the task.
pub fn run(job: &Job, task: &Task) -> Result<()> {
    meter::forget_peak()?;
    let harness = meter::memory()?.0;
    let options = Options::new()
        .memory_budget(MEMORY)
        .durability(Durability::Periodic(Duration::from_millis(100)));
    let db = PubSub::create_or_open(&job.scratch, options)?;
    let lives = Duration::from_secs_f64(task.lives);
    let begin = Instant::now();
    let shared = std::sync::Arc::new(Shared {
        broker: Broker::create_or_open(&db, Config::new())?,
        lives,
        topics: ((A_MINUTE as f64 / 60.0 * task.lives) as u64 / MATCHES).max(1),
        begin,
        // What was made first has to have ended.
        from: begin + lives + lives / 4,
        done: AtomicBool::new(false),
    });
    let spawn = |work: fn(&Shared, u64) -> Result<Share>, seed| {
        let shared = shared.clone();
        std::thread::spawn(move || work(&shared, seed))
    };
    let publishers: Vec<_> = (0..PUBLISHERS).map(|n| spawn(Shared::publish, n)).collect();
    let subscriber = spawn(Shared::subscribe, 99);
    let listener = spawn(|shared, _| shared.listen(), 0);
    sleep(shared.from.saturating_duration_since(Instant::now()));
    let cpu = meter::process_cpu();
    sleep(Duration::from_secs_f64(task.seconds));
    let cpu = meter::process_cpu().saturating_sub(cpu);
    shared.done.store(true, Ordering::Relaxed);
    let seconds = shared.from.elapsed().as_secs_f64();
    let mut published = Share {
        latency: Latency::new()?,
        matches: 0,
    };
    for publisher in publishers {
        let share = join(publisher)?;
        published.latency.absorb(&share.latency)?;
        published.matches += share.matches;
    }
    let (subscribed, heard) = (join(subscriber)?, join(listener)?);
    let memory = meter::memory()?.1.saturating_sub(harness);
    let disk = meter::disk_bytes(&job.scratch)?;
    let ops = published.latency.ops();
    for (operation, latency) in [
        ("publish", &published.latency),
        ("subscribe", &subscribed.latency),
        ("notification", &heard.latency),
    ] {
        let mut figures = BTreeMap::from([(
            "a_minute".to_string(),
            latency.ops() as f64 * 60.0 / seconds.max(1e-9),
        )]);
        if operation == "publish" {
            let more = [
                ("matches", published.matches as f64 / ops.max(1) as f64),
                ("memory_bytes", memory as f64),
                ("disk_bytes", disk as f64),
                ("cores", cpu.as_secs_f64() / task.seconds.max(1e-9)),
            ];
            figures.extend(more.map(|(name, value)| (name.to_string(), value)));
        }
        job.report(&Row {
            suite: job.suite.clone(),
            experiment: EXPERIMENT.to_string(),
            subject: "DualDB".to_string(),
            operation: operation.to_string(),
            parameters: BTreeMap::new(),
            repeat: job.repeat,
            ops: latency.ops(),
            seconds,
            cpu_us: 0.0,
            p50_us: latency.quantile_us(0.5),
            p99_us: latency.quantile_us(0.99),
            p999_us: latency.quantile_us(0.999),
            max_us: latency.quantile_us(1.0),
            figures,
        })?;
    }
    Ok(())
}
