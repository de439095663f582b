//! Runs of the simulation under the common runner, and failing runs as cases.

pub(crate) use esker_sim::world::{Failure, caught, count};

use crate::action::{Settings, Step};
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
        as_case(seed, settings, steps)
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

/// A failing list as a file of `cases`.
pub(crate) fn as_case(seed: u64, settings: Settings, steps: &[Step]) -> String {
    let json = |item: serde_json::Result<String>| item.unwrap_or_else(|error| error.to_string());
    let mut text = format!("# What went wrong (save as cases/seed_{seed}.txt, and list it).\n");
    text += &json(serde_json::to_string(&settings));
    for step in steps {
        text.push('\n');
        text += &json(serde_json::to_string(step));
    }
    text + "\n"
}
