//! Feeds with old records: each change has the record that it replaced, which is the one of the
//! previous change of that key, with concurrent writers, under every strategy, and whatever happens
//! to the store.

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{DIR, check, small, with_strategy};
use esker::options::KeepLog;
use esker::schema::Maintenance;
use esker::{
    ChangeKind, Changes, ChangesFrom, Database, Dataset, DatasetDef, ErrorKind, Index, IndexKind,
    KeyType, Options, Update,
};
use esker_sim::memory::{Memory, PowerCut};

const START: u64 = 1_700_000_000_000;

fn options(memory: &Memory) -> Options {
    small(Arc::new(memory.clone())).keep_log(KeepLog {
        bytes: u64::MAX,
        age: None,
    })
}

fn open(memory: &Memory) -> Database {
    Database::create_or_open(FsPath::new(DIR), options(memory)).unwrap()
}

fn def() -> DatasetDef {
    DatasetDef::new("id", KeyType::Int)
        .index("v", Index::new(IndexKind::Lazy).int())
        .keep_old_records()
}

/// The state of a follower of the feed: by key, the write and the record.
#[derive(Default, Debug, PartialEq)]
struct Copy(BTreeMap<u64, (u64, Vec<u8>)>);

impl Copy {
    /// Follows the feed to its end, and checks that each change replaces the record here. Returns
    /// the kinds of the changes.
    fn follow(&mut self, changes: &mut Changes<u64>) -> Vec<ChangeKind> {
        let mut kinds = Vec::new();
        while let Some(change) = changes.next().unwrap() {
            let row = |record: &esker::Record<u64>| (record.seq(), record.json().to_vec());
            let old = change.old().map(row);
            assert_eq!(old.as_ref(), self.0.get(change.key()), "{change:?}");
            match change.record() {
                Some(record) => self.0.insert(*change.key(), row(record)),
                None => self.0.remove(change.key()),
            };
            kinds.push(change.kind());
        }
        kinds
    }

    fn compare(&self, dataset: &Dataset<u64>) {
        let scan = dataset.scan(..).map(|record| record.unwrap());
        let now = scan.map(|record| (*record.key(), (record.seq(), record.json().to_vec())));
        assert_eq!(self.0, now.collect());
    }
}

fn json(id: u64, v: u64) -> String {
    format!("{{\"id\":{id},\"v\":{v}}}")
}

/// Concurrent writers of the same few keys: a write replaces the record that is current at its
/// place in the order of commits.
#[test]
fn writers_at_the_same_time_log_what_they_replace() {
    for number in 0..Maintenance::ALL.len() {
        let memory = Memory::new();
        let options = options(&memory).background(true).memory_budget(256 << 10);
        let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
        let dataset = db
            .create_dataset::<u64>("d", with_strategy(def(), number))
            .unwrap();
        let mut changes = dataset.changes(0).unwrap().with_old().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let dataset = &dataset;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    for _ in 0..300 {
                        let (id, v) = (rng.u64(0..5), rng.u64(0..9));
                        match rng.usize(0..6) {
                            0 => drop(dataset.delete(id).unwrap()),
                            1 => {
                                let new = |_: Option<&esker::Record<u64>>| {
                                    Update::Put(json(id, v).into_bytes())
                                };
                                dataset.update(id, new).unwrap();
                            }
                            2 => {
                                // Several writes of one key, and writes of others.
                                let mut batch = dataset.batch();
                                for at in 0..rng.u64(1..6) {
                                    batch.put_json(json(at % 3, at)).unwrap();
                                }
                                batch.delete(rng.u64(0..3)).unwrap();
                                batch.commit().unwrap();
                            }
                            _ => dataset.put_json(json(id, v)).unwrap(),
                        }
                    }
                });
            }
        });
        let mut copy = Copy::default();
        assert!(copy.follow(&mut changes).len() > 600);
        copy.compare(&dataset);
        check(&db);
    }
}

#[test]
fn a_dataset_that_was_not_made_for_it_refuses() {
    let db = open(&Memory::new());
    let plain = DatasetDef::new("id", KeyType::Int);
    let dataset = db.create_dataset::<u64>("plain", plain).unwrap();
    let refused = dataset.changes(0).unwrap().with_old().err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::NoOldRecords);
    assert!(refused.to_string().contains("`plain`"), "{refused}");
    // A feed without old records does not return them.
    let dataset = db.create_dataset::<u64>("d", def()).unwrap();
    let mut changes = dataset.changes(ChangesFrom::Now).unwrap();
    dataset.put_json(json(1, 1)).unwrap();
    dataset.put_json(json(1, 2)).unwrap();
    while let Some(change) = changes.next().unwrap() {
        assert_eq!(change.old(), None);
    }
    assert!(dataset.def().old_records);
    // Old records are only in the log.
    db.compact(None).unwrap();
    let stats = dataset.stats();
    let mut trees = stats.trees.iter();
    let old = trees.find(|tree| tree.name.starts_with("replaced records"));
    assert_eq!(old.unwrap().levels.len(), 0);
}

/// Flushes, compactions, restarts, migrations, power cuts and backups, with a feed in
/// the writer and in a reader beside it.
#[test]
fn old_records_survive_what_the_feed_survives() {
    for (seed, mode) in [
        PowerCut::Lost,
        PowerCut::Kept,
        PowerCut::Torn,
        PowerCut::Reordered,
    ]
    .into_iter()
    .cycle()
    .enumerate()
    .take(24)
    {
        let mut rng = fastrand::Rng::with_seed(seed as u64);
        let mut memory = Memory::new();
        let mut db = open(&memory);
        let mut dataset = db
            .create_dataset::<u64>("d", with_strategy(def(), seed))
            .unwrap();
        let mut changes = dataset.changes(0).unwrap().with_old().unwrap();
        let mut copy = Copy::default();
        for _ in 0..60 {
            for _ in 0..rng.usize(0..8) {
                let id = rng.u64(0..12);
                match rng.usize(0..4) {
                    0 => drop(dataset.delete(id).unwrap()),
                    _ => dataset.put_json(json(id, rng.u64(0..9))).unwrap(),
                }
            }
            match rng.usize(0..8) {
                0 => db.flush().unwrap(),
                1 => db.compact(None).unwrap(),
                2 => {
                    let to = Maintenance::ALL[rng.usize(0..Maintenance::ALL.len())];
                    let _ = dataset.set_maintenance(to).run();
                }
                3 => {
                    // Follows the feed so far; the store then ends in one of several ways.
                    copy.follow(&mut changes);
                    db.sync().unwrap();
                    let from = changes.position();
                    for id in 0..rng.u64(0..5) {
                        dataset.put_json(json(id, 7)).unwrap();
                    }
                    memory = memory.power_cut(seed as u64, mode);
                    db = open(&memory);
                    dataset = db.dataset("d").unwrap();
                    changes = dataset.changes(from).unwrap().with_old().unwrap();
                }
                4 => {
                    copy.follow(&mut changes);
                    let from = changes.position();
                    let beside = Database::open_reader(FsPath::new(DIR), options(&memory)).unwrap();
                    let reader = beside.dataset::<u64>("d").unwrap();
                    let mut follower = reader.changes(from).unwrap().with_old().unwrap();
                    dataset.put_json(json(rng.u64(0..12), 8)).unwrap();
                    copy.follow(&mut follower);
                    copy.compare(&dataset);
                    let at = follower.position();
                    changes = dataset.changes(at).unwrap().with_old().unwrap();
                }
                5 => {
                    copy.follow(&mut changes);
                    copy.compare(&dataset);
                    // A backup continues from there, in its own history.
                    let to = FsPath::new("/copy");
                    for path in memory.paths() {
                        if path.starts_with(to) {
                            esker::fs::Fs::remove(&memory, &path).unwrap();
                        }
                    }
                    db.backup(to).unwrap();
                    let other = Database::open(to, options(&memory)).unwrap();
                    let other = other.dataset::<u64>("d").unwrap();
                    let from = other.changes(ChangesFrom::Now).unwrap();
                    let mut changes = from.with_old().unwrap();
                    let mut mine = Copy(copy.0.clone());
                    for id in 0..12 {
                        other.put_json(json(id, 5)).unwrap();
                    }
                    assert_eq!(mine.follow(&mut changes).len(), 12);
                }
                _ => {}
            }
            if rng.bool() {
                copy.follow(&mut changes);
                copy.compare(&dataset);
            }
        }
        copy.follow(&mut changes);
        copy.compare(&dataset);
        check(&db);
    }
}

/// The deletion of an expired record replaces that record. If the key is put before, the put
/// replaces it. A follower keeps the record until then.
#[test]
fn what_has_expired_is_old_until_it_was_acted_on() {
    let (memory, time) = (Memory::new(), Arc::new(AtomicU64::new(START)));
    let clock = time.clone();
    let options = options(&memory).clock(Arc::new(move || clock.load(Ordering::SeqCst)));
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let def = def().ttl(Duration::from_secs(1));
    let dataset = db.create_dataset::<u64>("d", def).unwrap();
    let mut changes = dataset.changes(0).unwrap().with_old().unwrap();
    let mut copy = Copy::default();
    for id in 0..4 {
        dataset.put_json(json(id, 1)).unwrap();
    }
    copy.follow(&mut changes);
    time.fetch_add(1000, Ordering::SeqCst);
    assert_eq!(dataset.query().count().unwrap(), 0);
    dataset.insert_json(json(1, 2)).unwrap();
    // The record is invisible, so the delete has no effect.
    assert!(dataset.delete(2).unwrap().is_none());
    assert_eq!(copy.follow(&mut changes), [ChangeKind::Put]);
    assert_eq!(dataset.expire_now().unwrap(), 3);
    assert_eq!(copy.follow(&mut changes), [ChangeKind::Expired; 3]);
    copy.compare(&dataset);
}
