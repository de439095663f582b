//! The changes of a dataset by condition and area, against direct computation.

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::Duration;

use esker::options::KeepLog;
use esker::{ChangesFrom, Database, DatasetDef, KeyType, Options, Path};
use esker_pubsub::{Region, Watch};
use esker_sim::memory::Memory;
use fastrand::Rng;

#[test]
fn a_change_is_returned_if_the_new_or_the_old_record_matches() {
    let memory = Memory::new();
    let options = Options::new().fs(Arc::new(memory));
    let db = Database::create_or_open(FsPath::new("/watch"), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int).keep_old_records();
    let cars = db.create_dataset::<u64>("cars", def).unwrap();
    let region = Region::Rect {
        west: 1.0,
        south: 1.0,
        east: 2.0,
        north: 3.0,
    };
    let path = |text| Path::parse(text).unwrap();
    let watch = |changes| {
        Watch::new(changes)
            .matching("v >= 3".parse().unwrap())
            .unwrap()
            .within(&region, path("at.lon"), path("at.lat"))
            .unwrap()
    };
    let now = || cars.changes(ChangesFrom::Now).unwrap();
    let (mut plain, mut with_old) = (watch(now()), watch(now().with_old().unwrap()));
    let mut rng = Rng::with_seed(3);
    let mut held: BTreeMap<u64, bool> = BTreeMap::new();
    let (mut expected, mut expected_old) = (Vec::new(), Vec::new());
    for _ in 0..2000 {
        let id = rng.u64(0..30);
        let before = held.get(&id).copied().unwrap_or(false);
        if rng.u8(0..5) == 0 {
            cars.delete(id).unwrap();
            held.remove(&id);
            if before {
                expected_old.push(id);
            }
            continue;
        }
        let (lon, lat, v) = (rng.u8(0..4), rng.u8(0..5), rng.u8(0..6));
        let place = match rng.u8(0..9) {
            0 => String::new(),
            _ => format!(",\"at\":{{\"lon\":{lon},\"lat\":{lat}}}"),
        };
        let json = format!("{{\"id\":{id},\"v\":{v}{place}}}");
        cars.put_json(json.as_bytes()).unwrap();
        let is = v >= 3 && !place.is_empty() && (1..=2).contains(&lon) && (1..=3).contains(&lat);
        if is {
            expected.push(id);
        }
        if is || before {
            expected_old.push(id);
        }
        held.insert(id, is);
    }
    let all = |watch: &mut Watch<u64>| -> Vec<u64> {
        std::iter::from_fn(|| watch.next().unwrap().map(|change| *change.key())).collect()
    };
    assert!(expected.len() > 100 && expected_old.len() > expected.len());
    assert_eq!(all(&mut plain), expected);
    assert_eq!(all(&mut with_old), expected_old);
}

fn cars() -> (Database, esker::Dataset<u64>) {
    let options = Options::new()
        .fs(Arc::new(Memory::new()))
        // Without this, a flush (as of a drop) removes unread changes from the log.
        .keep_log(KeepLog {
            bytes: 1 << 20,
            age: None,
        });
    let db = Database::create_or_open(FsPath::new("/watch"), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int);
    let cars = db.create_dataset::<u64>("cars", def).unwrap();
    (db, cars)
}

#[test]
fn a_wait_continues_past_changes_that_do_not_match() {
    let (_db, cars) = cars();
    let changes = cars.changes(ChangesFrom::Now).unwrap();
    let mut watch = Watch::new(changes)
        .matching("v >= 3".parse().unwrap())
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for v in 0..4 {
                // The pause lets the watch see each change alone, mostly.
                std::thread::sleep(Duration::from_millis(20));
                cars.put_json(format!("{{\"id\":{v},\"v\":{v}}}").as_bytes())
                    .unwrap();
            }
        });
        let change = watch.wait(Duration::MAX).unwrap();
        assert_eq!(change.map(|change| *change.key()), Some(3));
    });
    assert!(watch.wait(Duration::from_millis(1)).unwrap().is_none());
}

/// Earlier changes are returned first. A new dataset of the same name is a different one.
#[test]
fn a_dataset_that_is_dropped_ends_its_changes() {
    let (db, cars) = cars();
    let mut watch = Watch::new(cars.changes(ChangesFrom::Now).unwrap());
    cars.put_json(br#"{"id":1}"#).unwrap();
    db.drop_dataset("cars").unwrap();
    let def = DatasetDef::new("id", KeyType::Int);
    let others = db.create_dataset::<u64>("cars", def).unwrap();
    others.put_json(br#"{"id":2}"#).unwrap();
    let first = watch.wait(Duration::MAX).unwrap();
    assert_eq!(first.map(|change| *change.key()), Some(1));
    for _ in 0..2 {
        let ended = watch.wait(Duration::MAX).unwrap_err();
        assert_eq!(ended.kind(), esker::ErrorKind::UnknownDataset);
    }
    assert!(watch.next().is_err());
}
