//! Copies between folders, the store in memory, and one without an order of keys.

use std::time::Duration;

use esker::{DatasetDef, Error, Index, Key, KeyType, Options, Request, field};
use esker_sim::by_tier;
use esker_store::{Dataset, Mode, Store, open};
use tempfile::TempDir;

use super::differences::Unequal;
use super::observer::{CopyObserver, CopyStep};
use super::run::{Copied, CopyEnd, StoreCopy};
use super::unordered::Unordered;

const RECORDS: u64 = 5000;

struct Room(TempDir);

impl Room {
    fn new() -> Room {
        Room(tempfile::tempdir().unwrap())
    }

    fn folder(&self, name: &str) -> Box<dyn Store> {
        open(self.0.path().join(name), Mode::Create, Options::default()).unwrap()
    }

    fn plain(&self, name: &str) -> Box<dyn Store> {
        let address = format!("plain:{}", self.0.path().join(name).display());
        open(address, Mode::Create, Options::default()).unwrap()
    }

    fn unordered(&self, name: &str) -> Box<dyn Store> {
        Box::new(Unordered(self.folder(name)))
    }
}

fn def() -> DatasetDef {
    DatasetDef::new("id", KeyType::Int).index("n", Index::lazy().int())
}

fn put(dataset: &dyn Dataset, ids: impl Iterator<Item = u64>, text: &str) {
    let mut batch = dataset.batch();
    for id in ids {
        let json = format!(r#"{{"id": {id}, "n": {}, "text": "{text}"}}"#, id % 10);
        batch.put_json(json.as_bytes()).unwrap();
    }
    batch.commit().unwrap();
}

fn filled(store: &dyn Store, def: DatasetDef) -> Box<dyn Dataset> {
    let dataset = store.create_dataset("d", def).unwrap();
    put(&*dataset, 0..RECORDS, "first");
    dataset
}

fn key(id: u64) -> Key {
    Key::parse(KeyType::Int, &id.to_string()).unwrap()
}

fn copied(from: &dyn Store, to: &dyn Store) -> Copied {
    StoreCopy::new(from, "it", to).run("d", &mut ()).unwrap()
}

/// Stops at the first report of a step.
struct StopsAt(CopyStep, u64);

impl CopyObserver for StopsAt {
    fn progress(&mut self, step: CopyStep, records: u64) {
        if step == self.0 && records >= self.1 {
            self.1 = 0;
        }
    }

    fn is_stopped(&self) -> bool {
        self.1 == 0
    }
}

/// Copies of a part, as far as it comes.
fn begun(from: &dyn Store, to: &dyn Store, records: u64) -> Copied {
    let job = StoreCopy::new(from, "it", to).workers(1);
    job.run("d", &mut StopsAt(CopyStep::Copying, records))
        .unwrap()
}

#[test]
fn every_store_is_copied_to_every_store() {
    let room = Room::new();
    let first = room.folder("first");
    filled(&*first, def());
    let stores = [
        room.plain("a"),
        room.folder("b"),
        room.unordered("c"),
        room.unordered("d"),
        room.plain("e"),
        room.unordered("f"),
        room.folder("g"),
    ];
    let mut from = &first;
    for to in &stores {
        let done = copied(&**from, &**to);
        assert_eq!((done.records, done.resumed, done.mended), (RECORDS, 0, 0));
        assert_eq!(done.compared, Some((RECORDS, RECORDS)));
        assert_eq!(done.end, CopyEnd::Equal);
        let there = to.dataset("d").unwrap();
        assert_eq!(there.def().indexes, def().indexes);
        let found = there.count(&Request::of(field("n").eq(7))).unwrap();
        assert_eq!(found.0, RECORDS / 10);
        from = to;
    }
    // Again, nothing is copied.
    let again = copied(&*first, &*stores[0]);
    assert_eq!((again.records, again.resumed), (RECORDS, RECORDS));
    assert_eq!(again.end, CopyEnd::Equal);
}

#[test]
fn a_copy_that_stopped_continues_and_finds_what_changed_meanwhile() {
    // In the usual tier from each and to each, but not in all pairs.
    for kinds in by_tier(1..3, 0..4) {
        let room = Room::new();
        let from = if kinds & 1 == 0 {
            room.folder("a")
        } else {
            room.unordered("a")
        };
        let to = if kinds & 2 == 0 {
            room.folder("b")
        } else {
            room.unordered("b")
        };
        let dataset = filled(&*from, def());
        let stopped = begun(&*from, &*to, 1000);
        assert_eq!(stopped.end, CopyEnd::Stopped);
        assert!((1000..RECORDS).contains(&stopped.records), "{stopped:?}");
        // Of all parts, some records are copied.
        let mut batch = dataset.batch();
        for id in (0..RECORDS).step_by(100) {
            batch.delete(&key(id)).unwrap();
        }
        batch.commit().unwrap();
        put(&*dataset, (1..RECORDS).step_by(100), "second");
        put(&*dataset, RECORDS..RECORDS + 10, "new");
        let done = copied(&*from, &*to);
        assert_eq!(done.resumed, stopped.records);
        assert!(done.records <= RECORDS + 10 + 512, "{done:?}");
        assert!((1..=111).contains(&done.mended), "{done:?}");
        let left = RECORDS - RECORDS / 100 + 10;
        assert_eq!(done.compared, Some((left, left)));
        assert_eq!(done.end, CopyEnd::Equal, "{kinds}");
    }
}

#[test]
fn a_comparison_that_stopped_is_made_again() {
    let room = Room::new();
    let (from, to) = (room.folder("a"), room.folder("b"));
    filled(&*from, def());
    let mut stops = StopsAt(CopyStep::Comparing, u64::MAX);
    stops.1 = 1;
    let job = StoreCopy::new(&*from, "it", &*to);
    // The comparison may have ended before it is stopped.
    let end = job.run("d", &mut stops).unwrap().end;
    assert!(end == CopyEnd::Stopped || end == CopyEnd::Equal);
    assert_eq!(copied(&*from, &*to).end, CopyEnd::Equal);
}

#[test]
fn differences_are_named_and_mended() {
    for is_ordered in [true, false] {
        let room = Room::new();
        let from = room.folder("a");
        let to = if is_ordered {
            room.folder("b")
        } else {
            room.unordered("b")
        };
        filled(&*from, def());
        assert_eq!(copied(&*from, &*to).end, CopyEnd::Equal);
        let there = to.dataset("d").unwrap();
        let mut batch = there.batch();
        batch.delete(&key(3000)).unwrap();
        batch.delete(&key(3007)).unwrap();
        batch.commit().unwrap();
        put(&*there, [11, 12, RECORDS + 3].into_iter(), "other");
        let done = copied(&*from, &*to);
        let CopyEnd::Unequal(differing) = &done.end else {
            panic!("{done:?}");
        };
        let first: Vec<_> = differing.iter().map(|range| range.first.clone()).collect();
        let expected = [
            (11, Unequal::Other),
            (3000, Unequal::Missing),
            (RECORDS + 3, Unequal::Extra),
        ];
        let expected = expected.map(|(id, how)| Some((key(id), how)));
        assert_eq!(first, expected, "{differing:?}");
        let text = differing[1].to_string();
        assert!(
            text.contains("256 records at the source, 254 at the target"),
            "{text}"
        );
        assert!(text.contains("key 3000 is missing at the target"), "{text}");
        assert_eq!(done.compared, Some((RECORDS, RECORDS - 1)));
        // Nothing was changed at the target.
        assert_eq!(there.get(&key(3000)).unwrap(), None);
        let job = StoreCopy::new(&*from, "it", &*to).mend(true);
        let mended = job.run("d", &mut ()).unwrap();
        assert_eq!((mended.mended, &mended.end), (5, &CopyEnd::Equal));
        assert_eq!(there.get(&key(RECORDS + 3)).unwrap(), None);
    }
}

#[test]
fn versions_are_copied_once_each() {
    let room = Room::new();
    let versioned = || def().versions(3);
    let stops = by_tier(vec![0, 1700], vec![0, 600, 1700, 4000]);
    for (at, stop) in stops.into_iter().enumerate() {
        let from = room.folder(&format!("from {at}"));
        let dataset = filled(&*from, versioned());
        put(&*dataset, (0..RECORDS).step_by(2), "second");
        put(&*dataset, (0..RECORDS).step_by(6), "third");
        put(&*dataset, (0..RECORDS).step_by(12), "fourth");
        for to in [
            room.folder(&format!("to {at}")),
            room.unordered(&format!("other {at}")),
        ] {
            if stop > 0 {
                begun(&*from, &*to, stop);
                // As if it had been killed before it noted all that it wrote.
                let there = to.dataset("d").unwrap();
                let mut stored = super::stored::Stored::read(&*there).unwrap().unwrap();
                stored.parts.clear();
                let mark = key(255).as_bytes().to_vec();
                stored.parts.insert(0, super::stored::Done::Before(mark));
                stored.write(&*there).unwrap();
            }
            let done = copied(&*from, &*to);
            assert_eq!((done.mended, &done.end), (0, &CopyEnd::Equal), "{done:?}");
            let there = to.dataset("d").unwrap();
            for id in [0, 1, 2, 6, 12, 256, 600, 4800] {
                let texts = |dataset: &dyn Dataset| {
                    let versions = dataset.versions(&key(id), None, 9).unwrap();
                    let texts = versions.iter().map(|version| version.json().to_vec());
                    texts.collect::<Vec<_>>()
                };
                assert_eq!(texts(&*there), texts(&*dataset), "{id}");
            }
        }
    }
}

/// Versions of a key, newest first.
fn texts(dataset: &dyn Dataset, id: u64) -> Vec<Vec<u8>> {
    let versions = dataset.versions(&key(id), None, 9).unwrap();
    versions
        .iter()
        .map(|version| version.json().to_vec())
        .collect()
}

/// Mending put all versions of a key on top of those of the target, so the sides never became
/// equal.
#[test]
fn versions_that_differ_are_mended() {
    for is_ordered in [true, false] {
        let room = Room::new();
        let from = room.folder("a");
        let to = if is_ordered {
            room.folder("b")
        } else {
            room.unordered("b")
        };
        let dataset = from.create_dataset("d", def().versions(3)).unwrap();
        put(&*dataset, 0..100, "first");
        put(&*dataset, 50..100, "second");
        assert_eq!(copied(&*from, &*to).end, CopyEnd::Equal);
        // One that replaces, one that is added, one that is deleted, one that is new.
        put(&*dataset, [3, 60].into_iter(), "third");
        let mut batch = dataset.batch();
        batch.delete(&key(4)).unwrap();
        batch.delete(&key(5)).unwrap();
        batch.commit().unwrap();
        put(&*dataset, [5, 200].into_iter(), "again");
        let there = to.dataset("d").unwrap();
        put(&*there, [7, 70].into_iter(), "other");
        let mending = StoreCopy::new(&*from, "it", &*to).mend(true);
        let done = mending.run("d", &mut ()).unwrap();
        assert_eq!((done.mended, &done.end), (7, &CopyEnd::Equal), "{done:?}");
        for id in [3, 4, 5, 7, 8, 60, 70, 200] {
            assert_eq!(texts(&*there, id), texts(&*dataset, id), "{id}");
        }
        // Only the new version of it was put.
        let [first, second, third] = &texts(&*there, 60)[..] else {
            panic!("{:?}", texts(&*there, 60));
        };
        assert!(first != second && second != third && first != third);
    }
}

/// A copy that was killed before it noted any progress put its records again.
#[test]
fn versions_are_copied_once_after_a_copy_that_noted_nothing() {
    let room = Room::new();
    let (from, to) = (room.folder("a"), room.folder("b"));
    let dataset = filled(&*from, def().versions(3));
    put(&*dataset, (0..RECORDS).step_by(2), "second");
    begun(&*from, &*to, 1000);
    let there = to.dataset("d").unwrap();
    let mut stored = super::stored::Stored::read(&*there).unwrap().unwrap();
    stored.parts.clear();
    stored.records = 0;
    stored.write(&*there).unwrap();
    let done = copied(&*from, &*to);
    assert_eq!((done.mended, &done.end), (0, &CopyEnd::Equal), "{done:?}");
    for id in [0, 1, 2, 600, 4800] {
        assert_eq!(texts(&*there, id), texts(&*dataset, id), "{id}");
    }
}

/// An older version may have a value that another record has by now: versions were refused.
#[test]
fn versions_of_records_that_exchanged_a_unique_value_are_copied() {
    let room = Room::new();
    let from = room.folder("a");
    let definition = DatasetDef::new("id", KeyType::Int)
        .index("mail", Index::composite().string().unique())
        .index("a", Index::none().int())
        .index("b", Index::none().string())
        .index("a,b", Index::composite().compound().unique())
        .index("n", Index::lazy().int())
        .versions(3);
    let dataset = from.create_dataset("d", definition).unwrap();
    let write = |records: &[(u64, &str)]| {
        for (id, mail) in records {
            let json = format!(r#"{{"id":{id},"mail":"{mail}","a":1,"b":"{mail}","n":{id}}}"#);
            let mut batch = dataset.batch();
            batch.put_json(json.as_bytes()).unwrap();
            batch.commit().unwrap();
        }
    };
    for at in 0..600 {
        write(&[(at, &format!("{at}@x"))]);
    }
    write(&[(1, "one@x"), (2, "1@x"), (500, "2@x")]);
    write(&[(3, "three@x"), (700, "3@x")]);
    for stop in [0, 1] {
        let to = room.folder(&format!("b{stop}"));
        if stop > 0 {
            begun(&*from, &*to, stop);
        }
        let done = copied(&*from, &*to);
        assert_eq!((done.mended, &done.end), (0, &CopyEnd::Equal), "{done:?}");
        let there = to.dataset("d").unwrap();
        let sorted = |dataset: &dyn Dataset| {
            let mut indexes = dataset.def().indexes;
            indexes.sort_by_key(|index| index.path.to_string());
            indexes
        };
        assert_eq!(sorted(&*there), sorted(&*dataset));
        for id in [0, 1, 2, 3, 500, 700] {
            assert_eq!(texts(&*there, id), texts(&*dataset, id), "{id}");
        }
        let found = there.count(&Request::of(field("mail").eq("1@x"))).unwrap();
        assert_eq!(found.0, 1);
        let mut batch = there.batch();
        batch.put_json(br#"{"id":9,"mail":"1@x"}"#).unwrap();
        assert!(matches!(batch.commit(), Err(Error::NotUnique(_))));
        assert_eq!(copied(&*from, &*to).end, CopyEnd::Equal);
    }
}

#[test]
fn a_dataset_of_another_origin_is_refused() {
    let room = Room::new();
    let (from, to) = (room.folder("a"), room.folder("b"));
    filled(&*from, def());
    let fails = |to: &dyn Store, address: &str, text: &str| {
        let error = StoreCopy::new(&*from, address, to)
            .run("d", &mut ())
            .unwrap_err();
        assert!(matches!(error, Error::Exists(_)), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    filled(&*to, def());
    fails(&*to, "it", "with records that are not of a copy");
    let other = room.folder("c");
    other
        .create_dataset("d", DatasetDef::new("id", KeyType::Int))
        .unwrap();
    fails(&*other, "it", "`n` is not declared");
    // An empty one of the same definition is filled: it may be left of a copy that was killed.
    let empty = room.folder("d");
    empty.create_dataset("d", def()).unwrap();
    assert_eq!(copied(&*from, &*empty).end, CopyEnd::Equal);
    fails(&*empty, "elsewhere", "a copy from it, not from elsewhere");
    let error = StoreCopy::new(&*from, "it", &*empty)
        .run("e", &mut ())
        .unwrap_err();
    assert!(matches!(error, Error::UnknownDataset { .. }), "{error}");
}

#[test]
fn records_that_expire_meanwhile_are_no_differences() {
    let room = Room::new();
    let (from, to) = (room.folder("a"), room.folder("b"));
    let expiring = def().expires_as("until", esker::Type::TimeMs);
    let dataset = from.create_dataset("d", expiring).unwrap();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let soon = now.as_millis() + 1500;
    let mut batch = dataset.batch();
    for id in 0..2000 {
        let until = if id % 2 == 0 { soon } else { soon * 2 };
        batch
            .put_json(format!(r#"{{"id":{id},"until":{until}}}"#).as_bytes())
            .unwrap();
    }
    batch.commit().unwrap();
    assert_eq!(copied(&*from, &*to).end, CopyEnd::Equal);
    while std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis()
        <= soon
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    to.dataset("d").unwrap().expire_now().unwrap();
    let done = copied(&*from, &*to);
    assert_eq!(done.end, CopyEnd::Equal, "{done:?}");
}

/// A record at the target alone whose time is to come counted as one that expires: it was neither
/// named nor deleted.
#[test]
fn a_record_that_was_deleted_at_the_source_is_a_difference_though_it_expires() {
    let hour = Duration::from_secs(3600);
    let expiring = [
        (def().expires_as("until", esker::Type::TimeMs), true),
        // The target's time to live begins anew, so the source's record may have expired.
        (def().ttl(hour), false),
    ];
    for (expiring, is_named) in expiring {
        let room = Room::new();
        let (from, to) = (room.folder("a"), room.folder("b"));
        let dataset = from.create_dataset("d", expiring).unwrap();
        let mut batch = dataset.batch();
        for id in 0..100 {
            let json = format!(r#"{{"id":{id},"until":9000000000000}}"#);
            batch.put_json(json.as_bytes()).unwrap();
        }
        batch.commit().unwrap();
        assert_eq!(copied(&*from, &*to).end, CopyEnd::Equal);
        let mut batch = dataset.batch();
        batch.delete(&key(7)).unwrap();
        batch.commit().unwrap();
        match (copied(&*from, &*to).end, is_named) {
            (CopyEnd::Unequal(differing), true) => {
                assert_eq!(differing.len(), 1);
                assert_eq!(differing[0].first, Some((key(7), Unequal::Extra)));
            }
            (end, is_named) => assert!(!is_named && end == CopyEnd::Equal, "{end:?}"),
        }
        let mending = StoreCopy::new(&*from, "it", &*to).mend(true);
        let done = mending.run("d", &mut ()).unwrap();
        assert_eq!((done.mended, &done.end), (1, &CopyEnd::Equal));
        assert!(to.dataset("d").unwrap().get(&key(7)).unwrap().is_none());
        assert_eq!(done.compared, Some((99, 99)));
    }
}

#[test]
fn a_named_snapshot_is_copied_as_it_was() {
    let room = Room::new();
    let (from, to) = (room.folder("a"), room.plain("b"));
    let dataset = filled(&*from, def());
    from.keep_snapshot("monday").unwrap();
    put(&*dataset, 0..100, "later");
    let job = StoreCopy::new(&*from, "it", &*to).snapshot(Some("monday"));
    assert_eq!(job.run("d", &mut ()).unwrap().end, CopyEnd::Equal);
    let record = to.dataset("d").unwrap().get(&key(5)).unwrap().unwrap();
    assert!(String::from_utf8_lossy(record.json()).contains("first"));
}
