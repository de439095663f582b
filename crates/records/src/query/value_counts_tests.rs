//! Counts of values and keys against a model of the records.

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker_model::definition::{DatasetDef, Index, IndexKind, Maintenance};
use esker_model::schema::{KeyType, Type, Value};
use esker_sim::memory::Memory;

use super::*;
use crate::store::View;
use crate::{Database, Dataset, Options};

/// Memory for counts in these tests.
const MEMORY: usize = 4 << 20;

fn dataset(kind: IndexKind) -> (Database, Dataset) {
    let options = Options::new()
        .fs(Arc::new(Memory::new()))
        .memory_budget(4 << 20);
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .maintenance(Maintenance::MutableBitmap)
        .index("v", Index::new(kind).of_type(Type::Int));
    let dataset = db.create_dataset("d", def).unwrap();
    (db, dataset)
}

fn with_current<T>(view: &View, run: impl FnOnce(CurrentFilter<'_>, &Attribute) -> T) -> T {
    let attribute = &view.layout.attributes[0];
    let kept = &view.dataset.state.kept_filter;
    let validity = Validity::new(&view.snapshot, &view.layout, &[attribute], kept);
    let current = CurrentFilter {
        snapshot: &view.snapshot,
        validity: &validity,
        expired: None,
        threads: Threads::Several,
    };
    run(current, attribute)
}

/// The counts of a view, and its number of records.
fn counted(view: &View, memory: usize) -> (Option<BTreeMap<Vec<u8>, u64>>, u64) {
    with_current(view, |current, attribute| {
        let cost = view.snapshot.cost();
        let counts = current.count_values(attribute, memory, &cost).unwrap();
        let counts = counts.map(|counts| {
            let values = counts.values.into_iter();
            values.map(|count| (count.value, count.entries)).collect()
        });
        let keys = view.layout.keys.unwrap();
        (counts, current.count_keys(keys, &cost).unwrap())
    })
}

fn expected(model: &BTreeMap<u64, i64>) -> (Option<BTreeMap<Vec<u8>, u64>>, u64) {
    let mut counts = BTreeMap::new();
    for value in model.values() {
        *counts
            .entry(Value::Int((*value).into()).encoded())
            .or_default() += 1;
    }
    (Some(counts), model.len() as u64)
}

#[test]
fn counts_of_components_add_up_to_those_of_the_records() {
    for kind in [IndexKind::Composite, IndexKind::Recent, IndexKind::Lazy] {
        let (db, dataset) = dataset(kind);
        let mut rng = fastrand::Rng::with_seed(7);
        let mut model = BTreeMap::new();
        let mut kept = Vec::new();
        for round in 0..6 {
            for _ in 0..8_000 {
                let id = rng.u64(0..30_000);
                if rng.usize(0..8) == 0 {
                    let key = dataset.parse_key(&id.to_string()).unwrap();
                    dataset.delete(&key).unwrap();
                    model.remove(&id);
                } else {
                    let value = rng.i64(-20..300) * rng.i64(1..3);
                    let body = format!("{{\"id\":{id},\"v\":{value}}}");
                    dataset.put_json(body).unwrap();
                    model.insert(id, value);
                }
            }
            match round % 3 {
                0 => db.flush().unwrap(),
                1 => kept.push((dataset.handle.snapshot(), model.clone())),
                _ => {}
            }
            assert_eq!(
                counted(&dataset.handle.snapshot(), MEMORY),
                expected(&model),
                "{kind}, round {round}"
            );
        }
        for (view, model) in &kept {
            assert_eq!(counted(view, MEMORY), expected(model), "{kind}");
        }
    }
}

#[test]
fn several_threads_share_the_keys() {
    let (db, dataset) = dataset(IndexKind::Composite);
    let mut model = BTreeMap::new();
    for id in 0..60_000 {
        let value = (id as i64 * 7919) % 500;
        let body = format!("{{\"id\":{id},\"v\":{value}}}");
        dataset.put_json(body).unwrap();
        model.insert(id, value);
    }
    db.flush().unwrap();
    let view = dataset.handle.snapshot();
    let tree = view.layout.attributes[0].index_tree().unwrap();
    let ranges = parallel::ranges(
        Threads::Several,
        &view.snapshot.components(tree),
        MIN_ENTRIES,
        None,
    )
    .unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(ranges.len() > 1, cores > 1);
    assert_eq!(counted(&view, MEMORY), expected(&model));
    // No entry of a key is read where all are current.
    let cost = view.snapshot.cost();
    let keys = view.layout.keys.unwrap();
    with_current(&view, |current, _| current.count_keys(keys, &cost)).unwrap();
    assert_eq!(cost.data_blocks.get(), 0);
}

#[test]
fn lists_and_very_many_values_are_left_to_the_walk_in_order() {
    let (db, dataset) = dataset(IndexKind::Composite);
    for id in 0..4_000 {
        let body = format!("{{\"id\":{id},\"v\":{id}}}");
        dataset.put_json(body).unwrap();
    }
    let few = counted(&dataset.handle.snapshot(), 256 << 10);
    assert_eq!(few, (None, 4_000));
    assert!(counted(&dataset.handle.snapshot(), MEMORY).0.is_some());
    dataset.put_json(br#"{"id":1,"v":[1,2]}"#).unwrap();
    for _ in 0..2 {
        assert!(counted(&dataset.handle.snapshot(), MEMORY).0.is_none());
        db.flush().unwrap();
    }
}

/// A list has the number of its newest posting, and obsolete ones that are older.
#[test]
fn obsolete_postings_behind_a_newer_one_do_not_count() {
    for is_deleted in [false, true] {
        let (db, dataset) = dataset(IndexKind::Lazy);
        for id in 1..=300 {
            let body = format!("{{\"id\":{id},\"v\":0}}");
            dataset.put_json(body).unwrap();
        }
        db.flush().unwrap();
        let mut model: BTreeMap<u64, i64> = (1..=300).map(|id| (id, 0)).collect();
        if is_deleted {
            dataset.delete(dataset.parse_key("1").unwrap()).unwrap();
            model.remove(&1);
        } else {
            dataset.put_json(br#"{"id":1,"v":1}"#).unwrap();
            model.insert(1, 1);
        }
        assert_eq!(
            counted(&dataset.handle.snapshot(), MEMORY),
            expected(&model)
        );
    }
}

#[test]
fn writes_during_a_count_do_not_count() {
    let (_db, dataset) = dataset(IndexKind::Composite);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut id = 0;
            while !ends.load(Relaxed) && id < 30_000 {
                let body = format!("{{\"id\":{id},\"v\":{}}}", id % 40);
                dataset.put_json(body).unwrap();
                id += 1;
            }
        });
        for _ in 0..300 {
            let view = dataset.handle.snapshot();
            let (counts, keys) = counted(&view, MEMORY);
            let entries: Option<u64> = counts.map(|counts| counts.values().sum());
            assert!(entries.is_none_or(|entries| entries == keys));
        }
        ends.store(true, Relaxed);
    });
}

/// An index of keys may have replaced puts of an earlier strategy which no index had entries of.
#[test]
fn keys_of_an_earlier_strategy_are_not_counted_by_the_set() {
    let options = Options::new().fs(Arc::new(Memory::new()));
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .maintenance(Maintenance::Validation)
        .index("v", Index::composite().of_type(Type::Int));
    let dataset: Dataset = db.create_dataset("d", def).unwrap();
    for is_deleted in [false, true] {
        let id = 1 + u32::from(is_deleted);
        let body = format!("{{\"id\":{id}}}");
        dataset.put_json(&body).unwrap();
        db.flush().unwrap();
        if is_deleted {
            let key = dataset.parse_key(&id.to_string()).unwrap();
            dataset.delete(&key).unwrap();
        } else {
            dataset.put_json(&body).unwrap();
        }
        db.flush().unwrap();
    }
    let migration = dataset.set_maintenance(Maintenance::MutableBitmap);
    migration.run().unwrap();
    let mut groups = Vec::new();
    let counted = dataset.query().aggregate(["count".parse().unwrap()]);
    counted
        .by("v".parse().unwrap())
        .visit(&mut |group| {
            groups.push(group.to_json());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(groups, [r#"{"v":null,"count":1}"#]);
}
