//! Time: the clock of a run, which also steps back and jumps, the time of each store, and expiring
//! records. The model keeps an expired record until the store deletes it, which may happen at any
//! time; reads do not show it meanwhile.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use esker::{Database, DatasetDef, ErrorKind};
use esker_lsm::{Cursor, Kind, Snapshot};
use esker_model::record::RecordRef;

use crate::action::{TTLS, UNTIL, pick};
use crate::model::{Entry, K, Records};
use crate::runner::count;
use crate::world::{Set, State, Store, Uid, World};

/// The start of a run's clock.
pub(crate) const START: u64 = 1_700_000_000_000;

/// A store does not believe a clock that is further ahead.
const BELIEVED: u64 = 24 * 60 * 60 * 1000;

/// The times of a store.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    /// The latest time that the store believed.
    kept: u64,
    /// The latest time by which the store may have deleted records: also before a power cut, which
    /// may make the store forget it.
    latest: u64,
    /// Records that expired up to this time were seen as expired, and must stay so.
    seen: u64,
}

impl Times {
    fn advance(&mut self, clock: u64) {
        if clock > self.kept && (self.kept == 0 || clock - self.kept <= BELIEVED) {
            self.keep(clock);
        }
    }

    fn keep(&mut self, time: u64) {
        self.kept = self.kept.max(time);
        self.latest = self.latest.max(self.kept);
    }

    /// The time that reads use.
    pub(crate) fn read(&self, clock: u64) -> u64 {
        self.kept.max(clock)
    }

    /// True if the store may have deleted the record as expired.
    fn may_be_gone(&self, expires: Option<u64>) -> bool {
        expires.is_some_and(|expires| expires <= self.latest)
    }

    /// The times of a copy that others can see.
    pub(crate) fn of_a_copy(&self) -> Times {
        Times {
            kept: 0,
            latest: self.latest,
            seen: 0,
        }
    }
}

/// The deletions of expired records: the dataset, the record and its write, and the number of the
/// deletion if it is known.
pub(crate) type Acted = BTreeMap<(Uid, K, u64), Option<u64>>;

/// By encoded key: the write, the expiry time and the body of the record.
type Raw = BTreeMap<Vec<u8>, (u64, Option<u64>, Option<Vec<u8>>)>;

/// The expiry time of a record that is written now.
pub(crate) fn expires(def: &DatasetDef, until: Option<u64>, now: u64) -> Option<u64> {
    let until = until.filter(|_| def.expiry.path.is_some());
    let after = def.expiry.ttl.map(|ttl| now + ttl.as_millis() as u64);
    until.into_iter().chain(after).min()
}

/// The expiry time in a record, by the number in its write.
pub(crate) fn until(number: u8, now: u64) -> Option<u64> {
    let until = number.checked_sub(1)?;
    Some(now.saturating_add_signed(pick(&UNTIL, until)))
}

impl Store {
    /// Records of the store may expire.
    pub(crate) fn is_timed(&self) -> bool {
        self.sets.iter().any(|set| set.is_timed)
    }

    pub(crate) fn time(&self) -> u64 {
        self.times.read(self.hand.get())
    }

    fn raw(&self, snapshot: &Snapshot, set: &Set) -> esker::Result<Option<Raw>> {
        let name = format!("{}/data", set.name);
        let Some(tree) = snapshot.version().tree_named(&name) else {
            return Ok(None);
        };
        let mut cursor = snapshot.cursor(tree.id, 0);
        cursor.seek_first()?;
        let mut raw = Raw::new();
        while cursor.valid() {
            let value = cursor.value();
            // A stub has no body: its record is in another tree.
            let body = RecordRef::body_of(value).filter(|body| !body.is_empty());
            let body = body.map(<[u8]>::to_vec);
            let entry = (cursor.seq(), RecordRef::expiry_of(value), body);
            raw.insert(cursor.key().to_vec(), entry);
            cursor.next()?;
        }
        Ok(Some(raw))
    }

    /// True if a dataset has these records, each by the same write, except for some that have
    /// expired.
    pub(crate) fn holds_stored(
        &self,
        db: &Database,
        set: &Set,
        records: &Records,
    ) -> esker::Result<bool> {
        let snapshot = db.group().snapshot();
        let Some(mut raw) = self.raw(&snapshot, set)? else {
            return Ok(false);
        };
        let mut times = self.times;
        times.advance(self.hand.get());
        let dataset = db.dataset::<esker::Key>(&set.name)?;
        for (key, seq, row) in records.stored() {
            let key = dataset.parse_key(&key.to_string())?;
            let is = match raw.remove(key.as_bytes()) {
                Some((found, expires, body)) => {
                    let same = (found, expires) == (seq, row.expires);
                    same && body.is_none_or(|body| body == row.put.body.as_bytes())
                }
                None => times.may_be_gone(row.expires),
            };
            if !is {
                return Ok(false);
            }
        }
        Ok(raw.is_empty())
    }

    /// After an opening: adopts the time of the store, and checks it.
    pub(crate) fn adopt_time(&mut self, after_fault: bool) {
        let Some(db) = &self.db else { return };
        let (clock, group) = (self.hand.get(), db.group());
        let (time, kept) = (group.time(), group.believed_time());
        let before = self.times;
        self.times.kept = 0;
        self.times.keep(kept);
        assert!(
            before.latest == 0 || kept <= before.latest.max(clock),
            "the time {kept}"
        );
        assert_eq!(time, self.times.read(clock), "the time of reads");
        if kept < before.kept {
            count("time: went back");
        }
        if after_fault {
            self.times.seen = 0;
        } else {
            assert!(kept >= before.seen, "what has expired is back")
        }
    }

    /// Advances the store's time to the clock.
    fn notice_time(&mut self) {
        let clock = self.hand.get();
        let Some(db) = &self.db else {
            // Background work of a closed store may still notice the time and write it down.
            let mut times = self.times;
            times.advance(clock);
            self.times.latest = times.latest;
            return;
        };
        let group = db.group();
        self.times.advance(clock);
        assert_eq!(group.time(), self.times.read(clock), "the time of reads");
        assert_eq!(group.believed_time(), self.times.kept, "the time of deeds");
    }

    /// A store with these times must not show records that were seen as expired.
    pub(crate) fn compare_time(&self, db: &Database) {
        let time = db.group().time();
        assert!(time >= self.times.seen, "a reader is behind: {time}");
    }

    /// Notes that the expired ones of these records were seen as expired.
    pub(crate) fn saw_expired(&mut self, records: &Records) {
        let expired = records.stored().filter_map(|(_, _, row)| row.expires);
        let expired = expired.filter(|expires| *expires <= self.times.kept).max();
        self.times.seen = self.times.seen.max(expired.unwrap_or(0));
    }
}

impl World {
    pub(crate) fn tick(&mut self, at: usize, millis: i32, confirm: bool) {
        self.hand.step(i64::from(millis));
        for store in &mut self.stores {
            store.notice_time();
        }
        if confirm && self.stores[at].db.is_some() {
            self.on_store(at, false, &[], Database::confirm_time);
            let clock = self.hand.get();
            let store = &mut self.stores[at];
            store.times.keep(clock);
            store.notice_time();
        }
    }

    /// Deletes expired records.
    pub(crate) fn expire(&mut self, at: usize, set: usize) {
        let store = &self.stores[at];
        let set = &store.sets[set];
        let records = store.records(set.uid);
        let kept = store.times.kept;
        let due = records
            .stored()
            .filter(|(_, _, row)| row.expires.is_some_and(|expires| expires <= kept));
        let due = due.count() as u64;
        let result = store.handle(&set.name).unwrap().expire_now();
        let inside = self.depth > 0;
        let allowed: &[ErrorKind] = if inside { &[ErrorKind::Busy] } else { &[] };
        if let Some(expired) = self.decide(at, result, allowed) {
            assert_eq!(expired, due, "records that expired");
        }
    }

    pub(crate) fn set_ttl(&mut self, at: usize, set: usize, ttl: u8) {
        let before = self.stores[at].last_seq();
        let set = &mut self.stores[at].sets[set];
        let (uid, name) = (set.uid, set.name.clone());
        let ttl = match ttl {
            0 => None,
            number => Some(Duration::from_millis(pick(&TTLS, number - 1))),
        };
        set.is_timed |= ttl.is_some();
        let dataset = self.stores[at].handle(&name).unwrap();
        let result = dataset.set_ttl(ttl);
        let allowed: &[ErrorKind] = if self.depth > 0 {
            &[ErrorKind::Busy]
        } else {
            &[]
        };
        let failed = result.is_err() && self.stores[at].excused;
        let done = self.decide(at, result, allowed).is_some();
        let store = &mut self.stores[at];
        let set = store.sets.iter_mut().find(|set| set.uid == uid).unwrap();
        set.doubt |= failed;
        if done && set.def.expiry.ttl != ttl {
            set.def.expiry.ttl = ttl;
            store.told = before;
        }
    }

    /// Finds the expired records that the stores have deleted, after each step.
    pub(crate) fn note_expired(&mut self) {
        for at in 0..self.stores.len() {
            self.note_expired_in(at);
        }
    }

    pub(crate) fn note_expired_in(&mut self, at: usize) {
        let store = &self.stores[at];
        let Some(db) = store.db.clone().filter(|_| store.is_timed()) else {
            return;
        };
        let gone = store.find_gone(&db);
        drop(db);
        let gone = self.decide(at, gone, &[]);
        let store = &mut self.stores[at];
        store.is_unsure = gone.is_none();
        let Some((seq, gone)) = gone else { return };
        // All deletions so far are known now, so times that the store may have forgotten no longer
        // matter.
        store.times.latest = store.times.kept;
        if gone.is_empty() {
            // The store may have removed expiry entries in commits of its own.
            let now = store.states.last_mut().unwrap();
            assert!(seq >= now.seq, "write {seq} is the last");
            now.seq = seq;
            return;
        }
        count("expiry: acted on");
        let mut state = store.now().clone();
        state.seq = seq;
        for ((uid, key, old), deletion) in gone {
            let set = store.sets.iter_mut().find(|set| set.uid == uid).unwrap();
            let records = state.records.entry(uid).or_default();
            let entry = Entry {
                seq: deletion.unwrap_or(seq),
                row: None,
            };
            Rc::make_mut(records).write(key.clone(), entry, set.kept());
            if let Some(deletion) = deletion {
                set.known.over(vec![(old, deletion)]);
            }
            store.acted.insert((uid, key, old), deletion);
        }
        store.states.push(state);
    }
}

impl Store {
    /// An expired record that is missing may have been deleted by a batch that had failed, and was
    /// in the log: then the feed does not say that it expired. `known` are the deletions that were
    /// known before.
    pub(crate) fn doubt_deletions(&mut self, known: &Acted, attempts: &[State]) {
        for (at @ (uid, key, _), by) in &mut self.acted {
            let deletes = |state: &State| {
                let records = state.records.get(uid);
                records.is_some_and(|records| records.current(key).is_none())
            };
            if !known.contains_key(at) && attempts.iter().any(deletes) {
                *by = None;
            }
        }
    }

    /// The last write number, and the records that are missing because they expired; all others
    /// must be there.
    fn find_gone(&self, db: &Database) -> esker::Result<(u64, Acted)> {
        let snapshot = db.group().snapshot();
        let mut gone = Acted::new();
        for set in self.sets.iter().filter(|set| set.is_timed) {
            let Some(mut raw) = self.raw(&snapshot, set)? else {
                continue;
            };
            let dataset = db.dataset::<esker::Key>(&set.name)?;
            let tree = snapshot.version().tree_named(&format!("{}/data", set.name));
            let tree = tree.map(|tree| tree.id).unwrap();
            for (key, seq, row) in self.records(set.uid).stored() {
                let api = dataset.parse_key(&key.to_string())?;
                if let Some((found, expires, _)) = raw.remove(api.as_bytes()) {
                    assert_eq!(found, seq, "the write of {key}");
                    assert_eq!(expires, row.expires, "when {key} expires");
                    continue;
                }
                assert!(
                    self.times.may_be_gone(row.expires),
                    "{key} is gone, and expires {:?}",
                    row.expires
                );
                let newest = snapshot.walk(tree, api.as_bytes()).next_entry()?;
                let deletion = newest.filter(|newest| newest.kind == Kind::Delete);
                let deletion = deletion.map(|deletion| deletion.seq);
                gone.insert((set.uid, key.clone(), seq), deletion);
            }
            assert!(raw.is_empty(), "{} records too many", raw.len());
        }
        Ok((snapshot.seq(), gone))
    }
}
