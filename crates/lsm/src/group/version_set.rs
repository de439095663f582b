//! The version set: the version and memtables that readers see (the view), and the manifest, which
//! is its form on disk. Views are replaced whole (`install.rs`, `commit.rs` for new memtables);
//! `manifest.rs` starts manifests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::scheduler::Scheduler;
use super::sequencer::Sequencer;
use crate::batch::TreeId;
use crate::entry::Seq;
use crate::error::Result;
use crate::generation::{View, Views};
use crate::read::Snapshot;
use crate::version::{Current, Manifest, Order, TableFile, Version};

/// The state behind the `manifest` lock.
pub(super) struct Versions {
    pub(super) manifest: Option<Manifest>,
    /// The first log segment that an opening must replay.
    pub(super) log: u64,
    pub(super) next_tree: TreeId,
    /// The last sequence number in tables.
    pub(super) last_seq: Seq,
    /// The recorded order of commits.
    pub(super) order: Order,
    /// The length at which the manifest is rewritten.
    pub(super) renew_at: u64,
    /// The seal that closing has yet to write.
    pub(super) seal: Option<Current>,
}

impl Versions {
    pub(super) fn new(order: Order) -> Versions {
        Versions {
            manifest: None,
            log: 0,
            next_tree: 1,
            last_seq: 0,
            order,
            renew_at: 0,
            seal: None,
        }
    }
}

pub(super) struct VersionSet {
    /// Shared with compactions that read the current version.
    pub(super) view: Arc<Views>,
    pub(super) view_change: Mutex<()>,
    pub(super) manifest: Mutex<Versions>,
    /// Held while a named snapshot is kept or dropped.
    pub(super) naming: Mutex<()>,
    next_file: AtomicU64,
    /// Shared files of which more than half is unused.
    pub(super) sparse: Mutex<BTreeSet<u64>>,
}

impl VersionSet {
    /// `next_file` is the number of the next file.
    pub(super) fn new(view: View, versions: Versions, next_file: u64) -> VersionSet {
        VersionSet {
            sparse: Mutex::new(sparse_files(&view.version)),
            view: Arc::new(Views::new(view)),
            view_change: Mutex::new(()),
            manifest: Mutex::new(versions),
            naming: Mutex::new(()),
            next_file: AtomicU64::new(next_file),
        }
    }

    /// Replaces the view by the result of `change`.
    pub(super) fn change(&self, scheduler: &Scheduler, change: impl FnOnce(&View) -> View) {
        let _guard = self.view_change.lock();
        let current = self.view.load_full();
        let mut next = change(&current);
        next.closed = current.closed.clone();
        debug_assert!(
            (next.full).is_sorted_by(|newer, older| newer.component().min > older.last()),
            "full generations, newest first"
        );
        scheduler.measure_pressure(&next);
        self.view.store(&next);
    }

    /// Measures the pressure again, after a tree's compactions have begun or ceased to fail.
    pub(super) fn change_pressure(&self, scheduler: &Scheduler) {
        let _guard = self.view_change.lock();
        scheduler.measure_pressure(&self.view.load());
    }

    /// Refuses operations after the group was closed.
    pub(super) fn check_open(&self) -> Result<()> {
        self.view.load().check_open()
    }

    /// A snapshot of everything visible.
    #[inline]
    pub(super) fn snapshot(&self, sequencer: &Sequencer) -> Snapshot {
        loop {
            let view = self.view.load_full();
            let seq = sequencer.visible();
            let seq = seq.max(view.version.flushed());
            // If the view was replaced in between, writes up to `seq` may be in memtables that the
            // old one lacks.
            if Arc::ptr_eq(&view, &self.view.load()) {
                let horizon = sequencer.core.horizon(&view);
                return Snapshot::new(view, seq, horizon);
            }
        }
    }

    /// Adds the file of an obsolete table, if it is due.
    pub(super) fn note_space(&self, table: &TableFile) {
        if table.place().is_some() && table.file().is_sparse() {
            self.sparse.lock().insert(table.file().number());
        }
    }

    /// A number for a new file.
    pub(super) fn new_file(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::SeqCst)
    }

    /// A lower bound of the next new file's number.
    pub(super) fn next_file(&self) -> u64 {
        self.next_file.load(Ordering::SeqCst)
    }
}

/// The shared files of which a version uses less than half.
fn sparse_files(version: &Version) -> BTreeSet<u64> {
    let shared = version.tables().filter(|table| table.place().is_some());
    let sparse = shared.filter(|table| table.file().is_sparse());
    sparse.map(|table| table.file().number()).collect()
}
