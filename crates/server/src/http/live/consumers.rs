//! The named consumers of a dataset's changes.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use esker::Key;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::app::Shared;
use super::super::body::Document;
use super::super::extract::{Reads, Segments, Writes};
use super::begin::event_id;
use crate::live::EventId;
use crate::problem::Problem;

/// The most changes of one acknowledgement.
const MOST: usize = 1000;

/// The consumers of a dataset.
#[derive(Serialize, ToSchema)]
pub(in super::super) struct ConsumerList {
    consumers: Vec<Consumer>,
}

/// A named reader of changes, for which the store keeps the log.
#[derive(Serialize, ToSchema)]
pub(in super::super) struct Consumer {
    name: String,
    /// Everything up to here is acknowledged: the id of an event.
    position: String,
    /// How much log is kept for it at most.
    keeps_bytes: u64,
    /// The log that it has not read, over all datasets.
    lag_bytes: u64,
    /// The age of the oldest change that it has not read, if it is known.
    unread_seconds: Option<u64>,
    /// Its connections to this server.
    connections: usize,
    /// Changes that were sent and not acknowledged.
    outstanding: usize,
}

/// The consumers of a dataset's changes, with their positions and lags.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/consumers", tag = "live",
    params(("dataset" = String, Path)),
    responses(
        (status = 200, body = ConsumerList),
        (status = 404, body = Problem, content_type = "application/problem+json")
    )
)]
pub(in super::super) async fn list(
    State(app): State<Shared>,
    Reads(_): Reads,
    Segments(dataset): Segments<String>,
) -> Result<Json<ConsumerList>, Problem> {
    let shared = app.clone();
    let listed = app.engine.run(move |handle| {
        let of = handle.db().dataset::<Key>(&dataset)?;
        let mut consumers = Vec::new();
        for known in handle.db().change_consumers()? {
            if known.dataset.as_deref() != Some(&dataset) {
                continue;
            }
            let activity = shared.live.consumers.activity(&of, &known.name);
            consumers.push(Consumer {
                name: known.name,
                position: EventId::new(&of, known.position).to_string(),
                keeps_bytes: known.keeps_bytes,
                lag_bytes: known.lag_bytes,
                unread_seconds: known.unread_for.map(|age| age.as_secs()),
                connections: activity.connections,
                outstanding: activity.outstanding,
            });
        }
        Ok(ConsumerList { consumers })
    });
    Ok(Json(listed.await?))
}

/// Ids of events.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
enum Ids {
    One(String),
    Several(Vec<String>),
}

/// Changes that were processed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Received {
    /// The id of an event, or several.
    id: Ids,
}

/// What an acknowledgement has done.
#[derive(Serialize, ToSchema)]
pub(in super::super) struct Acknowledged {
    /// How many changes were outstanding until now.
    acknowledged: usize,
    /// The position of the consumer, which is stored durably.
    position: String,
}

/// Acknowledges changes, by the ids of their events. With a consumer that has one connection, the
/// changes before them are acknowledged, too; one that is shared (`deadline`) acknowledges each
/// change for itself.
#[utoipa::path(
    post, path = "/v1/datasets/{dataset}/consumers/{consumer}/ack", tag = "live",
    params(("dataset" = String, Path), ("consumer" = String, Path)),
    request_body = Received,
    responses(
        (status = 200, body = Acknowledged),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 403, body = Problem, content_type = "application/problem+json"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json",
         description = "The consumer has no connection; another process uses it; an event of another dataset"),
        (status = 415, body = Problem, content_type = "application/problem+json"),
        (status = 422, body = Problem, content_type = "application/problem+json")
    )
)]
pub(in super::super) async fn acknowledge(
    State(app): State<Shared>,
    Writes(_): Writes,
    Segments((dataset, consumer)): Segments<(String, String)>,
    Document(Received { id }, _): Document<Received>,
) -> Result<Json<Acknowledged>, Problem> {
    let ids = match id {
        Ids::One(id) => vec![id],
        Ids::Several(ids) => ids,
    };
    if ids.len() > MOST {
        let detail = format!("at most {MOST} changes are acknowledged at a time");
        return Err(Problem::bad_request(detail));
    }
    let received = ids.iter().map(|id| event_id(id));
    let received = received.collect::<Result<Vec<_>, _>>()?;
    let shared = app.clone();
    let done = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&dataset)?;
        let received = received.iter().map(|id| id.position_in(&dataset));
        let received = received.collect::<Result<Vec<_>, _>>()?;
        let consumers = &shared.live.consumers;
        let (acknowledged, position) = consumers.acknowledge(&dataset, &consumer, &received)?;
        let position = EventId::new(&dataset, position).to_string();
        Ok(Acknowledged {
            acknowledged,
            position,
        })
    });
    Ok(Json(done.await?))
}

/// Forgets a consumer: its connections end, and the log is not kept for it any more.
#[utoipa::path(
    delete, path = "/v1/datasets/{dataset}/consumers/{consumer}", tag = "live",
    params(("dataset" = String, Path), ("consumer" = String, Path)),
    responses(
        (status = 204, description = "Forgotten"),
        (status = 403, body = Problem, content_type = "application/problem+json"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json")
    )
)]
pub(in super::super) async fn forget(
    State(app): State<Shared>,
    Writes(caller): Writes,
    Segments((dataset, consumer)): Segments<(String, String)>,
) -> Result<StatusCode, Problem> {
    tracing::info!(target: "audit", caller = caller.name(), dataset, consumer, "forget consumer");
    let shared = app.clone();
    let forgotten = app.engine.run(move |handle| {
        let dataset = handle.db().dataset::<Key>(&dataset)?;
        shared.live.consumers.forget(&dataset, &consumer, &caller)
    });
    forgotten.await?;
    Ok(StatusCode::NO_CONTENT)
}
