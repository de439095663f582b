//! Indexes are added, switched and dropped while the dataset is in use. `ESKER_SEEDS=200 cargo test
//! -p esker --test all change::` tries more; `ESKER_SEED=17` repeats one.

use crate::common;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{TextQuery, check, converge, keys, open, path, small};
use esker::maintain::IndexProgress;
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, ErrorKind, IndexKind, KeyType, Type,
};
use esker_sim::by_tier;
use esker_sim::memory::Memory;

fn stop(_: IndexProgress) -> ControlFlow<()> {
    ControlFlow::Break(())
}

/// A store with a dataset of `n` records, some of them in tables, whose attribute `v` is not
/// declared.
fn store(n: i64) -> (Database, Dataset) {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for id in 0..n {
        put(&dataset, id, id % 5);
        if id == n / 2 {
            converge(&db);
        }
    }
    (db, dataset)
}

fn put(dataset: &Dataset, id: i64, v: i64) {
    dataset.put_json(body(id, v).as_bytes()).unwrap();
}

fn body(id: i64, v: i64) -> String {
    format!("{{\"id\":{id},\"v\":{v},\"pad\":\"{}\"}}", "x".repeat(40))
}

/// Every pair of old and new kind; `None` is "not declared".
fn pairs() -> Vec<(Option<IndexKind>, IndexKind)> {
    let from = IndexKind::ALL.map(Some).into_iter().chain([None]);
    let pairs = from.flat_map(|from| IndexKind::ALL.map(|to| (from, to)));
    pairs.filter(|(from, to)| *from != Some(*to)).collect()
}

/// Gives the attribute `v` an index of this kind.
fn prepare(dataset: &Dataset, kind: Option<IndexKind>) {
    if let Some(kind) = kind {
        let change = dataset
            .add_index(path("v"), esker::Index::new(kind).of_type(Type::Int))
            .run();
        assert!(change.unwrap().complete);
    }
}

fn change(
    dataset: &Dataset,
    from: Option<IndexKind>,
    to: IndexKind,
    progress: &mut dyn FnMut(esker::maintain::IndexProgress) -> ControlFlow<()>,
) -> esker::Result<esker::maintain::IndexChange> {
    match from {
        None => dataset.add_index(path("v"), to).on_progress(progress).run(),
        Some(_) => dataset
            .switch_index(path("v"), to)
            .on_progress(progress)
            .run(),
    }
}

/// Each index agrees with a scan.
fn agree(snapshot: &DatasetSnapshot, values: std::ops::Range<i64>) {
    let mut by_value: BTreeMap<i64, Vec<(u64, String)>> = BTreeMap::new();
    for record in snapshot.scan(..) {
        let record = record.unwrap();
        let json: serde_json::Value = serde_json::from_slice(record.json()).unwrap();
        let v = json["v"].as_i64().unwrap();
        let row = (record.seq(), record.key().to_string());
        by_value.entry(v).or_default().push(row);
    }
    for v in values {
        let mut right = by_value.remove(&v).unwrap_or_default();
        right.sort_by(|a, b| b.cmp(a));
        let right: Vec<String> = right.into_iter().map(|row| row.1).collect();
        let query = || snapshot.query().equals(&path("v"), &v.to_string());
        assert_eq!(keys(query()), right, "v = {v}");
        assert_eq!(query().count().unwrap(), right.len() as u64);
        let newest: Vec<String> = right.into_iter().take(3).collect();
        assert_eq!(keys(query().limit(Some(3))), newest, "v = {v}");
    }
}

#[test]
fn an_index_of_a_store_that_was_never_written_to_is_added() {
    for kind in IndexKind::ALL {
        let (db, dataset) = store(0);
        let v = path("v");
        let change = dataset
            .add_index(&v, esker::Index::new(kind).of_type(Type::Int))
            .run();
        assert!(change.unwrap().complete);
        put(&dataset, 1, 5);
        agree(&dataset.snapshot(), 4..7);
        check(&db);
    }
}

#[test]
fn every_change_of_kind_is_exact_before_amid_and_after() {
    for (from, to) in pairs() {
        let (db, dataset) = store(300);
        prepare(&dataset, from);
        let before = dataset.snapshot();
        let mut reports = 0;
        let mut amid = None;
        let mut progress = |progress: IndexProgress| {
            assert!(progress.done <= progress.total);
            reports += 1;
            let id = 1000 - reports;
            put(&dataset, id, reports % 7);
            put(&dataset, reports, 6);
            let key = dataset.parse_key(&(reports * 3).to_string()).unwrap();
            dataset.delete(&key).unwrap();
            if reports % 3 == 0 {
                check(&db);
                agree(&dataset.snapshot(), 0..7);
            }
            if reports == 4 {
                converge(&db);
                amid = Some(dataset.snapshot());
            }
            ControlFlow::Continue(())
        };
        let done = change(&dataset, from, to, &mut progress).unwrap();
        assert_eq!((done.from, done.to, done.complete), (from, to, true));
        let def = dataset.def();
        assert_eq!(def.indexes.len(), 1);
        assert_eq!((def.indexes[0].kind, def.indexes[0].ty), (to, Type::Int));
        assert_eq!(dataset.unfinished_index(), None);
        put(&dataset, 5, 3);
        for snapshot in [Some(before), amid, Some(dataset.snapshot())] {
            let Some(snapshot) = snapshot else { continue };
            agree(&snapshot, 0..7);
        }
        check(&db);
        db.compact(None).unwrap();
        check(&db);
        agree(&dataset.snapshot(), 0..7);
        let trees = dataset.stats().trees.len();
        // The data tree and the obsolete set.
        assert_eq!(trees, 2 + usize::from(to.is_standalone()), "{from:?} {to}");
        let plan = dataset.query().equals(&path("v"), "1").run().unwrap();
        let plan = plan.explain().plan;
        match to {
            IndexKind::None => assert!(plan.scan.is_some()),
            to => assert_eq!(plan.index.unwrap().kind, to.to_string()),
        }
    }
}

/// Lists of many pieces: postings written during the build are newer than all built ones.
#[test]
fn the_newest_of_a_long_list_come_first_whenever_they_were_written() {
    for to in IndexKind::ALL {
        let (db, dataset) = store(0);
        let mut batch = dataset.batch();
        for id in 0..6000 {
            batch.put_json(body(id, 1).as_bytes()).unwrap();
        }
        batch.durability(Durability::Os).commit().unwrap();
        converge(&db);
        let mut next = 6000;
        let mut progress = |_| {
            put(&dataset, next, 1);
            put(&dataset, next % 50, 2);
            next += 1;
            ControlFlow::Continue(())
        };
        let done = change(&dataset, None, to, &mut progress).unwrap();
        assert!(done.complete && next > 6010, "{next}");
        for _ in 0..2 {
            agree(&dataset.snapshot(), 0..4);
            for id in 7000..7003 {
                put(&dataset, id, 1);
            }
        }
        check(&db);
        db.compact(None).unwrap();
        agree(&dataset.snapshot(), 0..4);
        check(&db);
    }
}

#[test]
fn a_change_that_was_broken_off_is_resumed_or_taken_back_and_nothing_else_goes_meanwhile() {
    for (from, to) in pairs() {
        if to == IndexKind::None && from.is_some() {
            continue;
        }
        for resume in [true, false] {
            let (db, dataset) = store(100);
            prepare(&dataset, from);
            let def = dataset.def();
            let done = change(&dataset, from, to, &mut stop).unwrap();
            assert!(!done.complete, "{from:?} {to}");
            assert_eq!(dataset.def(), def, "queries go the old way");
            let unfinished = dataset.unfinished_index().unwrap();
            assert_eq!((unfinished.path, unfinished.kind), (path("v"), to));
            assert_eq!(
                dataset.stats().unfinished.map(|change| change.kind),
                Some(to)
            );
            put(&dataset, 3, 4);
            put(&dataset, 500, 4);
            check(&db);
            agree(&dataset.snapshot(), 0..7);
            let other = dataset.add_index(path("pad"), IndexKind::Lazy).run();
            let error = other.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy);
            assert!(error.to_string().contains("`v`"), "{error}");
            if resume {
                let done = dataset.resume_index().run().unwrap().unwrap();
                assert_eq!((done.from, done.to, done.complete), (from, to, true));
                assert_eq!(dataset.def().indexes[0].kind, to);
                assert_eq!(dataset.resume_index().run().unwrap(), None);
            } else {
                dataset.drop_index(path("v")).unwrap();
                assert_eq!(dataset.def(), def);
                assert_eq!(dataset.unfinished_index(), None);
            }
            agree(&dataset.snapshot(), 0..7);
            check(&db);
            db.compact(None).unwrap();
            check(&db);
        }
    }
}

/// A round of a build ends after so many entries, whatever they are: else the records that were
/// deleted and the versions that were replaced would be read in one go, with one snapshot, and the
/// build could not be stopped meanwhile.
#[test]
fn a_build_reports_often_where_all_records_are_deleted() {
    for versions in [1, 3] {
        let fs = Memory::new();
        let db = open(Arc::new(fs.clone())).unwrap();
        let def = DatasetDef::new(path("id"), KeyType::Int).versions(versions);
        let def = def.maintenance(esker::schema::Maintenance::Deferred);
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        for id in 0..4000 {
            put(&dataset, id, id % 5);
        }
        let before = dataset.snapshot().seq();
        for id in 0..4000 {
            let key = dataset.parse_key(&id.to_string()).unwrap();
            dataset.delete(&key).unwrap();
        }
        db.flush().unwrap();
        let mut reports = 0;
        let mut stop = |_| {
            reports += 1;
            match reports {
                3 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        };
        let change = dataset
            .add_index(path("v"), esker::Index::lazy().of_type(Type::Int))
            .on_progress(&mut stop)
            .run();
        assert!(!change.unwrap().complete, "{versions} versions");
        dataset.resume_index().run().unwrap().unwrap();
        check(&db);
        agree(&dataset.snapshot(), 0..5);
        if versions > 1 {
            let replaced = dataset.versions_with(path("v"), "3").as_of(before);
            let replaced = replaced.limit(1000).read().unwrap();
            assert_eq!(replaced.records.len(), 800);
        }
    }
}

/// The same call continues a change that was broken off. One that differs in whether values of
/// other types are allowed is another change.
#[test]
fn a_lenient_addition_that_was_broken_off_is_not_resumed_by_a_strict_one() {
    for lenient in [true, false] {
        let (db, dataset) = store(100);
        let wanted = |lenient| {
            let index = esker::Index::new(IndexKind::Composite);
            index.of_type(Type::Int).lenient_if(lenient)
        };
        let mut stop = stop;
        let begun = dataset
            .add_index(path("v"), wanted(lenient))
            .on_progress(&mut stop)
            .run();
        assert!(!begun.unwrap().complete);
        let other = dataset.add_index(path("v"), wanted(!lenient)).run();
        assert_eq!(other.unwrap_err().kind(), ErrorKind::Busy);
        let same = dataset.add_index(path("v"), wanted(lenient)).run();
        assert!(same.unwrap().complete);
        agree(&dataset.snapshot(), 0..7);
        let text = dataset.put_json(br#"{"id":1000,"v":"a text"}"#);
        assert_eq!(text.is_ok(), lenient);
        check(&db);
    }
}

#[test]
fn a_batch_that_was_begun_before_a_change_is_in_the_new_index() {
    for (from, to) in pairs() {
        let (db, dataset) = store(20);
        prepare(&dataset, from);
        let mut batch = dataset.batch();
        let mut second = dataset.batch();
        batch.put_json(body(3, 9).as_bytes()).unwrap();
        batch.put_json(body(100, 9).as_bytes()).unwrap();
        batch.insert_json(body(101, 9).as_bytes()).unwrap();
        let four = dataset.parse_key("4").unwrap();
        batch.delete(&four).unwrap();
        second.put_json(body(102, 9).as_bytes()).unwrap();
        let mut progress = |_| {
            if !batch.is_empty() {
                batch.durability(Durability::Os).commit().unwrap();
            }
            ControlFlow::Continue(())
        };
        change(&dataset, from, to, &mut progress).unwrap();
        // A drop is atomic, so it has no intermediate step.
        batch.durability(Durability::Os).commit().unwrap();
        second.insert_json(body(103, 9).as_bytes()).unwrap();
        second.durability(Durability::Os).commit().unwrap();
        assert!(batch.is_empty() && second.is_empty());
        assert_eq!(dataset.get(&four).unwrap(), None);
        let found = keys(dataset.query().equals(&path("v"), "9"));
        assert_eq!(found, ["103", "102", "101", "100", "3"], "{from:?} {to}");
        agree(&dataset.snapshot(), 0..10);
        check(&db);
    }
}

#[test]
fn a_batch_that_does_not_fit_a_new_attribute_is_refused_at_its_commit_and_stays_as_it_was() {
    let (db, dataset) = store(20);
    let mut batch = dataset.batch();
    batch.put_json(body(50, 1).as_bytes()).unwrap();
    batch.put_json(br#"{"id":51,"v":"one"}"#).unwrap();
    prepare(&dataset, Some(IndexKind::Lazy));
    for _ in 0..2 {
        let error = batch.durability(Durability::Os).commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput);
        let text = error.to_string();
        let what = "record 51: field v must be of type int, found string; an index of `v?`";
        assert!(text.starts_with(what), "{text}");
        assert_eq!(batch.len(), 2);
        assert_eq!(dataset.query().count().unwrap(), 20);
    }
    dataset.drop_index(path("v")).unwrap();
    let error = batch.durability(Durability::Os).commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput, "it stays declared");
    check(&db);
}

#[test]
fn a_record_that_does_not_fit_fails_the_add_and_leaves_everything_as_before() {
    for kind in IndexKind::ALL {
        let (db, dataset) = store(200);
        dataset.put_json(br#"{"id":150,"v":1.5}"#).unwrap();
        dataset.put_json(br#"{"id":151,"v":[1,{}]}"#).unwrap();
        let def = dataset.def();
        let try_add = || {
            dataset
                .add_index(path("v"), esker::Index::new(kind).of_type(Type::Int))
                .run()
        };
        let error = try_add().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput);
        let text = "record 150: field v must be of type int, found float";
        assert!(error.to_string().starts_with(text), "{error}");
        assert_eq!(dataset.def(), def);
        assert_eq!(dataset.unfinished_index(), None);
        assert_eq!(dataset.stats().trees.len(), 2);
        // Values of any type are still accepted.
        dataset.put_json(br#"{"id":152,"v":"x"}"#).unwrap();
        for id in [150, 151, 152] {
            assert!(try_add().is_err());
            put(&dataset, id, 8);
        }
        let before = dataset.snapshot();
        assert!(try_add().unwrap().complete, "{kind}");
        assert_eq!(
            keys(dataset.query().equals(&path("v"), "8")),
            ["152", "151", "150"]
        );
        agree(&before, 0..9);
        agree(&dataset.snapshot(), 0..9);
        check(&db);
    }
}

#[test]
fn an_added_attribute_has_the_type_of_the_first_records_unless_it_is_said() {
    let (_db, dataset) = store(20);
    let add = |at: &str, ty| {
        dataset
            .add_index(path(at), esker::Index::new(IndexKind::Lazy).of_type(ty))
            .run()
    };
    let error = add("nothing", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    add("nothing", Some(Type::Bool)).unwrap();
    add("v", None).unwrap();
    add("pad", None).unwrap();
    let types: Vec<Type> = dataset.def().indexes.iter().map(|index| index.ty).collect();
    assert_eq!(types, [Type::Bool, Type::Int, Type::String]);
    assert_eq!(add("v", None).unwrap_err().kind(), ErrorKind::Exists);
    dataset.drop_index(path("v")).unwrap();
    let error = add("v", Some(Type::String)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput, "it is declared as int");
    add("v", None).unwrap();
    let error = dataset.switch_index(path("w"), IndexKind::Lazy).run();
    assert_eq!(error.unwrap_err().kind(), ErrorKind::BadInput);
    assert_eq!(
        dataset.drop_index(path("w")).unwrap_err().kind(),
        ErrorKind::BadInput
    );
}

#[test]
fn a_snapshot_from_before_a_drop_is_answered_by_the_dropped_index() {
    for kind in IndexKind::ALL {
        if kind == IndexKind::None {
            continue;
        }
        let (db, dataset) = store(200);
        prepare(&dataset, Some(kind));
        converge(&db);
        let before = dataset.snapshot();
        let answer = before.query().equals(&path("v"), "2").run().unwrap();
        dataset.drop_index(path("v")).unwrap();
        put(&dataset, 300, 2);
        db.compact(None).unwrap();
        assert_eq!(answer.count(), 40, "{kind}: begun before");
        agree(&before, 0..5);
        let explain = before.query().equals(&path("v"), "2").run().unwrap();
        let read = explain.explain().plan.index.unwrap();
        assert_eq!(read.kind, kind.to_string());
        agree(&dataset.snapshot(), 0..5);
    }
}

#[test]
fn one_change_runs_at_a_time_and_ends_with_its_dataset() {
    let (db, dataset) = store(50);
    let mut refused = Vec::new();
    let mut progress = |_| {
        let again = dataset.add_index(path("pad"), IndexKind::Lazy).run();
        refused.push(again.unwrap_err().kind());
        refused.push(dataset.drop_index(path("v")).unwrap_err().kind());
        refused.push(db.drop_dataset("d").unwrap_err().kind());
        ControlFlow::Break(())
    };
    let v = path("v");
    let add = dataset
        .add_index(&v, IndexKind::Eager)
        .on_progress(&mut progress)
        .run();
    assert!(!add.unwrap().complete);
    assert_eq!(refused, [ErrorKind::Busy; 3]);
    let mut batch = dataset.batch();
    batch.put_json(body(1, 1).as_bytes()).unwrap();
    // Dropping the dataset drops the trees of an unfinished build.
    db.drop_dataset("d").unwrap();
    assert!(db.group().snapshot().version().trees.is_empty());
    let error = batch.durability(Durability::Os).commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownDataset);
}

/// Writers continue through switches between all kinds; in every snapshot the index agrees with a
/// scan.
#[test]
fn writers_go_on_while_the_kind_is_switched() {
    let options = small(Arc::new(Memory::new()))
        .background(true)
        .memory_budget(1 << 20);
    let db = Database::create_or_open(std::path::Path::new(common::DIR), options).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for id in 0..2000 {
        put(&dataset, id, id % 7);
    }
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (dataset, over, written) = (&dataset, &over, &written);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(writer);
                let mut batch = dataset.batch();
                while !over.load(Ordering::Relaxed) {
                    for _ in 0..rng.usize(1..5) {
                        let id = rng.i64(0..2200);
                        if rng.usize(0..5) == 0 {
                            let key = dataset.parse_key(&id.to_string()).unwrap();
                            batch.delete(&key).unwrap();
                        } else {
                            batch.put_json(body(id, rng.i64(0..7)).as_bytes()).unwrap();
                        }
                    }
                    batch.durability(Durability::Os).commit().unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            prepare(&dataset, Some(IndexKind::None));
            let mut from = IndexKind::None;
            for to in IndexKind::ALL.repeat(by_tier(1, 2)) {
                if to == from {
                    continue;
                }
                let mut reports = 0;
                let mut progress = |_| {
                    reports += 1;
                    if reports % 8 == 1 {
                        agree(&dataset.snapshot(), 0..7);
                    }
                    ControlFlow::Continue(())
                };
                let before = written.load(Ordering::Relaxed);
                let done = dataset
                    .switch_index(path("v"), to)
                    .on_progress(&mut progress)
                    .run()
                    .unwrap();
                assert!(done.complete);
                agree(&dataset.snapshot(), 0..7);
                from = to;
                // Some writes with each kind.
                while written.load(Ordering::Relaxed) < before + 20 {
                    std::thread::yield_now();
                }
            }
        }));
        over.store(true, Ordering::Relaxed);
        failed.unwrap();
    });
    agree(&dataset.snapshot(), 0..7);
    check(&db);
}

/// Each key is the one before with a 0 byte behind it, so a build that reads the records in rounds
/// ends each round with a key that the next round's first key begins with.
#[test]
fn a_round_of_a_build_begins_behind_the_last_key_of_the_one_before() {
    const RECORDS: usize = 300;
    // 64 records a round.
    let options = small(Arc::new(Memory::new())).memory_budget(1 << 20);
    let db = Database::create_or_open(std::path::Path::new(common::DIR), options).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::String);
    let dataset = db.create_dataset::<String>("d", def).unwrap();
    for zeros in 0..RECORDS {
        let json = format!("{{\"id\":\"k{}\",\"v\":7}}", "\\u0000".repeat(zeros));
        dataset.put_json(json).unwrap();
    }
    let added = dataset
        .add_index(path("v"), esker::Index::composite().of_type(Type::Int))
        .run()
        .unwrap();
    assert_eq!(added.records, RECORDS as u64);
    assert_eq!(
        dataset.find(esker::field("v").eq(7)).count().unwrap(),
        RECORDS as u64
    );
    let migrated = dataset
        .set_maintenance(esker::schema::Maintenance::MutableBitmap)
        .run()
        .unwrap();
    assert!(migrated.complete);
    check(&db);
}
