//! A power cut before every call to the file system: a broker opened on the remains has everything
//! that was acknowledged, and all or nothing of the operation under way. Operations are publishing,
//! subscribing, ending, renewing, moving, retracting, flushes and compactions. `ESKER_SEEDS=40
//! cargo test -p esker-pubsub --test all cuts::` runs more seeds; `ESKER_SEED=17` repeats one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker::fs::Fs;
use esker::{Database, Durability, Options, Seq};
use esker_pubsub::{
    Architecture, Broker, Config, Place, PubSub, Publication, Region, Subscription,
};
use esker_sim::hooked::Hooked;
use esker_sim::memory::{Memory, PowerCut};
use fastrand::Rng;
use parking_lot::Mutex;

const DIR: &str = "/cuts";
const BEGIN: i64 = 1_000_000;
const END: i64 = BEGIN + 500;
const TOPICS: [&str; 6] = ["a", "a/b", "a/b/c", "a/d", "e", "e/f"];
const FILTERS: [&str; 4] = ["a/+", "a/#", "+/b", "#"];

#[derive(Debug, Clone)]
enum Op {
    Publish {
        topic: &'static str,
        point: Option<(f64, f64)>,
        n: u64,
        expires: i64,
        /// How far its time is ahead of the clock.
        ahead: i64,
    },
    Subscribe {
        filter: &'static str,
        circle: bool,
        least: Option<u64>,
        to: i64,
    },
    /// These change one of the live publications or subscriptions: the index, modulo their number.
    Unsubscribe(usize),
    Renew(usize, i64),
    Move(usize),
    Retract(usize),
    Flush,
    Compact,
}

fn script(seed: u64) -> Vec<Op> {
    let mut rng = Rng::with_seed(seed);
    let op = |rng: &mut Rng| {
        let at = rng.usize(..64);
        let ends = [BEGIN + 100, END - 1, END + 1000, i64::MAX][rng.usize(..4)];
        match rng.u8(0..20) {
            0..7 => Op::Publish {
                topic: TOPICS[rng.usize(..TOPICS.len())],
                point: rng.bool().then(|| (f64::from(rng.u8(0..4)), 50.0)),
                n: rng.u64(0..9),
                expires: ends,
                ahead: [0, 0, 300, 1200][rng.usize(..4)],
            },
            7..13 => Op::Subscribe {
                filter: if rng.bool() {
                    TOPICS[rng.usize(..TOPICS.len())]
                } else {
                    FILTERS[rng.usize(..FILTERS.len())]
                },
                circle: rng.u8(0..3) == 0,
                least: rng.bool().then(|| rng.u64(0..9)),
                to: ends.min(END + 1000),
            },
            13 => Op::Unsubscribe(at),
            14 => Op::Renew(at, [BEGIN, END + 20, END + 2000][rng.usize(..3)]),
            15 => Op::Move(at),
            16 => Op::Retract(at),
            17 => Op::Compact,
            _ => Op::Flush,
        }
    };
    (0..50).map(|_| op(&mut rng)).collect()
}

struct Run {
    db: Database,
    broker: Broker,
    subscriptions: Vec<Seq>,
}

fn options(fs: Arc<dyn Fs>, clock: &Arc<AtomicU64>) -> Options {
    let clock = clock.clone();
    PubSub::register(
        Options::new()
            .fs(fs)
            .background(false)
            .memory_budget(1 << 20)
            .table_size(16 << 10)
            .durability(Durability::Sync)
            .clock(Arc::new(move || clock.load(Ordering::SeqCst))),
    )
}

impl Run {
    fn begin(fs: Arc<dyn Fs>, clock: &Arc<AtomicU64>, seed: u64) -> Run {
        let db = PubSub::create_or_open(Path::new(DIR), options(fs, clock)).unwrap();
        let architecture = match seed % 2 {
            0 => Architecture::DualDb,
            _ => Architecture::TwoDb,
        };
        let config = Config::new().architecture(architecture).remember(None);
        let broker = Broker::create_or_open(&db, config).unwrap();
        Run {
            db,
            broker,
            subscriptions: Vec::new(),
        }
    }

    fn apply(&mut self, op: &Op) {
        let one = |all: &[Seq], at: usize| all.get(at % all.len().max(1)).copied();
        match op {
            Op::Publish {
                topic,
                point,
                n,
                expires,
                ahead,
            } => {
                let place = point.map_or(Place::Anywhere, |(longitude, latitude)| Place::Point {
                    longitude,
                    latitude,
                });
                let body = format!("{{\"n\":{n}}}");
                let new = Publication::new(topic.parse().unwrap(), body)
                    .at_place(place.clone())
                    .at_time(self.broker.now() + ahead)
                    .expires(*expires);
                self.broker.publish(&new).unwrap();
            }
            Op::Subscribe {
                filter,
                circle,
                least,
                to,
            } => {
                let mut new = Subscription::to(filter.parse().unwrap())
                    .from(BEGIN)
                    .until(*to);
                if *circle {
                    new = new.within(area());
                }
                if let Some(least) = least {
                    new = new.matching(esker::field("n").ge(*least));
                }
                self.subscriptions
                    .push(self.broker.subscribe(&new).unwrap().id);
            }
            Op::Unsubscribe(at) => {
                if let Some(id) = one(&self.subscriptions, *at) {
                    self.broker.unsubscribe(id).unwrap();
                    self.subscriptions.retain(|known| *known != id);
                }
            }
            Op::Renew(at, until) => {
                if let Some(id) = one(&self.subscriptions, *at) {
                    self.broker.renew(id, *until).unwrap();
                }
            }
            Op::Move(at) => {
                if let Some(id) = one(&self.subscriptions, *at) {
                    self.broker.move_to(id, Place::Region(area())).unwrap();
                }
            }
            Op::Retract(at) => {
                let everything = Subscription::to("#".parse().unwrap()).from(BEGIN);
                let found = self.broker.query(&everything).unwrap();
                if let Some(publication) = found.get(at % found.len().max(1)) {
                    self.broker.retract(publication).unwrap();
                }
            }
            Op::Flush => self.db.flush().unwrap(),
            Op::Compact => self.db.compact(None).unwrap(),
        }
    }
}

fn area() -> Region {
    Region::Circle {
        longitude: 1.0,
        latitude: 50.0,
        metres: 80_000.0,
    }
}

/// The final state of a broker: stored publications, the contents of some inboxes, the publications
/// that renewals return, and the matches of new publications.
fn seen(broker: &Broker, subscriptions: &[Seq]) -> Vec<(String, Vec<Seq>)> {
    let mut all = Vec::new();
    for filter in ["#", "a", "a/+"] {
        let asked = Subscription::to(filter.parse().unwrap())
            .from(BEGIN)
            .until(END + 5000);
        let mut found: Vec<Seq> = broker
            .query(&asked)
            .unwrap()
            .iter()
            .map(|p| p.seq)
            .collect();
        found.sort_unstable();
        all.push((format!("query {filter}"), found));
    }
    for id in subscriptions {
        let mut inbox = broker.inbox(*id, None).unwrap();
        let told = std::iter::from_fn(|| inbox.next().unwrap().map(|next| next.seq));
        all.push((format!("inbox {id}"), told.collect()));
        for until in [END + 100, END + 1000, END + 9000] {
            let missed = broker.renew(*id, until).unwrap().unwrap_or_default();
            let missed = missed.iter().map(|missed| missed.seq).collect();
            all.push((format!("renewed {id} until {until}"), missed));
        }
    }
    for topic in TOPICS {
        for n in [2, 8] {
            let place = Place::Point {
                longitude: f64::from(n as u8),
                latitude: 50.0,
            };
            let probe = Publication::new(topic.parse().unwrap(), format!("{{\"n\":{n}}}"))
                .at_place(place)
                .expires(END + 1);
            let mut matched: Vec<Seq> = broker
                .publish(&probe)
                .unwrap()
                .matches
                .iter()
                .map(|m| m.subscription)
                .collect();
            matched.sort_unstable();
            all.push((format!("{topic} {n}"), matched));
        }
    }
    all
}

fn time_of(op: usize) -> u64 {
    BEGIN as u64 + op as u64 * 5
}

/// The numbers of a script's subscriptions.
fn subscriptions(seed: u64, ops: &[Op]) -> Vec<Seq> {
    let clock = Arc::new(AtomicU64::new(time_of(0)));
    let mut run = Run::begin(Arc::new(Memory::new()), &clock, seed);
    let mut made = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        clock.store(time_of(at), Ordering::SeqCst);
        run.apply(op);
        made.extend(run.subscriptions.last().copied());
    }
    made.sort_unstable();
    made.dedup();
    made
}

/// The final state after each prefix of a script, without faults.
fn expected(seed: u64, ops: &[Op], made: &[Seq]) -> Vec<Vec<(String, Vec<Seq>)>> {
    (0..=ops.len())
        .map(|count| {
            let clock = Arc::new(AtomicU64::new(time_of(0)));
            let mut run = Run::begin(Arc::new(Memory::new()), &clock, seed);
            for (at, op) in ops.iter().take(count).enumerate() {
                clock.store(time_of(at), Ordering::SeqCst);
                run.apply(op);
            }
            clock.store(END as u64, Ordering::SeqCst);
            seen(&run.broker, made)
        })
        .collect()
}

fn run(seed: u64) -> usize {
    let ops = script(seed);
    let made = subscriptions(seed, &ops);
    let expected = expected(seed, &ops, &made);
    let memory = Memory::new();
    let hooked = Hooked::new(Arc::new(memory.clone()));
    let clock = Arc::new(AtomicU64::new(time_of(0)));
    let mut run = Run::begin(Arc::new(hooked.clone()), &clock, seed);
    // The remains of a cut before each call, and the number of operations that had returned.
    let done = Arc::new(AtomicUsize::new(0));
    let cuts: Arc<Mutex<Vec<(usize, Memory)>>> = Arc::default();
    let (acknowledged, found) = (done.clone(), cuts.clone());
    hooked.set(move |_, _| {
        let mut cuts = found.lock();
        let nth = cuts.len() as u64;
        let mode = [PowerCut::Lost, PowerCut::Reordered, PowerCut::Kept][nth as usize % 3];
        let left = memory.power_cut(seed << 20 | nth, mode);
        cuts.push((acknowledged.load(Ordering::SeqCst), left));
        Ok(())
    });
    for (at, op) in ops.iter().enumerate() {
        clock.store(time_of(at), Ordering::SeqCst);
        run.apply(op);
        done.store(at + 1, Ordering::SeqCst);
    }
    hooked.clear();
    let cuts = std::mem::take(&mut *cuts.lock());
    for (nth, (acknowledged, left)) in cuts.iter().enumerate() {
        let clock = Arc::new(AtomicU64::new(END as u64));
        let db = Database::open(Path::new(DIR), options(Arc::new(left.clone()), &clock)).unwrap();
        let broker = Broker::open(&db).unwrap();
        let now = seen(&broker, &made);
        let (before, after) = (&expected[*acknowledged], expected.get(acknowledged + 1));
        let under_way = ops.get(*acknowledged);
        assert!(
            now == *before || after.is_some_and(|after| now == *after),
            "ESKER_SEED={seed}: a cut before call {nth}, after {acknowledged} operations, in {under_way:?}:\n{now:?}\nnot\n{before:?}\nnor\n{after:?}"
        );
    }
    cuts.len()
}

#[test]
fn a_power_cut_before_any_call_loses_nothing_that_was_acknowledged() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let calls: usize = match number("ESKER_SEED") {
        Some(seed) => run(seed),
        None => (0..number("ESKER_SEEDS").unwrap_or(esker_sim::by_tier(3, 6)))
            .map(run)
            .sum(),
    };
    assert!(calls > 100, "only {calls} calls: the test covers nothing");
}
