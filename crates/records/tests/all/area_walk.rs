//! An area at the corner of cells that are far apart in z-order: the tables between its key ranges
//! are not read.

use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, small};
use esker::{AreaExpr, Database, DatasetDef, Index, KeyType, field};
use esker_sim::memory::Memory;
use fastrand::Rng;
use serde_json::json;

#[test]
fn tables_between_the_ranges_of_an_area_are_not_read() {
    let options = small(Arc::new(Memory::new())).memory_budget(4 << 20);
    let db = Database::create_or_open(Path::new(DIR), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int).index("at", Index::spatial());
    let dataset = db.create_dataset::<u64>("d", def).unwrap();
    let mut rng = Rng::with_seed(3);
    let mut batch = dataset.batch();
    for id in 0..20_000 {
        let at = [rng.f64() * 340.0 - 170.0, rng.f64() * 160.0 - 80.0];
        batch.put(&json!({"id": id, "at": at})).unwrap();
    }
    batch.commit().unwrap();
    db.flush().unwrap();
    db.compact(None).unwrap();
    let area = AreaExpr::rect(-0.5, -0.5, 0.5, 0.5);
    let mut answer = dataset.find(field("at").within(area)).run().unwrap();
    let found = answer.by_ref().map(Result::unwrap).count();
    let blocks = answer.explain().cost.index.unwrap().data_blocks;
    assert!(blocks <= 12, "{blocks} blocks for {found} records");
}
