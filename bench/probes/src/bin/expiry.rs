//! Measures the disk space of a steady load of expiring entries, relative to the live ones.
//!
//! `cargo run --release -p probes --bin expiry -- [LIVE] [TIMES]` (200,000 live entries,
//! loaded 10 times over). The clock is the program's: each write advances it by one step, and an
//! entry expires LIVE steps after its write. For keys in time order (a log), in random order (each
//! written once), and for a set of keys that are rewritten repeatedly, it prints after each LIVE
//! writes the ratio of the tables' size to the same live entries in one run, and in the end the
//! bytes that compactions wrote per byte flushed, and the CPU time of a put.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_lsm::{Batch, Durability, Group, Options, Result, TreeOptions, TreeProvider};

struct Defaults;

impl TreeProvider for Defaults {
    fn tree_options(&self, _: &str, _: &[u8]) -> Result<TreeOptions> {
        Ok(TreeOptions::default())
    }
}

/// CPU time of the process in microseconds (Linux).
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|n| n.parse::<f64>().ok());
    (ticks(12).unwrap_or(0.0) + ticks(13).unwrap_or(0.0)) * 10_000.0
}

fn scatter(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

type Keys = dyn Fn(u64) -> [u8; 8];

fn open(dir: &Path, clock: &Arc<AtomicU64>) -> Result<(Group, u32)> {
    let tells = clock.clone();
    let options = Options {
        memory_budget: 32 << 20,
        table_size: 4 << 20,
        clock: Arc::new(move || tells.load(Ordering::Relaxed)),
        ..Options::default()
    };
    let group = Group::open(dir, options, Arc::new(Defaults), true)?;
    let trees = group.create_trees(&[("t".to_string(), Vec::new())])?;
    let tree = trees.first().copied().unwrap_or_default();
    Ok((group, tree))
}

fn size(group: &Group, tree: u32) -> u64 {
    let snapshot = group.snapshot();
    let tree = snapshot.version().trees.get(&tree);
    tree.map_or(0, |tree| tree.size())
}

/// Long after 1970, because time 0 means no time.
const BEGIN: u64 = 1 << 40;

/// Writes the steps of a range, each with its own value.
fn load(
    (group, tree): (&Group, u32),
    clock: &AtomicU64,
    keys: &Keys,
    live: u64,
    steps: std::ops::Range<u64>,
) -> Result<()> {
    let mut batch = Batch::new();
    for step in steps {
        let mut rng = fastrand::Rng::with_seed(step);
        let mut value: Vec<u8> = (0..100).map(|_| rng.u8(..)).collect();
        value.extend([b'x'; 100]);
        clock.store(BEGIN + step, Ordering::Relaxed);
        batch.clear();
        batch.put_until(tree, &keys(step), &value, BEGIN + step + live)?;
        group.write(&mut batch, Durability::Os)?;
    }
    Ok(())
}

fn measure(name: &str, keys: &Keys, live: u64, times: u64, dir: &Path) -> Result<()> {
    // The live entries in one run.
    let clock = Arc::new(AtomicU64::new(BEGIN));
    let (alone, tree) = open(&dir.join("live"), &clock)?;
    let last = live * times;
    load((&alone, tree), &clock, keys, live, last - live..last)?;
    alone.flush()?;
    alone.compact(None)?;
    let least = size(&alone, tree);
    drop(alone);

    let clock = Arc::new(AtomicU64::new(BEGIN));
    let (group, tree) = open(&dir.join("steady"), &clock)?;
    let begun = cpu();
    let mut ratios = Vec::new();
    for time in 0..times {
        let steps = time * live..(time + 1) * live;
        load((&group, tree), &clock, keys, live, steps)?;
        group.flush()?;
        group.run_compactions()?;
        ratios.push(size(&group, tree) as f64 / least as f64);
    }
    let spent = (cpu() - begun) / last as f64;
    let stats = group.stats();
    println!(
        "{name:<24} live {:.1} MB; on disk, as a multiple of it: {}; written per byte flushed {:.2}, put {spent:.2} us",
        least as f64 / 1e6,
        ratios
            .iter()
            .map(|r| format!("{r:.2}"))
            .collect::<Vec<_>>()
            .join(" "),
        stats.merge_write_bytes as f64 / stats.flush_bytes as f64,
    );
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let number = |at: usize| std::env::args().nth(at).and_then(|n| n.parse::<u64>().ok());
    let (live, times) = (number(1).unwrap_or(200_000), number(2).unwrap_or(10));
    let again = move |step: u64| scatter(step.wrapping_mul(2_654_435_761) % (live / 2).max(1));
    let orders: [(&str, &Keys); 3] = [
        ("keys in order of time", &|step: u64| step.to_be_bytes()),
        ("keys in any order", &|step| scatter(step)),
        ("keys written again", &again),
    ];
    for (name, keys) in orders {
        let dir = std::env::temp_dir().join(format!("esker-expiry-{}", std::process::id()));
        let measured = measure(name, keys, live, times, &dir);
        std::fs::remove_dir_all(&dir)?;
        measured?;
    }
    Ok(())
}
