//! `publish`, `subscribe`, `topics`.

use std::io::BufRead;
use std::time::{Duration, Instant};

use ::pubsub::{Broker, Config, PubSub, Publication, Region, Subscription, Topic, TopicFilter};
use esker::{Database, Durability, Error, Path};
use serde_json::{Value, json};

use super::{open_to_read, options, refuse_file};
use crate::args::{AreaArgs, DirArgs, PublishArgs, SubscribeArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, note};

/// How long is waited for a publication at a time.
const PAUSE: Duration = Duration::from_millis(200);

/// `esker publish DIR TOPIC`
pub(crate) fn publish(args: &PublishArgs, memory: usize) -> Result<Outcome, Failure> {
    refuse_file(&args.dir)?;
    let topic: Topic = args.topic.parse()?;
    let mut options = PubSub::with(options(memory));
    options.durability = Durability::Periodic(Duration::from_millis(100));
    let db = Database::create_or_open(&args.dir, options)?;
    let broker = Broker::create_or_open(&db, Config::new())?;
    let (mut published, mut matched, mut unread) = (0_u64, 0_u64, 0_u64);
    let mut why = None;
    let mut text = String::new();
    let mut input = std::io::stdin().lock();
    let mut line = 0_u64;
    loop {
        text.clear();
        line += 1;
        let wrong = |what: String| Failure::Usage(format!("standard input, line {line}: {what}"));
        if input
            .read_line(&mut text)
            .map_err(|error| wrong(error.to_string()))?
            == 0
        {
            break;
        }
        let body = text.trim();
        if body.is_empty() {
            continue;
        }
        let record: Value = serde_json::from_str(body)
            .map_err(|error| wrong(format!("not valid JSON: {error}")))?;
        let mut publication = Publication::new(topic.clone(), body.as_bytes());
        if let Some(long) = args.expires {
            publication = publication.lives(long);
        }
        if let Some((lon, lat)) = &args.position {
            let number = |path: &Path| {
                let value = path
                    .names()
                    .try_fold(&record, |value, name| value.get(name));
                value
                    .and_then(Value::as_f64)
                    .ok_or_else(|| wrong(format!("there is no number at `{path}`")))
            };
            publication = publication.at_point(number(lon)?, number(lat)?);
        }
        let answer = broker.publish(&publication).map_err(|error| match error {
            Error::BadInput(what) => wrong(what),
            other => other.into(),
        })?;
        published += 1;
        matched += answer.matches.len() as u64;
        if let Some(error) = answer.unread {
            unread += 1;
            why.get_or_insert(error);
        }
    }
    db.close()?;
    note(format_args!(
        "published {published} to {}, for {matched} subscriptions",
        args.topic
    ));
    if let Some(error) = why {
        note(format_args!(
            "for whom else {unread} of them are is not known, for subscriptions could not be read: {error}"
        ));
    }
    Ok(Outcome::Done)
}

/// `esker subscribe DIR TOPIC`
pub(crate) fn subscribe(args: &SubscribeArgs, memory: usize) -> Result<Outcome, Failure> {
    let topics: TopicFilter = args.topic.parse()?;
    let mut subscription = Subscription::to(topics);
    let waits = args.follow || args.lasting.is_some();
    subscription = match (args.since, waits) {
        (Some(long), _) => subscription.since(long),
        (None, true) => subscription,
        (None, false) => subscription.from(::pubsub::Time::MIN),
    };
    if let Some(long) = args.lasting {
        subscription = subscription.lasting(long);
    }
    if let Some(condition) = &args.condition {
        subscription = subscription.matching(condition.clone());
    }
    if let Some(region) = region(&args.area)? {
        subscription = subscription.within(region);
    }
    let db = open_to_read(&args.dir, memory)?;
    let broker = Broker::open(&db)?;
    let mut follow = broker.follow(&subscription, None)?;
    let end = args.lasting.map(|long| Instant::now() + long);
    let mut output = Output::new();
    let mut printed = 0_u64;
    loop {
        let mut next = follow.next()?;
        if next.is_none() {
            // The reader gets what is there before this waits for more.
            output.flush()?;
            if !waits || end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            next = follow.wait(PAUSE)?;
        }
        if let Some(notification) = next {
            output.record(&notification.body)?;
            printed += 1;
        }
    }
    output.finish()?;
    Ok(Outcome::found(printed))
}

fn region(args: &AreaArgs) -> Result<Option<Region>, Failure> {
    let region = match (args.rect, args.circle, &args.polygon) {
        (Some([west, south, east, north]), _, _) => Region::Rect {
            west,
            south,
            east,
            north,
        },
        (_, Some([longitude, latitude, metres]), _) => Region::Circle {
            longitude,
            latitude,
            metres,
        },
        (_, _, Some(file)) => {
            let text = std::fs::read_to_string(file).map_err(|error| {
                Failure::Usage(format!("cannot read {}: {error}", file.display()))
            })?;
            Region::Polygon(text.into())
        }
        _ => return Ok(None),
    };
    region.area()?;
    Ok(Some(region))
}

/// `esker topics DIR`
pub(crate) fn topics(args: &DirArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let broker = Broker::open(&db)?;
    let mut output = Output::new();
    let topics = broker.topics()?;
    for topic in &topics {
        let line = json!({
            "topic": topic.topic.to_string(),
            "publications": topic.publications,
            "subscriptions": topic.subscriptions,
            "latest": topic.latest,
        });
        output.line(line)?;
    }
    output.finish()?;
    Ok(Outcome::found(topics.len() as u64))
}
