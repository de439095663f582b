//! Support for tests with several concurrent compactions, and large ones in pieces.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, Cost, Cursor, DropPolicy, Durability, Group, Leveled, Options, Result, Snapshot,
    SupersededBy, TreeId, TreeOptions, TreeProvider,
};

use super::{DIR, bytes, small};

/// `a`, `b`, ... compact two runs; `t...` report their drops to the set `bits`.
pub(crate) struct Trees;

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        Ok(TreeOptions {
            policy: Arc::new(Leveled {
                level0_runs: 2,
                level1_bytes: 32 << 10,
                ..Leveled::default()
            }),
            bitmap: name == "bits",
            superseded: name.starts_with('t').then(|| SupersededBy {
                tree: "bits".to_string(),
                drop_policy: DropPolicy::Record,
            }),
            ..TreeOptions::default()
        })
    }
}

pub(crate) const NAMES: [&str; 5] = ["a", "b", "t1", "t2", "bits"];

/// A tree and a key, and the value written, or none for a delete.
pub(crate) type Change = ((TreeId, Vec<u8>), Option<Vec<u8>>);

pub(crate) type Model = BTreeMap<(TreeId, Vec<u8>), Vec<u8>>;

pub(crate) fn many(fs: Arc<dyn Fs>) -> Options {
    Options {
        memory_budget: 64 << 10,
        background: true,
        compaction_threads: 3,
        piece_bytes: Some(4 << 10),
        bitmap_slack: 0,
        ..small(fs)
    }
}

pub(crate) fn open(options: Options) -> Group {
    Group::open(Path::new(DIR), options, Arc::new(Trees), true).unwrap()
}

/// The trees with records.
pub(crate) fn trees(group: &Group) -> Vec<TreeId> {
    if group.tree("a").is_none() {
        let trees = NAMES.map(|name| (name.to_string(), Vec::new()));
        group.create_trees(&trees).unwrap();
    }
    NAMES[..4].iter().filter_map(|n| group.tree(n)).collect()
}

pub(crate) fn read(snapshot: &Snapshot, trees: &[TreeId]) -> Model {
    let mut model = Model::new();
    for &tree in trees {
        let mut cursor = snapshot.cursor(tree, 0);
        cursor.seek_first().unwrap();
        while cursor.valid() {
            let found = snapshot.get(tree, cursor.key(), &Cost::default()).unwrap();
            assert_eq!(&*found.unwrap().value, cursor.value());
            model.insert((tree, cursor.key().to_vec()), cursor.value().to_vec());
            cursor.next().unwrap();
        }
    }
    model
}

pub(crate) fn write(
    group: &Group,
    trees: &[TreeId],
    rng: &mut fastrand::Rng,
    how: Durability,
) -> (Vec<Change>, Result<u64>) {
    let mut batch = Batch::new();
    let mut changes = Vec::new();
    for &tree in trees {
        let key = format!("{:03}", rng.usize(0..400)).into_bytes();
        match rng.usize(0..8) {
            0 => {
                batch.delete(tree, &key).unwrap();
                changes.push(((tree, key), None));
            }
            _ => {
                let len = rng.usize(0..300);
                let value = bytes(rng, len);
                batch.put(tree, &key, &value).unwrap();
                changes.push(((tree, key), Some(value)));
            }
        }
    }
    let result = group.write(&mut batch, how);
    (changes, result)
}

pub(crate) fn apply(model: &mut Model, changes: &[Change]) {
    for (at, value) in changes {
        match value {
            Some(value) => model.insert(at.clone(), value.clone()),
            None => model.remove(at),
        };
    }
}

/// A gate at which calls wait.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    pub(crate) waiting: AtomicUsize,
}

impl Gate {
    pub(crate) fn pass(&self) {
        let mut open = self.open.lock().unwrap();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }

    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}
