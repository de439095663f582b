//! Digests of tables beside a model: they cover what is there, have nothing that was never there,
//! and are exact once everything was compacted on request.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, Component, Cost, Cursor, Durability, Group, Snapshot, TreeId, TreeOptions, TreeProvider,
};
use esker_sim::memory::Memory;

use crate::common::toy::LastBytes;
use crate::common::{DIR, lazy, seeds, small};

/// A tree with digests, or one from before there were any.
struct Trees {
    has_digests: bool,
}

impl TreeProvider for Trees {
    fn tree_options(&self, _: &str, _: &[u8]) -> esker_lsm::Result<TreeOptions> {
        Ok(TreeOptions {
            digester: if self.has_digests {
                Some(Arc::new(LastBytes))
            } else {
                None
            },
            ..lazy()
        })
    }
}

fn open(fs: &Memory, has_digests: bool) -> Group {
    let fs: Arc<dyn Fs> = Arc::new(fs.clone());
    Group::open(
        Path::new(DIR),
        small(fs),
        Arc::new(Trees { has_digests }),
        true,
    )
    .unwrap()
}

/// What the digests of a tree's tables have together, and the memtables of a snapshot; `None` if a
/// table has none.
fn digest(snapshot: &Snapshot, tree: TreeId) -> Option<BTreeSet<u8>> {
    let mut all = BTreeSet::new();
    for component in snapshot.components(tree) {
        match &component {
            Component::Run(run) => {
                for table in run.tables.iter() {
                    let digest = table.table().unwrap().digest(&Cost::default()).unwrap()?;
                    all.extend(digest.bytes.iter());
                }
            }
            Component::Memtable(_) => {
                let mut entries = snapshot.entries_in(std::slice::from_ref(&component), 0);
                entries.seek_first().unwrap();
                while entries.valid() {
                    all.extend(entries.value().last());
                    entries.next().unwrap();
                }
            }
        }
    }
    Some(all)
}

#[test]
fn digests_cover_what_is_there_and_are_exact_after_a_compaction() {
    for seed in seeds(30) {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = Memory::new();
        let mut group = open(&fs, true);
        let tree = group.create_trees(&[("c".into(), vec![])]).unwrap()[0];
        let mut live: BTreeMap<u16, u8> = BTreeMap::new();
        let mut ever = BTreeSet::new();
        let mut held: Option<(Snapshot, BTreeSet<u8>)> = None;
        for _ in 0..rng.usize(50..400) {
            match rng.u8(..40) {
                0 => group.flush().unwrap(),
                1 => {
                    group.compact(None).unwrap();
                    let now: BTreeSet<u8> = live.values().copied().collect();
                    assert_eq!(digest(&group.snapshot(), tree), Some(now));
                }
                2 => {
                    held = None;
                    group.close().unwrap();
                    group = open(&fs, true);
                }
                3 => held = Some((group.snapshot(), live.values().copied().collect())),
                _ => {
                    let mut batch = Batch::new();
                    for _ in 0..rng.usize(1..20) {
                        let key = rng.u16(..300);
                        if rng.u8(..4) == 0 {
                            batch.delete(tree, &key.to_be_bytes()).unwrap();
                            live.remove(&key);
                        } else {
                            let mut value = vec![7; rng.usize(..60)];
                            value.push(rng.u8(..));
                            ever.extend(value.last());
                            batch.put(tree, &key.to_be_bytes(), &value).unwrap();
                            live.insert(key, *value.last().unwrap());
                        }
                    }
                    group.write(&mut batch, Durability::Os).unwrap();
                }
            }
            let all = digest(&group.snapshot(), tree).unwrap();
            let now: BTreeSet<u8> = live.values().copied().collect();
            assert!(now.is_subset(&all) && all.is_subset(&ever));
            if let Some((snapshot, then)) = &held {
                assert!(then.is_subset(&digest(snapshot, tree).unwrap()));
            }
        }
        let report = group.check();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
}

#[test]
fn tables_from_before_digests_get_one_when_they_are_compacted() {
    let fs = Memory::new();
    let group = open(&fs, false);
    let tree = group.create_trees(&[("c".into(), vec![])]).unwrap()[0];
    let put = |group: &Group, key: &[u8], value: &[u8]| {
        let mut batch = Batch::new();
        batch.put(tree, key, value).unwrap();
        group.write(&mut batch, Durability::Os).unwrap();
        group.flush().unwrap();
    };
    put(&group, b"a", b"1");
    group.close().unwrap();

    let group = open(&fs, true);
    assert_eq!(digest(&group.snapshot(), tree), None);
    put(&group, b"b", b"2");
    assert_eq!(digest(&group.snapshot(), tree), None);
    group.compact(None).unwrap();
    assert_eq!(
        digest(&group.snapshot(), tree),
        Some(BTreeSet::from(*b"12"))
    );
    group.close().unwrap();

    // Without the digester they are read all the same, and written without.
    let group = open(&fs, false);
    let found = group.snapshot().get(tree, b"a", &Cost::default()).unwrap();
    assert_eq!(&found.unwrap().value[..], b"1");
    put(&group, b"c", b"3");
    group.compact(None).unwrap();
    assert_eq!(digest(&group.snapshot(), tree), None);
    assert!(group.check().errors.is_empty());
}

#[test]
fn a_run_that_was_compacted_without_a_look_at_its_entries_is_compacted_again_on_request() {
    let fs = Memory::new();
    let group = open(&fs, true);
    let tree = group.create_trees(&[("c".into(), vec![])]).unwrap()[0];
    // Runs of level 0 that the policy compacts by itself: all of one key, so one entry stays.
    for round in 0_u8..12 {
        let mut batch = Batch::new();
        batch.put(tree, b"key", &[round]).unwrap();
        group.write(&mut batch, Durability::Os).unwrap();
        group.flush().unwrap();
    }
    let before = digest(&group.snapshot(), tree).unwrap();
    assert!(before.len() > 1, "{before:?}");
    group.compact(None).unwrap();
    assert_eq!(digest(&group.snapshot(), tree), Some(BTreeSet::from([11])));
}
