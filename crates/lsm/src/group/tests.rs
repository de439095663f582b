//! Missing threads, threads that close waits for, and reader threads.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::Group;
use super::order::change_order;
use crate::batch::Batch;
use crate::error::Error;
use crate::fs::Fs;
use crate::options::{Durability, Options};
use crate::version::{Hold, PlainTrees};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

/// A group whose threads could not be started.
fn without_threads(memory: &Memory) -> Group {
    let options = Options {
        fs: Arc::new(memory.clone()),
        memory_budget: 1,
        background: true,
        ..Options::default()
    };
    let group = Group::open(Path::new("/store"), options, Arc::new(PlainTrees), true).unwrap();
    group.started.store(true, Ordering::Release);
    group
}

#[test]
fn writers_do_without_the_threads() {
    let memory = Memory::new();
    let store = memory.clone();
    let (done, ended) = mpsc::channel();
    let work = std::thread::spawn(move || {
        let group = without_threads(&store);
        let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
        let mut batch = Batch::new();
        for n in 0..2000_u32 {
            batch.clear();
            batch.put(tree, &n.to_be_bytes(), &[1; 500]).unwrap();
            group.write(&mut batch, Durability::Os).unwrap();
        }
        let runs = group.snapshot().version().trees[&tree].runs.len();
        batch.clear();
        batch.put(tree, b"last", b"").unwrap();
        let hour = Durability::Periodic(Duration::from_secs(3600));
        group.write(&mut batch, hour).unwrap();
        done.send((group, tree, runs)).unwrap();
    });
    let (group, tree, runs) = ended.recv_timeout(Duration::from_secs(60)).unwrap();
    work.join().unwrap();
    assert!((1..8).contains(&runs), "{runs} runs: nothing was compacted");
    // Without the sync thread nothing would sync it later.
    let left = Options {
        fs: Arc::new(memory.power_cut(0, PowerCut::Lost)),
        ..Options::default()
    };
    let left = Group::open(Path::new("/store"), left, Arc::new(PlainTrees), false).unwrap();
    let found = left.snapshot().get(tree, b"last", &crate::Cost::default());
    assert!(found.unwrap().is_some());
    group.close().unwrap();
}

/// A group in memory with background threads, and a tree.
fn with_threads() -> (Group, u32) {
    let options = Options {
        fs: Arc::new(Memory::new()),
        background: true,
        ..Options::default()
    };
    let group = Group::open(Path::new("/store"), options, Arc::new(PlainTrees), true).unwrap();
    let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
    (group, tree)
}

fn write(group: &Group, tree: u32) -> crate::Result<u64> {
    let mut batch = Batch::new();
    batch.put(tree, b"k", b"v").unwrap();
    group.write(&mut batch, Durability::Os)
}

/// `close` waits for the threads, which may be in a long compaction. Writers do not wait with it.
#[test]
fn a_write_beside_a_close_that_waits_for_threads_is_refused_at_once() {
    let (group, tree) = with_threads();
    write(&group, tree).unwrap();
    let group = Arc::new(group);
    let (end, ended) = mpsc::channel::<()>();
    let busy = std::thread::spawn(move || ended.recv().unwrap_or(()));
    group.threads.lock().push(busy);
    let closer = std::thread::spawn({
        let group = group.clone();
        move || group.close()
    });
    // Until `close` has taken the threads to join them.
    while !group.inner.core.closing.load(Ordering::SeqCst)
        || group
            .threads
            .try_lock()
            .is_some_and(|left| !left.is_empty())
    {
        std::thread::yield_now();
    }
    let (done, written) = mpsc::channel();
    let writer = std::thread::spawn({
        let group = group.clone();
        move || done.send(write(&group, tree))
    });
    let refused = written.recv_timeout(Duration::from_secs(60));
    end.send(()).unwrap();
    closer.join().unwrap().unwrap();
    writer.join().unwrap().unwrap();
    assert!(matches!(refused, Ok(Err(Error::Closed))), "{refused:?}");
}

#[test]
fn a_closed_group_starts_no_threads() {
    let (group, tree) = with_threads();
    write(&group, tree).unwrap();
    assert!(!group.threads.lock().is_empty());
    group.close().unwrap();
    assert!(matches!(write(&group, tree), Err(Error::Closed)));
    assert!(group.flush().is_err());
    assert!(group.threads.lock().is_empty());
    // Neither does one that never wrote.
    let (group, tree) = with_threads();
    group.close().unwrap();
    assert!(matches!(write(&group, tree), Err(Error::Closed)));
    assert!(group.threads.lock().is_empty());
}

/// An old view is released with its last snapshot: idle threads that have read keep nothing.
#[test]
fn idle_readers_pin_no_old_files_and_no_old_memtables() {
    const READERS: usize = 40;
    let memory = Memory::new();
    let options = Options {
        fs: Arc::new(memory.clone()),
        background: false,
        ..Options::default()
    };
    let group = Group::open(Path::new("/store"), options, Arc::new(PlainTrees), true).unwrap();
    let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
    let read = &|| {
        let snapshot = group.snapshot();
        let found = snapshot.get(tree, b"k", &crate::Cost::default()).unwrap();
        assert!(found.is_some());
        snapshot
    };
    let tables = || {
        let names = memory.list(Path::new("/store")).unwrap();
        let is_table = |name: &&PathBuf| name.extension().is_some_and(|e| e == "tbl");
        names.iter().filter(is_table).count()
    };
    write(&group, tree).unwrap();
    let (has_read, all_read) = mpsc::channel();
    std::thread::scope(|scope| {
        // Dropped in any case, which ends the readers.
        let mut held = Vec::new();
        for _ in 0..READERS {
            let (hold, idle) = mpsc::channel::<()>();
            held.push(hold);
            let has_read = has_read.clone();
            scope.spawn(move || {
                read();
                has_read.send(()).unwrap();
                let _ = idle.recv();
            });
        }
        for _ in 0..READERS {
            all_read.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        let memtable = Arc::downgrade(&group.inner.versions.view.load().active);
        let kept = read();
        group.flush().unwrap();
        assert_eq!(tables(), 1);
        assert!(memtable.upgrade().is_some(), "a snapshot has it");
        drop(kept);
        assert!(memtable.upgrade().is_none(), "nothing holds it");
        let kept = read();
        write(&group, tree).unwrap();
        group.compact(Some(tree)).unwrap();
        assert_eq!(
            tables(),
            2,
            "the snapshot's, and the one that took its place"
        );
        drop(kept);
        assert_eq!(tables(), 1);
    });
}

/// Each read is counted once, whichever thread reads.
#[test]
fn counters_of_reads_are_exact() {
    let (group, tree) = with_threads();
    write(&group, tree).unwrap();
    group.flush().unwrap();
    let blocks = |stats: crate::Stats| stats.data_blocks;
    let before = blocks(group.stats());
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let cost = crate::Cost::default();
                    group.snapshot().get(tree, b"k", &cost).unwrap();
                    group.count(&cost);
                }
            });
        }
    });
    assert_eq!(blocks(group.stats()) - before, 50 * 100);
}

/// A consumer of which the manifest, written by an earlier version, has a position under another
/// name: if its place cannot be read, neither is removed. Otherwise the log would be retained for
/// the other name, which nothing connects with the consumer any more.
#[test]
fn a_consumer_whose_place_cannot_be_read_is_not_released() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let options = Options {
        fs: Arc::new(fs.clone()),
        background: false,
        ..Options::default()
    };
    let group = Group::open(Path::new("/store"), options, Arc::new(PlainTrees), true).unwrap();
    let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
    write(&group, tree).unwrap();
    let position = group.position();
    let (sequencer, versions) = (&group.inner.sequencer, &group.inner.versions);
    let bytes = 1 << 20;
    change_order(sequencer, versions, |order| {
        let hold = Hold {
            position: position.seq,
            bytes,
        };
        order.holds.insert("earlier".to_string(), hold);
    })
    .unwrap();
    let consumer = group.consume_log("consumer").unwrap();
    consumer.keep(Some("earlier"), position, bytes).unwrap();
    fs.set(|call, path| {
        let is_place = path.parent().is_some_and(|at| at.ends_with("consumers"));
        if is_place && call == Call::Read {
            Err(std::io::ErrorKind::Other.into())
        } else {
            Ok(())
        }
    });
    let refused = consumer.release();
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    fs.clear();
    let names = |group: &Group| -> Vec<String> {
        let all = group.log_consumers().unwrap().into_iter();
        all.map(|(name, ..)| name).collect()
    };
    assert_eq!(names(&group), ["consumer"]);
    assert!(group.consume_log("consumer").unwrap().release().unwrap());
    assert!(names(&group).is_empty(), "{:?}", names(&group));
    assert!(versions.manifest.lock().order.holds.is_empty());
}
