//! What questions about an area and a time read: one index over both, beside one over the place
//! alone.
//!
//! `cargo run --release -p probes --bin space_time -- [POINTS] [DAYS]`: points come in the order
//! of time, spread about 2,000 towns and over so many days; questions have a thousandth of the area
//! in a thousandth of the time. Prints, for each layout, the blocks of the index that a count
//! needed, and the runs; and in how many blocks the answers lay, were the index one run in the
//! order of its keys.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::time::Instant;

use esker::schema::Layout;
use esker::{
    AreaExpr, Database, DatasetDef, Durability, Index, IndexKind, KeyType, Options, Type, Value,
    field,
};
use esker_model::geometry::{Point, Space};
use fastrand::Rng;

const QUESTIONS: usize = 500;
const START: i64 = 1_700_000_000;

/// Longitude, latitude, time in seconds.
type Event = (f64, f64, i64);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual: i64| {
        let text = arguments.next();
        text.map_or(usual, |text| text.parse().unwrap())
    };
    let (points, days) = (number(1_000_000), number(7));
    let span = days * 86_400;
    let mut rng = Rng::with_seed(1);
    let towns: Vec<(f64, f64)> = (0..2000)
        .map(|_| (rng.f64() * 340.0 - 170.0, rng.f64() * 130.0 - 60.0))
        .collect();
    let mut near = || {
        let (x, y) = towns[rng.usize(..towns.len())];
        let mut spread = || (rng.f64() + rng.f64() + rng.f64() - 1.5) * 0.8;
        (x + spread(), y + spread())
    };
    let events: Vec<Event> = (0..points)
        .map(|id| {
            let (x, y) = near();
            (x, y, START + id * span / points)
        })
        .collect();
    let mut order: Vec<Vec<u8>> = events.iter().map(encoded).collect();
    order.sort_unstable();
    // A thousandth of the points' area, in a thousandth of the time.
    let (wide, high) = (340.0 * 0.001_f64.sqrt(), 130.0 * 0.001_f64.sqrt());
    let long = (span / 1000).max(1);
    let mut rng = Rng::with_seed(2);
    let questions: Vec<Event> = (0..QUESTIONS)
        .map(|_| {
            let (x, y, at) = events[rng.usize(..events.len())];
            (
                x - wide * rng.f64(),
                y - high * rng.f64(),
                at - rng.i64(0..long),
            )
        })
        .collect();
    let timed = Layout::ALL.map(|layout| (IndexKind::SpaceTime(layout), "lon,lat@time"));
    let kinds = timed
        .into_iter()
        .chain([(IndexKind::Spatial(Layout::Z), "lon,lat")]);
    let mut per_block = 100;
    for (kind, path) in kinds {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new()
            .memory_budget(256 << 20)
            .durability(Durability::Os);
        let db = Database::create_or_open(dir.path(), options).unwrap();
        let def = DatasetDef::new("id", KeyType::Int)
            .index("time", Index::none().int())
            .index(path, Index::new(kind).of_type(Type::Point));
        let dataset = db.create_dataset::<u64>("events", def).unwrap();
        let begin = Instant::now();
        let mut batch = dataset.batch();
        for (id, (x, y, time)) in events.iter().enumerate() {
            let text = format!("{{\"id\":{id},\"lon\":{x},\"lat\":{y},\"time\":{time}}}");
            batch.put_json(text.as_bytes()).unwrap();
            if id % 1000 == 999 {
                batch.commit().unwrap();
                batch = dataset.batch();
            }
        }
        batch.commit().unwrap();
        let put = begin.elapsed().as_secs_f64();
        db.flush().unwrap();
        let stats = dataset.stats();
        let index = stats.trees.iter().find(|tree| tree.name.contains(path));
        let runs = index.map_or(0, |tree| tree.levels.len());
        let snapshot = dataset.snapshot();
        let (mut found, mut blocks, mut records, mut held) = (0, 0, 0, 0);
        let mut micros = Vec::new();
        // As many entries as a block of the index has; without an index, as many as in the one
        // before.
        let all = field("lon,lat").within(AreaExpr::rect(-180.0, -90.0, 180.0, 90.0))
            & field("time").ge(START);
        let (_, explain) = snapshot.find(all).count_explained().unwrap();
        let read = explain.cost.index.map_or(0, |cost| cost.data_blocks);
        if read > 0 {
            per_block = events.len() / read as usize;
        }
        for (x, y, from) in &questions {
            let condition = field("lon,lat").within(AreaExpr::rect(*x, *y, x + wide, y + high))
                & field("time").range(*from..from + long);
            let begin = Instant::now();
            let (count, explain) = snapshot.find(condition).count_explained().unwrap();
            micros.push(begin.elapsed().as_secs_f64() * 1e6);
            found += count;
            blocks += explain.cost.index.map_or(0, |cost| cost.data_blocks);
            records += explain.cost.data.data_blocks;
            let answers = events.iter().filter(|(ex, ey, et)| {
                (*x..=x + wide).contains(ex)
                    && (*y..=y + high).contains(ey)
                    && (*from..from + long).contains(et)
            });
            let ranks = answers.map(|e| order.binary_search(&encoded(e)).unwrap() / per_block);
            let (ranks, expected) = ranks.fold((BTreeSet::new(), 0), |(mut ranks, n), rank| {
                ranks.insert(rank);
                (ranks, n + 1)
            });
            assert_eq!(count, expected);
            held += ranks.len();
        }
        micros.sort_by(f64::total_cmp);
        let each = |sum: u64| sum as f64 / QUESTIONS as f64;
        println!(
            "{kind}: {:.0} inserts/s; {:.1} answers in {:.1} blocks of {per_block} entries; {:.1} blocks of the index ({runs} runs) and {:.1} of records read; {:.0} us",
            points as f64 / put,
            each(found),
            each(held as u64),
            each(blocks),
            each(records),
            micros[QUESTIONS / 2],
        );
    }
}

fn encoded((x, y, time): &Event) -> Vec<u8> {
    let point = Point::new(Space::Sphere, *x, *y).unwrap();
    Value::PointTime(Space::Sphere, point, time * 1_000_000).encoded()
}
