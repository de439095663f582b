//! One damaged table is an error only of the reads that need it: other trees are compacted, writers
//! continue at their usual rate, closing succeeds, the failure is reported, and ends with its
//! cause.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{DIR, small};
use esker_lsm::{
    Batch, Cost, Durability, Error, Group, Job, Leveled, Options, Result, Retry, Tiered, TreeId,
    TreeOptions, TreeProvider,
};
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;

struct Trees;

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        let policy: Arc<dyn esker_lsm::CompactionPolicy> = if name.starts_with("tiered") {
            Arc::new(Tiered::default())
        } else {
            Arc::new(Leveled {
                level0_runs: 2,
                ..Leveled::default()
            })
        };
        Ok(TreeOptions {
            policy,
            ..TreeOptions::default()
        })
    }
}

fn open(fs: &Hooked, background: bool) -> Group {
    let options = Options {
        background,
        // Damage of a file must be damage of one tree.
        share_from: usize::MAX,
        ..small(Arc::new(fs.clone()))
    };
    Group::open(Path::new(DIR), options, Arc::new(Trees), true).unwrap()
}

fn create(group: &Group, names: &[&str]) -> Vec<TreeId> {
    let trees: Vec<_> = names
        .iter()
        .map(|name| (name.to_string(), vec![]))
        .collect();
    group.create_trees(&trees).unwrap()
}

fn put(group: &Group, trees: &[TreeId], n: u32, len: usize) -> Result<u64> {
    let mut batch = Batch::new();
    for tree in trees {
        batch
            .put(*tree, &n.to_be_bytes(), &vec![n as u8; len])
            .unwrap();
    }
    group.write(&mut batch, Durability::Os)
}

fn tables(group: &Group, tree: TreeId) -> Vec<PathBuf> {
    let snapshot = group.snapshot();
    let runs = snapshot.version().trees[&tree].runs.iter();
    runs.flat_map(|run| run.tables.iter().map(|table| table.path()))
        .collect()
}

fn runs(group: &Group, tree: TreeId) -> usize {
    group.snapshot().version().trees[&tree].runs.len()
}

/// From now on `path` cannot be read, while `damaged` is set.
fn damage(fs: &Hooked, path: PathBuf) -> Arc<AtomicBool> {
    let damaged = Arc::new(AtomicBool::new(true));
    let up = damaged.clone();
    fs.set(move |call, at| {
        if at == path && matches!(call, Call::Open | Call::Read) && up.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    });
    damaged
}

fn find(group: &Group, tree: TreeId, n: u32) -> Result<bool> {
    let found = group
        .snapshot()
        .get(tree, &n.to_be_bytes(), &Cost::default())?;
    Ok(found.is_some())
}

/// Without background threads: the same writes, compactions and attempts in each run.
#[test]
fn other_trees_are_compacted_while_one_fails() {
    let mut lives = Vec::new();
    for name in ["bad", "tiered bad"] {
        for _ in 0..2 {
            let fs = Hooked::new(Arc::new(Memory::new()));
            let group = open(&fs, false);
            let trees = create(&group, &[name, "good"]);
            let (bad, good) = (trees[0], trees[1]);
            put(&group, &trees, 0, 100).unwrap();
            group.flush().unwrap();
            drop(group);
            let group = open(&fs, false);
            let damaged = damage(&fs, tables(&group, bad)[0].clone());
            let mut attempts = Vec::new();
            for n in 1..3000 {
                put(&group, &trees, n, 1000).unwrap();
                let failures = group.failures();
                if let Some(failure) = failures.first()
                    && attempts
                        .last()
                        .is_none_or(|(_, times)| *times != failure.times)
                {
                    attempts.push((group.stats().flushes, failure.times));
                }
            }
            let stats = group.stats();
            assert!(stats.flushes > 60);
            assert!(runs(&group, good) < 8, "{} runs", runs(&group, good));
            // Runs newer than the damage are compacted, too.
            assert!(runs(&group, bad) < 16, "{} runs", runs(&group, bad));
            // With growing pauses.
            assert!((4..10).contains(&attempts.len()), "{attempts:?}");
            let pauses: Vec<_> = attempts.windows(2).map(|two| two[1].0 - two[0].0).collect();
            assert!(pauses.is_sorted(), "{pauses:?}");
            let failures = group.failures();
            assert_eq!(failures.len(), 1);
            assert_eq!(failures[0].job, Job::Merge);
            assert_eq!(failures[0].tree, Some((bad, name.to_string())));
            assert!(matches!(failures[0].error, Error::Io { .. }));
            assert!(matches!(failures[0].retry, Retry::AfterFlushes(_)));
            // A read that needs the table fails, any other succeeds.
            assert!(find(&group, bad, 0).is_err());
            assert!(find(&group, bad, 2999).unwrap() && find(&group, good, 0).unwrap());
            // A requested compaction fails, after all other trees have been compacted.
            assert!(group.run_compactions().is_err());
            assert!(group.compact(None).is_err());
            assert_eq!(runs(&group, good), 1);
            assert!(group.compact(Some(bad)).is_err());
            group.compact(Some(good)).unwrap();
            lives.push((stats.flushes, stats.merges, attempts));

            if lives.len() % 2 == 0 {
                group.close().unwrap();
                continue;
            }
            // The failure ends with the damage.
            damaged.store(false, Ordering::SeqCst);
            group.compact(None).unwrap();
            assert!(group.failures().is_empty());
            for n in 0..3000 {
                assert!(find(&group, bad, n).unwrap());
            }
            group.close().unwrap();
            drop(group);
            let group = open(&fs, false);
            assert!(group.check().errors.is_empty());
        }
        let (second, first) = (lives.pop(), lives.pop());
        assert_eq!(first, second);
    }
}

#[test]
fn the_failure_ends_with_its_tree() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let group = open(&fs, false);
    let trees = create(&group, &["bad", "good"]);
    put(&group, &trees, 0, 10).unwrap();
    group.flush().unwrap();
    drop(group);
    let group = open(&fs, false);
    damage(&fs, tables(&group, trees[0])[0].clone());
    put(&group, &trees, 0, 20).unwrap();
    group.flush().unwrap();
    let path = tables(&group, trees[0])[1].clone();
    let error = group.run_compactions().unwrap_err();
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
    assert_eq!(group.failures().len(), 1);
    group.drop_trees(&trees[..1]).unwrap();
    assert!(group.failures().is_empty());
    group.run_compactions().unwrap();
    group.close().unwrap();
}

/// With background threads: writers are neither refused nor slowed down because of a tree that
/// cannot be compacted.
#[test]
fn writers_and_compactions_of_other_trees_continue() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let group = open(&fs, true);
    let trees = create(&group, &["bad", "good"]);
    put(&group, &trees, 0, 100).unwrap();
    group.flush().unwrap();
    drop(group);
    let group = open(&fs, true);
    let damaged = damage(&fs, tables(&group, trees[0])[0].clone());
    for n in 1..6000 {
        put(&group, &trees, n, 1000).unwrap();
    }
    group.flush().unwrap();
    // Until the compaction threads have done all due work.
    let until = Instant::now() + Duration::from_secs(60);
    // In the damaged tree the runs newer than the damage are compacted among themselves.
    while runs(&group, trees[1]) > 8 || runs(&group, trees[0]) >= 20 {
        let left = [runs(&group, trees[0]), runs(&group, trees[1])];
        assert!(Instant::now() < until, "{left:?} runs");
        std::thread::sleep(Duration::from_millis(10));
    }
    let failures = group.failures();
    assert_eq!(failures.len(), 1);
    assert!(matches!(failures[0].retry, Retry::In(_)));
    damaged.store(false, Ordering::SeqCst);
    group.compact(None).unwrap();
    assert!(group.failures().is_empty());
    group.close().unwrap();
}

/// A flush concerns all trees: writers that wait for it get the error, and it is reported until it
/// succeeds.
#[test]
fn a_failing_flush_is_reported_separately() {
    let fs = Hooked::new(Arc::new(Memory::new()));
    let group = open(&fs, false);
    let trees = create(&group, &["a", "b"]);
    let full = Arc::new(AtomicBool::new(true));
    let up = full.clone();
    fs.set(move |call, at| {
        let table = at.extension().is_some_and(|e| e == "tbl");
        if call == Call::Create && table && up.load(Ordering::SeqCst) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    });
    let refused = (0..10_000).find_map(|n| put(&group, &trees, n, 1000).err());
    assert!(refused.unwrap().is_disk_full());
    let failures = group.failures();
    assert_eq!((failures.len(), failures[0].job), (1, Job::Flush));
    assert!(failures[0].tree.is_none() && failures[0].error.is_disk_full());
    full.store(false, Ordering::SeqCst);
    group.flush().unwrap();
    assert!(group.failures().is_empty());
    group.close().unwrap();
}
