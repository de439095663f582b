//! Records that a change of an index or a strategy skips, because they were replaced or deleted
//! without a sync since it began, do not come back after a power cut.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{TextQuery, open, path, scan};
use esker::schema::Maintenance;
use esker::{Dataset, DatasetDef, Durability, IndexKind, KeyType, Type};
use esker_sim::combinations;
use esker_sim::memory::{Memory, PowerCut};

const MODES: [PowerCut; 4] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
];

const VALUES: u64 = 4;

fn body(key: u64, value: u64, order: u64) -> String {
    let pad = "p".repeat((key * 3) as usize);
    format!("{{\"id\":{key},\"a\":{value},\"b\":{value},\"order\":{order},\"pad\":\"{pad}\"}}")
}

/// Runs a change of a dataset while the function returns `Continue`.
type Change<'c> = dyn Fn(&Dataset, &mut dyn FnMut() -> ControlFlow<()>) + 'c;

/// Puts a hundred records, begins a change and stops it before it has read a record, deletes or
/// replaces every record without a sync, resumes the change, and cuts the power.
fn begun_broken_off_emptied(what: &str, replaced: bool, cut: PowerCut, change: &Change<'_>) {
    let memory = Memory::new();
    let db = open(Arc::new(memory.clone())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int).index(
        path("a"),
        esker::Index::new(IndexKind::Composite).of_type(Type::Int),
    );
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let mut batch = dataset.batch();
    for key in 0..100 {
        batch
            .put_json(body(key, key % VALUES, key).as_bytes())
            .unwrap();
    }
    batch.durability(Durability::Sync).commit().unwrap();
    change(&dataset, &mut || ControlFlow::Break(()));
    for key in 0..100 {
        if replaced {
            batch.put_json(body(key, (key + 1) % VALUES, 100 + key).as_bytes())
        } else {
            batch.delete(dataset.parse_key(&key.to_string()).unwrap())
        }
        .unwrap();
    }
    batch.durability(Durability::Os).commit().unwrap();
    change(&dataset, &mut || ControlFlow::Continue(()));
    let left = memory.power_cut(1, cut);
    let db = open(Arc::new(left)).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let report = db.check().unwrap();
    assert_eq!(report.errors, Vec::<String>::new(), "{what}, {cut:?}");
    let scanned = scan(&dataset.snapshot()).unwrap().len() as u64;
    for at in ["a", "b"] {
        let all = dataset.query().between(&path(at), "0", "9");
        assert_eq!(all.count().unwrap(), scanned, "{what}, {at}, {cut:?}");
    }
}

#[test]
fn what_a_change_passed_over_because_it_was_replaced_does_not_come_back_by_a_power_cut() {
    let kinds = IndexKind::ALL;
    for row in combinations(&[MODES.len(), 2, kinds.len()], &|_| true) {
        let (cut, replaced, kind) = (MODES[row[0]], row[1] == 1, kinds[row[2]]);
        let add = |dataset: &Dataset, go: &mut dyn FnMut() -> ControlFlow<()>| {
            let progress = &mut |_| go();
            dataset
                .add_index(path("b"), kind)
                .on_progress(progress)
                .run()
                .unwrap();
        };
        begun_broken_off_emptied(&kind.to_string(), replaced, cut, &add);
    }
    for row in combinations(&[MODES.len(), 2, Maintenance::ALL.len()], &|_| true) {
        let (cut, replaced, to) = (MODES[row[0]], row[1] == 1, Maintenance::ALL[row[2]]);
        let change = |dataset: &Dataset, go: &mut dyn FnMut() -> ControlFlow<()>| {
            dataset
                .set_maintenance(to)
                .on_progress(|_| go())
                .run()
                .unwrap();
        };
        begun_broken_off_emptied(&to.to_string(), replaced, cut, &change);
    }
}
