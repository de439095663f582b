//! Batches over several datasets: a batch is written completely or not at all, depends on
//! expectations in any of the datasets, and survives power cuts, under every pair of strategies.
//! The feed of each dataset has its part.

use crate::common;
use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{check, open, seeds, with_strategy};
use esker::schema::Maintenance;
use esker::{
    Batch, ChangesFrom, Database, Dataset, DatasetDef, Durability, ErrorKind, Index, IndexKind,
    Key, KeyType, Options, WriteBatch, field,
};
use esker_sim::memory::{Memory, PowerCut};
use serde_json::json;

const KINDS: [IndexKind; 4] = [
    IndexKind::Lazy,
    IndexKind::Eager,
    IndexKind::Composite,
    IndexKind::Embedded,
];

fn users(number: usize) -> DatasetDef {
    let index = Index::new(KINDS[number % KINDS.len()]).int();
    with_strategy(
        DatasetDef::new("name", KeyType::String).index("n", index),
        number,
    )
}

fn visits(number: usize) -> DatasetDef {
    let index = Index::new(KINDS[number / 2 % KINDS.len()]).int();
    with_strategy(
        DatasetDef::new("id", KeyType::Int).index("n", index),
        number,
    )
}

struct Both {
    db: Database,
    users: Dataset<String>,
    visits: Dataset<u64>,
}

fn both(fs: Arc<Memory>, first: usize, second: usize) -> Both {
    let db = open(fs).unwrap();
    let users = db.dataset_or_create("users", users(first)).unwrap();
    let visits = db.dataset_or_create("visits", visits(second)).unwrap();
    Both { db, users, visits }
}

#[test]
fn random_batches_over_two_datasets_are_as_a_model_says() {
    for seed in seeds(40) {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let number = seed as usize;
        let memory = Arc::new(Memory::new());
        let Both { db, users, visits } = both(memory, number, number / 5);
        // The value and the sequence number of each record.
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        let mut ids: BTreeMap<u64, u64> = BTreeMap::new();
        let mut batch = db.batch();
        for round in 0..60 {
            let (mut new_names, mut new_ids) = (names.clone(), ids.clone());
            let (mut expected, mut exists) = (true, false);
            for _ in 0..rng.usize(0..5) {
                let n = rng.u64(0..5);
                let (name, id) = (format!("u{}", rng.u8(0..6)), rng.u64(0..6));
                match rng.u8(0..9) {
                    0 | 1 => {
                        batch.put(&users, &json!({"name": name, "n": n})).unwrap();
                        new_names.insert(name, n);
                    }
                    2 | 3 => {
                        let json = format!(r#"{{"id":{id},"n":{n}}}"#);
                        batch.put_json(&visits, json).unwrap();
                        new_ids.insert(id, n);
                    }
                    4 => {
                        batch.delete(&users, &name).unwrap();
                        new_names.remove(&name);
                    }
                    5 => {
                        batch.delete(&visits, id).unwrap();
                        new_ids.remove(&id);
                    }
                    6 => {
                        // A separate key, which no other step of the batch uses.
                        let id = 100 + round;
                        exists |= new_ids.contains_key(&id);
                        batch.insert(&visits, &json!({"id": id, "n": n})).unwrap();
                        new_ids.insert(id, n);
                    }
                    7 => {
                        batch.if_absent(&users, &name).unwrap();
                        expected &= !names.contains_key(&name);
                    }
                    _ => {
                        let there = visits.get(id).unwrap().map(|record| record.seq());
                        let seq = if rng.bool() { there.unwrap_or(0) } else { 1 };
                        batch.if_seq(&visits, id, seq).unwrap();
                        expected &= there == Some(seq);
                    }
                }
            }
            if round == 30 && seed % 3 == 0 {
                // The batch is built again for the changed dataset.
                visits.drop_index("n").unwrap();
            }
            match batch.commit() {
                Ok(()) => {
                    assert!(expected && !exists, "seed {seed}");
                    (names, ids) = (new_names, new_ids);
                }
                Err(error) => {
                    let kinds = [ErrorKind::Conflict, ErrorKind::Exists];
                    assert!(kinds.contains(&error.kind()), "seed {seed}: {error}");
                    assert!(!expected || exists, "seed {seed}: {error}");
                    batch.clear();
                }
            }
            if rng.u8(0..8) == 0 {
                db.flush().unwrap();
            }
            agree(&users, &names, seed);
            agree(&visits, &ids, seed);
        }
        common::converge(&db);
        check(&db);
        agree(&users, &names, seed);
        agree(&visits, &ids, seed);
    }
}

fn agree<K: esker::PrimaryKey + Ord>(dataset: &Dataset<K>, right: &BTreeMap<K, u64>, seed: u64) {
    let mut found = BTreeMap::new();
    for hit in dataset.scan(..) {
        let hit = hit.unwrap();
        let value: serde_json::Value = hit.parse().unwrap();
        found.insert(hit.key().clone(), value["n"].as_u64().unwrap());
    }
    assert_eq!(&found, right, "seed {seed}");
    for n in 0..5u64 {
        let hits = dataset.find(field("n").eq(n)).count().unwrap();
        let right = right.values().filter(|value| **value == n).count() as u64;
        assert_eq!(hits, right, "seed {seed}, n {n}");
    }
}

#[test]
fn a_power_cut_takes_a_batch_over_datasets_whole_or_not_at_all() {
    let modes = [
        PowerCut::Lost,
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Reordered,
    ];
    for seed in seeds(80) {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let number = seed as usize;
        let memory = Arc::new(Memory::new());
        let store = both(memory.clone(), number, number / 5);
        let (mut synced, last) = (0, rng.u64(1..40));
        let mut batch = store.db.batch();
        for n in 1..=last {
            for at in 0..rng.u64(1..4) {
                let name = format!("pad{at}");
                batch
                    .put(&store.users, &json!({"name": name, "n": n}))
                    .unwrap();
            }
            batch.put(&store.visits, &json!({"id": 1, "n": n})).unwrap();
            batch
                .put(&store.users, &json!({"name": "n", "n": n}))
                .unwrap();
            if n > 1 {
                batch.delete(&store.visits, n + 9).unwrap();
            }
            batch
                .put(&store.visits, &json!({"id": n + 10, "n": n}))
                .unwrap();
            let sync = rng.u8(0..4) == 0;
            batch.durability(if sync {
                Durability::Sync
            } else {
                Durability::Os
            });
            batch.commit().unwrap();
            if sync {
                synced = n;
            }
            if rng.u8(0..10) == 0 {
                store.db.flush().unwrap();
            }
        }
        let left = memory.power_cut(seed, modes[number % modes.len()]);
        let again = both(Arc::new(left), number, number / 5);
        let n_of = |record: Option<serde_json::Value>| {
            record.map_or(0, |value| value["n"].as_u64().unwrap())
        };
        let user = again.users.get("n").unwrap();
        let user = n_of(user.map(|record| record.parse().unwrap()));
        let visit = again.visits.get(1).unwrap();
        let visit = n_of(visit.map(|record| record.parse().unwrap()));
        assert_eq!(user, visit, "seed {seed}");
        assert!((synced..=last).contains(&user), "seed {seed}");
        let newest = again.visits.scan(2..).rev().next();
        let newest = newest.map_or(0, |hit| *hit.unwrap().key() - 10);
        assert_eq!(newest, user, "seed {seed}");
        check(&again.db);
    }
}

#[test]
fn each_feed_has_its_part_and_a_refused_batch_leaves_nothing() {
    let Both { db, users, visits } = both(Arc::new(Memory::new()), 0, 0);
    let mut of_users = users.changes(ChangesFrom::Now).unwrap();
    let mut of_visits = visits.changes(ChangesFrom::Now).unwrap();
    let mut batch = db.batch();
    batch.put(&users, &json!({"name": "ann"})).unwrap();
    batch.put(&visits, &json!({"id": 7})).unwrap();
    batch.put(&users, &json!({"name": "bob"})).unwrap();
    assert_eq!(batch.len(), 3);
    batch.commit().unwrap();
    assert!(batch.is_empty());

    batch.insert(&visits, &json!({"id": 8})).unwrap();
    batch.insert(&users, &json!({"name": "ann"})).unwrap();
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::Exists);
    batch.clear();
    batch.if_absent(&visits, 7).unwrap();
    batch.put(&users, &json!({"name": "cat"})).unwrap();
    let error = batch.commit().unwrap_err();
    assert_eq!(error.conflict().unwrap().to_string(), "7");

    let mut names = Vec::new();
    while let Some(change) = of_users.next().unwrap() {
        names.push(change.key().clone());
    }
    assert_eq!(names, ["ann", "bob"]);
    assert_eq!(
        of_visits.next().unwrap().map(|change| *change.key()),
        Some(7)
    );
    assert!(of_visits.next().unwrap().is_none());
    assert_eq!(users.find(field("name").eq("cat")).count().unwrap(), 0);
}

#[test]
fn a_batch_expects_without_writing_and_takes_datasets_of_its_store_only() {
    let Both { db, users, visits } = both(Arc::new(Memory::new()), 0, 0);
    users.put(&json!({"name": "ann"})).unwrap();
    let mut batch = db.batch();
    batch.if_absent(&visits, 1).unwrap();
    batch.commit().unwrap();
    batch.if_absent(&visits, 1).unwrap();
    batch.if_absent(&users, "ann").unwrap();
    assert!(batch.commit().unwrap_err().conflict().is_some());

    let options = Options::new().fs(Arc::new(Memory::new()));
    let other = Database::create_or_open(FsPath::new("/other"), options).unwrap();
    let strange = other
        .create_dataset::<u64>("visits", self::visits(0))
        .unwrap();
    let error = batch.put(&strange, &json!({"id": 1})).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
}

/// The key that the batch names as the last one put.
fn last_id(batch: &WriteBatch<u64>) -> Option<String> {
    let key = batch.last_key().to_vec();
    (!key.is_empty()).then(|| Key::from_encoded(KeyType::Int, key).to_string())
}

#[test]
fn the_last_key_is_of_a_record_that_the_batch_holds() {
    for number in 0..Maintenance::ALL.len() {
        let Both { visits, .. } = both(Arc::new(Memory::new()), number, number);
        let mut batch = visits.batch();
        batch.put(&json!({"id": 1, "n": 1})).unwrap();
        assert_eq!(last_id(&batch).as_deref(), Some("1"));
        batch.commit().unwrap();
        assert_eq!(last_id(&batch), None, "after the commit");
        drop(batch);

        // The buffers of a dropped batch serve the thread's next one.
        let mut batch = visits.batch();
        batch.delete(5).unwrap();
        assert_eq!(last_id(&batch), None, "of an earlier batch");

        batch.put(&json!({"id": 2})).unwrap();
        batch.insert(&json!({"id": 1})).unwrap();
        batch.put_json(r#"{"id": 4, "n": "#).unwrap_err();
        batch.put(&json!({"n": 1})).unwrap_err();
        batch.delete(1).unwrap();
        assert_eq!(last_id(&batch).as_deref(), Some("1"), "{number}");

        // The commit may encode the batch again, without writes that later ones replace.
        batch.commit().unwrap_err();
        assert_eq!(batch.len(), 4);
        assert_eq!(last_id(&batch).as_deref(), Some("1"), "{number}");

        batch.clear();
        assert_eq!(last_id(&batch), None, "of removed writes");
        batch.put(&json!({"n": 1})).unwrap_err();
        assert_eq!(last_id(&batch), None, "of a refused record");
    }
}

#[test]
fn the_last_key_of_a_dataset_that_makes_keys_is_the_key_made() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let visits = db
        .create_dataset::<String>("visits", DatasetDef::auto_key())
        .unwrap();
    let mut batch = visits.batch();
    batch.put_json(r#"{"n": 1}"#).unwrap();
    let made = batch.last_key().to_vec();
    batch.commit().unwrap();
    let made = Key::from_encoded(KeyType::String, made).to_string();
    assert!(visits.get(&made).unwrap().is_some(), "{made}");
}

/// Asks any kind of batch how much it holds, and commits it.
fn commit_any<D>(batch: &mut Batch<D>) -> (usize, usize) {
    let size = (batch.len(), batch.bytes());
    assert_eq!(batch.is_empty(), size.0 == 0);
    batch.durability(Durability::Os).commit().unwrap();
    assert!(batch.is_empty());
    size
}

#[test]
fn a_batch_of_one_dataset_writes_what_a_batch_of_the_store_writes() {
    let store = both(Arc::new(Memory::new()), 1, 1);
    let Both { db, visits, .. } = &store;
    let (mut any, mut one): (Batch, WriteBatch<u64>) = (db.batch(), visits.batch());
    any.put(visits, &json!({"id": 1, "n": 1})).unwrap();
    one.put(&json!({"id": 2, "n": 1})).unwrap();
    any.put_json(visits, r#"{"id": 3}"#).unwrap();
    one.put_json(r#"{"id": 4}"#).unwrap();
    any.insert(visits, &json!({"id": 5})).unwrap();
    one.insert(&json!({"id": 6})).unwrap();
    any.insert_json(visits, r#"{"id": 7}"#).unwrap();
    one.insert_json(r#"{"id": 8}"#).unwrap();
    any.delete(visits, 9).unwrap();
    one.delete(9).unwrap();
    let size = commit_any(&mut any);
    assert_eq!((size, size.0), (commit_any(&mut one), 5));
    let ids: Vec<u64> = visits.scan(..).map(|hit| *hit.unwrap().key()).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8]);

    let seq = visits.get(1).unwrap().unwrap().seq();
    any.if_seq(visits, 1, seq).unwrap();
    one.if_seq(1, seq).unwrap();
    commit_any(&mut any);
    commit_any(&mut one);
    for wrong in [None, Some(seq)] {
        match wrong {
            None => {
                any.if_absent(visits, 2).unwrap();
                one.if_absent(2).unwrap();
            }
            Some(seq) => {
                any.if_seq(visits, 2, seq).unwrap();
                one.if_seq(2, seq).unwrap();
            }
        }
        let (any_error, one_error) = (any.commit().unwrap_err(), one.commit().unwrap_err());
        assert_eq!(any_error.conflict().unwrap().to_string(), "2");
        assert_eq!(one_error.to_string(), any_error.to_string());
        any.clear();
        one.clear();
    }
}

#[test]
fn a_commit_returns_the_number_of_its_record() {
    for maintenance in Maintenance::ALL {
        for kind in [Index::lazy(), Index::composite(), Index::embedded()] {
            let dir = tempfile::tempdir().unwrap();
            let db = Database::create_or_open(dir.path(), Options::default()).unwrap();
            let def = DatasetDef::key("id")
                .index("user", kind.string())
                .maintenance(maintenance);
            let events = db.create_dataset::<u64>("events", def).unwrap();
            let mut batch = events.batch();
            assert_eq!(batch.commit_seq().unwrap(), None);
            for n in 0..6 {
                let json = format!(r#"{{"id": {}, "user": "user{n}"}}"#, n % 2);
                batch.put_json(json.as_bytes()).unwrap();
                let committed = batch.commit_seq().unwrap();
                let record = events.get(n % 2).unwrap().unwrap();
                assert_eq!(committed, Some(record.seq()), "{maintenance} {n}");
            }
        }
    }
}
