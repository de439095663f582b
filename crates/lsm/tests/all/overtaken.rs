//! Jobs that others overtake, or that fail half-way: flushes beside bulk loads, backups into one
//! folder, compactions beside a change of their tree.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{Builder, current, scope};
use std::time::Duration;

use super::reader::{contents, put};
use crate::common::crowd::Trees;
use crate::common::{DIR, small};
use esker_lsm::attributes::Extractor;
use esker_lsm::{
    Batch, Durability, Error, Group, Options, PlainTrees, Result, TreeOptions, TreeProvider,
};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "tbl")
}

/// Each tree has its own files.
fn open(fs: &Hooked, provider: Arc<dyn TreeProvider>) -> Group {
    let options = Options {
        share_from: usize::MAX,
        ..small(Arc::new(fs.clone()))
    };
    Group::open(Path::new(DIR), options, provider, true).unwrap()
}

/// Stops the thread called `name` where it creates its first table: returns the end that learns of
/// it, and the one that lets it go on.
fn stop_at_a_table(fs: &Hooked, name: &'static str) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (stops, stopped) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let (first, wait) = (AtomicBool::new(true), Mutex::new(wait));
    fs.set(move |call, path| {
        let is_there = call == Call::Create && is_table(path) && current().name() == Some(name);
        if is_there && first.swap(false, Ordering::SeqCst) {
            stops.send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
        }
        Ok(())
    });
    (stopped, go)
}

/// A flush begins during a bulk load, and reaches the tree of the load only after that has ended.
#[test]
fn a_flush_that_a_bulk_load_overtakes_keeps_its_tombstones() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let group = open(&fs, Arc::new(PlainTrees));
    let names = ["first", "loaded"].map(|name| (name.to_string(), vec![]));
    let trees = group.create_trees(&names).unwrap();
    let keys: Vec<Vec<u8>> = (0..100_u32).map(|n| n.to_be_bytes().to_vec()).collect();
    let (stopped, go) = stop_at_a_table(&fs, "flush");
    scope(|scope| {
        let mut entries = keys.iter().enumerate().map(|(at, key)| {
            if at == 50 {
                let mut batch = Batch::new();
                batch.put(trees[0], b"k", b"v")?;
                batch.delete(trees[1], &keys[10])?;
                group.write(&mut batch, Durability::Os)?;
                let flush = Builder::new().name("flush".to_string());
                flush
                    .spawn_scoped(scope, || group.flush().unwrap())
                    .unwrap();
                stopped.recv().unwrap();
            }
            Ok((key.as_slice(), &b"loaded"[..]))
        });
        assert_eq!(group.ingest(trees[1], &mut entries).unwrap(), 100);
        go.send(()).unwrap();
    });
    for _ in 0..2 {
        let found = &contents(&group.snapshot())["loaded"];
        assert_eq!(found.len(), 99);
        assert!(!found.iter().any(|(key, _)| *key == keys[10]));
        group.compact(None).unwrap();
    }
}

/// The disk has room for the tables of a flush, and none for the numbers that it drops.
#[test]
fn a_flush_that_cannot_report_its_drops_leaves_no_tables() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory.clone()));
    let group = open(&fs, Arc::new(Trees));
    let names = ["t1", "bits"].map(|name| (name.to_string(), vec![]));
    let tree = group.create_trees(&names).unwrap()[0];
    for value in [b"1", b"2"] {
        put(&group, tree, b"a", value, Durability::Os);
    }
    let tables = || {
        let paths: BTreeSet<PathBuf> = memory.paths().into_iter().collect();
        paths.into_iter().filter(|path| is_table(path)).count()
    };
    for _ in 0..3 {
        let created = AtomicU64::new(0);
        fs.set(move |call, path| {
            let is_new = call == Call::Create && is_table(path);
            if is_new && created.fetch_add(1, Ordering::SeqCst) == 1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        });
        group.flush().unwrap_err();
        assert_eq!(tables(), 0);
    }
    fs.clear();
    group.flush().unwrap();
    assert_eq!(tables(), 2);
    assert_eq!(contents(&group.snapshot())["t1"].len(), 1);
}

/// Another backup into the same folder runs when this one links its first table, or is about to
/// acquire the lock of the folder.
#[test]
fn two_backups_into_one_folder_leave_one_of_them() {
    let copy = Path::new("/copy");
    for at in [Call::Link, Call::Lock] {
        let memory = Memory::new();
        let fs = Hooked::new(Arc::new(memory.clone()));
        let group = Arc::new(open(&fs, Arc::new(PlainTrees)));
        let tree = group.create_trees(&[("t".into(), vec![])]).unwrap()[0];
        put(&group, tree, b"a", b"1", Durability::Os);
        group.flush().unwrap();
        put(&group, tree, b"b", b"2", Durability::Os);
        let (first, other) = (AtomicBool::new(true), group.clone());
        let (ended, end) = mpsc::channel();
        fs.set(move |call, _| {
            if call == at && first.swap(false, Ordering::SeqCst) {
                ended.send(other.checkpoint(copy)).unwrap();
            }
            Ok(())
        });
        let outer = group.checkpoint(copy);
        fs.clear();
        let inner = end.try_recv().unwrap();
        assert_ne!(outer.is_ok(), inner.is_ok(), "{outer:?}, {inner:?}");
        let options = small(Arc::new(memory.clone()));
        let there = Group::open(copy, options, Arc::new(PlainTrees), false).unwrap();
        assert_eq!(contents(&there.snapshot()), contents(&group.snapshot()));
    }
}

/// A backup that fails can be made again, in the same folder.
#[test]
fn a_backup_that_failed_can_be_made_again() {
    let (memory, copy) = (Memory::new(), Path::new("/copy"));
    let fs = Hooked::new(Arc::new(memory.clone()));
    let group = open(&fs, Arc::new(PlainTrees));
    let tree = group.create_trees(&[("t".into(), vec![])]).unwrap()[0];
    put(&group, tree, b"a", b"1", Durability::Os);
    let before = memory.paths();
    fs.set(|call, _| match call {
        Call::Rename => Err(io::Error::other("no")),
        _ => Ok(()),
    });
    group.checkpoint(copy).unwrap_err();
    assert_eq!(memory.paths(), before);
    fs.clear();
    group.checkpoint(copy).unwrap();
    assert!(matches!(group.checkpoint(copy), Err(Error::Invalid(_))));
}

/// The length of a value is attribute 7.
struct Length;

impl Extractor for Length {
    fn ids(&self) -> &[u32] {
        &[7]
    }

    fn extract(&self, _key: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        emit(0, &value.len().to_be_bytes());
    }
}

/// Trees with a configuration have the attribute.
struct Configured;

impl TreeProvider for Configured {
    fn tree_options(&self, _: &str, config: &[u8]) -> Result<TreeOptions> {
        let mut options = TreeOptions::default();
        if !config.is_empty() {
            options.extractor = Some(Arc::new(Length));
        }
        Ok(options)
    }
}

#[test]
fn no_table_with_the_old_options_comes_after_a_tree_was_configured() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let group = open(&fs, Arc::new(Configured));
    let tree = group.create_trees(&[("t".into(), vec![])]).unwrap()[0];
    for round in 0..3 {
        put(&group, tree, b"a", &[round], Durability::Os);
        put(&group, tree, &[b'b', round], b"", Durability::Os);
        group.flush().unwrap();
    }
    let numbers = || {
        let snapshot = group.snapshot();
        let tables = snapshot.version().tables();
        tables
            .map(|table| table.meta().number)
            .collect::<BTreeSet<_>>()
    };
    let (stopped, go) = stop_at_a_table(&fs, "compact");
    let (configured, end) = mpsc::channel();
    let (group, numbers) = (&group, &numbers);
    let before = scope(|scope| {
        let compact = Builder::new().name("compact".to_string());
        compact
            .spawn_scoped(scope, || group.compact(Some(tree)).unwrap())
            .unwrap();
        stopped.recv().unwrap();
        scope.spawn(move || {
            group.configure_tree(tree, b"attribute".to_vec()).unwrap();
            configured.send(numbers()).unwrap();
        });
        // The change waits for the compaction, so that this wait is in vain.
        let early = end.recv_timeout(Duration::from_millis(200));
        go.send(()).unwrap();
        early.unwrap_or_else(|_| end.recv().unwrap())
    });
    let snapshot = group.snapshot();
    for table in snapshot.version().tables() {
        let meta = table.meta();
        let is_old = before.contains(&meta.number);
        assert!(is_old || !meta.zones.is_empty(), "table {}", meta.number);
    }
    assert_eq!(contents(&snapshot)["t"].len(), 4);
}
