//! Commits are ordered: readers always see a prefix of the acknowledged writes, whatever the
//! durability of each, whichever thread waits, and whatever fails. One sync covers all writes
//! appended when it began.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{DIR, Doing, open, seeds, small};
use esker_lsm::fs::Fs;
use esker_lsm::{Batch, Cost, Durability, Error, Group, Options, PlainTrees, Result, TreeId};
use esker_sim::faulty::Faulty;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

const FOREVER: Duration = Duration::from_secs(60);

fn put(group: &Group, tree: TreeId, key: u64, how: Durability) -> Result<u64> {
    let mut batch = Batch::new();
    batch.put(tree, &key.to_be_bytes(), b"value").unwrap();
    group.write(&mut batch, how)
}

fn holds(group: &Group, tree: TreeId, key: u64) -> bool {
    let found = group
        .snapshot()
        .get(tree, &key.to_be_bytes(), &Cost::default());
    found.unwrap().is_some()
}

/// A store whose log syncs wait until the test releases them, with success or failure.
struct Held {
    group: Arc<Group>,
    tree: TreeId,
    /// Receives a message when a sync has begun.
    begun: mpsc::Receiver<()>,
    /// Ends one sync: true lets it succeed, false fails it.
    go: mpsc::Sender<bool>,
}

impl Held {
    fn new() -> Held {
        let fs = Hooked::new(Arc::new(Memory::new()));
        let group = Arc::new(open(Arc::new(fs.clone())).unwrap());
        let tree = group.create_trees(&[("t".into(), vec![])]).unwrap()[0];
        put(&group, tree, 0, Durability::Sync).unwrap();
        let (tell, begun) = mpsc::channel();
        let (go, wait) = mpsc::channel();
        let (tell, wait) = (Mutex::new(tell), Mutex::new(wait));
        fs.set(move |call, path| {
            if call != Call::Sync || path.extension().is_none_or(|e| e != "log") {
                return Ok(());
            }
            let _ = tell.lock().unwrap().send(());
            match wait.lock().unwrap().recv() {
                Ok(false) => Err(std::io::Error::from_raw_os_error(5)),
                _ => Ok(()),
            }
        });
        Held {
            group,
            tree,
            begun,
            go,
        }
    }

    fn begins(&self) {
        self.begun.recv_timeout(FOREVER).expect("no sync began");
    }

    fn write(&self, key: u64, how: Durability) -> JoinHandle<Result<u64>> {
        let (group, tree) = (self.group.clone(), self.tree);
        std::thread::spawn(move || put(&group, tree, key, how))
    }

    /// Waits until `last` writes are appended, acknowledged or not.
    fn appended(&self, last: u64) {
        while self.group.latest().seq() < last {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_write_behind_one_that_waits_for_its_sync_is_not_acknowledged_before_it() {
    let held = Held::new();
    let before = held.group.snapshot().seq();
    let first = held.write(1, Durability::Sync);
    held.begins();
    let second = held.write(2, Durability::Os);
    let third = held.write(3, Durability::Periodic(Duration::from_secs(3600)));
    held.appended(before + 3);
    // All three are appended, and the disk has not answered.
    assert_eq!(held.group.snapshot().seq(), before);
    assert!(
        ![1, 2, 3]
            .iter()
            .any(|key| holds(&held.group, held.tree, *key))
    );
    assert!(!second.is_finished() && !third.is_finished());
    held.go.send(true).unwrap();
    first.join().unwrap().unwrap();
    assert!(holds(&held.group, held.tree, 1), "a writer sees its write");
    // The later writes need no sync of their own, but may have come too late for this one to cover
    // them.
    drop(held.go);
    second.join().unwrap().unwrap();
    third.join().unwrap().unwrap();
    assert_eq!(held.group.snapshot().seq(), before + 3);
}

#[test]
fn nothing_behind_a_failed_sync_is_ever_seen() {
    let held = Held::new();
    let before = held.group.snapshot().seq();
    let first = held.write(1, Durability::Sync);
    held.begins();
    let behind: Vec<_> = [Durability::Os, Durability::Sync, Durability::Os]
        .into_iter()
        .zip(2..)
        .map(|(how, key)| held.write(key, how))
        .collect();
    held.appended(before + 4);
    held.go.send(false).unwrap();
    assert!(matches!(first.join().unwrap(), Err(Error::Io { .. })));
    for write in behind {
        let error = write.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    }
    assert_eq!(held.group.snapshot().seq(), before);
    drop(held.go);
    assert!(held.group.flush().is_err());
    assert!(held.group.create_trees(&[("u".into(), vec![])]).is_err());
    assert_eq!(held.group.snapshot().seq(), before);
}

#[test]
fn a_write_that_is_never_acknowledged_delays_no_other() {
    let held = Held::new();
    drop(held.go);
    let mut batch = Batch::new();
    batch
        .put(held.tree, &1_u64.to_be_bytes(), b"value")
        .unwrap();
    held.group.append(&mut batch, Durability::Sync).unwrap();
    let syncs = held.group.stats().log_syncs;
    put(&held.group, held.tree, 2, Durability::Os).unwrap();
    assert_eq!(held.group.stats().log_syncs, syncs + 1);
    assert!(holds(&held.group, held.tree, 1) && holds(&held.group, held.tree, 2));
    // If it is durable already it costs later writes nothing.
    put(&held.group, held.tree, 3, Durability::Os).unwrap();
    assert_eq!(held.group.stats().log_syncs, syncs + 1);
}

#[test]
fn one_sync_serves_all_that_had_appended_when_it_began() {
    const WRITERS: u64 = 20;
    let held = Held::new();
    let before = held.group.snapshot().seq();
    let syncs = held.group.stats().log_syncs;
    let first = held.write(0, Durability::Sync);
    held.begins();
    let others: Vec<_> = (1..=WRITERS)
        .map(|key| held.write(key, Durability::Sync))
        .collect();
    held.appended(before + 1 + WRITERS);
    held.go.send(true).unwrap();
    first.join().unwrap().unwrap();
    // One more sync for all the others.
    held.begins();
    held.go.send(true).unwrap();
    for other in others {
        other.join().unwrap().unwrap();
    }
    assert_eq!(held.group.stats().log_syncs, syncs + 2);
    drop(held.go);
}

#[test]
fn a_sync_of_everything_waits_for_the_one_that_is_under_way() {
    let held = Held::new();
    let first = held.write(1, Durability::Sync);
    held.begins();
    let group = held.group.clone();
    let sync = std::thread::spawn(move || group.sync());
    drop(held.go);
    first.join().unwrap().unwrap();
    sync.join().unwrap().unwrap();
}

/// The number of writers in a run of the model below, and of the writes of each.
const WRITERS: u64 = 4;
const WRITES: u64 = 60;

/// Writers with mixed durability on a disk of which one call fails: at each moment readers see a
/// prefix of the order, every acknowledged write is in it, and after a power cut the store has a
/// prefix again, with everything acknowledged as durable.
#[test]
fn readers_see_a_prefix_of_the_acknowledged_writes_whatever_fails() {
    for seed in seeds(40) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        let faulty = Faulty::new(Arc::new(memory.clone()));
        let options = Options {
            background: rng.bool(),
            memory_budget: if rng.bool() { 512 << 10 } else { 8 << 20 },
            ..small(Arc::new(faulty.clone()))
        };
        let group = Group::open(Path::new(DIR), options, Arc::new(PlainTrees), true).unwrap();
        let tree = group.create_trees(&[("t".into(), vec![])]).unwrap()[0];
        match rng.u8(..4) {
            0 => {}
            1 => faulty.fail_at(rng.u64(1..200)),
            2 => faulty.fail_from(rng.u64(1..200)),
            _ => faulty.set_capacity(faulty.used() + rng.u64(1000..40_000)),
        }
        // By sequence number: the key, and whether it was acknowledged as durable.
        let acknowledged: Mutex<BTreeMap<u64, (u64, bool)>> = Mutex::default();
        let refused: Mutex<Vec<u64>> = Mutex::default();
        let (done, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let readers = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    seen.fetch_max(group.snapshot().seq(), Ordering::AcqRel);
                    check_prefix(&group, tree, &acknowledged);
                }
            });
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let mut rng = rng.fork();
                    let (group, acknowledged, refused) = (&group, &acknowledged, &refused);
                    scope.spawn(move || {
                        for n in 0..WRITES {
                            let key = writer * WRITES + n;
                            let how = match rng.u8(..4) {
                                0 => Durability::Sync,
                                1 => Durability::Periodic(Duration::from_secs(3600)),
                                _ => Durability::Os,
                            };
                            match put(group, tree, key, how) {
                                Ok(seq) => {
                                    assert!(holds(group, tree, key), "not visible on return");
                                    let durable = how == Durability::Sync;
                                    acknowledged.lock().unwrap().insert(seq, (key, durable));
                                }
                                Err(_) => refused.lock().unwrap().push(key),
                            }
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Release);
            readers.join().unwrap();
        });
        check_prefix(&group, tree, &acknowledged);
        for key in refused.lock().unwrap().iter() {
            assert!(!holds(&group, tree, *key), "{key} failed, and is seen");
        }
        let mode = [
            PowerCut::Lost,
            PowerCut::Kept,
            PowerCut::Torn,
            PowerCut::Reordered,
        ][rng.usize(..4)];
        let left = memory.power_cut(seed, mode);
        drop(group);
        let fs: Arc<dyn Fs> = Arc::new(left);
        let after = open(fs).unwrap();
        let Some(tree) = after.tree("t") else {
            continue;
        };
        let acknowledged = acknowledged.lock().unwrap();
        let durable = acknowledged.iter().filter(|(_, (_, durable))| *durable);
        let least = durable.map(|(seq, _)| *seq).max().unwrap_or(0);
        for (seq, (key, _)) in acknowledged.iter() {
            let there = holds(&after, tree, *key);
            let last = after.snapshot().seq();
            assert!(there || *seq > least, "{seq} was durable, up to {least}");
            assert!(
                there || *seq > last,
                "{seq} is missing, and {last} is there"
            );
        }
    }
}

/// A snapshot has every acknowledged write up to its number, and no acknowledged write is above it.
fn check_prefix(group: &Group, tree: TreeId, acknowledged: &Mutex<BTreeMap<u64, (u64, bool)>>) {
    let known = acknowledged.lock().unwrap().clone();
    let snapshot = group.snapshot();
    for (seq, (key, _)) in known {
        assert!(seq <= snapshot.seq(), "{seq} was acknowledged");
        let found = snapshot.get(tree, &key.to_be_bytes(), &Cost::default());
        assert_eq!(found.unwrap().unwrap().seq, seq);
    }
}
