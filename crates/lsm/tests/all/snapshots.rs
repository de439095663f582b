//! Named snapshots: their contents do not change, whatever happens in the store, through restarts,
//! in copies and in readers beside the writer; their space is freed when they are dropped. (Random
//! histories with them are in `model.rs`, `crash.rs`, `expiry.rs` and `bitmap.rs`, flipped bytes in
//! `damage.rs`.)

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{DIR, bytes, open, small};
use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Group, Options, PlainTrees, Snapshot, TreeId,
};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn put(group: &Group, tree: TreeId, key: &str, value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(tree, key.as_bytes(), value).unwrap();
    group.write(&mut batch, Durability::Os).unwrap();
}

/// The contents of a snapshot.
fn contents(snapshot: &Snapshot) -> Contents {
    let cost = Cost::default();
    let trees = snapshot.version().trees.values();
    let one = |tree: &Arc<esker_lsm::version::TreeVersion>| {
        let mut found = BTreeMap::new();
        let mut cursor = snapshot.cursor(tree.id, 0);
        cursor.seek_first().unwrap();
        while cursor.valid() {
            let got = snapshot.get(tree.id, cursor.key(), &cost).unwrap().unwrap();
            assert_eq!(&*got.value, cursor.value());
            found.insert(cursor.key().to_vec(), cursor.value().to_vec());
            cursor.next().unwrap();
        }
        (tree.name.clone(), found)
    };
    trees.map(one).collect()
}

fn kept(group: &Group, name: &str) -> Contents {
    contents(&group.kept_snapshot(name).unwrap())
}

fn names(group: &Group) -> Vec<String> {
    group
        .snapshots()
        .into_iter()
        .map(|kept| kept.name)
        .collect()
}

/// The table files, with their bytes.
fn tables(fs: &Memory, dir: &str) -> BTreeMap<PathBuf, u64> {
    let paths = fs.paths().into_iter();
    let paths = paths.filter(|path| path.starts_with(dir));
    let tables = paths.filter(|path| path.extension().is_some_and(|e| e == "tbl"));
    tables
        .map(|path| (path.clone(), fs.read(&path).unwrap().len() as u64))
        .collect()
}

fn total(fs: &Memory) -> u64 {
    tables(fs, DIR).values().sum()
}

/// A store with two trees of the same keys, all of which are rewritten in each round.
fn filled(fs: Arc<dyn Fs>, rounds: u64) -> (Group, Vec<TreeId>) {
    let group = open(fs).unwrap();
    let trees = group.create_trees(&[("a".into(), vec![]), ("b".into(), vec![])]);
    let trees = trees.unwrap();
    for round in 0..rounds {
        fill(&group, &trees, round);
    }
    (group, trees)
}

fn fill(group: &Group, trees: &[TreeId], round: u64) {
    let mut rng = fastrand::Rng::with_seed(round);
    for key in 0..300 {
        let mut batch = Batch::new();
        let value = [&round.to_be_bytes()[..], &bytes(&mut rng, 80)].concat();
        for tree in trees {
            batch
                .put(*tree, format!("k{key:04}").as_bytes(), &value)
                .unwrap();
        }
        group.write(&mut batch, Durability::Os).unwrap();
    }
}

#[test]
fn names_are_checked_and_errors_have_types() {
    let fs = Memory::new();
    let (group, _) = filled(Arc::new(fs.clone()), 1);
    let too_long = "x".repeat(256);
    assert!(matches!(group.keep_snapshot(""), Err(Error::Invalid(_))));
    assert!(matches!(
        group.keep_snapshot(&too_long),
        Err(Error::Limit { .. })
    ));
    let exists = |result| matches!(result, Err(Error::SnapshotExists { name }) if name == "one");
    let unknown = |error| matches!(error, Error::UnknownSnapshot { name } if name == "two");
    let seq = group.keep_snapshot("one").unwrap();
    assert!(exists(group.keep_snapshot("one")));
    assert!(unknown(group.drop_snapshot("two").unwrap_err()));
    assert!(unknown(group.kept_snapshot("two").err().unwrap()));
    let listed = group.snapshots();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].name.as_str(), listed[0].seq, listed[0].time),
        ("one", seq, 0)
    );
    // All of it belongs to the newest version, too.
    assert!(listed[0].bytes > 0);
    assert_eq!((listed[0].own_bytes, group.snapshot_bytes()), (0, 0));
    group.close().unwrap();
    assert!(matches!(group.keep_snapshot("three"), Err(Error::Closed)));
    assert!(matches!(group.drop_snapshot("one"), Err(Error::Closed)));
    // It can be read where the store is opened again.
    let group = open(Arc::new(fs)).unwrap();
    assert_eq!(kept(&group, "one"), contents(&group.snapshot()));
}

#[test]
fn an_empty_store_is_kept_as_it_is() {
    let fs = Memory::new();
    let group = open(Arc::new(fs.clone())).unwrap();
    assert_eq!(group.keep_snapshot("nothing").unwrap(), 0);
    let tree = group.create_trees(&[("a".into(), vec![])]).unwrap()[0];
    put(&group, tree, "k", b"v");
    drop(group);
    let group = open(Arc::new(fs)).unwrap();
    assert!(kept(&group, "nothing").is_empty());
    assert_eq!(contents(&group.snapshot())["a"].len(), 1);
}

#[test]
fn its_contents_stay_until_it_is_dropped_and_then_its_space_is_freed() {
    let fs = Memory::new();
    let (group, trees) = filled(Arc::new(fs.clone()), 2);
    group.compact(None).unwrap();
    let alone = total(&fs);
    let seen = contents(&group.snapshot());
    group.keep_snapshot("before").unwrap();
    // It shares all tables, and no memtable entry is written twice.
    assert_eq!(total(&fs), alone);
    fill(&group, &trees, 3);
    group.drop_trees(&trees[1..]).unwrap();
    group.compact(None).unwrap();
    let both = total(&fs);
    assert!(both >= alone + alone / 3, "{both} after {alone}");
    assert_eq!(group.snapshot_bytes(), group.snapshots()[0].own_bytes);
    assert_eq!(group.snapshot_bytes(), group.snapshots()[0].bytes);
    assert_eq!(kept(&group, "before"), seen);
    drop(group);
    // A writing handle does not take the files for leftovers.
    let group = open(Arc::new(fs.clone())).unwrap();
    put(&group, trees[0], "k", b"v");
    assert_eq!(total(&fs), both);
    assert_eq!(kept(&group, "before"), seen);
    assert!(group.check().errors.is_empty());
    let held = group.kept_snapshot("before").unwrap();
    group.drop_snapshot("before").unwrap();
    assert!(group.snapshots().is_empty());
    assert_eq!(contents(&held), seen);
    assert_eq!(total(&fs), both);
    drop(held);
    assert!(total(&fs) < alone, "{} of {alone}", total(&fs));
    assert_eq!(group.snapshot_bytes(), 0);
    group.close().unwrap();
}

#[test]
fn a_check_reads_the_tables_that_only_a_kept_snapshot_has() {
    let fs = Memory::new();
    let (group, trees) = filled(Arc::new(fs.clone()), 1);
    group.keep_snapshot("kept").unwrap();
    let own = tables(&fs, DIR);
    fill(&group, &trees, 1);
    group.compact(None).unwrap();
    assert!(group.check().errors.is_empty());
    drop(group);
    let now = {
        let group = open(Arc::new(fs.clone())).unwrap();
        let snapshot = group.snapshot();
        let paths = snapshot.version().tables().map(|table| table.path());
        paths.collect::<BTreeSet<_>>()
    };
    let path = own.keys().find(|path| !now.contains(*path)).unwrap();
    let mut damaged = fs.read(path).unwrap();
    damaged[100] ^= 1;
    fs.write(path, &damaged);
    let group = open(Arc::new(fs)).unwrap();
    let errors = group.check().errors;
    assert!(!errors.is_empty());
    assert!(errors.iter().all(|error| error.is_damage()));
    // Other reads are not affected.
    assert_eq!(contents(&group.snapshot())["a"].len(), 300);
}

#[test]
fn it_goes_along_with_a_copy_and_through_a_manifest_that_is_written_anew() {
    let fs = Memory::new();
    let (group, trees) = filled(Arc::new(fs.clone()), 1);
    let seen = contents(&group.snapshot());
    group.keep_snapshot("old").unwrap();
    let manifests = |fs: &Memory| {
        let paths = fs.paths().into_iter();
        let is = |path: &PathBuf| path.to_str().unwrap().contains("MANIFEST-");
        paths.filter(is).collect::<Vec<_>>()
    };
    let first = manifests(&fs);
    for round in 0.. {
        if manifests(&fs) != first {
            break;
        }
        // Long keys, because they are in the manifest.
        put(
            &group,
            trees[0],
            &format!("{}{round}", "k".repeat(3000)),
            b"v",
        );
        group.flush().unwrap();
    }
    group.compact(None).unwrap();
    let later = contents(&group.snapshot());
    group.keep_snapshot("new").unwrap();
    put(&group, trees[1], "one more", b"v");
    group.checkpoint(Path::new("/copy")).unwrap();
    group.drop_snapshot("old").unwrap();
    fill(&group, &trees, 7);
    group.compact(None).unwrap();
    let copy = || {
        let options = small(Arc::new(fs.clone()));
        Group::open(Path::new("/copy"), options, Arc::new(PlainTrees), false).unwrap()
    };
    for _ in 0..2 {
        let copy = copy();
        assert_eq!(names(&copy), ["new", "old"]);
        assert_eq!(kept(&copy, "old"), seen);
        assert_eq!(kept(&copy, "new"), later);
        assert!(copy.check().errors.is_empty());
        assert_eq!(contents(&copy.snapshot())["b"].len(), 301);
        fill(&copy, &trees, 9);
        copy.compact(None).unwrap();
    }
    let copy = copy();
    copy.drop_snapshot("new").unwrap();
    copy.drop_snapshot("old").unwrap();
    copy.close().unwrap();
    let version = copy.snapshot();
    let needed: BTreeSet<_> = version.version().tables().map(|t| t.path()).collect();
    assert_eq!(
        tables(&fs, "/copy").into_keys().collect::<BTreeSet<_>>(),
        needed
    );
    assert_eq!(kept(&group, "new"), later);
}

#[test]
fn a_reader_sees_them_come_and_go() {
    let fs = Memory::new();
    let (group, trees) = filled(Arc::new(fs.clone()), 1);
    let reader = || {
        let options = small(Arc::new(fs.clone()));
        Group::open_reader(Path::new(DIR), options, Arc::new(PlainTrees)).unwrap()
    };
    let early = reader();
    let seen = contents(&group.snapshot());
    group.keep_snapshot("one").unwrap();
    fill(&group, &trees, 1);
    group.compact(None).unwrap();
    assert!(names(&early).is_empty());
    early.refresh().unwrap();
    let late = reader();
    for reader in [&early, &late] {
        assert_eq!(names(reader), ["one"]);
        assert!(matches!(reader.keep_snapshot("two"), Err(Error::ReadOnly)));
        assert!(matches!(reader.drop_snapshot("one"), Err(Error::ReadOnly)));
    }
    // Its files are removed: a reader that has seen it has them open.
    group.drop_snapshot("one").unwrap();
    group.keep_snapshot("two").unwrap();
    assert_eq!(kept(&early, "one"), seen);
    assert_eq!(kept(&late, "one"), seen);
    let held = late.kept_snapshot("one").unwrap();
    late.refresh().unwrap();
    assert_eq!(names(&late), ["two"]);
    assert!(late.kept_snapshot("one").is_err());
    assert_eq!(contents(&held), seen);
    // Another handle writes, to another manifest.
    let now = contents(&group.snapshot());
    drop(group);
    let group = open(Arc::new(fs.clone())).unwrap();
    fill(&group, &trees, 2);
    group.compact(None).unwrap();
    for reader in [&early, &late] {
        reader.refresh().unwrap();
        assert_eq!(kept(reader, "two"), now);
        assert_eq!(contents(&reader.snapshot()), contents(&group.snapshot()));
    }
}

#[test]
fn a_shared_file_that_it_needs_stays_and_is_emptied_afterwards() {
    let fs = Memory::new();
    let options = Options {
        share_from: 2,
        ..small(Arc::new(fs.clone()))
    };
    let open = || Group::open(Path::new(DIR), options.clone(), Arc::new(PlainTrees), true);
    let group = open().unwrap();
    let many: Vec<_> = (0..40).map(|n| (format!("t{n}"), vec![])).collect();
    let trees = group.create_trees(&many).unwrap();
    let write = |group: &Group, trees: &[TreeId], value: u8| {
        let mut batch = Batch::new();
        for tree in trees {
            batch.put(*tree, b"k", &[value; 400]).unwrap();
        }
        group.write(&mut batch, Durability::Os).unwrap();
        group.flush().unwrap();
    };
    write(&group, &trees, 1);
    let seen = contents(&group.snapshot());
    group.keep_snapshot("kept").unwrap();
    // Most of the file is unused, except by the snapshot.
    write(&group, &trees[4..], 2);
    group.compact(None).unwrap();
    write(&group, &trees[8..], 3);
    group.compact(None).unwrap();
    assert_eq!(kept(&group, "kept"), seen);
    drop(group);
    let group = open().unwrap();
    put(&group, trees[0], "other", b"v");
    group.compact(None).unwrap();
    assert_eq!(kept(&group, "kept"), seen);
    assert!(group.check().errors.is_empty());
    let before = total(&fs);
    group.drop_snapshot("kept").unwrap();
    group.run_compactions().unwrap();
    put(&group, trees[0], "other", b"v");
    let snapshot = group.snapshot();
    let live: u64 = snapshot.version().tables().map(|t| t.meta().size).sum();
    drop(snapshot);
    assert!(total(&fs) < before);
    assert!(total(&fs) <= 2 * live + 1000, "{} of {live}", total(&fs));
    assert!(group.check().errors.is_empty());
}

#[test]
fn it_never_sees_a_write_lost_in_a_power_cut() {
    for mode in [PowerCut::Lost, PowerCut::Torn, PowerCut::Reordered] {
        let fs = Memory::new();
        let (group, trees) = filled(Arc::new(fs.clone()), 1);
        put(&group, trees[0], "unsynced", b"v");
        let seq = group.keep_snapshot("kept").unwrap();
        put(&group, trees[0], "lost", b"v");
        let group = open(Arc::new(fs.power_cut(1, mode))).unwrap();
        assert!(group.snapshot().seq() >= seq);
        let seen = kept(&group, "kept");
        assert!(seen["a"].contains_key(&b"unsynced"[..]));
        assert!(!seen["a"].contains_key(&b"lost"[..]));
        assert!(contents(&group.snapshot())["a"].contains_key(&b"unsynced"[..]));
    }
}

/// A compaction removes tables from the newest version just before the snapshot is recorded: which
/// succeeds, or fails with an unknown result.
#[test]
fn tables_that_compactions_replace_meanwhile_are_kept() {
    for fails in [false, true] {
        let fs = Memory::new();
        let hooked = Hooked::new(Arc::new(fs.clone()));
        let (group, trees) = filled(Arc::new(hooked.clone()), 3);
        group.flush().unwrap();
        let seen = contents(&group.snapshot());
        let before = tables(&fs, DIR);
        let group = Arc::new(group);
        let (merges, merged) = (AtomicBool::new(true), AtomicBool::new(false));
        let merging = Arc::downgrade(&group);
        hooked.set(move |call, path| {
            let is = |word: &str| call == Call::Sync && path.to_str().unwrap().contains(word);
            // The log is synced: the contents of the snapshot are fixed by then.
            if is(".log") && merges.swap(false, Ordering::SeqCst) {
                merging.upgrade().unwrap().compact(None).unwrap();
                merged.store(true, Ordering::SeqCst);
            }
            // The edit is in the file.
            if is("MANIFEST-") && merged.load(Ordering::SeqCst) && fails {
                Err(std::io::Error::other("the disk is gone"))
            } else {
                Ok(())
            }
        });
        let result = group.keep_snapshot("kept");
        assert_eq!(result.is_err(), fails, "{result:?}");
        assert_eq!(contents(&group.snapshot()), seen);
        hooked.set(|_, _| Ok(()));
        drop(group);
        let group = open(Arc::new(fs.clone())).unwrap();
        put(&group, trees[0], "other", b"v");
        assert_eq!(kept(&group, "kept"), seen);
        // They existed only for the snapshot.
        assert!(group.snapshots()[0].own_bytes > 0);
        assert!(group.check().errors.is_empty());
        group.drop_snapshot("kept").unwrap();
        let left = tables(&fs, DIR);
        assert!(before.keys().all(|path| !left.contains_key(path)));
    }
}

#[test]
fn kept_while_writers_and_merges_are_at_work() {
    let fs = Memory::new();
    let options = Options {
        background: true,
        ..small(Arc::new(fs.clone()))
    };
    let open = || Group::open(Path::new(DIR), options.clone(), Arc::new(PlainTrees), true);
    let group = open().unwrap();
    let trees = group.create_trees(&[("a".into(), vec![]), ("b".into(), vec![])]);
    let trees = trees.unwrap();
    let done = AtomicBool::new(false);
    let mut seen = BTreeMap::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..30 {
                fill(&group, &trees, round);
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut n = 0;
        while !done.load(Ordering::SeqCst) {
            let name = format!("s{}", n % 5);
            if seen.remove(&name).is_some() {
                group.drop_snapshot(&name).unwrap();
            }
            group.keep_snapshot(&name).unwrap();
            let contents = kept(&group, &name);
            assert_eq!(contents["a"], contents["b"]);
            seen.insert(name, contents);
            n += 1;
        }
    });
    for _ in 0..2 {
        for (name, contents) in &seen {
            assert_eq!(kept(&group, name), *contents);
        }
        group.compact(None).unwrap();
    }
    group.close().unwrap();
    drop(group);
    let group = open().unwrap();
    for (name, contents) in &seen {
        assert_eq!(kept(&group, name), *contents);
    }
    assert!(group.check().errors.is_empty());
}
