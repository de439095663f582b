//! A random test as a list of actions: how one is run, and how its panic becomes a [`Failure`].

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "it is part of tests, and a failure is a panic"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once};

/// A step of a random list.
pub trait Action: Clone {
    /// How large it is. What shrinking takes away must make it smaller.
    fn weight(&self) -> usize {
        1
    }

    /// Makes the action smaller as long as `fails`, which says whether the list with the given
    /// action in this one's place fails as before. An action without parts stays as it is.
    fn shrink(&mut self, fails: &mut dyn FnMut(&Self) -> bool) {
        let _ = fails;
    }
}

/// How a run failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The place in the sources.
    pub place: String,
    /// The message of the panic.
    pub text: String,
}

thread_local! {
    static CAUGHT: RefCell<Option<Failure>> = const { RefCell::new(None) };
    static QUIET: RefCell<bool> = const { RefCell::new(false) };
}

/// From now on panics of runs are kept and not printed.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.with(|quiet| *quiet.borrow()) {
                return usual(info);
            }
            let text = info.payload().downcast_ref::<String>().cloned();
            let text = text.or_else(|| {
                let text = info.payload().downcast_ref::<&str>();
                text.map(|text| (*text).to_string())
            });
            let place = info.location().map(ToString::to_string);
            let failure = Failure {
                place: place.unwrap_or_default(),
                text: text.unwrap_or_default(),
            };
            CAUGHT.with(|caught| {
                caught.borrow_mut().get_or_insert(failure);
            });
        }));
    });
}

/// Calls what may panic. The panic is not printed.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    hush();
    CAUGHT.with(|caught| caught.borrow_mut().take());
    QUIET.with(|quiet| *quiet.borrow_mut() = true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.with(|quiet| *quiet.borrow_mut() = false);
    result.map_err(|_| {
        let failure = CAUGHT.with(|caught| caught.borrow_mut().take());
        failure.unwrap_or_else(|| Failure {
            place: String::new(),
            text: "a panic without a text".to_string(),
        })
    })
}

/// What a random test works with: a list of actions, done one after the other. A failure is a
/// panic.
pub trait World: Sized {
    /// What a run begins with.
    type Settings: Copy;
    /// What is done in a step.
    type Action: Action;

    /// The run of a seed.
    fn generate(seed: u64) -> (Self::Settings, Vec<Self::Action>);

    /// The state before the first action.
    fn new(settings: Self::Settings) -> Self;

    /// Does an action, and compares.
    fn step(&mut self, action: &Self::Action);

    /// Compares after the last action.
    fn end(&mut self);

    /// The list as the source of a test.
    fn as_test(seed: u64, settings: Self::Settings, actions: &[Self::Action]) -> String;

    /// From now on the world notes what is done.
    fn tell(&mut self) {}

    /// The lines that it noted.
    fn told(&mut self) -> Vec<String> {
        Vec::new()
    }
}

fn live<W: World>(world: &mut W, actions: &[W::Action]) {
    for action in actions {
        world.step(action);
    }
    world.end();
}

/// Runs a list.
pub fn attempt<W: World>(settings: W::Settings, actions: &[W::Action]) -> Result<(), Failure> {
    caught(|| live(&mut W::new(settings), actions))
}

/// What a failing list does, and how that ends.
pub fn story<W: World>(settings: W::Settings, actions: &[W::Action]) -> String {
    let told: Mutex<Vec<String>> = Mutex::default();
    let _ = caught(|| {
        let mut world = W::new(settings);
        world.tell();
        let result = catch_unwind(AssertUnwindSafe(|| live(&mut world, actions)));
        *told.lock().unwrap() = world.told();
        drop(result);
    });
    told.into_inner().unwrap().join("\n")
}

/// Runs a list that must succeed: what a shrunk failure calls.
pub fn run<W: World>(settings: W::Settings, actions: &[W::Action]) {
    if let Err(failure) = attempt::<W>(settings, actions) {
        eprintln!("{}", story::<W>(settings, actions));
        panic!("{}: {}", failure.place, failure.text);
    }
}

static COUNTS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

/// Counts what happens, so that it shows what runs come to: `ESKER_SIM_COUNTS=1` prints it.
pub fn count(what: &'static str) {
    *COUNTS.lock().unwrap().entry(what).or_default() += 1;
}

/// What was counted: how often, and what.
pub(crate) fn counts() -> Vec<(u64, &'static str)> {
    let counts = COUNTS.lock().unwrap();
    counts.iter().map(|(what, n)| (*n, *what)).collect()
}
