//! The coverage of the obsolete set after a migration, for every kind of index and every pair of
//! strategies. A migration ends with a repair, which finds the obsolete entries of indexes
//! with their own tree. It does not cover the versions that data tables still hold and that
//! embedded and fingerprint indexes read.

use crate::common;
use std::sync::Arc;

use crate::common::{Doing, INDEXED, TextQuery, check, open, path};
use esker::maintain::RepairOptions;
use esker::maintain::Validation;
use esker::schema::{Maintenance, Merging, Repair};
use esker::{Database, Dataset, DatasetDef, IndexKind, KeyType, Type};
use esker_sim::combinations;
use esker_sim::memory::Memory;

/// Queries `a` with every validation: count, keys, records.
fn ask(dataset: &Dataset, a: u64, right: &[&str]) {
    let query = || dataset.query().equals(&path("a"), &a.to_string());
    for validation in [Validation::Auto, Validation::Direct, Validation::Timestamp] {
        let _doing = Doing(format!("a = {a}, {validation:?}"));
        let mut keys: Vec<String> = query()
            .validation(validation)
            .keys()
            .unwrap()
            .map(|key| key.unwrap().to_string())
            .collect();
        keys.sort();
        assert_eq!(keys, right, "keys");
        let mut records: Vec<String> = query()
            .validation(validation)
            .run()
            .unwrap()
            .map(|record| record.unwrap().key().to_string())
            .collect();
        records.sort();
        assert_eq!(records, right, "records");
        let count = query().validation(validation).count().unwrap();
        assert_eq!(count, right.len() as u64, "count");
    }
}

fn put(dataset: &Dataset, key: u64, a: u64) {
    let body = format!(
        "{{\"id\":{key},\"a\":{a},\"b\":1,\"pad\":\"{}\"}}",
        "p".repeat(40)
    );
    dataset.put_json(body.as_bytes()).unwrap();
}

fn change(dataset: &Dataset, to: Maintenance) {
    let report = dataset.set_maintenance(to).run();
    assert!(report.unwrap().complete);
}

/// Updates that leave `b` unchanged, and a deletion, before and after a migration.
fn through_a_change(
    kind: IndexKind,
    beside: Option<IndexKind>,
    (from, to): (Maintenance, Maintenance),
    (repair, merging): (Repair, Merging),
) {
    let _doing = Doing(format!(
        "{kind} beside {beside:?}, {from} to {to}, repair {repair}, merging {merging}"
    ));
    let db = open(Arc::new(Memory::new())).unwrap();
    let mut def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("a"), esker::Index::new(kind).of_type(Type::Int));
    if let Some(beside) = beside {
        def = def.index(path("b"), esker::Index::new(beside).of_type(Type::Int));
    }
    let def = def.maintenance(from).repair(repair).merging(merging);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for key in 1..=3 {
        put(&dataset, key, 1);
    }
    db.flush().unwrap();
    put(&dataset, 1, 2);
    let third = dataset.parse_key("3").unwrap();
    assert!(dataset.delete(&third).unwrap().is_some());
    db.flush().unwrap();
    change(&dataset, to);
    ask(&dataset, 1, &["2"]);
    ask(&dataset, 2, &["1"]);
    put(&dataset, 2, 3);
    ask(&dataset, 1, &[]);
    ask(&dataset, 3, &["2"]);
    db.flush().unwrap();
    ask(&dataset, 1, &[]);
    ask(&dataset, 2, &["1"]);
    check(&db);
    db.compact(None).unwrap();
    ask(&dataset, 1, &[]);
    ask(&dataset, 2, &["1"]);
    ask(&dataset, 3, &["2"]);
    check(&db);
}

#[test]
fn every_kind_is_exact_after_every_change_of_strategy() {
    let strategies = Maintenance::ALL;
    let sizes = [INDEXED.len(), 3, strategies.len(), strategies.len(), 2, 2];
    for row in combinations(&sizes, &|row| row[2] != row[3]) {
        let [kind, beside, from, to, merging, repair] = row[..] else {
            unreachable!("a choice for each size");
        };
        let beside = [None, Some(IndexKind::Lazy), Some(IndexKind::Composite)][beside];
        let change = (strategies[from], strategies[to]);
        let merging = [Merging::Leveled, Merging::Correlated][merging];
        let repair = [Repair::Merge, Repair::None][repair];
        through_a_change(INDEXED[kind], beside, change, (repair, merging));
    }
}

/// Obsolete records are larger than their keys here, and candidates of an embedded index come
/// without their records.
#[test]
fn large_records_of_an_embedded_index_are_current_after_a_change_of_strategy() {
    for kind in [
        IndexKind::Embedded,
        IndexKind::Fingerprint,
        IndexKind::Filter,
    ] {
        let _doing = Doing(kind.to_string());
        let options = common::small(Arc::new(Memory::new()))
            .memory_budget(4 << 20)
            .table_size(1 << 20);
        let db = Database::create_or_open(std::path::Path::new(common::DIR), options).unwrap();
        let def = DatasetDef::new(path("id"), KeyType::Int)
            .index(path("a"), esker::Index::new(kind).of_type(Type::Int))
            .maintenance(Maintenance::Validation);
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        for a in 1..=2 {
            for key in 0..1000 {
                let pad = "p".repeat(10_000);
                let body = format!("{{\"id\":{key},\"a\":{a},\"pad\":\"{pad}\"}}");
                dataset.put_json(body.as_bytes()).unwrap();
            }
            db.flush().unwrap();
        }
        change(&dataset, Maintenance::MutableBitmap);
        let found = |a: u64| {
            let query = dataset.query().equals(&path("a"), &a.to_string());
            query
                .run()
                .unwrap()
                .filter(|record| record.as_ref().is_ok())
                .count()
        };
        assert_eq!((found(1), found(2)), (0, 1000));
    }
}

/// Compactions that report nothing may remove all entries of a key from the primary-key index; then
/// no component shows that a write is obsolete.
#[test]
fn what_is_deleted_stays_so_when_nothing_is_left_of_the_primary_key_index() {
    for kind in INDEXED {
        for repaired in [false, true] {
            let _doing = Doing(format!("{kind}, repaired {repaired}"));
            let db = open(Arc::new(Memory::new())).unwrap();
            let def = DatasetDef::new(path("id"), KeyType::Int)
                .index(path("a"), esker::Index::new(kind).of_type(Type::Int))
                .maintenance(Maintenance::Validation)
                .repair(Repair::None);
            let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
            put(&dataset, 1, 1);
            db.flush().unwrap();
            if repaired {
                let options = RepairOptions::default();
                let report = dataset.repair(&options).run();
                assert!(report.unwrap().complete);
            }
            let first = dataset.parse_key("1").unwrap();
            dataset.delete(&first).unwrap();
            let keys = db.group().tree("d/keys").unwrap();
            db.group().compact(Some(keys)).unwrap();
            ask(&dataset, 1, &[]);
            put(&dataset, 2, 1);
            ask(&dataset, 1, &["2"]);
            db.compact(None).unwrap();
            ask(&dataset, 1, &["2"]);
            check(&db);
        }
    }
}
