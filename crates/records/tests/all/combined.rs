//! Several indexes of an `and` rule out each other's candidates before records are read, where that
//! is expected to be less work.

use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{self, Doing};
use esker::experimental::Combining;
use esker::maintain::Validation;
use esker::schema::{Layout, Maintenance};
use esker::{
    Database, Dataset, DatasetDef, Durability, Explain, Index, IndexKind, KeyType, Options, Order,
    Query, Type,
};
use esker_sim::by_tier;
use esker_sim::memory::Memory;

const RECORDS: u64 = 20_000;

/// Kinds with lists of their own, whose estimates are good where every list is as long.
const LISTS: [IndexKind; 3] = [IndexKind::Recent, IndexKind::Lazy, IndexKind::Composite];

/// Values of which each pair is equally frequent.
fn record(id: u64) -> String {
    let (a, b, c, d) = (id % 40, id / 40 % 40, id % 4, id / 4 % 4);
    format!("{{\"id\":{id},\"a\":{a},\"b\":{b},\"c\":{c},\"d\":{d},\"x\":[{a},{b}]}}")
}

fn dataset(kind: IndexKind, maintenance: Maintenance, records: u64) -> Dataset {
    dataset_of(&["a", "b", "c", "d", "x"], kind, maintenance, records)
}

fn dataset_of(paths: &[&str], kind: IndexKind, maintenance: Maintenance, records: u64) -> Dataset {
    dataset_with(4 << 20, paths, kind, maintenance, records)
}

fn dataset_with(
    memory: usize,
    paths: &[&str],
    kind: IndexKind,
    maintenance: Maintenance,
    records: u64,
) -> Dataset {
    let options = Options::new()
        .fs(Arc::new(Memory::new()))
        .memory_budget(memory)
        .durability(Durability::Os)
        .background(false);
    let db = Database::create_or_open(FsPath::new(common::DIR), options).unwrap();
    let mut def = DatasetDef::new("id", KeyType::Int).maintenance(maintenance);
    for path in paths {
        def = def.index(*path, Index::new(kind).of_type(Type::Int));
    }
    let dataset = db.create_dataset("d", def).unwrap();
    let mut batch = dataset.batch();
    for id in 0..records {
        batch.put_json(record(id).as_bytes()).unwrap();
        if batch.len() >= 500 {
            batch.commit().unwrap();
        }
    }
    batch.commit().unwrap();
    db.flush().unwrap();
    dataset
}

fn ids(query: Query) -> (Vec<u64>, Explain) {
    let mut answer = query.run().unwrap();
    let ids = answer.by_ref().map(|record| id_of(&record.unwrap()));
    (ids.collect(), answer.explain())
}

fn id_of(record: &esker::Record) -> u64 {
    record.key().to_string().parse().unwrap()
}

fn in_bulk(query: Query, order: Order) -> (Vec<u64>, Explain) {
    let mut found = Vec::new();
    let explain = query
        .order(order)
        .visit(&mut |record| {
            found.push(id_of(&record));
            ControlFlow::Continue(())
        })
        .unwrap();
    (found, explain)
}

fn find(dataset: &Dataset, condition: &str) -> Query {
    dataset.find(condition.parse().unwrap())
}

#[test]
fn an_and_of_two_selective_conditions_reads_little_more_than_its_answer() {
    for (n, kind) in LISTS.into_iter().enumerate() {
        // In the usual tier every other strategy, and the others with the next kind.
        let step = by_tier(2, 1);
        for maintenance in Maintenance::ALL.into_iter().skip(n % step).step_by(step) {
            let _doing = Doing(format!("{kind}, {maintenance}"));
            let dataset = dataset(kind, maintenance, RECORDS);
            let right: Vec<u64> = (0..RECORDS)
                .filter(|id| id % 40 == 7 && id / 40 % 40 == 9)
                .collect();
            let most = right.len() as u64 * 6 / 5;
            let query = || find(&dataset, "a = 7 and b = 9");
            let (mut found, explain) = ids(query());
            found.reverse();
            assert_eq!(found, right);
            assert!(explain.steps.fetched <= most, "{explain}");
            assert!(explain.plan.combined.is_some(), "{explain}");
            for order in [Order::Key, Order::Any, "x".parse().unwrap()] {
                let (mut found, explain) = in_bulk(query(), order);
                found.sort_unstable();
                assert_eq!(found, right);
                assert!(explain.steps.fetched <= most, "{explain}");
            }
            let (count, explain) = query().count_explained().unwrap();
            assert_eq!(count, right.len() as u64);
            assert!(explain.steps.fetched <= most, "{explain}");
        }
    }
}

#[test]
fn an_and_of_two_long_lists_reads_a_small_part_of_each_for_ten_records() {
    for kind in [IndexKind::Recent, IndexKind::Lazy] {
        for order in [Order::Newest, Order::Oldest] {
            let _doing = Doing(format!("{kind}, {order:?}"));
            let dataset = dataset(kind, Maintenance::Validation, RECORDS);
            let mut right: Vec<u64> = (0..RECORDS)
                .filter(|id| id % 4 == 1 && id / 4 % 4 == 2)
                .collect();
            if order == Order::Newest {
                right.reverse();
            }
            let query = find(&dataset, "c = 1 and d = 2").order(order.clone());
            let (found, explain) = ids(query.clone().limit(10));
            assert_eq!(found, right[..10]);
            assert!(explain.plan.combined.is_some(), "{explain}");
            let steps = &explain.steps;
            assert!(steps.fetched <= 12, "{explain}");
            // Each list has 5,000 entries.
            assert!(steps.candidates < 100, "{explain}");
            assert!(steps.listed < 200, "{explain}");
            // The next pages, too.
            let mut answer = query.clone().limit(10).run().unwrap();
            for record in answer.by_ref() {
                record.unwrap();
            }
            let next = query.clone().limit(10).after(answer.token().unwrap());
            let (found, explain) = ids(next);
            assert_eq!(found, right[10..20]);
            assert!(explain.steps.listed < 200, "{explain}");
        }
    }
}

#[test]
fn what_the_entries_decide_is_counted_without_a_record() {
    for kind in LISTS {
        let _doing = Doing(kind.to_string());
        let dataset = dataset(kind, Maintenance::MutableBitmap, RECORDS);
        // One of the answers changes, one goes, and one comes.
        for (id, with) in [(7 + 40 * 9, "\"a\":8,"), (0, "\"a\":7,\"b\":9,")] {
            let json = format!("{{\"id\":{id},{with}\"c\":0}}");
            dataset.put_json(json.as_bytes()).unwrap();
        }
        let gone = dataset.parse_key("1967").unwrap();
        assert!(dataset.delete(&gone).unwrap().is_some());
        let matches = |id: u64| id % 40 == 7 && id / 40 % 40 == 9;
        let all = (0..RECORDS).filter(|id| matches(*id)).count() as u64;
        let (count, explain) = find(&dataset, "a = 7 and b = 9").count_explained().unwrap();
        assert_eq!(count, all - 1, "{explain}");
        assert_eq!(explain.steps.fetched, 0, "{explain}");
        assert!(explain.steps.ruled_out > 0, "{explain}");
        let (count, explain) = find(&dataset, "a = 7 or b = 9").count_explained().unwrap();
        let either = |id: &u64| id % 40 == 7 || id / 40 % 40 == 9;
        let right = (0..RECORDS).filter(either).count() as u64;
        assert_eq!(count, right - 2 + 1, "{explain}");
        assert_eq!(explain.steps.fetched, 0, "{explain}");
    }
}

#[test]
fn lists_that_are_read_again_count_among_the_reads() {
    let (memory, kind) = (512 << 10, IndexKind::Composite);
    let dataset = dataset_with(
        memory,
        &["c", "d"],
        kind,
        Maintenance::MutableBitmap,
        RECORDS,
    );
    let count = |condition: &str| {
        let query = find(&dataset, condition).combining(Combining::Always);
        let (count, explain) = query.count_explained().unwrap();
        let blocks = explain.cost.index.as_ref().unwrap().data_blocks;
        (count, blocks, explain)
    };
    let (entries, one, explain) = count("d = 2");
    assert_eq!(explain.steps.fetched, 0, "{explain}");
    // The numbers of the first list do not fit in the memory, so that the entries alone do not decide
    // the count. So the records are read: both lists are read again for their keys.
    let (right, both, explain) = count("c = 1 and d = 2");
    let fetched = explain.steps.fetched;
    assert!(fetched > right && fetched < entries, "{right}: {explain}");
    assert!(both > 3 * one, "{both}, {one} of one list: {explain}");
}

#[test]
fn negations_take_entries_out_and_records_confirm_the_rest() {
    for kind in LISTS {
        let _doing = Doing(kind.to_string());
        let dataset = dataset(kind, Maintenance::Deferred, RECORDS);
        let condition = "c >= 1 and not (d in (1, 2, 3))";
        let right: Vec<u64> = (0..RECORDS)
            .filter(|id| id % 4 >= 1 && id / 4 % 4 == 0)
            .collect();
        let (mut found, explain) = ids(find(&dataset, condition));
        found.reverse();
        assert_eq!(found, right);
        let combined = explain.plan.combined.as_ref().unwrap();
        assert!(combined.condition.contains('!'), "{explain}");
        assert_eq!(explain.steps.fetched, right.len() as u64, "{explain}");
        let (mut found, explain) = in_bulk(find(&dataset, condition), Order::Any);
        found.sort_unstable();
        assert_eq!(found, right);
        assert_eq!(explain.steps.fetched, right.len() as u64, "{explain}");
        // Of an array, no element may have the value.
        let condition = "x >= 0 and not x = 3 and not x > 30";
        let right = |id: &u64| [id % 40, id / 40 % 40].iter().all(|x| *x != 3 && *x <= 30);
        let right: Vec<u64> = (0..RECORDS).filter(right).collect();
        for combining in [Combining::Auto, Combining::Always, Combining::Never] {
            let query = find(&dataset, condition).combining(combining);
            let (mut found, _) = ids(query.clone());
            found.reverse();
            assert_eq!(found, right, "{combining:?}");
            assert_eq!(query.count().unwrap(), right.len() as u64, "{combining:?}");
        }
    }
}

#[test]
fn numbers_that_do_not_fit_in_memory_rule_out_most_others() {
    const MANY: u64 = 300_000;
    let paths = ["c", "d"];
    let dataset = dataset_of(&paths, IndexKind::Recent, Maintenance::MutableBitmap, MANY);
    let right: Vec<u64> = (0..MANY)
        .filter(|id| id % 4 >= 2 && id / 4 % 4 >= 1)
        .collect();
    let query = || find(&dataset, "c >= 2 and d >= 1").combining(Combining::Always);
    let (found, explain) = in_bulk(query(), Order::Key);
    assert_eq!(found, right);
    assert!(explain.plan.combined.is_some(), "{explain}");
    // Of 150,000 entries of the first list.
    let others = 150_000 - right.len() as u64;
    assert!(explain.steps.ruled_out > others / 2, "{explain}");
    assert_eq!(query().count().unwrap(), right.len() as u64);
    let (found, _) = ids(query().limit(1000));
    let newest: Vec<u64> = right.iter().rev().copied().take(1000).collect();
    assert_eq!(found, newest);
}

#[test]
fn what_was_weighed_is_explained_with_what_came_of_it() {
    let dataset = dataset(IndexKind::Recent, Maintenance::Deferred, RECORDS);
    let (_, explain) = ids(find(&dataset, "a = 7 and b = 9"));
    let all = &explain.plan.alternatives;
    let ways: Vec<&str> = all.iter().map(|one| one.way.as_str()).collect();
    assert_eq!(ways, ["index", "index", "combination", "scan"], "{explain}");
    let [a, b, both, scan] = all.as_slice() else {
        panic!("{explain}");
    };
    assert_eq!(
        (a.condition.as_str(), b.condition.as_str()),
        ("a = 7", "b = 9")
    );
    assert!(a.expected >= 250 && a.expected <= 1000, "{explain}");
    assert!(both.expected < 100, "{explain}");
    assert!(both.work < a.work && both.work < b.work, "{explain}");
    assert_eq!(scan.expected, RECORDS);
    let outcome = both.outcome.as_ref().unwrap();
    let steps = &explain.steps;
    assert_eq!((outcome.candidates, outcome.fetched), (500, steps.fetched));
    assert_eq!(outcome.ruled_out, 500 - steps.fetched);
    assert!(a.outcome.is_none() && b.outcome.is_none() && scan.outcome.is_none());
    let text = explain.to_string();
    assert!(text.contains("; chosen, "), "{text}");
    let json = serde_json::to_value(&explain).unwrap();
    assert_eq!(json["plan"]["alternatives"][2]["way"], "combination");
    assert_eq!(json["plan"]["combined"]["indexes"][1]["index"], "b");
    // What does not pay is shown, and not chosen.
    let (_, explain) = ids(find(&dataset, "a = 7 and c >= 0"));
    let chosen = explain
        .plan
        .alternatives
        .iter()
        .find(|one| one.outcome.is_some());
    assert_eq!(
        chosen.map(|one| one.way.as_str()),
        Some("index"),
        "{explain}"
    );
    assert!(explain.plan.combined.is_none());
    assert_eq!(explain.plan.alternatives.len(), 4, "{explain}");
    // Where there is no choice, nothing is weighed, nor read for it.
    let (_, explain) = ids(find(&dataset, "a = 7"));
    assert!(explain.plan.alternatives.is_empty(), "{explain}");
}

#[test]
fn areas_and_parts_of_an_or_are_combined_too() {
    for layout in [Layout::Z, Layout::Mbr, Layout::Stacked] {
        let _doing = Doing(format!("{layout:?}"));
        let db = common::open(Arc::new(Memory::new())).unwrap();
        let def = DatasetDef::new("id", KeyType::Int)
            .index(
                "at",
                Index::new(IndexKind::Spatial(layout)).of_type(Type::Point),
            )
            .index("a", Index::recent().int())
            .index("b", Index::composite().int());
        let dataset: Dataset = db.create_dataset("d", def).unwrap();
        for id in 0..2000u64 {
            let (x, y, a, b) = (id % 20, id / 20 % 20, id % 7, id % 5);
            let json = format!("{{\"id\":{id},\"at\":[{x},{y}],\"a\":{a},\"b\":{b}}}");
            dataset.put_json(json.as_bytes()).unwrap();
        }
        for id in (0..2000u64).step_by(3) {
            let json = format!("{{\"id\":{id},\"at\":[5,{}],\"a\":[1,2],\"b\":3}}", id % 20);
            dataset.put_json(json.as_bytes()).unwrap();
        }
        for condition in [
            "within(at, rect(2,2,9,9)) and a = 1",
            "(a = 1 and b = 3) or (a = 2 and b = 3)",
            "(a = 1 and not b = 3) or (b = 3 and not a = 1)",
            "within(at, rect(2,2,9,9)) and (a = 1 or b = 2) and not a = 2",
        ] {
            let query = |combining| find(&dataset, condition).combining(combining);
            let (right, _) = ids(query(Combining::Never));
            assert!(!right.is_empty(), "{condition}");
            let (found, explain) = ids(query(Combining::Always));
            assert_eq!(found, right, "{condition}");
            assert!(explain.plan.combined.is_some(), "{explain}");
            let (few, _) = ids(query(Combining::Always).limit(5));
            assert_eq!(few, right[..5], "{condition}");
            for validation in [Validation::Auto, Validation::Timestamp, Validation::Direct] {
                let count = query(Combining::Always).validation(validation).count();
                assert_eq!(count.unwrap(), right.len() as u64, "{condition}");
            }
            let (mut found, _) = in_bulk(query(Combining::Always), Order::Any);
            let mut right = right;
            found.sort_unstable();
            right.sort_unstable();
            assert_eq!(found, right, "{condition}");
        }
    }
}
