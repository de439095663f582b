//! The change feed: each change once and in order, from any position; refused positions; consumers.

use crate::common;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{DIR, small};
use esker::options::KeepLog;
use esker::schema::Maintenance;
use esker::{
    Changes, ChangesFrom, Database, Dataset, DatasetDef, Durability, ErrorKind, IndexKind, KeyType,
    Options, Stop, Type,
};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

const WAIT: Duration = Duration::from_secs(60);

fn options(memory: &Memory) -> Options {
    small(Arc::new(memory.clone()))
}

fn open(memory: &Memory, bytes: u64) -> Database {
    let options = options(memory).keep_log(KeepLog { bytes, age: None });
    Database::create_or_open(FsPath::new(DIR), options).unwrap()
}

fn def() -> DatasetDef {
    DatasetDef::new("id", KeyType::Int)
}

/// The changes of a feed: sequence number, key, body.
type Seen = Vec<(u64, String, Option<Vec<u8>>)>;

fn read(changes: &mut Changes) -> Seen {
    let mut seen = Seen::new();
    while let Some(change) = changes.next().unwrap() {
        let body = change.record().map(|record| record.json().to_vec());
        seen.push((change.seq(), change.key().to_string(), body));
    }
    seen
}

fn put(dataset: &Dataset, id: u64, v: u64) -> (String, Option<Vec<u8>>) {
    let body = format!("{{\"id\":{id},\"v\":{v}}}").into_bytes();
    dataset.put_json(&body).unwrap();
    (id.to_string(), Some(body))
}

/// Under every strategy and across flushes, compactions and restarts, a feed from any position
/// returns all later changes, also from the middle of a batch. Changes of other datasets are not
/// included.
#[test]
fn a_feed_gives_each_change_once_from_any_place() {
    for maintenance in Maintenance::ALL {
        let memory = Memory::new();
        let mut db = open(&memory, u64::MAX);
        let def = def()
            .index(
                "v",
                esker::Index::new(IndexKind::Composite).of_type(Type::Int),
            )
            .maintenance(maintenance);
        db.create_dataset::<esker::Key>("d", def.clone()).unwrap();
        db.create_dataset::<esker::Key>("other", def).unwrap();
        let (mut made, mut rng) = (Seen::new(), fastrand::Rng::with_seed(7));
        for round in 0..60 {
            let (dataset, other) = (
                db.dataset::<esker::Key>("d").unwrap(),
                db.dataset::<esker::Key>("other").unwrap(),
            );
            let mut batch = dataset.batch();
            let mut wanted = Vec::new();
            for _ in 0..rng.usize(1..6) {
                let id = rng.u64(0..8);
                match rng.usize(0..4) {
                    0 => {
                        batch
                            .delete(dataset.parse_key(&id.to_string()).unwrap())
                            .unwrap();
                        wanted.push((id.to_string(), None));
                    }
                    _ => {
                        let body = format!("{{\"id\":{id},\"v\":{round}}}").into_bytes();
                        batch.put_json(&body).unwrap();
                        wanted.push((id.to_string(), Some(body)));
                    }
                }
            }
            let before = db.position().seq;
            batch.durability(Durability::Os).commit().unwrap();
            let mut behind = read(&mut dataset.changes(before).unwrap());
            // If a batch writes a key twice, only the last write may be returned.
            wanted.reverse();
            let mut keys = std::collections::BTreeSet::new();
            let once: Vec<_> = wanted
                .iter()
                .filter(|(key, _)| keys.insert(key.clone()))
                .collect();
            let mut last = std::collections::BTreeMap::new();
            behind
                .iter()
                .for_each(|(_, key, body)| drop(last.insert(key.clone(), body.clone())));
            assert_eq!(last.len(), once.len());
            assert!(
                once.iter().all(|(key, body)| last[key] == *body),
                "{maintenance}"
            );
            made.append(&mut behind);
            put(&other, rng.u64(0..8), round);
            match rng.usize(0..6) {
                0 => db.flush().unwrap(),
                1 => db.compact(None).unwrap(),
                2 => {
                    drop((dataset, other, batch));
                    db.close().unwrap();
                    db = open(&memory, u64::MAX);
                }
                _ => {}
            }
        }
        let dataset = db.dataset::<esker::Key>("d").unwrap();
        assert!(made.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for from in std::iter::once(0).chain(made.iter().map(|(seq, _, _)| *seq)) {
            let found = read(&mut dataset.changes(from).unwrap());
            let behind: Seen = made
                .iter()
                .filter(|(seq, _, _)| *seq > from)
                .cloned()
                .collect();
            assert_eq!(found, behind, "{maintenance}, behind {from}");
        }
        assert_eq!(
            read(&mut dataset.changes(ChangesFrom::Oldest).unwrap()),
            made
        );
        // A position in the middle of a batch resumes there.
        let mut changes = dataset.changes(0).unwrap();
        for (seq, _, _) in &made {
            assert_eq!(changes.next().unwrap().unwrap().seq(), *seq);
            changes = dataset.changes(changes.position()).unwrap();
        }
        assert!(changes.next().unwrap().is_none());
    }
}

#[test]
fn places_that_the_log_does_not_have_are_refused_and_consumers_keep_theirs() {
    let memory = Memory::new();
    let db = open(&memory, 0);
    let dataset = db.create_dataset::<esker::Key>("d", def()).unwrap();
    let begin = db.position();
    put(&dataset, 1, 1);
    db.flush().unwrap();
    put(&dataset, 2, 1);
    let expired = dataset.changes(begin).err().unwrap();
    assert_eq!(expired.kind(), ErrorKind::PositionExpired);
    assert_eq!(
        read(&mut dataset.changes(ChangesFrom::Oldest).unwrap()).len(),
        1
    );

    let here = db.position();
    dataset.keep_changes_for("audit", here, 1 << 20).unwrap();
    let third = put(&dataset, 3, 1);
    db.flush().unwrap();
    drop(dataset);
    db.close().unwrap();
    let db = open(&memory, 0);
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let kept = db.change_consumers().unwrap().pop().unwrap();
    let at = kept.position;
    assert_eq!((kept.name.as_str(), at), ("audit", here));
    assert_eq!(kept.dataset.as_deref(), Some("d"));
    assert_eq!(kept.keeps_bytes, 1 << 20);
    assert!(kept.lag_bytes > 0);
    let seen = read(&mut dataset.changes(at).unwrap());
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].1.clone(), seen[0].2.clone()), third);
    assert!(dataset.release_changes("audit").unwrap());
    assert!(!dataset.release_changes("audit").unwrap());
    put(&dataset, 4, 1);
    db.flush().unwrap();
    assert_eq!(
        dataset.changes(at).err().unwrap().kind(),
        ErrorKind::PositionExpired
    );

    // A copy has its own history, so positions of the store are invalid in it.
    db.backup(FsPath::new("/copy")).unwrap();
    let options = small(Arc::new(memory.clone()));
    let copy = Database::open(FsPath::new("/copy"), options).unwrap();
    let copied = copy.dataset::<esker::Key>("d").unwrap();
    put(&copied, 1, 1);
    let refused = dataset.changes(copy.position()).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::OtherHistory);
    let refused = copied.changes(db.position()).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::OtherHistory);
    // A number that was not allocated yet.
    let refused = dataset.changes(db.position().seq + 1).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::OtherHistory);
}

#[test]
fn a_waiting_feed_gets_the_next_change_or_an_error() {
    let memory = Memory::new();
    let db = open(&memory, 0);
    let dataset = db.create_dataset::<esker::Key>("d", def()).unwrap();
    let mut changes = dataset.changes(ChangesFrom::Now).unwrap();
    assert!(changes.wait(Duration::from_millis(1)).unwrap().is_none());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| changes.wait(WAIT).unwrap().unwrap());
        let (key, _) = put(&dataset, 7, 1);
        assert_eq!(waiting.join().unwrap().key().to_string(), key);
    });
    let stop = Stop::new();
    let mut stopped = dataset.with_stop(&stop).changes(ChangesFrom::Now).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| stopped.wait(WAIT).err().unwrap().kind());
        stop.cancel();
        assert_eq!(waiting.join().unwrap(), ErrorKind::Cancelled);
    });
    // Changes before the drop are returned first.
    put(&dataset, 8, 1);
    db.drop_dataset("d").unwrap();
    let last = changes.next();
    assert!(
        last.as_ref()
            .is_ok_and(|change| change.as_ref().is_some_and(|c| c.key().to_string() == "8")),
        "{last:?}"
    );
    assert_eq!(
        changes.wait(WAIT).err().unwrap().kind(),
        ErrorKind::UnknownDataset
    );
    // A new dataset of the same name is a different one.
    let again = db.create_dataset::<esker::Key>("d", def()).unwrap();
    let mut anew = again.changes(ChangesFrom::Oldest).unwrap();
    assert!(read(&mut anew).is_empty());
    put(&again, 9, 1);
    assert_eq!(read(&mut anew).len(), 1);
    db.close().unwrap();
    assert_eq!(anew.wait(WAIT).err().unwrap().kind(), ErrorKind::Closed);
}

/// A reader beside the writer follows it.
#[test]
fn a_reader_beside_follows_the_writer() {
    let memory = Memory::new();
    let db = open(&memory, u64::MAX);
    let dataset = db.create_dataset::<esker::Key>("d", def()).unwrap();
    let options = small(Arc::new(memory.clone()));
    let beside = Database::open_reader(FsPath::new(DIR), options).unwrap();
    let mut changes = beside
        .dataset::<esker::Key>("d")
        .unwrap()
        .changes(ChangesFrom::Now)
        .unwrap();
    for id in 0..20 {
        let (key, body) = put(&dataset, id, id);
        if id % 5 == 0 {
            db.flush().unwrap();
        }
        let change = changes.wait(WAIT).unwrap().unwrap();
        assert_eq!(change.key().to_string(), key);
        assert_eq!(change.record().map(|record| record.json().to_vec()), body);
    }
}

/// The same name in two datasets is two consumers, each with its own place, until its dataset is
/// dropped.
#[test]
fn a_consumer_belongs_to_a_dataset() {
    let memory = Memory::new();
    let db = open(&memory, 0);
    let one = db.create_dataset::<esker::Key>("one", def()).unwrap();
    let two = db.create_dataset::<esker::Key>("two", def()).unwrap();
    let begin = db.position();
    let keep = 1 << 20;
    one.keep_changes_for("mirror", begin, keep).unwrap();
    two.keep_changes_for("mirror", begin, keep).unwrap();
    put(&two, 1, 1);
    put(&one, 2, 1);
    one.keep_changes_for("mirror", db.position(), keep).unwrap();
    db.flush().unwrap();
    drop((one, two));
    db.close().unwrap();
    let db = open(&memory, 0);
    let one = db.dataset::<esker::Key>("one").unwrap();
    let two = db.dataset::<esker::Key>("two").unwrap();
    let of_one = one.change_consumer("mirror").unwrap().unwrap();
    let of_two = two.change_consumer("mirror").unwrap().unwrap();
    assert_eq!((of_one.lag_bytes, of_two.position), (0, begin));
    assert!(of_two.lag_bytes > 0);
    assert_eq!(read(&mut two.changes(of_two.position).unwrap()).len(), 1);
    assert_eq!(db.change_consumers().unwrap().len(), 2);

    // Invalid names, and names that differ little.
    for name in ["", "a\0b", &"x".repeat(256)] {
        let refused = one.keep_changes_for(name, begin, keep).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadInput, "{name:?}");
    }
    let long = "x".repeat(255);
    one.keep_changes_for(&long, begin, keep).unwrap();
    assert!(one.release_changes(&long).unwrap());

    // A dataset's consumers end with it; a new dataset of the same name has none.
    db.drop_dataset("two").unwrap();
    assert_eq!(db.change_consumers().unwrap(), [of_one]);
    let dropped = two.keep_changes_for("mirror", db.position(), keep);
    assert_eq!(dropped.unwrap_err().kind(), ErrorKind::UnknownDataset);
    let again = db.create_dataset::<esker::Key>("two", def()).unwrap();
    assert!(again.change_consumer("mirror").unwrap().is_none());
}

/// A consumer of the whole store, as an earlier version kept it, goes with its place to the first
/// dataset that uses it, even beside a writing process (`fixtures/consumer-of-the-store.store`:
/// datasets `one` and `two`, consumer `old`, record 1 put into `one`).
#[test]
fn a_consumer_of_the_whole_store_is_bound_by_its_first_use() {
    for beside in [false, true] {
        let memory = common::unpack(include_bytes!("../fixtures/consumer-of-the-store.store"));
        let db = open(&memory, 0);
        let reader = if beside {
            Database::open_reader(FsPath::new(DIR), options(&memory)).unwrap()
        } else {
            db.clone()
        };
        let one = reader.dataset::<esker::Key>("one").unwrap();
        let two = reader.dataset::<esker::Key>("two").unwrap();
        let known = one.change_consumer("old").unwrap().unwrap();
        assert_eq!((known.dataset, known.lag_bytes > 0), (None, true));
        let mut consumer = one.consume("old", None, 1 << 20).unwrap();
        assert!(!consumer.is_new());
        let all = db.change_consumers().unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].dataset.as_deref(), Some("one"));
        assert!(two.change_consumer("old").unwrap().is_none());
        assert!(two.consume("old", None, 1 << 20).unwrap().is_new());
        let at = |of: &str| {
            let dataset = db.dataset::<esker::Key>(of).unwrap();
            dataset.change_consumer("old").unwrap().unwrap().position
        };
        assert_eq!(at("one"), known.position);
        assert_eq!(consumer.next().unwrap().unwrap().key().to_string(), "1");
        assert_eq!(at("one"), known.position);
        consumer.done().unwrap();
        assert_eq!(at("one"), db.position());
        assert!(consumer.next().unwrap().is_none());
        // After its end, the name does not bring the old consumer back.
        let busy = one.release_changes("old").unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy);
        drop(consumer);
        let writer = db.dataset::<esker::Key>("one").unwrap();
        assert!(writer.release_changes("old").unwrap());
        assert!(one.change_consumer("old").unwrap().is_none());
        assert!(!two.release_changes("none").unwrap());
    }
}

/// A consumer of the whole store that is in use is released later.
#[test]
fn a_consumer_of_the_whole_store_that_is_in_use_is_busy() {
    let memory = common::unpack(include_bytes!("../fixtures/consumer-of-the-store.store"));
    let db = open(&memory, 0);
    let one = db.dataset::<esker::Key>("one").unwrap();
    let held = db.group().consume_log("old").unwrap();
    let busy = one.release_changes("old").unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    drop(held);
    assert!(one.release_changes("old").unwrap());
}

/// A consumer in another process: the writer keeps the changes that it has not acknowledged. Only
/// one process at a time can use it, and it ends with its dataset.
#[test]
fn a_consumer_beside_a_writer_misses_nothing() {
    let memory = Memory::new();
    let db = open(&memory, 0);
    let dataset = db.create_dataset::<esker::Key>("d", def()).unwrap();
    put(&dataset, 1, 1);
    let reader = Database::open_reader(FsPath::new(DIR), options(&memory)).unwrap();
    let beside = reader.dataset::<esker::Key>("d").unwrap();
    let mut consumer = beside.consume("mirror", None, 1 << 20).unwrap();
    assert!(consumer.is_new());
    for other in [&dataset, &beside] {
        let busy = other.consume("mirror", None, 1).map(|_| ()).unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
        assert!(
            busy.to_string().contains("`mirror` of dataset `d`"),
            "{busy}"
        );
    }
    for id in 2..6 {
        put(&dataset, id, 1);
        db.flush().unwrap();
    }
    let keys = |consumer: &mut esker::Consumer, most: usize| -> Vec<String> {
        let mut keys = Vec::new();
        while keys.len() < most
            && let Some(change) = consumer.next().unwrap()
        {
            keys.push(change.key().to_string());
        }
        keys
    };
    assert_eq!(keys(&mut consumer, 2), ["2", "3"]);
    consumer.done().unwrap();
    assert_eq!(keys(&mut consumer, 9), ["4", "5"]);
    // It ends without acknowledging these.
    drop(consumer);
    put(&dataset, 6, 1);
    db.flush().unwrap();
    let mut again = beside.consume("mirror", None, 1 << 20).unwrap();
    assert!(!again.is_new());
    assert_eq!(keys(&mut again, 9), ["4", "5", "6"]);
    again.done().unwrap();
    // From an earlier place, whose changes are no longer kept.
    drop(again);
    put(&dataset, 7, 1);
    db.flush().unwrap();
    let gone = beside.consume("mirror", Some(1.into()), 1 << 20);
    assert_eq!(
        gone.map(|_| ()).unwrap_err().kind(),
        ErrorKind::PositionExpired
    );
    let mut again = beside.consume("mirror", None, 1 << 20).unwrap();
    assert_eq!(keys(&mut again, 9), ["7"]);
    db.drop_dataset("d").unwrap();
    assert!(db.change_consumers().unwrap().is_empty());
    let gone = again.done().unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::UnknownDataset);
    assert!(db.change_consumers().unwrap().is_empty());
}

/// If a dataset is dropped while a reader stores the place of its consumer, the consumer ends.
#[test]
fn a_consumer_that_is_noted_while_its_dataset_is_dropped_ends() {
    let memory = Memory::new();
    let db = Arc::new(Database::create_or_open(FsPath::new(DIR), options(&memory)).unwrap());
    let dataset = db.create_dataset::<esker::Key>("d", def()).unwrap();
    put(&dataset, 1, 1);
    let hooked = Hooked::new(Arc::new(memory.clone()));
    let reader = Database::open_reader(FsPath::new(DIR), small(Arc::new(hooked.clone()))).unwrap();
    let beside = reader.dataset::<esker::Key>("d").unwrap();
    let writer = db.clone();
    hooked.set(move |call, path| {
        let is_place = path.parent().is_some_and(|at| at.ends_with("consumers"));
        if call == Call::Create && is_place {
            writer.drop_dataset("d").unwrap();
        }
        Ok(())
    });
    let noted = beside.consume("me", None, 1 << 20).map(|_| ());
    hooked.clear();
    assert_eq!(noted.unwrap_err().kind(), ErrorKind::UnknownDataset);
    let is_place = |path: &FsPath| {
        let is_in = path.parent().is_some_and(|at| at.ends_with("consumers"));
        is_in && path.extension().is_none() && !path.ends_with("LOCK")
    };
    let left: Vec<_> = memory.paths();
    assert!(!left.iter().any(|path| is_place(path)), "{left:?}");
}

/// After a crash within `drop_dataset`, leftover consumers retain no log once the store was opened
/// again.
#[test]
fn consumers_that_a_drop_left_are_removed_by_the_next_opening() {
    let memory = Memory::new();
    let hooked = Hooked::new(Arc::new(memory.clone()));
    let open = || {
        let options = small(Arc::new(hooked.clone()));
        Database::create_or_open(FsPath::new(DIR), options).unwrap()
    };
    let db = open();
    let dataset = db.create_dataset::<esker::Key>("d", def()).unwrap();
    let begin = dataset.changes(ChangesFrom::Now).unwrap().position();
    dataset.keep_changes_for("me", begin, u64::MAX).unwrap();
    put(&dataset, 1, 1);
    hooked.set(|call, path| {
        let is_place = path.parent().is_some_and(|at| at.ends_with("consumers"));
        if call == Call::Remove && is_place {
            Err(std::io::Error::other("the process ends here"))
        } else {
            Ok(())
        }
    });
    db.drop_dataset("d").unwrap();
    hooked.clear();
    assert_eq!(db.group().log_consumers().unwrap().len(), 1);
    db.close().unwrap();
    let db = open();
    assert!(db.group().log_consumers().unwrap().is_empty());
    let other = db.create_dataset::<esker::Key>("other", def()).unwrap();
    put(&other, 1, 1);
    db.flush().unwrap();
    let group = db.group();
    assert_eq!(group.log_bytes_behind(group.oldest_position()), 0);
}

/// The age of the oldest unread change is known to the second, also in a copy.
#[test]
fn the_age_of_the_oldest_unread_change_is_reported() {
    let memory = Memory::new();
    let now = Arc::new(AtomicU64::new(1_700_000_000_000));
    let of_test = now.clone();
    // With background work, a writer looks for consumers once a second.
    let options = || {
        options(&memory).background(true).clock({
            let now = of_test.clone();
            Arc::new(move || now.load(Ordering::SeqCst))
        })
    };
    let db = Database::create_or_open(FsPath::new(DIR), options()).unwrap();
    let dataset = db.create_dataset::<esker::Key>("d", def()).unwrap();
    let other = db.create_dataset::<esker::Key>("other", def()).unwrap();
    let reader = Database::open_reader(FsPath::new(DIR), options()).unwrap();
    let beside = reader.dataset::<esker::Key>("d").unwrap();
    let mut consumer = beside.consume("me", None, 1 << 20).unwrap();
    let age = |db: &Database| db.change_consumers().unwrap()[0].unread_for;
    assert_eq!(age(&db), None);
    for id in 0..5 {
        now.fetch_add(10_000, Ordering::SeqCst);
        // Changes of another dataset do not count.
        put(&other, id, 1);
        now.fetch_add(10_000, Ordering::SeqCst);
        put(&dataset, id, 1);
        if id == 2 {
            db.flush().unwrap();
        }
    }
    for left in (0..5).rev() {
        now.fetch_add(500, Ordering::SeqCst);
        let seconds = age(&db).unwrap().as_secs();
        let wanted = left * 20 + (5 - left) / 2;
        assert!(seconds.abs_diff(wanted) <= 1, "{seconds}, {wanted}");
        assert_eq!(age(&reader), age(&db));
        if left == 2 {
            db.backup("/copy").unwrap();
            let copy = Database::open(FsPath::new("/copy"), options()).unwrap();
            assert_eq!(age(&copy), age(&db));
        }
        consumer.next().unwrap().unwrap();
        consumer.done().unwrap();
    }
    assert_eq!(age(&db), None);
}
