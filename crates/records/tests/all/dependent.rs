//! Merge patches, and deletion by a condition, beside other writers.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{DIR, small};
use esker::{Database, Dataset, DatasetDef, ErrorKind, Index, IndexKind, KeyType, Type, field};
use esker_sim::memory::Memory;

fn open(memory: &Memory) -> (Database, Dataset<u64>) {
    let db = Database::create_or_open(DIR, small(Arc::new(memory.clone()))).unwrap();
    let lazy = Index::new(IndexKind::Lazy).of_type(Type::String);
    let def = DatasetDef::new("id", KeyType::Int).index("user", lazy);
    let dataset = db.dataset_or_create("d", def).unwrap();
    (db, dataset)
}

fn put(dataset: &Dataset<u64>, ids: std::ops::Range<u64>, user: &str) {
    let mut batch = dataset.batch();
    for id in ids {
        batch
            .put_json(format!(r#"{{"id":{id},"user":"{user}","n":{id}}}"#))
            .unwrap();
    }
    batch.commit().unwrap();
}

#[test]
fn a_merge_changes_a_part_and_says_what_was_there() {
    let (_db, d) = open(&Memory::new());
    let made = d
        .merge_json(1, r#"{"id":1,"user":"ann","n":null}"#)
        .unwrap();
    assert!(made.is_none());
    assert_eq!(
        d.get(1).unwrap().unwrap().json(),
        br#"{"id":1,"user":"ann"}"#
    );
    let old = d.merge(1, &serde_json::json!({"user": "bob"})).unwrap();
    assert_eq!(old.unwrap().json(), br#"{"id":1,"user":"ann"}"#);
    assert_eq!(d.find(field("user").eq("bob")).count().unwrap(), 1);
    assert_eq!(d.find(field("user").eq("ann")).count().unwrap(), 0);
    for (key, patch) in [
        (1, r#"{"id":2}"#),
        (1, r#"{"id":null}"#),
        (1, r#"{"user":7}"#),
        (1, "[1]"),
        (1, "7"),
        (1, r#"{"a""#),
        // A patch of a missing record needs its key.
        (2, r#"{"user":"ann"}"#),
    ] {
        let refused = d.merge_json(key, patch).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadInput, "{patch}: {refused}");
    }
    assert_eq!(d.query().count().unwrap(), 1);
    assert_eq!(d.key_of(r#"{"n":1,"id":9}"#).unwrap(), 9);
    assert!(d.key_of(r#"{"n":1}"#).is_err());
}

#[test]
fn merges_of_threads_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = esker::Options::new().durability(esker::Durability::Os);
    let db = Database::create_or_open(dir.path(), options).unwrap();
    let d = db
        .create_dataset::<u64>("d", DatasetDef::new("id", KeyType::Int))
        .unwrap();
    d.put_json(r#"{"id":1}"#).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let d = &d;
            scope.spawn(move || {
                for n in 0..20 {
                    d.merge_json(1, format!(r#"{{"f{thread}_{n}":{n}}}"#))
                        .unwrap();
                }
            });
        }
    });
    let merged: serde_json::Value = d.get(1).unwrap().unwrap().parse().unwrap();
    assert_eq!(merged.as_object().unwrap().len(), 81);
}

#[test]
fn a_deletion_that_is_ended_goes_on_where_it_was() {
    let memory = Memory::new();
    let (db, d) = open(&memory);
    put(&d, 0..3500, "ann");
    put(&d, 3500..4000, "bob");
    let ann = || field("user").eq("ann");
    let mut reports = Vec::new();
    let deleted = d
        .delete_where(ann(), &mut |so_far| {
            reports.push(so_far);
            match reports.len() {
                2 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        })
        .unwrap();
    assert_eq!((deleted, reports), (2000, vec![1000, 2000]));
    assert_eq!(d.query().count().unwrap(), 2000);
    drop(d);
    db.close().unwrap();
    let (db, d) = open(&memory);
    let go_on = &mut |_| ControlFlow::Continue(());
    assert_eq!(d.delete_where(ann(), go_on).unwrap(), 1500);
    assert_eq!(d.delete_where(ann(), go_on).unwrap(), 0);
    assert_eq!(d.query().count().unwrap(), 500);
    assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
}

/// Records written by others during the deletion are deleted only if they meet the condition then.
#[test]
fn what_others_write_meanwhile_is_looked_at_again() {
    let (db, d) = open(&Memory::new());
    put(&d, 0..2500, "ann");
    let mut turns = 0;
    let deleted = d
        .delete_where(field("user").eq("ann"), &mut |_| {
            turns += 1;
            if turns == 1 {
                // Half of the remaining records change their user; the other half is written again.
                let left: Vec<u64> = d.scan(..).map(|record| *record.unwrap().key()).collect();
                for id in left {
                    let user = if id % 2 == 0 { "bob" } else { "ann" };
                    put(&d, id..id + 1, user);
                }
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    let left = d.query().count().unwrap();
    assert_eq!(d.find(field("user").eq("bob")).count().unwrap(), left);
    assert_eq!((deleted, left), (1750, 750));
    assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
}

/// A record of a later write is not among those that met the condition when the deletion began,
/// unless it replaces one of them.
#[test]
fn what_did_not_match_when_the_deletion_began_stays() {
    let (db, d) = open(&Memory::new());
    put(&d, 0..2500, "ann");
    put(&d, 2500..2510, "bob");
    let mut turns = 0;
    let deleted = d
        .delete_where(field("user").eq("ann"), &mut |_| {
            turns += 1;
            if turns == 1 {
                let left: Vec<u64> = d
                    .find(field("user").eq("ann"))
                    .keys()
                    .unwrap()
                    .map(Result::unwrap)
                    .collect();
                // Two that are still to be deleted: one is written again, one is deleted and put.
                put(&d, left[0]..left[0] + 1, "ann");
                d.delete(left[1]).unwrap();
                put(&d, left[1]..left[1] + 1, "ann");
                // A new record, and one that did not match.
                put(&d, 5000..5001, "ann");
                put(&d, 2500..2501, "ann");
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    let left: Vec<u64> = d.scan(..).map(|record| *record.unwrap().key()).collect();
    let expected: Vec<u64> = (2500..2510).chain([5000]).collect();
    assert_eq!((deleted, left), (2500, expected));
    assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
}
