//! What scenes do at the calls of the simulated store.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use esker_cluster::Result;
use esker_cluster::cells::{Swapped, Write};
use parking_lot::Mutex;

use crate::hooked::Hook;

/// Sees writes before they are sent; returns the places of those that fail, and are not sent.
pub(crate) type OnWrites = Box<dyn FnMut(&[Write]) -> Vec<usize> + Send>;

/// A hook for writes.
pub(crate) struct Writes(pub(crate) Mutex<OnWrites>);

impl Hook for Writes {
    fn writes(&self, writes: &[Write]) -> Vec<usize> {
        (self.0.lock())(writes)
    }
}

/// Does something once, after the first scan, before announcements of removals are read.
pub(crate) struct AfterScan {
    has_scanned: AtomicBool,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl AfterScan {
    pub(crate) fn new(then: Box<dyn FnOnce() + Send>) -> AfterScan {
        AfterScan {
            has_scanned: AtomicBool::new(false),
            then: Mutex::new(Some(then)),
        }
    }

    /// Before announcements of removals are read, with or without a scan.
    pub(crate) fn at_once(then: Box<dyn FnOnce() + Send>) -> AfterScan {
        let hook = AfterScan::new(then);
        hook.has_scanned.store(true, Ordering::SeqCst);
        hook
    }
}

impl Hook for AfterScan {
    fn scanned(&self) {
        self.has_scanned.store(true, Ordering::SeqCst);
    }

    fn reads_swapped(&self, partition: &[u8]) {
        if partition.starts_with(b"removals") && self.has_scanned.load(Ordering::SeqCst) {
            let then = self.then.lock().take();
            if let Some(then) = then {
                then();
            }
        }
    }
}

/// Calls of a store but for scans, and the entries that were written.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) calls: AtomicUsize,
    pub(crate) entries: Mutex<Vec<Write>>,
}

impl Hook for Counted {
    fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn writes(&self, writes: &[Write]) -> Vec<usize> {
        let entries = writes.iter().filter(|write| write.table.contains("index"));
        self.entries.lock().extend(entries.cloned());
        Vec::new()
    }
}

/// One compare-and-set gets no answer: others change the row before it is read again.
pub(crate) struct Superseded {
    /// Rows of tables of this end.
    table: &'static str,
    /// Compare-and-sets before it.
    left: AtomicUsize,
    then: Mutex<Box<dyn FnMut() + Send>>,
}

impl Superseded {
    pub(crate) fn new(
        table: &'static str,
        left: usize,
        then: Box<dyn FnMut() + Send>,
    ) -> Superseded {
        Superseded {
            table,
            left: AtomicUsize::new(left),
            then: Mutex::new(then),
        }
    }
}

impl Hook for Superseded {
    fn swapped(&self, table: &str, partition: &[u8], found: Result<Swapped>) -> Result<Swapped> {
        let is_it = table.ends_with(self.table) && partition != b"writers";
        if !is_it || self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return found;
        }
        assert_eq!(found, Ok(Swapped::Done));
        (self.then.lock())();
        Ok(Swapped::Other(None))
    }
}
