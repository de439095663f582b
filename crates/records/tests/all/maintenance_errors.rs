//! Errors in background maintenance: `stats` reports them, the work is retried after growing
//! pauses, and other operations are not affected.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::{DIR, TextQuery, check, path, small};
use crate::hooked::Hooked;
use esker::fs::Fs;
use esker::schema::Maintenance;
use esker::stats::StrategyStats;
use esker::{Database, Dataset, DatasetDef, Durability, IndexKind, KeyType, Type};

fn body(id: u64, a: u64) -> String {
    format!("{{\"id\":{id},\"a\":{a}}}")
}

/// A store in which everything fits into one generation, so that flushes happen on request, and
/// compactions rarely.
fn open(fs: &Hooked) -> Database {
    let options = small(Arc::new(fs.clone()))
        .memory_budget(32 << 20)
        .table_size(32 << 20);
    fs.inner.create_dir(FsPath::new(DIR)).unwrap();
    Database::create_or_open(FsPath::new(DIR), options).unwrap()
}

fn create(db: &Database, maintenance: Maintenance) -> Dataset {
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("a"),
            esker::Index::new(IndexKind::Composite).of_type(Type::Int),
        )
        .maintenance(maintenance);
    db.create_dataset::<esker::Key>("d", def).unwrap()
}

fn put(dataset: &Dataset, ids: std::ops::Range<u64>, a: u64) {
    let mut batch = dataset.batch();
    for id in ids {
        batch.put_json(body(id, a).as_bytes()).unwrap();
    }
    batch.durability(Durability::Os).commit().unwrap();
}

fn strategy(dataset: &Dataset) -> StrategyStats {
    dataset.stats().strategy
}

/// The largest table of a tree.
fn table(db: &Database, tree: &str) -> PathBuf {
    let snapshot = db.group().snapshot();
    let tree = snapshot.version().tree_named(tree).unwrap();
    let tables = tree.runs.iter().flat_map(|run| run.tables.iter());
    let largest = tables.max_by_key(|table| table.meta().size).unwrap();
    FsPath::new(DIR).join(format!("{:06}.tbl", largest.meta().number))
}

/// Runs the inline maintenance.
fn look(db: &Database, dataset: &Dataset) {
    db.flush().unwrap();
    put(dataset, 1_000_000..1_000_001, 0);
}

#[test]
fn errors_of_the_maintenance_are_reported_and_it_is_tried_again_after_growing_pauses() {
    for error in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
        let fs = Hooked::default();
        let db = open(&fs);
        let dataset = create(&db, Maintenance::Validation);
        // Enough new keys to make a repair due.
        put(&dataset, 0..6000, 1);
        db.flush().unwrap();
        let (bad, tries) = (table(&db, "d/keys"), Arc::new(AtomicUsize::new(0)));
        let counted = tries.clone();
        fs.set(move |call, path| {
            if path == bad && ["read", "open"].contains(&call) {
                counted.fetch_add(1, SeqCst);
                return Err(error.into());
            }
            Ok(())
        });
        let mut tried = Vec::new();
        for at in 0..40 {
            let before = tries.load(SeqCst);
            look(&db, &dataset);
            if tries.load(SeqCst) > before {
                tried.push(at);
            }
        }
        let message = strategy(&dataset).error.unwrap_or_default();
        assert!(message.contains(".tbl: "), "{message}");
        assert_eq!(strategy(&dataset).repaired_up_to, 0);
        // Each pause is longer than the one before.
        let pauses: Vec<i32> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.len() >= 3, "{tried:?}");
        assert!(pauses.is_sorted_by(|a, b| a < b), "{tried:?}");
        fs.clear();
        let done = (0..40).find(|_| {
            look(&db, &dataset);
            strategy(&dataset).error.is_none()
        });
        assert!(done.is_some(), "{:?}", strategy(&dataset));
        assert!(strategy(&dataset).repaired_up_to > 6000);
        check(&db);
    }
}

#[test]
fn a_change_that_is_under_way_is_no_error_and_delays_nothing() {
    let fs = Hooked::default();
    let db = open(&fs);
    let dataset = create(&db, Maintenance::Validation);
    put(&dataset, 0..6000, 1);
    let mut looks = 0;
    let mut progress = |_| {
        look(&db, &dataset);
        looks += 1;
        assert!(
            strategy(&dataset).error.is_none(),
            "{:?}",
            strategy(&dataset)
        );
        ControlFlow::Continue(())
    };
    dataset
        .add_index(
            path("b"),
            esker::Index::new(IndexKind::Lazy).of_type(Type::Int),
        )
        .on_progress(&mut progress)
        .run()
        .unwrap();
    assert!(looks > 0);
    look(&db, &dataset);
    assert!(strategy(&dataset).error.is_none());
    assert!(strategy(&dataset).repaired_up_to >= 6000);
}

#[test]
fn findings_of_queries_that_cannot_be_written_fail_no_flush_and_are_reported() {
    let fs = Hooked::default();
    let db = open(&fs);
    let dataset = create(&db, Maintenance::Deferred);
    put(&dataset, 0..100, 1);
    db.flush().unwrap();
    put(&dataset, 0..50, 2);
    // The keys of the new versions are in the memtables, the old index entries are in tables.
    let count = || {
        let query = dataset.query().equals(&path("a"), "1");
        query.run().unwrap().count()
    };
    assert_eq!(count(), 50);
    let failed = Arc::new(AtomicUsize::new(0));
    let counted = failed.clone();
    fs.set(move |call, path| {
        let is_table = path.extension().is_some_and(|extension| extension == "tbl");
        if call == "create" && is_table && counted.fetch_add(1, SeqCst) == 0 {
            return Err(io::ErrorKind::Other.into());
        }
        Ok(())
    });
    db.flush().unwrap();
    assert!(failed.load(SeqCst) > 1, "the rest was flushed");
    let message = strategy(&dataset).error.unwrap_or_default();
    assert!(message.contains(".tbl: cannot create"), "{message}");
    // The query finds them again, and now they can be written.
    assert_eq!(count(), 50);
    db.flush().unwrap();
    assert!(
        strategy(&dataset).error.is_none(),
        "{:?}",
        strategy(&dataset)
    );
    assert_eq!(strategy(&dataset).known_obsolete, 50);
    check(&db);
}

#[test]
fn a_failure_to_write_findings_is_reported_until_they_are_written_also_after_reopening() {
    let fs = Hooked::default();
    let db = open(&fs);
    let dataset = create(&db, Maintenance::Deferred);
    put(&dataset, 0..100, 1);
    db.flush().unwrap();
    put(&dataset, 0..50, 2);
    let count = |dataset: &Dataset| {
        dataset
            .query()
            .equals(&path("a"), "1")
            .run()
            .unwrap()
            .count()
    };
    assert_eq!(count(&dataset), 50);
    let failed = Arc::new(AtomicUsize::new(0));
    fs.set(move |call, path| {
        let is_table = path.extension().is_some_and(|extension| extension == "tbl");
        if call == "create" && is_table && failed.fetch_add(1, SeqCst) == 0 {
            return Err(io::ErrorKind::Other.into());
        }
        Ok(())
    });
    db.flush().unwrap();
    fs.clear();
    let reported = strategy(&dataset).error;
    assert!(reported.is_some());
    drop(dataset);
    db.close().unwrap();
    let options = small(Arc::new(fs.clone()))
        .memory_budget(32 << 20)
        .automatic_maintenance(false);
    let db = Database::open(FsPath::new(DIR), options).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    assert_eq!(strategy(&dataset).error, reported);
    // The query finds them again.
    assert_eq!(count(&dataset), 50);
    put(&dataset, 500..501, 3);
    db.flush().unwrap();
    assert_eq!(strategy(&dataset).known_obsolete, 50);
    assert_eq!(strategy(&dataset).error, None);
}
