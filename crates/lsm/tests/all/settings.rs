//! Extreme settings are refused with a clear error, or work; missing threads cause no hang; foreign
//! files in the folder are kept.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{DIR, small};
use esker_lsm::fs::Fs;
use esker_lsm::{
    Batch, CompactionPolicy, Cost, Durability, Error, Group, LazyLeveled, Leveled, Options,
    PlainTrees, Result, Tiered, TreeOptions, TreeProvider,
};
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

/// Writes, flushes, compacts, reads and reopens with these options.
fn use_all(options: &Options, trees: Arc<dyn TreeProvider>) -> Result<()> {
    let fs: Arc<dyn Fs> = Arc::new(Memory::new());
    let options = Options {
        fs,
        ..options.clone()
    };
    for round in 0..2_u8 {
        let group = Group::open(Path::new(DIR), options.clone(), trees.clone(), true)?;
        let tree = match group.tree("t") {
            Some(tree) => tree,
            None => group.create_trees(&[("t".to_string(), vec![])])?[0],
        };
        for part in 0..3_u8 {
            for n in 0..60_u8 {
                let mut batch = Batch::new();
                batch.put(tree, &[n], &[part; 100])?;
                group.write(&mut batch, Durability::Os)?;
            }
            group.flush()?;
        }
        group.run_compactions()?;
        group.compact(None)?;
        for n in 0..60_u8 {
            let found = group.snapshot().get(tree, &[n], &Cost::default())?;
            assert_eq!(&*found.unwrap().value, &[2; 100], "{round}");
        }
        assert!(group.check().errors.is_empty());
        group.checkpoint(Path::new(&format!("/copy{round}")))?;
        group.close()?;
    }
    Ok(())
}

/// Sets one of the options.
type Set = fn(&mut Options, usize);

#[test]
fn options_at_their_ends_are_refused_or_right() {
    let usual = Options {
        background: false,
        ..Options::default()
    };
    let set: [(&str, Set); 4] = [
        ("table_size", |o, n| o.table_size = n as u64),
        ("block_size", |o, n| o.block_size = n),
        ("memory_budget", |o, n| o.memory_budget = n),
        ("value_filter_bits", |o, n| o.value_filter_bits = n),
    ];
    for (name, set) in set {
        for n in [0, 1, 2, usize::MAX / 2, usize::MAX - 1, usize::MAX] {
            let mut options = usual.clone();
            set(&mut options, n);
            match use_all(&options, Arc::new(PlainTrees)) {
                Ok(()) => {}
                Err(Error::Invalid(text)) => assert!(text.contains(name), "{text}"),
                Err(Error::Limit { what, .. }) => assert!(what.contains(name), "{what}"),
                Err(error) => panic!("{name} = {n}: {error}"),
            }
        }
    }
}

/// As many as the LevelDB++ paper measures (table 8).
#[test]
fn filters_of_a_hundred_bits_are_right() {
    let options = Options {
        background: false,
        value_filter_bits: 100,
        ..Options::default()
    };
    use_all(&options, Arc::new(PlainTrees)).unwrap();
}

struct With(TreeOptions);

impl TreeProvider for With {
    fn tree_options(&self, _name: &str, _: &[u8]) -> Result<TreeOptions> {
        Ok(self.0.clone())
    }
}

#[test]
fn tree_options_at_their_ends_are_right() {
    let usual = small(Arc::new(Memory::new()));
    let numbers = [0, 1, u64::MAX / 2, u64::MAX];
    let mut all: Vec<Arc<dyn CompactionPolicy>> = Vec::new();
    for a in numbers {
        for b in numbers {
            for runs in [0, 1, usize::MAX] {
                all.push(Arc::new(Leveled {
                    level0_runs: runs,
                    level1_bytes: a,
                    multiplier: b,
                    ..Leveled::default()
                }));
            }
        }
        for ratio in [0.0, -1.0, f64::MAX, f64::INFINITY, f64::NAN] {
            all.push(Arc::new(Tiered {
                ratio,
                largest_mergeable: a,
            }));
        }
    }
    for runs in [0, 1, usize::MAX] {
        for share in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            for least in numbers {
                all.push(Arc::new(LazyLeveled {
                    runs,
                    share,
                    least,
                    ..LazyLeveled::default()
                }));
            }
        }
    }
    for policy in all {
        let options = TreeOptions {
            policy: policy.clone(),
            ..TreeOptions::default()
        };
        let done = use_all(&usual, Arc::new(With(options)));
        assert!(done.is_ok(), "{policy:?}: {done:?}");
    }
    for n in [0, 1, usize::MAX] {
        let versions = TreeOptions {
            versions: n,
            ..TreeOptions::default()
        };
        use_all(&usual, Arc::new(With(versions))).unwrap();
        let filter = TreeOptions {
            filter_bits_per_key: n,
            ..TreeOptions::default()
        };
        use_all(&usual, Arc::new(With(filter))).unwrap();
    }
}

fn periodic(fs: Arc<dyn Fs>) -> (Group, u32) {
    let options = Options {
        background: true,
        ..small(fs)
    };
    let group = Group::open(Path::new(DIR), options, Arc::new(PlainTrees), true).unwrap();
    let tree = group.create_trees(&[("t".to_string(), vec![])]).unwrap()[0];
    (group, tree)
}

fn write(group: &Group, tree: u32, key: &str, how: Durability) {
    let mut batch = Batch::new();
    batch.put(tree, key.as_bytes(), b"").unwrap();
    group.write(&mut batch, how).unwrap();
}

fn survives(memory: &Memory, tree: u32, key: &str) -> bool {
    let cut: Arc<dyn Fs> = Arc::new(memory.power_cut(0, PowerCut::Lost));
    let group = Group::open(Path::new(DIR), small(cut), Arc::new(PlainTrees), false).unwrap();
    let found = group.snapshot().get(tree, key.as_bytes(), &Cost::default());
    found.unwrap().is_some()
}

/// A writer with the longest interval does not delay one with a short interval.
#[test]
fn periodic_writes_of_any_interval_keep_their_promise() {
    let memory = Memory::new();
    let (group, tree) = periodic(Arc::new(memory.clone()));
    write(&group, tree, "never", Durability::Periodic(Duration::MAX));
    write(&group, tree, "now", Durability::Periodic(Duration::ZERO));
    assert!(survives(&memory, tree, "now"));
    let soon = Durability::Periodic(Duration::from_millis(10));
    for key in ["soon", "again"] {
        write(&group, tree, "never", Durability::Periodic(Duration::MAX));
        write(&group, tree, key, soon);
        let until = Instant::now() + Duration::from_secs(60);
        while !survives(&memory, tree, key) {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    group.close().unwrap();
}

/// Once everything is synced there is nothing to do, however short the interval was.
#[test]
fn nothing_is_synced_where_nothing_was_written() {
    let fs = Faulty::new(Arc::new(Memory::new()));
    let (group, tree) = periodic(Arc::new(fs.clone()));
    for n in 0..20 {
        write(
            &group,
            tree,
            &n.to_string(),
            Durability::Periodic(Duration::from_micros(n)),
        );
    }
    let calls = fs.calls();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(fs.calls(), calls);
}

/// Foreign files survive opening, writing and closing, whatever their names.
#[test]
fn foreign_files_stay() {
    let memory = Memory::new();
    let foreign = [
        "2024.log",
        "000001.log",
        "202411.log",
        "7.tbl",
        "000002.tbl",
        "MANIFEST-000001",
        "MANIFEST-x",
    ];
    let (group, tree) = periodic(Arc::new(memory.clone()));
    write(&group, tree, "k", Durability::Sync);
    group.flush().unwrap();
    drop(group);
    let mut expected = Vec::new();
    for name in foreign {
        let path = Path::new(DIR).join(name);
        // If the name is taken the file belongs to the store.
        if memory.read(&path).is_none() {
            memory.write(&path, b"a diary, and no store");
            expected.push(path);
        }
    }
    assert!(expected.len() > 4);
    for _ in 0..3 {
        let (group, tree) = match Group::open(
            Path::new(DIR),
            small(Arc::new(memory.clone())),
            Arc::new(PlainTrees),
            false,
        ) {
            Ok(group) => {
                let tree = group.tree("t").unwrap();
                (group, tree)
            }
            Err(error) => panic!("{error}"),
        };
        write(&group, tree, "k", Durability::Sync);
        group.flush().unwrap();
        group.compact(None).unwrap();
        group.close().unwrap();
        for path in &expected {
            assert_eq!(
                memory.read(path).unwrap(),
                b"a diary, and no store",
                "{}",
                path.display()
            );
        }
    }
}
