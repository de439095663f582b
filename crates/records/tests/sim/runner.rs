//! Runs of the simulation under the common runner, and failing runs as tests.

use std::fmt::Write as _;

pub(crate) use esker_sim::world::{Failure, caught, count};

use crate::action::{CHOOSE_EVERY, Settings, Step};
use crate::generate;
use crate::world::World;

impl esker_sim::world::World for World {
    type Settings = Settings;
    type Action = Step;

    fn generate(seed: u64) -> (Settings, Vec<Step>) {
        generate::run(seed)
    }

    fn new(settings: Settings) -> World {
        World::new(settings)
    }

    fn step(&mut self, step: &Step) {
        self.step(step);
    }

    fn end(&mut self) {
        self.end();
    }

    fn as_test(seed: u64, settings: Settings, steps: &[Step]) -> String {
        as_test(seed, settings, steps)
    }

    fn tell(&mut self) {
        self.story = Some(Vec::new());
    }

    fn told(&mut self) -> Vec<String> {
        self.story.take().unwrap_or_default()
    }
}

/// Runs a list.
pub(crate) fn attempt(settings: Settings, steps: &[Step]) -> Result<(), Failure> {
    esker_sim::world::attempt::<World>(settings, steps)
}

/// Runs a list that must succeed, such as a shrunk failure.
#[allow(dead_code)]
pub(crate) fn run(table_size: u64, memory: usize, lock: bool, steps: &[Step]) {
    let settings = Settings {
        table_size,
        memory,
        lock,
        choose_every: CHOOSE_EVERY,
        piece_bytes: None,
    };
    run_with(settings, steps);
}

/// As `run`, with other settings.
pub(crate) fn run_with(settings: Settings, steps: &[Step]) {
    esker_sim::world::run::<World>(settings, steps);
}

/// A failing list as a test.
pub(crate) fn as_test(seed: u64, settings: Settings, steps: &[Step]) -> String {
    let Settings {
        table_size,
        memory,
        lock,
        choose_every,
        piece_bytes,
    } = settings;
    let settings = match (choose_every, piece_bytes) {
        (CHOOSE_EVERY, None) => format!("run({table_size}, {memory}, {lock}"),
        _ => format!("run_with({settings:?}"),
    };
    let mut text = format!("#[test]\nfn seed_{seed}() {{\n    {settings}, &[\n");
    for step in steps {
        let _ = writeln!(text, "        {step:?},");
    }
    text + "    ]);\n}\n"
}
