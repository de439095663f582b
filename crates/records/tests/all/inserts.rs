//! Inserts look up their keys before they take a lock that other writers wait for, and exactly one
//! of several inserts of the same key succeeds.

use crate::common;
use std::path::Path as FsPath;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::common::{DIR, Doing, check, path, small};
use crate::hooked::Hooked;
use esker::fs::Fs;
use esker::schema::Maintenance;
use esker::{Database, Dataset, DatasetDef, Durability, ErrorKind, IndexKind, KeyType, Type};
use esker_sim::memory::Memory;

/// Long enough for any machine; only a failing test waits this long.
const NEVER: Duration = Duration::from_secs(20);

fn def(maintenance: Maintenance) -> DatasetDef {
    DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("a"),
            esker::Index::new(IndexKind::Composite).of_type(Type::Int),
        )
        .maintenance(maintenance)
}

fn body(id: u64, a: u64) -> String {
    format!("{{\"id\":{id},\"a\":{a}}}")
}

/// A store with the even ids in tables that are not cached, and an empty dataset beside it.
fn even_ids(fs: Arc<dyn Fs>, maintenance: Maintenance) -> (Database, Dataset, Dataset) {
    let db = common::open(fs.clone()).unwrap();
    let dataset = db
        .create_dataset::<esker::Key>("d", def(maintenance))
        .unwrap();
    db.create_dataset::<esker::Key>("other", def(Maintenance::Deferred))
        .unwrap();
    let mut batch = dataset.batch();
    for id in 0..1000 {
        batch.put_json(body(id * 2, 0).as_bytes()).unwrap();
    }
    batch.durability(Durability::Os).commit().unwrap();
    drop((batch, dataset));
    db.flush().unwrap();
    db.close().unwrap();
    let db = common::open(fs).unwrap();
    // Opens all tables, because opening one blocks others that need it.
    for table in db.group().snapshot().version().tables() {
        table.table().unwrap();
    }
    let (dataset, other) = (
        db.dataset::<esker::Key>("d").unwrap(),
        db.dataset::<esker::Key>("other").unwrap(),
    );
    (db, dataset, other)
}

/// Work for another thread while the inserter reads.
type Job = Box<dyn FnOnce() + Send>;

/// A thread that runs the given jobs.
fn helper() -> Sender<Job> {
    let (give, take) = channel::<Job>();
    std::thread::spawn(move || take.into_iter().for_each(|job| job()));
    give
}

#[test]
fn other_writers_do_not_wait_for_the_reads_of_an_insert() {
    for maintenance in Maintenance::ALL {
        let _doing = Doing(maintenance.to_string());
        let fs = Hooked::default();
        fs.inner.create_dir(FsPath::new(DIR)).unwrap();
        let (db, dataset, other) = even_ids(Arc::new(fs.clone()), maintenance);
        // Keeps the own work of the first write out of the counts.
        other.put_json(body(0, 0).as_bytes()).unwrap();
        let (reads, written) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let inserter = std::thread::current().id();
        let helper = Mutex::new(helper());
        let counted = (reads.clone(), written.clone());
        fs.set(move |call, _| {
            if call != "read" || std::thread::current().id() != inserter {
                return Ok(());
            }
            let id = counted.0.fetch_add(1, SeqCst) as u64;
            if id > counted.1.load(SeqCst) as u64 {
                // Once is enough.
                return Ok(());
            }
            let (done, wait) = channel();
            let other = other.clone();
            let job = move || {
                other.put_json(body(id, 0).as_bytes()).unwrap();
                let _ = done.send(());
            };
            helper.lock().unwrap().send(Box::new(job)).unwrap();
            if wait.recv_timeout(NEVER).is_ok() {
                counted.1.fetch_add(1, SeqCst);
            }
            Ok(())
        });
        let mut batch = dataset.batch();
        for id in [101, 103, 1501] {
            batch.insert_json(body(id, 1).as_bytes()).unwrap();
        }
        batch.durability(Durability::Os).commit().unwrap();
        let error = dataset.insert_json(body(500, 1).as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists);
        fs.clear();
        let reads = reads.load(SeqCst);
        assert!(reads > 0, "nothing was read");
        assert_eq!(written.load(SeqCst), reads, "writes during reads");
        assert_eq!(dataset.query().count().unwrap(), 1003);
        check(&db);
    }
}

#[test]
fn an_insert_that_is_overtaken_while_it_reads_sees_it() {
    // The work of the other thread, and whether the key exists afterwards.
    type Overtake = fn(&Database, &Dataset);
    let put: Overtake = |_, dataset| dataset.put_json(body(101, 7).as_bytes()).unwrap();
    let insert: Overtake = |_, dataset| dataset.insert_json(body(101, 7).as_bytes()).unwrap();
    let flushed: Overtake = |db, dataset| {
        dataset.insert_json(body(101, 7).as_bytes()).unwrap();
        db.flush().unwrap();
    };
    let gone: Overtake = |db, dataset| {
        dataset.insert_json(body(101, 7).as_bytes()).unwrap();
        db.flush().unwrap();
        let key = dataset.parse_key("101").unwrap();
        assert!(dataset.delete(&key).unwrap().is_some());
    };
    for maintenance in Maintenance::ALL {
        for (what, overtake, there) in [
            ("put", put, true),
            ("insert", insert, true),
            ("flushed", flushed, true),
            ("gone", gone, false),
        ] {
            let _doing = Doing(format!("{maintenance}, {what}"));
            let fs = Hooked::default();
            fs.inner.create_dir(FsPath::new(DIR)).unwrap();
            let (db, dataset, _) = even_ids(Arc::new(fs.clone()), maintenance);
            let inserter = std::thread::current().id();
            let helper = Mutex::new(helper());
            let overtaken = Arc::new(AtomicUsize::new(0));
            let (counted, handles) = (overtaken.clone(), (db.clone(), dataset.clone()));
            fs.set(move |call, _| {
                let mine = std::thread::current().id() == inserter;
                if call != "read" || !mine || counted.fetch_add(1, SeqCst) > 0 {
                    return Ok(());
                }
                let (done, wait) = channel();
                let (db, dataset) = handles.clone();
                let job = move || {
                    overtake(&db, &dataset);
                    let _ = done.send(());
                };
                helper.lock().unwrap().send(Box::new(job)).unwrap();
                wait.recv_timeout(NEVER).expect("done while it reads");
                Ok(())
            });
            let result = dataset.insert_json(body(101, 1).as_bytes());
            fs.clear();
            assert!(overtaken.load(SeqCst) > 0, "nothing was read");
            assert_eq!(result.is_err(), there);
            let record = dataset.get(dataset.parse_key("101").unwrap()).unwrap();
            let expected = body(101, if there { 7 } else { 1 });
            assert_eq!(record.unwrap().json(), expected.as_bytes());
            check(&db);
        }
    }
}

#[test]
fn of_those_who_insert_a_key_exactly_one_succeeds() {
    const WRITERS: u64 = 4;
    const KEYS: u64 = 600;
    for maintenance in Maintenance::ALL {
        let _doing = Doing(maintenance.to_string());
        let options = small(Arc::new(Memory::new()))
            // A budget so small that generations are flushed all the time.
            .memory_budget(64 << 10)
            .background(true)
            .table_size(2 << 10);
        let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
        let dataset = db
            .create_dataset::<esker::Key>("d", def(maintenance))
            .unwrap();
        let start = Barrier::new(WRITERS as usize);
        let winners: Vec<Mutex<Vec<u64>>> = (0..KEYS).map(|_| Mutex::default()).collect();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (dataset, start, winners) = (&dataset, &start, &winners);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(writer);
                    let mut batch = dataset.batch();
                    start.wait();
                    let mut key = 0;
                    while key < KEYS {
                        let end = KEYS.min(key + rng.u64(1..4));
                        for key in key..end {
                            batch.insert_json(body(key, writer).as_bytes()).unwrap();
                        }
                        match batch.durability(Durability::Os).commit() {
                            Ok(()) => (key..end)
                                .for_each(|key| winners[key as usize].lock().unwrap().push(writer)),
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Exists, "{error}"),
                        }
                        batch.clear();
                        // A batch with an existing key inserts none of its records, so each key is
                        // also tried alone.
                        for key in key..end {
                            match dataset.insert_json(body(key, writer).as_bytes()) {
                                Ok(()) => winners[key as usize].lock().unwrap().push(writer),
                                Err(error) => assert_eq!(error.kind(), ErrorKind::Exists),
                            }
                        }
                        key = end;
                    }
                });
            }
        });
        for (key, winners) in (0..KEYS).zip(winners) {
            let winners = winners.into_inner().unwrap();
            let [winner] = winners[..] else {
                panic!("key {key} was inserted by {winners:?}");
            };
            let key = dataset.parse_key(&key.to_string()).unwrap();
            let record = dataset.get(&key).unwrap().unwrap();
            let text = std::str::from_utf8(record.json()).unwrap();
            assert!(text.ends_with(&format!("\"a\":{winner}}}")), "{text}");
        }
        assert_eq!(dataset.query().count().unwrap(), KEYS);
        check(&db);
    }
}
