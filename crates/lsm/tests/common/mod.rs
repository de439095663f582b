//! Support for the integration tests of the engine. Each test file uses a part of it.
#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;

use esker_lsm::fs::Fs;
use esker_lsm::{
    Group, LazyLeveled, Leveled, Options, PlainTrees, Result, TreeOptions, TreeProvider,
};

#[allow(unused_imports)]
pub(crate) use esker_sim::seeds;

/// The calls of so many at which a sweep cuts the power or fails: all in the nightly tier. In the
/// usual one every other one: the odd ones with two seeds, and the even ones with the next two.
pub(crate) fn chosen(seed: u64, total: u64) -> impl Iterator<Item = u64> {
    let step = esker_sim::by_tier(2, 1);
    (1 + seed / 2 % step..=total).step_by(step as usize)
}

pub(crate) mod crowd;
pub(crate) mod toy;

/// True where the store of a seed is read through maps of its tables: every other one, and all
/// stores of all tests with `ESKER_MAPPED=1`.
pub(crate) fn is_mapped(seed: u64) -> bool {
    seed % 2 == 1 || all_are_mapped()
}

fn all_are_mapped() -> bool {
    std::env::var_os("ESKER_MAPPED").is_some()
}

/// The folder of in-memory stores.
pub(crate) const DIR: &str = "/store";

/// Settings that cause much activity with little data, deterministically.
pub(crate) fn small(fs: Arc<dyn Fs>) -> Options {
    Options {
        memory_budget: 512 << 10,
        fs,
        table_size: 8 << 10,
        block_size: 512,
        background: false,
        // With two trees or more, small tables always share files.
        share_from: 1,
        mapped_reads: all_are_mapped(),
        ..Options::default()
    }
}

/// Compacts early, in tiers above one level.
pub(crate) fn lazy() -> TreeOptions {
    let policy = Arc::new(LazyLeveled {
        runs: 3,
        share: 0.5,
        least: 24 << 10,
        lower: Leveled {
            level1_bytes: 96 << 10,
            ..Leveled::default()
        },
    });
    TreeOptions {
        digester: Some(Arc::new(toy::LastBytes)),
        ..TreeOptions::with_policy(policy)
    }
}

/// Trees with different layouts, by their names.
pub(crate) struct Layouts;

impl TreeProvider for Layouts {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        Ok(match name.as_bytes().first() {
            Some(b'b') => toy::tiles(),
            Some(b'c') => lazy(),
            _ => TreeOptions::default(),
        })
    }
}

/// Opens (or creates) a store of trees with different layouts in `fs`.
pub(crate) fn open_layouts(fs: Arc<dyn Fs>) -> Result<Group> {
    Group::open(Path::new(DIR), small(fs), Arc::new(Layouts), true)
}

/// Opens (or creates) a store of plain trees in `fs`.
pub(crate) fn open(fs: Arc<dyn Fs>) -> Result<Group> {
    Group::open(Path::new(DIR), small(fs), Arc::new(PlainTrees), true)
}

/// Prints the current step of a test when it fails.
pub(crate) struct Doing<'a>(pub(crate) &'a dyn Fn() -> String);

impl Drop for Doing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while: {}", (self.0)());
        }
    }
}

/// A number in 0..`n`, mostly small ones.
pub(crate) fn skewed(rng: &mut fastrand::Rng, n: usize) -> usize {
    let below = rng.usize(0..n) + 1;
    rng.usize(0..below)
}

/// `len` bytes that compress a little.
pub(crate) fn bytes(rng: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| b'a' + rng.u8(0..20)).collect()
}
