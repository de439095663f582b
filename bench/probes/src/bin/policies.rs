//! Compares the costs of compaction policies: a load in random order, updates, gets.
//!
//! `cargo run --release -p probes --bin policies -- [RECORDS] [THREADS] [POLICY]` (a
//! million, one thread per core, all policies). For each policy it prints the CPU time of a put and
//! an update (compactions included, to their end), bytes that compactions wrote per byte flushed
//! during the updates, how long compactions took to converge after the last update, the size of the
//! tables relative to the live data, the CPU time and the runs of a get, and the time to compact
//! everything into one run.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use esker_lsm::{
    Batch, CompactionPolicy, Cost, Durability, Group, LazyLeveled, Leveled, Options, Result,
    Tiered, TreeOptions, TreeProvider,
};

struct With(Arc<dyn CompactionPolicy>);

impl TreeProvider for With {
    fn tree_options(&self, _: &str, _: &[u8]) -> Result<TreeOptions> {
        Ok(TreeOptions::with_policy(self.0.clone()))
    }
}

/// CPU time of the process in microseconds (Linux).
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|n| n.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(12) + ticks(13)) * 10_000.0
}

/// A value that compresses to about half.
fn value(rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
    out.clear();
    out.extend((0..100).map(|_| rng.u8(..)));
    out.extend([b'x'; 100]);
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn measure(
    name: &str,
    policy: Arc<dyn CompactionPolicy>,
    records: u64,
    threads: usize,
    dir: &Path,
) -> std::result::Result<(), Box<dyn Error>> {
    let options = Options {
        memory_budget: 64 << 20,
        table_size: 8 << 20,
        compaction_threads: threads,
        ..Options::default()
    };
    let group = Group::open(dir, options, Arc::new(With(policy)), true)?;
    let tree = group.create_trees(&[("t".to_string(), Vec::new())])?;
    let tree = *tree.first().ok_or("no tree")?;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut bytes = Vec::new();
    let mut batch = Batch::new();
    let mut write = |numbers: &mut dyn Iterator<Item = u64>| -> Result<()> {
        for n in numbers {
            value(&mut rng, &mut bytes);
            batch.clear();
            batch.put(tree, &key(n), &bytes)?;
            group.write(&mut batch, Durability::Os)?;
        }
        Ok(())
    };
    let begun = cpu();
    write(&mut (0..records))?;
    group.flush()?;
    group.run_compactions()?;
    let loaded = cpu();
    let before = group.stats();
    let mut order = fastrand::Rng::with_seed(8);
    let updates = 2 * records;
    write(&mut (0..updates).map(|_| order.u64(0..records)))?;
    group.flush()?;
    let ended = Instant::now();
    group.run_compactions()?;
    let converged = ended.elapsed();
    let (updated, after) = (cpu(), group.stats());
    let snapshot = group.snapshot();
    let version = snapshot.version().trees.get(&tree).ok_or("no tree")?;
    let (size, runs) = (version.size(), version.runs.len());
    let cost = Cost::default();
    let gets = records.min(300_000);
    let begun_gets = cpu();
    for _ in 0..gets {
        snapshot.get(tree, &key(order.u64(0..records)), &cost)?;
    }
    let got = cpu();
    let flushed = (after.flush_bytes - before.flush_bytes) as f64;
    let written = (after.merge_write_bytes - before.merge_write_bytes) as f64;
    drop(snapshot);
    let asked = Instant::now();
    group.compact(None)?;
    let compacted = asked.elapsed();
    let version = group
        .snapshot()
        .version()
        .trees
        .get(&tree)
        .map(|tree| tree.size());
    println!(
        "{name:<28} put {:>5.2} us, update {:>5.2} us, written per byte flushed {:>4.2}, converged in {:>4.1} s, space {:>4.2}, get {:>5.2} us of {runs} runs, all of it compacted in {:>4.2} s",
        (loaded - begun) / records as f64,
        (updated - loaded) / updates as f64,
        written / flushed,
        converged.as_secs_f64(),
        size as f64 / version.unwrap_or(1) as f64,
        (got - begun_gets) / gets as f64,
        compacted.as_secs_f64(),
    );
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let number = |at: usize| std::env::args().nth(at).and_then(|n| n.parse::<u64>().ok());
    let (records, threads) = (
        number(1).unwrap_or(1_000_000),
        number(2).unwrap_or(0) as usize,
    );
    let lazy = |runs, share| LazyLeveled {
        runs,
        share,
        least: 8 << 20,
        ..LazyLeveled::default()
    };
    let leveled = Leveled {
        level1_bytes: 16 << 20,
        ..Leveled::default()
    };
    let policies: [(&str, Arc<dyn CompactionPolicy>); 6] = [
        ("leveled", Arc::new(leveled)),
        ("tiered 1.2", Arc::new(Tiered::default())),
        ("lazy leveled, 4 runs, 1/2", Arc::new(lazy(4, 0.5))),
        ("lazy leveled, 6 runs, 1/2", Arc::new(lazy(6, 0.5))),
        ("lazy leveled, 8 runs, 1/2", Arc::new(lazy(8, 0.5))),
        ("lazy leveled, 8 runs, 1", Arc::new(lazy(8, 1.0))),
    ];
    let only = std::env::args().nth(3).unwrap_or_default();
    for (name, policy) in policies {
        if !name.contains(&only) {
            continue;
        }
        let dir = std::env::temp_dir().join(format!("esker-policies-{}", std::process::id()));
        let measured = measure(name, policy, records, threads, &dir);
        std::fs::remove_dir_all(&dir)?;
        measured?;
    }
    Ok(())
}
