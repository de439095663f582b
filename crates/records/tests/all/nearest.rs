//! The nearest records in circles with more points than fit in a query's memory.

use std::path::Path;
use std::sync::Arc;

use crate::common::DIR;
use esker::{AreaExpr, Database, Dataset, DatasetDef, Durability, Explain, Index, Options, field};
use esker_sim::memory::Memory;
use fastrand::Rng;
use serde_json::json;

const RECORDS: u64 = 30_000;

/// The same points in a store with this much memory.
fn dataset(memory: usize) -> Dataset<u64> {
    let options = Options::new()
        .fs(Arc::new(Memory::new()))
        .memory_budget(memory)
        .durability(Durability::Os)
        .background(false);
    let db = Database::create_or_open(Path::new(DIR), options).unwrap();
    let def = DatasetDef::key("id").index("at", Index::spatial());
    let dataset = db.create_dataset::<u64>("d", def).unwrap();
    let mut rng = Rng::with_seed(4);
    let mut batch = dataset.batch();
    for id in 0..RECORDS {
        let at = [rng.f64() * 20.0 - 10.0, rng.f64() * 20.0 - 10.0];
        let rare = rng.u32(..2000);
        batch
            .put(&json!({"id": id, "at": at, "rare": rare}))
            .unwrap();
    }
    batch.commit().unwrap();
    db.flush().unwrap();
    dataset
}

/// The keys and distances of the nearest records with a rare value.
fn nearest(dataset: &Dataset<u64>, k: usize, max: Option<f64>) -> (Vec<(u64, f64)>, Explain) {
    let query = dataset.find(field("rare").lt(2));
    let (near, explain) = query.nearest_explained("at", (1.0, 2.0), k, max).unwrap();
    let near = near.iter().map(|near| (*near.record.key(), near.distance));
    (near.collect(), explain)
}

#[test]
fn a_circle_with_more_points_than_memory_gives_the_same_answer() {
    let (little, plenty) = (dataset(4 << 20), dataset(256 << 20));
    for (k, max) in [(3, None), (3, Some(2e6)), (1000, None), (1000, Some(5e5))] {
        let (expected, _) = nearest(&plenty, k, max);
        let (found, explain) = nearest(&little, k, max);
        assert_eq!(found, expected, "{k} {max:?}: {explain}");
        assert!(found.len() == k || k == 1000);
    }
    // The first circle has all points. With plenty of memory their entries are ordered by distance,
    // and no more records are answers than are wanted. With little, each record is looked at.
    let rect = AreaExpr::rect(-11.0, -11.0, 11.0, 11.0);
    let nearest = |dataset: &Dataset<u64>| {
        let query = dataset.find(field("at").within(rect.clone()));
        query
            .nearest_explained("at", (1.0, 2.0), 25_000, None)
            .unwrap()
    };
    let (expected, in_memory) = nearest(&plenty);
    let (found, explain) = nearest(&little);
    assert!(found.len() == 25_000 && expected.len() == 25_000);
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.record.key(), expected.record.key());
    }
    assert_eq!(in_memory.steps.answers, 25_000, "{in_memory}");
    assert!(explain.steps.answers > 25_000, "{explain}");
}
