//! Makes a step of a failing list smaller: its randomness, its inner steps, its writes, and each
//! write.

use esker_sim::shrink::fewer;
use esker_sim::world::Action;

use crate::action::{Step, Write};

/// True if the list still fails with this step.
type Fails<'a> = dyn FnMut(&Step) -> bool + 'a;

impl Action for Step {
    fn weight(&self) -> usize {
        let Step(seed, action) = self;
        let inside = action.inside().map_or(0, |inside| {
            let steps = inside.steps.iter().map(Action::weight);
            steps.sum::<usize>() + usize::from(inside.stop_after.is_some())
        });
        let writes = action.clone().writes_mut().map_or(0, |writes| writes.len());
        1 + usize::from(*seed != 0) + inside + writes
    }

    fn shrink(&mut self, fails: &mut Fails<'_>) {
        if self.0 != 0 {
            with(self, fails, |step| step.0 = 0);
        }
        inner(self, fails);
        let Some(writes) = self.1.writes_mut().cloned() else {
            return;
        };
        let base = self.clone();
        let put = |step: &mut Step, writes: &[Write]| {
            if let Some(old) = step.1.writes_mut() {
                *old = writes.to_vec();
            }
        };
        let less = fewer(writes, &mut |writes| {
            let mut step = base.clone();
            put(&mut step, writes);
            fails(&step)
        });
        put(self, &less);
        for write in 0..less.len() {
            plainer(self, fails, write);
        }
    }
}

/// The inner steps of a step.
fn inner(step: &mut Step, fails: &mut Fails<'_>) {
    let Some(inside) = step.1.inside() else {
        return;
    };
    let (steps, stops) = (inside.steps.clone(), inside.stop_after.is_some());
    let put = |step: &mut Step, steps: &[Step]| {
        if let Some(inside) = step.1.inside_mut() {
            inside.steps = steps.to_vec();
        }
    };
    let base = step.clone();
    let less = fewer(steps, &mut |steps| {
        let mut step = base.clone();
        put(&mut step, steps);
        fails(&step)
    });
    put(step, &less);
    for (at, inner) in less.iter().enumerate() {
        with(step, fails, |step| {
            if let Some(inside) = step.1.inside_mut() {
                inside.steps[at].0 = 0;
            }
        });
        let Some(writes) = inner.clone().1.writes_mut().cloned() else {
            continue;
        };
        let put = |step: &mut Step, writes: &[Write]| {
            if let Some(inside) = step.1.inside_mut()
                && let Some(old) = inside.steps[at].1.writes_mut()
            {
                *old = writes.to_vec();
            }
        };
        let base = step.clone();
        let less = fewer(writes, &mut |writes| {
            let mut step = base.clone();
            put(&mut step, writes);
            fails(&step)
        });
        put(step, &less);
    }
    if stops {
        with(step, fails, |step| {
            if let Some(inside) = step.1.inside_mut() {
                inside.stop_after = None;
            }
        });
    }
}

/// Tries a changed step.
fn with(step: &mut Step, fails: &mut Fails<'_>, change: impl FnOnce(&mut Step)) {
    let mut other = step.clone();
    change(&mut other);
    if fails(&other) {
        *step = other;
    }
}

/// Empties the cells of a write, and its padding.
fn plainer(step: &mut Step, fails: &mut Fails<'_>, write: usize) {
    let (cells, pad, style) = match step.1.writes_mut().map(|writes| writes[write].clone()) {
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
    if pad > 0 || style > 0 {
        with(step, fails, |step| {
            set(step, &|_, pad, style| (*pad, *style) = (0, 0));
        });
    }
    for (number, cell) in cells.iter().enumerate() {
        if *cell != 0 {
            with(step, fails, |step| {
                set(step, &|cells, _, _| cells[number] = 0)
            });
        }
    }
}
