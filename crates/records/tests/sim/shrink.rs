//! Making a failing run small: parts are left out, at first large ones, as long as what is left fails in the same place;
//! inside other actions and batches, too. The end is a list from which nothing can be left out.

use std::time::{Duration, Instant};

use crate::action::{Action, List, Settings, Step, Write};
use crate::runner::{Failure, attempt};

const PATIENCE: Duration = Duration::from_secs(60);

struct Shrink {
    settings: Settings,
    failure: Failure,
    until: Instant,
}

/// The smallest list that fails as `failure` does, and how that fails.
pub(crate) fn shrink(
    settings: Settings,
    steps: Vec<Step>,
    failure: Failure,
) -> (Vec<Step>, Failure) {
    let mut shrink = Shrink {
        settings,
        failure,
        until: Instant::now() + PATIENCE,
    };
    let mut steps = steps;
    loop {
        let before = weight(&steps);
        steps = shrink.lists(steps, &|steps| steps.to_vec());
        steps = shrink.inner(steps);
        if weight(&steps) == before || shrink.is_over() {
            return (steps, shrink.failure);
        }
    }
}

/// How much there is of a list.
fn weight(steps: &[Step]) -> usize {
    let inner = |action: &Action| {
        let inside = action.inside().map_or(0, |inside| {
            weight(&inside.steps.0) + usize::from(inside.stop_after.is_some())
        });
        let writes = action.clone().writes_mut().map_or(0, |writes| writes.len());
        inside + writes
    };
    let each = steps.iter();
    each.map(|Step(seed, action)| 1 + usize::from(*seed != 0) + inner(action))
        .sum()
}

impl Shrink {
    fn is_over(&self) -> bool {
        Instant::now() > self.until
    }

    fn fails(&mut self, steps: &[Step]) -> bool {
        if self.is_over() {
            return false;
        }
        match attempt(self.settings, steps) {
            Err(failure) if failure.place == self.failure.place => {
                self.failure = failure;
                true
            }
            _ => false,
        }
    }

    /// Leaves out parts of a list that `whole` makes a run of.
    fn lists<T: Clone>(&mut self, items: Vec<T>, whole: &dyn Fn(&[T]) -> Vec<Step>) -> Vec<T> {
        let mut items = items;
        let mut size = items.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < items.len() {
                let mut fewer = items.clone();
                fewer.drain(at..(at + size).min(items.len()));
                match self.fails(&whole(&fewer)) {
                    true => items = fewer,
                    false => at += size,
                }
            }
            size /= 2;
        }
        items
    }

    /// Makes each step smaller.
    fn inner(&mut self, mut steps: Vec<Step>) -> Vec<Step> {
        for at in 0..steps.len() {
            if steps[at].0 != 0 {
                self.with(&mut steps, at, |step| step.0 = 0);
            }
            if let Some(inside) = steps[at].1.inside() {
                let inner = inside.steps.0.clone();
                let stops = inside.stop_after.is_some();
                let base = steps.clone();
                let less = self.lists(inner, &|inner| {
                    let mut steps = base.clone();
                    if let Some(inside) = steps[at].1.inside_mut() {
                        inside.steps = List(inner.to_vec());
                    }
                    steps
                });
                if let Some(inside) = steps[at].1.inside_mut() {
                    inside.steps = List(less.clone());
                }
                for (inner_at, inner) in less.iter().enumerate() {
                    self.with(&mut steps, at, |step| {
                        if let Some(inside) = step.1.inside_mut() {
                            inside.steps.0[inner_at].0 = 0;
                        }
                    });
                    let base = steps.clone();
                    let writes = inner.clone().1.writes_mut().cloned();
                    if let Some(writes) = writes {
                        let put = |steps: &mut Vec<Step>, writes: &[Write]| {
                            if let Some(inside) = steps[at].1.inside_mut()
                                && let Some(old) = inside.steps.0[inner_at].1.writes_mut()
                            {
                                *old = writes.to_vec();
                            }
                        };
                        let fewer = self.lists(writes, &|writes| {
                            let mut steps = base.clone();
                            put(&mut steps, writes);
                            steps
                        });
                        put(&mut steps, &fewer);
                    }
                }
                if stops {
                    self.with(&mut steps, at, |step| {
                        if let Some(inside) = step.1.inside_mut() {
                            inside.stop_after = None;
                        }
                    });
                }
            }
            if let Some(writes) = steps[at].1.writes_mut().cloned() {
                let base = steps.clone();
                let put = |steps: &mut Vec<Step>, writes: &[Write]| {
                    if let Some(old) = steps[at].1.writes_mut() {
                        *old = writes.to_vec();
                    }
                };
                let fewer = self.lists(writes, &|writes| {
                    let mut steps = base.clone();
                    put(&mut steps, writes);
                    steps
                });
                put(&mut steps, &fewer);
                for write in 0..fewer.len() {
                    self.plainer(&mut steps, at, write);
                }
            }
        }
        steps
    }

    /// Tries a step that is changed.
    fn with(&mut self, steps: &mut Vec<Step>, at: usize, change: impl FnOnce(&mut Step)) -> bool {
        let mut other = steps.clone();
        change(&mut other[at]);
        let fails = self.fails(&other);
        if fails {
            *steps = other;
        }
        fails
    }

    /// Empties the cells of a write, and its padding.
    fn plainer(&mut self, steps: &mut Vec<Step>, at: usize, write: usize) {
        let cells = match steps[at].1.writes_mut().map(|writes| writes[write].clone()) {
            Some(Write::Put {
                cells, pad, style, ..
            }) => (cells, pad, style),
            _ => return,
        };
        let set = |step: &mut Step, change: &dyn Fn(&mut [u8], &mut u16, &mut u8)| {
            if let Some(Write::Put {
                cells, pad, style, ..
            }) = step.1.writes_mut().map(|writes| &mut writes[write])
            {
                change(cells, pad, style);
            }
        };
        if cells.1 > 0 || cells.2 > 0 {
            self.with(steps, at, |step| {
                set(step, &|_, pad, style| (*pad, *style) = (0, 0));
            });
        }
        for (number, cell) in cells.0.iter().enumerate() {
            if *cell != 0 {
                self.with(steps, at, |step| {
                    set(step, &|cells, _, _| cells[number] = 0)
                });
            }
        }
    }
}
