//! Datasets in the order of place and time: a record with several times is stored at each of them,
//! and is still one record.

use crate::common;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::check;
use esker::schema::Maintenance;
use esker::{AreaExpr, Dataset, DatasetDef, Expr, Index, KeyType, Order, Record, field};
use esker_sim::memory::Memory;
use serde_json::json;

fn bulk(dataset: &Dataset<u64>, condition: Expr, order: Order) -> Vec<u64> {
    let mut found = Vec::new();
    let visit = &mut |record: Record<u64>| {
        found.push(*record.key());
        ControlFlow::Continue(())
    };
    let snapshot = dataset.snapshot();
    snapshot.find(condition).order(order).visit(visit).unwrap();
    found.sort_unstable();
    found
}

#[test]
fn a_record_of_several_times_is_one_record() {
    for maintenance in Maintenance::ALL {
        let db = common::open(Arc::new(Memory::new())).unwrap();
        let def = DatasetDef::new("id", KeyType::Int)
            .index("time", Index::none().int())
            .cluster("at@time")
            .maintenance(maintenance);
        let dataset = db.create_dataset::<u64>("d", def).unwrap();
        for id in 0..20 {
            dataset
                .put(&json!({"id": id, "at": [id, 1], "time": [5, 7, 6_000_000], "pad": "x"}))
                .unwrap();
        }
        dataset
            .put(&json!({"id": 3, "at": [3, 1], "time": [7, 9, 11], "pad": "x"}))
            .unwrap();
        dataset
            .put(&json!({"id": 4, "at": [4, 1], "time": [4, 5, 6], "pad": "x"}))
            .unwrap();
        for round in 0..3 {
            let label = format!("{maintenance} {round}");
            let area = || field("at").within(AreaExpr::rect(0.0, 0.0, 9.0, 9.0));
            let window = || area() & field("time").ge(0) & field("time").le(10);
            let wanted: Vec<u64> = (0..10).collect();
            let found = dataset.find(window()).run().unwrap();
            let mut found: Vec<u64> = found.map(|r| *r.unwrap().key()).collect();
            found.sort_unstable();
            assert_eq!(found, wanted, "{label}: find");
            assert_eq!(
                dataset.find(window()).count().unwrap(),
                10,
                "{label}: count"
            );
            for order in [Order::Key, Order::Any] {
                assert_eq!(
                    bulk(&dataset, window(), order.clone()),
                    wanted,
                    "{label} {order:?}"
                );
                assert_eq!(
                    bulk(&dataset, area(), order.clone()),
                    wanted,
                    "{label} {order:?}"
                );
            }
            for order in [Order::Key, Order::Any] {
                let all = bulk(&dataset, field("pad").eq("x"), order.clone());
                assert_eq!(
                    all,
                    (0..20).collect::<Vec<u64>>(),
                    "{label} {order:?}: scan"
                );
            }
            let scanned = dataset.scan(..).map(|r| *r.unwrap().key());
            assert_eq!(scanned.count(), 20);
            let near = dataset
                .find(field("time").ge(0) & field("time").le(10))
                .nearest("at", (3.0, 1.0), 3, Some(1e6))
                .unwrap();
            let near: Vec<u64> = near.iter().map(|n| *n.record.key()).collect();
            assert_eq!(near, [3, 2, 4], "{label}");
            check(&db);
            match round {
                0 => db.flush().unwrap(),
                _ => db.compact(None).unwrap(),
            }
        }
    }
}
