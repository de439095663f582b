//! What all handles of a dataset share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use esker_lsm::TreeId;
use esker_lsm::version::Version;
use esker_model::schema::KeyType;
use parking_lot::{Mutex, MutexGuard};

use super::kept_filter::KeptFilter;
use super::read_repair::Online;
use super::remarks::Remarks;
use crate::catalog::{Layout, dataset_of};
use crate::error::{Error, Result};
use crate::telemetry::Usage;

/// What all handles of a dataset share: its layout changes while they are in use.
///
/// The layout is a function of the engine's version, whose data tree has the definition for its
/// configuration. So a snapshot and its layout always fit, whenever either was taken, and a batch
/// that was made for an older layout is refused by the engine ([`esker_lsm::Batch::made_for`]).
pub(crate) struct Current {
    /// It may get another: what identifies it is its data tree.
    name: ArcSwap<String>,
    pub(crate) data: TreeId,
    pub(crate) key_type: KeyType,
    pub(crate) usage: Usage,
    pub(crate) kept_filter: Arc<KeptFilter>,
    /// What queries found to be obsolete.
    pub(crate) online: Online,
    /// What may be said of the records that were written.
    pub(crate) remarks: Remarks,
    layout: ArcSwap<Layout>,
    /// Held by whoever changes an index or the strategy, or drops the dataset.
    changing: Mutex<()>,
    /// Held by whoever makes the tree of notes, before `changing`: writers whose batches have the first notes wait for each other.
    pub(crate) first_note: Mutex<()>,
    /// Up while background maintenance may hold it, which yields to those who wait.
    gives_way: AtomicBool,
    waiting: AtomicUsize,
}

impl Current {
    pub(crate) fn new(name: &str, layout: Layout, usage: Usage) -> Current {
        Current {
            name: ArcSwap::from_pointee(name.to_string()),
            data: layout.data,
            key_type: layout.stored.key_type,
            usage,
            kept_filter: Arc::default(),
            online: Online::default(),
            remarks: Remarks::default(),
            layout: ArcSwap::from_pointee(layout),
            changing: Mutex::new(()),
            first_note: Mutex::new(()),
            gives_way: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The name of the dataset, as of now.
    pub(crate) fn name(&self) -> String {
        self.name.load().to_string()
    }

    /// The dataset has another name now.
    pub(crate) fn is_renamed(&self, name: &str) {
        if **self.name.load() != name {
            self.name.store(Arc::new(name.to_string()));
        }
    }

    /// The right to change the dataset's trees; refused while somebody else has it.
    pub(crate) fn claim(&self) -> Result<MutexGuard<'_, ()>> {
        if self.gives_way.load(Ordering::SeqCst) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let claimed = self.changing.try_lock_for(GIVES_WAY);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return claimed.ok_or_else(|| self.is_changing());
        }
        self.changing.try_lock().ok_or_else(|| self.is_changing())
    }

    /// Background maintenance is at work, until the guard is dropped. Refused while somebody changes the dataset.
    pub(crate) fn give_way(&self) -> Result<impl Drop + '_> {
        drop(self.changing.try_lock().ok_or_else(|| self.is_changing())?);
        self.gives_way.store(true, Ordering::SeqCst);
        Ok(GivesWay(&self.gives_way))
    }

    /// True when somebody waits for the right to change the dataset's trees.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn is_changing(&self) -> Error {
        Error::busy(format!("dataset `{}` is being changed", self.name()))
    }

    /// The layout that was right a moment ago: for writers, which learn when it is not any more.
    pub(crate) fn latest(&self) -> Arc<Layout> {
        self.layout.load_full()
    }

    /// As [`Current::latest`], in the place of a layout that was right before.
    pub(crate) fn renew(&self, layout: &mut Arc<Layout>) {
        let latest = self.layout.load();
        if !Arc::ptr_eq(&latest, layout) {
            *layout = Arc::clone(&latest);
        }
    }

    /// The layout in `version`; the latest when the dataset is not in it.
    pub(crate) fn layout_in(&self, version: &Version) -> Arc<Layout> {
        let latest = self.layout.load();
        if latest.seen() == version.changes() {
            return Arc::clone(&latest);
        }
        let Some(tree) = version.trees.get(&self.data) else {
            return Arc::clone(&latest);
        };
        if latest.is_of(&tree.config) {
            latest.is_seen_in(version);
            return Arc::clone(&latest);
        }
        // By the name that it had then: trees are called by it.
        let name = dataset_of(&tree.name).unwrap_or_default();
        let Some(layout) = Layout::new(name, version) else {
            // It was read before it was written.
            return Arc::clone(&latest);
        };
        let layout = Arc::new(layout);
        // An old snapshot has an old layout, which must not become the latest.
        self.layout.rcu(|latest| {
            if latest.seen() < layout.seen() {
                layout.clone()
            } else {
                latest.clone()
            }
        });
        layout
    }
}

/// How long background maintenance may take to yield.
const GIVES_WAY: Duration = Duration::from_secs(60);

struct GivesWay<'a>(&'a AtomicBool);

impl Drop for GivesWay<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
