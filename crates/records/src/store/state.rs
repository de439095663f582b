//! The state that all handles of a dataset share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use esker_lsm::TreeId;
use esker_lsm::version::Version;
use esker_model::schema::KeyType;
use parking_lot::{Mutex, MutexGuard};

use super::findings::Findings;
use super::kept_filter::KeptFilter;
use super::remarks::Remarks;
use crate::catalog::{Layout, dataset_of};
use crate::error::{Error, Result};
use crate::telemetry::Usage;

/// The state that all handles of a dataset share, of which the name and the layout change while
/// handles are in use.
///
/// The layout is a function of the engine's version: the configuration of the data tree is the
/// definition. So a snapshot always has a layout that fits it. The engine refuses a batch that was
/// built for an older layout ([`esker_lsm::Batch::made_for`]).
pub(crate) struct DatasetState {
    /// May change: the data tree identifies the dataset.
    name: ArcSwap<String>,
    pub(crate) data: TreeId,
    pub(crate) key_type: KeyType,
    pub(crate) usage: Usage,
    pub(crate) kept_filter: Arc<KeptFilter>,
    /// Obsolete writes that queries found.
    pub(crate) findings: Findings,
    /// Remarks about written records.
    pub(crate) remarks: Remarks,
    /// The newest layout seen so far.
    layout: ArcSwap<Layout>,
    /// Held while an index or the strategy is changed, or the dataset is dropped.
    changing: Mutex<()>,
    /// Held while the tree of notes is created, and taken before `changing`: writers of first notes
    /// wait for each other.
    pub(crate) first_note: Mutex<()>,
    /// True while background maintenance works on the dataset. It yields to waiting claims.
    yields: AtomicBool,
    /// The number of claims that wait for it to yield.
    waiting_claims: AtomicUsize,
}

impl DatasetState {
    /// The state of a dataset that no handle has used yet.
    pub(crate) fn new(name: &str, layout: Layout, usage: Usage) -> DatasetState {
        DatasetState {
            name: ArcSwap::from_pointee(name.to_string()),
            data: layout.data,
            key_type: layout.stored.key_type,
            usage,
            kept_filter: Arc::default(),
            findings: Findings::default(),
            remarks: Remarks::default(),
            layout: ArcSwap::from_pointee(layout),
            changing: Mutex::new(()),
            first_note: Mutex::new(()),
            yields: AtomicBool::new(false),
            waiting_claims: AtomicUsize::new(0),
        }
    }

    /// The present name of the dataset.
    pub(crate) fn name(&self) -> String {
        self.name.load().to_string()
    }

    /// Notes the name that the newest snapshot has for the dataset.
    pub(crate) fn rename(&self, name: &str) {
        if **self.name.load() != name {
            self.name.store(Arc::new(name.to_string()));
        }
    }

    /// Claims the right to change the dataset's trees, until the guard is dropped. Waits up to
    /// [`YIELD_TIMEOUT`] for background maintenance to yield it.
    ///
    /// # Errors
    /// [`Error::Busy`] while another change holds it.
    pub(crate) fn claim(&self) -> Result<MutexGuard<'_, ()>> {
        if self.yields.load(Ordering::SeqCst) {
            self.waiting_claims.fetch_add(1, Ordering::SeqCst);
            let claimed = self.changing.try_lock_for(YIELD_TIMEOUT);
            self.waiting_claims.fetch_sub(1, Ordering::SeqCst);
            return claimed.ok_or_else(|| self.busy());
        }
        self.changing.try_lock().ok_or_else(|| self.busy())
    }

    /// Starts work of background maintenance, which ends when the guard is dropped.
    ///
    /// # Errors
    /// [`Error::Busy`] while the dataset is being changed.
    pub(crate) fn yield_to_claims(&self) -> Result<impl Drop + '_> {
        drop(self.changing.try_lock().ok_or_else(|| self.busy())?);
        self.yields.store(true, Ordering::SeqCst);
        Ok(Yielding(&self.yields))
    }

    /// True if a claim waits for background maintenance to yield.
    pub(crate) fn has_waiting_claim(&self) -> bool {
        self.waiting_claims.load(Ordering::SeqCst) > 0
    }

    /// The error of a change that has to wait for another.
    pub(crate) fn busy(&self) -> Error {
        Error::busy(format!("dataset `{}` is being changed", self.name()))
    }

    /// The newest layout seen so far. Writers use it: the engine refuses their batch if it is
    /// outdated.
    pub(crate) fn latest_layout(&self) -> Arc<Layout> {
        self.layout.load_full()
    }

    /// Replaces `layout` by [`DatasetState::latest_layout`].
    pub(crate) fn refresh_layout(&self, layout: &mut Arc<Layout>) {
        let latest = self.layout.load();
        if !Arc::ptr_eq(&latest, layout) {
            *layout = Arc::clone(&latest);
        }
    }

    /// The layout in `version`; the latest one if `version` lacks the dataset.
    pub(crate) fn layout_in(&self, version: &Version) -> Arc<Layout> {
        let latest = self.layout.load();
        if latest.valid_change() == version.changes() {
            return Arc::clone(&latest);
        }
        let Some(tree) = version.trees.get(&self.data) else {
            return Arc::clone(&latest);
        };
        if latest.is_of(&tree.config) {
            latest.note_valid_in(version);
            return Arc::clone(&latest);
        }
        // By the name that the dataset had in this version, because its trees were named by it.
        let layout = dataset_of(&tree.name)
            .and_then(|name| Layout::new(name, version, latest.index_types()));
        let Some(layout) = layout else {
            // The definition and the name were checked before they were stored.
            debug_assert!(false, "a stored layout cannot be read");
            return Arc::clone(&latest);
        };
        let layout = Arc::new(layout);
        // An old snapshot has an old layout, which must not become the latest.
        self.layout.rcu(|latest| {
            if latest.valid_change() < layout.valid_change() {
                layout.clone()
            } else {
                latest.clone()
            }
        });
        layout
    }
}

/// The longest wait of a claim for background maintenance.
const YIELD_TIMEOUT: Duration = Duration::from_secs(60);

/// Work of background maintenance, until it is dropped.
struct Yielding<'a>(&'a AtomicBool);

impl Drop for Yielding<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
