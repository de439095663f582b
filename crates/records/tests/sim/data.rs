//! Actions about data: batches, made and committed at once or later, and backups.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use esker::fs::hooked::Call;
use esker::{Database, Durability, ErrorKind, Maintenance, WriteBatch};
use parking_lot::Mutex;

use crate::action::Write;
use crate::model::{Entry, K, Records, Row, key, row};
use crate::runner::count;
use crate::world::{MOST_STORES, Store, Uid, World};

/// A batch that waits: of the store, its dataset, with what it will do.
pub(crate) struct Prepared {
    pub(crate) store: u64,
    pub(crate) uid: Uid,
    pub(crate) batch: WriteBatch,
    pub(crate) effects: Effects,
}

/// A batch that is committed while a backup is made.
pub(crate) struct During {
    pub(crate) uid: Uid,
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

fn commit_to(db: &Database, batch: &mut WriteBatch, durability: Durability) -> Committed {
    let last = db.group().snapshot().seq();
    let first = db.group().latest().seq() + 1;
    let result = batch.durability(durability).commit();
    let now = db.group().snapshot().seq();
    Committed {
        last,
        first,
        now,
        result,
    }
}

/// What a batch does: keys with their records, and the keys that must be new.
#[derive(Default, Clone)]
pub(crate) struct Effects {
    /// Made for a strategy that looks at what is replaced.
    looks: bool,
    writes: Vec<(K, Option<Rc<Row>>)>,
    inserts: Vec<K>,
    /// Keys, and the write that each must be of.
    expected: Vec<(K, Option<u64>)>,
}

impl World {
    pub(crate) fn fill(
        &mut self,
        at: usize,
        set: usize,
        writes: &[Write],
    ) -> (WriteBatch, Effects) {
        let store = &self.stores[at];
        let set = store.sets[set].clone();
        let dataset = store.handle(&set.name).unwrap();
        let records = store.records(set.uid);
        let mut batch = dataset.batch();
        let mut effects = Effects {
            looks: looks(set.def.maintenance),
            ..Effects::default()
        };
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
                    let shape = (*pad, *style);
                    let row = row(&key, &set.types, cells, shape, old, number);
                    if matches!(write, Write::Insert { .. }) {
                        batch.insert_json(row.put.body.as_bytes()).unwrap();
                        effects.inserts.push(key.clone());
                    } else {
                        batch.put_json(row.put.body.as_bytes()).unwrap();
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
                        _ => records.current(&key).map(|(seq, _)| seq),
                    };
                    match seq {
                        None => batch.if_absent(&api).unwrap(),
                        Some(seq) => batch.if_seq(&api, seq).unwrap(),
                    }
                    effects.expected.push((key, seq));
                }
                Write::Refused { which } => {
                    let bad = ["{\"id\": ", "[1]", "{}", "{\"id\": null}", "\u{1}"];
                    let bad = bad[usize::from(*which) % bad.len()];
                    let len = batch.len();
                    let error = batch.put_json(bad.as_bytes()).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::BadInput);
                    assert_eq!(batch.len(), len);
                }
            }
        }
        (batch, effects)
    }

    pub(crate) fn commit(
        &mut self,
        at: usize,
        uid: Uid,
        batch: &mut WriteBatch,
        effects: &Effects,
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
        self.committed(at, uid, effects, durability, committed);
    }

    /// Holds what came of a commit against what it had to do.
    fn committed(
        &mut self,
        at: usize,
        uid: Uid,
        effects: &Effects,
        durability: Durability,
        committed: Committed,
    ) {
        let Committed {
            last,
            first,
            now,
            result,
        } = committed;
        let store = &mut self.stores[at];
        let before = store.records(uid);
        // What is there when the batch is committed decides, not what the batch does.
        let mut inserted = BTreeSet::new();
        let refused = effects
            .inserts
            .iter()
            .any(|key| before.current(key).is_some() || !inserted.insert(key));
        let differs =
            |(key, seq): &&(K, Option<u64>)| before.current(key).map(|(seq, _)| seq) != *seq;
        let unexpected: Vec<String> = effects
            .expected
            .iter()
            .filter(differs)
            .map(|(key, _)| key.to_string())
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
        if !effects.expected.is_empty() {
            count("batch: as expected");
        }
        if refused {
            assert_eq!(now, last, "a refused batch takes no numbers");
            let done = self.decide(at, result, &[ErrorKind::Exists]);
            assert!(done.is_none(), "an insert of a key that is there");
            return;
        }
        let acknowledged = self.decide(at, result, &[]).is_some();
        let store = &mut self.stores[at];
        if effects.writes.is_empty() {
            return;
        }
        let set = store.sets.iter().position(|set| set.uid == uid).unwrap();
        let kept = store.sets[set].kept();
        let mut records = Records::clone(&before);
        let mut over = Vec::new();
        // Writers that look at what they replace write only the last version of a key.
        let looks = effects.looks || looks(store.sets[set].def.maintenance);
        let last_of = |at: usize, key: &K| {
            let later = &effects.writes[at + 1..];
            !looks || !later.iter().any(|(other, _)| other == key)
        };
        let writes = effects.writes.iter().enumerate();
        let writes: Vec<_> = writes
            .filter(|(at, (key, _))| last_of(*at, key))
            .map(|(_, write)| write)
            .collect();
        for (seq, (key, row)) in (first..).zip(&writes) {
            if let Some((old, _)) = records.current(key) {
                over.push((old, seq));
            }
            let row = row.clone();
            records.write(key.clone(), Entry { seq, row }, kept);
        }
        let mut state = store.now().clone();
        state.seq = now.max(first - 1 + writes.len() as u64);
        state.records.insert(uid, Rc::new(records));
        if !acknowledged {
            // It may be in the log, and nobody sees it before the store is opened again.
            assert_eq!(now, last, "a batch that failed is seen");
            store.attempts.push(state);
            return;
        }
        // Eager maintenance takes more numbers, for what it cancels.
        let eager = store.sets[set].def.maintenance == Maintenance::Eager;
        let numbers = writes.len() as u64;
        let least = first - 1 + numbers;
        assert!(now == least || eager && now > least);
        store.sets[set].known.over(over);
        store.attempts.clear();
        store.states.push(state);
        store.note_commit(first);
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
            true => esker::fs::memory::PowerCut::Kept,
            false => esker::fs::memory::PowerCut::Lost,
        };
        let image = store.memory.power_cut(born, mode);
        for path in store.memory.paths() {
            if path.starts_with(&dest) {
                esker::fs::Fs::remove(&store.memory, &path).unwrap();
            }
        }
        let mut copy = Store::new(&dest, image, self.settings, born);
        copy.sets = sets;
        for set in &mut copy.sets {
            set.known.forget(state.seq);
        }
        copy.states = vec![state];
        copy.kept = kept_snapshots;
        copy.commits = self.stores[at].commits.of_a_copy();
        // The numbers stay, and so does everything that was known.
        copy.db = Some(copy.try_open(None).unwrap());
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
        let set = store.sets.iter().find(|set| set.uid == during.uid).unwrap();
        let records = store.records(during.uid);
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
            self.committed(at, during.uid, &effects, Durability::Os, committed);
        }
        result
    }
}

/// True for strategies whose writers look at what they replace.
fn looks(maintenance: Maintenance) -> bool {
    matches!(maintenance, Maintenance::Eager | Maintenance::MutableBitmap)
}
