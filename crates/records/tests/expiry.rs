//! Records that expire, against a model: nobody sees them from that moment on, by whatever kind of index, strategy and way of asking, whatever is done to the
//! store and whatever the clock does; and a feed gives each once, when that was acted on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{
    DIR, check, check_set, converge, keys_in_every_way, path, seeds, small, with_strategy,
};
use esker::fs::hooked::Hooked;
use esker::fs::memory::{Memory, PowerCut};
use esker::{
    BulkOrder, ChangeKind, Changes, Database, Dataset, DatasetDef, Durability, ErrorKind, Index,
    IndexKind, KeepLog, Key, KeyType, Maintenance, Options, Order, RepairOptions, Type, Update,
    field,
};

/// Where the clock begins: some day.
const START: u64 = 1_700_000_000_000;

/// A clock that tests set.
#[derive(Clone)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn new() -> Hand {
        Hand(Arc::new(AtomicU64::new(START)))
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn set(&self, time: u64) {
        self.0.store(time, Ordering::SeqCst);
    }

    fn add(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

fn open(memory: &Memory, hand: &Hand) -> Database {
    let hand = hand.clone();
    let options = Options {
        keep_log: KeepLog {
            bytes: u64::MAX,
            age: None,
        },
        clock: Arc::new(move || hand.get()),
        ..small(Arc::new(memory.clone()))
    };
    Database::create_or_open(FsPath::new(DIR), options).unwrap()
}

/// What was put, and is not deleted.
#[derive(Debug, Clone, PartialEq)]
struct Stored {
    body: String,
    n: i64,
    expires: Option<u64>,
    order: u64,
}

struct World {
    memory: Memory,
    hand: Hand,
    db: Database,
    dataset: Dataset,
    changes: Changes,
    /// By key, what has expired and was not acted on included.
    stored: BTreeMap<i64, Stored>,
    ttl: Option<u64>,
    /// The latest time.
    now: u64,
    order: u64,
    expired: u64,
}

impl World {
    fn new(def: DatasetDef) -> World {
        let (memory, hand) = (Memory::new(), Hand::new());
        let db = open(&memory, &hand);
        let ttl = def.expiry.ttl.map(|ttl| ttl.as_millis() as u64);
        let dataset = db.create_dataset::<Key>("d", def).unwrap();
        db.group().time();
        World {
            changes: dataset.changes(0).unwrap(),
            now: hand.get(),
            memory,
            hand,
            db,
            dataset,
            stored: BTreeMap::new(),
            ttl,
            order: 0,
            expired: 0,
        }
    }

    fn live(&self) -> impl Iterator<Item = (&i64, &Stored)> {
        let now = self.now;
        let lives = move |stored: &Stored| stored.expires.is_none_or(|expires| expires > now);
        self.stored.iter().filter(move |(_, stored)| lives(stored))
    }

    fn get(&self, id: i64) -> Option<Stored> {
        let found = self.live().find(|(key, _)| **key == id);
        found.map(|(_, stored)| stored.clone())
    }

    fn tick(&mut self, rng: &mut fastrand::Rng) {
        match rng.usize(0..8) {
            // A clock that is set back brings nothing back.
            0 => self.hand.set(self.hand.get() - rng.u64(1..5_000)),
            1 => self.hand.add(rng.u64(0..4_000)),
            2 => self.hand.add(1),
            _ => {}
        }
        self.now = self.now.max(self.hand.get());
        assert_eq!(self.db.group().time(), self.now);
    }

    /// A record, and when it expires.
    fn make(&mut self, id: i64, rng: &mut fastrand::Rng) -> (String, Stored) {
        let n = rng.i64(0..6);
        let at = match rng.usize(0..3) {
            0 => None,
            _ => Some((self.now + rng.u64(0..6_000)).saturating_sub(1_000)),
        };
        self.order += 1;
        let until = match at {
            Some(at) => format!(",\"until\":{}.{:03}", at / 1000, at % 1000),
            None if rng.bool() => ",\"until\":null".to_owned(),
            None => String::new(),
        };
        let body = format!("{{\"id\":{id},\"n\":{n},\"o\":{}{until}}}", self.order);
        let after = self.ttl.map(|ttl| self.now + ttl);
        let stored = Stored {
            body: body.clone(),
            n,
            expires: at.into_iter().chain(after).min(),
            order: self.order,
        };
        (body, stored)
    }

    fn write(&mut self, rng: &mut fastrand::Rng) {
        let id = rng.i64(0..40);
        let key = self.dataset.parse_key(&id.to_string()).unwrap();
        let (body, new) = self.make(id, rng);
        let there = self.get(id);
        let seen = self.dataset.get(&key).unwrap();
        let body_of = |record: &esker::Record| String::from_utf8(record.json().to_vec()).unwrap();
        assert_eq!(
            seen.as_ref().map(body_of),
            there.as_ref().map(|there| there.body.clone())
        );
        match rng.usize(0..8) {
            0 => {
                let was = self.dataset.delete(&key).unwrap();
                assert_eq!(
                    was.as_ref().map(body_of),
                    there.as_ref().map(|there| there.body.clone())
                );
                if was.is_some() {
                    self.stored.remove(&id);
                    self.skip(id, ChangeKind::Deleted);
                }
                return;
            }
            1 => match self.dataset.insert_json(body.as_bytes()) {
                Ok(()) => assert_eq!(there, None),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Exists);
                    assert!(there.is_some());
                    return;
                }
            },
            2 => {
                let was = self.dataset.update(&key, |old| {
                    assert_eq!(
                        old.map(body_of),
                        there.as_ref().map(|there| there.body.clone())
                    );
                    Update::Put(body.clone().into_bytes())
                });
                assert_eq!(was.unwrap().is_some(), there.is_some());
            }
            3 => {
                let mut batch = self.dataset.batch();
                batch.put_json(body.as_bytes()).unwrap();
                batch.if_absent(&key).unwrap();
                match batch.commit() {
                    Ok(()) => assert_eq!(there, None),
                    Err(error) => {
                        assert_eq!(error.conflict(), Some(&key));
                        assert!(there.is_some());
                        return;
                    }
                }
            }
            4 => {
                let mut batch = self.dataset.batch();
                batch.put_json(body.as_bytes()).unwrap();
                batch
                    .if_seq(&key, seen.as_ref().map_or(1, esker::Record::seq))
                    .unwrap();
                match batch.commit() {
                    Ok(()) => assert!(there.is_some()),
                    Err(error) => {
                        assert_eq!(error.conflict(), Some(&key));
                        assert_eq!(there, None);
                        return;
                    }
                }
            }
            _ => self.dataset.put_json(body.as_bytes()).unwrap(),
        }
        self.stored.insert(id, new);
        self.skip(id, ChangeKind::Put);
    }

    /// Reads the feed: the write that was just made, and what expired.
    fn skip(&mut self, id: i64, kind: ChangeKind) {
        let mut came = false;
        while let Some(change) = self.changes.next().unwrap() {
            let key: i64 = change.key().to_string().parse().unwrap();
            if change.kind() == ChangeKind::Expired {
                self.note_expired(key);
                assert_eq!(change.record(), None);
            } else {
                assert!(!came && key == id && change.kind() == kind, "{change:?}");
                came = true;
            }
        }
        assert!(came);
    }

    fn note_expired(&mut self, key: i64) {
        let stored = self.stored.remove(&key).unwrap();
        assert!(
            stored.expires.unwrap() <= self.now,
            "{stored:?} at {}",
            self.now
        );
        self.expired += 1;
    }

    /// Reads the feed, in which only expiries are left.
    fn read_feed(&mut self) -> u64 {
        let before = self.expired;
        while let Some(change) = self.changes.next().unwrap() {
            assert_eq!(change.kind(), ChangeKind::Expired, "{change:?}");
            self.note_expired(change.key().to_string().parse().unwrap());
        }
        self.expired - before
    }

    /// Everything that can be asked, against the model.
    fn ask(&self, rng: &mut fastrand::Rng) {
        let live: Vec<(i64, Stored)> = self.live().map(|(k, s)| (*k, s.clone())).collect();
        let query = || self.dataset.query();
        assert_eq!(query().count().unwrap(), live.len() as u64);
        let scanned = |reverse| {
            let scan = self.dataset.scan(..);
            let scan = if reverse { scan.rev() } else { scan };
            let keys = scan.map(|record| record.unwrap().key().to_string());
            keys.collect::<Vec<String>>()
        };
        let mut keys: Vec<String> = live.iter().map(|(key, _)| key.to_string()).collect();
        assert_eq!(scanned(false), keys);
        keys.reverse();
        assert_eq!(scanned(true), keys);
        let (lo, hi) = (rng.i64(0..6), rng.i64(0..6));
        let (lo, hi) = (lo.min(hi), lo.max(hi));
        let mut wanted: Vec<&(i64, Stored)> = live
            .iter()
            .filter(|(_, s)| (lo..=hi).contains(&s.n))
            .collect();
        wanted.sort_by_key(|(_, stored)| std::cmp::Reverse(stored.order));
        {
            let path = "n";
            let condition = || field(path).ge(lo) & field(path).le(hi);
            for (order, limit) in [
                (Order::Newest, None),
                (Order::Oldest, None),
                (Order::Newest, Some(3)),
            ] {
                let mut wanted: Vec<String> = wanted.iter().map(|(k, _)| k.to_string()).collect();
                if order == Order::Oldest {
                    wanted.reverse();
                }
                wanted.truncate(limit.unwrap_or(usize::MAX));
                let query = query().filter(condition()).order(order).limit(limit);
                assert_eq!(keys_in_every_way(&query), wanted);
            }
            let both = query().filter(condition() & field("o").ge(0));
            assert_eq!(both.count().unwrap(), wanted.len() as u64);
            let mut bulk = Vec::new();
            let all = query().filter(condition());
            all.visit(BulkOrder::Key, &mut |record| {
                bulk.push(record.key().to_string().parse::<i64>().unwrap());
                ControlFlow::Continue(())
            })
            .unwrap();
            let mut by_key: Vec<i64> = wanted.iter().map(|(key, _)| *key).collect();
            by_key.sort_unstable();
            assert_eq!(bulk, by_key);
            if lo == hi {
                let found = self
                    .dataset
                    .versions_with(common::path(path), lo.to_string())
                    .read();
                let found: Vec<String> = found
                    .unwrap()
                    .records
                    .iter()
                    .map(|r| r.key().to_string())
                    .collect();
                let wanted: Vec<String> = wanted.iter().map(|(k, _)| k.to_string()).collect();
                assert_eq!(found, wanted);
            }
        }
    }

    fn disturb(&mut self, rng: &mut fastrand::Rng) {
        match rng.usize(0..24) {
            0..4 => self.db.flush().unwrap(),
            4 | 5 => converge(&self.db),
            6 => self.db.compact(None).unwrap(),
            7 | 8 => {
                self.read_feed();
                let due = self.stored.len() - self.live().count();
                assert_eq!(self.dataset.expire_now().unwrap(), due as u64);
                assert_eq!(self.read_feed(), due as u64);
                assert_eq!(self.dataset.expire_now().unwrap(), 0);
            }
            9 => {
                self.read_feed();
                let from = self.changes.position();
                // Its place is taken, that nothing holds the store.
                let place = open(&Memory::new(), &self.hand);
                let def = DatasetDef::new(path("id"), KeyType::Int);
                self.dataset = place.create_dataset::<Key>("d", def).unwrap();
                self.changes = self.dataset.changes(0).unwrap();
                std::mem::replace(&mut self.db, place).close().unwrap();
                self.db = open(&self.memory, &self.hand);
                self.dataset = self.db.dataset::<Key>("d").unwrap();
                self.changes = self.dataset.changes(from).unwrap();
            }
            10 => {
                self.ttl = rng.bool().then(|| rng.u64(1..4_000));
                self.dataset
                    .set_ttl(self.ttl.map(Duration::from_millis))
                    .unwrap();
                let ttl = self.dataset.def().expiry.ttl;
                assert_eq!(ttl.map(|ttl| ttl.as_millis() as u64), self.ttl);
            }
            11 => {
                let to = Maintenance::ALL[rng.usize(0..Maintenance::ALL.len())];
                // Not of a dataset with staged repair.
                let _ = self.dataset.set_maintenance(to).run();
            }
            12 => {
                let (options, mut on) = (RepairOptions::default(), |_| ControlFlow::Continue(()));
                self.dataset
                    .repair(&options)
                    .on_progress(&mut on)
                    .run()
                    .unwrap();
            }
            13 => {
                let to = IndexKind::ALL[rng.usize(0..IndexKind::ALL.len())];
                let mut on = |_| ControlFlow::Continue(());
                let _ = self
                    .dataset
                    .switch_index(path("n"), to)
                    .on_progress(&mut on)
                    .run();
            }
            14 => {
                check(&self.db);
                check_set(&self.db);
            }
            _ => {}
        }
        self.read_feed();
    }
}

#[test]
fn nobody_sees_what_has_expired_by_any_kind_and_strategy() {
    let mut expired = 0;
    for seed in seeds(48) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = IndexKind::ALL[seed as usize % IndexKind::ALL.len()];
        let def = DatasetDef::new(path("id"), KeyType::Int)
            .index(path("n"), Index::new(kind).of_type(Type::Int))
            .expires_at(path("until"));
        let def = with_strategy(def, seed as usize / IndexKind::ALL.len());
        let mut world = World::new(match rng.bool() {
            true => def.ttl(Duration::from_millis(rng.u64(1..5_000))),
            false => def,
        });
        for _ in 0..250 {
            world.tick(&mut rng);
            world.write(&mut rng);
            world.disturb(&mut rng);
            if rng.usize(0..3) == 0 {
                world.ask(&mut rng);
            }
            // A picture of before sees what it saw.
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

/// A power cut at each call of acting on expiry, and of what comes behind: nobody sees what had expired, and a feed gives each once.
#[test]
fn acting_on_expiry_can_be_cut_off_anywhere() {
    for maintenance in Maintenance::ALL {
        for cut in 0.. {
            let (memory, hand) = (Memory::new(), Hand::new());
            let hooked = Hooked::new(Arc::new(memory.clone()));
            let clock = hand.clone();
            let options = Options {
                fs: Arc::new(hooked.clone()),
                durability: Durability::Sync,
                keep_log: KeepLog {
                    bytes: u64::MAX,
                    age: None,
                },
                clock: Arc::new(move || clock.get()),
                ..small(Arc::new(memory.clone()))
            };
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
            // Of these the earlier write has nothing to expire any more.
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

/// A clock that jumps by more than a day is not believed: reads go by it, and nothing is deleted before somebody confirms it.
#[test]
fn a_clock_that_is_not_believed_deletes_nothing() {
    let (memory, hand) = (Memory::new(), Hand::new());
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

/// Of a dataset that keeps versions one that has expired is a deletion, by key and by value; a snapshot that is kept under a name sees what it saw.
#[test]
fn a_version_that_has_expired_is_a_deletion() {
    let (memory, hand) = (Memory::new(), Hand::new());
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
