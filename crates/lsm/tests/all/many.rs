//! Stores of many trees: a job that writes to many of them creates few files, whose size is close
//! to the live data, and no writer waits while files are read or removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{DIR, bytes, small};
use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, Cost, DropPolicy, Durability, Error, Group, Options, PlainTrees, Result, SupersededBy,
    TreeId, TreeOptions, TreeProvider,
};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

const TREES: usize = 60;

fn options(fs: Arc<dyn Fs>) -> Options {
    Options {
        share_from: 8,
        memory_budget: 8 << 20,
        ..small(fs)
    }
}

fn open(fs: Arc<dyn Fs>) -> Group {
    Group::open(Path::new(DIR), options(fs), Arc::new(PlainTrees), true).unwrap()
}

fn create(group: &Group, count: usize) -> Vec<TreeId> {
    let names: Vec<_> = (0..count).map(|n| (format!("t{n}"), vec![])).collect();
    group.create_trees(&names).unwrap()
}

fn put(group: &Group, tree: TreeId, key: u32, value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(tree, &key.to_be_bytes(), value).unwrap();
    group.write(&mut batch, Durability::Os).unwrap();
}

fn tables(memory: &Memory) -> Vec<PathBuf> {
    let mut paths = memory.paths();
    paths.retain(|path| path.extension().is_some_and(|end| end == "tbl"));
    paths
}

fn on_disk(memory: &Memory) -> u64 {
    let len = |path: &PathBuf| memory.read(path).unwrap().len() as u64;
    tables(memory).iter().map(len).sum()
}

fn in_use(group: &Group) -> u64 {
    let snapshot = group.snapshot();
    snapshot.version().tables().map(|t| t.meta().size).sum()
}

type Model = BTreeMap<(TreeId, u32), Vec<u8>>;

fn assert_holds(group: &Group, model: &Model) {
    let snapshot = group.snapshot();
    for ((tree, key), value) in model {
        let found = snapshot.get(*tree, &key.to_be_bytes(), &Cost::default());
        assert_eq!(found.unwrap().unwrap().value.to_vec(), *value);
    }
    let report = group.check();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn small_tables_of_a_flush_share_a_file_and_large_ones_and_few_do_not() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone()));
    let ids = create(&group, TREES);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut model = Model::new();
    let mut write = |tree: TreeId, key: u32, len: usize| {
        let value = bytes(&mut rng, len);
        put(&group, tree, key, &value);
        model.insert((tree, key), value);
    };
    for tree in &ids {
        write(*tree, 1, 100);
    }
    // A table with its own file.
    (0..30).for_each(|key| write(ids[7], key, 20_000));
    group.flush().unwrap();
    let version = group.snapshot().version().clone();
    let alone = |table: &&Arc<esker_lsm::version::TableFile>| table.meta().size > 256 << 10;
    assert!(version.tables().filter(alone).all(|t| t.offset() == 0));
    let own = version.trees[&ids[7]].tables().count();
    let files = tables(&memory).len();
    assert!(files <= own + 1, "{files} files, {own} of them of one tree");
    // Few trees get a file each, which begins with its table.
    for tree in &ids[..3] {
        write(*tree, 2, 100);
    }
    group.flush().unwrap();
    assert_eq!(tables(&memory).len(), files + 3);
    assert_holds(&group, &model);
    drop(version);
    drop(group);
    let group = open(Arc::new(memory.clone()));
    assert_holds(&group, &model);
    // A copy has the shared files, too, and each is linked once.
    let copy = Path::new("/copy");
    group.checkpoint(copy).unwrap();
    group.compact(None).unwrap();
    drop(group);
    let fs = Arc::new(memory.clone());
    let group = Group::open(copy, options(fs), Arc::new(PlainTrees), false).unwrap();
    assert_holds(&group, &model);
}

#[test]
fn a_shared_file_is_removed_with_its_last_live_table() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone()));
    let ids = create(&group, 20);
    ids.iter().for_each(|tree| put(&group, *tree, 1, b"one"));
    group.flush().unwrap();
    assert_eq!(tables(&memory).len(), 1);
    let before = group.snapshot();
    group.drop_trees(&ids[..19]).unwrap();
    assert_eq!(tables(&memory).len(), 1);
    // Its live tables are moved, and the old file stays for the snapshot that pins it.
    group.run_compactions().unwrap();
    assert_eq!(tables(&memory).len(), 2);
    let found = before.get(ids[0], &1_u32.to_be_bytes(), &Cost::default());
    assert_eq!(found.unwrap().unwrap().value.to_vec(), b"one");
    drop(before);
    assert_eq!(tables(&memory).len(), 1);
    assert_eq!(on_disk(&memory), in_use(&group));
    group.drop_trees(&ids[19..]).unwrap();
    assert_eq!(tables(&memory).len(), 0);
}

/// Trees that are written once pin the shared files that other trees have left.
#[test]
fn files_that_are_mostly_unused_are_moved() {
    let memory = Memory::new();
    let mut group = open(Arc::new(memory.clone()));
    let ids = create(&group, TREES);
    let mut rng = fastrand::Rng::with_seed(2);
    let mut model = Model::new();
    for round in 0..60 {
        // In each round another tree is written for the only time.
        for tree in ids[TREES / 2..]
            .iter()
            .chain(&ids[round / 2..round / 2 + 1])
        {
            let (key, value) = (rng.u32(0..20), bytes(&mut rng, 200));
            put(&group, *tree, key, &value);
            model.insert((*tree, key), value);
        }
        group.flush().unwrap();
        group.run_compactions().unwrap();
        let (disk, used) = (on_disk(&memory), in_use(&group));
        assert!(disk <= 2 * used + 1024, "round {round}: {disk} for {used}");
        if round == 30 {
            drop(group);
            group = open(Arc::new(memory.clone()));
        }
    }
    assert_holds(&group, &model);
    drop(group);
    assert_holds(&open(Arc::new(memory)), &model);
}

#[test]
fn damage_of_one_table_in_a_shared_file_is_damage_of_one_tree() {
    let memory = Memory::new();
    let group = open(Arc::new(memory.clone()));
    let ids = create(&group, 20);
    let write = |group: &Group| {
        ids.iter().for_each(|tree| put(group, *tree, 1, &[7; 100]));
        group.flush().unwrap();
        let _ = group.run_compactions();
    };
    write(&group);
    let version = group.snapshot().version().clone();
    let table = version.trees[&ids[5]].tables().next().unwrap().clone();
    assert!(table.offset() > 0);
    drop(version);
    drop(group);
    let path = table.path();
    let mut content = memory.read(&path).unwrap();
    let place = table.offset() as usize + 40;
    content[place] ^= 1;
    memory.write(&path, &content);
    let group = open(Arc::new(memory.clone()));
    (0..8).for_each(|_| write(&group));
    let failures = group.failures();
    assert!(failures.len() <= 1, "{failures:?}");
    let errors = group.check().errors;
    assert!(!errors.is_empty());
    // It may have been moved, with the other live tables of its file.
    let version = group.snapshot().version().clone();
    let mut tables = version.trees[&ids[5]].tables();
    let number = table.meta().number;
    let now = tables.find(|table| table.meta().number == number).unwrap();
    let (path, inside) = (now.path(), now.offset()..now.offset() + now.meta().size);
    for error in errors.iter().chain(failures.iter().map(|f| &f.error)) {
        let Error::Corruption {
            path: at, offset, ..
        } = error
        else {
            panic!("{error}");
        };
        assert!(*at == path && inside.contains(offset), "{error}");
    }
    // The others were compacted anyway.
    for tree in ids.iter().filter(|tree| **tree != ids[5]) {
        let runs = group.snapshot().version().trees[tree].runs.len();
        assert!(runs < 6, "tree {tree} has {runs} runs");
    }
}

/// `data` drops the puts in `bits`.
struct WithBits;

impl TreeProvider for WithBits {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        Ok(TreeOptions {
            bitmap: name == "bits",
            superseded: (name == "data").then(|| SupersededBy {
                tree: "bits".to_string(),
                drop_policy: DropPolicy::Record,
            }),
            ..TreeOptions::default()
        })
    }
}

#[test]
fn installing_a_version_reads_no_table() {
    let hooked = Hooked::new(Arc::new(Memory::new()));
    let fs = Arc::new(hooked.clone());
    let group = Group::open(Path::new(DIR), options(fs), Arc::new(WithBits), true).unwrap();
    let names = ["data", "bits"].map(|name| (name.to_string(), vec![]));
    let ids = group.create_trees(&names).unwrap();
    // The flush records the older of two versions as obsolete, so the set grows.
    put(&group, ids[0], 1, b"one");
    put(&group, ids[0], 1, b"two");
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    hooked.set(move |call, path| {
        let table = path.extension().is_some_and(|end| end == "tbl");
        if table && matches!(call, Call::Open | Call::Read) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    group.flush().unwrap();
    let numbers = (1..4).map(|n| Ok(n * 5));
    group.write(&mut filled(ids[0]), Durability::Os).unwrap();
    let mut numbers = numbers.take(1);
    group.supersede(ids[1], &mut numbers, None).unwrap();
    assert_eq!(reads.load(Ordering::SeqCst), 0);
    hooked.clear();
    let snapshot = group.snapshot();
    let bits = snapshot.version().trees[&ids[1]].bitmap().clone();
    assert_eq!(bits.iter().collect::<Vec<_>>(), [1, 5]);
}

fn filled(tree: TreeId) -> Batch {
    let mut batch = Batch::new();
    for key in 10..20_u32 {
        batch.put(tree, &key.to_be_bytes(), b"v").unwrap();
    }
    batch
}

/// A writer that runs while files are removed ends before the removal does.
#[test]
fn no_writer_waits_while_files_are_removed() {
    let hooked = Hooked::new(Arc::new(Memory::new()));
    let fs = Arc::new(hooked.clone());
    let group = Group::open(Path::new(DIR), options(fs), Arc::new(PlainTrees), true).unwrap();
    let group = Arc::new(group);
    let ids = create(&group, 12);
    ids.iter().for_each(|tree| put(&group, *tree, 1, b"one"));
    group.flush().unwrap();
    let (writer, tree) = (group.clone(), ids[0]);
    let removed = Arc::new(AtomicUsize::new(0));
    let count = removed.clone();
    hooked.set(move |call, path| {
        if call != Call::Remove || path.extension().is_none_or(|end| end != "tbl") {
            return Ok(());
        }
        count.fetch_add(1, Ordering::SeqCst);
        let (done, ended) = mpsc::channel();
        let group = writer.clone();
        let thread = std::thread::spawn(move || {
            put(&group, tree, 2, b"two");
            // This write needs the manifest's lock.
            group.create_trees(&[("new".to_string(), vec![])]).unwrap();
            let _ = done.send(());
        });
        let ended = ended.recv_timeout(Duration::from_secs(60));
        assert!(ended.is_ok(), "a writer waits for the removal of a file");
        thread.join().unwrap();
        Ok(())
    });
    group.drop_trees(&ids[1..]).unwrap();
    group.run_compactions().unwrap();
    assert_eq!(removed.load(Ordering::SeqCst), 1);
    hooked.clear();
}

/// Each tree drops the puts in its own set.
struct WithSets;

impl TreeProvider for WithSets {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        let holder = name.strip_prefix("data");
        Ok(TreeOptions {
            bitmap: holder.is_none(),
            superseded: holder.map(|number| SupersededBy {
                tree: format!("bits{number}"),
                drop_policy: DropPolicy::Record,
            }),
            ..TreeOptions::default()
        })
    }
}

#[test]
fn sets_of_obsolete_writes_are_swept_together() {
    let memory = Memory::new();
    let hooked = Hooked::new(Arc::new(memory.clone()));
    let fs = Arc::new(hooked.clone());
    let group = Group::open(Path::new(DIR), options(fs), Arc::new(WithSets), true).unwrap();
    let of = |what: &str| -> Vec<TreeId> {
        let names: Vec<_> = (0..20).map(|n| (format!("{what}{n}"), vec![])).collect();
        group.create_trees(&names).unwrap()
    };
    let (data, sets) = (of("data"), of("bits"));
    let mut model = Model::new();
    for tree in &data {
        put(&group, *tree, 1, b"one");
        put(&group, *tree, 1, b"two");
        model.insert((*tree, 1), b"two".to_vec());
    }
    // The flush records the obsolete ones. One more is recorded that still has an entry, so it is
    // kept.
    group.flush().unwrap();
    let over = group.snapshot().version().trees[&sets[3]].bitmap().clone();
    let mut more = [Ok(over.iter().next().unwrap() + 1)].into_iter();
    group.supersede(sets[3], &mut more, None).unwrap();
    let edits = Arc::new(AtomicUsize::new(0));
    let count = edits.clone();
    hooked.set(move |call, path| {
        let manifest = path.to_str().unwrap().contains("MANIFEST");
        if manifest && matches!(call, Call::Sync) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    group.compact_trees(&sets).unwrap();
    hooked.clear();
    assert_eq!(edits.load(Ordering::SeqCst), 1);
    let left = |group: &Group| -> Vec<u64> {
        let version = group.snapshot().version().clone();
        let len = |set: &TreeId| version.trees[set].bitmap().len();
        sets.iter().map(len).collect()
    };
    let expected: Vec<u64> = (0..20).map(|n| u64::from(n == 3)).collect();
    assert_eq!(left(&group), expected);
    drop(group);
    let fs = Arc::new(memory.clone());
    let group = Group::open(Path::new(DIR), options(fs), Arc::new(WithSets), false).unwrap();
    assert_eq!(left(&group), expected);
    model.remove(&(data[3], 1));
    assert_holds(&group, &model);
}
