//! Holds calls to the file system: syncs of the log, appends to it and reads of tables take as long
//! as the run decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_sim::hooked::{Call, Hooked};
use fastrand::Rng;
use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct State {
    /// The waiting calls, each by a number of its own.
    waiting: Vec<u64>,
    next: u64,
    /// No call waits any more.
    is_over: bool,
}

/// The calls to the file system that are held.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<(Mutex<State>, Condvar)>);

impl Held {
    /// Holds each sync of the log, and some of the appends to it and of the reads of tables.
    pub(crate) fn of(fs: &Hooked, seed: u64) -> Held {
        let held = Held::default();
        let (own, calls) = (held.clone(), AtomicU64::new(0));
        fs.set(move |call, path| {
            let is_log = path.extension().is_some_and(|ext| ext == "log");
            let mut rng = Rng::with_seed(seed ^ calls.fetch_add(1, Ordering::SeqCst) << 20);
            let is_held = match call {
                Call::Sync => is_log,
                // An append blocks other writers.
                Call::Append => is_log && rng.u8(0..6) == 0,
                Call::Read => !is_log && rng.u8(0..3) > 0,
                _ => false,
            };
            if is_held {
                own.wait();
            }
            Ok(())
        });
        held
    }

    fn wait(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        let own = state.next;
        state.next += 1;
        state.waiting.push(own);
        while state.waiting.contains(&own) && !state.is_over {
            changed.wait(&mut state);
        }
    }

    /// Releases a random waiting call, if there is one: so some wait for long.
    pub(crate) fn let_one_go(&self, rng: &mut Rng) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        if !state.waiting.is_empty() {
            let at = rng.usize(0..state.waiting.len());
            state.waiting.swap_remove(at);
            changed.notify_all();
        }
    }

    /// Releases all calls, and holds no later ones.
    pub(crate) fn let_all_go(&self) {
        let (state, changed) = &*self.0;
        state.lock().is_over = true;
        changed.notify_all();
    }
}
