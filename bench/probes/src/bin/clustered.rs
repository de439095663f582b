//! What it costs to store records in the order of place, and what it saves: areas with their
//! records, gets, puts and moves.
//!
//! `cargo run --release -p probes --bin clustered -- [POINTS] [beside|clustered] [STRATEGY]`:
//! points about 2,000 towns in an order of keys that has nothing to do with it, and memory for
//! about a third of them; `beside` has a spatial index in z-order. Prints CPU time of the process
//! (Linux), for writes with flushes and compactions, and blocks with entries.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::ControlFlow;

use esker::{
    AreaExpr, Database, DatasetDef, Durability, Explain, Index, KeyType, Options, Order, field,
};
use fastrand::Rng;

const QUESTIONS: usize = 1000;
const GETS: u32 = 100_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let points: u64 = arguments
        .next()
        .map_or(1_000_000, |text| text.parse().unwrap());
    let how = arguments.next().unwrap_or("clustered".to_string());
    let strategy = arguments.next().unwrap_or("mutable-bitmap".to_string());
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new()
        .memory_budget(64 << 20)
        .durability(Durability::Os);
    let db = Database::create_or_open(dir.path(), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int).maintenance(strategy.parse().unwrap());
    let def = match how.as_str() {
        "clustered" => def.cluster("lon,lat"),
        _ => def.index("lon,lat", Index::spatial()),
    };
    let dataset = db.create_dataset::<u64>("points", def).unwrap();
    let mut rng = Rng::with_seed(1);
    let towns: Vec<(f64, f64)> = (0..2000)
        .map(|_| (rng.f64() * 340.0 - 170.0, rng.f64() * 130.0 - 60.0))
        .collect();
    let near = |rng: &mut Rng| {
        let (x, y) = towns[rng.usize(..towns.len())];
        let spread = |rng: &mut Rng| (rng.f64() + rng.f64() + rng.f64() - 1.5) * 0.8;
        (x + spread(rng), y + spread(rng))
    };
    let write = |rng: &mut Rng, ids: &mut dyn Iterator<Item = u64>| {
        let (mut batch, before) = (dataset.batch(), cpu_of_all());
        let mut written = 0;
        for id in ids {
            let (x, y) = near(rng);
            let name: String = (0..12).map(|_| format!("{:08x} ", rng.u32(..))).collect();
            let n = id % 100;
            let text = format!(
                "{{\"id\":{id},\"lon\":{x:.6},\"lat\":{y:.6},\"n\":{n},\"name\":\"{name}\"}}"
            );
            batch.put_json(text.as_bytes()).unwrap();
            written += 1;
            if batch.len() == 1000 {
                batch.commit().unwrap();
            }
        }
        batch.commit().unwrap();
        db.flush().unwrap();
        (cpu_of_all() - before) / f64::from(written)
    };
    let put = write(&mut rng, &mut (0..points));
    let moved: Vec<u64> = (0..points / 5).map(|_| rng.u64(0..points)).collect();
    let moves = write(&mut rng, &mut moved.into_iter());
    db.compact(None).unwrap();
    println!(
        "{how}, {strategy}: {put:.1} us a put, {moves:.1} us a move; {} MiB on disk",
        size(dir.path()) >> 20
    );
    let snapshot = dataset.snapshot();
    let before = cpu_of_all();
    for _ in 0..GETS {
        assert!(snapshot.get(rng.u64(0..points)).unwrap().is_some());
    }
    println!(
        "  a get: {:.1} us",
        (cpu_of_all() - before) / f64::from(GETS)
    );
    for share in [1e-5, 1e-4, 1e-3] {
        let side = (share * 2000.0_f64).sqrt() * 0.9;
        let (before, mut found) = (cpu_of_all(), 0);
        // Of the data, the index, and what was looked up by place; read from files.
        let mut blocks = [0; 4];
        for _ in 0..QUESTIONS {
            let (x, y) = near(&mut rng);
            let half = side / 2.0;
            let area = AreaExpr::rect(x - half, y - half, x + half, y + half);
            let query = snapshot.find(field("lon,lat").within(area));
            let visit = &mut |record: esker::Record<u64>| {
                found += usize::from(!record.json().is_empty());
                ControlFlow::Continue(())
            };
            let explain = query.order(Order::Any).visit(visit).unwrap();
            for (sum, more) in blocks.iter_mut().zip(counted(&explain)) {
                *sum += more;
            }
        }
        let each = |sum: u64| sum as f64 / QUESTIONS as f64;
        println!(
            "  about {share:e}: {:.1} records, {:.0} us; blocks: {:.1} of the data, {:.1} of the index, {:.1} by place; {:.1} blocks read from files",
            found as f64 / QUESTIONS as f64,
            (cpu_of_all() - before) / QUESTIONS as f64,
            each(blocks[0]),
            each(blocks[1]),
            each(blocks[2]),
            each(blocks[3]),
        );
    }
}

fn counted(explain: &Explain) -> [u64; 4] {
    let cost = &explain.cost;
    let (index, place) = (
        cost.index.unwrap_or_default(),
        cost.place.unwrap_or_default(),
    );
    [
        cost.data.data_blocks,
        index.data_blocks,
        place.data_blocks,
        cost.data.blocks_read + index.blocks_read + place.blocks_read,
    ]
}

/// CPU time of the process in microseconds, to a hundredth of a second.
fn cpu_of_all() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let behind = text.rsplit_once(") ").unwrap().1;
    let fields: Vec<&str> = behind.split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks * 1e4
}

fn size(dir: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}
