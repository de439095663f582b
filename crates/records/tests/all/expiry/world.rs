//! A dataset of expiring records, beside its model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::Duration;

use esker::maintain::RepairOptions;
use esker::options::KeepLog;
use esker::schema::Maintenance;
use esker::{
    ChangeKind, Changes, Database, Dataset, DatasetDef, DatasetSnapshot, ErrorKind, IndexKind, Key,
    KeyType, Order, Update, field,
};
use esker_sim::clock::TestClock;
use esker_sim::memory::Memory;

use crate::common::{self, DIR, check, check_set, converge, keys_in_every_way, path, small};

/// The initial time of the clock: an arbitrary day.
pub(super) const START: u64 = 1_700_000_000_000;

pub(super) fn open(memory: &Memory, hand: &TestClock) -> Database {
    let options = small(Arc::new(memory.clone()))
        .keep_log(KeepLog {
            bytes: u64::MAX,
            age: None,
        })
        .clock(hand.function());
    Database::create_or_open(FsPath::new(DIR), options).unwrap()
}

/// A record that was put and is not deleted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    pub(super) body: String,
    pub(super) n: i64,
    pub(super) expires: Option<u64>,
    pub(super) order: u64,
}

pub(super) struct World {
    pub(super) memory: Memory,
    pub(super) hand: TestClock,
    pub(super) db: Database,
    pub(super) dataset: Dataset,
    pub(super) changes: Changes,
    /// By key, including expired records that are not deleted yet.
    pub(super) stored: BTreeMap<i64, Stored>,
    pub(super) ttl: Option<u64>,
    /// The latest time seen.
    pub(super) now: u64,
    /// The latest expiry that was deleted or hidden by a read; no later handle may use an earlier
    /// time.
    pub(super) hidden: u64,
    pub(super) order: u64,
    pub(super) expired: u64,
}

impl World {
    pub(super) fn new(def: DatasetDef) -> World {
        let (memory, hand) = (Memory::new(), TestClock::new(START));
        let db = open(&memory, &hand);
        let ttl = def.expiry.ttl.map(|ttl| ttl.as_millis() as u64);
        let dataset = db.create_dataset::<Key>("d", def).unwrap();
        db.group().time();
        World {
            changes: dataset.changes(0).unwrap(),
            now: hand.get(),
            hidden: 0,
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

    pub(super) fn live(&self) -> impl Iterator<Item = (&i64, &Stored)> {
        let now = self.now;
        let lives = move |stored: &Stored| stored.expires.is_none_or(|expires| expires > now);
        self.stored.iter().filter(move |(_, stored)| lives(stored))
    }

    pub(super) fn get(&self, id: i64) -> Option<Stored> {
        let found = self.live().find(|(key, _)| **key == id);
        found.map(|(_, stored)| stored.clone())
    }

    pub(super) fn tick(&mut self, rng: &mut fastrand::Rng) {
        match rng.usize(0..8) {
            // Setting the clock back does not bring a record back.
            0 => self.hand.set(self.hand.get() - rng.u64(1..5_000)),
            1 => self.hand.add(rng.u64(0..4_000)),
            2 => self.hand.add(1),
            _ => {}
        }
        self.now = self.now.max(self.hand.get());
        assert_eq!(self.db.group().time(), self.now);
    }

    /// A record, and its expiry time.
    pub(super) fn make(&mut self, id: i64, rng: &mut fastrand::Rng) -> (String, Stored) {
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

    pub(super) fn write(&mut self, rng: &mut fastrand::Rng) {
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

    /// Reads the feed: the last write, and expiries.
    pub(super) fn skip(&mut self, id: i64, kind: ChangeKind) {
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

    pub(super) fn note_expired(&mut self, key: i64) {
        let stored = self.stored.remove(&key).unwrap();
        assert!(
            stored.expires.unwrap() <= self.now,
            "{stored:?} at {}",
            self.now
        );
        self.expired += 1;
        self.hidden = self.hidden.max(stored.expires.unwrap());
    }

    /// Reads the feed, which has only expiries left.
    pub(super) fn read_feed(&mut self) -> u64 {
        let before = self.expired;
        while let Some(change) = self.changes.next().unwrap() {
            assert_eq!(change.kind(), ChangeKind::Expired, "{change:?}");
            self.note_expired(change.key().to_string().parse().unwrap());
        }
        self.expired - before
    }

    /// Compares all queries with the model.
    pub(super) fn ask(&mut self, rng: &mut fastrand::Rng) {
        let live: Live = self.live().map(|(k, s)| (*k, s.clone())).collect();
        ask(&self.dataset.snapshot(), &live, rng);
        let expired = self.stored.values().filter_map(|stored| stored.expires);
        let expired = expired.filter(|expires| *expires <= self.now).max();
        self.hidden = self.hidden.max(expired.unwrap_or(0));
    }

    pub(super) fn disturb(&mut self, rng: &mut fastrand::Rng) {
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
                // Another store takes its place for now, so that no handle keeps the store open.
                let place = open(&Memory::new(), &self.hand);
                let def = DatasetDef::new(path("id"), KeyType::Int);
                self.dataset = place.create_dataset::<Key>("d", def).unwrap();
                self.changes = self.dataset.changes(0).unwrap();
                std::mem::replace(&mut self.db, place).close().unwrap();
                self.db = open(&self.memory, &self.hand);
                self.dataset = self.db.dataset::<Key>("d").unwrap();
                self.changes = self.dataset.changes(from).unwrap();
                // If no expired record was hidden, none could come back.
                let time = self.db.group().time();
                assert!((self.hidden..=self.now).contains(&time), "{time}");
                self.now = time;
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
                // Refused for staged repair.
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

/// The expected records, by key.
pub(super) type Live = Vec<(i64, Stored)>;

/// Compares all queries with the live records `live`.
pub(super) fn ask(dataset: &DatasetSnapshot, live: &Live, rng: &mut fastrand::Rng) {
    let query = || dataset.query();
    assert_eq!(query().count().unwrap(), live.len() as u64);
    let scanned = |reverse| {
        let scan = dataset.scan(..);
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
            let query = query()
                .filter(condition())
                .order(order.clone())
                .limit(limit);
            assert_eq!(keys_in_every_way(&query), wanted);
        }
        let both = query().filter(condition() & field("o").ge(0));
        assert_eq!(both.count().unwrap(), wanted.len() as u64);
        let mut bulk = Vec::new();
        let all = query().filter(condition());
        all.order(Order::Key)
            .visit(&mut |record| {
                bulk.push(record.key().to_string().parse::<i64>().unwrap());
                ControlFlow::Continue(())
            })
            .unwrap();
        let mut by_key: Vec<i64> = wanted.iter().map(|(key, _)| *key).collect();
        by_key.sort_unstable();
        assert_eq!(bulk, by_key);
        if lo == hi {
            let found = dataset
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
