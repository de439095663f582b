//! What the policies choose.

use std::sync::Arc;

use super::*;
use crate::cache::BlockCache;
use crate::fs::memory::Memory;
use crate::table::TableMeta;
use crate::version::{
    Choice, CompactionPolicy, ComponentId, Run, TableFile, TableSource, TreeOptions, TreeVersion,
};

struct Maker {
    source: TableSource,
    next: u64,
}

impl Maker {
    fn new() -> Maker {
        let cache = Arc::new(BlockCache::new(1 << 20));
        Maker {
            source: TableSource {
                fs: Arc::new(Memory::new()),
                dir: "/s".into(),
                cache,
            },
            next: 0,
        }
    }

    fn run(&mut self, level: u32, tables: &[(&str, &str, u64)]) -> Run {
        let first = self.next + 1;
        let tables = tables.iter().map(|(lo, hi, size)| {
            self.next += 1;
            let meta = TableMeta {
                number: self.next,
                size: *size,
                smallest: lo.as_bytes().to_vec(),
                largest: hi.as_bytes().to_vec(),
                ..TableMeta::default()
            };
            TableFile::new(
                meta,
                ComponentId {
                    min: self.next,
                    max: self.next,
                },
                self.source.clone(),
            )
        });
        Run {
            level,
            number: if level == 0 { first } else { 0 },
            tables: Arc::new(tables.collect()),
            partitioner: None,
        }
    }
}

fn tree(runs: Vec<Run>) -> TreeVersion {
    TreeVersion {
        id: 1,
        name: "t".into(),
        config: Arc::new(Vec::new()),
        runs,
        cursors: Default::default(),
        bitmap: Default::default(),
        changed: 0,
        forgotten: 0,
        damage: None,
        mark: 0,
        due: Default::default(),
        options: TreeOptions::default(),
    }
}

fn numbers(choice: &Choice) -> Vec<u64> {
    choice.tables().map(|table| table.meta().number).collect()
}

#[test]
fn leveled_takes_level_0_with_what_it_overlaps() {
    let mut make = Maker::new();
    let runs = (0..4)
        .map(|_| make.run(0, &[("c", "f", 10)]))
        .collect::<Vec<_>>();
    let below = make.run(1, &[("a", "b", 10), ("d", "e", 10), ("g", "h", 10)]);
    let tree = tree(runs.into_iter().chain([below]).collect());
    let (_, choice) = Leveled::default().pick(&tree).unwrap();
    assert_eq!(
        (choice.target().0, numbers(&choice)),
        (1, vec![1, 2, 3, 4, 6])
    );
}

#[test]
fn leveled_merges_small_runs_among_themselves_before_it_rewrites_a_large_level() {
    let mut make = Maker::new();
    let runs = (0..4)
        .map(|_| make.run(0, &[("c", "f", 10)]))
        .collect::<Vec<_>>();
    let below = make.run(1, &[("a", "z", 1000)]);
    let tree = tree(runs.into_iter().chain([below]).collect());
    let (_, choice) = Leveled::default().pick(&tree).unwrap();
    assert_eq!((choice.target().0, numbers(&choice)), (0, vec![1, 2, 3, 4]));
}

#[test]
fn leveled_goes_round_the_keys_of_a_level() {
    let mut make = Maker::new();
    let over = 40 << 20;
    let level1 = make.run(1, &[("a", "b", over), ("d", "e", over)]);
    let level2 = make.run(2, &[("a", "c", 10), ("d", "f", 10)]);
    let mut tree = tree(vec![level1, level2]);
    let (_, first) = Leveled::default().pick(&tree).unwrap();
    assert_eq!(numbers(&first), vec![1, 3]);
    tree.cursors.extend(first.cursor.clone());
    let (_, second) = Leveled::default().pick(&tree).unwrap();
    assert_eq!(numbers(&second), vec![2, 4]);
    tree.cursors.extend(second.cursor.clone());
    assert_eq!(
        numbers(&Leveled::default().pick(&tree).unwrap().1),
        vec![1, 3]
    );
}

#[test]
fn tiered_merges_the_longest_sequence_that_outgrew_its_oldest() {
    let mut make = Maker::new();
    let sizes = [10, 10, 20, 100];
    let runs: Vec<Run> = sizes
        .iter()
        .map(|size| make.run(0, &[("a", "z", *size)]))
        .collect();
    let tiered = Tiered {
        ratio: 1.0,
        largest_mergeable: 1000,
    };
    let (_, choice) = tiered.pick(&tree(runs.clone())).unwrap();
    assert_eq!(numbers(&choice), vec![1, 2, 3]);
    assert!(
        Tiered {
            ratio: 1.2,
            ..tiered
        }
        .pick(&tree(runs[1..].to_vec()))
        .is_none()
    );
    let frozen = Tiered {
        ratio: 0.01,
        largest_mergeable: 50,
    };
    assert_eq!(
        numbers(&frozen.pick(&tree(runs)).unwrap().1),
        vec![1, 2, 3],
        "100 is too large to merge"
    );
}

#[test]
fn a_follower_merges_the_same_components() {
    let mut make = Maker::new();
    let lead: Vec<Run> = (0..3).map(|_| make.run(0, &[("a", "z", 10)])).collect();
    make.next = 0;
    let follower: Vec<Run> = (0..3).map(|_| make.run(0, &[("k", "l", 1)])).collect();
    let choice = Choice::merge(lead[..2].iter().map(|run| run.tables.to_vec()).collect(), 0);
    assert_eq!(numbers(&followed_by(&choice, &tree(follower))), vec![1, 2]);
}
