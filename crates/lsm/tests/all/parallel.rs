//! Concurrent compactions, and large ones in pieces: nothing is lost or torn by power cuts, full
//! disks, closing and dropping in the middle of them; their result equals that of a single
//! compaction; and a slow tree does not stop a fast one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::crowd::{Gate, Model, apply, many, open, read, trees, write};
use crate::common::{Doing, seeds};
use esker_lsm::{Batch, Durability, Error, JobKind, Options, Snapshot, TreeChange};
use esker_sim::faulty::Faulty;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

/// Compactions of several trees, in pieces, with a writer and held snapshots: each sees its own
/// state.
#[test]
fn many_compactions_at_a_time_show_what_was_written() {
    for seed in seeds(esker_sim::by_tier(6, 12)) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        let group = open(many(Arc::new(memory.clone())));
        let trees = trees(&group);
        let mut model = Model::new();
        let mut held: Vec<(Snapshot, Model)> = Vec::new();
        for at in 0..1500 {
            let (changes, result) = write(&group, &trees, &mut rng, Durability::Os);
            result.unwrap();
            apply(&mut model, &changes);
            match rng.usize(0..300) {
                0 => held.push((group.snapshot(), model.clone())),
                1 => group.run_compactions().unwrap(),
                2 => group.compact(None).unwrap(),
                3 => group.compact(Some(trees[at % 4])).unwrap(),
                _ => {}
            }
        }
        for (snapshot, model) in &held {
            assert_eq!(read(snapshot, &trees), *model);
        }
        group.run_compactions().unwrap();
        assert_eq!(read(&group.snapshot(), &trees), model);
        assert!(
            group
                .ended_jobs()
                .iter()
                .any(|job| job.about.kind == JobKind::Compaction)
        );
        group.close().unwrap();
        assert!(group.jobs().is_empty());
        drop((held, group));
        let group = open(many(Arc::new(memory)));
        assert_eq!(read(&group.snapshot(), &trees), model);
    }
}

/// A power cut at any call, with several compactions running: everything durable survives, and
/// nothing is torn.
#[test]
fn a_power_cut_in_the_middle_of_several_compactions() {
    for seed in seeds(esker_sim::by_tier(10, 30)) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        let fs = Faulty::new(Arc::new(memory.clone()));
        let group = open(many(Arc::new(fs.clone())));
        let trees = trees(&group);
        fs.fail_from(fs.calls() + rng.u64(1..1500));
        // Each possible state, from the last durable one on.
        let mut states = vec![Model::new()];
        for _ in 0..2000 {
            let how = match rng.usize(0..20) {
                0 => Durability::Sync,
                _ => Durability::Os,
            };
            let mut next = states.last().unwrap().clone();
            let (changes, result) = write(&group, &trees, &mut rng, how);
            apply(&mut next, &changes);
            states.push(next);
            if result.is_err() {
                break;
            }
            if how == Durability::Sync {
                states = states.split_off(states.len() - 1);
            }
        }
        drop(group);
        let mode = [PowerCut::Lost, PowerCut::Reordered][rng.usize(0..2)];
        let left = memory.power_cut(seed, mode);
        let group = open(many(Arc::new(left)));
        let found = read(&group.snapshot(), &trees);
        assert!(states.contains(&found), "a state that never was");
        group.run_compactions().unwrap();
        assert_eq!(read(&group.snapshot(), &trees), found);
    }
}

/// Pieces run one after the other on the caller's thread: every run is the same, and the tree's
/// contents equal those after a compaction in one piece.
#[test]
fn pieces_without_threads_are_deterministic_and_leave_the_same() {
    for seed in seeds(esker_sim::by_tier(7, 20)) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let run = |piece_bytes: Option<u64>| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let memory = Memory::new();
            let fs = Faulty::new(Arc::new(memory.clone()));
            let group = open(Options {
                background: false,
                piece_bytes,
                ..many(Arc::new(fs.clone()))
            });
            let trees = trees(&group);
            for _ in 0..600 {
                write(&group, &trees, &mut rng, Durability::Os).1.unwrap();
            }
            group.compact(None).unwrap();
            let found = read(&group.snapshot(), &trees);
            group.close().unwrap();
            drop(group);
            let files: BTreeMap<PathBuf, Option<Vec<u8>>> = memory
                .paths()
                .into_iter()
                .map(|p| (p.clone(), memory.read(&p)))
                .collect();
            (found, files, fs.calls())
        };
        let small = run(Some(4 << 10));
        assert!(small == run(Some(4 << 10)), "another run differs");
        let whole = run(None);
        assert!(small.0 == whole.0, "pieces leave something else");
        assert!(small.1 != whole.1, "nothing was done in pieces");
    }
}

/// A full disk in the middle of several compactions: no file of a failed one stays, and all resume
/// when there is space.
#[test]
fn a_full_disk_in_the_middle_of_several_compactions() {
    for seed in seeds(esker_sim::by_tier(7, 20)) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        let fs = Faulty::new(Arc::new(memory.clone()));
        let group = open(many(Arc::new(fs.clone())));
        let trees = trees(&group);
        let mut model = Model::new();
        for _ in 0..400 {
            let (changes, result) = write(&group, &trees, &mut rng, Durability::Os);
            result.unwrap();
            apply(&mut model, &changes);
        }
        fs.set_capacity(fs.used() + rng.u64(0..60_000));
        for _ in 0..3 {
            match group.compact(None) {
                Ok(()) => {}
                Err(error) => assert!(error.is_disk_full(), "{error}"),
            }
            assert_eq!(read(&group.snapshot(), &trees), model);
        }
        fs.set_capacity(u64::MAX);
        group.flush().unwrap();
        group.compact(None).unwrap();
        assert_eq!(read(&group.snapshot(), &trees), model);
        group.close().unwrap();
        drop(group);
        let group = open(many(Arc::new(memory)));
        assert_eq!(read(&group.snapshot(), &trees), model);
    }
}

/// Trees are dropped and created, and the store closed, while others are compacted.
#[test]
fn trees_are_created_and_dropped_while_others_are_compacted() {
    for seed in seeds(esker_sim::by_tier(6, 12)) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        let group = open(many(Arc::new(memory.clone())));
        let trees = trees(&group);
        let mut model = Model::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = fastrand::Rng::with_seed(!seed);
                while !stop.load(Ordering::SeqCst) {
                    let change = |_| {
                        Ok(TreeChange {
                            created: vec![("x".to_string(), Vec::new())],
                            dropped: group.tree("x").into_iter().collect(),
                            ..TreeChange::default()
                        })
                    };
                    let made = group.change_trees(&mut { change }).unwrap();
                    for _ in 0..60 {
                        write(&group, &made, &mut rng, Durability::Os).1.unwrap();
                    }
                    let result = match rng.usize(0..3) {
                        0 => group.compact(Some(made[0])),
                        1 => group.configure_tree(trees[rng.usize(0..4)], vec![]),
                        _ => group.run_compactions(),
                    };
                    result.unwrap();
                }
            });
            for _ in 0..1500 {
                let (changes, result) = write(&group, &trees, &mut rng, Durability::Os);
                result.unwrap();
                apply(&mut model, &changes);
            }
            stop.store(true, Ordering::SeqCst);
        });
        assert_eq!(read(&group.snapshot(), &trees), model);
        group.close().unwrap();
        drop(group);
        let group = open(many(Arc::new(memory)));
        assert_eq!(read(&group.snapshot(), &trees), model);
    }
}

/// Closing with several compactions running, in pieces: it is prompt, whatever their rate limit,
/// and all writes survive.
#[test]
fn closing_ends_several_compactions() {
    for seed in seeds(esker_sim::by_tier(7, 20)) {
        let _doing = Doing(&|| format!("ESKER_SEED={seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let memory = Memory::new();
        let group = open(Options {
            // A compaction would take hours.
            compaction_rate: rng.bool().then_some(1),
            ..many(Arc::new(memory.clone()))
        });
        let trees = trees(&group);
        let mut model = Model::new();
        // Few enough runs that no writer is slowed down.
        for _ in 0..rng.usize(1..300) {
            let (changes, result) = write(&group, &trees, &mut rng, Durability::Os);
            result.unwrap();
            apply(&mut model, &changes);
        }
        group.close().unwrap();
        drop(group);
        let group = open(many(Arc::new(memory)));
        assert_eq!(read(&group.snapshot(), &trees), model);
    }
}

/// While the compaction of one tree is blocked, others are compacted, as often as they need it;
/// their writers are not slowed down; the blocked tree cannot be dropped yet, and others can.
#[test]
fn a_slow_tree_does_not_stop_a_fast_one() {
    let memory = Memory::new();
    let fs = Hooked::new(Arc::new(memory));
    let group = open(Options {
        compaction_threads: 2,
        piece_bytes: None,
        share_from: 100,
        // Enough for both: a compaction that waits for memory waits for the slow one.
        memory_budget: 4 << 20,
        ..many(Arc::new(fs.clone()))
    });
    let trees = trees(&group);
    let (slow, fast, other) = (trees[0], trees[1], trees[2]);
    let put = |tree, n: u32| {
        let mut batch = Batch::new();
        batch.put(tree, &n.to_be_bytes(), &[7; 400]).unwrap();
        group.write(&mut batch, Durability::Os).unwrap();
    };
    // The next compaction is of the slow tree, and blocks when it writes its table.
    let gate = Arc::new(Gate::default());
    let stands = gate.clone();
    fs.set(move |call, path| {
        let merges = std::thread::current()
            .name()
            .is_some_and(|n| n.starts_with("esker-merge"));
        let table = path.extension().is_some_and(|e| e == "tbl");
        if call == Call::Create && merges && table && stands.waiting.load(Ordering::SeqCst) == 0 {
            stands.pass();
        }
        Ok(())
    });
    let patience = Instant::now() + Duration::from_secs(60);
    let await_that = |what: &str, is: &dyn Fn() -> bool| {
        while !is() {
            assert!(Instant::now() < patience, "{what}");
            std::thread::yield_now();
        }
    };
    for n in 0..2 {
        put(slow, n);
        group.flush().unwrap();
    }
    await_that("the slow one begins", &|| {
        gate.waiting.load(Ordering::SeqCst) == 1
    });
    let running = group.jobs();
    assert!(
        running
            .iter()
            .any(|job| job.about.tree.as_deref() == Some("a"))
    );
    // The slow tree accumulates as many runs as slow down its writers.
    for n in 0..12 {
        put(slow, n);
        group.flush().unwrap();
    }
    let level0 = |tree| group.snapshot().version().trees[&tree].level0().len();
    assert!(level0(slow) >= 12);
    let slowed = group.stats().slowed_micros;
    for n in 0..40 {
        for _ in 0..3 {
            put(fast, n);
        }
        group.flush().unwrap();
        await_that("the fast one is merged", &|| level0(fast) < 2);
    }
    // The fast tree was compacted all the time, so only the slow tree's backlog could have slowed
    // its writers.
    assert_eq!(group.stats().slowed_micros, slowed);
    group.drop_trees(&[other]).unwrap();
    gate.open();
    group.run_compactions().unwrap();
    assert!(level0(slow) < 2);
    group.drop_trees(&[slow]).unwrap();
    match group.drop_trees(&[slow]) {
        Err(Error::Invalid(what)) => assert!(what.contains("no tree"), "{what}"),
        other => panic!("{other:?}"),
    }
    fs.clear();
}
