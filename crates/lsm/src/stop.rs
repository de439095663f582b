//! Stopping a read from outside: a token that another thread cancels, or whose deadline passes.
//!
//! Reads check it where they fetch a block, cached or not, and at each entry that they visit
//! without a fetch ([`crate::Cost::check`]); a read without a token pays a branch. A stopped read
//! returns [`Error::Cancelled`] and leaves no lock, file or partial work behind.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The clock is read once per this many checks, and before each read from the file system.
const CLOCK_EVERY: u32 = 64;

/// A token that stops the reads it is passed to ([`crate::Snapshot::with_stop`]): when any thread
/// cancels it, and once its deadline has passed, if it has one. Cheap to clone; clones are the same
/// token. It stays stopped: later reads need a new one.
///
/// ```
/// use esker_lsm::{Batch, Durability, Error, Group, Options, PlainTrees, Stop};
///
/// # fn main() -> esker_lsm::Result<()> {
/// # let fs = std::sync::Arc::new(esker_sim::memory::Memory::new());
/// # let options = Options { fs, ..Options::default() };
/// let group = Group::open("store".as_ref(), options, std::sync::Arc::new(PlainTrees), true)?;
/// let trees = group.create_trees(&[("t".to_string(), Vec::new())])?;
/// let mut batch = Batch::new();
/// batch.put(trees[0], b"k", b"v")?;
/// group.write(&mut batch, Durability::Os)?;
///
/// let stop = Stop::new();
/// let snapshot = group.snapshot().with_stop(Some(stop.clone()));
/// let mut cursor = snapshot.cursor(trees[0], 0);
/// stop.cancel(); // From any thread.
/// let error = esker_lsm::Cursor::seek_first(&mut cursor).unwrap_err();
/// assert!(matches!(error, Error::Cancelled { deadline: false }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Stop(Arc<State>);

#[derive(Debug)]
struct State {
    cancelled: AtomicBool,
    deadline: Option<Instant>,
}

impl Stop {
    /// A token without a deadline.
    #[allow(
        clippy::new_without_default,
        reason = "a default that is never cancelled is no token at all"
    )]
    pub fn new() -> Stop {
        Stop::with_deadline(None)
    }

    /// A token whose deadline is `deadline`; it can be cancelled before.
    pub fn at(deadline: Instant) -> Stop {
        Stop::with_deadline(Some(deadline))
    }

    /// A token whose deadline is `time` from now; it can be cancelled before.
    pub fn after(time: Duration) -> Stop {
        // A deadline beyond the clock's range never passes.
        Stop::with_deadline(Instant::now().checked_add(time))
    }

    fn with_deadline(deadline: Option<Instant>) -> Stop {
        Stop(Arc::new(State {
            cancelled: AtomicBool::new(false),
            deadline,
        }))
    }

    /// Stops all reads with this token from now on.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Relaxed);
    }

    /// [`Error::Cancelled`] once it was cancelled or its deadline has passed.
    pub fn check(&self) -> Result<()> {
        self.check_flag()?;
        match self.0.deadline {
            Some(deadline) if Instant::now() >= deadline => {
                Err(Error::Cancelled { deadline: true })
            }
            _ => Ok(()),
        }
    }

    /// As [`Stop::check`], without reading the clock.
    fn check_flag(&self) -> Result<()> {
        if self.0.cancelled.load(Relaxed) {
            Err(Error::Cancelled { deadline: false })
        } else {
            Ok(())
        }
    }
}

/// The token of a read and its check counter; the default has no token and never stops.
#[derive(Debug, Default, Clone)]
pub(crate) struct Watch(Option<Watched>);

#[derive(Debug, Clone)]
struct Watched {
    stop: Stop,
    /// Checks since the clock was read.
    checks: Cell<u32>,
}

impl Watch {
    #[inline]
    pub(crate) fn new(stop: Option<&Stop>) -> Watch {
        Watch(stop.map(|stop| Watched {
            stop: stop.clone(),
            checks: Cell::new(0),
        }))
    }

    /// True without a token.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.0.as_ref().map(|watched| &watched.stop)
    }

    /// For cheap steps: reads the clock now and then.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0 {
            None => Ok(()),
            Some(watched) => watched.check(),
        }
    }

    /// For long steps: reads the clock each time.
    pub(crate) fn check_clock(&self) -> Result<()> {
        self.stop().map_or(Ok(()), Stop::check)
    }
}

impl Watched {
    #[cold]
    fn check(&self) -> Result<()> {
        let checks = self.checks.get();
        self.checks.set((checks + 1) % CLOCK_EVERY);
        match checks {
            0 => self.stop.check(),
            _ => self.stop.check_flag(),
        }
    }
}
