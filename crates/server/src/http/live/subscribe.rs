//! Subscriptions to topics: what was published in the past, and then what is published.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use esker::changes::{Listening, Wake};
use esker::{AreaExpr, Expr, Seq};
use pubsub::{Broker, Follow, Notification, Region, Subscription, Time, Topic, TopicFilter};
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::app::Shared;
use super::super::extract::{Params, Segments};
use super::begin::{duration, last_event_id};
use super::changes::ended;
use super::message::message;
use super::stream::Stream;
use super::{socket, sse};
use crate::access::{Caller, Role};
use crate::live::{Connection, Event, Listener, Next, STEP_TIME, Source, Step, condition};
use crate::problem::Problem;

/// Past publications that are in memory at the same time. Each page of them reads the lists again.
const PAGE: usize = 1024;

/// The longest time between two looks whether a subscription has ended: the clock may be set.
const LOOK: Duration = Duration::from_secs(15);

/// What a client subscribes to.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(in super::super) struct SubscribeParams {
    /// Also what was published so long before, as in `60s`; without it, nothing.
    since: Option<String>,
    /// Ends after this time, as in `60s`; without it, never.
    #[serde(rename = "for")]
    #[param(rename = "for")]
    lasting: Option<String>,
    /// Only records that meet this condition.
    #[serde(rename = "where")]
    #[param(rename = "where")]
    condition: Option<String>,
    /// Only what was published at places in this area: `rect(W,S,E,N)`, `circle(LON,LAT,METRES)`,
    /// `polygon(...)` or GeoJSON.
    area: Option<String>,
    /// The id of the last message received, where `Last-Event-ID` cannot be sent: the subscription
    /// continues behind it.
    after: Option<String>,
}

/// What is published to a topic, those below it and those above it; with `+` and `#`, to the topics
/// that match as in MQTT. First what was published since the given time, and then what is
/// published, without a gap and without a duplicate. `data` is `{"seq", "topic", "time", "expires",
/// "x", "y", "record"}`; a payload that is no JSON object is in `text`, or in `base64` if it is not
/// UTF-8. As server-sent events, whose `event` is `message`; as messages of a WebSocket, each with
/// its `id`, if the request upgrades. Once a subscription with `for` has ended, a client that comes
/// back gets 204.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/subscribe", tag = "live",
    params(
        ("topic" = String, Path, description = "One percent-encoded segment"), SubscribeParams,
        ("last-event-id" = Option<String>, Header,
         description = "The id of the last event received: the stream continues behind it")
    ),
    responses(
        (status = 101, description = "A WebSocket"),
        (status = 200, body = String, content_type = "text/event-stream"),
        (status = 204, description = "The subscription that is continued has ended"),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 403, body = Problem, content_type = "application/problem+json"),
        (status = 429, body = Problem, content_type = "application/problem+json"),
        (status = 503, body = Problem, content_type = "application/problem+json")
    )
)]
pub(in super::super) async fn subscribe(
    State(app): State<Shared>,
    caller: Caller,
    connection: Connection,
    Segments(topic): Segments<String>,
    headers: HeaderMap,
    Params(params): Params<SubscribeParams>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    caller.may_topic(Role::Read, &topic)?;
    let wants_socket = headers
        .get(header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let upgrade = match (wants_socket, upgrade) {
        (true, Ok(upgrade)) => Some(upgrade),
        (true, Err(error)) => {
            return Err(Problem::new(error.status(), "bad-input", error.body_text()));
        }
        (false, _) => None,
    };
    let received = last_event_id(&headers)?.or(params.after.as_deref());
    let received = received.map(Place::parse).transpose()?;
    let asked = Asked::new(&topic, &params)?;
    let visible = caller.clone();
    let open = move |app: &Shared, stop: &esker::Stop| {
        let broker = app.engine.broker()?;
        let listener = app.live.listen();
        let now = app.engine.handle(stop).db().position().seq;
        TopicSource::new(broker, listener, asked, received, visible, now)
    };
    let stream = Stream::open(app, &caller, &connection, open).await?;
    if received.is_some() && stream.is_over() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(match upgrade {
        Some(upgrade) => socket::answer(upgrade, stream),
        None => sse::answer(stream),
    })
}

/// What a client asks of topics.
pub(super) struct Asked {
    topics: TopicFilter,
    condition: Option<Expr>,
    region: Option<Region>,
    since: Option<Duration>,
    lasting: Option<Duration>,
}

impl Asked {
    fn new(topic: &str, params: &SubscribeParams) -> Result<Asked, Problem> {
        let since = params.since.as_deref();
        let lasting = params.lasting.as_deref();
        Ok(Asked {
            lasting: lasting.map(|text| duration("for", text)).transpose()?,
            ..Asked::kept(
                topic,
                since,
                params.condition.as_deref(),
                params.area.as_deref(),
            )?
        })
    }

    /// What a client asks of what is kept.
    pub(super) fn kept(
        topic: &str,
        since: Option<&str>,
        admitted: Option<&str>,
        within: Option<&str>,
    ) -> Result<Asked, Problem> {
        let region = within
            .map(|text| region(text.parse::<AreaExpr>()?))
            .transpose()?;
        Ok(Asked {
            topics: topic.parse()?,
            condition: admitted.map(condition).transpose()?,
            region,
            since: since.map(|text| duration("since", text)).transpose()?,
            lasting: None,
        })
    }

    /// The subscription in an interval.
    pub(super) fn subscription(&self, from: Option<Time>, to: Option<Time>) -> Subscription {
        let mut subscription = Subscription::to(self.topics.clone());
        if let Some(condition) = &self.condition {
            subscription = subscription.matching(condition.clone());
        }
        if let Some(region) = &self.region {
            subscription = subscription.within(region.clone());
        }
        if let Some(from) = from {
            subscription = subscription.from(from);
        }
        if let Some(to) = to {
            subscription = subscription.until(to);
        }
        subscription
    }

    /// The first time of the past that is asked for.
    pub(super) fn since(&self, broker: &Broker) -> Option<Time> {
        let long = self.since?;
        Some(broker.now().saturating_sub(units(broker, long)))
    }
}

fn region(area: AreaExpr) -> Result<Region, Problem> {
    let region = match area {
        AreaExpr::Rect([west, south, east, north]) => Region::Rect {
            west,
            south,
            east,
            north,
        },
        AreaExpr::Circle([longitude, latitude, metres]) => Region::Circle {
            longitude,
            latitude,
            metres,
        },
        AreaExpr::Polygon(text) => Region::Polygon(text),
        _ => return Err(Problem::bad_request("topics cannot have such an area")),
    };
    region.area()?;
    Ok(region)
}

/// A duration in the unit of a broker.
fn units(broker: &Broker, long: Duration) -> Time {
    let units = long.as_nanos() * u128::from(broker.config().resolution) / 1_000_000;
    Time::try_from(units).unwrap_or(Time::MAX)
}

/// Where a subscription continues: behind a publication, to its end if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) seq: Seq,
    pub(super) to: Option<Time>,
}

impl Place {
    /// Reads an id.
    ///
    /// # Errors
    /// 400 if it is none.
    fn parse(text: &str) -> Result<Place, Problem> {
        let (seq, to) = match text.split_once('@') {
            Some((seq, to)) => (seq, Some(to)),
            None => (text, None),
        };
        let seq = seq.parse().ok();
        let to = to.map(|to| to.parse().ok());
        match (seq, to) {
            (Some(seq), None) => Ok(Place { seq, to: None }),
            (Some(seq), Some(Some(to))) => Ok(Place { seq, to: Some(to) }),
            _ => Err(Problem::bad_request(format!(
                "`{text}` is no id of a message"
            ))),
        }
    }

    fn text(self) -> String {
        match self.to {
            Some(to) => format!("{}@{to}", self.seq),
            None => self.seq.to_string(),
        }
    }
}

/// What is published to topics.
struct TopicSource {
    broker: Arc<Broker>,
    /// While it lives, all publications are stored.
    _listener: Listener,
    subscription: Subscription,
    caller: Caller,
    to: Option<Time>,
    reader: Reader,
}

enum Reader {
    /// Past publications, in pages: those that were read and not sent, and the number of the last
    /// one.
    Past(std::vec::IntoIter<Notification>, Seq),
    Follow(Box<Follow>),
}

impl TopicSource {
    fn new(
        broker: Arc<Broker>,
        listener: Listener,
        asked: Asked,
        received: Option<Place>,
        caller: Caller,
        now: Seq,
    ) -> Result<TopicSource, Problem> {
        let ends = |long| broker.now().saturating_add(units(&broker, long));
        let to = match received {
            Some(place) => place.to,
            None => asked.lasting.map(ends),
        };
        let from = match received {
            // By the numbers: what was published meanwhile may be older than `since`.
            Some(_) => Some(Time::MIN),
            None => asked.since(&broker),
        };
        let subscription = asked.subscription(from, to);
        let reader = match (received, from) {
            (Some(place), _) => Reader::Past(Vec::new().into_iter(), place.seq),
            (None, Some(_)) => Reader::Past(Vec::new().into_iter(), 0),
            // By the numbers: others may have published in this millisecond, too.
            (None, None) => Reader::Follow(Box::new(broker.follow(&subscription, Some(now))?)),
        };
        Ok(TopicSource {
            broker,
            _listener: listener,
            subscription,
            caller,
            to,
            reader,
        })
    }

    fn push(&self, of: &Notification, step: &mut Step) {
        // Without wildcards, a subscription also receives what is published above its topic.
        if !self.caller.sees_topic(&of.topic.to_string()) {
            return;
        }
        let place = Place {
            seq: of.seq,
            to: self.to,
        };
        step.push(Event {
            id: place.text(),
            name: "message",
            data: message(of),
        });
    }

    fn find(&mut self, step: &mut Step) -> Result<(), esker::Error> {
        let until = Instant::now() + STEP_TIME;
        while !step.is_full() && Instant::now() < until {
            let next = match &mut self.reader {
                Reader::Past(page, last) => match page.next() {
                    Some(next) => Some(next),
                    None => {
                        let after = *last;
                        let page = self.broker.query_after(&self.subscription, after, PAGE)?;
                        self.reader = match page.last().map(|last| last.seq) {
                            Some(last) => Reader::Past(page.into_iter(), last),
                            None => {
                                let follow = self.broker.follow(&self.subscription, Some(after))?;
                                Reader::Follow(Box::new(follow))
                            }
                        };
                        continue;
                    }
                },
                Reader::Follow(follow) => follow.next()?,
            };
            if let Some(next) = next {
                self.push(&next, step);
                continue;
            }
            step.next = match &self.reader {
                Reader::Follow(follow) if follow.is_over() => Next::End,
                _ => Next::Wait(self.ends_in().map(|long| Instant::now() + long)),
            };
            break;
        }
        Ok(())
    }

    /// When to look whether the subscription has ended.
    fn ends_in(&self) -> Option<Duration> {
        let left = i128::from(self.to?) - i128::from(self.broker.now()) + 1;
        let nanos = left.max(0) * 1_000_000 / i128::from(self.broker.config().resolution.max(1));
        let left = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Some(left.clamp(Duration::from_millis(1), LOOK))
    }
}

impl Source for TopicSource {
    fn step(&mut self) -> Step {
        let mut step = Step::default();
        if let Err(error) = self.find(&mut step) {
            step.next = ended(error);
        }
        step
    }

    fn listen(&self, wake: Arc<Wake>) -> Result<Vec<Listening>, Problem> {
        let listening = match &self.reader {
            Reader::Follow(follow) => follow.listen(wake)?,
            // Every commit wakes every follower.
            Reader::Past(..) => {
                let any = Subscription::to(TopicFilter::exact(Topic::root()));
                self.broker.follow(&any, None)?.listen(wake)?
            }
        };
        Ok(vec![listening])
    }

    fn place(&self) -> Option<String> {
        let seq = match &self.reader {
            Reader::Past(page, last) => match page.as_slice().first() {
                Some(next) => next.seq.saturating_sub(1),
                // The client has nothing: it asks for the same again.
                None if *last == 0 => return None,
                None => *last,
            },
            Reader::Follow(follow) => follow.seen(),
        };
        Some(Place { seq, to: self.to }.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_were_written() {
        for place in [
            Place { seq: 7, to: None },
            Place {
                seq: 7,
                to: Some(-12),
            },
        ] {
            assert_eq!(Place::parse(&place.text()).ok(), Some(place));
        }
        for wrong in ["", "x", "7@", "@7", "7@x", "-7"] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }
}
