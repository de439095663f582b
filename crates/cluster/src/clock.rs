//! This machine's clock, compared with the cluster's.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::cells::Cells;
use crate::error::{Error, Result};
use crate::time::{CLOCK_BOUND, Clocks};

/// A comparison is good for this time, in milliseconds.
const GOOD: u64 = 8_000;
/// A clock that was set by more than this since the comparison is compared again, in milliseconds.
const SET: i64 = 250;
/// How often a comparison is made again that was too slow to say anything.
const TRIES: usize = 10;

/// The last comparison.
#[derive(Debug, Clone, Copy)]
struct Compared {
    /// By the steady clock, before it was made.
    at: u64,
    /// What the clock was ahead of the steady one, in milliseconds.
    offset: i64,
}

/// This machine's clock.
pub(crate) struct Checked {
    cells: Arc<dyn Cells>,
    clocks: Arc<dyn Clocks>,
    last: Mutex<Option<Compared>>,
}

impl Checked {
    pub(crate) fn new(cells: Arc<dyn Cells>, clocks: Arc<dyn Clocks>) -> Checked {
        let last = Mutex::new(None);
        Checked {
            cells,
            clocks,
            last,
        }
    }

    /// This machine's time, which does not differ from the cluster's by more than the bound.
    pub(crate) fn wall(&self) -> Result<u64> {
        for _ in 0..TRIES {
            let known = *self.last.lock();
            let steady = self.clocks.steady();
            let wall = self.clocks.wall();
            let is_good = known.is_some_and(|last| {
                let is_fresh = steady.saturating_sub(last.at) < GOOD;
                is_fresh && (offset(wall, steady) - last.offset).abs() < SET
            });
            if is_good {
                return Ok(wall);
            }
            self.now()?;
        }
        Err(too_slow())
    }

    /// The cluster's time; fails if this machine's clock is too far from it.
    pub(crate) fn now(&self) -> Result<u64> {
        for _ in 0..TRIES {
            let at = self.clocks.steady();
            let before = self.clocks.wall();
            let now = self.cells.now()?;
            let after = self.clocks.wall();
            // The cluster's clock was read between the two.
            let ahead = [before, after].map(|wall| wall as i64 - now as i64);
            let [least, most] = ahead;
            let bound = CLOCK_BOUND as i64;
            if most < -bound || least > bound {
                let ahead = if least > bound { least } else { most };
                let bound = CLOCK_BOUND;
                return Err(Error::ClockOff { ahead, bound });
            }
            // An answer that took long says too little.
            if least >= -bound && most <= bound {
                let offset = offset(before, at);
                *self.last.lock() = Some(Compared { at, offset });
                return Ok(now);
            }
        }
        Err(too_slow())
    }
}

fn too_slow() -> Error {
    Error::Unavailable(
        "the cluster answers too slowly to compare this machine's clock with its own".to_string(),
    )
}

fn offset(wall: u64, steady: u64) -> i64 {
    wall as i64 - steady as i64
}
