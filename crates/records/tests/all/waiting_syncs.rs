//! Writers beside a write that is in the log but not visible yet, because its sync takes time. A
//! conflict with it is reported, or retried, only when readers see it. The syncs of the file system
//! are slow, or held until the test releases them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use esker::{Database, Dataset, DatasetDef, Durability, ErrorKind, KeyType, Options};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

/// Syncs of the log: counted, and held while `held` is set.
#[derive(Default)]
struct Syncs {
    count: AtomicU64,
    /// Whether syncs are held, and how many wait.
    state: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Syncs {
    fn pass(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            state = self.changed.wait(state).unwrap();
        }
        state.1 -= 1;
    }

    fn hold(&self) {
        self.state.lock().unwrap().0 = true;
    }

    fn let_go(&self) {
        self.state.lock().unwrap().0 = false;
        self.changed.notify_all();
    }

    /// Returns when a sync is held.
    fn wait_for_one(&self) {
        let mut state = self.state.lock().unwrap();
        while state.1 == 0 {
            state = self.changed.wait(state).unwrap();
        }
    }
}

fn is_log(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

fn open(pause: Duration) -> (Database, Arc<Syncs>) {
    let fs = Arc::new(Hooked::new(Arc::new(Memory::new())));
    let options = Options::new().fs(fs.clone()).durability(Durability::Sync);
    let db = Database::create_or_open("/store", options).unwrap();
    let syncs = Arc::new(Syncs::default());
    let seen = syncs.clone();
    fs.set(move |call, path| {
        if matches!(call, Call::Sync) && is_log(path) {
            std::thread::sleep(pause);
            seen.pass();
        }
        Ok(())
    });
    (db, syncs)
}

fn dataset(db: &Database) -> Dataset<u64> {
    db.create_dataset("d", DatasetDef::new("id", KeyType::Int))
        .unwrap()
}

fn count(json: &[u8]) -> u64 {
    let json: serde_json::Value = serde_json::from_slice(json).unwrap();
    json["n"].as_u64().unwrap()
}

#[test]
fn updates_of_one_counter_by_four_threads_all_count() {
    let (db, syncs) = open(Duration::from_millis(2));
    let counters = dataset(&db);
    counters.put_json(r#"{"id":1,"n":0}"#).unwrap();
    let before = syncs.count.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let added = counters.update(1, |old| {
                        let n = old.map_or(0, |record| count(record.json()));
                        format!(r#"{{"id":1,"n":{}}}"#, n + 1)
                    });
                    added.unwrap();
                }
            });
        }
    });
    assert_eq!(count(counters.get(1).unwrap().unwrap().json()), 80);
    let syncs = syncs.count.load(Ordering::SeqCst) - before;
    assert!(syncs <= 160, "{syncs} syncs");
}

/// Runs `act` beside a put of `json` that is in the log and whose sync is held until shortly after
/// `act` has begun.
fn beside_a_held_put<T: Send>(
    (db, syncs): &(Database, Arc<Syncs>),
    json: &str,
    act: impl FnOnce() -> T + Send,
) -> T {
    let data = db.dataset::<u64>("d").unwrap();
    syncs.hold();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| data.put_json(json).unwrap());
        syncs.wait_for_one();
        let acting = scope.spawn(act);
        // `act` may begin before or after the sync ends; neither may fail.
        std::thread::sleep(Duration::from_millis(30));
        syncs.let_go();
        put.join().unwrap();
        acting.join().unwrap()
    })
}

#[test]
fn a_delete_beside_a_put_that_waits_deletes_what_it_returns() {
    let store = open(Duration::ZERO);
    let data = dataset(&store.0);
    data.put_json(r#"{"id":1,"n":1}"#).unwrap();
    let deleted = beside_a_held_put(&store, r#"{"id":1,"n":2}"#, || data.delete(1).unwrap());
    assert_eq!(count(deleted.unwrap().json()), 2);
    assert!(data.get(1).unwrap().is_none());
}

#[test]
fn an_insert_that_is_refused_sees_the_record_it_was_refused_for() {
    let store = open(Duration::ZERO);
    let data = dataset(&store.0);
    let seen = beside_a_held_put(&store, r#"{"id":1,"n":2}"#, || {
        let refused = data.insert_json(r#"{"id":1,"n":3}"#).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exists);
        data.get(1).unwrap()
    });
    assert_eq!(count(seen.unwrap().json()), 2);
}

#[test]
fn an_expectation_that_fails_can_be_made_again_at_once() {
    let store = open(Duration::ZERO);
    let data = dataset(&store.0);
    data.put_json(r#"{"id":1,"n":1}"#).unwrap();
    let tries = beside_a_held_put(&store, r#"{"id":1,"n":2}"#, || {
        for tries in 1..10 {
            let old = data.get(1).unwrap().unwrap();
            let mut batch = data.batch();
            let n = count(old.json()) + 10;
            batch.put_json(format!(r#"{{"id":1,"n":{n}}}"#)).unwrap();
            batch.if_seq(1, old.seq()).unwrap();
            match batch.commit() {
                Ok(()) => return tries,
                Err(error) => assert!(error.conflict().is_some(), "{error}"),
            }
        }
        panic!("the conflict never ended");
    });
    assert!(tries <= 2, "{tries} tries");
    assert_eq!(count(data.get(1).unwrap().unwrap().json()), 12);
}

#[test]
fn what_expires_beside_a_put_that_waits_is_no_error() {
    let store = open(Duration::ZERO);
    let def = DatasetDef::new("id", KeyType::Int).ttl(Duration::from_millis(1));
    let data: Dataset<u64> = store.0.create_dataset("d", def).unwrap();
    for id in 0..5 {
        data.put_json(format!(r#"{{"id":{id},"n":1}}"#)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(5));
    let expired = beside_a_held_put(&store, r#"{"id":2,"n":2}"#, || data.expire_now().unwrap());
    std::thread::sleep(Duration::from_millis(5));
    let later = data.expire_now().unwrap();
    // The record that was put again expires twice if its first version was deleted before.
    assert!(
        (5..=6).contains(&(expired + later)),
        "{expired}, then {later}"
    );
    assert_eq!(data.expire_now().unwrap(), 0);
    store.0.close().unwrap();
}

#[test]
fn expectations_alone_fail_on_a_dataset_that_was_dropped() {
    let (db, _) = open(Duration::ZERO);
    let data = dataset(&db);
    let mut batch = data.batch();
    batch.if_absent(1).unwrap();
    db.drop_dataset("d").unwrap();
    assert_eq!(
        batch.commit().unwrap_err().kind(),
        ErrorKind::UnknownDataset
    );
}
