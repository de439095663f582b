//! Faults in the middle of several compactions, each in pieces: power cuts throughout, a full disk,
//! closing, dropping and copying while they wait at a gate; and a tree whose compactions never end
//! stops no other. Gates, not clocks, control what is running.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::crowd::{self, Gate, Model, apply, many, open, read, trees, write};
use crate::common::{DIR, Doing, bytes, seeds, small};
use esker_lsm::fs::Fs;
use esker_lsm::merge::{
    CompactionFilter, CompactionFilterFactory, Decision, FilteredEntry, ObsoleteWrites,
};
use esker_lsm::{
    Batch, Cost, Durability, Error, Group, JobKind, Leveled, Options, Result, Snapshot, TreeId,
    TreeOptions, TreeProvider,
};
use esker_sim::faulty::Faulty;
use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::{Memory, PowerCut};

/// Runs a workload with several compactions that ends with a power cut. Returns the possible
/// states, and the number of pieces.
fn live_until(memory: &Memory, seed: u64, at: u64) -> (Vec<Model>, u64, u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let fs = Faulty::new(Arc::new(memory.clone()));
    let group = open(Options {
        piece_bytes: Some(2 << 10),
        ..many(Arc::new(fs.clone()))
    });
    let trees = trees(&group);
    fs.fail_from(at);
    let before = fs.calls();
    let mut states = vec![Model::new()];
    let mut held: Option<(Snapshot, Model)> = None;
    for _ in 0..300 {
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
        if rng.usize(0..60) == 0 {
            held = Some((group.snapshot(), states.last().unwrap().clone()));
        }
    }
    if let Some((snapshot, model)) = &held {
        assert!(read(snapshot, &trees) == *model, "a held snapshot");
    }
    let pieces = group.stats().pieces;
    (states, fs.calls() - before, pieces)
}

/// A power cut at every so many calls of a workload (`ESKER_CUTS` is their number), starting at
/// another call with each seed.
#[test]
fn power_cuts_all_over_several_compactions() {
    let cuts = std::env::var("ESKER_CUTS").ok();
    let cuts = cuts.and_then(|cuts| cuts.parse().ok());
    let cuts = cuts.unwrap_or(esker_sim::by_tier(20, 40));
    for seed in seeds(3) {
        let (_, total, pieces) = live_until(&Memory::new(), seed, u64::MAX);
        assert!(pieces > 0, "nothing was merged in pieces");
        let every = (total / cuts).max(1);
        for at in (1 + seed % every..=total).step_by(every as usize) {
            let _doing = Doing(&|| format!("ESKER_SEED={seed}, call {at} of {total}"));
            let memory = Memory::new();
            let (states, _, _) = live_until(&memory, seed, at);
            for mode in [PowerCut::Lost, PowerCut::Torn, PowerCut::Reordered] {
                let left = memory.power_cut(seed ^ at, mode);
                let group = open(many(Arc::new(left.clone())));
                let trees = trees(&group);
                let found = read(&group.snapshot(), &trees);
                assert!(states.contains(&found), "{mode:?}: a state that never was");
                group.run_compactions().unwrap();
                assert!(read(&group.snapshot(), &trees) == found, "{mode:?}");
                // The first write removes the leftovers of the cut.
                write(&group, &trees, &mut fastrand::Rng::new(), Durability::Os)
                    .1
                    .unwrap();
                group.flush().unwrap();
                group.run_compactions().unwrap();
                assert_only_what_is_named(&group, &left);
                let report = group.check();
                assert!(report.errors.is_empty(), "{:?}", report.errors);
            }
        }
    }
}

/// There are no table files except those of the version, as soon as the installing thread has
/// removed the others. A file whose first sector was torn to random bytes is nobody's: it stays,
/// because it may be foreign.
fn assert_only_what_is_named(group: &Group, memory: &Memory) {
    await_that("files outside of the version are removed", &|| {
        let is_own = |path: &PathBuf| {
            let bytes = memory.read(path).unwrap_or_default();
            let begin = bytes.get(..8.min(bytes.len())).unwrap_or_default();
            begin.iter().all(|byte| *byte == 0) || b"ESKERTBL".starts_with(begin)
        };
        let is_table = |path: &PathBuf| {
            path.starts_with(DIR) && path.extension().is_some_and(|e| e == "tbl") && is_own(path)
        };
        let files: BTreeSet<_> = memory.paths().into_iter().filter(is_table).collect();
        let snapshot = group.snapshot();
        let tables = snapshot.version().trees.values().flat_map(|t| t.tables());
        let named: BTreeSet<_> = tables.map(|table| table.path()).collect();
        files == named
    });
}

const PATIENCE: Duration = Duration::from_secs(60);

fn await_that(what: &str, is: &dyn Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

/// A store in which a compaction of each of three trees, in two pieces each, waits before its first
/// table.
struct Standing {
    memory: Memory,
    faulty: Faulty,
    group: Group,
    trees: Vec<TreeId>,
    model: Model,
    gate: Arc<Gate>,
    _opens: OpenAtLast,
}

const STANDING: usize = 3;

impl Drop for OpenAtLast {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Opens a gate when a test ends, successfully or not, because threads waiting there are joined
/// then.
struct OpenAtLast(Arc<Gate>);

impl Standing {
    fn new() -> Standing {
        let memory = Memory::new();
        let faulty = Faulty::new(Arc::new(memory.clone()));
        let hooked = Hooked::new(Arc::new(faulty.clone()));
        let gate = Arc::new(Gate::default());
        let stands = gate.clone();
        hooked.set(move |call, path| {
            let thread = std::thread::current();
            let merges = thread.name().is_some_and(|n| n.starts_with("esker-merge"));
            if call == Call::Create && merges && path.extension().is_some_and(|e| e == "tbl") {
                stands.pass();
            }
            Ok(())
        });
        let group = open(Options {
            compaction_threads: 2 * STANDING,
            // A compaction has some 20,000 bytes.
            piece_bytes: Some(9 << 10),
            memory_budget: 4 << 20,
            share_from: 100,
            ..many(Arc::new(hooked))
        });
        let opens = OpenAtLast(gate.clone());
        let (trees, mut model) = (trees(&group), Model::new());
        let mut rng = fastrand::Rng::with_seed(1);
        for (at, tree) in trees.iter().take(STANDING).enumerate() {
            for run in 0..2_u32 {
                let mut batch = Batch::new();
                // The second run begins in the middle of the first, at the boundary of the pieces.
                for n in 10 * run..10 * run + 20 {
                    let value = bytes(&mut rng, 400);
                    batch.put(*tree, &n.to_be_bytes(), &value).unwrap();
                    model.insert((*tree, n.to_be_bytes().to_vec()), value);
                }
                group.write(&mut batch, Durability::Os).unwrap();
                group.flush().unwrap();
            }
            let pieces = 2 * (at + 1);
            await_that("the pieces stand", &|| {
                gate.waiting.load(Ordering::SeqCst) == pieces
            });
        }
        let running = group.jobs();
        let merges = running
            .iter()
            .filter(|job| job.about.kind == JobKind::Compaction);
        assert_eq!(merges.count(), STANDING);
        Standing {
            memory,
            faulty,
            group,
            trees,
            model,
            _opens: opens,
            gate,
        }
    }

    fn assert_all_there(&self) {
        assert!(read(&self.group.snapshot(), &self.trees) == self.model);
        assert_only_what_is_named(&self.group, &self.memory);
    }

    /// Ended compactions that failed.
    fn failed(&self) -> Vec<Error> {
        let ended = self.group.ended_jobs().into_iter();
        let merges = ended.filter(|job| job.about.kind == JobKind::Compaction);
        merges.filter_map(|job| job.error).collect()
    }
}

/// The disk is full when they write: all of them fail and report it, none of their files is left,
/// and all resume when there is space.
#[test]
fn a_disk_that_is_full_for_several_compactions_at_once() {
    let store = Standing::new();
    store.faulty.set_capacity(store.faulty.used());
    store.gate.open();
    await_that("all have failed", &|| store.failed().len() >= STANDING);
    await_that("none is at work", &|| store.group.jobs().is_empty());
    let failed = store.failed();
    assert!(failed.iter().all(Error::is_disk_full), "{failed:?}");
    assert!(read(&store.group.snapshot(), &store.trees) == store.model);
    store.faulty.set_capacity(u64::MAX);
    store.group.compact(None).unwrap();
    store.group.run_compactions().unwrap();
    await_that("none is at work", &|| store.group.jobs().is_empty());
    store.assert_all_there();
}

/// Closed while pieces of several compactions wait: they abort, none of their files is left, and
/// all data is there.
#[test]
fn closing_while_pieces_are_at_work() {
    let mut store = Standing::new();
    let other = store.trees[STANDING];
    let write = |group: &Group| {
        let mut batch = Batch::new();
        batch.put(other, b"key", b"value").unwrap();
        group.write(&mut batch, Durability::Os)
    };
    write(&store.group).unwrap();
    store
        .model
        .insert((other, b"key".to_vec()), b"value".to_vec());
    let held = store.group.snapshot();
    std::thread::scope(|scope| {
        let _opens = OpenAtLast(store.gate.clone());
        let closing = scope.spawn(|| store.group.close());
        await_that("closing has begun", &|| {
            matches!(write(&store.group), Err(Error::Closed))
        });
        store.gate.open();
        closing.join().unwrap().unwrap();
    });
    // A handle that still lives says so.
    let gone = held.get(other, b"key", &Cost::default());
    assert!(matches!(gone, Err(Error::Closed)), "{gone:?}");
    drop(held);
    let Standing {
        memory,
        trees,
        model,
        group,
        ..
    } = store;
    drop(group);
    let group = open(many(Arc::new(memory.clone())));
    // What the snapshot kept when the folder was given up is a leftover, that the first write
    // removes.
    write(&group).unwrap();
    group.flush().unwrap();
    group.run_compactions().unwrap();
    assert!(read(&group.snapshot(), &trees) == model);
    assert_only_what_is_named(&group, &memory);
}

/// A tree is dropped during its compaction: the drop waits for that; a snapshot still sees the tree
/// until it is dropped, too.
#[test]
fn a_tree_is_dropped_during_its_compaction_and_a_snapshot_still_sees_it() {
    let mut store = Standing::new();
    let held = store.group.snapshot();
    let (tree, other) = (store.trees[0], store.trees[STANDING]);
    let dropped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _opens = OpenAtLast(store.gate.clone());
        let (group, dropped) = (&store.group, &dropped);
        let dropping = scope.spawn(move || {
            let result = group.drop_trees(&[tree]);
            dropped.store(true, Ordering::SeqCst);
            result
        });
        // Others continue.
        let mut batch = Batch::new();
        batch.put(other, b"key", b"value").unwrap();
        group.write(&mut batch, Durability::Sync).unwrap();
        group.flush().unwrap();
        assert!(!dropped.load(Ordering::SeqCst));
        store.gate.open();
        dropping.join().unwrap().unwrap();
    });
    assert!(store.group.tree("a").is_none());
    assert!(read(&held, &store.trees) == store.model);
    drop(held);
    store.group.run_compactions().unwrap();
    await_that("none is at work", &|| store.group.jobs().is_empty());
    store.model.retain(|(of, _), _| *of != tree);
    store
        .model
        .insert((other, b"key".to_vec()), b"value".to_vec());
    store.trees.retain(|of| *of != tree);
    store.assert_all_there();
}

/// A copy waits for no compaction, and is an independent store.
#[test]
fn a_copy_is_made_while_several_compactions_are_at_work() {
    let store = Standing::new();
    let copy = Path::new("/copy");
    store.group.checkpoint(copy).unwrap();
    // They are still waiting.
    assert_eq!(store.gate.waiting.load(Ordering::SeqCst), 2 * STANDING);
    assert!(store.group.jobs().len() >= STANDING);
    store.gate.open();
    store.group.run_compactions().unwrap();
    await_that("none is at work", &|| store.group.jobs().is_empty());
    store.assert_all_there();
    let options = many(Arc::new(store.memory.clone()));
    let copied = Group::open(copy, options, Arc::new(crowd::Trees), false).unwrap();
    assert!(read(&copied.snapshot(), &store.trees) == store.model);
    let report = copied.check();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

/// In compactions, filters nothing while the gate is shut.
struct Slow(Arc<Gate>);

impl CompactionFilterFactory for Slow {
    fn begin(&self, _: &ObsoleteWrites) -> Box<dyn CompactionFilter> {
        Box::new(Slow(self.0.clone()))
    }
    fn spans_keys(&self) -> bool {
        false
    }
}

impl CompactionFilter for Slow {
    fn decide(&mut self, _: FilteredEntry<'_>, _: &mut dyn FnMut() -> bool) -> Decision {
        let thread = std::thread::current();
        if thread.name().is_some_and(|n| n.starts_with("esker-merge")) {
            self.0.pass();
        }
        Decision::Keep
    }
}

/// One tree whose compactions wait at a gate, and others.
struct OneSlow(Arc<Gate>);

impl TreeProvider for OneSlow {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        let slow = (name == "slow")
            .then(|| Arc::new(Slow(self.0.clone())) as Arc<dyn CompactionFilterFactory>);
        Ok(TreeOptions {
            policy: Arc::new(Leveled {
                level0_runs: 2,
                ..Leveled::default()
            }),
            filter: slow,
            ..TreeOptions::default()
        })
    }
}

/// A tree whose compaction, in as many pieces as there are threads, does not end: writers to
/// another tree are not slowed down, and that tree is flushed and compacted as often as it needs
/// it. Writers to the blocked tree are slowed down.
#[test]
fn a_tree_whose_compaction_never_ends_stops_no_other() {
    let gate = Arc::new(Gate::default());
    let fs: Arc<dyn Fs> = Arc::new(Memory::new());
    let options = Options {
        background: true,
        compaction_threads: 2,
        piece_bytes: Some(2 << 10),
        memory_budget: 4 << 20,
        share_from: 100,
        ..small(fs)
    };
    let provider = Arc::new(OneSlow(gate.clone()));
    let group = Group::open(Path::new(DIR), options, provider, true).unwrap();
    let _opens = OpenAtLast(gate.clone());
    let names = ["slow", "fast"].map(|name| (name.to_string(), Vec::new()));
    let trees = group.create_trees(&names).unwrap();
    let (slow, fast) = (trees[0], trees[1]);
    let level0 = |tree| group.snapshot().version().trees[&tree].level0().len();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut put = |tree, from: u32| {
        let mut batch = Batch::new();
        for n in from..from + 20 {
            let value = bytes(&mut rng, 400);
            batch.put(tree, &n.to_be_bytes(), &value).unwrap();
        }
        group.write(&mut batch, Durability::Os).unwrap();
        group.stats().slowed_micros
    };
    for from in [0, 10] {
        put(slow, from);
        group.flush().unwrap();
    }
    await_that("both threads are at work on it", &|| {
        gate.waiting.load(Ordering::SeqCst) == 2
    });
    for _ in 0..14 {
        put(slow, 0);
        group.flush().unwrap();
    }
    assert!(level0(slow) >= 14);
    let slowed = put(slow, 0);
    assert!(slowed > 0, "writers to the slow tree are not slowed down");
    for n in 0..30 {
        assert_eq!(put(fast, n), slowed);
        group.flush().unwrap();
        await_that("the fast one is merged", &|| level0(fast) < 2);
    }
    assert_eq!(gate.waiting.load(Ordering::SeqCst), 2);
    gate.open();
    group.run_compactions().unwrap();
    assert!(level0(slow) < 2);
    group.close().unwrap();
}
