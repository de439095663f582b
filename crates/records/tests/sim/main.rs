//! The simulation: random runs of everything that a store can do, beside a model that is a map.
//! After each step, every query must return the answer of the model. Power cuts, failing calls,
//! full disks and damage occur in between, and the run continues.
//!
//! `ESKER_SEED=17 cargo test -p esker --test sim` repeats a run, `ESKER_SEEDS=1000` runs 1,000
//! seeds. A failing run is shrunk and printed as a case (a file of `tests/sim/cases`). `ESKER_SIM_LOG=FILE`
//! records finished seeds and skips them the next time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod act;
mod action;
mod ask;
mod beside;
mod change;
#[path = "../common/mod.rs"]
mod common;
mod compound;
mod consumers;
mod contain;
mod crash;
mod data;
mod define;
mod every;
mod feed;
#[path = "gen.rs"]
mod generate;
mod look;
mod model;
mod obsolete;
mod over;
mod regressions;
mod runner;
mod shrink;
mod snapshots;
mod space;
mod tail;
mod threads;
mod time;
mod unique;
mod widen;
mod world;

use esker_sim::runner::series;
use esker_sim::{by_tier, seeds};

use world::World;

/// The default number of seeds, of which the nightly tier runs four times as many.
fn usual() -> u64 {
    by_tier(55, 300)
}

#[test]
fn runs_of_many_seeds_give_what_the_model_gives() {
    let seeds = seeds(usual());
    let asked = std::env::var("ESKER_SEEDS").is_ok();
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get());
    let threads = if asked { cores } else { cores.min(2) };
    let failed = series::<World>(seeds.start, seeds.end - seeds.start, threads);
    assert!(failed.is_empty(), "{} failures", failed.len());
}
