//! Full disks, failed calls, locks and invalid folders: errors that name their cause, reads that
//! continue, and nothing lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{DIR, Doing, bytes, open, seeds, small};
use esker_lsm::fs::disk::Disk;
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Group, Options, PlainTrees, Result, TreeId,
};
use esker_sim::faulty::Faulty;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn put(group: &Group, tree: TreeId, key: &[u8], value: &[u8], how: Durability) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(tree, key, value).unwrap();
    group.write(&mut batch, how).map(|_| ())
}

fn read(group: &Group, tree: TreeId) -> Model {
    let snapshot = group.snapshot();
    let mut cursor = snapshot.cursor(tree, 0);
    let mut model = Model::new();
    cursor.seek_first().unwrap();
    while cursor.valid() {
        let found = snapshot.get(tree, cursor.key(), &Cost::default()).unwrap();
        assert_eq!(&*found.unwrap().value, cursor.value());
        model.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    model
}

fn faulty() -> (Memory, Faulty) {
    let memory = Memory::new();
    (memory.clone(), Faulty::new(Arc::new(memory)))
}

fn one_tree(group: &Group) -> TreeId {
    let tree = group.tree("t");
    tree.unwrap_or_else(|| group.create_trees(&[("t".into(), vec![])]).unwrap()[0])
}

/// The remains of an append are truncated, and a power cut may restore them until the file is
/// synced: closing must not take a file for durable because all acknowledged writes are.
#[test]
fn a_rolled_back_append_does_not_reappear_behind_the_seal() {
    let mut came_back = 0;
    for seed in seeds(40) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let (memory, fs) = faulty();
        let group = open(Arc::new(fs.clone())).unwrap();
        let tree = one_tree(&group);
        put(&group, tree, b"a", b"1", Durability::Sync).unwrap();
        fs.set_capacity(fs.used() + 20);
        let error = put(&group, tree, b"b", &[7; 100], Durability::Os).unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        // From now on they may be back.
        let left = memory.power_cut(seed, PowerCut::Reordered);
        let longer = |path: &std::path::PathBuf| left.read(path) != memory.read(path);
        came_back += memory.paths().iter().filter(|path| longer(path)).count();
        fs.clear();
        group.close().unwrap();
        drop(group);
        let left = memory.power_cut(seed, PowerCut::Reordered);
        let group = open(Arc::new(left)).unwrap();
        assert_eq!(read(&group, tree), [(b"a".to_vec(), b"1".to_vec())].into());
    }
    assert!(came_back > 0);
}

/// A sync marker that does not fit is truncated, and closing must not seal the file before that is
/// durable, either. Another program makes room between the two.
#[test]
fn a_sync_marker_that_did_not_fit_does_not_reappear_behind_the_seal() {
    let mut cut_short = 0;
    for room in 0..200 {
        let _doing = Doing(&|| format!("with room for {room} bytes"));
        let (memory, full) = faulty();
        let fs = Hooked::new(Arc::new(full.clone()));
        let group = open(Arc::new(fs.clone())).unwrap();
        let tree = one_tree(&group);
        let mut model = Model::new();
        full.set_capacity(full.used() + room);
        match put(&group, tree, b"a", b"1", Durability::Sync) {
            Ok(()) => drop(model.insert(b"a".to_vec(), b"1".to_vec())),
            Err(error) => assert!(error.is_disk_full(), "{error}"),
        }
        let restored = memory.power_cut(0, PowerCut::Untruncated);
        let differs = |path: &std::path::PathBuf| restored.read(path) != memory.read(path);
        cut_short += usize::from(!model.is_empty() && memory.paths().iter().any(differs));
        // The manifest is synced when the log is sealed, before the seal is written.
        fs.set(move |call, path| {
            if call == Call::Sync && path.to_string_lossy().contains("MANIFEST") {
                full.clear();
            }
            Ok(())
        });
        group.close().unwrap();
        drop(group);
        let left = memory.power_cut(0, PowerCut::Untruncated);
        let group = open(Arc::new(left)).unwrap();
        assert_eq!(read(&group, tree), model);
    }
    assert!(cut_short > 0);
}

/// A file system may take all bytes of an append and then report a full disk. The write is refused
/// and the bytes are truncated; until that is durable a power cut may restore all of them, which
/// are valid then.
#[test]
fn what_a_full_disk_refused_is_not_read_after_a_sync_and_a_power_cut() {
    type End = fn(&Group) -> Result<()>;
    let empty_batch = |group: &Group| group.write(&mut Batch::new(), Durability::Sync).map(drop);
    let ends: [(&str, End); 3] = [
        ("sync", Group::sync),
        ("empty batch", empty_batch),
        ("close", Group::close),
    ];
    for (how, end) in ends {
        let mut refused = 0;
        for call in 1.. {
            let _doing = Doing(&|| format!("{how}, call {call}"));
            let (memory, fs) = faulty();
            let group = open(Arc::new(fs.clone())).unwrap();
            let tree = one_tree(&group);
            let mut model = Model::new();
            let before = fs.calls();
            fs.fill_late_at(call);
            for step in 0..9_u8 {
                let key = vec![step];
                let result = match step {
                    2 => group.flush(),
                    5 => group.compact(None),
                    _ => {
                        let how = [Durability::Os, Durability::Sync][usize::from(step % 2)];
                        let result = put(&group, tree, &key, b"value", how);
                        if result.is_ok() {
                            model.insert(key, b"value".to_vec());
                        }
                        result
                    }
                };
                if let Err(error) = result {
                    assert!(error.is_disk_full(), "{error}");
                    refused += 1;
                }
            }
            end(&group).or_else(|_| end(&group)).unwrap();
            let left = memory.power_cut(0, PowerCut::Untruncated);
            let calls = fs.calls() - before;
            drop(group);
            let group = open(Arc::new(left)).unwrap();
            assert_eq!(read(&group, tree), model);
            let report = group.check();
            assert!(report.errors.is_empty(), "{:?}", report.errors);
            if calls < call {
                break;
            }
        }
        assert!(refused > 5, "{refused}");
    }
}

/// Writes, flushes and compacts while the disk is full again and again, at any byte.
#[test]
fn a_full_disk_fails_writes_and_harms_nothing() {
    let mut filled = 0;
    for seed in seeds(esker_sim::by_tier(20, 60)) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let (memory, fs) = faulty();
        let group = open(Arc::new(fs.clone())).unwrap();
        let tree = one_tree(&group);
        let mut model = Model::new();
        for round in 0..12 {
            let room = match rng.usize(0..3) {
                0 => rng.u64(0..200),
                1 => rng.u64(0..5_000),
                _ => rng.u64(0..150_000),
            };
            fs.set_capacity(fs.used() + room);
            let mut full = false;
            for _ in 0..rng.usize(1..200) {
                let key = format!("{:03}", rng.usize(0..300)).into_bytes();
                let len = rng.usize(0..2000);
                let value = bytes(&mut rng, len);
                let how = *rng
                    .choice([Durability::Sync, Durability::Os].iter())
                    .unwrap();
                let result = match rng.usize(0..40) {
                    0 => group.flush(),
                    1 => group.compact(None),
                    2 => group.run_compactions(),
                    3 => group
                        .create_trees(&[(format!("{round}"), vec![])])
                        .map(|_| ()),
                    4 => {
                        let mut new = [(&key[..], &value[..])].into_iter().map(Ok);
                        let result = group.ingest(tree, &mut new).map(|_| ());
                        if result.is_ok() {
                            model.insert(key.clone(), value.clone());
                        }
                        result
                    }
                    _ => {
                        let result = put(&group, tree, &key, &value, how);
                        if result.is_ok() {
                            model.insert(key, value);
                        }
                        result
                    }
                };
                match result {
                    Ok(()) => {}
                    Err(Error::Invalid(exists)) => assert!(exists.contains("exists")),
                    Err(error) => {
                        assert!(error.is_disk_full(), "{error}");
                        full = true;
                        filled += 1;
                    }
                }
                assert!(rng.usize(0..20) > 0 || read(&group, tree) == model);
            }
            assert_eq!(read(&group, tree), model);
            // There is space again, and the same handle continues.
            fs.set_capacity(u64::MAX);
            put(&group, tree, b"room", &[round], Durability::Sync).unwrap();
            model.insert(b"room".to_vec(), vec![round]);
            group.flush().unwrap();
            group.run_compactions().unwrap();
            assert_eq!(read(&group, tree), model);
            assert_no_leaks(&memory, &group);
            if full && rng.bool() {
                let left = memory.power_cut(seed, PowerCut::Lost);
                let after = open(Arc::new(left)).unwrap();
                assert_eq!(read(&after, tree), model);
            }
        }
        assert!(group.check().errors.is_empty());
        group.close().unwrap();
        drop(group);
        let group = open(Arc::new(memory)).unwrap();
        assert_eq!(read(&group, tree), model);
        assert!(group.check().errors.is_empty());
    }
    assert!(filled > 50, "the disk was full {filled} times only");
}

/// Tables that failed on a full disk are removed.
fn assert_no_leaks(memory: &Memory, group: &Group) {
    let snapshot = group.snapshot();
    let known: Vec<_> = snapshot.version().tables().map(|t| t.path()).collect();
    for path in memory.paths() {
        let table = path.extension().is_some_and(|e| e == "tbl");
        assert!(
            !table || known.contains(&path),
            "{} belongs to no table",
            path.display()
        );
    }
}

/// With its own threads the group waits for space, and continues when there is some.
#[test]
fn a_full_disk_in_the_background() {
    let (memory, fs) = faulty();
    let options = Options {
        background: true,
        ..small(Arc::new(fs.clone()))
    };
    let group = Group::open(Path::new(DIR), options, Arc::new(PlainTrees), true).unwrap();
    let tree = one_tree(&group);
    let mut model = Model::new();
    let mut rng = fastrand::Rng::with_seed(1);
    fs.set_capacity(400_000);
    let failure = loop {
        let key = rng.u32(..).to_be_bytes().to_vec();
        let value = bytes(&mut rng, 1000);
        match put(&group, tree, &key, &value, Durability::Os) {
            Ok(()) => model.insert(key, value),
            Err(error) => break error,
        };
    };
    assert!(failure.is_disk_full(), "{failure}");
    assert_eq!(read(&group, tree), model);
    fs.set_capacity(u64::MAX);
    // A failed flush is retried after a pause; writers get its error until then.
    let patience = Instant::now() + Duration::from_secs(60);
    while let Err(error) = put(&group, tree, b"room", b"again", Durability::Sync) {
        assert!(error.is_disk_full() && Instant::now() < patience, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    model.insert(b"room".to_vec(), b"again".to_vec());
    group.flush().unwrap();
    assert_eq!(read(&group, tree), model);
    group.close().unwrap();
    drop(group);
    assert_eq!(read(&open(Arc::new(memory)).unwrap(), tree), model);
}

#[test]
fn a_failed_sync_refuses_writes_until_reopening() {
    let (memory, fs) = faulty();
    let group = open(Arc::new(fs.clone())).unwrap();
    let tree = one_tree(&group);
    put(&group, tree, b"a", b"1", Durability::Sync).unwrap();
    fs.fail_sync_once();
    let error = put(&group, tree, b"a", b"2", Durability::Sync).unwrap_err();
    assert!(matches!(error, Error::Io { op: "sync", .. }), "{error}");
    for refused in [
        put(&group, tree, b"a", b"3", Durability::Os),
        put(&group, tree, b"a", b"3", Durability::Sync),
        group.sync(),
        group.flush(),
        group.create_trees(&[("u".into(), vec![])]).map(|_| ()),
        group.drop_trees(&[tree]),
        group.configure_tree(tree, vec![1]),
        group
            .ingest(tree, &mut [(&b"x"[..], &b"y"[..])].into_iter().map(Ok))
            .map(|_| ()),
        group.close(),
    ] {
        match refused {
            Err(Error::Poisoned { cause }) => assert!(cause.contains("cannot sync"), "{cause}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read(&group, tree)[&b"a"[..]], b"1");
    drop(group);
    for left in [memory.clone(), memory.power_cut(0, PowerCut::Lost)] {
        let group = open(Arc::new(left)).unwrap();
        let found = read(&group, tree);
        assert!([&b"1"[..], b"2"].contains(&&found[&b"a"[..]][..]));
        put(&group, tree, b"a", b"4", Durability::Sync).unwrap();
    }
}

/// A failed read is an error of that read alone.
#[test]
fn failing_reads_are_errors_and_pass() {
    for mapped_reads in [false, true] {
        reads_fail_and_pass(mapped_reads);
    }
}

fn reads_fail_and_pass(mapped_reads: bool) {
    let (_, fs) = faulty();
    let options = Options {
        mapped_reads,
        // Blocks that are long enough to be noted when they are verified.
        compress: !mapped_reads,
        ..small(Arc::new(fs.clone()))
    };
    let group = Group::open(Path::new(DIR), options, Arc::new(PlainTrees), true).unwrap();
    let tree = one_tree(&group);
    let mut rng = fastrand::Rng::with_seed(5);
    let mut model = Model::new();
    for i in 0..600_u32 {
        let (key, value) = (i.to_be_bytes().to_vec(), bytes(&mut rng, 100));
        put(&group, tree, &key, &value, Durability::Os).unwrap();
        model.insert(key, value);
    }
    group.flush().unwrap();
    let cost = Cost::default();
    for k in 1..200 {
        fs.fail_reads_at(k % 5 + 1);
        let snapshot = group.snapshot();
        let key = (k as u32 * 3).to_be_bytes();
        match snapshot.get(tree, &key, &cost) {
            Ok(found) => assert_eq!(&*found.unwrap().value, &model[&key[..]][..]),
            Err(error) => assert!(matches!(error, Error::Io { .. }), "{error}"),
        }
        let mut cursor = snapshot.cursor(tree, 4096);
        let mut scan = || -> Result<usize> {
            let mut n = 0;
            cursor.seek_first()?;
            while cursor.valid() {
                n += 1;
                cursor.next()?;
            }
            Ok(n)
        };
        match scan() {
            Ok(n) => assert_eq!(n, model.len()),
            Err(error) => assert!(matches!(error, Error::Io { .. }), "{error}"),
        }
        if k % 10 == 0 {
            put(&group, tree, &key, &model[&key[..]], Durability::Sync).unwrap();
            fs.fail_reads_at(k % 7 + 1);
            if let Err(error) = group.compact(None) {
                assert!(matches!(error, Error::Io { .. }), "{error}");
            }
        }
    }
    fs.clear();
    assert_eq!(read(&group, tree), model);
    assert!(group.check().errors.is_empty());
}

#[test]
fn one_handle_at_a_time() {
    let memory: Arc<Memory> = Arc::default();
    let first = open(memory.clone()).unwrap();
    assert!(matches!(open(memory.clone()), Err(Error::Locked { path }) if path == Path::new(DIR)));
    drop(first);
    open(memory).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let on_disk = || {
        let options = small(Arc::new(Disk::new()));
        Group::open(dir.path(), options, Arc::new(PlainTrees), true)
    };
    let first = on_disk().unwrap();
    let tree = one_tree(&first);
    put(&first, tree, b"k", b"v", Durability::Sync).unwrap();
    assert!(matches!(on_disk(), Err(Error::Locked { path }) if path == dir.path()));
    drop(first);
    assert_eq!(read(&on_disk().unwrap(), tree).len(), 1);
}

#[test]
fn a_folder_that_cannot_be_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"not a folder").unwrap();
    let open = |path: &Path, create| {
        let options = small(Arc::new(Disk::new()));
        Group::open(path, options, Arc::new(PlainTrees), create).map(|_| ())
    };
    for path in [file.clone(), file.join("store")] {
        match open(&path, true) {
            Err(Error::Io { path: named, .. }) => assert!(named.starts_with(&file)),
            other => panic!("{other:?}"),
        }
    }
    let absent = dir.path().join("absent");
    match open(&absent, false) {
        Err(Error::NoStore { path }) => assert_eq!(path, absent),
        other => panic!("{other:?}"),
    }
    assert!(!absent.exists(), "looking for a store makes none");
}

/// An empty batch writes nothing, in particular nothing unreadable.
#[test]
fn empty_batches() {
    let memory: Arc<Memory> = Arc::default();
    let group = open(memory.clone()).unwrap();
    let tree = one_tree(&group);
    assert_eq!(group.write(&mut Batch::new(), Durability::Sync).unwrap(), 0);
    put(&group, tree, b"k", b"v", Durability::Os).unwrap();
    assert_eq!(group.write(&mut Batch::new(), Durability::Sync).unwrap(), 1);
    let left = memory.power_cut(0, PowerCut::Lost);
    let group = open(Arc::new(left)).unwrap();
    assert_eq!(read(&group, tree).len(), 1, "what came before was synced");
}

#[test]
fn a_closed_group_refuses_reads_and_writes_and_its_folder_is_free() {
    let memory: Arc<Memory> = Arc::default();
    let group = open(memory.clone()).unwrap();
    let tree = one_tree(&group);
    put(&group, tree, b"k", b"v", Durability::Os).unwrap();
    group.close().unwrap();
    let before: Vec<_> = memory
        .paths()
        .iter()
        .map(|path| memory.read(path))
        .collect();
    assert!(put(&group, tree, b"k", b"w", Durability::Os).is_err());
    assert!(group.create_trees(&[("u".into(), vec![])]).is_err());
    assert!(group.drop_trees(&[tree]).is_err());
    assert!(matches!(group.flush(), Err(Error::Closed)));
    assert!(group.ingest(tree, &mut std::iter::empty()).is_err());
    let snapshot = group.snapshot();
    let got = snapshot.get(tree, b"k", &Cost::default());
    assert!(matches!(got, Err(Error::Closed)));
    let moved = snapshot.cursor(tree, 0).seek_first();
    assert!(matches!(moved, Err(Error::Closed)));
    let again = open(memory.clone()).unwrap();
    assert_eq!(read(&again, tree)[&b"k"[..]], b"v");
    drop(again);
    group.close().unwrap();
    let after: Vec<_> = memory
        .paths()
        .iter()
        .map(|path| memory.read(path))
        .collect();
    assert!(before == after);
}
