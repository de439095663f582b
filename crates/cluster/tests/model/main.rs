//! The layer on a simulated store of three replicas: writes reach a majority before they are
//! acknowledged, others late or never, clients are paused and killed, clocks differ. Every answer
//! is compared with what was acknowledged before it was asked for, and once all is quiet a repair
//! leaves indexes that equal the records.
//!
//! `ESKER_SEED=17 cargo test -p esker-cluster --test model` repeats a run, `ESKER_SEEDS=1000` runs
//! 1,000 seeds. A failing run is shrunk and printed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod checks;
mod client;
mod clocks;
mod deletions;
mod history;
#[path = "../common/hooked.rs"]
mod hooked;
mod hooks;
mod indexes;
mod keyspaces;
mod net;
mod scenes;
mod world;

use esker_sim::runner::series;
use esker_sim::{by_tier, seeds};

/// The default number of seeds, of which the nightly tier runs four times as many.
fn usual() -> u64 {
    by_tier(90, 200)
}

#[test]
fn answers_are_as_acknowledged_and_indexes_equal_records() {
    let seeds = seeds(usual());
    let failed = series::<world::World>(seeds.start, seeds.end - seeds.start, 2);
    assert!(failed.is_empty(), "{} failures", failed.len());
}
