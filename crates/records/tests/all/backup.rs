//! A backup contains exactly the writes visible to one snapshot, whatever the store does at the
//! same time. It is sound, its indexes agree with a scan, it can be written to, repaired, compacted
//! and backed up again, and its new sequence numbers are greater than all of its own.
//! `ESKER_BACKUPS=1000 cargo test --release -p esker --test all backup::` makes more of them.

use crate::common;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{DIR, Doing, TextQuery, check, number, path, small};
use esker::fs::Fs;
use esker::maintain::RepairOptions;
use esker::schema::Maintenance;
use esker::{Database, Dataset, DatasetDef, Durability, IndexKind, KeyType, Type};
use esker_sim::hooked::Hooked;
use esker_sim::memory::Memory;

const VALUES: u64 = 4;

fn body(key: u64, value: u64) -> String {
    format!(
        "{{\"id\":{key},\"a\":{value},\"pad\":\"{}\"}}",
        "p".repeat(40)
    )
}

fn put(dataset: &Dataset, keys: impl Iterator<Item = u64>, value: u64) {
    let mut batch = dataset.batch();
    for key in keys {
        batch.put_json(body(key, value).as_bytes()).unwrap();
    }
    batch.durability(Durability::Os).commit().unwrap();
}

fn open(fs: Arc<dyn Fs>, dir: &FsPath) -> Database {
    Database::open(dir, small(fs)).unwrap()
}

fn definition(maintenance: Maintenance) -> DatasetDef {
    DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("a"),
            esker::Index::new(IndexKind::Lazy).of_type(Type::Int),
        )
        .maintenance(maintenance)
}

/// The index, keys alone and counts agree with a scan. Returns the number of records.
fn agree(dataset: &Dataset) -> u64 {
    let snapshot = dataset.snapshot();
    let mut right: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (key, body) in common::scan(&snapshot).unwrap() {
        let json: serde_json::Value = serde_json::from_str(&body).unwrap();
        right
            .entry(json["a"].as_u64().unwrap())
            .or_default()
            .push(key);
    }
    for value in 0..VALUES {
        let mut right = right.get(&value).cloned().unwrap_or_default();
        right.sort();
        let query = || snapshot.query().equals(&path("a"), &value.to_string());
        let keys = query().keys().unwrap();
        let mut keys: Vec<String> = keys.map(|key| key.unwrap().to_string()).collect();
        keys.sort();
        assert_eq!(keys, right, "keys with {value}");
        assert_eq!(query().count().unwrap(), right.len() as u64, "{value}");
        assert_eq!(query().run().unwrap().count(), right.len(), "{value}");
    }
    right.values().map(|keys| keys.len() as u64).sum()
}

fn repair(dataset: &Dataset) {
    let report = dataset.repair(&RepairOptions::default()).run();
    report.unwrap();
}

/// A copy is sound and independent.
fn prove(fs: &Arc<dyn Fs>, dir: &FsPath) -> u64 {
    let db = open(fs.clone(), dir);
    check(&db);
    let mut records = 0;
    for name in db.dataset_names() {
        let dataset = db.dataset::<esker::Key>(&name).unwrap();
        records += agree(&dataset);
        // New writes are newer than all writes in the copy.
        put(&dataset, 0..7, 3);
        put(&dataset, 3..5, 1);
        agree(&dataset);
        repair(&dataset);
        agree(&dataset);
    }
    check(&db);
    db.compact(None).unwrap();
    for name in db.dataset_names() {
        agree(&db.dataset::<esker::Key>(&name).unwrap());
    }
    check(&db);
    let again = dir.with_extension("again");
    db.backup(&again).unwrap();
    db.close().unwrap();
    let db = open(fs.clone(), &again);
    check(&db);
    for name in db.dataset_names() {
        agree(&db.dataset::<esker::Key>(&name).unwrap());
    }
    db.close().unwrap();
    remove(fs, &again);
    records
}

fn remove(fs: &Arc<dyn Fs>, dir: &FsPath) {
    for name in fs.list(dir).unwrap() {
        fs.remove(&dir.join(name)).unwrap();
    }
}

/// At one call of a backup after another, all records are written again and the obsolete set
/// records the old ones.
#[test]
fn a_backup_has_no_bits_of_writes_that_it_lacks() {
    const KEYS: u64 = 30;
    for maintenance in Maintenance::ALL {
        for at in 1.. {
            let _doing = Doing(format!("{maintenance}, call {at}"));
            let hooked = Hooked::new(Arc::new(Memory::new()));
            let fs: Arc<dyn Fs> = Arc::new(hooked.clone());
            let db =
                Arc::new(Database::create_or_open(FsPath::new(DIR), small(fs.clone())).unwrap());
            let dataset = db
                .create_dataset::<esker::Key>("d", definition(maintenance))
                .unwrap();
            put(&dataset, 0..KEYS, 1);
            let last = db.group().snapshot().seq();
            let calls = Arc::new(AtomicU64::new(0));
            let (during, counted) = (db.clone(), calls.clone());
            hooked.set(move |_, _| {
                if counted.fetch_add(1, Ordering::SeqCst) + 1 == at {
                    put(&during.dataset::<esker::Key>("d").unwrap(), 0..KEYS, 2);
                    let group = during.group();
                    if let Some(set) = group.tree("d/superseded") {
                        let mut over = (last + 1 - KEYS..=last).map(Ok);
                        group.supersede(set, &mut over, Some(last + KEYS)).unwrap();
                    }
                }
                Ok(())
            });
            db.backup(FsPath::new("/copy")).unwrap();
            hooked.clear();
            agree(&dataset);
            assert_eq!(prove(&fs, FsPath::new("/copy")), KEYS);
            if calls.load(Ordering::SeqCst) < at {
                break;
            }
        }
    }
}

/// The copy continues the store's numbers, even if no table has the greatest of them any more.
#[test]
fn a_backup_gives_out_numbers_above_all_that_its_marks_say() {
    for maintenance in Maintenance::ALL {
        let _doing = Doing(maintenance.to_string());
        let fs: Arc<dyn Fs> = Arc::new(Memory::new());
        let db = Database::create_or_open(FsPath::new(DIR), small(fs.clone())).unwrap();
        let users = db
            .create_dataset::<esker::Key>("users", definition(maintenance))
            .unwrap();
        let logs = db
            .create_dataset::<esker::Key>("logs", definition(maintenance))
            .unwrap();
        put(&users, 0..10, 0);
        put(&logs, 0..1000, 1);
        repair(&users);
        let last = db.group().snapshot().seq();
        drop(logs);
        db.drop_dataset("logs").unwrap();
        db.backup(FsPath::new("/copy")).unwrap();
        let copy = open(fs.clone(), FsPath::new("/copy"));
        assert_eq!(copy.group().snapshot().seq(), last);
        drop(copy);
        assert_eq!(prove(&fs, FsPath::new("/copy")), 10);
    }
}

/// A build in progress is completed in the copy.
#[test]
fn a_build_that_was_broken_off_goes_on_in_the_backup() {
    let fs: Arc<dyn Fs> = Arc::new(Memory::new());
    let db = Database::create_or_open(FsPath::new(DIR), small(fs.clone())).unwrap();
    let dataset = db
        .create_dataset::<esker::Key>("d", definition(Maintenance::Validation))
        .unwrap();
    put(&dataset, 0..100, 0);
    let report = dataset
        .add_index(
            path("id"),
            esker::Index::new(IndexKind::Composite).of_type(Type::Int),
        )
        .on_progress(|_| ControlFlow::Break(()))
        .run()
        .unwrap();
    assert!(!report.complete);
    db.backup(FsPath::new("/copy")).unwrap();
    let copy = open(fs.clone(), FsPath::new("/copy"));
    let dataset = copy.dataset::<esker::Key>("d").unwrap();
    put(&dataset, 50..120, 2);
    let report = dataset.resume_index().run().unwrap();
    assert!(report.is_some_and(|report| report.complete));
    check(&copy);
    agree(&dataset);
    copy.close().unwrap();
}

/// A writer, a reader whose queries record obsolete writes, flushes, repairs, background
/// maintenance, and backups. Every second backup is made by a reading handle, as in another
/// process, which lags behind now and then.
#[test]
fn backups_under_load_are_sound() {
    const KEYS: u64 = 2000;
    let backups = number("ESKER_BACKUPS", esker_sim::by_tier(15, 60));
    let each = backups.div_ceil(Maintenance::ALL.len());
    let rounds = Maintenance::ALL.into_iter().flat_map(|maintenance| {
        // The writers never pause. A new store from time to time keeps backups from growing.
        let starts = (0..each).step_by(20);
        starts.map(move |first| (maintenance, first..each.min(first + 20)))
    });
    for (maintenance, backups) in rounds {
        let _doing = Doing(maintenance.to_string());
        let fs: Arc<dyn Fs> = Arc::new(Memory::new());
        let options = small(fs.clone()).background(true);
        let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
        let dataset = db
            .create_dataset::<esker::Key>("d", definition(maintenance))
            .unwrap();
        put(&dataset, 0..KEYS, 0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (db, dataset, done) = (&db, &dataset, &done);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(1);
                while !done.load(Ordering::Relaxed) {
                    let keys: Vec<u64> = (0..20).map(|_| rng.u64(0..KEYS)).collect();
                    put(dataset, keys.into_iter(), rng.u64(0..VALUES));
                }
            });
            scope.spawn(move || {
                for round in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let value = (round % VALUES).to_string();
                    let snapshot = dataset.snapshot();
                    snapshot.query().equals(&path("a"), &value).count().unwrap();
                    match round % 8 {
                        3 => db.flush().unwrap(),
                        7 => {
                            repair(dataset);
                        }
                        _ => {}
                    }
                }
            });
            let stop = Stop(done);
            let beside = Database::open_reader(FsPath::new(DIR), small(fs.clone())).unwrap();
            for n in backups {
                let dest = format!("/copy{n}");
                let dest = FsPath::new(&dest);
                match n % 2 {
                    0 => db.backup(dest).unwrap(),
                    _ => {
                        if n % 4 == 1 {
                            beside.refresh().unwrap();
                            let report = beside.check().unwrap();
                            assert_eq!(report.errors, Vec::<String>::new(), "beside, {n}");
                        }
                        beside.backup(dest).unwrap();
                    }
                }
                assert_eq!(prove(&fs, dest), KEYS, "backup {n}");
                remove(&fs, dest);
            }
            drop(stop);
        });
        agree(&dataset);
    }
}

/// Stops the other threads, also after a failure.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
