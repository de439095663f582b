//! Bulk loads, checkpoints, and the files on disk: no more than are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{DIR, Doing, bytes, open, seeds, small};
use esker_lsm::entry::MAX_KEY_LEN;
use esker_lsm::fs::Fs;
use esker_lsm::fs::disk::Disk;
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Group, Options, PlainTrees, Result, Snapshot, TreeId,
};
use esker_sim::memory::{Memory, PowerCut};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn read(snapshot: &Snapshot, tree: TreeId) -> Model {
    let mut cursor = snapshot.cursor(tree, 0);
    let mut model = Model::new();
    cursor.seek_first().unwrap();
    while cursor.valid() {
        let found = snapshot.get(tree, cursor.key(), &Cost::default()).unwrap();
        assert_eq!(found.unwrap().seq, cursor.seq());
        assert!(cursor.seq() <= snapshot.seq());
        model.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    model
}

fn put(group: &Group, tree: TreeId, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(tree, key, value).unwrap();
    group.write(&mut batch, Durability::Os).unwrap();
}

fn trees(group: &Group, names: &[&str]) -> Vec<TreeId> {
    let names: Vec<_> = names
        .iter()
        .map(|name| (name.to_string(), vec![]))
        .collect();
    group.create_trees(&names).unwrap()
}

fn ingest(group: &Group, tree: TreeId, entries: &[(&[u8], &[u8])]) -> Result<u64> {
    group.ingest(tree, &mut entries.iter().map(|entry| Ok(*entry)))
}

/// The files that a group needs: its tables, and one of each growing kind.
fn assert_no_leaks(memory: &Memory, dir: &Path, group: &Group) {
    let snapshot = group.snapshot();
    let tables: BTreeSet<PathBuf> = snapshot.version().tables().map(|t| t.path()).collect();
    let mut others: Vec<String> = Vec::new();
    let consumers = dir.join("consumers");
    for path in memory.paths().iter().filter(|path| path.starts_with(dir)) {
        if !tables.contains(path) && !path.starts_with(&consumers) {
            others.push(path.file_name().unwrap().to_str().unwrap().to_string());
        }
    }
    let count = |what: &str| others.iter().filter(|name| name.contains(what)).count();
    let counts = (
        count("CURRENT"),
        count("LOCK"),
        count("MANIFEST"),
        count(".log"),
    );
    assert_eq!((others.len(), counts), (4, (1, 1, 1, 1)), "{others:?}");
    for table in &tables {
        assert!(memory.read(table).is_some());
    }
}

#[test]
fn bulk_loads_among_writes() {
    for seed in seeds(esker_sim::by_tier(20, 60)) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        let mut group = open(Arc::new(memory.clone())).unwrap();
        let ids = trees(&group, &["a", "b"]);
        let mut models = [Model::new(), Model::new()];
        let mut kept: Vec<(Snapshot, [Model; 2])> = Vec::new();
        for _ in 0..60 {
            let at = rng.usize(0..2);
            let (tree, model) = (ids[at], &mut models[at]);
            match rng.usize(0..12) {
                0..2 => {
                    let mut new = Model::new();
                    for _ in 0..rng.usize(0..200) {
                        let key = format!("{:04}", rng.usize(0..400)).into_bytes();
                        let len = rng.usize(0..200);
                        new.insert(key, bytes(&mut rng, len));
                    }
                    let mut entries = new.iter().map(|(k, v)| Ok((&k[..], &v[..])));
                    let before = group.snapshot().seq();
                    assert_eq!(group.ingest(tree, &mut entries).unwrap(), new.len() as u64);
                    assert_eq!(group.snapshot().seq(), before + 1);
                    model.extend(new);
                }
                2 => kept.push((group.snapshot(), models.clone())),
                3 => group.compact(rng.bool().then_some(tree)).unwrap(),
                4 => group.flush().unwrap(),
                5 if rng.bool() => {
                    kept.clear();
                    drop(group);
                    group = open(Arc::new(memory.clone())).unwrap();
                }
                _ => {
                    let mut batch = Batch::new();
                    for _ in 0..rng.usize(1..30) {
                        let key = format!("{:04}", rng.usize(0..400)).into_bytes();
                        if rng.bool() {
                            batch.delete(tree, &key).unwrap();
                            model.remove(&key);
                        } else {
                            let value = bytes(&mut rng, 20);
                            batch.put(tree, &key, &value).unwrap();
                            model.insert(key, value);
                        }
                    }
                    group.write(&mut batch, Durability::Os).unwrap();
                }
            }
            let snapshot = group.snapshot();
            for (tree, model) in ids.iter().zip(&models) {
                assert_eq!(&read(&snapshot, *tree), model);
            }
        }
        for (snapshot, models) in &kept {
            for (tree, model) in ids.iter().zip(models) {
                assert_eq!(&read(snapshot, *tree), model);
            }
        }
        drop(kept);
        assert!(group.check().errors.is_empty());
        group.compact(None).unwrap();
        assert_no_leaks(&memory, Path::new(DIR), &group);
    }
}

#[test]
fn refused_bulk_loads_leave_nothing() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone())).unwrap();
    let tree = trees(&group, &["t"])[0];
    put(&group, tree, b"k", b"old");
    let many: Vec<Vec<u8>> = (0..2000_u32).map(|n| n.to_be_bytes().to_vec()).collect();
    let mut entries: Vec<(&[u8], &[u8])> = many.iter().map(|key| (&key[..], &key[..])).collect();
    let long = vec![b'z'; MAX_KEY_LEN + 1];
    for (bad, what) in [
        (&many[5][..], "not above"),
        (&many[1999][..], "not above"),
        (&long[..], "over the limit"),
    ] {
        entries.push((bad, b""));
        let error = ingest(&group, tree, &entries).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        entries.pop();
    }
    let lost = || Error::Invalid("the source is gone".to_string());
    let given = entries.iter().map(|entry| Ok(*entry));
    let mut cut = given.chain(std::iter::once_with(|| Err(lost())));
    let error = group.ingest(tree, &mut cut).unwrap_err();
    assert_eq!(error.to_string(), lost().to_string());
    assert!(matches!(
        ingest(&group, 99, &entries),
        Err(Error::Invalid(_))
    ));

    let old = Model::from([(b"k".to_vec(), b"old".to_vec())]);
    assert_eq!(read(&group.snapshot(), tree), old);
    assert_no_leaks(&memory, Path::new(DIR), &group);
    put(&group, tree, b"l", b"new");
    assert_eq!(ingest(&group, tree, &entries).unwrap(), 2000);
    let left = memory.power_cut(0, PowerCut::Lost);
    let after = open(Arc::new(left)).unwrap();
    assert_eq!(read(&after.snapshot(), tree).len(), 2002);
}

/// Writes during a bulk load are newer than it, deletes included.
#[test]
fn writes_beside_a_bulk_load_are_newer() {
    let group = open(Arc::new(Memory::new())).unwrap();
    let tree = trees(&group, &["t"])[0];
    let keys: Vec<Vec<u8>> = (0..100_u32).map(|n| n.to_be_bytes().to_vec()).collect();
    let mut entries = keys.iter().enumerate().map(|(at, key)| {
        if at == 50 {
            let mut batch = Batch::new();
            batch.delete(tree, &keys[10])?;
            batch.delete(tree, &keys[90])?;
            batch.put(tree, &keys[20], b"newer")?;
            group.write(&mut batch, Durability::Os)?;
            group.flush()?;
            let snapshot = group.snapshot();
            assert_eq!(
                read(&snapshot, tree).len(),
                1,
                "nothing of the load is visible"
            );
        }
        Ok((key.as_slice(), &b"loaded"[..]))
    });
    assert_eq!(group.ingest(tree, &mut entries).unwrap(), 100);
    for round in 0..2 {
        let found = read(&group.snapshot(), tree);
        assert_eq!(found.len(), 98, "round {round}");
        assert_eq!(found[&keys[20]], b"newer");
        assert!(!found.contains_key(&keys[10]) && !found.contains_key(&keys[90]));
        group.compact(None).unwrap();
    }
}

/// Writes 0, 1, 2, ... in two trees, and checks that `dir` holds exactly a prefix of them.
fn assert_prefix(fs: Arc<dyn Fs>, dir: &Path, least: u64, most: u64) -> u64 {
    let group = Group::open(dir, small(fs), Arc::new(PlainTrees), false).unwrap();
    let snapshot = group.snapshot();
    let read: Vec<Model> = ["a", "b"]
        .iter()
        .map(|name| read(&snapshot, group.tree(name).unwrap()))
        .collect();
    let count = read[0].len() as u64;
    assert!(
        (least..=most).contains(&count),
        "{least} <= {count} <= {most}"
    );
    for keys in &read {
        assert!(
            keys.keys().map(Vec::as_slice).eq((0..count)
                .map(|n| n.to_be_bytes())
                .collect::<Vec<_>>()
                .iter()
                .map(|k| &k[..]))
        );
    }
    assert!(group.check().errors.is_empty());
    count
}

fn write_numbered(group: &Group, ids: &[TreeId], n: u64) {
    let mut batch = Batch::new();
    let value = n.to_le_bytes().repeat(10);
    batch.put(ids[0], &n.to_be_bytes(), &value).unwrap();
    batch
        .also(esker_lsm::Kind::Put, ids[1], &n.to_be_bytes(), &value)
        .unwrap();
    group.write(&mut batch, Durability::Os).unwrap();
}

fn checkpoints_while_writing(fs: Arc<dyn Fs>, dir: &Path) {
    let options = Options {
        background: true,
        ..small(fs.clone())
    };
    let store = dir.join("store");
    let group = Group::open(&store, options, Arc::new(PlainTrees), true).unwrap();
    let ids = trees(&group, &["a", "b"]);
    let (started, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    const ALL: u64 = 6000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..ALL {
                started.store(n + 1, Ordering::SeqCst);
                write_numbered(&group, &ids, n);
                acknowledged.store(n + 1, Ordering::SeqCst);
            }
        });
        let mut before = 0;
        for round in 0..8 {
            let dest = dir.join(format!("copy{round}"));
            let least = acknowledged.load(Ordering::SeqCst);
            group.checkpoint(&dest).unwrap();
            let most = started.load(Ordering::SeqCst);
            let count = assert_prefix(fs.clone(), &dest, least.max(before), most);
            before = count;
        }
    });
    // The copies do not need the store, nor the store the copies.
    group.compact(None).unwrap();
    drop(group);
    let copy = dir.join("copy7");
    let count = assert_prefix(fs.clone(), &copy, 0, ALL);
    let group = Group::open(&copy, small(fs.clone()), Arc::new(PlainTrees), false).unwrap();
    for n in count..count + 500 {
        write_numbered(&group, &ids, n);
    }
    group.compact(None).unwrap();
    assert!(matches!(group.checkpoint(&store), Err(Error::Invalid(_))));
    drop(group);
    assert_prefix(fs.clone(), &copy, count + 500, count + 500);
    assert_prefix(fs, &store, ALL, ALL);
}

#[test]
fn checkpoints_in_memory() {
    checkpoints_while_writing(Arc::new(Memory::new()), Path::new("/"));
}

#[test]
fn checkpoints_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    checkpoints_while_writing(Arc::new(Disk::new()), dir.path());
}

#[test]
fn a_checkpoint_survives_a_power_cut_as_soon_as_it_is_there() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone())).unwrap();
    let ids = trees(&group, &["a", "b"]);
    for n in 0..300 {
        write_numbered(&group, &ids, n);
    }
    group.checkpoint(Path::new("/copy")).unwrap();
    let left = memory.power_cut(0, PowerCut::Lost);
    assert_prefix(Arc::new(left), Path::new("/copy"), 300, 300);
    assert_no_leaks(&memory, Path::new(DIR), &group);
}

#[test]
fn dropped_trees_are_removed_with_their_last_reader() {
    let memory = Memory::new();
    let options = Options {
        // Each tree has its own files.
        share_from: usize::MAX,
        ..small(Arc::new(memory.clone()))
    };
    let group = Group::open(Path::new(DIR), options, Arc::new(PlainTrees), true).unwrap();
    let ids = trees(&group, &["stays", "goes"]);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut model = Model::new();
    for n in 0..500_u32 {
        let (key, value) = (n.to_be_bytes().to_vec(), bytes(&mut rng, 50));
        put(&group, ids[0], &key, &value);
        put(&group, ids[1], &key, &value);
        model.insert(key, value);
    }
    group.flush().unwrap();
    put(&group, ids[1], b"in memory", b"");
    model.insert(b"in memory".to_vec(), b"".to_vec());
    let snapshot = group.snapshot();
    let files = |tree: TreeId| -> Vec<PathBuf> {
        let runs = snapshot.version().trees[&tree].runs.iter();
        runs.flat_map(|run| run.tables.iter().map(|table| table.path()))
            .collect()
    };
    let (stays, goes) = (files(ids[0]), files(ids[1]));
    assert!(!stays.is_empty() && !goes.is_empty());
    group.drop_trees(&[ids[1]]).unwrap();
    group.compact(None).unwrap();
    let there = |paths: &[PathBuf]| {
        paths
            .iter()
            .filter(|path| memory.read(path).is_some())
            .count()
    };
    assert_eq!((there(&stays), there(&goes)), (stays.len(), goes.len()));
    assert_eq!(read(&snapshot, ids[1]), model, "a snapshot has what it saw");
    drop(snapshot);
    assert_eq!(there(&goes), 0);
    assert_no_leaks(&memory, Path::new(DIR), &group);
    // The number is not reused, so that old log entries cannot appear in a new tree.
    let next = trees(&group, &["goes"])[0];
    assert!(next > ids[1]);
    assert!(read(&group.snapshot(), next).is_empty());
}

#[test]
fn files_of_the_past_are_removed() {
    for seed in seeds(20) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        for _ in 0..6 {
            let group = open(Arc::new(memory.clone())).unwrap();
            let tree = group.tree("t").unwrap_or_else(|| trees(&group, &["t"])[0]);
            let mut snapshots = Vec::new();
            for _ in 0..rng.usize(0..400) {
                let key = rng.u8(..).to_string();
                let len = rng.usize(0..1500);
                put(&group, tree, key.as_bytes(), &bytes(&mut rng, len));
                if rng.usize(0..50) == 0 {
                    snapshots.push(group.snapshot());
                }
                if rng.usize(0..60) == 0 {
                    group.flush().unwrap();
                }
            }
            if rng.bool() {
                put(&group, tree, b"k", b"v");
                group.compact(None).unwrap();
                snapshots.clear();
                assert_no_leaks(&memory, Path::new(DIR), &group);
                // One run, without anything obsolete.
                let snapshot = group.snapshot();
                let tree = &snapshot.version().trees[&tree];
                assert!(tree.runs.len() <= 1);
                assert!(
                    snapshot
                        .version()
                        .tables()
                        .all(|table| table.meta().deletes == 0)
                );
            }
        }
    }
}

/// After a compaction of disjoint puts and deletes no delete is left.
#[test]
fn compaction_leaves_no_deletes() {
    let group = open(Arc::new(Memory::new())).unwrap();
    let tree = trees(&group, &["t"])[0];
    put(&group, tree, b"a", b"1");
    group.flush().unwrap();
    let mut batch = Batch::new();
    batch.delete(tree, b"a").unwrap();
    batch.put(tree, b"b", b"2").unwrap();
    group.write(&mut batch, Durability::Os).unwrap();
    group.flush().unwrap();
    // Removes the entries that the delete hides, and keeps the delete.
    group.compact(None).unwrap();
    let snapshot = group.snapshot();
    assert_eq!(
        snapshot
            .version()
            .tables()
            .map(|table| table.meta().entries)
            .sum::<u64>(),
        1
    );
}
