//! The simulation: whole clusters in one thread and virtual time. Clients write, read, discard and
//! take snapshots, volumes and members come and go, while links lose and delay frames, nodes crash,
//! pause and lose their disks, disks fail, fill and rot, and clocks drift. What clients saw must be
//! linearizable, replicas must agree, and once everything is healed all must go on.
//!
//! `ESKER_SEED=17 cargo test -p esker-volume --test sim` repeats a run, `ESKER_SEEDS=1000` runs
//! 1,000 seeds. A failing run is shrunk and printed as a test for `regressions.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod action;
mod clients;
mod disks;
#[path = "gen.rs"]
mod generate;
mod history;
#[allow(dead_code)]
#[path = "../linearizable/mod.rs"]
mod linearizable;
mod members;
mod net;
mod node;
mod plots;
mod regressions;
mod rest;
mod rot;
mod said;
mod scenarios;
mod scenes;
mod snapshots;
mod traps;
mod volumes;
mod world;

use esker_sim::runner::series;
use esker_sim::world::World as _;
use esker_sim::{by_tier, seeds};

use world::World;

/// The default number of seeds, of which the nightly tier runs four times as many.
fn usual() -> u64 {
    by_tier(45, 100)
}

#[test]
fn histories_of_many_seeds_are_linearizable_and_replicas_agree() {
    let seeds = seeds(usual());
    let asked = std::env::var("ESKER_SEEDS").is_ok();
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get());
    let threads = if asked { cores } else { cores.min(2) };
    let failed = series::<World>(seeds.start, seeds.end - seeds.start, threads);
    assert!(failed.is_empty(), "{} failures", failed.len());
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let run = |seed| {
        let (settings, actions) = World::generate(seed);
        let mut world = World::new(settings);
        actions.iter().for_each(|action| world.step(action));
        world.trace()
    };
    for seed in 0..3 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
