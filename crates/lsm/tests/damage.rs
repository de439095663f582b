//! Damaged files: every byte flipped, truncated to every length, every file removed. Every read is
//! right, or an error that names the file; never a wrong answer, a panic or a hang.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{DIR, Doing, bytes, small};
use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, Cost, Cursor, Durability, Error, Group, Kind, Options, PlainTrees, Result, Seq, Snapshot,
};
use esker_sim::by_tier;
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

/// Refuses large allocations: a damaged length must not be trusted.
struct Modest;

const MOST: usize = 16 << 20;

thread_local! { static LARGEST: Cell<usize> = const { Cell::new(0) }; }

#[allow(unsafe_code)]
// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Modest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Modest = Modest;

/// The contents of a tree: by key, the newest sequence number and its value.
type Tree = BTreeMap<Vec<u8>, (Seq, Vec<u8>)>;
type State = BTreeMap<String, Tree>;

fn settings(fs: Arc<dyn Fs>) -> Options {
    Options {
        table_size: 1 << 10,
        block_size: 256,
        ..small(fs)
    }
}

fn open(fs: &Memory) -> Result<Group> {
    open_with(fs, false)
}

fn open_with(fs: &Memory, mapped_reads: bool) -> Result<Group> {
    let options = Options {
        mapped_reads,
        ..settings(Arc::new(fs.clone()))
    };
    Group::open(Path::new(DIR), options, Arc::new(PlainTrees), true)
}

fn read(group: &Group) -> Result<State> {
    let mut state = read_snapshot(&group.snapshot())?;
    for kept in group.snapshots() {
        let trees = read_snapshot(&group.kept_snapshot(&kept.name)?)?.into_iter();
        state.extend(trees.map(|(tree, keys)| (format!("@{}/{tree}", kept.name), keys)));
    }
    Ok(state)
}

fn read_snapshot(snapshot: &Snapshot) -> Result<State> {
    let mut state = State::new();
    for (id, tree) in &snapshot.version().trees {
        let mut keys = Tree::new();
        let mut cursor = snapshot.cursor(*id, 0);
        cursor.seek_first()?;
        while cursor.valid() {
            keys.insert(
                cursor.key().to_vec(),
                (cursor.seq(), cursor.value().to_vec()),
            );
            cursor.next()?;
        }
        state.insert(tree.name.clone(), keys);
    }
    Ok(state)
}

/// A store with a history: three trees, two levels, deletes, an ingested run, a dropped tree, and a
/// log. Returns it with the states after each of the last writes, the newest last.
fn store(closed: bool) -> (Memory, Vec<State>) {
    let memory = Memory::new();
    let faulty = Faulty::new(Arc::new(memory.clone()));
    let options = settings(Arc::new(faulty.clone()));
    let group = Group::open(Path::new(DIR), options, Arc::new(PlainTrees), true).unwrap();
    let names = ["a", "b", "c", "gone"];
    let trees = group
        .create_trees(&names.map(|name| (name.to_string(), name.as_bytes().to_vec())))
        .unwrap();
    let mut rng = fastrand::Rng::with_seed(9);
    let mut write = |n: usize| {
        let mut batch = Batch::new();
        for _ in 0..n {
            let key = format!("key{:02}", rng.usize(0..40));
            let tree = trees[rng.usize(0..2)];
            if rng.usize(0..4) == 0 {
                batch.delete(tree, key.as_bytes()).unwrap();
            } else {
                let len = rng.usize(0..80);
                batch
                    .put(tree, key.as_bytes(), &bytes(&mut rng, len))
                    .unwrap();
            }
        }
        batch.also(Kind::Put, trees[3], b"x", b"y").unwrap();
        group.write(&mut batch, Durability::Sync).unwrap();
    };
    write(60);
    group.compact(None).unwrap();
    write(20);
    let entries: Vec<_> = (0..12)
        .map(|i| (format!("in{i:02}"), format!("{i}")))
        .collect();
    let mut sorted = entries
        .iter()
        .map(|(k, v)| Ok((k.as_bytes(), v.as_bytes())));
    group.ingest(trees[2], &mut sorted).unwrap();
    // Only this snapshot has the tables that the next compaction replaces.
    group.keep_snapshot("kept").unwrap();
    write(20);
    group.compact(Some(trees[0])).unwrap();
    write(5);
    group.flush().unwrap();
    let mut batchless = Vec::new();
    let mut names_left = names.to_vec();
    names_left.pop();
    let mut state = read(&group).unwrap();
    state.remove("gone");
    batchless.push(state);
    // The log: small writes, each synced. The tree is dropped before them, so that the states are
    // alike.
    let gone = trees[3];
    let kept = [trees[0], trees[1]];
    group.drop_trees(&[gone]).unwrap();
    for i in 0..6 {
        let mut batch = Batch::new();
        batch
            .put(kept[i % 2], format!("log{i}").as_bytes(), b"value")
            .unwrap();
        batch
            .also(Kind::Delete, kept[(i + 1) % 2], b"key01", b"")
            .unwrap();
        group.write(&mut batch, Durability::Sync).unwrap();
        batchless.push(read(&group).unwrap());
    }
    assert!(batchless.iter().all(|state| {
        let trees = state.keys().filter(|name| !name.starts_with('@'));
        trees.eq(&names_left) && state["@kept/gone"].len() == 1
    }));
    let own_bytes: u64 = group.snapshots().iter().map(|kept| kept.own_bytes).sum();
    assert!(own_bytes > 0);
    if closed {
        group.close().unwrap();
        (memory, batchless)
    } else {
        faulty.fail_from(1);
        drop(group);
        (memory.power_cut(0, PowerCut::Kept), batchless)
    }
}

/// A copy with one file changed, or removed.
fn with(memory: &Memory, path: &Path, bytes: Option<&[u8]>) -> Memory {
    let copy = Memory::new();
    for other in memory.paths() {
        if other != path {
            copy.write(&other, &memory.read(&other).unwrap());
        } else if let Some(bytes) = bytes {
            copy.write(path, bytes);
        }
    }
    copy
}

/// Asserts that an error reports this damage.
fn assert_names(error: &Error, path: &Path, loss: Loss) {
    match error {
        Error::Corruption { path: named, .. } if loss == Loss::Edits => {
            assert!(is_log(named) || named == path, "{error}");
        }
        Error::Io { path, source, .. } if loss == Loss::Edits => {
            assert!(path.extension().is_some_and(|e| e == "tbl"), "{error}");
            assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
        }
        Error::Corruption { path: named, .. } | Error::NewerFormat { path: named, .. } => {
            assert_eq!(named, path, "{error}");
        }
        Error::Io {
            path: named,
            source,
            ..
        } => {
            assert_eq!(named, path, "{error}");
            assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
        }
        other => panic!("{other}"),
    }
}

/// The loss that a reader may accept.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Loss {
    None,
    /// The newest states may be missing.
    Suffix,
    /// An error may name another file, removed by lost edits of the manifest. A tree dropped by
    /// these may exist again.
    Edits,
}

/// Opens the store and reads everything, each key separately, too. Returns how many of the last
/// states are lost, or `None` when there was an error. Tables are read, or mapped.
fn examine(fs: &Memory, path: &Path, states: &[State], loss: Loss, mapped: bool) -> Option<usize> {
    LARGEST.set(0);
    let group = match open_with(fs, mapped) {
        Ok(group) => group,
        Err(error) => {
            assert_names(&error, path, loss);
            return None;
        }
    };
    let whole = read(&group);
    let lost = match &whole {
        Ok(state) => {
            let mut state = state.clone();
            if loss == Loss::Edits {
                // Its table is in a shared file, which was not removed when the tree was dropped.
                state.remove("gone");
            }
            let at = states.iter().rposition(|known| *known == state);
            let at = at.unwrap_or_else(|| panic!("not a state that ever was: {state:?}"));
            let lost = states.len() - 1 - at;
            assert!(lost == 0 || loss == Loss::Suffix, "{lost} writes are lost");
            Some(lost)
        }
        Err(error) => {
            assert_names(error, path, loss);
            None
        }
    };
    // A damaged table affects only the reads that need it: single keys are right or errors, too.
    let snapshot = group.snapshot();
    let cost = Cost::default();
    let state = &states[states.len() - 1 - lost.unwrap_or(0)];
    let mut errors = usize::from(whole.is_err());
    for (name, keys) in state.iter().filter(|(name, _)| !name.starts_with('@')) {
        let tree = group.tree(name).unwrap();
        let absent = [b"absent".to_vec(), b"key01".to_vec()];
        for key in keys.keys().chain(&absent) {
            match snapshot.get(tree, key, &cost) {
                Ok(found) => {
                    let found = found.map(|found| (found.seq, found.value.to_vec()));
                    assert_eq!(found.as_ref(), keys.get(key), "{name} {key:?}");
                }
                Err(error) => {
                    assert_names(&error, path, loss);
                    errors += 1;
                }
            }
        }
    }
    if path.extension().is_some_and(|e| e == "tbl") {
        let report = group.check();
        for error in &report.errors {
            assert_names(error, path, loss);
        }
        assert!(
            errors == 0 || !report.errors.is_empty(),
            "check found nothing"
        );
    }
    assert!(LARGEST.get() < MOST, "{} bytes at once", LARGEST.get());
    drop(snapshot);
    drop(group);
    lost
}

fn files(memory: &Memory) -> Vec<PathBuf> {
    let mut paths = memory.paths();
    paths.retain(|path| !path.ends_with("LOCK"));
    let count = |kind: &str| {
        let is = |path: &&PathBuf| path.to_str().unwrap().contains(kind);
        paths.iter().filter(is).count()
    };
    // Most of them are shared.
    assert!(count(".tbl") >= 4, "{paths:?}");
    assert_eq!(
        (count("CURRENT"), count("MANIFEST"), count(".log")),
        (1, 1, 1)
    );
    paths
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "log")
}

/// Flips, truncates and removes, in a store that was `closed` or not.
fn damage_all(closed: bool) {
    let (memory, states) = store(closed);
    let intact = Path::new("nothing");
    for mapped in [false, true] {
        let lost = examine(&memory, intact, &states, Loss::None, mapped);
        assert_eq!(lost, Some(0));
    }
    for path in files(&memory) {
        let good = memory.read(&path).unwrap();
        // Only the tail of a log may be taken for the remains of a crash.
        let loss = if !closed && is_log(&path) {
            Loss::Suffix
        } else {
            Loss::None
        };
        let mut worst = 0;
        // In the usual tier every fifth byte, with one of the patterns.
        let step = by_tier(5, 1);
        for at in (0..good.len()).step_by(step) {
            let patterns = [0x01, 0x80, 0xff];
            let one = at / step % patterns.len();
            for &pattern in by_tier(&patterns[one..=one], &patterns) {
                let _doing = Doing(&|| format!("{} ^ {pattern} at {at}", path.display()));
                let mut bad = good.clone();
                bad[at] ^= pattern;
                let fs = with(&memory, &path, Some(&bad));
                for mapped in modes(&path, at / step) {
                    let lost = examine(&fs, &path, &states, loss, mapped);
                    worst = worst.max(lost.unwrap_or(0));
                }
            }
        }
        // A sync marker precedes the write after the one it covers, so only damage in the last
        // write, and in the marker before it, can pass for a crash.
        assert!(worst <= 1, "{}: {worst} writes lost", path.display());
        let mut fewer = 0;
        for len in (0..good.len()).rev().step_by(step) {
            let _doing = Doing(&|| format!("{} cut to {len}", path.display()));
            let fs = with(&memory, &path, Some(&good[..len]));
            // The length of an open store's manifest is not recorded.
            let manifest = path.to_str().unwrap().contains("MANIFEST");
            let edits = !closed && manifest && len > 48;
            let loss = if edits { Loss::Edits } else { loss };
            match examine(&fs, &path, &states, loss, len % 2 == 1) {
                Some(lost) => {
                    assert!(lost >= fewer, "a shorter log has more");
                    fewer = lost;
                }
                None => assert!(loss != Loss::Suffix),
            }
        }
        let _doing = Doing(&|| format!("{} removed", path.display()));
        let fs = with(&memory, &path, None);
        assert_eq!(examine(&fs, &path, &states, Loss::None, true), None);
    }
}

/// Whether tables are mapped when a place of a file is damaged: both, one after the other; in the
/// usual tier one of them.
fn modes(path: &Path, place: usize) -> impl Iterator<Item = bool> {
    let is_table = path.extension().is_some_and(|e| e == "tbl");
    let one = is_table && place % 2 == 1;
    let both = is_table && esker_sim::is_nightly();
    std::iter::once(one).chain(both.then_some(!one))
}

#[test]
fn a_closed_store() {
    damage_all(true);
}

#[test]
fn a_store_that_was_not_closed() {
    damage_all(false);
}

/// Swapped or misplaced files are detected.
#[test]
fn files_in_the_wrong_place() {
    let (memory, states) = store(true);
    let paths = files(&memory);
    for path in &paths {
        for other in &paths {
            let (a, b) = (memory.read(path).unwrap(), memory.read(other).unwrap());
            if a == b {
                continue;
            }
            let _doing = Doing(&|| format!("{} as {}", other.display(), path.display()));
            let fs = with(&memory, path, Some(&b));
            assert_eq!(examine(&fs, path, &states, Loss::None, true), None);
        }
    }
}

/// A store that lost `CURRENT` is not a place for a new one.
#[test]
fn a_store_without_tables_that_lost_current() {
    let memory = Memory::new();
    let group = open(&memory).unwrap();
    let tree = group.create_trees(&[("t".into(), vec![])]).unwrap()[0];
    let mut batch = Batch::new();
    batch.put(tree, b"k", b"v").unwrap();
    group.write(&mut batch, Durability::Sync).unwrap();
    drop(group);
    let current = Path::new(DIR).join("CURRENT");
    let fs = with(&memory, &current, None);
    for create in [false, true] {
        let options = settings(Arc::new(fs.clone()));
        match Group::open(Path::new(DIR), options, Arc::new(PlainTrees), create) {
            Err(error) => assert_names(&error, &current, Loss::None),
            Ok(_) => panic!("a store was taken for none"),
        }
    }
}

/// The end of a log without a sync marker looks torn when it is damaged. But later installations
/// may refer to its writes, so the manifest proves the damage.
#[test]
fn a_synced_end_of_the_log_does_not_pass_for_a_torn_one() {
    let memory = Memory::new();
    let group = open(&memory).unwrap();
    let [a, _] = group
        .create_trees(&["a", "b"].map(|name| (name.to_string(), Vec::new())))
        .unwrap()[..]
    else {
        panic!("two trees");
    };
    let mut batch = Batch::new();
    batch.put(a, b"old", b"1").unwrap();
    group.write(&mut batch, Durability::Os).unwrap();
    batch.clear();
    batch.put(a, b"new", b"2").unwrap();
    let last = group.write(&mut batch, Durability::Os).unwrap();
    let unsynced = memory.power_cut(1, PowerCut::Kept);
    group.sync().unwrap();
    // An edit of the manifest that needs nothing of the log, but comes after its sync.
    group.configure_tree(a, b"other".to_vec()).unwrap();
    let synced = memory.power_cut(1, PowerCut::Kept);
    drop(group);
    for (image, is_synced) in [(unsynced, false), (synced, true)] {
        let mut damaged = Vec::new();
        for path in image.paths() {
            let bytes = image.read(&path).unwrap();
            let mut places = bytes.windows(3).enumerate();
            let place = places.find(|(_, window)| *window == b"new");
            if let Some((end, _)) = place
                && path.extension().is_some_and(|e| e == "log")
            {
                // The marker behind the write is lost with it.
                image.write(&path, &bytes[..end]);
                damaged.push((path, end as u64));
            }
        }
        let [(path, end)] = &damaged[..] else {
            panic!("one segment has the write: {damaged:?}");
        };
        match open(&image) {
            Ok(group) => {
                assert!(!is_synced, "a synced write is gone");
                assert_eq!(group.snapshot().seq(), last - 1);
            }
            Err(Error::Corruption {
                path: named,
                offset,
                what,
            }) => {
                assert!(is_synced, "{what}");
                assert_eq!(&named, path);
                assert!(offset < *end && what.contains("synced up to"), "{what}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}
