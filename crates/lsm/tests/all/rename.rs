//! Trees get other names: what they hold stays, their options are those of their new names, and a
//! change that cannot be made makes nothing.

use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, open, small};
use esker_lsm::{Batch, Cost, Durability, Group, PlainTrees, TreeChange, TreeId};
use esker_sim::memory::Memory;

fn put(group: &Group, tree: TreeId, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(tree, key, value).unwrap();
    group.write(&mut batch, Durability::Sync).unwrap();
}

fn value(group: &Group, tree: TreeId, key: &[u8]) -> Option<Vec<u8>> {
    let found = group.snapshot().get(tree, key, &Cost::default()).unwrap();
    found.map(|found| found.value.to_vec())
}

fn named(group: &Group) -> Vec<(TreeId, String)> {
    let snapshot = group.snapshot();
    let trees = snapshot.version().trees.values();
    trees.map(|tree| (tree.id, tree.name.clone())).collect()
}

#[test]
fn trees_swap_their_names_and_keep_what_they_hold() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone())).unwrap();
    let trees = [("a".to_string(), vec![1]), ("b".to_string(), vec![2])];
    let made = group.create_trees(&trees).unwrap();
    let (a, b) = (made[0], made[1]);
    put(&group, a, b"k", b"in a");
    group.flush().unwrap();
    put(&group, b, b"k", b"in b");
    let before = group.snapshot();
    let reader = Group::open_reader(
        Path::new(DIR),
        small(Arc::new(memory.clone())),
        Arc::new(PlainTrees),
    )
    .unwrap();

    group
        .rename_trees(&[(a, "b".to_string()), (b, "a".to_string())])
        .unwrap();

    assert_eq!((group.tree("a"), group.tree("b")), (Some(b), Some(a)));
    let of_before = before.version().tree_named("a").unwrap();
    assert_eq!((of_before.id, of_before.name.as_str()), (a, "a"));
    assert_eq!(named(&reader), [(a, "a".to_string()), (b, "b".to_string())]);
    reader.refresh().unwrap();
    put(&group, a, b"l", b"later");
    let right = |group: &Group| {
        assert_eq!(named(group), [(a, "b".to_string()), (b, "a".to_string())]);
        assert_eq!(value(group, a, b"k").unwrap(), b"in a");
        assert_eq!(value(group, b, b"k").unwrap(), b"in b");
        let snapshot = group.snapshot();
        assert_eq!(*snapshot.version().trees[&a].config, [1]);
    };
    right(&group);
    right(&reader);
    drop((reader, before));
    group.close().unwrap();
    // A manifest with the rename, and then one that begins with the new names.
    for _ in 0..2 {
        let group = open(Arc::new(memory.clone())).unwrap();
        right(&group);
        assert_eq!(value(&group, a, b"l").unwrap(), b"later");
        put(&group, b, b"m", b"");
        group.close().unwrap();
    }
}

#[test]
fn names_that_are_taken_and_trees_that_are_not_there_are_refused() {
    let group = open(Arc::new(Memory::new())).unwrap();
    let trees = [("a".to_string(), vec![]), ("b".to_string(), vec![])];
    let made = group.create_trees(&trees).unwrap();
    let (a, b) = (made[0], made[1]);
    let name = |name: &str| name.to_string();
    for renamed in [
        vec![(a, name("b"))],
        vec![(a, name("c")), (b, name("c"))],
        vec![(a, name("c")), (a, name("d"))],
        vec![(a, name("c")), (77, name("d"))],
    ] {
        assert!(group.rename_trees(&renamed).is_err(), "{renamed:?}");
    }
    // With a tree that is created, and with one that is dropped in the same change.
    let change = |created: &[&str], dropped: &[TreeId], to: &str| TreeChange {
        created: created.iter().map(|new| (name(new), vec![])).collect(),
        dropped: dropped.to_vec(),
        renamed: vec![(a, name(to))],
        ..TreeChange::default()
    };
    let refused = group.change_trees(&mut |_| Ok(change(&["c"], &[], "c")));
    assert!(refused.is_err());
    assert_eq!(named(&group), [(a, name("a")), (b, name("b"))]);
    group
        .change_trees(&mut |_| Ok(change(&["c"], &[b], "b")))
        .unwrap();
    assert_eq!(group.tree("b"), Some(a));
    assert_eq!(group.tree("a"), None);
}
