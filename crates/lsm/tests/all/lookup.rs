//! Batched lookups return the same as single ones, with all options and hints. `ESKER_SEEDS=1000
//! cargo test --test lookup` runs more seeds; `ESKER_SEED=17` repeats one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Doing, bytes, is_mapped, seeds, skewed, small};
use esker_lsm::{
    Batch, Cost, Durability, Expected, Found, Group, Kind, Leveled, LookupOptions, Options, Result,
    Seq, Snapshot, Tiered, TreeId, TreeOptions, TreeProvider,
};
use esker_sim::memory::Memory;

/// A tree of each policy.
struct Trees;

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        let policy: Arc<dyn esker_lsm::CompactionPolicy> = match name {
            "leveled" => Arc::new(Leveled {
                level0_runs: 2,
                level1_bytes: 16 << 10,
                multiplier: 3,
                ..Leveled::default()
            }),
            _ => Arc::new(Tiered {
                ratio: 1.2,
                largest_mergeable: 40 << 10,
            }),
        };
        Ok(TreeOptions {
            policy,
            ..TreeOptions::default()
        })
    }
}

/// The sequence numbers of the writes of each key, oldest first.
type Past = BTreeMap<Vec<u8>, Vec<Seq>>;

/// Keys of one family are scattered, those of another close together.
fn key(rng: &mut fastrand::Rng) -> Vec<u8> {
    if rng.bool() {
        format!("k{:04}", rng.usize(0..2000))
    } else {
        format!("near{:04}", skewed(rng, 400))
    }
    .into_bytes()
}

fn write(rng: &mut fastrand::Rng, group: &Group, trees: &[TreeId], pasts: &mut [Past]) {
    for (tree, past) in trees.iter().zip(pasts) {
        for _ in 0..rng.usize(0..60) {
            let key = key(rng);
            let mut batch = Batch::new();
            if rng.usize(0..5) == 0 {
                batch.delete(*tree, &key).unwrap();
            } else {
                let len = skewed(rng, 200);
                batch.put(*tree, &key, &bytes(rng, len)).unwrap();
            }
            let seq = group.write(&mut batch, Durability::Os).unwrap();
            past.entry(key).or_default().push(seq);
        }
    }
}

fn look_up(
    snapshot: &Snapshot,
    tree: TreeId,
    keys: &[&[u8]],
    expected: Expected<'_>,
    options: LookupOptions,
) -> Vec<Option<Found>> {
    let mut found = vec![None; keys.len()];
    let (cost, components) = (Cost::default(), snapshot.components(tree));
    let mut lookup = snapshot.lookup(&components, keys, expected, options, &cost);
    let mut done = 0;
    loop {
        let mut visited = Vec::new();
        let positions = lookup.next_batch(&mut |at, entry| {
            visited.push(at);
            assert!(found[at].replace(entry).is_none(), "given twice");
        });
        let Some(positions) = positions.unwrap() else {
            break;
        };
        assert_eq!(positions.start, done);
        assert!(!positions.is_empty() && visited.iter().all(|at| positions.contains(at)));
        if options.batch_bytes == 0 {
            assert_eq!(positions.len(), 1);
        }
        done = positions.end;
    }
    assert_eq!(done, keys.len());
    found
}

/// Every combination of the options against single lookups.
fn check(rng: &mut fastrand::Rng, snapshot: &Snapshot, tree: TreeId, past: &Past) {
    let mut keys: Vec<&[u8]> = past.keys().map(Vec::as_slice).collect();
    keys.extend([&b""[..], b"k", b"k0500a", b"near", b"zz"]);
    let kept = rng.usize(1..=4);
    keys.retain(|_| rng.usize(0..4) < kept);
    keys.extend_from_within(..keys.len() / 5);
    keys.sort_unstable();
    // The newest visible write, and any visible one.
    let newest = |key: &&[u8]| {
        let all = past.get(*key).map_or(&[][..], Vec::as_slice);
        &all[..all.partition_point(|seq| *seq <= snapshot.seq())]
    };
    let exact: Vec<Seq> = keys
        .iter()
        .map(|key| newest(key).last().copied().unwrap_or(0))
        .collect();
    let least: Vec<Seq> = keys
        .iter()
        .map(|key| rng.choice(newest(key)).copied().unwrap_or(0))
        .collect();
    let single: Vec<Option<Found>> = keys
        .iter()
        .map(|key| snapshot.get(tree, key, &Cost::default()).unwrap())
        .collect();
    for batch_bytes in [0, 300, 5000, 16 << 20] {
        for (stateful, hints) in [(false, false), (false, true), (true, false), (true, true)] {
            let options = LookupOptions {
                batch_bytes,
                stateful,
                hints,
            };
            for expected in [
                Expected::Unknown,
                Expected::AtLeast(&least),
                Expected::AtLeast(&exact),
                Expected::Exactly(&exact),
            ] {
                let found = look_up(snapshot, tree, &keys, expected, options);
                for ((key, found), single) in keys.iter().zip(found).zip(&single) {
                    assert_eq!(found, *single, "{key:?}, {options:?}, {expected:?}");
                }
            }
        }
    }
}

#[test]
fn all_options_give_what_single_lookups_give() {
    for seed in seeds(esker_sim::by_tier(8, 15)) {
        let step = std::cell::Cell::new(0);
        let _doing = Doing(&|| format!("ESKER_SEED={seed}, step {}", step.get()));
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = Arc::new(Memory::new());
        let open = |blocked_filter| {
            let options = Options {
                blocked_filter,
                block_size: 256,
                mapped_reads: is_mapped(seed),
                ..small(fs.clone())
            };
            Group::open(Path::new(DIR), options, Arc::new(Trees), true).unwrap()
        };
        let mut group = open(true);
        let names = ["leveled", "tiered"].map(|name| (name.to_string(), vec![]));
        let trees = group.create_trees(&names).unwrap();
        let mut pasts = [Past::new(), Past::new()];
        let mut old: Option<(Snapshot, [Past; 2])> = None;
        for at in 0..30 {
            step.set(at);
            write(&mut rng, &group, &trees, &mut pasts);
            match rng.usize(0..10) {
                0..5 => group.flush().unwrap(),
                5 => group.run_compactions().unwrap(),
                6 => old = Some((group.snapshot(), pasts.clone())),
                7 => {
                    // Tables of both kinds of filter coexist.
                    old = None;
                    group.close().unwrap();
                    drop(group);
                    group = open(rng.bool());
                }
                _ => {}
            }
            let tree = rng.usize(0..2);
            if at % 4 == 0 {
                check(&mut rng, &group.snapshot(), trees[tree], &pasts[tree]);
            }
            if let Some((snapshot, pasts)) = old.as_ref().filter(|_| at % 4 == 1) {
                check(&mut rng, snapshot, trees[tree], &pasts[tree]);
            }
        }
    }
}

/// A tree of ten runs with the same keys, of which each run has every tenth newest.
fn ten_runs() -> (Group, TreeId, Vec<(Vec<u8>, Seq)>) {
    let options = Options {
        memory_budget: 8 << 20,
        ..small(Arc::new(Memory::new()))
    };
    let group = Group::open(Path::new(DIR), options, Arc::new(NeverMerged), true).unwrap();
    let tree = group.create_trees(&[("t".into(), vec![])]).unwrap()[0];
    let mut written = Vec::new();
    for run in 0..10 {
        for n in (run..1000).step_by(10) {
            let (key, mut batch) = (format!("{n:05}").into_bytes(), Batch::new());
            batch.put(tree, &key, &[b'v'; 100]).unwrap();
            written.push((key, group.write(&mut batch, Durability::Os).unwrap()));
        }
        group.flush().unwrap();
    }
    written.sort();
    (group, tree, written)
}

struct NeverMerged;

impl TreeProvider for NeverMerged {
    fn tree_options(&self, _: &str, _: &[u8]) -> Result<TreeOptions> {
        Ok(TreeOptions {
            policy: Arc::new(Tiered {
                ratio: 1e9,
                largest_mergeable: 1,
            }),
            ..TreeOptions::default()
        })
    }
}

#[test]
fn hints_spare_filters_and_batches_spare_blocks() {
    let (group, tree, written) = ten_runs();
    let snapshot = group.snapshot();
    assert_eq!(snapshot.version().trees[&tree].runs.len(), 10);
    let keys: Vec<&[u8]> = written.iter().map(|(key, _)| key.as_slice()).collect();
    let seqs: Vec<Seq> = written.iter().map(|(_, seq)| *seq).collect();
    let components = snapshot.components(tree);
    let cost_of = |expected, options| {
        let cost = Cost::default();
        let mut found = 0;
        let lookup = snapshot.lookup(&components, &keys, expected, options, &cost);
        let mut count = |_, entry: Found| found += usize::from(entry.kind == Kind::Put);
        lookup.visit_all(&mut count).unwrap();
        assert_eq!(found, keys.len());
        cost
    };
    let all = LookupOptions::default();
    let naive = LookupOptions {
        batch_bytes: 0,
        stateful: false,
        hints: false,
    };
    let asked = |cost: &Cost| cost.filters_probed.get();
    // Each key is in one run only, and mostly within the key range of all: half of them are probed
    // for it.
    let blindly = asked(&cost_of(Expected::Unknown, naive));
    assert!((5400..=5500).contains(&blindly), "{blindly}");
    assert_eq!(asked(&cost_of(Expected::Exactly(&seqs), naive)), blindly);
    let hinted = LookupOptions {
        hints: true,
        ..naive
    };
    // An existing version is found before the components that cannot hold it; for the 100 keys of
    // the oldest one no filter is probed.
    let at_least = asked(&cost_of(Expected::AtLeast(&seqs), hinted));
    assert_eq!(at_least, blindly - 100);
    assert_eq!(asked(&cost_of(Expected::Exactly(&seqs), hinted)), 900);
    assert_eq!(asked(&cost_of(Expected::Exactly(&seqs), all)), 900);
    // A block of a run holds several of the keys.
    let (one_by_one, together) = (
        cost_of(Expected::Unknown, naive),
        cost_of(Expected::Unknown, all),
    );
    assert!(together.data_blocks.get() * 2 < one_by_one.data_blocks.get());
}
