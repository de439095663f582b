//! Stopping a read from outside: a token that another thread cancels, or whose deadline passes.
//!
//! Reads look at it where they fetch a block, cached or not, and at each entry that they walk without a fetch
//! ([`crate::Cost::check`]); one without a token pays a branch. A read that was stopped returns
//! [`Error::Cancelled`] and leaves nothing behind: no lock, no file, nothing half done.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The clock is looked at once in so many checks, and before each read from the file system.
const CLOCK_EVERY: u32 = 64;

/// A token that stops the reads it is given to ([`crate::Snapshot::with_stop`]): when it is cancelled, by whichever
/// thread, and once its deadline has passed, if it has one. Cheap to clone; clones are the same token. It stays
/// stopped: whoever reads on takes a new one.
///
/// ```
/// use lsm::{Batch, Durability, Error, Group, Options, PlainTrees, Stop};
///
/// # fn main() -> lsm::Result<()> {
/// # let fs = std::sync::Arc::new(lsm::fs::memory::Memory::new());
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
/// let error = lsm::Cursor::seek_first(&mut cursor).unwrap_err();
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

    /// A token whose deadline is that long from now; it can be cancelled before.
    pub fn after(time: Duration) -> Stop {
        // One that is beyond what a clock can say never passes.
        Stop::with_deadline(Instant::now().checked_add(time))
    }

    fn with_deadline(deadline: Option<Instant>) -> Stop {
        Stop(Arc::new(State {
            cancelled: AtomicBool::new(false),
            deadline,
        }))
    }

    /// Stops all reads that have this token, from now on.
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

    /// The same without a look at the clock.
    fn check_flag(&self) -> Result<()> {
        match self.0.cancelled.load(Relaxed) {
            true => Err(Error::Cancelled { deadline: false }),
            false => Ok(()),
        }
    }
}

/// What watches over the reads that a [`Stop`] may stop, or over reads that nothing does: the default.
#[derive(Debug, Default, Clone)]
pub(crate) struct Watch(Option<Watched>);

#[derive(Debug, Clone)]
struct Watched {
    stop: Stop,
    /// Checks since the clock was looked at.
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

    /// True when there is nothing that may stop the reads.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.0.as_ref().map(|watched| &watched.stop)
    }

    /// For each step that is cheap: the clock is looked at now and then.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<()> {
        match &self.0 {
            None => Ok(()),
            Some(watched) => watched.check(),
        }
    }

    /// For each step that takes long.
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
