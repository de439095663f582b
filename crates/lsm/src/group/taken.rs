//! The consumers of the log that handles of a group hold.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::fs::Lock;

/// The lock of a consumer: `None` after it was released, also because the group was closed. Calls
/// in progress share it.
pub(super) struct Taken(Mutex<Option<Arc<dyn Lock>>>);

impl Taken {
    pub(super) fn new(lock: Arc<dyn Lock>) -> Taken {
        Taken(Mutex::new(Some(lock)))
    }

    /// The lock, unless it was released.
    pub(super) fn get(&self) -> Option<Arc<dyn Lock>> {
        self.0.lock().clone()
    }

    /// Takes the lock away, to release it.
    pub(super) fn take(&self) -> Option<Arc<dyn Lock>> {
        self.0.lock().take()
    }
}

/// The consumers that handles of a group hold.
#[derive(Default)]
pub(super) struct TakenConsumers(Mutex<Vec<Weak<Taken>>>);

impl TakenConsumers {
    pub(super) fn add(&self, taken: &Arc<Taken>) {
        let mut all = self.0.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(taken));
    }

    /// Lets others be these consumers, whatever handles still exist.
    pub(super) fn give_up(&self) {
        for taken in std::mem::take(&mut *self.0.lock()) {
            if let Some(taken) = taken.upgrade() {
                drop(taken.take());
            }
        }
    }
}
