//! Writes that depend on the current state: expectations, updates, deletes that return the record.
//! Under every strategy, across flushes, beside other writers.

use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{DIR, TextQuery, small};
use esker::schema::Maintenance;
use esker::{
    Database, Dataset, DatasetDef, Durability, ErrorKind, IndexKind, Key, KeyType, Record, Type,
    Update,
};
use esker_sim::memory::Memory;

fn store(maintenance: Maintenance, background: bool) -> (Database, Dataset) {
    let options = small(Arc::new(Memory::new())).background(background);
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index(
            "n",
            esker::Index::new(IndexKind::Composite).of_type(Type::Int),
        )
        .maintenance(maintenance);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    (db, dataset)
}

fn body(id: u64, n: u64) -> Vec<u8> {
    format!("{{\"id\":{id},\"n\":{n}}}").into_bytes()
}

fn key(dataset: &Dataset, id: u64) -> Key {
    dataset.parse_key(&id.to_string()).unwrap()
}

fn n_of(record: &Record) -> u64 {
    let json: serde_json::Value = serde_json::from_slice(record.json()).unwrap();
    json["n"].as_u64().unwrap()
}

/// Batches with expectations, against a model of each key's state: a batch is written if all
/// expectations hold; otherwise the error names a key that fails, and nothing of the batch is
/// written.
#[test]
fn batches_are_written_where_what_they_expect_holds() {
    for maintenance in Maintenance::ALL {
        let (db, dataset) = store(maintenance, false);
        let mut model: [Option<(u64, u64)>; 8] = [None; 8];
        let mut rng = fastrand::Rng::with_seed(11);
        let (mut written, mut refused) = (0, 0);
        for round in 1..400 {
            let mut batch = dataset.batch();
            let mut wrong = Vec::new();
            for _ in 0..rng.usize(0..3) {
                let id = rng.usize(0..8);
                let key = key(&dataset, id as u64);
                let expected = match rng.usize(0..4) {
                    0 => None,
                    1 => Some(rng.u64(1..400)),
                    _ => model[id].map(|(seq, _)| seq),
                };
                match expected {
                    None => batch.if_absent(&key).unwrap(),
                    Some(seq) => batch.if_seq(&key, seq).unwrap(),
                }
                if expected != model[id].map(|(seq, _)| seq) {
                    wrong.push(key);
                }
            }
            let mut next = model;
            let mut ids: Vec<usize> = (0..8).collect();
            rng.shuffle(&mut ids);
            for id in ids.into_iter().take(rng.usize(1..4)) {
                next[id] = match rng.usize(0..4) {
                    0 => {
                        batch.delete(key(&dataset, id as u64)).unwrap();
                        None
                    }
                    _ => {
                        batch.put_json(body(id as u64, round)).unwrap();
                        Some((0, round))
                    }
                };
            }
            match batch.durability(Durability::Os).commit() {
                Ok(()) => {
                    assert!(wrong.is_empty(), "{maintenance}: {wrong:?} are not so");
                    model = next;
                    written += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                    assert!(
                        wrong.contains(error.conflict().unwrap()),
                        "{maintenance}: {error}"
                    );
                    refused += 1;
                }
            }
            for (id, known) in model.iter_mut().enumerate() {
                let record = dataset.get(key(&dataset, id as u64)).unwrap();
                assert_eq!(
                    record.as_ref().map(n_of),
                    known.map(|(_, n)| n),
                    "{maintenance}"
                );
                *known = record.map(|record| (record.seq(), n_of(&record)));
            }
            if round % 40 == 0 {
                let path = "n".parse().unwrap();
                let with = |n: u64| dataset.query().equals(&path, &n.to_string()).count();
                let of_index: u64 = (0..=round).map(|n| with(n).unwrap()).sum();
                let live = model.iter().flatten().count() as u64;
                assert_eq!(of_index, live, "{maintenance}");
            }
            match rng.usize(0..12) {
                0 => db.flush().unwrap(),
                1 => db.compact(None).unwrap(),
                _ => {}
            }
        }
        assert!(
            written > 50 && refused > 50,
            "{written} written, {refused} refused"
        );
        assert!(db.check().unwrap().errors.is_empty());
    }
}

/// Counters that several threads increment, while others flush: each update counts, and each delete
/// returns the deleted record.
#[test]
fn no_update_is_lost_among_threads() {
    for maintenance in Maintenance::ALL {
        let (db, dataset) = store(maintenance, true);
        const THREADS: u64 = 4;
        const TIMES: u64 = 100;
        let taken: u64 = std::thread::scope(|scope| {
            let raise = |seed: u64| {
                let (dataset, db) = (dataset.clone(), db.clone());
                move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    let mut taken = 0;
                    for _ in 0..TIMES {
                        let id = rng.u64(0..3);
                        let key = key(&dataset, id);
                        // An update given up after several conflicts has changed nothing.
                        let again = |error: &esker::Error| error.kind() == ErrorKind::Conflict;
                        while let Err(error) =
                            dataset.update(&key, |old| body(id, old.map_or(0, n_of) + 1))
                        {
                            assert!(again(&error), "{error}");
                        }
                        if rng.usize(0..10) == 0 {
                            let deleted = loop {
                                match dataset.delete(&key) {
                                    Ok(deleted) => break deleted,
                                    Err(error) => assert!(again(&error), "{error}"),
                                }
                            };
                            taken += deleted.as_ref().map_or(0, n_of);
                        }
                        if rng.usize(0..30) == 0 {
                            db.flush().unwrap();
                        }
                    }
                    taken
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|seed| scope.spawn(raise(seed))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        let left: u64 = dataset
            .query()
            .run()
            .unwrap()
            .map(|record| n_of(&record.unwrap()))
            .sum();
        assert_eq!(taken + left, THREADS * TIMES, "{maintenance}");
        assert!(db.check().unwrap().errors.is_empty());
    }
}

#[test]
fn an_update_keeps_deletes_and_refuses() {
    let (_db, dataset) = store(Maintenance::default(), false);
    let one = key(&dataset, 1);
    assert!(dataset.update(&one, |_| Update::Delete).unwrap().is_none());
    assert!(dataset.update(&one, |_| body(1, 5)).unwrap().is_none());
    let kept = dataset.update(&one, |_| Update::Keep).unwrap().unwrap();
    assert_eq!(n_of(&kept), 5);
    let other = dataset.update(&one, |_| body(2, 5)).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::BadInput);
    assert!(other.to_string().contains("another key, 2"), "{other}");
    let malformed = dataset.update(&one, |_| "{".to_string()).unwrap_err();
    assert_eq!(malformed.kind(), ErrorKind::BadInput);
    assert_eq!(n_of(&dataset.get(&one).unwrap().unwrap()), 5);
    // Another write comes in between each time: the update is given up, and no write is lost.
    let mut times = 0;
    let overtaken = dataset.update(&one, |_| {
        times += 1;
        dataset.put_json(body(1, 100 + times)).unwrap();
        body(1, 0)
    });
    assert_eq!(overtaken.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(times > 10);
    assert_eq!(n_of(&dataset.get(&one).unwrap().unwrap()), 100 + times);
    let deleted = dataset.delete(&one).unwrap().unwrap();
    assert_eq!(n_of(&deleted), 100 + times);
    assert!(dataset.delete(&one).unwrap().is_none());
}
