//! A dataset's changes by condition and area, against plain reckoning.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker::fs::memory::Memory;
use esker::{ChangesFrom, Database, DatasetDef, KeyType, Options, Path};
use esker_pubsub::{Region, Watch};
use fastrand::Rng;

#[test]
fn changes_come_when_a_record_is_or_was_asked_for() {
    let memory = Memory::new();
    let options = Options {
        fs: Arc::new(memory),
        ..Options::default()
    };
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
