//! The index that the planner chooses for a condition, and the candidates that each stage drops.

use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker_lsm::{Batch, Cursor, Durability};
use esker_model::definition::{DatasetDef, Index, IndexKind, Maintenance};
use esker_model::schema::{KeyType, Type};
use esker_sim::memory::Memory;

use super::{Note, Order};
use crate::{Database, Dataset, Explain, Expr, Options};

/// Records: `a` has 2 values, `b` has 100, `c` is declared and not indexed, `x` is not declared.
fn record(id: u64) -> String {
    let (a, b, c) = (id % 2, id % 100, id % 3);
    format!("{{\"id\":{id},\"a\":{a},\"b\":{b},\"c\":{c},\"d\":{id},\"x\":{c}}}")
}

const RECORDS: u64 = 10_000;
/// Of these, those with one value of `b`.
const OF_B: u64 = RECORDS / 100;

fn dataset(maintenance: Maintenance) -> Dataset {
    let options = Options::new().fs(Arc::new(Memory::new())).background(false);
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    let mut def = DatasetDef::new("id", KeyType::Int).maintenance(maintenance);
    for (path, kind) in [
        ("a", IndexKind::Composite),
        ("b", IndexKind::Composite),
        ("c", IndexKind::None),
        ("d", IndexKind::Embedded),
    ] {
        def = def.index(path, Index::new(kind).of_type(Type::Int));
    }
    let dataset = db.create_dataset("d", def).unwrap();
    for id in 0..RECORDS {
        dataset.put_json(record(id)).unwrap();
    }
    db.flush().unwrap();
    dataset
}

fn explained(dataset: &Dataset, condition: &str) -> Explain {
    let condition: Expr = condition.parse().unwrap();
    let mut answer = dataset.find(condition).run().unwrap();
    for record in answer.by_ref() {
        record.unwrap();
    }
    answer.explain()
}

/// The fields whose indexes were read; empty for a scan.
fn indexes(explain: &Explain) -> Vec<&str> {
    let parts = explain.plan.index.iter().chain(&explain.plan.union);
    parts.map(|part| part.index.as_str()).collect()
}

#[test]
fn the_planner_chooses_the_cheapest_index_that_has_every_match() {
    let dataset = dataset(Maintenance::Deferred);
    for (condition, driver) in [
        ("a = 1", &["a"][..]),
        ("a = 1 and b = 3", &["b"]),
        ("b = 3 and a = 1 and x = 2", &["b"]),
        ("c = 1", &[]),
        ("x = 1", &[]),
        ("not a = 1", &[]),
        ("a is null", &[]),
        ("a = 1 or b = 3", &["a", "b"]),
        ("a = 1 or x = 1", &[]),
        ("(a = 1 or b = 3) and x = 1", &["a", "b"]),
        ("(a = 1 or b = 3) and b = 7", &["b"]),
        ("b in (1, 2)", &["b"]),
        ("not (b = 1) and b = 2", &["b"]),
    ] {
        let explain = explained(&dataset, condition);
        assert_eq!(indexes(&explain), driver, "{condition}: {explain}");
        assert_eq!(
            explain.plan.scan.is_some(),
            driver.is_empty(),
            "{condition}: {explain}"
        );
    }
}

#[test]
fn indexes_are_compared_only_if_several_answer() {
    let dataset = dataset(Maintenance::Deferred);
    let alone = explained(&dataset, "a = 1 and x = 2");
    assert!(alone.plan.compared.is_empty(), "{alone}");
    let both = explained(&dataset, "a = 1 and b = 3");
    let expected: Vec<u64> = both.plan.compared.iter().map(|c| c.expected).collect();
    let [of_a, of_b] = expected.as_slice() else {
        panic!("{both}");
    };
    assert!(of_b < of_a, "{both}");
}

#[test]
fn each_stage_drops_the_candidates_that_it_rejects() {
    let dataset = dataset(Maintenance::Deferred);
    let steps = explained(&dataset, "b = 3").steps;
    assert_eq!((steps.candidates, steps.obsolete), (OF_B, 0));
    assert_eq!((steps.discarded, steps.answers), (0, OF_B));
    // The record confirms `x`: candidates of `b` with another `x` are discarded.
    let steps = explained(&dataset, "b = 3 and x = 0").steps;
    let matches = (0..RECORDS).filter(|id| id % 100 == 3 && id % 3 == 0);
    assert_eq!((steps.candidates, steps.fetched), (OF_B, OF_B));
    assert_eq!(steps.answers, matches.count() as u64);
    assert_eq!(steps.discarded, OF_B - steps.answers);
    // Entries of replaced records are candidates, but no answers.
    for id in [3, 103, 203] {
        let moved = record(id).replace("\"b\":3,", "\"b\":5000,");
        dataset.put_json(moved).unwrap();
    }
    let steps = explained(&dataset, "b = 3").steps;
    assert_eq!(steps.answers, OF_B - 3);
    assert_eq!(steps.candidates, steps.answers + steps.obsolete);
    let steps = explained(&dataset, "b = 5000").steps;
    assert_eq!((steps.candidates, steps.answers), (3, 3));
}

/// The explanation of the first rows of an order.
fn ordered(dataset: &Dataset, condition: &str, order: &str) -> Explain {
    let query = dataset.find(condition.parse().unwrap());
    let query = query.order(order.parse().unwrap()).limit(5);
    let mut answer = query.run().unwrap();
    assert_eq!(answer.by_ref().count(), 5);
    answer.explain()
}

#[test]
fn rows_in_the_order_of_an_index_name_it() {
    let dataset = dataset(Maintenance::Deferred);
    for (condition, order) in [("id >= 0", "b"), ("x = 1", "b:desc")] {
        let explain = ordered(&dataset, condition, order);
        assert_eq!(explain.plan.scan, None, "{explain}");
        let read = explain.plan.index.as_ref().unwrap();
        let direction = if order == "b" { "b:asc" } else { order };
        assert_eq!(
            (read.index.as_str(), read.kind.as_str()),
            ("b", "composite")
        );
        assert_eq!(read.order.as_deref(), Some(direction));
        let text = explain.to_string();
        let line = format!("composite index of b in the order {direction}: all values\n");
        assert!(text.starts_with(&line), "{text}");
        // The condition without an index is not answered by a scan.
        let path = "b".parse().unwrap();
        assert_eq!(explain.notes, [Note::InIndexOrder { path }], "{text}");
        let json = serde_json::to_string(&explain).unwrap();
        let same: Explain = serde_json::from_str(&json).unwrap();
        assert_eq!(same.plan, explain.plan, "{json}");
    }
    // So does the condition of the index itself, where the order begins with values that it admits.
    let read = ordered(&dataset, "b >= 40", "b:desc");
    assert_eq!(read.notes.len(), 1, "{read}");
    assert!(read.steps.fetched < 500, "{read}");
    let sorted = ordered(&dataset, "b >= 40", "b:asc");
    assert!(
        sorted.notes.is_empty() && sorted.steps.fetched == 6000,
        "{sorted}"
    );
    // More rows than an index gives in its order are sorted after a scan.
    let query = dataset.find("x = 1".parse().unwrap());
    let mut answer = query.order("b".parse().unwrap()).run().unwrap();
    assert!(answer.by_ref().count() > 3000);
    let explain = answer.explain();
    assert!(
        explain.plan.scan.is_some() && explain.plan.index.is_none(),
        "{explain}"
    );
}

#[test]
fn alternatives_and_estimates_name_their_indexes() {
    let options = Options::new().fs(Arc::new(Memory::new())).background(false);
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    let int = || Index::composite().of_type(Type::Int);
    let def = DatasetDef::new("id", KeyType::Int)
        .index("a", int())
        .index("b", int())
        .index("b,a", Index::composite().compound());
    let dataset = db.create_dataset("d", def).unwrap();
    for id in 0..RECORDS {
        dataset.put_json(record(id)).unwrap();
    }
    db.flush().unwrap();
    // The index of `b` and the compound index answer the same condition.
    let explain = explained(&dataset, "b = 3 and d >= 0");
    let compared = |explain: &Explain| -> Vec<(String, String)> {
        let all = explain.plan.compared.iter();
        all.map(|one| (one.condition.clone(), one.index.clone()))
            .collect()
    };
    let pair = |condition: &str, index: &str| (condition.to_string(), index.to_string());
    assert_eq!(
        compared(&explain),
        [pair("b = 3", "b"), pair("b = 3", "b,a")]
    );
    let text = explain.to_string();
    for index in ["b", "b,a"] {
        let line = format!("expected of b = 3 in the index of {index}: ");
        assert!(text.contains(&line), "{text}");
    }
    let ways = |explain: &Explain| -> Vec<(String, Vec<String>)> {
        let all = explain.plan.alternatives.iter();
        all.map(|one| (one.way.clone(), one.indexes.clone()))
            .collect()
    };
    let explain = explained(&dataset, "a = 1 and b in (3, 5)");
    let ways_of_both = ways(&explain);
    for (way, indexes) in [
        ("index", &["a"][..]),
        ("union", &["b"]),
        ("union", &["b,a"]),
        ("scan", &[]),
    ] {
        let indexes = indexes.iter().map(ToString::to_string).collect();
        let way = (way.to_string(), indexes);
        assert!(ways_of_both.contains(&way), "{explain}: {ways_of_both:?}");
    }
    assert!(explain.to_string().contains("union of b,a, "), "{explain}");
    // Rows in the order of an index are a way of their own, and the one that was chosen.
    let explain = ordered(&dataset, "a >= 0 and b >= 0", "b");
    let chosen = explain
        .plan
        .alternatives
        .iter()
        .filter(|one| one.outcome.is_some());
    let chosen: Vec<_> = chosen
        .map(|one| (one.way.as_str(), one.indexes.concat()))
        .collect();
    assert_eq!(chosen, [("order", "b".to_string())], "{explain}");
}

#[test]
fn a_limit_ends_the_pipeline_early() {
    let dataset = dataset(Maintenance::Deferred);
    let condition: Expr = "a = 1".parse().unwrap();
    let mut answer = dataset.find(condition).limit(3).run().unwrap();
    let ids: Vec<String> = answer
        .by_ref()
        .map(|r| r.unwrap().key().to_string())
        .collect();
    assert_eq!(ids, ["9999", "9997", "9995"]);
    let steps = answer.explain().steps;
    assert_eq!(steps.answers, 3);
    assert!(steps.fetched < 20, "{steps:?}");
}

#[test]
fn keys_need_no_record_if_writes_report_the_replaced_ones() {
    let dataset = dataset(Maintenance::MutableBitmap);
    dataset
        .put_json(record(3).replace("\"b\":3,", "\"b\":4,"))
        .unwrap();
    let condition: Expr = "b = 3".parse().unwrap();
    let mut keys = dataset.find(condition).keys().unwrap();
    let found: Vec<String> = keys.by_ref().map(|key| key.unwrap().to_string()).collect();
    assert_eq!(found.len() as u64, OF_B - 1);
    let steps = keys.explain().steps;
    assert_eq!((steps.fetched, steps.answers), (0, OF_B - 1));
}

#[test]
fn a_count_by_entries_shows_how_many_are_obsolete() {
    let dataset = dataset(Maintenance::Validation);
    let counted = || {
        let condition: Expr = "b = 3".parse().unwrap();
        let (count, explain) = dataset.find(condition).count_explained().unwrap();
        assert_eq!(explain.steps.fetched, 0, "{explain}");
        let steps = explain.steps;
        (count, steps.candidates, steps.obsolete)
    };
    assert_eq!(counted(), (OF_B, OF_B, 0));
    for id in [3, 103, 203] {
        let moved = record(id).replace("\"b\":3,", "\"b\":4,");
        dataset.put_json(moved).unwrap();
    }
    assert_eq!(counted(), (OF_B - 3, OF_B, 3));
    dataset.handle.store.group.flush().unwrap();
    assert_eq!(counted(), (OF_B - 3, OF_B, 3));
    // Records are to be read without a probe of their keys as long as few are read in vain.
    assert!(!dataset.handle.state.usage.is_wasteful());
}

#[test]
fn the_nearest_records_are_looked_up_many_together() {
    let options = Options::new().fs(Arc::new(Memory::new())).background(false);
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int).index("lon,lat", Index::spatial());
    let dataset = db.create_dataset::<i64>("d", def).unwrap();
    for id in 0..2000 {
        let (lon, lat) = (id % 50, id / 50);
        let record = format!("{{\"id\":{id},\"lon\":{lon},\"lat\":{lat}}}");
        dataset.put_json(record).unwrap();
    }
    db.flush().unwrap();
    let query = dataset.query();
    let (near, explain) = (query.nearest_explained("lon,lat", (25.0, 20.0), 1000, None)).unwrap();
    assert_eq!(near.len(), 1000);
    // All records together have some twenty blocks.
    assert!(explain.cost.data.data_blocks < 200, "{explain:?}");
}

#[test]
fn an_aggregate_from_an_index_shows_the_records_that_it_reads() {
    let options = Options::new().fs(Arc::new(Memory::new())).background(false);
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .maintenance(Maintenance::MutableBitmap)
        .index("t", Index::composite().of_type(Type::TimeS));
    let dataset = db.create_dataset::<i64>("d", def).unwrap();
    for id in 0..100 {
        let record = format!("{{\"id\":{id},\"t\":{}}}", 1_700_000_000 + id % 3);
        dataset.put_json(record).unwrap();
    }
    db.flush().unwrap();
    let aggregates = ["count".parse().unwrap()];
    let query = dataset.query().aggregate(aggregates);
    let mut groups = 0;
    let explain = query.by("t".parse().unwrap()).visit(&mut |_| {
        groups += 1;
        ControlFlow::Continue(())
    });
    let explain = explain.unwrap();
    assert_eq!((groups, &explain.notes), (3, &vec![Note::FromIndex]));
    // One record of each group shows whether its time is a number.
    assert_eq!(explain.steps.fetched, 3);
    assert!(explain.cost.data.data_blocks > 0, "{explain:?}");
    assert_eq!(dataset.usage().gets, 0, "no get was asked for");
}

#[test]
fn a_query_that_is_broken_off_counts_as_one_without_a_limit() {
    let dataset = dataset(Maintenance::Deferred);
    for order in [Order::Any, Order::Key] {
        let condition: Expr = "b = 3".parse().unwrap();
        let query = dataset.find(condition).order(order);
        let explain = query.visit(&mut |_| ControlFlow::Break(())).unwrap();
        assert_eq!(explain.steps.answers, 1);
    }
    let of_b = &dataset.usage().attributes[&"b".parse().unwrap()];
    assert_eq!((of_b.lookups, of_b.limited), (2, 0));
}

/// Adds an entry to an index that no record has: a defect.
fn add_stray_entry(dataset: &Dataset) {
    let view = dataset.handle.now();
    let tree = view.layout.attributes[0].index_tree().unwrap();
    let mut cursor = view.snapshot.cursor(tree, 0);
    cursor.seek_first().unwrap();
    let stray = [cursor.key(), b"-"].concat();
    let mut batch = Batch::new();
    batch.put(tree, &stray, cursor.value()).unwrap();
    let group = &view.dataset.store.group;
    group.write(&mut batch, Durability::Os).unwrap();
}

/// Groups the records by `a`, where an entry of that index is of no record.
fn assert_refused_with_a_stray_entry(dataset: &Dataset) {
    add_stray_entry(dataset);
    let counts = ["count".parse().unwrap()];
    let by_a = dataset.query().aggregate(counts).by("a".parse().unwrap());
    let error = by_a.run().unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Internal);
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "a defect of Esker"))]
fn counts_of_more_records_than_there_are_are_refused() {
    assert_refused_with_a_stray_entry(&dataset(Maintenance::MutableBitmap));
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "a defect of Esker"))]
fn entries_of_more_records_than_there_are_are_refused() {
    let dataset = dataset(Maintenance::MutableBitmap);
    // Entries of one record add up only if they are read one by one.
    dataset
        .put_json(record(3).replace("\"a\":1", "\"a\":[1,2]"))
        .unwrap();
    assert_refused_with_a_stray_entry(&dataset);
}
