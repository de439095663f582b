//! The state shared by all parts of a group: its folder and settings, its counters, and whether it
//! accepts writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::budget::{Account, Budget, Held};
use crate::entry::Time;
use crate::error::{Error, Result};
use crate::expiry::{ExpiryClock, Horizon};
use crate::generation::View;
use crate::options::{LogMode, Options};
use crate::signal::Signal;
use crate::stats::{Counters, ReadCounters};
use crate::version::{TableSource, TreeProvider};

pub(super) struct Core {
    pub(super) source: TableSource,
    pub(super) options: Options,
    pub(super) clock: Arc<ExpiryClock>,
    pub(super) budget: Arc<Budget>,
    /// The obsolete sets' memory in the budget.
    sets: Held,
    pub(super) provider: Arc<dyn TreeProvider>,
    pub(super) counters: Counters,
    pub(super) reads: ReadCounters,
    /// The group is a read-only one beside the process that writes.
    reads_only: bool,
    /// Notified when something became visible, and with `ends`.
    pub(super) commits: Signal,
    /// Notified when the group is being closed, and when it refuses writes from then on.
    pub(super) ends: Signal,
    pub(super) closing: AtomicBool,
    poisoned: AtomicBool,
    poison: Mutex<Option<String>>,
}

impl Core {
    pub(super) fn new(
        source: TableSource,
        options: Options,
        budget: Arc<Budget>,
        clock: Arc<ExpiryClock>,
        provider: Arc<dyn TreeProvider>,
        reads_only: bool,
    ) -> Core {
        Core {
            source,
            options,
            clock,
            sets: budget.hold(Account::ObsoleteSets, 0),
            budget,
            provider,
            counters: Counters::default(),
            reads: ReadCounters::default(),
            reads_only,
            commits: Signal::default(),
            ends: Signal::default(),
            closing: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            poison: Mutex::new(None),
        }
    }

    /// True when the log of the group is the caller's.
    #[inline]
    pub(super) fn has_external_log(&self) -> bool {
        self.options.log == LogMode::External
    }

    /// True in a read-only group beside the process that writes.
    pub(super) fn is_reader(&self) -> bool {
        self.reads_only
    }

    /// Updates the memory accounts of memtables and obsolete sets.
    pub(super) fn count_memory(&self, view: &View) {
        let generation = self.options.generation_bytes();
        view.active.count_in(&self.budget, generation);
        for full in &view.full {
            full.count_in(&self.budget, 0);
            full.mark_full();
        }
        let trees = view.version.trees.values();
        let sets = trees.filter(|tree| tree.options.bitmap);
        let bytes: usize = sets.map(|tree| tree.bitmap().memory()).sum();
        let kept = view.version.kept().values();
        let bytes = bytes + kept.map(|kept| kept.set_bytes()).sum::<usize>();
        self.sets.set(Account::ObsoleteSets, bytes);
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.closing.load(Ordering::SeqCst) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    /// Refuses writes in a read-only group, and after a failure that left the state on disk
    /// unknown.
    pub(super) fn check_poison(&self) -> Result<()> {
        if self.reads_only {
            return Err(Error::ReadOnly);
        }
        self.poisoned_by().map_or(Ok(()), Err)
    }

    fn poisoned_by(&self) -> Option<Error> {
        self.is_poisoned().then(|| {
            let cause = self.poison.lock().clone().unwrap_or_default();
            Error::Poisoned { cause }
        })
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Refuses all further writes: the state on disk is unknown.
    pub(super) fn poison_with(&self, error: &Error) {
        self.poison.lock().get_or_insert_with(|| error.to_string());
        self.poisoned.store(true, Ordering::SeqCst);
        self.note_end();
    }

    /// Wakes those who wait for what does not come any more.
    pub(super) fn note_end(&self) {
        self.ends.notify();
        self.commits.notify();
    }

    /// Why no further write of this process becomes visible, if none does.
    pub(super) fn end(&self) -> Option<Error> {
        if self.closing.load(Ordering::SeqCst) {
            return Some(Error::Closed);
        }
        self.poisoned_by()
    }

    /// True when no further write of this process becomes visible.
    pub(super) fn is_ended(&self) -> bool {
        self.closing.load(Ordering::SeqCst) || self.poisoned.load(Ordering::SeqCst)
    }

    /// The time by which flushes and compactions drop expired entries; 0 while nothing expires.
    pub(super) fn drop_time(&self, view: &View) -> Time {
        if view.is_timed() {
            self.clock.drop_time()
        } else {
            0
        }
    }

    /// The expiry time for a snapshot of a view.
    pub(super) fn horizon(&self, view: &View) -> Horizon {
        if view.is_timed() {
            Horizon {
                now: self.clock.read_time(),
                clock: Some(self.clock.clone()),
            }
        } else {
            Horizon::default()
        }
    }

    /// True for an error confined to the compaction of one tree: others may continue.
    pub(super) fn is_contained(&self, error: &Error) -> bool {
        !matches!(error, Error::Closed | Error::Poisoned { .. }) && self.check_poison().is_ok()
    }

    /// Returns the error unless it is confined to one tree and others may succeed.
    pub(super) fn continue_after(&self, error: &Error) -> Result<()> {
        if self.is_contained(error) && !error.is_disk_full() {
            Ok(())
        } else {
            Err(error.clone())
        }
    }
}
