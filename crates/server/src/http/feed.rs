//! The changes of a dataset for Esker's own client, which asks for them again and again. Browsers
//! and other programs follow them as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use esker::changes::Listening;
use esker::{Change, ChangeKind, Changes, ChangesFrom, Key, Record};
use esker_client::wire::{self, End, FRAMES, FeedFrom, Poll};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use utoipa::ToSchema;

use super::app::Shared;
use super::body::Document;
use super::extract::{Reads, Segments, Writes};
use super::rows;
use super::stream::streamed;
use crate::access::{Caller, Role};
use crate::live::STEP_TIME;
use crate::problem::Problem;

/// The longest wait for a change.
const LONGEST: Duration = Duration::from_secs(30);

/// An answer ends when it has this many bytes.
const ANSWER_BYTES: usize = 1 << 20;

/// A feed that is read now.
struct Reading {
    changes: Changes,
    /// Calls while it exists.
    _listening: Listening,
    out: Vec<u8>,
    found: usize,
}

impl Reading {
    /// Adds the changes that there are, for as long as a step may take.
    fn drain(mut self) -> Result<Reading, Problem> {
        let until = Instant::now() + STEP_TIME;
        while self.out.len() < ANSWER_BYTES && (self.found == 0 || Instant::now() < until) {
            let Some(change) = self.changes.next()? else {
                break;
            };
            put(&change, &mut self.out)?;
            self.found += 1;
        }
        Ok(self)
    }
}

/// Appends the frame of a change.
fn put(change: &Change, out: &mut Vec<u8>) -> Result<(), Problem> {
    let kind = match change.kind() {
        ChangeKind::Put => 0,
        ChangeKind::Expired => 2,
        _ => 1,
    };
    let position = change.position();
    let mut frame = vec![kind];
    frame.extend_from_slice(&position.history.to_le_bytes());
    frame.extend_from_slice(&position.seq.to_le_bytes());
    bytes(change.key().as_bytes(), &mut frame)?;
    record(change.record(), &mut frame)?;
    record(change.old(), &mut frame)?;
    rows::frame(wire::CHANGE, &frame, out)
}

fn bytes(of: &[u8], frame: &mut Vec<u8>) -> Result<(), Problem> {
    let length = u32::try_from(of.len());
    let length = length.map_err(|_| Problem::internal("a record has more than 4 GiB"))?;
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(of);
    Ok(())
}

fn record(of: Option<&Record>, frame: &mut Vec<u8>) -> Result<(), Problem> {
    let Some(record) = of else {
        frame.push(0);
        return Ok(());
    };
    frame.push(1);
    frame.extend_from_slice(&record.seq().to_le_bytes());
    bytes(record.json(), frame)
}

/// The changes of a dataset behind a position, or, if there are none yet, the first that comes
/// within a time. For the client of Esker; its crate describes the frames (`wire`).
#[utoipa::path(post, path = "/v1/datasets/{dataset}/feed", tag = "client",
    params(("dataset" = String, Path)),
    request_body(content = Object, description = "`{\"from\": \"oldest\", \"wait_ms\": 1000}`"),
    responses(
        (status = 200, body = String, content_type = FRAMES),
        (status = 409, body = Problem, content_type = "application/problem+json",
         description = "The position is of another store, or there are no old records"),
        (status = 410, body = Problem, content_type = "application/problem+json",
         description = "The log no longer reaches back to the position")
    ))]
pub(super) async fn poll(
    State(app): State<Shared>,
    _: Reads,
    Segments(name): Segments<String>,
    Document(poll, _): Document<Poll>,
) -> Result<Response, Problem> {
    let from = poll.from.read().map_err(Problem::bad_request)?;
    let until = Instant::now() + Duration::from_millis(poll.wait_ms).min(LONGEST);
    let ends = app.engine.lasting_request();
    let handle = app.engine.handle(&ends.stop());
    let woken = Arc::new(Notify::new());
    let wakes = woken.clone();
    let mut ended = app.live.ended();
    let turn = app.live.turn().await;
    let opened = app.engine.step(move || {
        let mut changes: Changes = handle.db().dataset::<Key>(&name)?.changes(from)?;
        if poll.with_old {
            changes = changes.with_old()?;
        }
        let listening = changes.listen(Arc::new(move || wakes.notify_one()))?;
        let reading = Reading {
            changes,
            _listening: listening,
            out: Vec::new(),
            found: 0,
        };
        reading.drain()
    });
    let mut reading = opened.await?;
    drop(turn);
    while reading.found == 0 {
        tokio::select! {
            () = woken.notified() => {}
            () = sleep_until(until) => break,
            _ = ended.wait_for(|ended| *ended) => break,
        }
        let _turn = app.live.turn().await;
        reading = app.engine.step(move || reading.drain()).await?;
    }
    let position = reading.changes.position().to_string();
    let (out, end) = (reading.out, End::default());
    let put = move |to: &mut Vec<u8>| {
        to.extend_from_slice(&out);
        rows::document(wire::JSON, &json!({"position": position}), to)
    };
    streamed(app, ends, rows::made(put, &end)?, FRAMES).await
}

/// A consumer of changes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Consume {
    consumer: String,
    /// The most bytes of log that are kept for it.
    keep: u64,
    /// Its position from now on; that which is known without it.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    from: Option<FeedFrom>,
}

/// The place of a consumer.
#[derive(Serialize, ToSchema)]
pub(super) struct Consumed {
    position: String,
    /// True if it was not known before.
    is_new: bool,
}

/// Makes a named consumer of changes, for which the log is kept, or moves its position.
#[utoipa::path(post, path = "/v1/datasets/{dataset}/feed/consumers", tag = "client",
    params(("dataset" = String, Path)), request_body = Consume,
    responses(
        (status = 200, body = Consumed),
        (status = 410, body = Problem, content_type = "application/problem+json")
    ))]
pub(super) async fn consume(
    State(app): State<Shared>,
    Writes(caller): Writes,
    Segments(name): Segments<String>,
    Document(asked, _): Document<Consume>,
) -> Result<Json<Consumed>, Problem> {
    let from = asked.from.map(|from| from.read());
    let from: Option<ChangesFrom> = from.transpose().map_err(Problem::bad_request)?;
    let shared = app.clone();
    let consumed = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&name)?;
        (shared.live.consumers).take_over(&dataset, &asked.consumer, &caller)?;
        let consumer = dataset.consume(&asked.consumer, from, asked.keep)?;
        Ok(Consumed {
            position: consumer.position().to_string(),
            is_new: consumer.is_new(),
        })
    });
    Ok(Json(consumed.await?))
}

/// A consumer, as the store knows it.
#[derive(Serialize, ToSchema)]
pub(super) struct Known {
    name: String,
    /// `None` if an earlier version made it for the whole store.
    dataset: Option<String>,
    position: String,
    keeps_bytes: u64,
    lag_bytes: u64,
    unread_seconds: Option<u64>,
}

/// The consumers of changes.
#[derive(Serialize, ToSchema)]
pub(super) struct KnownConsumers {
    consumers: Vec<Known>,
}

/// The named consumers of changes, of the datasets that the caller may read.
#[utoipa::path(get, path = "/v1/consumers", tag = "state",
    responses((status = 200, body = KnownConsumers)))]
pub(super) async fn consumers(
    State(app): State<Shared>,
    caller: Caller,
) -> Result<Json<KnownConsumers>, Problem> {
    let known = app.engine.run(move |handle| {
        let all = handle.store().change_consumers()?.into_iter();
        // One of the whole store is for those who may read all of it.
        let sees = |of: &Option<String>| match of {
            Some(dataset) => caller.sees(dataset),
            None => caller.may_all(Role::Read).is_ok(),
        };
        let seen = all.filter(|one| sees(&one.dataset));
        let consumers = seen.map(|one| Known {
            name: one.name,
            dataset: one.dataset,
            position: one.position.to_string(),
            keeps_bytes: one.keeps_bytes,
            lag_bytes: one.lag_bytes,
            unread_seconds: one.unread_for.map(|age| age.as_secs()),
        });
        Ok(KnownConsumers {
            consumers: consumers.collect(),
        })
    });
    Ok(Json(known.await?))
}

/// Forgets a consumer of changes.
#[utoipa::path(delete, path = "/v1/datasets/{dataset}/feed/consumers/{consumer}", tag = "client",
    params(("dataset" = String, Path), ("consumer" = String, Path)),
    responses(
        (status = 204, description = "Forgotten")
    ))]
pub(super) async fn forget(
    State(app): State<Shared>,
    Writes(caller): Writes,
    Segments((name, consumer)): Segments<(String, String)>,
) -> Result<StatusCode, Problem> {
    tracing::info!(target: "audit", caller = caller.name(), dataset = name, consumer, "forget consumer");
    let shared = app.clone();
    let forgotten = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&name)?;
        shared.live.consumers.forget(&dataset, &consumer, &caller)
    });
    forgotten.await?;
    Ok(StatusCode::NO_CONTENT)
}
