//! The changes of a dataset.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use esker::changes::{Listening, Wake};
use esker::units::parse_size;
use esker::{ChangesFrom, Error, ErrorKind, Expr, Key};
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::app::Shared;
use super::super::extract::{Params, Reads, Segments};
use super::begin::{Begin, begin, duration, event_id, last_event_id};
use super::follow;
use super::sse;
use super::stream::Stream;
use crate::access::Role;
use crate::live::{
    Connection, Event, Feed, Found, Joining, Next, STEP_TIME, Source, Step, condition,
};
use crate::problem::Problem;

/// Which changes a client reads.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in super::super) struct ChangesParams {
    /// Where to begin: `now` (as without it), `oldest` in the log, or behind the write with this
    /// sequence number, behind the event with this id, or at this position. `Last-Event-ID`
    /// prevails. Of a consumer: where a new one begins.
    from: Option<String>,
    /// Only changes whose new record meets this condition; with `old`, also those whose old record
    /// did. Without `old` there are no deletions then.
    #[serde(rename = "where")]
    #[param(rename = "where")]
    condition: Option<String>,
    /// Reads for the consumer of this name, from its position on, and keeps the log for it. Needs
    /// the role write.
    consumer: Option<String>,
    /// With `consumer`: how much log is kept for it at most, as in `1G` (which a new one has).
    keep: Option<String>,
    /// With `consumer`: shares it with other connections. Each change goes to one of them, and is
    /// sent again, to any, if it is not acknowledged within this time, as in `30s`.
    deadline: Option<String>,
    /// The record that each change replaced, too; of datasets with `old_records`.
    #[serde(default)]
    old: bool,
}

/// The changes of a dataset, in the order of their commits, as server-sent events. `id` is the
/// position behind the change, `event` is `put`, `delete` or `expire`, and `data` is
/// `{"seq", "change", "key", "record", "old"}`. A stream that cannot go on ends with `event: error`
/// and a problem.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/changes", tag = "live",
    params(
        ("dataset" = String, Path), ChangesParams,
        ("last-event-id" = Option<String>, Header,
         description = "The id of the last event received: the stream continues behind it")
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream"),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 403, body = Problem, content_type = "application/problem+json"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json",
         description = "The dataset has no old records; an event of another dataset; another history; the consumer is in use"),
        (status = 410, body = Problem, content_type = "application/problem+json",
         description = "Changes from there on are not kept any more"),
        (status = 429, body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json")
    )
)]
pub(in super::super) async fn changes(
    State(app): State<Shared>,
    Reads(caller): Reads,
    connection: Connection,
    Segments(dataset): Segments<String>,
    headers: HeaderMap,
    Params(params): Params<ChangesParams>,
) -> Result<Response, Problem> {
    if params.consumer.is_some() {
        // The store keeps its log.
        caller.may(Role::Write, &dataset)?;
    }
    let from = params.from.as_deref().map(begin).transpose()?;
    let received = last_event_id(&headers)?.map(event_id).transpose()?;
    let admitted = params.condition.as_deref().map(condition).transpose()?;
    let old = params.old;
    let Some(name) = params.consumer else {
        if params.keep.is_some() || params.deadline.is_some() {
            return Err(Problem::bad_request(
                "`keep` and `deadline` need `consumer`",
            ));
        }
        let from = received.map(Begin::Behind).or(from);
        let from = from.unwrap_or(Begin::At(ChangesFrom::Now));
        let open = move |app: &Shared, stop: &esker::Stop| {
            let feed = feed(app, stop, &dataset, from, old, admitted.as_ref())?;
            Ok(ChangesSource(feed))
        };
        return Ok(sse::answer(
            Stream::open(app, &caller, &connection, open).await?,
        ));
    };
    let keep = params.keep.as_deref().map(parse_size).transpose();
    let keep = keep.map_err(|why| Problem::bad_request(format!("keep: {why}")))?;
    let deadline = params.deadline.as_deref();
    let deadline = deadline
        .map(|text| duration("deadline", text))
        .transpose()?;
    let by = caller.clone();
    let open = move |app: &Shared, _: &esker::Stop| {
        let handle = app.engine.handle(&esker::Stop::new());
        let dataset = handle.db().dataset::<Key>(&dataset)?;
        let joining = Joining {
            name,
            from: from.map(|from| from.of(&dataset)).transpose()?,
            keep: keep.map(|keep| keep as u64),
            condition: admitted,
            with_old: old,
            deadline,
            received: received.map(|id| id.position_in(&dataset)).transpose()?,
        };
        (app.live.consumers.join(&dataset, joining, &by))
            .map_err(|problem| with_advice(problem, &dataset.name()))
    };
    Ok(sse::answer(
        Stream::open(app, &caller, &connection, open).await?,
    ))
}

/// Says how a dataset keeps old records.
pub(super) fn no_old_records(dataset: &str) -> Problem {
    let error = Error::NoOldRecords {
        dataset: dataset.to_string(),
    };
    let text = format!("{error}: create a dataset with `\"old_records\": true` in its definition");
    Problem::from(error).saying(text)
}

fn with_advice(problem: Problem, dataset: &str) -> Problem {
    if problem.kind() == "no-old-records" {
        return no_old_records(dataset);
    }
    problem
}

/// A feed of the changes of a dataset, whose reads end with `stop`.
pub(super) fn feed(
    app: &Shared,
    stop: &esker::Stop,
    dataset: &str,
    from: Begin,
    with_old: bool,
    condition: Option<&Expr>,
) -> Result<Feed, Problem> {
    let handle = app.engine.handle(stop);
    let dataset = handle.db().dataset::<Key>(dataset)?;
    let recent = follow::recent(app, &dataset)?;
    let mut changes = dataset.changes(from.of(&dataset)?)?;
    if with_old {
        changes = changes.with_old().map_err(|error| match error.kind() {
            ErrorKind::NoOldRecords => no_old_records(&dataset.name()),
            _ => error.into(),
        })?;
    }
    Ok(Feed::new(&dataset, changes, condition).sharing(recent, with_old))
}

/// The changes of a dataset.
struct ChangesSource(Feed);

impl Source for ChangesSource {
    fn step(&mut self) -> Step {
        read(&mut self.0, &mut |feed, change| Some(feed.event(change)))
    }

    fn listen(&self, wake: Arc<Wake>) -> Result<Vec<Listening>, Problem> {
        Ok(vec![self.0.listen(wake)?])
    }

    fn place(&self) -> Option<String> {
        Some(self.0.place().to_string())
    }
}

/// One step: the events of changes.
pub(super) fn read(
    feed: &mut Feed,
    event: &mut dyn FnMut(&Feed, &esker::Change) -> Option<Event>,
) -> Step {
    let until = Instant::now() + STEP_TIME;
    let mut step = Step::default();
    while !step.is_full() && Instant::now() < until {
        match feed.next(until) {
            Ok(Found::Change(change)) => {
                if let Some(event) = event(feed, &change) {
                    step.push(event);
                }
            }
            Ok(Found::Skipped) => break,
            Ok(Found::Nothing) => {
                step.next = Next::Wait(feed.looks_again());
                break;
            }
            Err(error) => {
                step.next = ended(error);
                break;
            }
        }
    }
    step
}

/// What an error means for a stream: the end of the server is none.
pub(super) fn ended(error: Error) -> Next {
    match error.kind() {
        ErrorKind::Closed | ErrorKind::Cancelled => Next::End,
        _ => Next::Fail(error.into()),
    }
}
