//! Named snapshots of a store: each kind of index under each strategy answers as it did then,
//! whatever happens to the definition, the strategy and the dataset; and refused calls. (Random
//! histories are in `sim`.)

use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{DIR, TextQuery, path, row, small};
use esker::maintain::RepairOptions;
use esker::schema::Maintenance;
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, ErrorKind, IndexKind, KeyType,
    Order, Type,
};
use esker_sim::memory::Memory;

const KEYS: u64 = 60;
const VALUES: u64 = 7;

fn open(fs: &Memory) -> Database {
    Database::create_or_open(FsPath::new(DIR), small(Arc::new(fs.clone()))).unwrap()
}

/// Puts some records again, and deletes some.
fn write(dataset: &Dataset, round: u64) {
    let mut rng = fastrand::Rng::with_seed(round);
    for _ in 0..8 {
        let mut batch = dataset.batch();
        for _ in 0..10 {
            let key = rng.u64(0..KEYS);
            if rng.usize(0..6) == 0 {
                let key = dataset.parse_key(&key.to_string()).unwrap();
                batch.delete(&key).unwrap();
            } else {
                let (a, b) = (rng.u64(0..VALUES), rng.u64(0..VALUES));
                let body = format!("{{\"id\":{key},\"a\":{a},\"b\":{b},\"round\":{round}}}");
                batch.put_json(body.as_bytes()).unwrap();
            }
        }
        batch.durability(Durability::Os).commit().unwrap();
    }
}

type Rows = Vec<(String, String)>;

/// The results for each value of both attributes, in both orders, as keys and as counts; and of a
/// scan.
fn answers(snapshot: &DatasetSnapshot) -> (Rows, Vec<(Rows, Rows, u64)>) {
    let rows = |records: &mut dyn Iterator<Item = esker::Result<esker::Record>>| -> Rows {
        records.map(|record| row(record).unwrap()).collect()
    };
    let scanned = rows(&mut snapshot.scan(..));
    let mut found = Vec::new();
    for attribute in ["a", "b"] {
        for value in 0..VALUES {
            let value = value.to_string();
            let query = || snapshot.query().equals(&path(attribute), &value);
            let newest = rows(&mut query().run().unwrap());
            let oldest = rows(&mut query().order(Order::Oldest).limit(Some(3)).run().unwrap());
            let keys: Vec<String> = query()
                .keys()
                .unwrap()
                .map(|key| key.unwrap().to_string())
                .collect();
            assert!(keys.iter().eq(newest.iter().map(|(key, _)| key)));
            // The index agrees with the records.
            let right = format!("\"{attribute}\":{value},");
            let mut records = scanned.iter().filter(|(_, body)| body.contains(&right));
            assert!(records.all(|record| newest.contains(record)));
            let count = query().count().unwrap();
            assert_eq!(count as usize, newest.len());
            found.push((newest, oldest, count));
        }
    }
    (scanned, found)
}

#[test]
fn each_kind_under_each_strategy_answers_as_it_did() {
    for maintenance in Maintenance::ALL {
        for (at, kind) in IndexKind::ALL.into_iter().enumerate() {
            let fs = Memory::new();
            let db = open(&fs);
            let def = DatasetDef::new(path("id"), KeyType::Int)
                .index(path("a"), esker::Index::new(kind).of_type(Type::Int))
                .maintenance(maintenance);
            let dataset = db.create_dataset::<esker::Key>("d", def.clone()).unwrap();
            write(&dataset, 1);
            db.flush().unwrap();
            write(&dataset, 2);
            if at % 2 == 0 {
                dataset.repair(&RepairOptions::default()).run().unwrap();
                write(&dataset, 3);
            }
            let seen = answers(&dataset.snapshot());
            db.keep_snapshot("then").unwrap();
            write(&dataset, 4);
            // Changes the kind, the strategy and the records.
            let other = IndexKind::ALL[(at + 3) % IndexKind::ALL.len()];
            if other != kind {
                dataset.switch_index(path("a"), other).run().unwrap();
            }
            dataset
                .add_index(path("b"), esker::Index::new(kind).of_type(Type::Int))
                .run()
                .unwrap();
            let next = Maintenance::ALL
                .into_iter()
                .find(|m| *m != maintenance)
                .unwrap();
            dataset.set_maintenance(next).run().unwrap();
            dataset.repair(&RepairOptions::default()).run().unwrap();
            db.compact(None).unwrap();
            let check = |db: &Database| {
                let then = db.kept_snapshot("then").unwrap();
                assert_eq!(then.dataset_names(), ["d"]);
                let then = then.dataset::<esker::Key>("d").unwrap();
                assert_eq!((then.name(), then.def()), ("d".to_string(), def.clone()));
                assert_eq!(answers(&then), seen, "{maintenance:?}, {kind:?}");
            };
            check(&db);
            let now = answers(&dataset.snapshot());
            assert_ne!(now, seen);
            // Another dataset takes its name.
            drop(dataset);
            db.drop_dataset("d").unwrap();
            let def = DatasetDef::new(path("id"), KeyType::String);
            let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
            dataset.put_json(br#"{"id":"x"}"#).unwrap();
            check(&db);
            drop(dataset);
            db.close().unwrap();
            let db = open(&fs);
            check(&db);
            db.backup(FsPath::new("/copy")).unwrap();
            db.drop_snapshot("then").unwrap();
            db.compact(None).unwrap();
            db.close().unwrap();
            let options = small(Arc::new(fs.clone()));
            let copy = Database::open(FsPath::new("/copy"), options).unwrap();
            check(&copy);
            assert_eq!(copy.check().unwrap().errors, Vec::<String>::new());
        }
    }
}

#[test]
fn what_is_refused_is_said_by_kind() {
    let fs = Memory::new();
    let db = open(&fs);
    let kind = |result: esker::Result<()>| result.unwrap_err().kind();
    for name in ["", "a b", "x/y", &"x".repeat(65)] {
        assert_eq!(kind(db.keep_snapshot(name).map(drop)), ErrorKind::BadInput);
    }
    db.keep_snapshot("one").unwrap();
    assert_eq!(kind(db.keep_snapshot("one").map(drop)), ErrorKind::Exists);
    assert_eq!(kind(db.drop_snapshot("two")), ErrorKind::UnknownSnapshot);
    let unknown = db.kept_snapshot("two").map(drop);
    assert_eq!(kind(unknown), ErrorKind::UnknownSnapshot);
    let kept = db.kept_snapshot("one").unwrap();
    assert_eq!(
        kind(kept.dataset::<esker::Key>("d").map(drop)),
        ErrorKind::UnknownDataset
    );
    let reader = Database::open_reader(FsPath::new(DIR), small(Arc::new(fs.clone()))).unwrap();
    assert_eq!(reader.snapshots(), db.snapshots());
    assert_eq!(
        kind(reader.keep_snapshot("two").map(drop)),
        ErrorKind::ReadOnly
    );
    assert_eq!(kind(reader.drop_snapshot("one")), ErrorKind::ReadOnly);
    let stats = db.stats();
    assert_eq!(stats.snapshots[0].name, "one");
    assert_eq!(stats.snapshot_bytes, 0);
}

/// Queries of a snapshot neither record obsolete writes for the current dataset nor count for its
/// statistics.
#[test]
fn asking_the_past_changes_nothing_of_now() {
    let fs = Memory::new();
    let db = open(&fs);
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("a"),
            esker::Index::new(IndexKind::Lazy).of_type(Type::Int),
        )
        .maintenance(Maintenance::Deferred);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    write(&dataset, 1);
    write(&dataset, 2);
    db.keep_snapshot("then").unwrap();
    write(&dataset, 3);
    let before = (dataset.stats(), dataset.usage());
    let then = db
        .kept_snapshot("then")
        .unwrap()
        .dataset::<esker::Key>("d")
        .unwrap();
    for _ in 0..50 {
        answers(&then);
    }
    assert_eq!((dataset.stats(), dataset.usage()), before);
}
