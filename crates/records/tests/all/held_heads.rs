//! A scan of a dataset that is stored by location holds the heads of its records in borrowed
//! memory, and only as many as that holds.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::common::DIR;
use esker::{Database, Dataset, DatasetDef, Durability, Explain, Index, Options, Order, field};
use esker_sim::memory::Memory;
use fastrand::Rng;
use serde_json::json;

const RECORDS: u64 = 300;

/// Records with large heads, in a store with this much memory.
fn dataset(memory: usize) -> (Database, Dataset<u64>) {
    let options = Options::new()
        .fs(Arc::new(Memory::new()))
        .memory_budget(memory)
        .durability(Durability::Os)
        .background(false);
    let db = Database::create_or_open(Path::new(DIR), options).unwrap();
    let def = DatasetDef::key("id")
        .cluster("at")
        .index("text", Index::filter().string());
    let dataset = db.create_dataset::<u64>("d", def).unwrap();
    let mut rng = Rng::with_seed(4);
    let mut text = |length: usize| -> String { (0..length).map(|_| rng.alphanumeric()).collect() };
    for id in 0..RECORDS {
        let at = [id as f64 / 10.0, 0.0];
        let record = json!({"id": id, "at": at, "n": id, "text": text(900), "body": text(30_000)});
        dataset.put(&record).unwrap();
    }
    db.flush().unwrap();
    (db, dataset)
}

/// The plan of a query that needs all bodies, and the most memory that queries held meanwhile.
fn visit(db: &Database, dataset: &Dataset<u64>) -> (Explain, usize) {
    let (mut records, mut held) = (0, 0);
    let query = dataset.find(field("n").ge(0)).order(Order::Any);
    let explain = query
        .visit(&mut |_| {
            records += 1;
            held = held.max(db.stats().memory.held_bytes["queries"]);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(records, RECORDS);
    (explain, held)
}

#[test]
fn heads_are_held_in_borrowed_memory_and_no_more_than_that() {
    let (db, plenty) = dataset(64 << 20);
    let (looked_up, held) = visit(&db, &plenty);
    assert!(held > 0, "the heads are in memory of the budget");
    // A lookup probes key filters, a scan does not.
    let filters = |explain: &Explain| explain.cost.place.map(|place| place.filters_probed);
    assert!(filters(&looked_up) > Some(0), "{looked_up:?}");
    let (db, little) = dataset(1 << 20);
    let (scanned, _) = visit(&db, &little);
    assert_eq!(filters(&scanned), Some(0), "{scanned:?}");
}
