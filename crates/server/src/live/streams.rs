//! What streams of events share: the end of the server, how many there are of each caller, and
//! whose turn it is to read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use esker::{Dataset, Error, Key};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::consumers::Consumers;
use super::recent::{Follower, Recent};
use crate::problem::Problem;

/// Streams that may read at the same time.
const TURNS: usize = 8;

/// After how many seconds a caller with too many streams should come back.
const RETRY_AFTER: u32 = 10;

/// How long a stream may take to end with the server before its connection is cut: its client does
/// not read.
const TO_END: Duration = Duration::from_secs(2);

/// What streams share.
pub(crate) struct Live {
    has_ended: watch::Sender<bool>,
    turns: Arc<Semaphore>,
    open: Arc<Open>,
    listeners: Arc<AtomicUsize>,
    pub(crate) consumers: Consumers,
    /// The recent changes of the datasets that have streams, by their numbers.
    recent: Mutex<HashMap<u64, Weak<Recent>>>,
}

/// A subscription to topics over HTTP, as long as it lives.
pub(crate) struct Listener(Arc<AtomicUsize>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// The open streams of each caller.
struct Open {
    by_caller: Mutex<HashMap<String, usize>>,
    /// The most of one caller.
    most: usize,
    all: watch::Sender<usize>,
}

/// A stream of a caller, as long as it lives.
pub(crate) struct Slot {
    open: Arc<Open>,
    caller: String,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut by_caller = self.open.by_caller.lock();
        if let Some(count) = by_caller.get_mut(&self.caller) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                by_caller.remove(&self.caller);
            }
        }
        drop(by_caller);
        self.open
            .all
            .send_modify(|all| *all = all.saturating_sub(1));
    }
}

/// Whether there was a stream on a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connection(Arc<AtomicBool>);

impl Live {
    /// `most` streams for each caller.
    pub(crate) fn new(most: usize) -> Live {
        Live {
            has_ended: watch::Sender::new(false),
            turns: Arc::new(Semaphore::new(TURNS)),
            open: Arc::new(Open {
                by_caller: Mutex::default(),
                most,
                all: watch::Sender::new(0),
            }),
            listeners: Arc::default(),
            consumers: Consumers::default(),
            recent: Mutex::default(),
        }
    }

    /// Counts one more subscription to topics.
    pub(crate) fn listen(&self) -> Listener {
        self.listeners.fetch_add(1, Ordering::Release);
        Listener(self.listeners.clone())
    }

    /// True if a client listens to topics over HTTP: it receives what is stored.
    pub(crate) fn has_listeners(&self) -> bool {
        self.listeners.load(Ordering::Acquire) > 0
    }

    /// Counts one more stream of a caller.
    ///
    /// # Errors
    /// 429 if it has as many as it may have.
    pub(crate) fn open(&self, caller: &str, connection: &Connection) -> Result<Slot, Problem> {
        let mut by_caller = self.open.by_caller.lock();
        let count = by_caller.get(caller).copied().unwrap_or(0);
        if count >= self.open.most {
            let most = self.open.most;
            let detail = format!("`{caller}` has {most} streams open, and may have no more");
            return Err(Problem::too_many(detail, RETRY_AFTER));
        }
        by_caller.insert(caller.to_string(), count + 1);
        drop(by_caller);
        connection.0.store(true, Ordering::Relaxed);
        self.open.all.send_modify(|all| *all += 1);
        Ok(Slot {
            open: self.open.clone(),
            caller: caller.to_string(),
        })
    }

    /// The streams that are open.
    pub(crate) fn streams(&self) -> usize {
        *self.open.all.borrow()
    }

    /// The recent changes of a dataset, which are read once for all of its streams. If there were
    /// none, also what reads them, which the caller has to run. The reads end with this handle of
    /// the dataset. Calls the store.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn recent(
        &self,
        dataset: &Dataset<Key>,
    ) -> Result<(Arc<Recent>, Option<Follower>), Error> {
        let number = dataset.number();
        let known = self.known_recent(number);
        if let Some(known) = known {
            return Ok((known, None));
        }
        let (recent, follower) = Recent::of(dataset)?;
        let mut all = self.recent.lock();
        all.retain(|_, recent| recent.strong_count() > 0);
        // Another stream may have been faster; then there are two, of which this one goes soon.
        all.insert(number, Arc::downgrade(&recent));
        Ok((recent, Some(follower)))
    }

    fn known_recent(&self, number: u64) -> Option<Arc<Recent>> {
        let known = self.recent.lock().get(&number)?.upgrade()?;
        Some(known).filter(|known| !known.has_ended())
    }

    /// Waits for the turn to read; it lasts until the permit is dropped.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().acquire_owned().await.ok()
    }

    /// Becomes true at the end of the server.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.has_ended.subscribe()
    }

    /// Ends all streams.
    pub(crate) fn end(&self) {
        self.has_ended.send_replace(true);
    }

    /// Waits until no stream is open, at most a few seconds.
    pub(crate) async fn all_ended(&self) {
        let mut all = self.open.all.subscribe();
        let none = all.wait_for(|all| *all == 0);
        if tokio::time::timeout(2 * TO_END, none).await.is_err() {
            tracing::warn!("streams were still open at the end");
        }
    }

    /// Returns some time after the end of the server if there was a stream on this connection: its
    /// client does not read what was sent already, so that the connection cannot end.
    pub(crate) async fn is_stuck(&self, connection: &Connection) {
        let mut ended = self.ended();
        // An error would mean that the server has gone.
        let _ = ended.wait_for(|ended| *ended).await;
        tokio::time::sleep(TO_END).await;
        if !connection.0.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}
