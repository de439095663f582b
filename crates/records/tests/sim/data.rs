//! Actions about data: batches, made and committed at once or later, and backups.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use esker::{Durability, ErrorKind, Maintenance, WriteBatch};

use crate::action::Write;
use crate::model::{Entry, K, Records, Row, key, row};
use crate::world::{MOST_STORES, Store, Uid, World};

/// A batch that waits: of the store, its dataset, with what it will do.
pub(crate) struct Prepared {
    pub(crate) store: u64,
    pub(crate) uid: Uid,
    pub(crate) batch: WriteBatch,
    pub(crate) effects: Effects,
}

/// What a batch does: keys with their records, and the keys that must be new.
#[derive(Default, Clone)]
pub(crate) struct Effects {
    /// Made for a strategy that looks at what is replaced.
    looks: bool,
    writes: Vec<(K, Option<Rc<Row>>)>,
    inserts: Vec<K>,
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
                        batch.insert(row.put.body.as_bytes()).unwrap();
                        effects.inserts.push(key.clone());
                    } else {
                        batch.put(row.put.body.as_bytes()).unwrap();
                    }
                    effects.writes.push((key, Some(Rc::new(row))));
                }
                Write::Delete { key: number } => {
                    let key = key(set.key_type, *number);
                    let api = dataset.parse_key(&key.to_string()).unwrap();
                    batch.delete(&api).unwrap();
                    effects.writes.push((key, None));
                }
                Write::Refused { which } => {
                    let bad = ["{\"id\": ", "[1]", "{}", "{\"id\": null}", "\u{1}"];
                    let bad = bad[usize::from(*which) % bad.len()];
                    let len = batch.len();
                    let error = batch.put(bad.as_bytes()).unwrap_err();
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
        let store = &mut self.stores[at];
        let before = store.records(uid);
        // What is there when the batch is committed decides, not what the batch does.
        let mut inserted = BTreeSet::new();
        let refused = effects
            .inserts
            .iter()
            .any(|key| before.current(key).is_some() || !inserted.insert(key));
        let durability = match durability {
            0 => Durability::Sync,
            1 => Durability::Periodic(Duration::from_millis(10)),
            _ => Durability::Os,
        };
        let db = store.db.clone().unwrap();
        let last = db.group().snapshot().seq();
        let result = batch.commit(durability);
        let now = db.group().snapshot().seq();
        drop(db);
        if refused {
            assert_eq!(now, last, "a refused batch takes no numbers");
            let done = self.judge(at, result, &[ErrorKind::Exists]);
            assert!(done.is_none(), "an insert of a key that is there");
            return;
        }
        let acknowledged = self.judge(at, result, &[]).is_some();
        let store = &mut self.stores[at];
        if effects.writes.is_empty() {
            return;
        }
        let set = store.sets.iter().position(|set| set.uid == uid).unwrap();
        let kept = store.sets[set].kept();
        let mut records = Records::clone(&before);
        let first = last + 1;
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
        state.seq = now.max(last + writes.len() as u64);
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
        assert!(now == last + numbers || eager && now > last + numbers);
        store.sets[set].known.over(over);
        store.attempts.clear();
        store.states.push(state);
        // Without threads of its own a store syncs at once what it may sync later.
        if durability != Durability::Os {
            store.is_durable();
        }
    }

    pub(crate) fn backup(&mut self, at: usize, kept: bool) {
        let store = &self.stores[at];
        let Some(db) = store.db.clone() else { return };
        let born = self.next_born();
        let dest = PathBuf::from(format!("/copy-{born}"));
        let result = db.backup(&dest);
        drop(db);
        if self.judge(at, result, &[]).is_none() {
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
        copy.states = vec![store.now().clone()];
        copy.sets = store.sets.clone();
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
}

/// True for strategies whose writers look at what they replace.
fn looks(maintenance: Maintenance) -> bool {
    matches!(maintenance, Maintenance::Eager | Maintenance::MutableBitmap)
}
