//! Actions about data: batches, made and committed at once or later, and backups.

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
use crate::model::{Entry, K, Row, key, row};
use crate::over::Filled;
use crate::runner::count;
use crate::time;
use crate::world::{MOST_STORES, State, Store, Uid, World};

/// A batch that waits: of the store, its dataset, with what it will do.
pub(crate) struct Prepared {
    pub(crate) store: u64,
    pub(crate) batch: WriteBatch,
    pub(crate) effects: Effects,
}

/// A batch that is committed while a backup is made.
pub(crate) struct During {
    /// At which call.
    pub(crate) call: u64,
    pub(crate) batch: WriteBatch,
    pub(crate) effects: Effects,
    pub(crate) known: bool,
    pub(crate) flush: bool,
}

/// What came of a commit: the last number that was seen before and after it, the first that it could have, and its
/// result.
struct Committed {
    last: u64,
    /// Not the next one, where numbers may have been seen that a power cut took.
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

/// What a batch does to a dataset: keys with their records, and the keys that must be new.
#[derive(Default, Clone)]
pub(crate) struct Effects {
    pub(crate) uid: Uid,
    /// When records expired, and what time it was when it was made.
    expiry: Expiry,
    time: u64,
    /// Made for a strategy that looks at what is replaced.
    looks: bool,
    writes: Vec<(K, Option<Rc<Row>>)>,
    inserts: Vec<K>,
    /// Keys, and the write that each must be of.
    expected: Vec<(K, Option<u64>)>,
    notes: Vec<(String, Option<Vec<u8>>)>,
}

impl Effects {
    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.notes.is_empty()
    }
}

impl Store {
    /// Whether a batch would do the same if it were made now.
    pub(crate) fn is_as_prepared(&self, effects: &Effects) -> bool {
        let set = self.sets.iter().find(|set| set.uid == effects.uid);
        set.is_some_and(|set| {
            let same = set.def.expiry == effects.expiry;
            same && (effects.expiry.ttl.is_none() || self.time() == effects.time)
        })
    }

    /// Whether an insert of it has a key that is there.
    fn refuses(&self, part: &Effects) -> bool {
        let before = self.records(part.uid).at(self.time());
        let mut inserted = BTreeSet::new();
        let mut inserts = part.inserts.iter();
        inserts.any(|key| before.current(key).is_some() || !inserted.insert(key))
    }

    /// The keys that are not as it expects them to be.
    fn unexpected(&self, part: &Effects) -> Vec<String> {
        let before = self.records(part.uid).at(self.time());
        let differs =
            |(key, seq): &&(K, Option<u64>)| before.current(key).map(|(seq, _)| seq) != *seq;
        let unexpected = part.expected.iter().filter(differs);
        unexpected.map(|(key, _)| key.to_string()).collect()
    }

    /// What becomes of a state; the writes that were replaced, with those that replaced them.
    fn apply(&self, part: &Effects, state: &mut State, next: &mut u64) -> Vec<(u64, u64)> {
        let set = self.sets.iter().find(|set| set.uid == part.uid).unwrap();
        let mut over = Vec::new();
        // Writers that look at what they replace write only the last version of a key.
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
    /// A batch of a dataset, and what it does.
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
                    // The first one of a dataset makes a tree.
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

    /// Holds what came of a commit against what it had to do: all of its parts, or nothing.
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
        let store = &self.stores[at];
        // What is there when the batch is committed decides, not what the batch does.
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
        // Notes alone take a number.
        let least = (next - 1).max(first);
        // Eager maintenance takes more numbers, for what it cancels; and what expires may have been acted on behind the batch.
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
            // It may be in the log, and nobody sees it before the store is opened again.
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
        // Without threads of its own a store syncs at once what it may sync later.
        if durability != Durability::Os {
            store.is_durable();
        }
    }

    /// Makes a copy; with `during` a batch is committed meanwhile, which the copy is not to have.
    pub(crate) fn backup(&mut self, at: usize, kept: bool, during: Option<During>) {
        let store = &self.stores[at];
        let Some(db) = store.db.clone() else { return };
        let born = self.next_born();
        let dest = PathBuf::from(format!("/copy-{born}"));
        let (state, sets) = (self.stores[at].now().clone(), self.stores[at].sets.clone());
        let kept_snapshots = self.stores[at].kept.copied();
        let consumers = self.stores[at].consumers.copied();
        // The first write of a handle, and those after a failure, have more to do than goes into another call.
        let began = db.group().stats().batches > 0 && !self.stores[at].excused;
        let result = match during.filter(|_| began) {
            None => db.backup(&dest),
            Some(during) => self.backup_during(at, &db, &dest, during),
        };
        drop(db);
        if self.decide(at, result, &[]).is_none() {
            return;
        }
        // The copy is durable; of the store itself nothing is written.
        let store = &self.stores[at];
        let mode = match kept {
            true => esker_sim::memory::PowerCut::Kept,
            false => esker_sim::memory::PowerCut::Lost,
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
        // The numbers stay, and so does everything that was known.
        let db = copy.try_open(None).unwrap();
        copy.adopt_consumers(&db, true);
        copy.db = Some(db);
        copy.adopt_time(false);
        if self.stores.len() < MOST_STORES {
            self.stores.push(copy);
        } else {
            // Not one that is at work.
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

    /// A backup, and a batch at one of its calls: those in the folder of the copy, and those by which a log goes. Nothing
    /// is locked then that a writer needs.
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

/// True for strategies whose writers look at what they replace.
pub(crate) fn looks(maintenance: Maintenance) -> bool {
    matches!(maintenance, Maintenance::Eager | Maintenance::MutableBitmap)
}
