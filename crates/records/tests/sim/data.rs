//! Actions on data: batches, committed at once or later, and backups.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use esker::schema::{Expiry, Maintenance};
use esker::{Database, Dataset, Durability, ErrorKind, WriteBatch};
use esker_sim::hooked::Call;
use parking_lot::Mutex;

use crate::action::{UNTIL_SHIFT, Write};
use crate::model::{Entry, K, Records, Row, key, row};
use crate::over::Filled;
use crate::runner::count;
use crate::time;
use crate::unique::{Clash, is_refusal};
use crate::world::{MOST_STORES, State, Store, Uid, World};

/// A batch that waits for its commit, with its effects.
pub(crate) struct Prepared {
    pub(crate) store: u64,
    pub(crate) batch: WriteBatch,
    pub(crate) effects: Effects,
}

/// A batch that is committed while a backup is made.
pub(crate) struct During {
    /// The number of the call at which it is committed.
    pub(crate) call: u64,
    pub(crate) batch: WriteBatch,
    pub(crate) effects: Effects,
    pub(crate) known: bool,
    pub(crate) flush: bool,
}

/// The result of a commit, the last visible write number before and after it, and the first number
/// that it could get.
struct Committed {
    last: u64,
    /// Not `last` + 1 if a power cut took numbers that were visible.
    first: u64,
    now: u64,
    result: esker::Result<()>,
}

fn commit_to(db: &Database, batch: &mut dyn Filled, durability: Durability) -> Committed {
    let last = db.group().snapshot().seq();
    let first = db.group().latest().seq() + 1;
    let result = batch.commit_as(durability);
    let now = db.group().snapshot().seq();
    Committed {
        last,
        first,
        now,
        result,
    }
}

/// The effects of a batch on a dataset: keys with their records, and keys that must be new.
#[derive(Default, Clone)]
pub(crate) struct Effects {
    pub(crate) uid: Uid,
    /// The expiry settings and the time when the batch was made.
    expiry: Expiry,
    time: u64,
    /// Made under a strategy that reads the replaced records.
    looks: bool,
    writes: Vec<(K, Option<Rc<Row>>)>,
    inserts: Vec<K>,
    /// Keys, and the write number that each must have.
    expected: Vec<(K, Option<u64>)>,
    notes: Vec<(String, Option<Vec<u8>>)>,
}

impl Effects {
    /// Applies the writes to records, without the numbers that the store gives them; returns the
    /// written keys.
    pub(crate) fn write_to(&self, records: &mut Records) -> BTreeSet<&K> {
        for (key, row) in &self.writes {
            let row = row.clone();
            records.write(key.clone(), Entry { seq: 0, row }, 1);
        }
        self.writes.iter().map(|(key, _)| key).collect()
    }

    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.notes.is_empty()
    }
}

impl Store {
    /// True if the batch would have the same effects if it were made now.
    pub(crate) fn is_as_prepared(&self, effects: &Effects) -> bool {
        let set = self.sets.iter().find(|set| set.uid == effects.uid);
        set.is_some_and(|set| {
            let same = set.def.expiry == effects.expiry;
            same && (effects.expiry.ttl.is_none() || self.time() == effects.time)
        })
    }

    /// True if an insert of the batch has an existing key.
    fn refuses(&self, part: &Effects) -> bool {
        let before = self.records(part.uid).at(self.time());
        let mut inserted = BTreeSet::new();
        let mut inserts = part.inserts.iter();
        inserts.any(|key| before.current(key).is_some() || !inserted.insert(key))
    }

    /// The keys that do not have the expected write.
    fn unexpected(&self, part: &Effects) -> Vec<String> {
        let before = self.records(part.uid).at(self.time());
        let differs =
            |(key, seq): &&(K, Option<u64>)| before.current(key).map(|(seq, _)| seq) != *seq;
        let unexpected = part.expected.iter().filter(differs);
        unexpected.map(|(key, _)| key.to_string()).collect()
    }

    /// Applies a batch to a state; returns the replaced writes, each with the write that replaced
    /// it.
    fn apply(&self, part: &Effects, state: &mut State, next: &mut u64) -> Vec<(u64, u64)> {
        let set = self.sets.iter().find(|set| set.uid == part.uid).unwrap();
        let mut over = Vec::new();
        // Strategies that read the replaced records write only the last version of a key.
        let looks = part.looks || looks(set.def.maintenance);
        let last_of = |at: usize, key: &K| {
            let later = &part.writes[at + 1..];
            !looks || !later.iter().any(|(other, _)| other == key)
        };
        let records = Rc::make_mut(state.records.entry(part.uid).or_default());
        for (at, (key, row)) in part.writes.iter().enumerate() {
            if !last_of(at, key) {
                continue;
            }
            let seq = *next;
            *next += 1;
            if let Some((old, _)) = records.current(key) {
                over.push((old, seq));
            }
            let row = row.clone();
            records.write(key.clone(), Entry { seq, row }, set.kept());
        }
        for (name, value) in &part.notes {
            match value {
                Some(value) => records.notes.insert(name.clone(), value.clone()),
                None => records.notes.remove(name),
            };
        }
        over
    }
}

impl World {
    /// A batch of a dataset, and its effects.
    pub(crate) fn fill(
        &mut self,
        at: usize,
        set: usize,
        writes: &[Write],
    ) -> (WriteBatch, Effects) {
        let store = &self.stores[at];
        let dataset = store.handle(&store.sets[set].name).unwrap();
        let mut batch = dataset.batch();
        let effects = self.fill_in(at, set, writes, &dataset, &mut batch);
        (batch, effects)
    }

    /// Adds writes to a batch.
    pub(crate) fn fill_in(
        &mut self,
        at: usize,
        set: usize,
        writes: &[Write],
        dataset: &Dataset,
        batch: &mut dyn Filled,
    ) -> Effects {
        let store = &self.stores[at];
        let set = store.sets[set].clone();
        let records = store.records(set.uid);
        let mut effects = Effects {
            uid: set.uid,
            looks: looks(set.def.maintenance),
            expiry: set.def.expiry.clone(),
            time: store.time(),
            ..Effects::default()
        };
        let seen = records.at(effects.time);
        for write in writes {
            match write {
                Write::Put {
                    key: number,
                    cells,
                    pad,
                    style,
                }
                | Write::Insert {
                    key: number,
                    cells,
                    pad,
                    style,
                } => {
                    let key = key(set.key_type, *number);
                    let old = records.current(&key).map(|(_, row)| row.as_ref());
                    let number = self.next_number();
                    let until = time::until(style >> UNTIL_SHIFT, effects.time);
                    let shape = (*pad, *style, until);
                    let mut row = row(&key, &set.types, cells, shape, old, number);
                    row.expires = time::expires(&set.def, until, effects.time);
                    let insert = matches!(write, Write::Insert { .. });
                    batch.put(row.put.body.as_bytes(), insert).unwrap();
                    if insert {
                        effects.inserts.push(key.clone());
                    }
                    effects.writes.push((key, Some(Rc::new(row))));
                }
                Write::Delete { key: number } => {
                    let key = key(set.key_type, *number);
                    let api = dataset.parse_key(&key.to_string()).unwrap();
                    batch.delete(&api).unwrap();
                    effects.writes.push((key, None));
                }
                Write::Expect { key: number, what } => {
                    let key = key(set.key_type, *number);
                    let api = dataset.parse_key(&key.to_string()).unwrap();
                    let seq = match what {
                        0 => None,
                        1 => Some(7),
                        _ => seen.current(&key).map(|(seq, _)| seq),
                    };
                    batch.expect(&api, seq).unwrap();
                    effects.expected.push((key, seq));
                }
                Write::Note { name, value } => {
                    let name = format!("n{}", name % 3);
                    let value = value.checked_sub(1).map(|value| vec![value; 3]);
                    // The first note of a dataset creates a tree.
                    let Some(noted) = batch.note(&name, value.as_deref()) else {
                        continue;
                    };
                    let allowed: &[ErrorKind] = match self.depth {
                        0 => &[],
                        _ => &[ErrorKind::Busy],
                    };
                    if self.decide(at, noted, allowed).is_some() {
                        effects.notes.push((name, value));
                    }
                }
                Write::Refused { which } => {
                    let bad = ["{\"id\": ", "[1]", "{}", "{\"id\": null}", "\u{1}"];
                    let bad = bad[usize::from(*which) % bad.len()];
                    let len = batch.len();
                    let error = batch.put(bad.as_bytes(), false).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::BadInput);
                    assert_eq!(batch.len(), len);
                }
            }
        }
        effects
    }

    pub(crate) fn commit(
        &mut self,
        at: usize,
        batch: &mut dyn Filled,
        effects: &[Effects],
        durability: u8,
    ) {
        let durability = match durability {
            0 => Durability::Sync,
            1 => Durability::Periodic(Duration::from_millis(10)),
            _ => Durability::Os,
        };
        let db = self.stores[at].db.clone().unwrap();
        let committed = commit_to(&db, batch, durability);
        drop(db);
        self.committed(at, effects, durability, committed);
    }

    /// Compares the result of a commit with the expected effects: all parts of the batch, or
    /// nothing.
    fn committed(
        &mut self,
        at: usize,
        parts: &[Effects],
        durability: Durability,
        committed: Committed,
    ) {
        let Committed {
            last,
            first,
            now,
            result,
        } = committed;
        let clash = parts.iter().map(|part| self.stores[at].clash(part)).max();
        let clash = clash.unwrap_or(Clash::No);
        if clash == Clash::Must || clash == Clash::May && is_refusal(&result) {
            count("batch: not unique");
            assert_eq!(now, last, "a refused batch takes no numbers");
            let kinds = [ErrorKind::NotUnique, ErrorKind::Exists, ErrorKind::Conflict];
            let done = self.decide(at, result, &kinds);
            assert!(done.is_none(), "two records share a value");
            return;
        }
        let store = &self.stores[at];
        // The records at the commit decide, not those when the batch was made.
        let refused = parts.iter().any(|part| store.refuses(part));
        let unexpected: Vec<String> = parts
            .iter()
            .flat_map(|part| store.unexpected(part))
            .collect();
        if !unexpected.is_empty() {
            assert_eq!(now, last, "a refused batch takes no numbers");
            if let Err(error) = &result
                && let Some(key) = error.conflict()
            {
                assert!(unexpected.contains(&key.to_string()), "{error}");
                count("batch: not as expected");
            }
            let kinds = [ErrorKind::Conflict, ErrorKind::Exists];
            let kinds = &kinds[..1 + usize::from(refused)];
            let done = self.decide(at, result, kinds);
            assert!(done.is_none(), "{unexpected:?} are not as expected");
            return;
        }
        if parts.iter().any(|part| !part.expected.is_empty()) {
            count("batch: as expected");
        }
        if refused {
            assert_eq!(now, last, "a refused batch takes no numbers");
            let done = self.decide(at, result, &[ErrorKind::Exists]);
            assert!(done.is_none(), "an insert of a key that is there");
            return;
        }
        let acknowledged = self.decide(at, result, &[]).is_some();
        if parts.iter().all(Effects::is_empty) {
            return;
        }
        let store = &mut self.stores[at];
        let mut state = store.now().clone();
        let mut next = first;
        let mut replaced = Vec::new();
        for part in parts {
            let over = store.apply(part, &mut state, &mut next);
            replaced.push((part.uid, over));
        }
        // A batch of notes alone takes a number.
        let least = (next - 1).max(first);
        // Eager maintenance takes more numbers, for the entries that it cancels; and the store may
        // have deleted expired records after the batch.
        let is_eager = |part: &Effects| {
            let set = store.sets.iter().find(|set| set.uid == part.uid).unwrap();
            set.def.maintenance == Maintenance::Eager
        };
        let (eager, timed) = (parts.iter().any(is_eager), store.is_timed());
        let end = match (eager, timed) {
            (_, false) => Some(now.max(least)),
            (false, true) => Some(least),
            (true, true) => None,
        };
        state.seq = end.unwrap_or(now.max(least));
        if !acknowledged {
            // The batch may be in the log, but is not visible before the store is opened again.
            assert_eq!(now, last, "a batch that failed is seen");
            store.attempts.push(state);
            return;
        }
        assert!(now == least || (eager || timed) && now > least);
        for (uid, over) in replaced {
            let set = store.sets.iter_mut().find(|set| set.uid == uid);
            set.unwrap().known.over(over);
        }
        store.attempts.clear();
        store.states.push(state);
        store.note_commit(first, end);
        // A store without threads of its own syncs at once even if it may sync later.
        if durability != Durability::Os {
            store.is_durable();
        }
    }

    /// Makes a copy; with `during`, a batch is committed meanwhile, which the copy must not have.
    pub(crate) fn backup(&mut self, at: usize, kept: bool, during: Option<During>) {
        let store = &self.stores[at];
        let Some(db) = store.db.clone() else { return };
        let born = self.next_born();
        let dest = PathBuf::from(format!("/copy-{born}"));
        let (state, sets) = (self.stores[at].now().clone(), self.stores[at].sets.clone());
        let kept_snapshots = self.stores[at].kept.copied();
        let consumers = self.stores[at].consumers.copied();
        // The first write of a handle, and the first after a failure, do more than can run inside
        // another call.
        let began = db.group().stats().batches > 0 && !self.stores[at].excused;
        let result = match during.filter(|_| began) {
            None => db.backup(&dest),
            Some(during) => self.backup_during(at, &db, &dest, during),
        };
        drop(db);
        if self.decide(at, result, &[]).is_none() {
            return;
        }
        // The copy is durable; the store itself is not written to.
        let store = &self.stores[at];
        let mode = if kept {
            esker_sim::memory::PowerCut::Kept
        } else {
            esker_sim::memory::PowerCut::Lost
        };
        let image = store.memory.power_cut(born, mode);
        for path in store.memory.paths() {
            if path.starts_with(&dest) {
                esker::fs::Fs::remove(&store.memory, &path).unwrap();
            }
        }
        let mut copy = Store::new(&dest, image, self.settings, born, &self.hand);
        copy.times = self.stores[at].times.of_a_copy();
        copy.acted = self.stores[at].acted.clone();
        copy.sets = sets;
        for set in &mut copy.sets {
            set.known.forget(state.seq);
        }
        copy.states = vec![state];
        copy.kept = kept_snapshots;
        copy.consumers = consumers;
        copy.commits = self.stores[at].commits.of_a_copy();
        // The numbers stay, and so does the obsolete set.
        let db = copy.try_open(None).unwrap();
        copy.adopt_consumers(&db, true);
        copy.db = Some(db);
        copy.adopt_time(false);
        if self.stores.len() < MOST_STORES {
            self.stores.push(copy);
        } else {
            // An outer action may use the last store.
            let last = self.stores.len() - 1;
            if self.depth > 0 {
                return;
            }
            self.let_go(last);
            self.stores[last] = copy;
        }
        let last = self.stores.len() - 1;
        self.compare_catalog(last);
        self.note_expired_in(last);
    }

    /// A backup, with a batch at one of its calls in the folder of the copy, or at one that removes
    /// a log. The backup holds no lock then that a writer needs.
    fn backup_during(
        &mut self,
        at: usize,
        db: &Database,
        dest: &Path,
        during: During,
    ) -> esker::Result<()> {
        let store = &self.stores[at];
        let uid = during.effects.uid;
        let set = store.sets.iter().find(|set| set.uid == uid).unwrap();
        let records = store.records(uid);
        let keys: BTreeSet<&K> = during.effects.writes.iter().map(|(key, _)| key).collect();
        let over = keys.into_iter().filter_map(|key| records.current(key));
        let mut over: Vec<u64> = over.map(|(seq, _)| seq).collect();
        over.sort_unstable();
        let tree = format!("{}/superseded", set.name);
        let known = during.known && set.kept() == 1;
        let (hooked, effects) = (store.hooked.clone(), during.effects.clone());
        let batch = Mutex::new(Some(during.batch));
        let done: Arc<Mutex<Option<Committed>>> = Arc::default();
        let (calls, told) = (AtomicU64::new(0), done.clone());
        let (inner, dest_inside) = (db.clone(), dest.to_path_buf());
        hooked.set(move |call, path| {
            let in_copy = path.starts_with(&dest_inside);
            let log_goes = call == Call::Remove && path.extension().is_some_and(|end| end == "log");
            if !in_copy && !log_goes || calls.fetch_add(1, SeqCst) < during.call {
                return Ok(());
            }
            let Some(mut batch) = batch.lock().take() else {
                return Ok(());
            };
            let committed = commit_to(&inner, &mut batch, Durability::Os);
            let worked = committed.result.is_ok() && committed.now > committed.last;
            *told.lock() = Some(committed);
            if worked
                && known
                && let Some(tree) = inner.group().tree(&tree)
            {
                let mut over = over.iter().copied().map(Ok);
                inner.group().supersede(tree, &mut over, None).unwrap();
            }
            if during.flush && in_copy {
                inner.flush().unwrap();
            }
            Ok(())
        });
        let result = db.backup(dest);
        hooked.clear();
        let committed = done.lock().take();
        if let Some(committed) = committed {
            count("backup: written to meanwhile");
            self.committed(at, &[effects], Durability::Os, committed);
        }
        result
    }
}

/// True for strategies whose writers read the replaced records.
pub(crate) fn looks(maintenance: Maintenance) -> bool {
    matches!(maintenance, Maintenance::Eager | Maintenance::MutableBitmap)
}
