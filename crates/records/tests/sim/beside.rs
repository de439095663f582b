//! The data of an extension: it must be as durable and as atomic as the datasets.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use esker::extension::{Batch, Cursor, Extension, Kind, TreeOptions};
use esker::{Database, Durability, ErrorKind};

use crate::runner::count;
use crate::world::{State, World};

const NAME: &str = "beside";
const TREE: &str = "things";

struct Beside;

impl Extension for Beside {
    fn name(&self) -> &'static str {
        NAME
    }

    fn tree_options(&self, _: &str, _: &[u8]) -> esker::Result<TreeOptions> {
        Ok(TreeOptions::default())
    }
}

pub(crate) fn extension() -> Arc<dyn Extension> {
    Arc::new(Beside)
}

/// The keys and values of the extension; empty before its tree exists.
pub(crate) type Things = Option<Rc<BTreeMap<u8, u8>>>;

fn found(db: &Database) -> esker::Result<Option<BTreeMap<u8, u8>>> {
    let store = db.extension(NAME)?;
    let Some(tree) = store.tree(TREE) else {
        return Ok(None);
    };
    let snapshot = store.snapshot();
    let mut things = BTreeMap::new();
    for key in 0..KEYS {
        let mut walk = snapshot.walk(tree, &[key]);
        if let Some(entry) = walk.next_entry()?
            && entry.kind == Kind::Put
        {
            things.insert(key, entry.value[0]);
        }
    }
    let mut cursor = snapshot.cursor(tree, 0);
    cursor.seek_first()?;
    let mut listed = BTreeSet::new();
    while cursor.valid() {
        listed.insert(cursor.key()[0]);
        cursor.next()?;
    }
    let keys: BTreeSet<u8> = things.keys().copied().collect();
    assert_eq!(listed, keys, "what a cursor shows of an extension");
    Ok(Some(things))
}

const KEYS: u8 = 8;

/// True if a store has this state of the extension's data. A tree that was created in vain, or
/// since then, is empty.
pub(crate) fn holds(db: &Database, state: &State) -> esker::Result<bool> {
    let found = found(db)?;
    Ok(match (&state.beside, found) {
        (Some(things), found) => found.as_ref() == Some(&**things),
        (None, found) => found.is_none_or(|found| found.is_empty()),
    })
}

impl World {
    /// The extension writes a batch of keys and values; a value of 0 deletes its key.
    pub(crate) fn write_beside(&mut self, at: usize, writes: &[(u8, u8)], durability: u8) {
        let Some(db) = self.stores[at].db.clone() else {
            return;
        };
        let extension = db.extension(NAME).unwrap();
        let tree = match extension.tree(TREE) {
            Some(tree) => tree,
            None => {
                let made = extension.create_trees(&[(TREE, b"")]);
                let Some(made) = self.decide(at, made, &[]) else {
                    return;
                };
                let store = &mut self.stores[at];
                store.told = store.last_seq();
                made[0]
            }
        };
        let store = &mut self.stores[at];
        let now = store.states.last_mut().unwrap();
        let things = now.beside.get_or_insert_default().clone();
        let writes = writes.iter().map(|(key, value)| (key % KEYS, *value));
        let writes: BTreeMap<u8, u8> = writes.collect();
        if writes.is_empty() {
            return;
        }
        let mut batch = Batch::new();
        let mut things = BTreeMap::clone(&things);
        for (key, value) in &writes {
            match value {
                0 => {
                    things.remove(key);
                    batch.delete(tree, &[*key]).unwrap();
                }
                value => {
                    things.insert(*key, *value);
                    batch.put(tree, &[*key], &[*value]).unwrap();
                }
            }
        }
        let durability = match durability {
            0 => Durability::Sync,
            1 => Durability::Periodic(Duration::from_millis(10)),
            _ => Durability::Os,
        };
        let (last, first) = (store.last_seq(), db.group().latest().seq() + 1);
        let result = extension.write(&mut batch, durability);
        let now = self.stores[at].last_seq();
        let end = first + writes.len() as u64 - 1;
        drop((extension, db));
        let acknowledged = self.decide(at, result, &[]);
        let store = &mut self.stores[at];
        let state = State {
            seq: end,
            beside: Some(Rc::new(things)),
            ..store.now().clone()
        };
        let Some(given) = acknowledged else {
            assert_eq!(now, last, "a batch that failed is seen");
            store.attempts.push(state);
            return;
        };
        assert_eq!((given, now), (end, end), "the last number of a batch");
        count("beside: batch");
        store.attempts.clear();
        store.states.push(state);
        store.note_commit(first, Some(end));
        if durability != Durability::Os {
            store.is_durable();
        }
    }

    /// Checks that the extension's data are as expected.
    pub(crate) fn look_beside_datasets(&mut self, at: usize, db: &Database) {
        let holds = holds(db, self.stores[at].now());
        if let Some(holds) = self.decide(at, holds, &[ErrorKind::Closed]) {
            assert!(
                holds,
                "{:?}, not {:?}",
                found(db),
                self.stores[at].now().beside
            );
            count("beside: looked at");
        }
    }
}
