//! What a spatial index costs: inserts, moves, areas of some shares of the records, and the nearest
//! few.
//!
//! `cargo run --release -p probes --bin space -- [POINTS] [KIND] [QUESTIONS]`: points are spread
//! about 2,000 towns; KIND is a layout of the spatial index (spatial:z, ...), composite (an index
//! of a number in its place, to compare inserts with) or none. Prints medians in microseconds, and
//! blocks with entries that each answer needed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Instant;

use esker::{
    AreaExpr, Database, DatasetDef, Durability, Index, IndexKind, KeyType, Options, field,
};
use fastrand::Rng;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let points: u64 = arguments
        .next()
        .map_or(1_000_000, |text| text.parse().unwrap());
    let kind = arguments.next().unwrap_or("spatial".to_string());
    let questions: usize = arguments.next().map_or(1000, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new()
        .memory_budget(256 << 20)
        .durability(Durability::Os);
    let db = Database::create_or_open(dir.path(), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int);
    let def = match kind.as_str() {
        "none" => def,
        "composite" => def.index("lon", Index::composite().float()),
        kind => {
            let kind: IndexKind = kind.parse().unwrap();
            def.index(
                "lon,lat",
                Index::new(kind).of_type(Index::spatial().type_of()),
            )
        }
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
        let mut batch = dataset.batch();
        let mut pending = 0;
        for id in ids {
            let (x, y) = near(rng);
            let text = format!(
                "{{\"id\":{id},\"lon\":{x:.6},\"lat\":{y:.6},\"n\":{}}}",
                id % 100
            );
            batch.put_json(text.as_bytes()).unwrap();
            pending += 1;
            if pending % 1000 == 0 {
                batch.commit().unwrap();
                batch = dataset.batch();
            }
        }
        batch.commit().unwrap();
    };
    let begin = Instant::now();
    write(&mut rng, &mut (0..points));
    let put = begin.elapsed().as_secs_f64();
    db.flush().unwrap();
    let begin = Instant::now();
    let moved = points / 5;
    let ids: Vec<u64> = (0..moved).map(|_| rng.u64(0..points)).collect();
    write(&mut rng, &mut ids.into_iter());
    let moves = begin.elapsed().as_secs_f64();
    db.flush().unwrap();
    println!(
        "{kind}: {:.0} inserts/s, {:.0} moves/s; {} MiB on disk",
        points as f64 / put,
        moved as f64 / moves,
        size(dir.path()) >> 20
    );
    if kind == "none" || kind == "composite" {
        return;
    }
    let snapshot = dataset.snapshot();
    for share in [1e-6, 1e-5, 1e-4, 1e-3] {
        // A side that holds about such a share around a town.
        let mut micros = Vec::new();
        let (mut found, mut blocks) = (0, 0);
        let side = (share * 2000.0_f64).sqrt() * 0.9;
        for _ in 0..questions {
            let (x, y) = near(&mut rng);
            let area = AreaExpr::rect(
                x - side / 2.0,
                y - side / 2.0,
                x + side / 2.0,
                y + side / 2.0,
            );
            let begin = Instant::now();
            let (count, explain) = snapshot
                .find(field("lon,lat").within(area))
                .count_explained()
                .unwrap();
            micros.push(begin.elapsed().as_secs_f64() * 1e6);
            found += count;
            blocks += explain.cost.index.map_or(0, |cost| cost.data_blocks);
        }
        println!(
            "  about {share:e}: {:.1} records, {:.1} us, {:.1} blocks of the index",
            found as f64 / questions as f64,
            median(&mut micros),
            blocks as f64 / questions as f64
        );
    }
    let mut micros = Vec::new();
    let mut steps = Vec::new();
    for _ in 0..questions {
        let from = near(&mut rng);
        let begin = Instant::now();
        let (found, explain) = snapshot
            .query()
            .nearest_explained("lon,lat", from, 10, None)
            .unwrap();
        steps.push((
            explain.steps.candidates,
            explain.steps.fetched,
            explain.cost.index.map_or(0, |c| c.data_blocks),
        ));
        micros.push(begin.elapsed().as_secs_f64() * 1e6);
        assert_eq!(found.len(), 10);
    }
    steps.sort_unstable();
    let (candidates, fetched, blocks) = steps[questions / 2];
    println!("  10 nearest: {candidates} candidates, {fetched} fetched, {blocks} blocks");
    println!("  10 nearest: {:.1} us", median(&mut micros));
}

fn median(micros: &mut [f64]) -> f64 {
    micros.sort_by(f64::total_cmp);
    micros[micros.len() / 2]
}

fn size(dir: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}
