//! Policies and partitioners of users: runs that are disjoint in a custom order, several runs in a
//! level, and choices that the engine refuses. Their exactness under random operations is tested in
//! `model.rs`, under power cuts in `crash.rs`.

use std::path::Path;
use std::sync::Arc;

use crate::common::toy::{Plane, place, tiles};
use crate::common::{DIR, bytes, open_layouts, small};
use esker_lsm::version::{Run, TreeVersion};
use esker_lsm::{
    Action, Batch, Choice, CompactionPolicy, Cost, Cursor, Durability, Error, Group, Partitioner,
    Result, Tiered, TreeOptions, TreeProvider,
};
use esker_sim::memory::Memory;

struct With(TreeOptions);

impl TreeProvider for With {
    fn tree_options(&self, _: &str, _: &[u8]) -> Result<TreeOptions> {
        Ok(self.0.clone())
    }
}

fn open(fs: &Memory, options: TreeOptions) -> Result<Group> {
    let settings = small(Arc::new(fs.clone()));
    Group::open(Path::new(DIR), settings, Arc::new(With(options)), true)
}

/// Keys that are scattered over the plane.
fn key(n: u32) -> Vec<u8> {
    let mixed = n.wrapping_mul(0x9e37_79b9);
    mixed.to_be_bytes().to_vec()
}

fn fill(group: &Group, tree: u32, from: u32, to: u32) {
    let mut rng = fastrand::Rng::with_seed(from.into());
    let mut batch = Batch::new();
    for n in from..to {
        batch.put(tree, &key(n), &bytes(&mut rng, 100)).unwrap();
    }
    group.write(&mut batch, Durability::Os).unwrap();
    group.flush().unwrap();
}

fn run_is_tiled(run: &Run) {
    for (at, a) in run.tables.iter().enumerate() {
        let bounds = &a.meta().bounds.as_ref().unwrap().bytes;
        for b in run.tables.iter().skip(at + 1) {
            let other = &b.meta().bounds.as_ref().unwrap().bytes;
            assert!(!Plane.overlap(bounds, other));
        }
    }
}

#[test]
fn tables_of_a_run_are_disjoint_in_the_plane_and_levels_have_several_runs() {
    let fs = Memory::new();
    let group = open_layouts(Arc::new(fs.clone())).unwrap();
    let tree = group.create_trees(&[("b".to_string(), vec![])]).unwrap()[0];
    let mut most = 0;
    for n in 0..60 {
        fill(&group, tree, n * 150, (n + 1) * 150);
        group.run_compactions().unwrap();
        let snapshot = group.snapshot();
        let version = &snapshot.version().trees[&tree];
        version.runs.iter().for_each(run_is_tiled);
        most = most.max(version.runs.iter().filter(|run| run.level == 1).count());
    }
    assert_eq!(most, 3, "several runs in level 1");
    let snapshot = group.snapshot();
    let version = &snapshot.version().trees[&tree];
    let bottom = version.level(2).unwrap();
    assert!(bottom.tables.len() > 8, "{} tables", bottom.tables.len());
    // Disjoint in the plane, and not by key.
    let by_key = bottom.tables.windows(2);
    assert!(
        by_key
            .clone()
            .any(|pair| pair[0].meta().largest >= pair[1].meta().smallest)
    );
    let cost = Cost::default();
    for n in 0..60 * 150 {
        assert!(snapshot.get(tree, &key(n), &cost).unwrap().is_some(), "{n}");
        let holder = bottom.table_for(&key(n));
        assert!(holder.is_none_or(|table| {
            let bounds = &table.meta().bounds.as_ref().unwrap().bytes;
            Plane.covers(bounds, &key(n))
        }));
    }
    let mut cursor = snapshot.cursor(tree, 0);
    let (mut count, mut last) = (0, Vec::new());
    cursor.seek_first().unwrap();
    while cursor.valid() {
        assert!(count == 0 || last.as_slice() < cursor.key());
        last = cursor.key().to_vec();
        count += 1;
        cursor.next().unwrap();
    }
    assert_eq!(count, 60 * 150);
    assert!(
        group.stats().moves > 0,
        "tables that overlap nothing are moved"
    );
    assert!(group.check().errors.is_empty());
    assert_eq!(place(b"abz"), (b'b', b'z'));
    // The same after recovery from the manifest.
    drop(group);
    let group = open_layouts(Arc::new(fs)).unwrap();
    let snapshot = group.snapshot();
    snapshot.version().trees[&tree]
        .runs
        .iter()
        .for_each(run_is_tiled);
    assert!(snapshot.get(tree, &key(17), &cost).unwrap().is_some());
    group.compact(None).unwrap();
    let snapshot = group.snapshot();
    assert_eq!(snapshot.version().trees[&tree].runs.len(), 1);
    assert!((0..9000).all(|n| snapshot.get(tree, &key(n), &cost).unwrap().is_some()));
    assert!(group.check().errors.is_empty());
}

#[test]
fn a_tree_is_not_opened_with_another_order_than_its_tables_have() {
    let by_key = TreeOptions::default;
    for (then, now) in [(tiles(), by_key()), (by_key(), tiles())] {
        let fs = Memory::new();
        let group = open(&fs, then).unwrap();
        let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
        fill(&group, tree, 0, 10);
        drop(group);
        let error = open(&fs, now).err().unwrap();
        assert!(matches!(error, Error::Corruption { .. }), "{error}");
        assert!(error.to_string().contains("tree t: table"), "{error}");
    }
}

/// Bounds that do not cover the keys of a table.
#[derive(Debug)]
struct Blind;

impl Partitioner for Blind {
    fn id(&self) -> u32 {
        77
    }
    fn cover(&self, bounds: &mut Vec<u8>, key: &[u8]) {
        if bounds.is_empty() {
            Plane.cover(bounds, key);
        }
    }
    fn covers(&self, bounds: &[u8], key: &[u8]) -> bool {
        Plane.covers(bounds, key)
    }
    fn overlap(&self, _: &[u8], _: &[u8]) -> bool {
        false
    }
    fn cut(&self, output: &esker_lsm::Cutting<'_>) -> Box<dyn esker_lsm::Cutter> {
        Plane.cut(output)
    }
}

#[test]
fn a_check_finds_keys_that_the_bounds_of_their_table_do_not_cover() {
    let blind = TreeOptions {
        partitioner: Some(Arc::new(Blind)),
        ..tiles()
    };
    let group = open(&Memory::new(), blind).unwrap();
    let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
    fill(&group, tree, 0, 10);
    let errors = group.check().errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].to_string().contains("bounds"), "{}", errors[0]);
}

/// Places the newest run below older ones that it overlaps; or moves tables that must be merged.
#[derive(Debug)]
struct Wrong {
    moves: bool,
}

impl CompactionPolicy for Wrong {
    fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
        let level0 = tree.level0();
        if level0.len() < 2 {
            return None;
        }
        let run = Some(0);
        let (take, action) = if self.moves {
            (2, Action::Move { level: 1, run })
        } else {
            (1, Action::Merge { level: 1, run })
        };
        let inputs = level0.iter().take(take).map(|run| run.tables.to_vec());
        Some((
            1.0,
            Choice {
                inputs: inputs.collect(),
                action,
                cursor: None,
            },
        ))
    }
    fn level_for(&self, _: u64) -> u32 {
        1
    }
    fn pressure(&self, _: &TreeVersion) -> f64 {
        0.0
    }
}

/// Compacts the runs of level 0 into a run of level 1, and omits tables between their keys.
#[derive(Debug)]
struct Around;

impl CompactionPolicy for Around {
    fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
        let level0 = tree.level0();
        let take = if tree.level(1).is_some() { 2 } else { 1 };
        let inputs = level0.iter().map(|run| run.tables.to_vec());
        (level0.len() >= take).then(|| (1.0, Choice::merge(inputs.collect(), 1)))
    }
    fn level_for(&self, _: u64) -> u32 {
        1
    }
    fn pressure(&self, _: &TreeVersion) -> f64 {
        0.0
    }
}

#[test]
fn a_compaction_around_a_table_of_its_level_is_refused() {
    let options = TreeOptions::with_policy(Arc::new(Around));
    let group = open(&Memory::new(), options).unwrap();
    let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
    for (key, settles) in [(b"m", true), (b"a", true), (b"z", false)] {
        let mut batch = Batch::new();
        batch.put(tree, key, b"value").unwrap();
        group.write(&mut batch, Durability::Os).unwrap();
        group.flush().unwrap();
        let settled = group.run_compactions();
        assert_eq!(settled.is_ok(), settles, "{settled:?}");
    }
    let cost = Cost::default();
    let snapshot = group.snapshot();
    let found = [b"a", b"m", b"z"].map(|key| snapshot.get(tree, key, &cost).unwrap().is_some());
    assert_eq!(found, [true; 3]);
    assert!(group.check().errors.is_empty());
}

#[test]
fn a_wrong_policy_causes_no_wrong_answer() {
    for (partitioner, moves) in [(None, false), (None, true), (tiles().partitioner, false)] {
        let options = TreeOptions {
            partitioner,
            ..TreeOptions::with_policy(Arc::new(Wrong { moves }))
        };
        let group = open(&Memory::new(), options).unwrap();
        let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
        for round in 0..5u8 {
            let mut batch = Batch::new();
            batch.put(tree, b"key", &[round]).unwrap();
            group.write(&mut batch, Durability::Os).unwrap();
            group.flush().unwrap();
        }
        let error = group.run_compactions().unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        assert!(error.to_string().starts_with("tree t: "), "{error}");
        assert_eq!(group.failures().len(), 1);
        let found = group
            .snapshot()
            .get(tree, b"key", &Cost::default())
            .unwrap();
        assert_eq!(&*found.unwrap().value, [4]);
    }
    // Its choice is valid where nothing overlaps.
    let options = TreeOptions::with_policy(Arc::new(Wrong { moves: true }));
    let group = open(&Memory::new(), options).unwrap();
    let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
    for key in [b"a", b"b", b"c"] {
        let mut batch = Batch::new();
        batch.put(tree, key, b"value").unwrap();
        group.write(&mut batch, Durability::Os).unwrap();
        group.flush().unwrap();
    }
    group.run_compactions().unwrap();
    assert!(group.stats().moves > 0);
    let options = TreeOptions::with_policy(Arc::new(Tiered::default()));
    assert!(options.partitioner.is_none());
}
