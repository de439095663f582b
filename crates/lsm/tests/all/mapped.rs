//! Mapped tables: blocks used in place are verified when they are first touched, errors of a touch
//! are typed, values outlive their table, and the memory budget has no part in them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{DIR, Doing, small};
use esker_lsm::fs::Fs;
use esker_lsm::fs::disk::Disk;
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Group, LookupOptions, Options, PlainTrees, Result,
    Slice, Snapshot, TreeId,
};
use esker_sim::faulty::Faulty;
use esker_sim::memory::Memory;

const KEYS: u32 = 400;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn value(n: u32) -> Vec<u8> {
    format!("value {n} ").repeat(12).into_bytes()
}

fn options(fs: Arc<dyn Fs>, compress: bool, mapped_reads: bool) -> Options {
    Options {
        compress,
        mapped_reads,
        table_size: 16 << 10,
        ..small(fs)
    }
}

fn open(dir: &Path, options: Options) -> (Group, TreeId) {
    let group = Group::open(dir, options, Arc::new(PlainTrees), true).unwrap();
    let tree = group.tree("t");
    let tree = tree.unwrap_or_else(|| group.create_trees(&[("t".into(), vec![])]).unwrap()[0]);
    (group, tree)
}

/// A store with several tables, closed.
fn fill(dir: &Path, fs: Arc<dyn Fs>, compress: bool) {
    let (group, tree) = open(dir, options(fs, compress, false));
    let mut batch = Batch::new();
    for n in 0..KEYS {
        batch.put(tree, &key(n), &value(n)).unwrap();
    }
    group.write(&mut batch, Durability::Os).unwrap();
    group.compact(None).unwrap();
    group.close().unwrap();
}

fn get(snapshot: &Snapshot, tree: TreeId, n: u32, cost: &Cost) -> Result<Option<Slice>> {
    let found = snapshot.get(tree, &key(n), cost)?;
    Ok(found.map(|found| found.value))
}

fn scan(snapshot: &Snapshot, tree: TreeId, readahead: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut cursor = snapshot.cursor(tree, readahead);
    let mut entries = Vec::new();
    cursor.seek_first()?;
    while cursor.valid() {
        entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.next()?;
    }
    Ok(entries)
}

fn all() -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..KEYS).map(|n| (key(n).to_vec(), value(n))).collect()
}

/// Looks up some keys together; the values in the order of the keys.
fn look_up(snapshot: &Snapshot, tree: TreeId, keys: &[u32], cost: &Cost) -> Result<Vec<Slice>> {
    let components = snapshot.components(tree);
    let keys: Vec<[u8; 4]> = keys.iter().map(|n| key(*n)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let options = LookupOptions::default();
    let expected = esker_lsm::Expected::default();
    let mut lookup = snapshot.lookup(&components, &keys, expected, options, cost);
    let mut found: Vec<Option<Slice>> = vec![None; keys.len()];
    while lookup
        .next_batch(&mut |at, entry| found[at] = Some(entry.value))?
        .is_some()
    {}
    Ok(found.into_iter().map(Option::unwrap).collect())
}

fn tables(memory: &Memory) -> Vec<PathBuf> {
    let mut paths = memory.paths();
    paths.retain(|path| path.extension().is_some_and(|e| e == "tbl"));
    paths
}

fn place_of(bytes: &[u8], what: &[u8]) -> Option<Range<usize>> {
    let at = bytes
        .windows(what.len())
        .position(|window| window == what)?;
    Some(at..at + what.len())
}

/// Changes the value of a key where it lies in its table; returns the table, and where.
fn damage(memory: &Memory, n: u32) -> (PathBuf, usize) {
    for path in tables(memory) {
        let mut bytes = memory.read(&path).unwrap();
        if let Some(place) = place_of(&bytes, &value(n)) {
            let at = place.start + 9;
            bytes[at] ^= 1;
            memory.write(&path, &bytes);
            return (path, at);
        }
    }
    panic!("no table has the value of {n}");
}

#[test]
fn damage_before_the_first_touch_is_an_error_that_names_its_place() {
    for n in (0..KEYS).step_by(7) {
        let _doing = Doing(&|| format!("key {n}"));
        let memory = Memory::new();
        fill(Path::new(DIR), Arc::new(memory.clone()), false);
        let fs = Arc::new(memory.clone());
        let (group, tree) = open(Path::new(DIR), options(fs, false, true));
        let (snapshot, cost) = (group.snapshot(), Cost::default());
        // The table is open and mapped; other blocks of it were touched.
        get(&snapshot, tree, (n + KEYS / 2) % KEYS, &cost).unwrap();
        let (path, at) = damage(&memory, n);
        let named = |error: Error| match error {
            Error::Corruption {
                path: named,
                offset,
                ..
            } => {
                assert_eq!(named, path);
                let block = offset as usize..offset as usize + 1000;
                assert!(block.contains(&at), "{at} is not in {block:?}");
            }
            other => panic!("{other}"),
        };
        // Also again: damage is not noted as verified.
        for _ in 0..2 {
            named(get(&snapshot, tree, n, &cost).unwrap_err());
            named(scan(&snapshot, tree, 0).unwrap_err());
            let keys: Vec<u32> = (0..KEYS).collect();
            named(look_up(&snapshot, tree, &keys, &cost).unwrap_err());
        }
        let mut right = 0;
        for other in 0..KEYS {
            match get(&snapshot, tree, other, &cost) {
                Ok(found) => {
                    assert_eq!(*found.unwrap(), *value(other));
                    right += 1;
                }
                Err(error) => named(error),
            }
        }
        assert!(right > KEYS - 10);
    }
}

/// What the option says: a block that was verified is trusted, and a check reads the file.
#[test]
fn a_verified_block_is_used_in_place_until_it_is_checked() {
    let memory = Memory::new();
    fill(Path::new(DIR), Arc::new(memory.clone()), false);
    let fs = Arc::new(memory.clone());
    let (group, tree) = open(Path::new(DIR), options(fs, false, true));
    let (snapshot, cost) = (group.snapshot(), Cost::default());
    get(&snapshot, tree, 100, &cost).unwrap();
    damage(&memory, 100);
    let found = get(&snapshot, tree, 100, &cost).unwrap().unwrap();
    assert!(*found != *value(100), "it is a copy");
    assert_eq!(group.check().errors.len(), 1);
}

#[test]
fn a_touch_that_fails_is_an_error_of_that_read_alone() {
    let memory = Memory::new();
    fill(Path::new(DIR), Arc::new(memory.clone()), false);
    let faulty = Faulty::new(Arc::new(memory.clone()));
    let fs = Arc::new(faulty.clone());
    let (group, tree) = open(Path::new(DIR), options(fs, false, true));
    let (snapshot, cost) = (group.snapshot(), Cost::default());
    assert_eq!(scan(&snapshot, tree, 0).unwrap(), all());
    for path in tables(&memory) {
        let bytes = memory.read(&path).unwrap();
        let Some(n) = (0..KEYS).find(|n| place_of(&bytes, &value(*n)).is_some()) else {
            continue;
        };
        let place = place_of(&bytes, &value(n)).unwrap();
        faulty.fail_range(&path, place.start as u64..place.end as u64);
        for _ in 0..2 {
            match get(&snapshot, tree, n, &cost) {
                Err(Error::Io { path: named, .. }) => assert_eq!(named, path),
                other => panic!("{other:?}"),
            }
        }
        faulty.clear();
        assert_eq!(*get(&snapshot, tree, n, &cost).unwrap().unwrap(), *value(n));
    }
    // Each call that reads, one after the other.
    for call in 1..200 {
        faulty.fail_reads_at(call);
        if let Err(error) = look_up(&snapshot, tree, &[1, 90, 91, 399], &cost) {
            assert!(matches!(error, Error::Io { .. }), "{error}");
        }
        if let Ok(entries) = scan(&snapshot, tree, 0) {
            assert_eq!(entries, all());
        }
        faulty.clear();
    }
}

fn outlives(dir: &Path, fs: Arc<dyn Fs>, compress: bool) {
    fill(dir, fs.clone(), compress);
    let (group, tree) = open(dir, options(fs.clone(), compress, true));
    let (snapshot, cost) = (group.snapshot(), Cost::default());
    let names = |fs: &dyn Fs| {
        let mut names = fs.list(dir).unwrap();
        names.retain(|name| name.extension().is_some_and(|e| e == "tbl"));
        names
    };
    let before = names(&*fs);
    assert!(!before.is_empty());
    let keys: Vec<u32> = (0..KEYS).collect();
    let mut values: Vec<Slice> = look_up(&snapshot, tree, &keys, &cost).unwrap();
    for n in &keys {
        values.push(get(&snapshot, tree, *n, &cost).unwrap().unwrap());
    }
    let mut cursor = snapshot.cursor(tree, 0);
    cursor.seek_first().unwrap();
    while cursor.valid() {
        values.push(cursor.value_slice());
        cursor.next().unwrap();
    }
    drop(cursor);
    // Everything is replaced.
    let mut batch = Batch::new();
    for n in &keys {
        batch.put(tree, &key(*n), b"new").unwrap();
    }
    group.write(&mut batch, Durability::Os).unwrap();
    group.compact(None).unwrap();
    drop(snapshot);
    assert!(names(&*fs).iter().all(|name| !before.contains(name)));
    let found = get(&group.snapshot(), tree, 7, &cost).unwrap();
    assert_eq!(*found.unwrap(), *b"new");
    group.close().unwrap();
    drop(group);
    assert_eq!(values.len(), 3 * keys.len());
    for (at, slice) in values.into_iter().enumerate() {
        let n = at as u32 % KEYS;
        assert_eq!(*slice, *value(n));
        assert_eq!(*slice.clone().skip(6), value(n)[6..]);
        assert_eq!(slice.clone().skip(1 << 20).len(), 0);
        assert_eq!(*slice.clone().compact(), *value(n));
        assert_eq!(slice.into_vec(), value(n));
    }
}

#[test]
fn values_outlive_their_tables_and_the_store() {
    for compress in [false, true] {
        outlives(Path::new(DIR), Arc::new(Memory::new()), compress);
        let dir = tempfile::tempdir().unwrap();
        outlives(dir.path(), Arc::new(Disk::new()), compress);
    }
}

#[test]
fn what_is_mapped_takes_nothing_of_the_budget_and_is_read_once() {
    let memory = Memory::new();
    fill(Path::new(DIR), Arc::new(memory.clone()), false);
    let fs = Arc::new(memory.clone());
    let (group, tree) = open(Path::new(DIR), options(fs, false, true));
    let (snapshot, cost) = (group.snapshot(), Cost::default());
    assert_eq!(group.memory().mapped, 0);
    let keys: Vec<u32> = (0..KEYS).collect();
    for n in &keys {
        get(&snapshot, tree, *n, &cost).unwrap();
    }
    let sizes = tables(&memory).into_iter().map(|path| memory.read(&path));
    let bytes: u64 = sizes.map(|bytes| bytes.unwrap().len() as u64).sum();
    assert_eq!(group.memory().mapped, bytes);
    assert_eq!(group.memory().cache, 0);
    assert!(cost.bytes_read.get() > bytes / 2 && cost.bytes_read.get() < bytes);
    let again = Cost::default();
    for n in &keys {
        get(&snapshot, tree, *n, &again).unwrap();
    }
    look_up(&snapshot, tree, &keys, &again).unwrap();
    assert_eq!(again.bytes_read.get(), 0);
    assert!(again.blocks_cached.get() > 0);
    let budget = group.budget().clone();
    drop((snapshot, group));
    assert_eq!(budget.memory().mapped, 0);
}

/// Also tables in shared files, and those that were read before their store was opened again.
#[test]
fn every_table_of_a_store_is_mapped() {
    let memory = Memory::new();
    let fs = Arc::new(memory.clone());
    let (group, tree) = open(Path::new(DIR), options(fs, false, true));
    let names: Vec<_> = (0..4).map(|n| (format!("{n}"), vec![])).collect();
    let mut trees = group.create_trees(&names).unwrap();
    trees.push(tree);
    for step in 0..3 {
        let mut batch = Batch::new();
        for n in 0..KEYS {
            let tree = trees[(n % 5) as usize];
            batch.put(tree, &key(n), &value(n + step)).unwrap();
        }
        group.write(&mut batch, Durability::Os).unwrap();
        match step {
            1 => group.compact(None).unwrap(),
            _ => group.flush().unwrap(),
        }
        let snapshot = group.snapshot();
        for tree in &trees {
            let entries = scan(&snapshot, *tree, 0).unwrap();
            assert_eq!(entries.len(), KEYS as usize / 5);
        }
        drop(snapshot);
        let version = group.snapshot().version().clone();
        let bytes: u64 = version.tables().map(|table| table.meta().size).sum();
        assert_eq!(group.memory().mapped, bytes);
    }
}

#[test]
fn answers_are_those_of_reading_whatever_is_mapped() {
    for compress in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), Arc::new(Disk::new()), compress);
        let refused = Faulty::new(Arc::new(Disk::new()));
        refused.refuse_maps(true);
        let systems: [(Arc<dyn Fs>, bool); 4] = [
            (Arc::new(Disk::new()), cfg!(target_os = "linux")),
            (
                Arc::new(Faulty::new(Arc::new(Disk::new()))),
                cfg!(target_os = "linux"),
            ),
            (Arc::new(refused), false),
            (Arc::new(Memory::new()), true),
        ];
        for (fs, is_mapped) in systems {
            if !fs.exists(dir.path()) {
                fill(dir.path(), fs.clone(), compress);
            }
            let (group, tree) = open(dir.path(), options(fs, compress, true));
            let (snapshot, cost) = (group.snapshot(), Cost::default());
            for readahead in [0, 4096] {
                assert_eq!(scan(&snapshot, tree, readahead).unwrap(), all());
            }
            assert_eq!(group.memory().mapped > 0, is_mapped);
            let few = [0, 3, 4, 200, 399];
            for (n, found) in few
                .into_iter()
                .zip(look_up(&snapshot, tree, &few, &cost).unwrap())
            {
                assert_eq!(*found, *value(n));
                assert_eq!(*get(&snapshot, tree, n, &cost).unwrap().unwrap(), *value(n));
            }
            assert!(group.check().errors.is_empty());
        }
    }
}
