//! Tables partitioned by space have about the configured size, and counts and bulk reads of a small
//! area read few of them.

use std::ops::ControlFlow;

use esker::schema::{Layout, Merging};
use esker::{
    AreaExpr, Database, Dataset, DatasetDef, Durability, Index, IndexKind, KeyType, Options, Order,
    field,
};
use fastrand::Rng;

const POINTS: u64 = 60_000;
const TABLE: u64 = 64 << 10;

/// Points around towns, in a leveled tree with many tables; and the towns.
fn written(db: &Database, layout: Layout) -> (Dataset<u64>, Vec<(f64, f64)>) {
    let kind = IndexKind::Spatial(layout);
    let index = Index::new(kind).of_type(Index::spatial().type_of());
    let def = DatasetDef::new("id", KeyType::Int)
        .merging(Merging::Leveled)
        .index("lon,lat", index);
    let dataset = db.create_dataset::<u64>("places", def).unwrap();
    let mut rng = Rng::with_seed(3);
    let towns: Vec<(f64, f64)> = (0..300)
        .map(|_| (rng.f64() * 340.0 - 170.0, rng.f64() * 130.0 - 60.0))
        .collect();
    for first in (0..POINTS).step_by(500) {
        let mut batch = dataset.batch();
        for id in first..first + 500 {
            let (x, y) = towns[rng.usize(..towns.len())];
            let (x, y) = (x + rng.f64() - 0.5, y + rng.f64() - 0.5);
            let record = format!("{{\"id\":{id},\"lon\":{x:.6},\"lat\":{y:.6}}}");
            batch.put_json(record).unwrap();
        }
        batch.commit().unwrap();
    }
    db.flush().unwrap();
    db.group().run_compactions().unwrap();
    (dataset, towns)
}

fn options() -> Options {
    Options::new()
        .memory_budget(2 << 20)
        .table_size(TABLE)
        .durability(Durability::Os)
        .background(false)
}

#[test]
fn compactions_cut_tables_of_about_the_configured_size() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::create_or_open(dir.path(), options()).unwrap();
    let (dataset, _) = written(&db, Layout::Mbr);
    let boxes = dataset.snapshot().table_boxes("lon,lat").unwrap();
    let deepest = boxes.iter().map(|table| table.level).max().unwrap();
    let below: Vec<u64> = (boxes.iter().filter(|table| table.level == deepest))
        .map(|table| table.bytes)
        .collect();
    let (all, largest) = (below.iter().sum::<u64>(), *below.iter().max().unwrap());
    assert!(all > 8 * TABLE, "{all} bytes are too few to tell");
    assert!(largest < 4 * TABLE, "{below:?}");
    let in_fair_ones: u64 = below.iter().filter(|bytes| **bytes > TABLE / 4).sum();
    assert!(in_fair_ones > all * 3 / 4, "{below:?}");
}

#[test]
fn a_small_area_is_counted_and_read_in_few_tables() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::create_or_open(dir.path(), options()).unwrap();
    let (dataset, towns) = written(&db, Layout::Mbr);
    let snapshot = dataset.snapshot();
    let boxes = snapshot.table_boxes("lon,lat").unwrap();
    for (x, y) in towns.into_iter().step_by(15) {
        let meet = boxes.iter().filter(|table| {
            (table.west <= x + 0.01 && x - 0.01 <= table.east)
                && (table.south <= y + 0.01 && y - 0.01 <= table.north)
        });
        let meet = meet.count() as u64;
        let area = || AreaExpr::rect(x - 0.01, y - 0.01, x + 0.01, y + 0.01);
        let query = || snapshot.find(field("lon,lat").within(area()));
        let (count, counted) = query().count_explained().unwrap();
        let mut found = 0;
        let read = query()
            .order(Order::Any)
            .visit(&mut |_| {
                found += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(found, count);
        for explain in [counted, read] {
            let blocks = explain.cost.index.map_or(0, |cost| cost.data_blocks);
            // Some blocks of each table, for the z-order ranges that cover the area.
            assert!(
                blocks <= 8 * meet,
                "{blocks} blocks, {meet} tables of {}",
                boxes.len()
            );
        }
    }
}
