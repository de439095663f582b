//! Datasets on a real server, compared with a model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use esker_cluster::{Dataset, RepairOptions, Store};
use esker_model::Key;
use esker_model::condition::{Expr, field};
use esker_model::definition::{DatasetDef, Index};
use esker_model::query::Request;
use esker_model::record::Update;
use esker_model::schema::{KeyType, Value};

use crate::server::Cluster;

/// Records by key: a text and a number.
pub(crate) type Model = BTreeMap<i64, (String, i64)>;

pub(crate) fn all(cluster: &Cluster) {
    let store = cluster.store("layer");
    let dataset = store.create_dataset("d", &definition(1)).unwrap();
    assert!(store.create_dataset("d", &definition(1)).is_err());
    let model = histories(&dataset);
    compare(&dataset, &model);
    repaired(&dataset);
    compare(&dataset, &model);
    conditional_writes_count(&dataset);
    store.drop_dataset("d").unwrap();
    assert!(store.dataset_names().unwrap().is_empty());
    // Another process sees it.
    let other = Store::open(
        std::sync::Arc::new(cluster.cells("layer")),
        false,
        esker_cluster::Options::default(),
    );
    assert!(other.unwrap().dataset_names().unwrap().is_empty());
}

pub(crate) fn definition(versions: u32) -> DatasetDef {
    DatasetDef::new("id", KeyType::Int)
        .versions(versions)
        .index("s", Index::composite().string())
        .index("n", Index::composite().int())
}

pub(crate) fn json(id: i64, (s, n): &(String, i64)) -> String {
    format!(r#"{{"id":{id},"s":"{s}","n":{n}}}"#)
}

pub(crate) fn key(id: i64) -> Key {
    Key::new(KeyType::Int, &Value::Int(i128::from(id))).unwrap()
}

/// Several threads write, each its own keys; returns what is left.
pub(crate) fn histories(dataset: &Dataset) -> Model {
    let run = |thread: i64| {
        let mut random = fastrand::Rng::with_seed(thread as u64);
        let mut model = Model::new();
        for _ in 0..30 {
            let mut batch = dataset.batch();
            for _ in 0..random.usize(1..60) {
                let id = random.i64(0..80) * 4 + thread;
                match random.u32(0..5) {
                    0 => {
                        batch.delete(&key(id)).unwrap();
                        model.remove(&id);
                    }
                    _ => {
                        let record = (format!("s{}", random.u32(0..9)), random.i64(-50..50));
                        batch.put_json(json(id, &record).as_bytes()).unwrap();
                        model.insert(id, record);
                    }
                }
            }
            batch.commit().unwrap();
        }
        model
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| scope.spawn(move || run(thread)))
            .collect();
        let models = threads.into_iter().map(|thread| thread.join().unwrap());
        models.flatten().collect()
    })
}

pub(crate) fn ids(dataset: &Dataset, condition: Expr) -> Vec<i64> {
    let mut answer = dataset.find(&Request::of(condition)).unwrap();
    let mut ids = Vec::new();
    let mut last = u64::MAX;
    while let Some(record) = answer.next_record().unwrap() {
        assert!(record.seq() < last, "not newest first");
        last = record.seq();
        let json: serde_json::Value = serde_json::from_slice(record.json()).unwrap();
        ids.push(json["id"].as_i64().unwrap());
    }
    ids.sort_unstable();
    ids
}

/// Compares all answers with the model's.
pub(crate) fn compare(dataset: &Dataset, model: &Model) {
    let of = |is: &dyn Fn(&(String, i64)) -> bool| -> Vec<i64> {
        let found = model.iter().filter(|(_, record)| is(record));
        found.map(|(id, _)| *id).collect()
    };
    for n in 0..9 {
        let value = format!("s{n}");
        let found = ids(dataset, field("s").eq(value.as_str()));
        assert_eq!(found, of(&|(s, _)| *s == value), "s={value}");
    }
    for (lo, hi) in [(-50, 50), (-10, 10), (7, 8)] {
        let found = ids(dataset, field("n").range(lo..hi));
        assert_eq!(found, of(&|(_, n)| (lo..hi).contains(n)), "{lo} to {hi}");
    }
    let keys: Vec<Key> = (0..320).map(key).collect();
    for (id, record) in (0..320).zip(dataset.get_many(&keys).unwrap()) {
        let found = record.map(|record| String::from_utf8(record.json().to_vec()).unwrap());
        let expected = model.get(&id).map(|record| json(id, record));
        assert_eq!(found, expected, "key {id}");
    }
}

/// Repairs, and checks that indexes equal the records.
pub(crate) fn repaired(dataset: &Dataset) {
    let options = RepairOptions {
        full: false,
        rows_per_second: None,
    };
    let done = dataset.repair(options, &mut |_| ControlFlow::Continue(()));
    assert!(done.unwrap().complete);
    checked(dataset);
}

/// Checks that indexes equal the records, and have nothing else.
pub(crate) fn checked(dataset: &Dataset) {
    let found = dataset.check(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(found.errors, Vec::<String>::new());
    assert_eq!((found.obsolete, found.dangling), (0, 0), "{found:?}");
}

fn conditional_writes_count(dataset: &Dataset) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..15 {
                    let done = dataset.update::<esker_cluster::Error>(&key(1000), &mut |record| {
                        let count = record.map_or(0, |record| {
                            let json: serde_json::Value =
                                serde_json::from_slice(record.json()).unwrap();
                            json["n"].as_i64().unwrap()
                        });
                        let next = json(1000, &("count".to_string(), count + 1));
                        Ok(Update::Put(next.into_bytes()))
                    });
                    done.unwrap();
                }
            });
        }
    });
    assert_eq!(ids(dataset, field("n").eq(60)), [1000]);
    let mut batch = dataset.batch();
    let record = json(1000, &("again".to_string(), 0));
    batch.insert_json(record.as_bytes()).unwrap();
    let error = batch.commit().unwrap_err();
    assert!(
        matches!(error, esker_cluster::Error::Exists(_)),
        "{error:?}"
    );
}
