//! The thread that runs the background maintenance of an open store. The first write starts it; it
//! ends with the last handle. In a store without background threads, the writer whose commit caused
//! a flush runs the maintenance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::store::{Background, Handle, Store};

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(500);

/// Owned by the handles of a store, not by the thread: dropping the last handle ends the thread.
#[derive(Default)]
pub(crate) struct MaintenanceThread {
    end_request: Arc<EndRequest>,
    started: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// In a store without threads: the flushed number at the last round.
    flushed: AtomicU64,
    /// In a store without threads: held during a round.
    busy: Mutex<()>,
}

/// The request to the thread to end.
#[derive(Default)]
struct EndRequest {
    is_made: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Background for MaintenanceThread {
    fn wrote(&self, store: &Arc<Store>) {
        if !store.automatic_maintenance {
            return;
        }
        if !store.group.options().background {
            return self.run_in_writer(store);
        }
        if self.started.load(Relaxed) || self.started.swap(true, SeqCst) {
            return;
        }
        let (store, end_request) = (store.clone(), self.end_request.clone());
        let mut thread = self.thread.lock();
        if end_request.is_made.load(SeqCst) {
            return;
        }
        let builder = std::thread::Builder::new().name("esker-maintenance".to_string());
        // Maintenance is optional: without the thread the store only keeps obsolete entries longer.
        *thread = builder.spawn(move || run_rounds(store, &end_request)).ok();
    }
}

impl MaintenanceThread {
    /// Runs a round on the writer's thread, if its commit caused a flush and no round is running.
    fn run_in_writer(&self, store: &Arc<Store>) {
        let flushed = store.group.snapshot().flushed();
        if self.flushed.swap(flushed, SeqCst) == flushed {
            return;
        }
        if let Some(_busy) = self.busy.try_lock() {
            run_round(store, &|| true);
        }
    }

    /// Ends the thread, even during a repair.
    pub(crate) fn stop(&self) {
        self.end_request.is_made.store(true, SeqCst);
        {
            let _lock = self.end_request.lock.lock();
            self.end_request.wake.notify_all();
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for MaintenanceThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The thread: rounds with a pause before each, until the store is closed.
fn run_rounds(store: Arc<Store>, end_request: &EndRequest) {
    let may_continue = || !end_request.is_made.load(SeqCst);
    while may_continue() {
        let mut lock = end_request.lock.lock();
        if may_continue() {
            end_request.wake.wait_for(&mut lock, PAUSE);
        }
        drop(lock);
        run_round(&store, &may_continue);
    }
}

/// Runs the due work of each dataset.
fn run_round(store: &Arc<Store>, may_continue: &dyn Fn() -> bool) {
    for state in store.dataset_states() {
        if !may_continue() {
            return;
        }
        Handle::new(store.clone(), state, None).run_maintenance(may_continue);
    }
}
