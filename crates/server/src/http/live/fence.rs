//! Geofences on datasets: records that enter an area, leave it, or move in it.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use esker::changes::{Listening, Wake};
use esker::{AreaExpr, ChangesFrom, Key, Path};
use pubsub::{Fence, FenceEvent};
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::app::Shared;
use super::super::extract::{Params, Reads, Segments};
use super::begin::{Begin, begin, event_id, last_event_id};
use super::changes::{feed, read};
use super::sse;
use super::stream::Stream;
use crate::live::{Connection, Event, Feed, Source, Step, change_json, condition};
use crate::problem::Problem;

/// The area, and which events a client wants.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in super::super) struct FenceParams {
    /// The field with the points: a path, or `LON_PATH,LAT_PATH`.
    field: String,
    /// The area: `rect(W,S,E,N)`, `circle(LON,LAT,METRES)`, `polygon(...)` or GeoJSON.
    area: String,
    /// Only records that meet this condition can be inside: one that comes to meet it enters, one
    /// that ceases to meet it exits.
    #[serde(rename = "where")]
    #[param(rename = "where")]
    condition: Option<String>,
    /// The events, with commas between them: `enter`, `exit` and `inside`, a change of a record
    /// that stays inside; without it `enter,exit`.
    events: Option<String>,
    /// Where to begin, as for changes: `now` (as without it), `oldest`, a sequence number or a
    /// position.
    from: Option<String>,
}

/// The names of events, with commas between them.
fn events(text: Option<&str>) -> Result<BTreeSet<FenceEvent>, Problem> {
    let Some(text) = text else {
        return Ok(BTreeSet::from([FenceEvent::Enter, FenceEvent::Exit]));
    };
    let each = text.split(',').map(|name| name.trim().parse());
    each.collect::<Result<_, _>>().map_err(Problem::bad_request)
}

/// Records that enter an area or leave it, as server-sent events in the order of the commits. `id`
/// is the position behind the change, `event` is `enter`, `exit` or `inside`, and `data` is a
/// change with this event: `{"seq", "event", "change", "key", "record", "old"}`. A record that is
/// deleted or expires inside exits. The dataset must have `old_records`.
#[utoipa::path(
    get, path = "/v1/datasets/{dataset}/fence", tag = "live",
    params(
        ("dataset" = String, Path), FenceParams,
        ("last-event-id" = Option<String>, Header,
         description = "The id of the last event received: the stream continues behind it")
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream"),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json",
         description = "The dataset has no old records; an event of another dataset; another history"),
        (status = 410, body = Problem, content_type = "application/problem+json",
         description = "Changes from there on are not kept any more"),
        (status = 429, body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json")
    )
)]
pub(in super::super) async fn fence(
    State(app): State<Shared>,
    Reads(caller): Reads,
    connection: Connection,
    Segments(dataset): Segments<String>,
    headers: HeaderMap,
    Params(params): Params<FenceParams>,
) -> Result<Response, Problem> {
    let field = Path::parse(&params.field).map_err(Problem::bad_request)?;
    let area: AreaExpr = params.area.parse()?;
    let wanted = events(params.events.as_deref())?;
    let admitted = params.condition.as_deref().map(condition).transpose()?;
    let from = params.from.as_deref().map(begin).transpose()?;
    let received = last_event_id(&headers)?.map(event_id).transpose()?;
    let from = received.map(Begin::Behind).or(from);
    let from = from.unwrap_or(Begin::At(ChangesFrom::Now));
    let open = move |app: &Shared, stop: &esker::Stop| {
        let feed = feed(app, stop, &dataset, from, true, None)?;
        let def = app.engine.handle(stop).db().dataset::<Key>(&dataset)?.def();
        let mut fence = Fence::new(&def, &field, &area)?;
        if let Some(condition) = &admitted {
            fence = fence.matching(condition)?;
        }
        Ok(FenceSource {
            feed,
            fence,
            wanted,
        })
    };
    let stream = Stream::open(app, &caller, &connection, open).await?;
    Ok(sse::answer(stream))
}

/// The changes of a dataset that concern an area.
struct FenceSource {
    feed: Feed,
    fence: Fence,
    wanted: BTreeSet<FenceEvent>,
}

impl Source for FenceSource {
    fn step(&mut self) -> Step {
        let (fence, wanted) = (&self.fence, &self.wanted);
        read(&mut self.feed, &mut |feed, change| {
            let event = fence.event(change).filter(|event| wanted.contains(event))?;
            let name = event.name();
            Some(Event {
                id: feed.id(change.position()).to_string(),
                name,
                data: change_json(change, Some(name), true),
            })
        })
    }

    fn listen(&self, wake: Arc<Wake>) -> Result<Vec<Listening>, Problem> {
        Ok(vec![self.feed.listen(wake)?])
    }

    fn place(&self) -> Option<String> {
        Some(self.feed.place().to_string())
    }
}
