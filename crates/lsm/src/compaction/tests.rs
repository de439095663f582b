//! Choices of the policies.

use std::sync::Arc;

use super::*;
use crate::cache::BlockCache;
use crate::table::{Bounds, TableMeta};
use crate::version::{
    Choice, CompactionPolicy, ComponentId, Cutter, Cutting, Partitioner, Run, TableFile,
    TableSource, TreeOptions, TreeVersion,
};
use esker_sim::memory::Memory;

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
                mapped: false,
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
        repair_watermark: 0,
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
fn leveled_can_take_the_table_that_overlaps_the_fewest() {
    let best = Leveled {
        next: NextTable::FewestOverlapped,
        ..Leveled::default()
    };
    let mut make = Maker::new();
    let over = 40 << 20;
    let level1 = make.run(1, &[("a", "d", over), ("e", "f", over), ("g", "h", over)]);
    let below = [
        ("a", "b", 10),
        ("c", "d", 10),
        ("e", "e", 10),
        ("g", "g", 10),
    ];
    let level2 = make.run(2, &below);
    let mut tree = tree(vec![level1, level2]);
    // Two overlap one table each: they take turns, and what overlaps two has none.
    for expected in [vec![2, 6], vec![3, 7], vec![2, 6]] {
        let (_, choice) = best.pick(&tree).unwrap();
        assert_eq!(numbers(&choice), expected);
        tree.cursors.extend(choice.cursor.clone());
    }
}

/// Bounds are the least and the greatest of a number.
#[derive(Debug)]
struct ByNumber;

impl Partitioner for ByNumber {
    fn id(&self) -> u32 {
        7
    }
    fn cover(&self, _: &mut Vec<u8>, _: &[u8]) {}
    fn covers(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
    fn overlap(&self, a: &[u8], b: &[u8]) -> bool {
        a.first() <= b.last() && b.first() <= a.last()
    }
    fn turn(&self, bounds: &[u8]) -> Option<Vec<u8>> {
        Some(bounds.to_vec())
    }
    fn cut(&self, _: &Cutting<'_>) -> Box<dyn Cutter> {
        Box::new(Whole)
    }
}

struct Whole;

impl Cutter for Whole {
    fn part(&mut self, _: &[u8]) -> usize {
        0
    }
}

impl Maker {
    /// A run of tables that overlap by key: smallest key, size, and bounds.
    fn cut_run(&mut self, level: u32, tables: &[(&str, u64, [u8; 2])]) -> Run {
        let made = tables.iter().map(|(lo, size, bounds)| {
            let mut run = self.run(level, &[(*lo, "z", *size)]);
            let table = Arc::make_mut(&mut run.tables).remove(0);
            let mut meta = TableMeta::clone(table.meta());
            meta.bounds = Some(Bounds {
                partitioner: 7,
                bytes: bounds.to_vec(),
            });
            TableFile::new(meta, table.component(), self.source.clone())
        });
        let tables = Arc::new(made.collect());
        Run {
            level,
            number: 0,
            tables,
            partitioner: Some(Arc::new(ByNumber)),
        }
    }
}

#[test]
fn leveled_gives_each_table_that_is_cut_by_more_than_the_key_its_turn() {
    let mut make = Maker::new();
    let over = 40 << 20;
    let level1 = [
        ("c", over, [1, 9]),
        ("a", over, [10, 19]),
        ("b", over, [20, 29]),
    ];
    let level1 = make.cut_run(1, &level1);
    let level2 = make.cut_run(2, &[("a", 10, [5, 12]), ("a1", 10, [15, 40])]);
    let mut tree = tree(vec![level1, level2]);
    for expected in [vec![1, 4], vec![2, 4, 5], vec![3, 5], vec![1, 4]] {
        let (_, choice) = Leveled::default().pick(&tree).unwrap();
        assert_eq!(numbers(&choice), expected);
        tree.cursors.extend(choice.cursor.clone());
    }
}

#[test]
fn leveled_passes_over_a_table_that_overlaps_more_than_can_be_cut_around() {
    let mut make = Maker::new();
    let over = 40 << 20;
    let level1 = make.cut_run(1, &[("a", over, [0, 199]), ("b", over, [200, 255])]);
    let below: Vec<(&str, u64, [u8; 2])> = (0..=250).map(|at| ("a", 10, [at, at])).collect();
    let level2 = make.cut_run(2, &below);
    let mut tree = tree(vec![level1, level2]);
    for _ in 0..2 {
        let (_, choice) = Leveled::default().pick(&tree).unwrap();
        assert_eq!((numbers(&choice)[0], choice.tables().count()), (2, 52));
        tree.cursors.extend(choice.cursor.clone());
    }
    // With nothing else there it has its turn.
    let alone = make.cut_run(1, &[("a", 3 * over, [0, 199])]);
    tree.runs[0] = alone;
    let (_, choice) = Leveled::default().pick(&tree).unwrap();
    assert_eq!(choice.tables().count(), 201);
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

#[test]
fn a_follower_with_older_runs_than_its_lead_merges_in_front_of_them() {
    let mut make = Maker::new();
    let mut follower: Vec<Run> = (0..3).map(|_| make.run(0, &[("k", "l", 1)])).collect();
    follower.reverse();
    // Of the oldest component the lead has nothing any more, so it merges the others to its bottom.
    let lead = tree(follower[..2].to_vec());
    let runs = lead.runs.iter().map(|run| run.tables.to_vec()).collect();
    let choice = Choice::merge(runs, 1);
    choice::check(&lead, &choice).unwrap();
    let follower = TreeVersion {
        options: TreeOptions {
            policy: Arc::new(Tiered::default()),
            ..TreeOptions::default()
        },
        ..tree(follower)
    };
    let followed = followed_by(&choice, &follower);
    assert_eq!(numbers(&followed), vec![3, 2]);
    choice::check(&follower, &followed).unwrap();
}

#[test]
fn lazy_leveled_merges_tiers_among_themselves_and_all_of_them_into_the_bottom() {
    let lazy = LazyLeveled {
        runs: 3,
        share: 0.5,
        least: 10,
        ..LazyLeveled::default()
    };
    let mut make = Maker::new();
    let above = |make: &mut Maker, sizes: &[u64]| -> Vec<Run> {
        let runs = sizes.iter().map(|size| make.run(0, &[("c", "f", *size)]));
        runs.collect()
    };
    let bottom = |make: &mut Maker| make.run(1, &[("a", "b", 500), ("d", "e", 500)]);
    let with = |runs: Vec<Run>, below: Run| tree(runs.into_iter().chain([below]).collect());
    // Two runs are no tier, and neither are three of which one is large.
    for sizes in [&[10, 10][..], &[10, 10, 100]] {
        let (runs, below) = (above(&mut make, sizes), bottom(&mut make));
        assert!(lazy.pick(&with(runs, below)).is_none());
    }
    make.next = 0;
    let (runs, below) = (above(&mut make, &[10, 10, 12, 90]), bottom(&mut make));
    let (score, choice) = lazy.pick(&with(runs, below)).unwrap();
    assert_eq!(
        (choice.target(), numbers(&choice)),
        ((0, None), vec![1, 2, 3])
    );
    assert!(score >= 1.0);
    // The upper runs have half the bytes of the bottom: all compact down, except for tables without
    // overlap.
    make.next = 0;
    let (runs, below) = (above(&mut make, &[100, 400]), bottom(&mut make));
    let (score, choice) = lazy.pick(&with(runs, below)).unwrap();
    assert_eq!(
        (choice.target(), numbers(&choice)),
        ((1, Some(0)), vec![1, 2, 4])
    );
    assert!((1.0..1.1).contains(&score));
}

#[test]
fn lazy_leveled_lets_down_what_overlaps_nothing_and_bounds_the_bottom() {
    let lazy = LazyLeveled {
        runs: 2,
        share: 0.5,
        least: 10,
        lower: Leveled {
            level1_bytes: 1000,
            ..Leveled::default()
        },
    };
    let mut make = Maker::new();
    let newest = make.run(0, &[("a", "z", 10)]);
    let middle = make.run(0, &[("p", "q", 10)]);
    let oldest = make.run(0, &[("m", "n", 10)]);
    let bottom = make.run(1, &[("a", "c", 500), ("x", "z", 400)]);
    let apart = [&newest, &middle, &oldest, &bottom]
        .map(Run::clone)
        .to_vec();
    let choice = lazy.pick(&tree(apart)).unwrap().1;
    assert_eq!(
        (choice.target(), numbers(&choice)),
        ((1, Some(0)), vec![2, 3])
    );
    // A single run waits.
    let waits = [&newest, &oldest, &bottom].map(Run::clone).to_vec();
    let choice = lazy.pick(&tree(waits)).unwrap().1;
    assert_eq!((choice.target(), numbers(&choice)), ((0, None), vec![1, 3]));
    // A table of the bottom lies between them: their output would span it.
    make.next = 0;
    let newest = make.run(0, &[("x", "z", 4)]);
    let oldest = make.run(0, &[("a", "b", 4)]);
    let between = make.run(1, &[("m", "n", 900)]);
    let choice = lazy.pick(&tree(vec![newest, oldest, between])).unwrap().1;
    assert_eq!((choice.target(), numbers(&choice)), ((0, None), vec![1, 2]));
    make.next = 4;
    let newest = make.run(0, &[("a", "z", 10)]);
    // The first level is full, so one of its tables goes down before the upper runs come.
    let full = make.run(1, &[("a", "c", 900), ("x", "z", 400)]);
    let lower = make.run(2, &[("b", "d", 900)]);
    let with = vec![newest.clone(), full, lower];
    let choice = lazy.pick(&tree(with)).unwrap().1;
    assert_eq!(
        (choice.target(), numbers(&choice)),
        ((2, Some(0)), vec![6, 8])
    );
    // Levels that fit into one become one when runs are compacted into them.
    let large = make.run(0, &[("p", "q", 300)]);
    let upper = make.run(1, &[("a", "c", 100)]);
    let lower = make.run(2, &[("b", "d", 400)]);
    assert!(
        lazy.pick(&tree(vec![upper.clone(), lower.clone()]))
            .is_none()
    );
    let choice = lazy.pick(&tree(vec![large, upper, lower])).unwrap().1;
    assert_eq!(
        (choice.target(), numbers(&choice)),
        ((1, Some(0)), vec![9, 10, 11])
    );
}

#[test]
fn tables_that_have_expired_are_dropped_whole_unless_they_hide_something() {
    let mut make = Maker::new();
    let source = make.source.clone();
    let expire = |run: &mut Run, at: u64| {
        for table in Arc::make_mut(&mut run.tables) {
            let meta = TableMeta {
                entries: 10,
                expiry: Some(crate::table::Expiry {
                    entries: 10,
                    min: at,
                    max: at,
                }),
                ..TableMeta::clone(table.meta())
            };
            *table = TableFile::new(meta, table.component(), source.clone());
        }
    };
    let mut newest = make.run(0, &[("a", "c", 10)]);
    let mut middle = make.run(0, &[("b", "d", 10)]);
    let mut oldest = make.run(1, &[("d", "e", 10), ("x", "z", 10)]);
    expire(&mut newest, 5);
    expire(&mut middle, 5);
    expire(&mut oldest, 9);
    let due = |first| crate::version::Due {
        expiry: Some(first),
        ..Default::default()
    };
    let mut tree = tree(vec![newest, middle, oldest]);
    tree.due = due(5);
    assert!(expired::pick(&tree, 4).is_none());
    // The middle table hides entries that have not expired yet, so it is rewritten if enough has;
    // the newest hides only those.
    let (_, choice) = expired::pick(&tree, 5).unwrap();
    assert_eq!(
        (choice.action, numbers(&choice)),
        (crate::version::Action::Drop, vec![1])
    );
    let (_, choice) = expired::pick(&tree, 9).unwrap();
    assert_eq!(numbers(&choice), vec![1, 2, 3, 4]);
    assert!(expired::check(&tree, &choice, 9).is_ok());
    assert!(expired::check(&tree, &choice, 8).is_err());
    tree.options.incomplete = true;
    assert!(expired::check(&tree, &choice, 9).is_err());
}

#[test]
fn a_table_of_level_0_that_expires_as_a_whole_is_not_rewritten_while_more_is_alive() {
    let mut make = Maker::new();
    let source = make.source.clone();
    let mut run = |level, size, entries, (min, max)| {
        let mut run = make.run(level, &[("a", "c", size)]);
        for table in Arc::make_mut(&mut run.tables) {
            let meta = TableMeta {
                entries: 10,
                expiry: Some(crate::table::Expiry { entries, min, max }),
                ..TableMeta::clone(table.meta())
            };
            *table = TableFile::new(meta, table.component(), source.clone());
        }
        run
    };
    let picked = |runs: &[&Run], now| {
        let mut tree = tree(runs.iter().copied().cloned().collect());
        tree.due.expiry = Some(100);
        let picked = expired::pick(&tree, now);
        picked.map(|(_, choice)| (choice.action, numbers(&choice)))
    };
    let rewritten = |level, run: &Run| {
        let run = Some(run.number);
        crate::version::Action::Merge { level, run }
    };
    let alive = run(0, 300, 10, (900, 999));
    // All of it expires from 100 to 399.
    let whole = run(0, 900, 10, (100, 399));
    assert_eq!(picked(&[&alive, &whole], 250), None);
    assert_eq!(
        picked(&[&alive, &whole], 390),
        Some((rewritten(0, &whole), vec![2])),
        "twice as much has expired as is alive"
    );
    let dropped = (crate::version::Action::Drop, vec![2]);
    assert_eq!(picked(&[&alive, &whole], 399), Some(dropped));
    // Some of it stays.
    let part = run(0, 900, 9, (100, 399));
    let due = Some((rewritten(0, &part), vec![3]));
    assert_eq!(picked(&[&alive, &part], 200), due);
    // What is below has writes of any time.
    let below = run(1, 900, 10, (100, 399));
    assert_eq!(picked(&[&alive, &below], 120), None);
    let due = Some((rewritten(1, &below), vec![4]));
    assert_eq!(picked(&[&alive, &below], 200), due);
}
