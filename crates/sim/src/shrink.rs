//! Makes a failing list of actions small: parts are left out, at first large ones, as long as the
//! rest fails in the same place; then each action is made smaller ([`Action::shrink`]). The end is
//! a list from which nothing can be left out.

use std::time::{Duration, Instant};

use crate::world::{Action, Failure, World, attempt};

const PATIENCE: Duration = Duration::from_secs(60);

/// The smallest list that fails as `failure` does, and how that fails. Gives up after a minute.
pub fn shrink<W: World>(
    settings: W::Settings,
    mut actions: Vec<W::Action>,
    mut failure: Failure,
) -> (Vec<W::Action>, Failure) {
    let until = Instant::now() + PATIENCE;
    let mut fails = |actions: &[W::Action]| {
        if Instant::now() > until {
            return false;
        }
        match attempt::<W>(settings, actions) {
            Err(other) if other.place == failure.place => {
                failure = other;
                true
            }
            _ => false,
        }
    };
    loop {
        let before = weight(&actions);
        actions = fewer(actions, &mut fails);
        for at in 0..actions.len() {
            let (mut list, Some(mut action)) = (actions.clone(), actions.get(at).cloned()) else {
                continue;
            };
            action.shrink(&mut |smaller| {
                if let Some(place) = list.get_mut(at) {
                    *place = smaller.clone();
                }
                fails(&list)
            });
            if let Some(place) = actions.get_mut(at) {
                *place = action;
            }
        }
        if weight(&actions) == before || Instant::now() > until {
            return (actions, failure);
        }
    }
}

fn weight<A: Action>(actions: &[A]) -> usize {
    actions.iter().map(Action::weight).sum()
}

/// Leaves out parts of a list, as long as `fails` says that the rest still fails.
pub fn fewer<T: Clone>(mut items: Vec<T>, fails: &mut dyn FnMut(&[T]) -> bool) -> Vec<T> {
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < items.len() {
            let mut less = items.clone();
            less.drain(at..(at + size).min(items.len()));
            if fails(&less) {
                items = less;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails where the numbers of a list come to a hundred or more.
    struct Sum(u32);

    #[derive(Clone, Debug, PartialEq)]
    struct Number(u32);

    impl Action for Number {
        fn weight(&self) -> usize {
            self.0 as usize + 1
        }

        fn shrink(&mut self, fails: &mut dyn FnMut(&Number) -> bool) {
            while self.0 > 0 && fails(&Number(self.0 - 1)) {
                self.0 -= 1;
            }
        }
    }

    impl World for Sum {
        type Settings = ();
        type Action = Number;

        fn generate(seed: u64) -> ((), Vec<Number>) {
            ((), (0..30).map(|n| Number(n + seed as u32)).collect())
        }

        fn new(_: ()) -> Sum {
            Sum(0)
        }

        fn step(&mut self, number: &Number) {
            self.0 += number.0;
        }

        fn end(&mut self) {
            assert!(self.0 < 100, "{}", self.0);
        }

        fn as_test(_: u64, _: (), actions: &[Number]) -> String {
            format!("{actions:?}")
        }
    }

    #[test]
    fn a_list_shrinks_until_nothing_can_be_left_out() {
        let (settings, actions) = Sum::generate(0);
        let failure = attempt::<Sum>(settings, &actions).unwrap_err();
        let (actions, failure) = shrink::<Sum>(settings, actions, failure);
        assert_eq!(actions.iter().map(|n| n.0).sum::<u32>(), 100);
        assert_eq!(failure.text, "100");
        let (_, report) = crate::runner::seed::<Sum>(5).unwrap_err();
        assert!(report.starts_with("ESKER_SEED=5\n"), "{report}");
    }
}
