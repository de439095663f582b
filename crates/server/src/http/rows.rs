//! Answers as frames ([`esker_client::wire`]): for clients that need keys, sequence numbers and
//! plans beside the records. An error behind the first rows is a frame, too.
//!
//! Most answers are made in steps. A few operations of the store call back for each row instead:
//! these hold a thread while their client takes the rows, so at most [`CALLING_BACK`] run at the
//! same time.

use std::ops::ControlFlow;
use std::sync::LazyLock;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use esker::{Explain, Key, Record};
use esker_client::wire::{self, End, FRAMES};
use esker_store::Answer;
use futures_util::stream;
use serde::Serialize;
use serde_json::json;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::app::Shared;
use super::stream::{STEP, Steps};
use crate::engine::{EndWithRequest, Handle};
use crate::problem::Problem;

/// The answers at the same time that hold a thread while their client takes them.
const CALLING_BACK: usize = 16;

/// The chunks of an answer that may wait for its client.
const WAITING: usize = 2;

/// What a client waits for when there are too many such answers, in seconds.
const RETRY_AFTER: u32 = 2;

static CALLS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(CALLING_BACK));

/// Appends a frame.
pub(super) fn frame(kind: u8, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
    wire::put_frame(kind, &[bytes], out).map_err(Problem::internal)
}

/// Appends a frame with a document.
pub(super) fn document(kind: u8, of: &impl Serialize, out: &mut Vec<u8>) -> Result<(), Problem> {
    let json = serde_json::to_vec(of).map_err(|error| Problem::internal(error.to_string()))?;
    frame(kind, &json, out)
}

/// Appends the frame of a record.
pub(super) fn record(record: &Record, out: &mut Vec<u8>) -> Result<(), Problem> {
    wire::put_record(record, out).map_err(Problem::internal)
}

/// Appends the frame of a key.
fn key(key: &Key, out: &mut Vec<u8>) -> Result<(), Problem> {
    frame(wire::KEY, key.as_bytes(), out)
}

type PutRow<T> = fn(&T, &mut Vec<u8>) -> Result<(), Problem>;

/// The frames of an answer that is found while it is read.
pub(super) struct Found<T> {
    answer: Box<dyn Answer<T>>,
    put: PutRow<T>,
    has_begun: bool,
}

impl Found<Record> {
    pub(super) fn records(answer: Box<dyn Answer<Record>>) -> Box<dyn Steps> {
        Found::of(answer, record)
    }
}

impl Found<Key> {
    pub(super) fn keys(answer: Box<dyn Answer<Key>>) -> Box<dyn Steps> {
        Found::of(answer, key)
    }
}

impl<T: 'static> Found<T> {
    fn of(answer: Box<dyn Answer<T>>, put: PutRow<T>) -> Box<dyn Steps> {
        Box::new(Found {
            answer,
            put,
            has_begun: false,
        })
    }

    fn row(&mut self, out: &mut Vec<u8>) -> Result<bool, Problem> {
        if !self.has_begun {
            self.has_begun = true;
            document(wire::HEAD, &self.answer.explain(), out)?;
        }
        if let Some(row) = self.answer.next().transpose()? {
            (self.put)(&row, out)?;
            return Ok(true);
        }
        let end = End {
            explain: self.answer.explain(),
            token: self.answer.token(),
            next: None,
        };
        document(wire::END, &end, out)?;
        Ok(false)
    }
}

impl<T: 'static> Steps for Found<T> {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Problem> {
        let is_first = !self.has_begun;
        match self.row(out) {
            Err(problem) if !is_first => {
                document(wire::PROBLEM, &json!(problem), out)?;
                Ok(false)
            }
            step => step,
        }
    }
}

/// An answer without a plan, of which each step makes a part.
pub(super) fn each<T: Send + 'static>(
    parts: Vec<T>,
    put: impl FnMut(T, &mut Vec<u8>) -> Result<(), Problem> + Send + 'static,
) -> Box<dyn Steps> {
    Box::new(Each {
        parts: parts.into_iter(),
        put,
        has_begun: false,
    })
}

struct Each<T, F> {
    parts: std::vec::IntoIter<T>,
    put: F,
    has_begun: bool,
}

impl<T, F> Steps for Each<T, F>
where
    T: Send + 'static,
    F: FnMut(T, &mut Vec<u8>) -> Result<(), Problem> + Send + 'static,
{
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Problem> {
        if !self.has_begun {
            self.has_begun = true;
            document(wire::HEAD, &Explain::default(), out)?;
        }
        let Some(part) = self.parts.next() else {
            document(wire::END, &End::default(), out)?;
            return Ok(false);
        };
        let before = out.len();
        match (self.put)(part, out) {
            Ok(()) => Ok(true),
            Err(problem) => {
                out.truncate(before);
                document(wire::PROBLEM, &json!(problem), out)?;
                Ok(false)
            }
        }
    }
}

/// Frames that were made before.
struct Made(Option<Vec<u8>>);

impl Steps for Made {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Problem> {
        if let Some(made) = self.0.take() {
            out.extend_from_slice(&made);
        }
        Ok(false)
    }
}

/// An answer that is in memory: its rows, and its end.
pub(super) fn made(
    rows: impl FnOnce(&mut Vec<u8>) -> Result<(), Problem>,
    end: &End,
) -> Result<Box<dyn Steps>, Problem> {
    let mut out = Vec::new();
    document(wire::HEAD, &end.explain, &mut out)?;
    rows(&mut out)?;
    document(wire::END, end, &mut out)?;
    Ok(Box::new(Made(Some(out))))
}

/// Takes the rows of an operation that calls back.
pub(super) struct Sink {
    out: Vec<u8>,
    to: mpsc::Sender<Sent>,
    problem: Option<Problem>,
    /// The status of the answer is known: a later problem is a frame.
    has_sent: bool,
    /// How long a client may take nothing.
    idle: Duration,
    has_gone: bool,
}

/// What goes from the operation to its answer.
enum Sent {
    Bytes(Vec<u8>),
    /// It failed before its first row.
    Failed(Problem),
}

impl Sink {
    /// Adds a row; breaks when the client has gone.
    pub(super) fn add(
        &mut self,
        row: impl FnOnce(&mut Vec<u8>) -> Result<(), Problem>,
    ) -> ControlFlow<()> {
        if let Err(problem) = row(&mut self.out) {
            self.problem = Some(problem);
            return ControlFlow::Break(());
        }
        if self.out.len() < STEP {
            return ControlFlow::Continue(());
        }
        self.send()
    }

    /// Sends what was added.
    pub(super) fn send(&mut self) -> ControlFlow<()> {
        let bytes = std::mem::take(&mut self.out);
        self.has_sent = true;
        if self.has_gone {
            return ControlFlow::Break(());
        }
        // A client that takes nothing would keep the thread, and one of the few permits.
        let send = timeout(self.idle, self.to.send(Sent::Bytes(bytes)));
        match Runtime::current().block_on(send) {
            Ok(Ok(())) => ControlFlow::Continue(()),
            Ok(Err(_)) | Err(_) => {
                self.has_gone = true;
                ControlFlow::Break(())
            }
        }
    }
}

/// Answers with the rows that an operation passes to its sink, and its plan.
pub(super) async fn called_back(
    app: Shared,
    ends: EndWithRequest,
    work: impl FnOnce(&Handle, &mut Sink) -> Result<Explain, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    let call = CALLS.try_acquire();
    let call = call.map_err(|_| Problem::busy("too many such answers are read", RETRY_AFTER))?;
    let (to, mut from) = mpsc::channel(WAITING);
    let handle = app.engine.handle(&ends.stop());
    let idle = app.limits.idle;
    let task = async move {
        let failed = to.clone();
        let run = app.engine.step(move || {
            let mut sink = Sink {
                out: Vec::new(),
                to,
                problem: None,
                has_sent: false,
                idle,
                has_gone: false,
            };
            document(wire::HEAD, &Explain::default(), &mut sink.out)?;
            let result = work(&handle, &mut sink);
            let result = match sink.problem.take() {
                Some(problem) => Err(problem),
                None => result,
            };
            match result {
                Ok(explain) => {
                    let end = End {
                        explain,
                        ..End::default()
                    };
                    document(wire::END, &end, &mut sink.out)?;
                }
                Err(problem) if sink.has_sent => {
                    document(wire::PROBLEM, &json!(problem), &mut sink.out)?;
                }
                Err(problem) => return Err(problem),
            }
            // A client that has gone does not need it.
            let _ = sink.send();
            Ok(())
        });
        if let Err(problem) = run.await {
            // A client that has gone does not need it.
            let _ = failed.send(Sent::Failed(problem)).await;
        }
        drop(call);
    };
    tokio::spawn(task);
    let first = match from.recv().await {
        Some(Sent::Bytes(first)) => first,
        Some(Sent::Failed(problem)) => return Err(problem),
        None => return Err(Problem::internal("the call of the store has failed")),
    };
    let state = (Some(first), from, ends);
    let chunks = stream::unfold(state, |(first, mut from, ends)| async move {
        if let Some(first) = first {
            return Some((Ok(Bytes::from(first)), (None, from, ends)));
        }
        match from.recv().await? {
            Sent::Bytes(bytes) => Some((Ok(Bytes::from(bytes)), (None, from, ends))),
            Sent::Failed(problem) => {
                let broken = std::io::Error::other(problem.detail().to_string());
                Some((Err(broken), (None, from, ends)))
            }
        }
    });
    let of_rows = [(header::CONTENT_TYPE, FRAMES)];
    Ok((of_rows, Body::from_stream(chunks)).into_response())
}
