//! The obsolete set on disk and over time. A store whose set is a list of numbers (written before
//! chunks existed, `fixtures/obsolete-numbers.store`) opens, answers, and is converted. The size of
//! the set follows the live data, under every strategy, with or without explicit compactions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{DIR, Doing, TextQuery, check, check_set, converge, open, path, small, unpack};

use esker::maintain::RepairOptions;
use esker::schema::Maintenance;
use esker::{Database, DatasetDef, Durability, IndexKind, KeyType, Type};
use esker_lsm::version::TreeVersion;
use esker_sim::by_tier;
use esker_sim::memory::Memory;

/// A store in the format of [`unpack`].
const OLD: &[u8] = include_bytes!("../fixtures/obsolete-numbers.store");

/// The records in the store; `user` depends on a record's number and round.
fn old_records(dataset: &str) -> BTreeMap<u64, (String, u64)> {
    let mut records = BTreeMap::new();
    let last = (dataset == "deferred").then_some(1);
    for round in (0..6).chain(last) {
        for id in (0..60).filter(|id| round == 0 || (id * 7 + round) % 3 != 0) {
            records.insert(id, (format!("u{}", (id * 3 + round) % 9), round));
        }
    }
    if dataset == "mutable_bitmap" {
        records.remove(&5);
    }
    records
}

fn set(db: &Database, dataset: &str) -> TreeVersion {
    let snapshot = db.group().snapshot();
    let name = format!("{dataset}/superseded");
    let tree = snapshot.version().tree_named(&name).unwrap();
    TreeVersion::clone(tree)
}

/// The number of entries in the tables of a tree.
fn entries(tree: &TreeVersion) -> u64 {
    let tables = tree.runs.iter().flat_map(|run| run.tables.iter());
    tables.map(|table| table.meta().entries).sum()
}

fn answers_are_right(db: &Database) {
    for name in db.dataset_names() {
        let records = old_records(&name);
        let dataset = db.dataset::<esker::Key>(&name).unwrap();
        for user in 0..9 {
            let user = format!("u{user}");
            let wanted = records.values().filter(|record| record.0 == user);
            let query = dataset.query().equals(&path("user"), &user);
            let count = query.count().unwrap();
            assert_eq!(count, wanted.count() as u64, "{name}: {user}");
        }
        for round in 0..6 {
            let wanted = records.values().filter(|record| record.1 == round);
            let query = dataset.query().equals(&path("round"), &round.to_string());
            let count = query.count().unwrap();
            assert_eq!(count, wanted.count() as u64, "{name}: {round}");
        }
    }
}

#[test]
fn a_store_whose_sets_are_lists_of_numbers_opens_answers_and_is_converted() {
    let fs = unpack(OLD);
    let db = open(Arc::new(fs.clone())).unwrap();
    let names = ["deferred", "eager", "mutable_bitmap", "validation"];
    assert_eq!(db.dataset_names(), names);
    answers_are_right(&db);
    check(&db);
    let mut known = Vec::new();
    for name in names {
        let set = set(&db, name);
        // One entry per number.
        assert!(entries(&set) >= set.bitmap().len() && set.bitmap().len() > 100);
        known.push(set.bitmap().clone());
    }
    // Merged with a newer run, the set consists of chunks with the same numbers.
    for name in names {
        let dataset = db.dataset::<esker::Key>(name).unwrap();
        let go = &mut |_| ControlFlow::Continue(());
        dataset
            .repair(&RepairOptions::default())
            .on_progress(go)
            .run()
            .unwrap();
    }
    converge(&db);
    for (name, known) in names.iter().zip(known) {
        let set = set(&db, name);
        assert!(known.iter().all(|seq| set.bitmap().contains(seq)));
    }
    answers_are_right(&db);
    check(&db);
    db.compact(None).unwrap();
    for name in names {
        let set = set(&db, name);
        assert!(entries(&set) <= 1, "{name}");
        assert!(set.bitmap().is_empty() && set.noted() > 100, "{name}");
    }
    answers_are_right(&db);
    check(&db);
    db.close().unwrap();
    let db = open(Arc::new(fs)).unwrap();
    answers_are_right(&db);
    check(&db);
}

/// The number of records, and how often each is written.
const RECORDS: u64 = 400;
const ROUNDS: u64 = 60;

fn grow(maintenance: Maintenance, kind: IndexKind, compact: bool) {
    let _doing = Doing(format!("{maintenance} {kind} {compact}"));
    let fs = Memory::new();
    let options = || small(Arc::new(fs.clone())).engine(|engine| engine.bitmap_slack = 256);
    let db = Database::create_or_open(FsPath::new(DIR), options()).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("v"), esker::Index::new(kind).of_type(Type::Int))
        .maintenance(maintenance);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut values = BTreeMap::new();
    for _ in 0..ROUNDS {
        let mut batch = dataset.batch();
        for _ in 0..RECORDS {
            let (id, v) = (rng.u64(..RECORDS), rng.u64(..50));
            let json = format!("{{\"id\":{id},\"v\":{v},\"pad\":\"{}\"}}", "p".repeat(60));
            batch.put_json(json.as_bytes()).unwrap();
            values.insert(id, v);
        }
        batch.durability(Durability::Os).commit().unwrap();
    }
    converge(&db);
    check_set(&db);
    let swept = set(&db, "d");
    // A few bytes per live entry, and the numbers of one round of writes before the next sweep.
    let most = 8 * RECORDS as usize + 4096;
    let memory = swept.bitmap().memory();
    assert!(
        memory < most,
        "{memory} bytes, {} numbers",
        swept.bitmap().len()
    );
    if compact {
        db.compact(None).unwrap();
        let swept = set(&db, "d");
        let left = swept.bitmap().len();
        assert!(left == 0 && swept.runs.is_empty(), "{left} numbers");
    }
    let right = || {
        for v in 0..50 {
            let wanted = values.values().filter(|value| **value == v).count() as u64;
            let query = dataset.query().equals(&path("v"), &v.to_string());
            assert_eq!(query.count().unwrap(), wanted);
        }
    };
    right();
    check(&db);
    let noted = set(&db, "d").noted();
    drop(dataset);
    db.close().unwrap();
    let db = Database::create_or_open(FsPath::new(DIR), options()).unwrap();
    assert_eq!(set(&db, "d").noted(), noted);
    check_set(&db);
    check(&db);
}

#[test]
fn what_a_set_takes_follows_what_is_live_under_every_strategy() {
    let kinds = [IndexKind::Lazy, IndexKind::Composite];
    for (n, maintenance) in Maintenance::ALL.into_iter().enumerate() {
        // Each strategy with one of the two.
        for kind in by_tier(&kinds[n % 2..][..1], &kinds) {
            let kind = *kind;
            grow(maintenance, kind, true);
        }
    }
    for kind in [IndexKind::Eager, IndexKind::Recent, IndexKind::Filter] {
        grow(Maintenance::Eager, kind, true);
        grow(Maintenance::MutableBitmap, kind, false);
    }
}
