//! Expiring records, compared with a model: from its expiry on a record is invisible to every kind
//! of index, strategy and form of query, whatever happens to the store and the clock. A feed
//! returns each expiry once, when the record is deleted.

mod copies;
mod world;

use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{DIR, check, check_set, path, seeds, small, with_strategy};
use esker::options::KeepLog;
use esker::schema::Maintenance;
use esker::{
    ChangeKind, Database, DatasetDef, Durability, Index, IndexKind, Key, KeyType, Type, field,
};
use esker_sim::clock::TestClock;
use esker_sim::hooked::Hooked;
use esker_sim::memory::{Memory, PowerCut};
use world::{START, World, open};

#[test]
fn expired_records_are_invisible_by_any_kind_and_strategy() {
    let mut expired = 0;
    for seed in seeds(24) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = IndexKind::ALL[seed as usize % IndexKind::ALL.len()];
        let def = DatasetDef::new(path("id"), KeyType::Int)
            .index(path("n"), Index::new(kind).of_type(Type::Int))
            .expires_at(path("until"));
        let def = with_strategy(def, seed as usize / IndexKind::ALL.len());
        let mut world = World::new(if rng.bool() {
            def.ttl(Duration::from_millis(rng.u64(1..5_000)))
        } else {
            def
        });
        for _ in 0..250 {
            world.tick(&mut rng);
            world.write(&mut rng);
            world.disturb(&mut rng);
            if rng.usize(0..3) == 0 {
                world.ask(&mut rng);
            }
            // An earlier snapshot keeps its content.
            if rng.usize(0..10) == 0 {
                let snapshot = world.dataset.snapshot();
                let live: Vec<String> = world.live().map(|(key, _)| key.to_string()).collect();
                world.tick(&mut rng);
                world.hand.add(rng.u64(0..3_000));
                world.dataset.expire_now().unwrap();
                world.now = world.now.max(world.hand.get());
                world.read_feed();
                let scan = snapshot.scan(..);
                let seen: Vec<String> = scan.map(|r| r.unwrap().key().to_string()).collect();
                assert_eq!(seen, live);
                let all = snapshot.query().filter(field("n").ge(0));
                assert_eq!(all.count().unwrap(), live.len() as u64);
            }
        }
        world.ask(&mut rng);
        check(&world.db);
        check_set(&world.db);
        expired += world.expired;
    }
    assert!(expired > 100, "{expired}");
}

/// A power cut at each call of deleting expired records and of the work after it: expired records
/// stay invisible, and a feed returns each expiry once.
#[test]
fn acting_on_expiry_can_be_cut_off_anywhere() {
    for maintenance in Maintenance::ALL {
        for cut in 0.. {
            let (memory, hand) = (Memory::new(), TestClock::new(START));
            let hooked = Hooked::new(Arc::new(memory.clone()));
            let options = small(Arc::new(memory.clone()))
                .fs(Arc::new(hooked.clone()))
                .durability(Durability::Sync)
                .keep_log(KeepLog {
                    bytes: u64::MAX,
                    age: None,
                })
                .clock(hand.function());
            let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
            let def = DatasetDef::new(path("id"), KeyType::Int)
                .index(path("n"), Index::new(IndexKind::Lazy).of_type(Type::Int))
                .ttl(Duration::from_secs(1))
                .maintenance(maintenance);
            let dataset = db.create_dataset::<Key>("d", def).unwrap();
            let put = |ids: std::ops::Range<u64>| {
                let mut batch = dataset.batch();
                for id in ids {
                    batch
                        .put_json(format!("{{\"id\":{id},\"n\":{}}}", id % 3))
                        .unwrap();
                }
                batch.commit().unwrap();
            };
            put(0..20);
            db.flush().unwrap();
            hand.add(600);
            // The earlier writes of these no longer have to expire.
            put(15..30);
            hand.add(600);
            let from = db.position();
            let (calls, image) = (
                Arc::new(AtomicU64::new(0)),
                Arc::new(parking_lot::Mutex::new(None)),
            );
            let (count, taken, of) = (calls.clone(), image.clone(), memory.clone());
            hooked.set(move |_, _| {
                if count.fetch_add(1, Ordering::SeqCst) == cut {
                    let mode = if cut % 2 == 0 {
                        PowerCut::Lost
                    } else {
                        PowerCut::Kept
                    };
                    *taken.lock() = Some(of.power_cut(cut, mode));
                }
                Ok(())
            });
            assert_eq!(dataset.expire_now().unwrap(), 15);
            db.flush().unwrap();
            db.compact(None).unwrap();
            hooked.clear();
            let image = image.lock().take();
            let Some(image) = image else {
                assert!(cut > 5, "{maintenance}: {cut} calls");
                break;
            };
            let db = open(&image, &hand);
            let dataset = db.dataset::<Key>("d").unwrap();
            for _ in 0..2 {
                assert_eq!(dataset.query().count().unwrap(), 15, "{maintenance}, {cut}");
                let found = dataset.query().filter(field("n").eq(1)).count().unwrap();
                assert_eq!(found, 5, "{maintenance}, {cut}");
                dataset.expire_now().unwrap();
            }
            let mut changes = dataset.changes(from).unwrap();
            let mut expired = Vec::new();
            while let Some(change) = changes.next().unwrap() {
                assert_eq!(change.kind(), ChangeKind::Expired);
                expired.push(change.key().to_string().parse::<u64>().unwrap());
            }
            assert_eq!(expired, (0..15).collect::<Vec<_>>(), "{maintenance}, {cut}");
            check(&db);
        }
    }
}

/// A clock that jumps by more than a day is not trusted: reads follow it, but nothing is deleted
/// until it is confirmed.
#[test]
fn a_clock_that_is_not_believed_deletes_nothing() {
    let (memory, hand) = (Memory::new(), TestClock::new(START));
    let db = open(&memory, &hand);
    let def = DatasetDef::new(path("id"), KeyType::Int).ttl(Duration::from_secs(1));
    let dataset = db.create_dataset::<Key>("d", def).unwrap();
    dataset.put_json(r#"{"id":1}"#).unwrap();
    assert_eq!(dataset.query().count().unwrap(), 1);
    hand.add(30 * 24 * 60 * 60 * 1000);
    assert_eq!(dataset.query().count().unwrap(), 0);
    assert_eq!(dataset.expire_now().unwrap(), 0);
    hand.set(START + 10);
    assert_eq!(dataset.query().count().unwrap(), 1);
    hand.add(30 * 24 * 60 * 60 * 1000);
    db.confirm_time().unwrap();
    assert_eq!(dataset.expire_now().unwrap(), 1);
    hand.set(START + 10);
    assert_eq!(dataset.query().count().unwrap(), 0);
}

/// In a dataset with versions, an expired version is a deletion, by key and by value; a named
/// snapshot keeps its content.
#[test]
fn a_version_that_has_expired_is_a_deletion() {
    let (memory, hand) = (Memory::new(), TestClock::new(START));
    let db = open(&memory, &hand);
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("n"), Index::new(IndexKind::Lazy).of_type(Type::Int))
        .expires_at(path("until"))
        .maintenance(Maintenance::Deferred)
        .versions(3);
    let dataset = db.create_dataset::<Key>("d", def).unwrap();
    let until = |after: u64| (START + after) / 1000;
    dataset.put_json(r#"{"id":1,"n":1}"#).unwrap();
    dataset
        .put_json(format!(r#"{{"id":1,"n":1,"until":{}}}"#, until(2000)))
        .unwrap();
    dataset
        .put_json(format!(r#"{{"id":1,"n":1,"until":{}}}"#, until(4000)))
        .unwrap();
    let key = dataset.parse_key("1").unwrap();
    db.keep_snapshot("all").unwrap();
    for (time, wanted) in [(0, 3), (2000, 1), (3000, 1), (4000, 0)] {
        hand.set(START + time);
        let by_key = dataset.versions(&key).latest(9).read().unwrap();
        assert_eq!(by_key.len(), wanted, "{time}");
        let by_value = dataset
            .versions_with(path("n"), "1")
            .latest(9)
            .limit(9)
            .read()
            .unwrap();
        assert_eq!(by_value.records, by_key, "{time}");
        assert_eq!(dataset.get(&key).unwrap().as_ref(), by_key.first());
        db.flush().unwrap();
    }
    assert_eq!(dataset.expire_now().unwrap(), 1);
    let kept = db
        .kept_snapshot("all")
        .unwrap()
        .dataset::<Key>("d")
        .unwrap();
    assert_eq!(kept.versions(&key).latest(9).read().unwrap().len(), 3);
    check(&db);
}
