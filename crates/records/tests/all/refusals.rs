//! What a call cannot apply or carry out it refuses, before it changes anything: settings that a
//! method of a query would ignore, records that do not fit the type of a handle, and orders that
//! come too late.

use std::sync::Arc;

use crate::common::{DIR, small};
use esker::request::Direction::Ascending;
use esker::space::Latest;
use esker::{
    Database, Dataset, DatasetDef, Error, ErrorKind, Index, Order, PageToken, Path, Query, Record,
    field,
};
use esker_sim::memory::Memory;
use serde::Deserialize;
use serde_json::json;

/// A type that records without a name do not fit.
#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

fn points() -> (Database, Dataset<u64>) {
    let options = small(Arc::new(Memory::new()));
    let db = Database::create_or_open(DIR, options).unwrap();
    let def = DatasetDef::key("id").index("at", Index::spatial());
    let dataset = db.create_dataset::<u64>("d", def).unwrap();
    for id in 0..20 {
        let record = json!({"id": id, "at": [id as f64 / 10.0, 0.0], "kind": id % 4, "n": id});
        dataset.put(&record).unwrap();
    }
    (db, dataset)
}

/// A token of a page in the order of the writes.
fn token(dataset: &Dataset<u64>) -> PageToken {
    let mut answer = dataset.query().run().unwrap();
    answer.next().unwrap().unwrap();
    answer.token().unwrap()
}

#[test]
fn a_record_that_does_not_fit_the_type_is_neither_merged_nor_deleted() {
    let (_db, dataset) = points();
    let named: Dataset<u64, Named> = dataset.typed();
    let before = dataset.get(1).unwrap().unwrap();
    let merged = named.merge_json(1, r#"{"n": 7}"#).unwrap_err();
    assert_eq!(merged.kind(), ErrorKind::BadInput, "{merged}");
    let deleted = named.delete(1).unwrap_err();
    assert_eq!(deleted.kind(), ErrorKind::BadInput, "{deleted}");
    let after = dataset.get(1).unwrap().expect("it was not deleted");
    assert_eq!((after.seq(), after.json()), (before.seq(), before.json()));
    dataset.merge_json(1, r#"{"name": "ann"}"#).unwrap();
    assert_eq!(named.delete(1).unwrap().unwrap().name, "ann");
    assert!(dataset.get(1).unwrap().is_none());
}

#[test]
fn queries_of_points_refuse_the_settings_that_they_do_not_apply() {
    type Set = fn(Query<u64>, &Dataset<u64>) -> Query<u64>;
    type Run = fn(Query<u64>) -> Result<(), Error>;
    let settings: [(&str, Set); 5] = [
        ("limit", |query, _| query.limit(3)),
        ("offset", |query, _| query.offset(1)),
        ("after", |query, dataset| query.after(token(dataset))),
        ("select", |query, _| query.select(["n"])),
        ("order", |query, _| query.oldest()),
    ];
    // With the settings that each method applies.
    let methods: [(&str, Run, &[&str]); 4] = [
        (
            "nearest",
            |query| query.nearest("at", (0.0, 0.0), 5, None).map(drop),
            &["limit"],
        ),
        (
            "by_distance",
            |query| query.by_distance("at", (0.0, 0.0)).map(drop),
            &["limit", "offset"],
        ),
        ("cells", |query| query.cells("at", 1.0).map(drop), &[]),
        (
            "latest_per",
            |query| query.latest_per("kind", &Latest::written()).map(drop),
            &["limit", "offset"],
        ),
    ];
    let (_db, dataset) = points();
    for (method, run, applied) in methods {
        run(dataset.query()).unwrap();
        run(dataset.query().order(Order::Any)).unwrap();
        for (setting, set) in settings {
            let outcome = run(set(dataset.query(), &dataset));
            if applied.contains(&setting) {
                outcome.unwrap();
                continue;
            }
            let error = outcome.expect_err(&format!("{method} ignores {setting}"));
            assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
            let text = error.to_string();
            assert!(text.contains(method) && text.contains(setting), "{text}");
        }
    }
}

#[test]
fn bounds_of_a_time_need_its_path() {
    let (_db, dataset) = points();
    for latest in [
        Latest::written().from("2020-01-01T00:00:00Z"),
        Latest::written().until("2020-01-01T00:00:00Z"),
    ] {
        let error = dataset.query().latest_per("kind", &latest).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    }
    let latest = Latest::by_time("n".parse::<Path>().unwrap()).until("5");
    let (found, _) = dataset.query().latest_per("kind", &latest).unwrap();
    let keys: Vec<u64> = found.iter().map(|record| *record.key()).collect();
    assert_eq!(keys, [2, 3, 4, 5]);
}

#[test]
fn offsets_skip_the_nearest_and_the_latest() {
    let (_db, dataset) = points();
    let keys = |records: &mut dyn Iterator<Item = &Record<u64>>| -> Vec<u64> {
        records.map(|record| *record.key()).collect()
    };
    let (near, _) = (dataset.query().offset(2).limit(3))
        .by_distance("at", (0.0, 0.0))
        .unwrap();
    assert_eq!(keys(&mut near.iter().map(|near| &near.record)), [2, 3, 4]);
    let (near, _) = (dataset.query().offset(18))
        .by_distance("at", (0.0, 0.0))
        .unwrap();
    assert_eq!(keys(&mut near.iter().map(|near| &near.record)), [18, 19]);
    let (latest, _) = (dataset.query().offset(1).limit(2))
        .latest_per("kind", &Latest::written())
        .unwrap();
    assert_eq!(keys(&mut latest.iter()), [17, 18]);
}

#[test]
fn a_scan_is_reversed_before_its_first_record_or_not_at_all() {
    let (_db, dataset) = points();
    let mut scan = dataset.scan(5..);
    assert_eq!(*scan.next().unwrap().unwrap().key(), 5);
    let mut reversed = scan.rev();
    let error = reversed.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    assert!(reversed.next().is_none());
    let twice = dataset.scan(5..).rev().rev();
    assert_eq!(*twice.map(Result::unwrap).next().unwrap().key(), 5);
}

/// The first record found decides it, whatever the order.
#[test]
fn a_test_for_existence_reads_no_more_in_an_order_of_fields_or_keys() {
    let options = small(Arc::new(Memory::new()));
    let db = Database::create_or_open(DIR, options).unwrap();
    let def = DatasetDef::key("id").index("a", Index::lazy().int());
    let dataset = db.create_dataset::<u64>("d", def).unwrap();
    let filler = "x".repeat(300);
    for id in 0..2000 {
        let record = json!({"id": id, "a": 1, "n": id, "filler": filler});
        dataset.put(&record).unwrap();
    }
    db.flush().unwrap();
    let blocks = |query: Query<u64>, exists: bool| {
        let before = db.stats().counters;
        assert_eq!(query.exists().unwrap(), exists);
        let after = db.stats().counters;
        let grown = |name: &&'static str| after[*name] - before[*name];
        ["data_blocks"].iter().map(grown).sum::<u64>()
    };
    let query = || dataset.find(field("a").eq(1) & field("n").ge(3));
    let newest = blocks(query(), true);
    for order in [Order::Key, Order::by("n", Ascending).unwrap()] {
        let ordered = blocks(query().order(order.clone()), true);
        assert!(
            ordered <= newest + 8,
            "{order}: {ordered} blocks, newest {newest}"
        );
    }
    assert!(query().offset(1996).order(Order::Key).exists().unwrap());
    assert!(!query().offset(1997).order(Order::Key).exists().unwrap());
    assert!(!query().limit(0).exists().unwrap());
    // A page of an order continues in that order.
    let by_key = || query().order(Order::Key);
    let mut page = by_key().limit(1996).run().unwrap();
    assert_eq!(page.by_ref().count(), 1996);
    let rest = by_key().after(page.token().unwrap());
    assert!(rest.clone().exists().unwrap());
    // An offset is that of the first page.
    assert!(rest.offset(1).exists().unwrap());
    let mut all = by_key().limit(1997).run().unwrap();
    assert_eq!(all.by_ref().count(), 1997);
    if let Some(token) = all.token() {
        assert!(!by_key().after(token).exists().unwrap());
    }
}
