//! How fast the three architectures are: the workloads of the paper's section 7, on generated
//! cells.
//!
//! `cargo run --release -p probes --bin pubsub_speed -- [OPERATIONS] [PER_SECOND] [MEBIBYTES]
//! [RUN]`: one line a run. Time is simulated: so many operations are a second. Half of the skew of
//! real positions is kept by squaring. With a budget of so many mebibytes; with part of a run's
//! name, such as `subscription-heavy, DualDb`, that one alone, once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker::{Durability, Options};
use esker_pubsub::{
    Architecture, Broker, Cell, Config, Granularity, Place, PubSub, Publication, RepeatedQueries,
    Subscription, Time, Topic,
};
use fastrand::Rng;

struct Load {
    name: &'static str,
    architecture: Architecture,
    granularity: Granularity,
    /// Subscriptions and publications of so many operations.
    shares: (u32, u32),
    joins: bool,
    depth: Option<u8>,
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let operations = arguments.next().unwrap_or(300_000_u64);
    let per_second = arguments.next().unwrap_or(10_000_u64);
    let budget = arguments.next().unwrap_or(64) << 20;
    let only = std::env::args().nth(4);
    use Architecture::{DualDb, RepQueries, TwoDb};
    use Granularity::{Fixed, Variable};
    let load = |name, architecture, shares, joins| Load {
        name,
        architecture,
        granularity: Variable,
        shares,
        joins,
        depth: None,
    };
    let heavy = [
        ("subscription-heavy", (3, 1)),
        ("publication-heavy", (1, 3)),
    ];
    let conditions_of: &[&str] = &[
        "symbol = \"S{}\"",
        "price >= {} and price < {}.5",
        "price >= {}",
        "symbol = \"S{}\" or n = -1",
    ];
    if only.is_none() {
        conditions_of.iter().copied().for_each(conditions);
    }
    let run = |load: &Load, operations, per_second| {
        let is_wanted = |only: &String| load.label().contains(only.as_str());
        if only.as_ref().is_none_or(is_wanted) {
            run(load, operations, per_second, budget);
        }
    };
    for _ in 0..if only.is_some() { 1 } else { 3 } {
        for (name, shares) in heavy {
            for architecture in [DualDb, TwoDb, RepQueries] {
                let load = load(name, architecture, shares, false);
                run(&load, operations, per_second);
            }
            for architecture in [DualDb, TwoDb] {
                let load = load(name, architecture, shares, true);
                run(&load, operations, per_second);
            }
        }
        for granularity in [Variable, Fixed] {
            let load = Load {
                granularity,
                depth: Some(5),
                ..load("cells of depth 5", DualDb, (1, 1), false)
            };
            run(&load, operations / 20, per_second / 20);
        }
    }
}

impl Load {
    fn label(&self) -> String {
        let joins = if self.joins { ", self-join" } else { "" };
        let (name, granularity) = (self.name, self.granularity);
        format!("{name}{joins}, {:?}, {granularity:?}", self.architecture)
    }
}

fn run(load: &Load, operations: u64, per_second: u64, budget: u64) {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let now = clock.clone();
    let options = Options::new()
        .memory_budget(budget as usize)
        .durability(Durability::Os)
        .clock(Arc::new(move || now.load(Ordering::Relaxed)));
    let db = PubSub::create_or_open(dir.path(), options).unwrap();
    let config = Config::new()
        .architecture(load.architecture)
        .granularity(load.granularity)
        .depth(load.depth.unwrap_or(0));
    let broker = Broker::create_or_open(&db, config).unwrap();
    let mut repeated = (load.architecture == Architecture::RepQueries)
        .then(|| RepeatedQueries::new(&broker, 1000));
    let mut rng = Rng::with_seed(1);
    let (mut took, mut counts, mut told) = ([Duration::ZERO; 2], [0_u64; 2], 0_u64);
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(120));
    let begin = Instant::now();
    for n in 0..operations {
        let time = 1_000_000 + n * 1000 / per_second;
        clock.store(time, Ordering::Relaxed);
        let time = time as Time;
        let (topic, place) = match load.depth {
            Some(depth) => (Topic::root(), Place::Cell(cell(&mut rng, depth))),
            None => {
                let skewed = |rng: &mut Rng| (rng.f64() * rng.f64() * 500.0) as u64;
                let (x, y) = (skewed(&mut rng), skewed(&mut rng));
                (Topic::dewey(&[x * 500 + y]).unwrap(), Place::Anywhere)
            }
        };
        let start = Instant::now();
        let is_subscription = rng.u32(0..load.shares.0 + load.shares.1) < load.shares.0;
        if is_subscription {
            let mut subscription = Subscription::to(topic.into())
                .at_place(place)
                .from(time - 10_000)
                .until(time + 10_000);
            if load.joins {
                subscription = subscription.user(format!("u{}", rng.u32(0..50_000))).join();
            }
            match &mut repeated {
                Some(repeated) => {
                    let tell = &mut |_: u64, _: &[u8], _: &_| told += 1;
                    repeated.subscribe(&subscription, tell).unwrap();
                }
                None => told += broker.subscribe(&subscription).unwrap().past.len() as u64,
            }
        } else {
            let publication = Publication::new(topic, body.as_bytes())
                .at_place(place)
                .lives(Duration::from_secs(20));
            told += broker.publish(&publication).unwrap().matches.len() as u64;
        }
        if let Some(repeated) = &mut repeated {
            repeated.advance(time, &mut |_, _, _| told += 1).unwrap();
        }
        let kind = usize::from(!is_subscription);
        took[kind] += start.elapsed();
        counts[kind] += 1;
    }
    let total = begin.elapsed();
    let reads = broker.read_stats();
    let each = |kind: usize| took[kind].as_secs_f64() * 1e6 / counts[kind].max(1) as f64;
    println!(
        "{}: {:.1} us an operation, {:.1} a subscription, {:.1} a publication; {:.2} told, {:.2} blocks a read; {} operations",
        load.label(),
        total.as_secs_f64() * 1e6 / operations as f64,
        each(0),
        each(1),
        told as f64 / operations as f64,
        reads.data_blocks as f64 / reads.walks.max(1) as f64,
        operations,
    );
}

/// A cell of any level, the deeper the likelier (section 7.2.3).
fn cell(rng: &mut Rng, depth: u8) -> Cell {
    let mut level = depth;
    while level > 0 && rng.bool() {
        level -= 1;
    }
    let quarters: Vec<u8> = (0..level).map(|_| rng.u8(1..=4)).collect();
    Cell::new(&quarters).unwrap()
}

/// 100,000 subscriptions with conditions on one topic: what a publication costs, and how many it is
/// for.
fn conditions(condition: &str) {
    const SUBSCRIPTIONS: u64 = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().durability(Durability::Os);
    let db = PubSub::create_or_open(dir.path(), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    for n in 0..SUBSCRIPTIONS {
        let text = condition.replace("{}", &n.to_string());
        let subscription =
            Subscription::to("market".parse().unwrap()).matching(text.parse().unwrap());
        broker.subscribe(&subscription).unwrap();
    }
    db.flush().unwrap();
    let is_filed = !condition.contains(" or ");
    let publications = if is_filed { 2_000 } else { 20 };
    let mut rng = Rng::with_seed(1);
    let (start, mut told) = (Instant::now(), 0);
    for _ in 0..publications {
        // Low prices, so that one-sided conditions are met by few.
        let body = format!(
            "{{\"symbol\":\"S{}\",\"price\":{}.25}}",
            rng.u64(0..SUBSCRIPTIONS),
            rng.u64(0..100)
        );
        let publication = Publication::new("market".parse().unwrap(), body);
        told += broker.publish(&publication).unwrap().matches.len();
    }
    println!(
        "{SUBSCRIPTIONS} conditions `{condition}` on one topic: {:.0} us a publication, for {:.1}",
        start.elapsed().as_secs_f64() * 1e6 / publications as f64,
        told as f64 / publications as f64,
    );
}
