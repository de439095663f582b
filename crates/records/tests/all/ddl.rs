//! Datasets are created and dropped while other work goes on: handles never wait for that, calls
//! with the same name work in any order, and operations over all datasets skip those dropped in
//! between.

use std::path::Path as FsPath;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::common::{DIR, Doing, TextQuery, check, path, small};
use crate::hooked::Hooked;
use esker::fs::Fs;
use esker::schema::Maintenance;
use esker::{Database, Dataset, DatasetDef, Durability, ErrorKind, IndexKind, KeyType, Type};

/// Long enough for any machine; only a failing test waits this long.
const NEVER: Duration = Duration::from_secs(20);

fn def() -> DatasetDef {
    DatasetDef::new(path("id"), KeyType::Int).index(
        path("a"),
        esker::Index::new(IndexKind::Composite).of_type(Type::Int),
    )
}

fn fill(dataset: &Dataset, records: u64) {
    let mut batch = dataset.batch();
    for id in 0..records {
        let body = format!("{{\"id\":{id},\"a\":1}}");
        batch.put_json(body.as_bytes()).unwrap();
    }
    batch.durability(Durability::Os).commit().unwrap();
}

fn open(fs: &Hooked) -> Database {
    fs.inner.create_dir(FsPath::new(DIR)).unwrap();
    let options = small(Arc::new(fs.clone()))
        .memory_budget(32 << 20)
        .table_size(32 << 20);
    Database::create_or_open(FsPath::new(DIR), options).unwrap()
}

/// Holds one thread in a call until another thread has acted.
struct Gate {
    reached: Mutex<Receiver<()>>,
    open: Sender<()>,
}

/// Closes a gate at the first `call` on a file whose name begins with `name`, for other threads
/// than this one.
fn gate(fs: &Hooked, call: &'static str, name: &'static str) -> Gate {
    let (reach, reached) = channel();
    let (open, opened) = channel();
    let (closed, opened) = (AtomicBool::new(true), Mutex::new(opened));
    let here = std::thread::current().id();
    fs.set(move |called, path| {
        let file = path.file_name().map(|name| name.to_string_lossy());
        let is_meant = called == call && file.is_some_and(|file| file.starts_with(name));
        if is_meant && std::thread::current().id() != here && closed.swap(false, SeqCst) {
            reach.send(()).unwrap();
            opened.lock().unwrap().recv_timeout(NEVER).unwrap();
        }
        Ok(())
    });
    Gate {
        reached: Mutex::new(reached),
        open,
    }
}

/// Whether handles can be opened while `work` waits at the gate.
fn handles_beside(db: &Database, gate: &Gate, work: impl FnOnce() + Send) -> bool {
    std::thread::scope(|scope| {
        scope.spawn(work);
        gate.reached.lock().unwrap().recv_timeout(NEVER).unwrap();
        let (done, wait) = channel();
        let db = db.clone();
        scope.spawn(move || {
            let there = db.dataset::<esker::Key>("d").is_ok() && !db.dataset_names().is_empty();
            let _ = done.send(there);
        });
        let got = wait.recv_timeout(NEVER / 4);
        gate.open.send(()).unwrap();
        got == Ok(true)
    })
}

#[test]
fn a_handle_does_not_wait_for_datasets_that_are_created_and_dropped() {
    let fs = Hooked::default();
    let db = open(&fs);
    fill(&db.create_dataset::<esker::Key>("d", def()).unwrap(), 10);
    for (at, (call, file)) in [
        ("append", "MANIFEST"),
        ("sync", "MANIFEST"),
        ("create", "USAGE"),
        ("rename", "USAGE"),
    ]
    .into_iter()
    .enumerate()
    {
        let _doing = Doing(format!("{call} {file}"));
        let name = format!("other{at}");
        if file == "MANIFEST" {
            let gate = gate(&fs, call, file);
            let create = || drop(db.create_dataset::<esker::Key>(&name, def()).unwrap());
            assert!(handles_beside(&db, &gate, create), "created");
        } else {
            db.create_dataset::<esker::Key>(&name, def()).unwrap();
        }
        fill(&db.dataset::<esker::Key>(&name).unwrap(), 10);
        let gate = gate(&fs, call, file);
        let drop = || db.drop_dataset(&name).unwrap();
        assert!(handles_beside(&db, &gate, drop), "dropped");
        fs.clear();
    }
    assert_eq!(db.dataset_names(), ["d"]);
    check(&db);
}

#[test]
fn a_handle_does_not_wait_for_maintenance_to_give_way_to_a_drop() {
    let fs = Hooked::default();
    let db = open(&fs);
    fill(&db.create_dataset::<esker::Key>("d", def()).unwrap(), 10);
    // An incomplete migration: the next maintenance step repairs by index and locks the
    // indexes.
    let busy = db.create_dataset::<esker::Key>("busy", def()).unwrap();
    fill(&busy, 6000);
    busy.set_maintenance(Maintenance::Validation)
        .on_progress(|_| std::ops::ControlFlow::Break(()))
        .run()
        .unwrap();
    db.flush().unwrap();
    let gate = gate(&fs, "read", "0");
    std::thread::scope(|scope| {
        // Its maintenance waits at the gate.
        scope.spawn(|| fill(&busy, 1));
        gate.reached.lock().unwrap().recv_timeout(NEVER).unwrap();
        let (dropped, drops) = channel();
        let (starting, started) = channel();
        let other = db.clone();
        scope.spawn(move || {
            starting.send(()).unwrap();
            dropped.send(other.drop_dataset("busy").is_ok()).unwrap();
        });
        started.recv_timeout(NEVER).unwrap();
        // The drop waits or has not begun; in both cases handles can be opened.
        for _ in 0..20 {
            let (done, wait) = channel();
            let db = db.clone();
            scope.spawn(move || {
                let _ = done.send(db.dataset::<esker::Key>("d").is_ok());
            });
            let got = wait.recv_timeout(NEVER / 4);
            if got != Ok(true) {
                gate.open.send(()).unwrap();
                panic!("a handle waits");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(drops.try_recv().is_err(), "the drop waits");
        gate.open.send(()).unwrap();
        assert_eq!(drops.recv_timeout(NEVER), Ok(true));
    });
    fs.clear();
    assert_eq!(db.dataset_names(), ["d"]);
    check(&db);
}

#[test]
fn of_those_who_create_or_drop_a_name_at_once_one_succeeds() {
    const THREADS: usize = 4;
    let fs = Hooked::default();
    let db = open(&fs);
    for round in 0..60 {
        let (created, dropped) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let before = db.dataset::<esker::Key>("x").is_ok();
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (db, start) = (&db, &start);
                let (created, dropped) = (&created, &dropped);
                scope.spawn(move || {
                    start.wait();
                    // All create, all drop, or half of each.
                    let creates = match round % 3 {
                        0 => true,
                        1 => false,
                        _ => thread % 2 == 0,
                    };
                    let (result, count, refused) = if creates {
                        (
                            db.create_dataset::<esker::Key>("x", def()).map(drop),
                            created,
                            ErrorKind::Exists,
                        )
                    } else {
                        (db.drop_dataset("x"), dropped, ErrorKind::UnknownDataset)
                    };
                    match result {
                        Ok(()) => {
                            count.fetch_add(1, SeqCst);
                        }
                        Err(error) => assert_eq!(error.kind(), refused, "{error}"),
                    }
                });
            }
        });
        let after = db.dataset::<esker::Key>("x").is_ok();
        let (created, dropped) = (created.into_inner(), dropped.into_inner());
        let number = usize::from(before) + created - dropped;
        assert_eq!(number, usize::from(after), "round {round}");
        match round % 3 {
            0 => assert!(after && created <= 1),
            1 => assert!(!after && dropped <= 1),
            _ => {}
        }
        // All trees belong to the datasets.
        let snapshot = db.group().snapshot();
        let mut trees = snapshot.version().trees.values();
        assert_eq!(trees.any(|tree| tree.name == "x/data"), after);
        if let Ok(dataset) = db.dataset::<esker::Key>("x") {
            fill(&dataset, 20);
        }
        check(&db);
    }
}

#[test]
fn what_goes_through_all_datasets_passes_over_those_that_are_dropped_meanwhile() {
    let options = small(Arc::new(esker_sim::memory::Memory::new())).background(true);
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    fill(&db.create_dataset::<esker::Key>("a", def()).unwrap(), 500);
    let (done, dropped) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for name in ["b", "c"] {
            let (db, done, dropped) = (&db, &done, &dropped);
            scope.spawn(move || {
                while !done.load(SeqCst) {
                    let dataset = db.create_dataset::<esker::Key>(name, def()).unwrap();
                    fill(&dataset, 200);
                    fill(&dataset, 100);
                    let query = dataset.query().equals(&path("a"), "1");
                    let _ = query.count();
                    db.drop_dataset(name).unwrap();
                    dropped.fetch_add(1, SeqCst);
                }
            });
        }
        let end = End(&done);
        let mut rounds = 0;
        while rounds < 30 || dropped.load(SeqCst) < 60 {
            db.compact(None).unwrap();
            check(&db);
            db.flush().unwrap();
            db.stats();
            for name in db.dataset_names() {
                let Ok(dataset) = db.dataset::<esker::Key>(&name) else {
                    continue;
                };
                dataset.advise(None).unwrap();
                let error = dataset.stats().strategy.error;
                assert_eq!(error, None, "{name}");
            }
            rounds += 1;
        }
        drop(end);
    });
    db.close().unwrap();
}

/// Stops the other threads, also after a failure.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
