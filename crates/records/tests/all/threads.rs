//! Readers, writers, flushes and compactions at once on a real folder. In every snapshot each index
//! agrees with a scan, in the order of the writes, and batches are complete.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::{INDEXED, PATHS, TextQuery, check, number, path};
use esker::{
    Database, Dataset, DatasetDef, DatasetSnapshot, Durability, KeyType, Options, Order, Record,
    Type,
};
use serde_json::Value as Json;

const PAIRS: u64 = 400;
const VALUES: u64 = 12;
const WRITERS: u64 = 2;
const READERS: u64 = 3;

/// The records `pair` and `pair + PAIRS` are always written in one batch with the same stamp, and
/// deleted together.
fn write(dataset: &Dataset, writer: u64, batches: usize) {
    let mut rng = fastrand::Rng::with_seed(writer);
    let mut batch = dataset.batch();
    for number in 0..batches {
        for _ in 0..rng.usize(1..5) {
            // Each writer has its own pairs, and all share some.
            let pair = if rng.bool() {
                rng.u64(0..PAIRS / WRITERS) * WRITERS + writer
            } else {
                rng.u64(0..20)
            };
            let (value, gone) = (rng.u64(0..VALUES), rng.usize(0..6) == 0);
            for id in [pair, pair + PAIRS] {
                if gone {
                    let key = dataset.parse_key(&id.to_string()).unwrap();
                    batch.delete(&key).unwrap();
                    continue;
                }
                let fields: String = PATHS
                    .iter()
                    .map(|at| format!("\"{at}\":{value},"))
                    .collect();
                let pad = "z".repeat(rng.usize(0..400));
                let body = format!(
                    "{{\"id\":{id},{fields}\"stamp\":\"{writer}/{number}\",\"pad\":\"{pad}\"}}"
                );
                batch.put_json(body.as_bytes()).unwrap();
            }
        }
        let durability = if number % 64 == 0 {
            Durability::Sync
        } else {
            Durability::Os
        };
        batch.durability(durability).commit().unwrap();
    }
}

fn field(record: &Record, name: &str) -> Json {
    let json: Json = serde_json::from_slice(record.json()).unwrap();
    json[name].clone()
}

/// The invariants of a snapshot.
fn hold(snapshot: &DatasetSnapshot, rng: &mut fastrand::Rng) {
    let all: Vec<Record> = snapshot.scan(..).map(Result::unwrap).collect();
    let of = |id: u64| {
        let text = id.to_string();
        all.iter().find(|record| record.key().to_string() == text)
    };
    for _ in 0..20 {
        let pair = rng.u64(0..PAIRS);
        let stamp = |id: u64| of(id).map(|record| field(record, "stamp"));
        assert_eq!(stamp(pair), stamp(pair + PAIRS), "half a batch of {pair}");
    }
    let lo = rng.u64(0..VALUES);
    let hi = lo + rng.u64(0..3);
    let order = if rng.bool() {
        Order::Newest
    } else {
        Order::Oldest
    };
    let limit = [None, Some(1), Some(10)][rng.usize(0..3)];
    let mut right: Vec<&Record> = all
        .iter()
        .filter(|record| (lo..=hi).contains(&field(record, "lazy").as_u64().unwrap()))
        .collect();
    right.sort_by_key(|record| record.seq());
    if order == Order::Newest {
        right.reverse();
    }
    right.truncate(limit.unwrap_or(usize::MAX));
    for at in PATHS {
        let query = snapshot
            .query()
            .between(&path(at), &lo.to_string(), &hi.to_string())
            .order(order.clone())
            .limit(limit);
        let found: Vec<Record> = query.run().unwrap().map(Result::unwrap).collect();
        let seqs = |records: &[&Record]| -> Vec<(u64, String)> {
            let one = |record: &&Record| (record.seq(), record.key().to_string());
            records.iter().map(one).collect()
        };
        let found: Vec<&Record> = found.iter().collect();
        assert_eq!(
            seqs(&found),
            seqs(&right),
            "{at} {lo}..{hi} {order:?} {limit:?}"
        );
        assert!(found == right, "{at}: other bytes");
    }
}

#[test]
fn every_snapshot_is_consistent_while_writers_and_merges_go_on() {
    let batches = number("ESKER_BATCHES", esker_sim::by_tier(700, 4000));
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new()
        .memory_budget(1 << 20)
        .table_size(16 << 10)
        .durability(Durability::Os);
    let def = DatasetDef::new(path("id"), KeyType::Int);
    let def = PATHS.iter().zip(INDEXED).fold(def, |def, (at, kind)| {
        def.index(path(at), esker::Index::new(kind).of_type(Type::Int))
    });
    let db = Database::create_or_open(folder.path(), options).unwrap();
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let writing = AtomicUsize::new(WRITERS as usize);
    let snapshots = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (dataset, writing) = (dataset.clone(), &writing);
            scope.spawn(move || {
                // Readers end with the writers, also if those fail.
                struct End<'a>(&'a AtomicUsize);
                impl Drop for End<'_> {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, SeqCst);
                    }
                }
                let _end = End(writing);
                write(&dataset, writer, batches);
            });
        }
        for reader in 0..READERS {
            let (dataset, writing, snapshots) = (dataset.clone(), &writing, &snapshots);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(1000 + reader);
                let mut kept = dataset.snapshot();
                loop {
                    let last = writing.load(SeqCst) == 0;
                    let snapshot = dataset.snapshot();
                    hold(&snapshot, &mut rng);
                    // A snapshot kept while compactions replaced its tables.
                    hold(&kept, &mut rng);
                    if rng.usize(0..4) == 0 {
                        kept = snapshot;
                    }
                    snapshots.fetch_add(1, SeqCst);
                    if last {
                        return;
                    }
                }
            });
        }
        let (db, writing) = (db.clone(), &writing);
        scope.spawn(move || {
            let mut rng = fastrand::Rng::with_seed(77);
            while writing.load(SeqCst) > 0 {
                match rng.usize(0..40) {
                    0 => db.compact(None).unwrap(),
                    1 => db.flush().unwrap(),
                    2 => check(&db),
                    _ => std::thread::sleep(std::time::Duration::from_millis(5)),
                }
            }
        });
    });
    check(&db);
    let stats = db.stats();
    println!(
        "{} snapshots, {} flushes, {} merges",
        snapshots.into_inner(),
        stats.counters["flushes"],
        stats.counters["merges"]
    );
    assert!(stats.counters["merges"] > 5, "{stats:?}");
    drop(dataset);
    db.close().unwrap();
    let options = Options::default();
    let db = Database::open(folder.path(), options).unwrap();
    check(&db);
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    hold(&dataset.snapshot(), &mut fastrand::Rng::new());
}
