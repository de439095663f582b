//! Runs that failed once, made small.

#[allow(unused_imports)]
use esker_sim::memory::PowerCut::*;

#[allow(unused_imports)]
use super::action::What::*;
#[allow(unused_imports)]
use super::action::{At, By, Settings, Step, What};
#[allow(unused_imports)]
use super::traps::{Cue::*, Then};
use super::world::World;

#[allow(dead_code)]
fn run(settings: &Settings, steps: &[Step]) {
    esker_sim::world::run::<World>(*settings, steps);
}

#[allow(dead_code)]
fn step(after: u64, what: What) -> Step {
    Step { after, what }
}
