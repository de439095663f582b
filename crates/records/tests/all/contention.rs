//! Several writers of the same keys, readers with snapshots, flushes, compactions and repairs at
//! once, under each maintenance strategy. In each snapshot the indexes agree with a scan. At the
//! end each key has its last write by sequence number, and the obsolete set is exact.
//! `ESKER_SEEDS=20 cargo test -p esker --test all contention::` tries more; `ESKER_SEED=17` repeats
//! one (as far as the threads behave the same way again).

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::{
    Doing, INDEXED, PATHS, TextQuery, check, check_set, keys, keys_in_every_way, number, path,
    seeds, small, with_strategy,
};

use esker::maintain::RepairOptions;
use esker::schema::Maintenance;
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, ErrorKind, KeyType, Record, Type,
};
use esker_lsm::{BitmapMerges, Seq};
use esker_sim::memory::Memory;

const KEYS: u64 = 25;
const VALUES: u64 = 6;
const WRITERS: u64 = 3;
const READERS: u64 = 2;

/// Counts the ended threads, also failed ones.
struct End<'a>(&'a AtomicUsize);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn body(id: u64, value: u64, stamp: &str) -> String {
    let fields: String = PATHS
        .iter()
        .map(|at| format!("\"{at}\":{value},"))
        .collect();
    format!("{{\"id\":{id},{fields}\"stamp\":\"{stamp}\"}}")
}

/// The last write of each key by one writer: a body, or a deletion.
type Last = BTreeMap<u64, Option<String>>;

fn write(dataset: &Dataset, seed: u64, writer: u64, batches: usize) -> Last {
    let mut rng = fastrand::Rng::with_seed(seed * 100 + writer);
    let mut last = Last::new();
    for number in 0..batches {
        let mut batch = dataset.batch();
        let mut done = Last::new();
        for _ in 0..rng.usize(1..6) {
            let (id, value) = (rng.u64(0..KEYS), rng.u64(0..VALUES));
            let body = body(id, value, &format!("{writer}/{number}/{}", done.len()));
            match rng.usize(0..12) {
                0..=2 => {
                    let key = dataset.parse_key(&id.to_string()).unwrap();
                    batch.delete(&key).unwrap();
                    done.insert(id, None);
                }
                3 => {
                    batch.insert_json(body.as_bytes()).unwrap();
                    done.insert(id, Some(body));
                }
                _ => {
                    batch.put_json(body.as_bytes()).unwrap();
                    done.insert(id, Some(body));
                }
            }
        }
        let durability = [Durability::Os, Durability::Sync][usize::from(number % 32 == 0)];
        match batch.durability(durability).commit() {
            Ok(()) => last.extend(done),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Exists, "{error}"),
        }
    }
    last
}

fn all(snapshot: &DatasetSnapshot) -> Vec<Record> {
    let scan = snapshot.scan(..);
    scan.map(Result::unwrap).collect()
}

/// The indexes of a snapshot agree with its scan.
fn hold(snapshot: &DatasetSnapshot, rng: &mut fastrand::Rng) -> Vec<Record> {
    let mut records = all(snapshot);
    records.sort_by_key(|record| std::cmp::Reverse(record.seq()));
    let value = rng.u64(0..VALUES);
    let with = |record: &&Record| {
        let text = std::str::from_utf8(record.json()).unwrap();
        text.contains(&format!("\"lazy\":{value},"))
    };
    let right: Vec<String> = records
        .iter()
        .filter(with)
        .map(|record| record.key().to_string())
        .collect();
    for at in PATHS {
        let query = snapshot.query().equals(&path(at), &value.to_string());
        assert_eq!(keys(query.clone()), right, "{at} = {value}");
        assert_eq!(keys_in_every_way(&query), right, "{at} = {value}");
    }
    records
}

fn contend(seed: u64, strategy: usize, batches: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let options = small(Arc::new(Memory::new()))
        .background(true)
        .table_size(2 << 10)
        .engine(|engine| {
            engine.bitmap_merges = [BitmapMerges::SideFile, BitmapMerges::Lock][rng.usize(0..2)]
        });
    let turn = strategy + Maintenance::ALL.len() * rng.usize(0..6);
    let def = with_strategy(DatasetDef::new(path("id"), KeyType::Int), turn);
    let def = PATHS.iter().zip(INDEXED).fold(def, |def, (at, kind)| {
        def.index(path(at), esker::Index::new(kind).of_type(Type::Int))
    });
    let _doing = Doing(format!("ESKER_SEED={seed}: {def:?}"));
    let db = Database::create_or_open(common::DIR, options).unwrap();
    let dataset = db.create_dataset::<esker::Key>("d", def.clone()).unwrap();
    let writing = AtomicUsize::new(WRITERS as usize);
    // By key: every write that any reader has seen as current.
    let seen: Mutex<BTreeMap<String, BTreeSet<Seq>>> = Mutex::default();
    let lasts: Vec<Last> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (dataset, writing) = (dataset.clone(), &writing);
                scope.spawn(move || {
                    let _end = End(writing);
                    write(&dataset, seed, writer, batches)
                })
            })
            .collect();
        for reader in 0..READERS {
            let (dataset, writing, seen) = (dataset.clone(), &writing, &seen);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed * 100 + 50 + reader);
                let mut kept = dataset.snapshot();
                let mut right = all(&kept);
                right.sort_by_key(|record| std::cmp::Reverse(record.seq()));
                while writing.load(SeqCst) > 0 {
                    let snapshot = dataset.snapshot();
                    let records = hold(&snapshot, &mut rng);
                    let mut seen = seen.lock().unwrap();
                    for record in &records {
                        let key = record.key().to_string();
                        seen.entry(key).or_default().insert(record.seq());
                    }
                    drop(seen);
                    assert!(hold(&kept, &mut rng) == right, "a snapshot changed");
                    if rng.usize(0..5) == 0 {
                        (kept, right) = (snapshot, records);
                    }
                }
            });
        }
        let (db, dataset, writing) = (db.clone(), dataset.clone(), &writing);
        scope.spawn(move || {
            let mut rng = fastrand::Rng::with_seed(seed * 100 + 99);
            while writing.load(SeqCst) > 0 {
                match rng.usize(0..8) {
                    0 => db.compact(None).unwrap(),
                    1..=4 => db.flush().unwrap(),
                    5 => {
                        let options = RepairOptions::default();
                        let go_on = &mut |_| ControlFlow::Continue(());
                        assert!(
                            dataset
                                .repair(&options)
                                .on_progress(go_on)
                                .run()
                                .unwrap()
                                .complete
                        );
                    }
                    _ => std::thread::sleep(std::time::Duration::from_millis(2)),
                }
            }
        });
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    for _ in 0..2 {
        check(&db);
        check_set(&db);
        let records = hold(&dataset.snapshot(), &mut rng);
        let current: BTreeMap<String, &Record> = records
            .iter()
            .map(|record| (record.key().to_string(), record))
            .collect();
        // The last write of a key is the last one of some writer.
        for id in 0..KEYS {
            let found = current.get(&id.to_string());
            let found = found.map(|record| String::from_utf8(record.json().to_vec()).unwrap());
            let mut may_be = lasts.iter().filter_map(|last| last.get(&id));
            assert!(may_be.any(|last| *last == found), "{id}: {found:?}");
        }
        let group = db.group().snapshot();
        let set = group.version().tree_named("d/superseded").unwrap().id;
        // The set may have forgotten writes that have no entry in any tree.
        let held = esker_lsm::held(&group, set).unwrap().unwrap();
        let set = group.superseded(set).unwrap();
        let exact = matches!(
            def.maintenance,
            Maintenance::MutableBitmap | Maintenance::Eager
        );
        for (key, numbers) in seen.lock().unwrap().iter() {
            let now = current.get(key).map(|record| record.seq());
            assert!(now.is_none_or(|now| numbers.iter().all(|seq| *seq <= now)));
            let over = numbers.iter().filter(|seq| Some(**seq) != now);
            for seq in over.filter(|_| exact) {
                assert!(
                    set.contains(*seq) || !held.contains(*seq),
                    "{key}: {seq} is obsolete and not in the set"
                );
            }
        }
        let options = RepairOptions::default();
        let go_on = &mut |_| ControlFlow::Continue(());
        dataset.repair(&options).on_progress(go_on).run().unwrap();
        db.compact(None).unwrap();
    }
}

#[test]
fn writers_that_want_the_same_keys_leave_indexes_and_the_set_right() {
    let batches = number("ESKER_BATCHES", 600);
    for seed in seeds(2) {
        for strategy in 0..Maintenance::ALL.len() {
            contend(seed, strategy, batches);
        }
    }
}

#[test]
fn of_inserts_of_one_key_at_once_one_goes() {
    for maintenance in Maintenance::ALL {
        let options = small(Arc::new(Memory::new())).background(true);
        let db = Database::create_or_open(common::DIR, options).unwrap();
        let def = DatasetDef::new(path("id"), KeyType::Int).maintenance(maintenance);
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        let went: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let (dataset, db) = (dataset.clone(), db.clone());
                    scope.spawn(move || {
                        let mut went = 0;
                        for id in 0..300 {
                            let body = format!("{{\"id\":{id},\"by\":{writer}}}");
                            match dataset.insert_json(body.as_bytes()) {
                                Ok(()) => went += 1,
                                Err(error) => assert_eq!(error.kind(), ErrorKind::Exists),
                            }
                            if id % 50 == writer {
                                db.flush().unwrap();
                            }
                        }
                        went
                    })
                })
                .collect();
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .sum()
        });
        assert_eq!(went, 300, "{maintenance}");
        assert_eq!(dataset.query().count().unwrap(), 300);
        check(&db);
    }
}

#[test]
fn a_large_batch_is_committed_among_small_ones_of_the_same_keys() {
    // Under eager maintenance each small write overtakes the large one; the small writes continue
    // until it is committed.
    let options = small(Arc::new(Memory::new())).background(true);
    let db = Database::create_or_open(common::DIR, options).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("a"), esker::Index::new(esker::IndexKind::Eager).int())
        .maintenance(Maintenance::Eager);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let body = |id: u64, a: u64| format!("{{\"id\":{id},\"a\":{a}}}").into_bytes();
    let done = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (dataset, done) = (dataset.clone(), &done);
            scope.spawn(move || {
                for number in 0.. {
                    if done.load(SeqCst) == 0 {
                        break;
                    }
                    dataset.put_json(body(number % 500, writer)).unwrap();
                }
            });
        }
        for value in 7..9 {
            let _end = End(&done);
            let mut batch = dataset.batch();
            for id in 0..500 {
                batch.put_json(body(id, value)).unwrap();
            }
            batch.durability(Durability::Os).commit().unwrap();
        }
    });
    assert_eq!(dataset.query().count().unwrap(), 500);
    check(&db);
}
