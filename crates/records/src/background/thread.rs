//! Who does the background maintenance of an open store: a thread, started with the first write, that ends with the last handle; or,
//! without background threads, the writer whose commit caused a flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::store::{Background, Handle, Store};

/// Between two looks at what is due.
const PAUSE: Duration = Duration::from_millis(500);

/// Held by the handles of a store, and not by the thread: dropping the last one ends it.
#[derive(Default)]
pub(crate) struct MaintenanceThread {
    closing: Arc<Closing>,
    started: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Without threads: what was flushed when it was last looked, and whether somebody is at it.
    flushed: AtomicU64,
    busy: Mutex<()>,
}

#[derive(Default)]
struct Closing {
    now: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Background for MaintenanceThread {
    fn wrote(&self, shared: &Arc<Store>) {
        if !shared.background_maintenance {
            return;
        }
        if !shared.group.options().background {
            return self.inline(shared);
        }
        if self.started.load(Relaxed) || self.started.swap(true, SeqCst) {
            return;
        }
        let (shared, closing) = (shared.clone(), self.closing.clone());
        let mut thread = self.thread.lock();
        if closing.now.load(SeqCst) {
            return;
        }
        let builder = std::thread::Builder::new().name("esker-maintenance".to_string());
        // Without it nothing is wrong, only less is known.
        *thread = builder.spawn(move || run(shared, &closing)).ok();
    }
}

impl MaintenanceThread {
    fn inline(&self, shared: &Arc<Store>) {
        let flushed = shared.group.snapshot().flushed();
        if self.flushed.swap(flushed, SeqCst) == flushed {
            return;
        }
        if let Some(_busy) = self.busy.try_lock() {
            step(shared, &|| true);
        }
    }

    /// Ends the thread, in the middle of a repair if need be.
    pub(crate) fn stop(&self) {
        self.closing.now.store(true, SeqCst);
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

fn run(shared: Arc<Store>, closing: &Closing) {
    let goes = || !closing.now.load(SeqCst);
    while goes() {
        let mut lock = closing.lock.lock();
        if goes() {
            closing.wake.wait_for(&mut lock, PAUSE);
        }
        drop(lock);
        step(&shared, &goes);
    }
}

/// Does for each dataset what is due.
fn step(shared: &Arc<Store>, go_on: &dyn Fn() -> bool) {
    for current in shared.currents() {
        if !go_on() {
            return;
        }
        Handle::new(shared.clone(), current, None).keep_up(go_on);
    }
}
