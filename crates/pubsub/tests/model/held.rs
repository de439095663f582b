//! Syncs of the log and reads of tables that take as long as the run wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::fs::hooked::{Call, Hooked};
use fastrand::Rng;
use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct State {
    waiting: usize,
    /// So many may go on.
    let_go: usize,
    /// All may, from here on.
    is_over: bool,
}

/// Who waits in a call to the file system.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<(Mutex<State>, Condvar)>);

impl Held {
    /// Holds each sync of the log, and some of the reads of tables.
    pub(crate) fn of(fs: &Hooked, seed: u64) -> Held {
        let held = Held::default();
        let (own, reads) = (held.clone(), AtomicU64::new(0));
        fs.set(move |call, path| {
            let is_log = path.extension().is_some_and(|ext| ext == "log");
            let is_held = match call {
                Call::Sync => is_log,
                Call::Read if !is_log => {
                    let nth = reads.fetch_add(1, Ordering::SeqCst);
                    Rng::with_seed(seed ^ nth << 20).u8(0..3) == 0
                }
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
        state.waiting += 1;
        while state.let_go == 0 && !state.is_over {
            changed.wait(&mut state);
        }
        state.waiting -= 1;
        state.let_go = state.let_go.saturating_sub(1);
    }

    /// Lets one go on, if one waits.
    pub(crate) fn let_one_go(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        if state.waiting > state.let_go {
            state.let_go += 1;
            changed.notify_one();
        }
    }

    /// From here on nobody waits.
    pub(crate) fn let_all_go(&self) {
        let (state, changed) = &*self.0;
        state.lock().is_over = true;
        changed.notify_all();
    }
}
