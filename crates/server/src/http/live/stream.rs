//! A stream of events: the task that waits for a client, and for what is new, and lets the source
//! read on the engine's threads.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use esker::Stop;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::super::app::Shared;
use crate::access::Caller;
use crate::engine::EndWithRequest;
use crate::live::{Connection, Event, Next, Slot, Source, Step};
use crate::problem::Problem;

/// How often a stream without events shows that it lives.
const ALIVE: Duration = Duration::from_secs(15);

/// A step that runs: the source, which it gives back, and what it found.
type Running = Pin<Box<dyn Future<Output = Result<(Box<dyn Source>, Step), Problem>> + Send>>;

/// What a stream has for its client.
pub(super) enum Item {
    Events(Vec<Event>),
    /// Nothing for a while; the place where a client continues.
    Alive(Option<String>),
    /// The last item, after an error.
    Failed(Problem),
    /// The last item; true at the end of the server.
    Ended(bool),
}

/// Reads a source for one client.
pub(super) struct Stream {
    app: Shared,
    source: Option<Box<dyn Source>>,
    running: Option<Running>,
    next: Next,
    /// The events of the first step.
    first: Vec<Event>,
    woken: Arc<Notify>,
    alive: Instant,
    ended: watch::Receiver<bool>,
    /// Dropped before the source is read for the last time.
    _listening: Vec<esker::changes::Listening>,
    _slot: Slot,
    _ends: EndWithRequest,
}

impl Stream {
    /// Opens a source and makes its first step, so that a request that fails at once has its
    /// status. `open` runs on the engine's threads; its reads end with the stream.
    ///
    /// # Errors
    /// 429 if the caller has too many streams; those of `open` and of the first step.
    pub(super) async fn open<S: Source>(
        app: Shared,
        caller: &Caller,
        connection: &Connection,
        open: impl FnOnce(&Shared, &Stop) -> Result<S, Problem> + Send + 'static,
    ) -> Result<Stream, Problem> {
        let slot = app.live.open(caller.name(), connection)?;
        let ends = app.engine.lasting_request();
        let (stop, shared) = (ends.stop(), app.clone());
        let woken = Arc::new(Notify::new());
        let wakes = woken.clone();
        let first = app.engine.step(move || {
            let mut source: Box<dyn Source> = Box::new(open(&shared, &stop)?);
            // Before the first look: what comes after it wakes the stream.
            let listening = source.listen(Arc::new(move || wakes.notify_one()))?;
            let place = source.place();
            let step = source.step();
            Ok((source, listening, place, step))
        });
        let (source, listening, place, step) = first.await?;
        let next = match (step.next, step.events.is_empty()) {
            (Next::Fail(problem), true) => return Err(problem),
            (next, _) => next,
        };
        let ended = app.live.ended();
        Ok(Stream {
            app,
            source: Some(source),
            running: None,
            next,
            first: step.events,
            woken,
            alive: Instant::now() + ALIVE,
            ended,
            _listening: listening,
            _slot: slot,
            _ends: ends,
        }
        .beginning(place))
    }

    /// An event of no name and no data says where the stream begins.
    fn beginning(mut self, place: Option<String>) -> Stream {
        if let Some(id) = place {
            let (name, data) = ("", Vec::new());
            self.first.insert(0, Event { id, name, data });
        }
        self
    }

    /// True if the first step found nothing, and there is nothing to come.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.next, Next::End) && self.first.iter().all(|event| event.name.is_empty())
    }

    /// The next item. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Item {
        loop {
            if !self.first.is_empty() {
                return Item::Events(std::mem::take(&mut self.first));
            }
            if *self.ended.borrow() {
                self.next = Next::End;
                return Item::Ended(true);
            }
            if let Some(running) = &mut self.running {
                let done = tokio::select! {
                    done = running => done,
                    _ = self.ended.changed() => continue,
                };
                self.running = None;
                match done {
                    Ok((source, step)) => {
                        self.source = Some(source);
                        self.next = step.next;
                        if !step.events.is_empty() {
                            self.alive = Instant::now() + ALIVE;
                            return Item::Events(step.events);
                        }
                    }
                    Err(problem) => self.next = Next::Fail(problem),
                }
                continue;
            }
            match &self.next {
                Next::More => self.read(),
                Next::Wait(until) => {
                    let until = until.map_or(self.alive, Instant::from_std);
                    tokio::select! {
                        () = self.woken.notified() => self.read(),
                        () = sleep_until(until.min(self.alive)) => {
                            if self.alive <= Instant::now() {
                                self.alive = Instant::now() + ALIVE;
                                return Item::Alive(self.place());
                            }
                            self.read();
                        }
                        _ = self.ended.changed() => {}
                    }
                }
                Next::End => return Item::Ended(false),
                Next::Fail(_) => {
                    let next = std::mem::replace(&mut self.next, Next::End);
                    if let Next::Fail(problem) = next {
                        return Item::Failed(problem);
                    }
                }
            }
        }
    }

    /// Becomes true at the end of the server.
    pub(super) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.clone()
    }

    fn place(&self) -> Option<String> {
        self.source.as_ref().and_then(|source| source.place())
    }

    /// Begins a step.
    fn read(&mut self) {
        let Some(mut source) = self.source.take() else {
            self.next = Next::End;
            return;
        };
        let app = self.app.clone();
        self.running = Some(Box::pin(async move {
            let _turn = app.live.turn().await;
            let step = move || {
                let step = source.step();
                (source, step)
            };
            app.engine.step_in_turn(step).await
        }));
    }
}
