//! Reads of single records: calls so short that to wake a thread for each costs more than the call.
//!
//! Calls are queued, and a thread that is awake does one after another until none is left. A call
//! may be behind one that waits for a disk: so a request that has waited for [`PATIENCE`] asks for
//! one more thread, and does so again, after twice as long each time.
//!
//! **Invariant.** While calls are queued, at least one thread does them or is about to begin.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::yield_now;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::problem::Problem;

/// The most threads.
const THREADS: usize = 16;

/// The most calls that wait for a thread: so many of these, and so many others.
pub(crate) const QUEUED: usize = 1024;

/// How long a request waits before it asks for one more thread.
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
        let (answer, mut answered) = oneshot::channel();
        self.queue(Box::new(move || {
            // A client that has gone takes no answer.
            let _ = answer.send(call());
        }))?;
        let mut patience = PATIENCE;
        loop {
            match timeout(patience, &mut answered).await {
                Ok(Ok(result)) => return result,
                Ok(Err(_)) => return Err(Problem::internal("the call of the store has failed")),
                Err(_) => self.ask_for_thread(),
            }
            patience *= 2;
        }
    }

    fn queue(&self, call: Call) -> Result<(), Problem> {
        let mut state = self.state.lock();
        if state.queue.len() >= QUEUED {
            return Err(too_many());
        }
        state.queue.push_back(call);
        if state.threads == 0 {
            self.begin_thread(&mut state);
        }
        Ok(())
    }

    fn ask_for_thread(&self) {
        let mut state = self.state.lock();
        if !state.queue.is_empty() && state.threads < THREADS {
            self.begin_thread(&mut state);
        }
    }

    fn begin_thread(&self, state: &mut State) {
        state.threads += 1;
        let thread = Thread {
            state: self.state.clone(),
            is_counted: true,
        };
        spawn_blocking(move || thread.run());
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

/// A thread that does calls. It is counted until it finds no more, or is dropped before.
struct Thread {
    state: Arc<Mutex<State>>,
    is_counted: bool,
}

impl Thread {
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
            if let Some(call) = self.state.lock().queue.pop_front() {
                return Some(call);
            }
            // While requests are being read, the next call is about to come.
            yield_now();
        }
        let mut state = self.state.lock();
        let next = state.queue.pop_front();
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
