//! The store that is served, and the threads on which its calls run. The only module that names the
//! embedded store's type.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use esker::{Database, Error, Key, Stop};
use esker_store::{Dataset, Embedded, Store};
use parking_lot::Mutex;
use pubsub::{Broker, Config};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::gets::{Gets, QUEUED, RETRY_AFTER, too_many};
use crate::pages::Moment;
use crate::problem::Problem;

/// Calls that may run at the same time. Many of them wait for a sync, which they share.
const THREADS: usize = 64;

/// Of these, calls that may read much: the others find a thread beside them.
const SEARCHES: usize = 48;

/// The store, its broker, and their threads.
pub(crate) struct Engine {
    db: Database,
    folder: PathBuf,
    /// Opened when it is first used: a store without publications has no trees for them.
    broker: Mutex<Option<Arc<Broker>>>,
    gets: Gets,
    threads: Arc<Semaphore>,
    searches: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// How long a call may take.
    most: Duration,
}

/// A handle of the store whose calls end with the request that they are made for.
pub(crate) struct Handle {
    db: Database,
    store: Embedded,
    stop: Stop,
}

impl Handle {
    /// The same records, read by the calls of this request.
    pub(crate) fn reads(&self, moment: &Moment) -> Moment {
        moment.with_stop(&self.stop)
    }

    /// The operations of a store.
    pub(crate) fn store(&self) -> &dyn Store {
        &self.store
    }

    /// A dataset.
    ///
    /// # Errors
    /// 404; any read error.
    pub(crate) fn dataset(&self, name: &str) -> Result<Box<dyn Dataset>, Problem> {
        Ok(self.store.dataset(name)?)
    }

    /// A dataset now, or in a named snapshot.
    ///
    /// # Errors
    /// 404; any read error.
    pub(crate) fn moment(&self, name: &str, snapshot: Option<&str>) -> Result<Moment, Problem> {
        Ok(match snapshot {
            Some(at) => {
                let kept = self.db.kept_snapshot(at)?;
                let unknown = || {
                    let name = at.to_string();
                    Problem::from(Error::UnknownSnapshot { name })
                };
                // Whether there is a snapshot without its datasets is for those who see all.
                (kept.dataset::<Key>(name))
                    .map_err(|error| Problem::from(error).hiding(unknown()))?
            }
            None => self.db.dataset::<Key>(name)?.snapshot(),
        })
    }

    /// The embedded store itself, for batches over datasets.
    pub(crate) fn db(&self) -> &Database {
        &self.db
    }
}

/// Ends the calls of a request when its client has gone.
pub(crate) struct EndWithRequest(Stop);

impl EndWithRequest {
    pub(crate) fn stop(&self) -> Stop {
        self.0.clone()
    }
}

impl Drop for EndWithRequest {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// One more call that waits for a thread.
struct Waiting<'e>(&'e AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call that gives its permit back when it has ended, and not before, even if its client has
/// gone.
fn with<T>(
    permit: OwnedSemaphorePermit,
    call: impl FnOnce() -> Result<T, Problem>,
) -> impl FnOnce() -> Result<T, Problem> {
    move || {
        let done = call();
        drop(permit);
        done
    }
}

async fn acquired(permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    let permit = permits.clone().acquire_owned().await;
    permit.map_err(|_| Problem::busy("the server ends", RETRY_AFTER))
}

impl Engine {
    pub(crate) fn new(db: Database, folder: &Path, most: Duration) -> Engine {
        Engine {
            db,
            folder: folder.to_path_buf(),
            broker: Mutex::new(None),
            gets: Gets::default(),
            threads: Arc::new(Semaphore::new(THREADS)),
            searches: Arc::new(Semaphore::new(SEARCHES)),
            waiting: AtomicUsize::new(0),
            most,
        }
    }

    /// The store's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends calls when it is dropped, and when the time of a request has passed.
    pub(crate) fn request(&self) -> EndWithRequest {
        EndWithRequest(Stop::after(self.most))
    }

    /// Ends calls when it is dropped.
    pub(crate) fn lasting_request(&self) -> EndWithRequest {
        EndWithRequest(Stop::new())
    }

    /// A handle whose calls end with `stop`.
    pub(crate) fn handle(&self, stop: &Stop) -> Handle {
        let db = self.db.with_stop(stop);
        Handle {
            store: Embedded::new(db.clone()),
            db,
            stop: stop.clone(),
        }
    }

    /// The broker of the store's publications. Must be called on a thread of the pool.
    ///
    /// # Errors
    /// Any error of the store.
    pub(crate) fn broker(&self) -> Result<Arc<Broker>, Problem> {
        if let Some(broker) = &*self.broker.lock() {
            return Ok(broker.clone());
        }
        // Made without the lock: it writes. Two that do so at the same time make the same.
        let made = Arc::new(Broker::create_or_open(&self.db, Config::new())?);
        Ok(self.broker.lock().get_or_insert(made).clone())
    }

    /// Runs a call for a request on a thread of the pool: the call ends when the client has gone,
    /// or the time of a request has passed.
    ///
    /// # Errors
    /// Those of the call; 503 if too many are waiting.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Handle) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let request = self.request();
        let handle = self.handle(&request.0);
        self.step(move || call(&handle)).await
    }

    /// As [`Engine::run`], for a call that reads a record.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub(crate) async fn get<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Handle) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let request = self.request();
        let handle = self.handle(&request.0);
        self.gets.run(move || call(&handle)).await
    }

    /// As [`Engine::run`], for a call that may read much.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub(crate) async fn search<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Handle) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let request = self.request();
        let handle = self.handle(&request.0);
        self.search_step(move || call(&handle)).await
    }

    /// As [`Engine::step`], for a call that may read much.
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub(crate) async fn search_step<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let search = self.wait(&self.searches).await?;
        self.step(with(search, call)).await
    }

    /// Runs a call on a thread of the pool.
    ///
    /// # Errors
    /// Those of the call; 503 if too many are waiting.
    pub(crate) async fn step<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let thread = self.wait(&self.threads).await?;
        self.on(thread, call).await
    }

    /// Runs a further step of what has begun: it waits for a thread however many wait, and may take
    /// as long as a request. Beyond that it is cancelled.
    ///
    /// # Errors
    /// Those of the call; 504.
    pub(crate) async fn next_step<T: Send + 'static>(
        &self,
        stop: &Stop,
        call: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let searched = async {
            let search = acquired(&self.searches).await?;
            let thread = acquired(&self.threads).await?;
            self.on(thread, with(search, call)).await
        };
        match timeout(self.most, searched).await {
            Ok(done) => done,
            Err(_) => {
                stop.cancel();
                Err(Error::Cancelled { deadline: true }.into())
            }
        }
    }

    async fn on<T: Send + 'static>(
        &self,
        thread: OwnedSemaphorePermit,
        call: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let run = spawn_blocking(move || {
            let result = call();
            drop(thread);
            result
        });
        // A panic of the call ends the call alone.
        (run.await).map_err(|_| Problem::internal("the call of the store has failed"))?
    }

    /// Runs a call on a thread of the pool, however many wait and as long as it takes: for streams,
    /// which are bounded themselves, and keep what they have meanwhile.
    ///
    /// # Errors
    /// 500 if the call panics; 503 at the end of the server.
    pub(crate) async fn step_in_turn<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let thread = acquired(&self.threads).await?;
        self.on(thread, || Ok(call())).await
    }

    /// Waits for one of the permits, for as long as a request may take.
    async fn wait(&self, permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
        if let Ok(permit) = permits.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let _waiting = Waiting(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUED {
            return Err(too_many());
        }
        match timeout(self.most, acquired(permits)).await {
            Ok(permit) => permit,
            Err(_) => Err(Problem::busy("no thread became free in time", RETRY_AFTER)),
        }
    }

    /// The calls that wait for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed) + self.gets.waiting()
    }

    /// The calls that run.
    pub(crate) fn running(&self) -> usize {
        let busy = THREADS.saturating_sub(self.threads.available_permits());
        busy + self.gets.running()
    }

    /// Closes the store: everything that was written is durable then. Later calls fail.
    ///
    /// # Errors
    /// Any write error.
    pub(crate) fn close(&self) -> esker::Result<()> {
        self.db.with_stop(&Stop::new()).close()
    }
}
