//! Topics: publishing, listing, and queries of what is kept.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use esker::Seq;
use pubsub::{Publication, Time, Topic};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::super::app::Shared;
use super::super::body::Body;
use super::super::extract::{Params, Segments};
use super::super::stream::raw;
use super::begin::duration;
use super::message::message;
use super::subscribe::Asked;
use crate::access::{Caller, Role};
use crate::problem::Problem;

/// The messages of a page, if the request does not say.
const USUAL_PAGE: usize = 100;

/// The messages of one read: a caller that may see few of them gets the next ones in a later page.
const MOST_READ: usize = 1000;

/// How something is published.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in super::super) struct PublishParams {
    /// How long it lives, as in `60s`; without it, for ever.
    lives: Option<String>,
    /// The longitude of its place.
    x: Option<f64>,
    /// The latitude of its place.
    y: Option<f64>,
}

/// A topic that the caller may publish to. Checked before the body is read.
pub(in super::super) struct Publishes(Topic);

impl<S: Send + Sync> FromRequestParts<S> for Publishes {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Publishes, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        let Segments(topic) = Segments::<String>::from_request_parts(parts, state).await?;
        caller.may_topic(Role::Write, &topic)?;
        Ok(Publishes(topic.parse()?))
    }
}

/// What was published.
#[derive(Serialize, ToSchema)]
pub(in super::super) struct Published {
    /// Its number: publications are delivered in the order of their numbers.
    seq: Seq,
    /// How many stored subscriptions receive it; streams are not counted. It is missing if they
    /// could not be read: the publication is stored all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriptions: Option<usize>,
}

/// Publishes to a topic. The body is any bytes; a JSON object is a record that conditions can
/// query.
#[utoipa::path(
    post, path = "/v1/topics/{topic}", tag = "live",
    params(
        ("topic" = String, Path, description = "One percent-encoded segment"), PublishParams
    ),
    request_body(content = Option<String>, content_type = "application/octet-stream"),
    responses(
        (status = 200, body = Published, description = "Stored, durably"),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 403, body = Problem, content_type = "application/problem+json"),
        (status = 413, body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json")
    )
)]
pub(in super::super) async fn publish(
    State(app): State<Shared>,
    Publishes(topic): Publishes,
    Params(params): Params<PublishParams>,
    body: Body,
) -> Result<Json<Published>, Problem> {
    let mut publication = Publication::new(topic, body.bytes.to_vec());
    if let Some(lives) = params.lives.as_deref() {
        publication = publication.lives(duration("lives", lives)?);
    }
    publication = match (params.x, params.y) {
        (Some(x), Some(y)) => publication.at_point(x, y),
        (None, None) => publication,
        _ => return Err(Problem::bad_request("a place has both `x` and `y`")),
    };
    let shared = app.clone();
    let published = app.engine.run(move |_| {
        let published = shared.engine.broker()?.publish(&publication)?;
        let matches = published.matches.len();
        let subscriptions = match &published.unread {
            None => Some(matches),
            Some(error) => {
                tracing::warn!("the subscriptions for a publication cannot be read: {error}");
                None
            }
        };
        Ok(Published {
            seq: published.seq,
            subscriptions,
        })
    });
    Ok(Json(published.await?))
}

/// The topics that the caller may see.
#[derive(Serialize, ToSchema)]
pub(in super::super) struct TopicList {
    topics: Vec<TopicEntry>,
}

/// A topic, or the filter of a subscription.
#[derive(Serialize, ToSchema)]
pub(in super::super) struct TopicEntry {
    topic: String,
    /// Publications that are kept.
    publications: u64,
    /// Stored subscriptions; streams are not counted.
    subscriptions: u64,
    /// The time of the last publication, in milliseconds since 1970.
    latest: Option<Time>,
}

/// All topics with publications or stored subscriptions.
#[utoipa::path(
    get, path = "/v1/topics", tag = "live",
    responses((status = 200, body = TopicList))
)]
pub(in super::super) async fn list(
    State(app): State<Shared>,
    caller: Caller,
) -> Result<Json<TopicList>, Problem> {
    let shared = app.clone();
    let listed = app.engine.run(move |_| {
        let mut topics = Vec::new();
        for known in shared.engine.broker()?.topics()? {
            let topic = known.topic.to_string();
            if caller.sees_topic(&topic) {
                topics.push(TopicEntry {
                    topic,
                    publications: known.publications,
                    subscriptions: known.subscriptions,
                    latest: known.latest,
                });
            }
        }
        Ok(TopicList { topics })
    });
    Ok(Json(listed.await?))
}

/// Which kept messages are sought.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in super::super) struct RecordParams {
    /// Only what was published since so long ago, as in `60s`; without it, all.
    since: Option<String>,
    /// Only records that meet this condition.
    #[serde(rename = "where")]
    #[param(rename = "where")]
    condition: Option<String>,
    /// Only at places in this area: `rect(W,S,E,N)`, `circle(LON,LAT,METRES)`, `polygon(...)` or
    /// GeoJSON.
    area: Option<String>,
    /// The most messages of the answer; without it 100.
    limit: Option<usize>,
    /// Only messages behind the one with this number: `next` of the page before.
    after: Option<Seq>,
}

/// Kept messages, oldest first.
#[derive(Serialize, ToSchema)]
pub(in super::super) struct MessagePage {
    #[schema(value_type = Vec<Object>)]
    records: Vec<Box<RawValue>>,
    /// Where the next page begins, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Seq>,
}

/// What is kept of a topic, oldest first, in pages. That of topics below it and above it is
/// included; with `+` and `#`, it is that of the topics that match as in MQTT.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/records", tag = "live",
    params(
        ("topic" = String, Path, description = "One percent-encoded segment"), RecordParams
    ),
    responses(
        (status = 200, body = MessagePage),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 403, body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json")
    )
)]
pub(in super::super) async fn records(
    State(app): State<Shared>,
    caller: Caller,
    Segments(topic): Segments<String>,
    Params(params): Params<RecordParams>,
) -> Result<Json<MessagePage>, Problem> {
    caller.may_topic(Role::Read, &topic)?;
    let asked = Asked::kept(
        &topic,
        params.since.as_deref(),
        params.condition.as_deref(),
        params.area.as_deref(),
    )?;
    let most = params.limit.unwrap_or(USUAL_PAGE);
    let most = most.min(app.limits.rows).min(MOST_READ);
    let after = params.after.unwrap_or(0);
    let shared = app.clone();
    let page = app.engine.run(move |_| {
        let broker = shared.engine.broker()?;
        let from = asked.since(&broker).unwrap_or(Time::MIN);
        let subscription = asked.subscription(Some(from), None);
        // One more shows whether there is a next page.
        let mut found = broker.query_after(&subscription, after, most + 1)?;
        let has_more = found.len() > most;
        found.truncate(most);
        let next = found.last().map(|last| last.seq).or(Some(after));
        let visible = found
            .iter()
            .filter(|one| caller.sees_topic(&one.topic.to_string()));
        let records = visible.map(|one| raw(&message(one)));
        Ok(MessagePage {
            records: records.collect::<Result<_, _>>()?,
            next: next.filter(|_| has_more),
        })
    });
    Ok(Json(page.await?))
}
