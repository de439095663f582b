//! Reads of single records: calls so short that to wake a thread for each costs more than the call.
//!
//! Calls are queued, and a thread that is awake does one after another until none is left. A call
//! may be behind one that waits for a disk: so a watch looks every [`PATIENCE`], and begins one
//! more thread if a call is queued that was so when it looked before. A timer of its own for each
//! call would cost more than the rest of the queue.
//!
//! **Invariants.** While calls are queued, at least one thread does them or is about to begin.
//! While there are threads, there is a watch.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::yield_now;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::problem::Problem;

/// The most threads.
const THREADS: usize = 16;

/// The most calls that wait for a thread: so many of these, and so many others.
pub(crate) const QUEUED: usize = 1024;

/// How long a call may wait before one more thread begins.
const PATIENCE: Duration = Duration::from_millis(1);

/// How often a thread without a call lets others run before it ends.
const YIELDS: usize = 4;

/// After how many seconds a client should come back when there are too many calls.
pub(crate) const RETRY_AFTER: u32 = 1;

/// The problem of a call beyond [`QUEUED`].
pub(crate) fn too_many() -> Problem {
    Problem::busy("too many requests wait for the store", RETRY_AFTER)
}

type Call = Box<dyn FnOnce() + Send>;

/// Short calls, and the threads that do them.
#[derive(Default)]
pub(crate) struct Gets {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Call>,
    threads: usize,
    /// The calls that threads have taken.
    taken: u64,
    is_watched: bool,
}

impl State {
    fn take(&mut self) -> Option<Call> {
        let call = self.queue.pop_front()?;
        self.taken += 1;
        Some(call)
    }
}

impl Gets {
    /// Runs a call on one of the threads.
    ///
    /// # Errors
    /// Those of the call; 503 if too many are waiting; 500 if it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (answer, answered) = oneshot::channel();
        self.queue(Box::new(move || {
            // A client that has gone takes no answer.
            let _ = answer.send(call());
        }))?;
        let failed = |_| Err(Problem::internal("the call of the store has failed"));
        answered.await.unwrap_or_else(failed)
    }

    fn queue(&self, call: Call) -> Result<(), Problem> {
        let mut state = self.state.lock();
        if state.queue.len() >= QUEUED {
            return Err(too_many());
        }
        state.queue.push_back(call);
        let is_first = state.threads == 0;
        let is_watched = std::mem::replace(&mut state.is_watched, true);
        let thread = is_first.then(|| Thread::counted(&self.state, &mut state));
        drop(state);
        if let Some(thread) = thread {
            spawn_blocking(move || thread.run());
        }
        if !is_watched {
            tokio::spawn(watch(self.state.clone()));
        }
        Ok(())
    }

    /// The calls that wait for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// The threads.
    pub(crate) fn running(&self) -> usize {
        self.state.lock().threads
    }
}

/// Begins threads for calls that wait, until there are no threads.
async fn watch(shared: Arc<Mutex<State>>) {
    // The calls that had been taken or were queued when it looked before.
    let mut known = 0;
    loop {
        sleep(PATIENCE).await;
        let mut state = shared.lock();
        let has_waited = !state.queue.is_empty() && state.taken < known;
        if state.threads == 0 && state.queue.is_empty() {
            state.is_watched = false;
            return;
        }
        known = state.taken + state.queue.len() as u64;
        if has_waited && state.threads < THREADS {
            let thread = Thread::counted(&shared, &mut state);
            drop(state);
            spawn_blocking(move || thread.run());
        }
    }
}

/// A thread that does calls. It is counted until it finds no more, or is dropped before.
struct Thread {
    state: Arc<Mutex<State>>,
    is_counted: bool,
}

impl Thread {
    /// A thread that is counted from now on. It is begun without the lock: where none can begin any
    /// more, it is dropped at once.
    fn counted(shared: &Arc<Mutex<State>>, state: &mut State) -> Thread {
        state.threads += 1;
        Thread {
            state: shared.clone(),
            is_counted: true,
        }
    }

    fn run(mut self) {
        while let Some(call) = self.next() {
            // A panic ends the call alone: what it has of the engine it gives back as it unwinds.
            let _ = catch_unwind(AssertUnwindSafe(call));
        }
    }

    /// The next call. Without one the thread is no longer counted, under the same lock: the next
    /// request begins a thread.
    fn next(&mut self) -> Option<Call> {
        for _ in 0..YIELDS {
            if let Some(call) = self.state.lock().take() {
                return Some(call);
            }
            // While requests are being read, the next call is about to come.
            yield_now();
        }
        let mut state = self.state.lock();
        let next = state.take();
        if next.is_none() {
            state.threads = state.threads.saturating_sub(1);
            self.is_counted = false;
        }
        next
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.is_counted {
            let mut state = self.state.lock();
            state.threads = state.threads.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use axum::http::StatusCode;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn each_call_has_its_own_answer() {
        runtime().block_on(async {
            let gets = Arc::new(Gets::default());
            let calls = (0..500).map(|number| {
                let gets = gets.clone();
                tokio::spawn(async move { gets.run(move || Ok(number)).await })
            });
            for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
                assert_eq!(call.await.unwrap().unwrap(), number);
            }
            while gets.running() > 0 {
                tokio::time::sleep(PATIENCE).await;
            }
            assert_eq!(gets.waiting(), 0);
        });
    }

    #[test]
    fn a_call_does_not_wait_for_one_that_waits() {
        runtime().block_on(async {
            let gets = Arc::new(Gets::default());
            let (go, goes) = mpsc::channel::<()>();
            let slow = {
                let gets = gets.clone();
                tokio::spawn(async move { gets.run(move || Ok(goes.recv().is_ok())).await })
            };
            while gets.running() == 0 || gets.waiting() > 0 {
                tokio::time::sleep(PATIENCE).await;
            }
            assert_eq!(gets.run(|| Ok(7)).await.unwrap(), 7);
            go.send(()).unwrap();
            assert!(slow.await.unwrap().unwrap());
        });
    }

    #[test]
    fn a_call_that_panics_ends_alone() {
        runtime().block_on(async {
            let gets = Gets::default();
            let failed = gets.run::<()>(|| panic!("a call that panics")).await;
            assert_eq!(
                failed.unwrap_err().status(),
                StatusCode::INTERNAL_SERVER_ERROR
            );
            assert_eq!(gets.run(|| Ok(1)).await.unwrap(), 1);
        });
    }
}
