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
    closing: Arc<Closing>,
    started: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// In a store without threads: the flushed number at the last round.
    flushed: AtomicU64,
    /// In a store without threads: held during a round.
    busy: Mutex<()>,
}

/// Tells the thread to end.
#[derive(Default)]
struct Closing {
    is_requested: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Background for MaintenanceThread {
    fn wrote(&self, shared: &Arc<Store>) {
        if !shared.automatic_maintenance {
            return;
        }
        if !shared.group.options().background {
            return self.run_in_writer(shared);
        }
        if self.started.load(Relaxed) || self.started.swap(true, SeqCst) {
            return;
        }
        let (shared, closing) = (shared.clone(), self.closing.clone());
        let mut thread = self.thread.lock();
        if closing.is_requested.load(SeqCst) {
            return;
        }
        let builder = std::thread::Builder::new().name("esker-maintenance".to_string());
        // Maintenance is optional: without the thread the store only keeps obsolete entries longer.
        *thread = builder.spawn(move || run(shared, &closing)).ok();
    }
}

impl MaintenanceThread {
    /// Runs a round on the writer's thread, if its commit caused a flush and no round is running.
    fn run_in_writer(&self, shared: &Arc<Store>) {
        let flushed = shared.group.snapshot().flushed();
        if self.flushed.swap(flushed, SeqCst) == flushed {
            return;
        }
        if let Some(_busy) = self.busy.try_lock() {
            run_round(shared, &|| true);
        }
    }

    /// Ends the thread, even during a repair.
    pub(crate) fn stop(&self) {
        self.closing.is_requested.store(true, SeqCst);
        {
            let _lock = self.closing.lock.lock();
            self.closing.wake.notify_all();
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
fn run(shared: Arc<Store>, closing: &Closing) {
    let go_on = || !closing.is_requested.load(SeqCst);
    while go_on() {
        let mut lock = closing.lock.lock();
        if go_on() {
            closing.wake.wait_for(&mut lock, PAUSE);
        }
        drop(lock);
        run_round(&shared, &go_on);
    }
}

/// Runs the due work of each dataset.
fn run_round(shared: &Arc<Store>, go_on: &dyn Fn() -> bool) {
    for current in shared.dataset_states() {
        if !go_on() {
            return;
        }
        Handle::new(shared.clone(), current, None).run_maintenance(go_on);
    }
}
