//! `publish`, `subscribe`, `topics`.

use std::time::{Duration, Instant};

use ::pubsub::{
    Broker, Config, PubSub, Publication, Published, Region, Subscription, Topic, TopicFilter,
};
use esker::{Durability, Error, ErrorKind, Path};
use esker_import::{Event, Feed, Format, sources};
use serde_json::{Value, json};

use crate::args::{AreaArgs, DirArgs, PublishArgs, SubscribeArgs};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{Output, counted, note};
use crate::store::{create_or_open_folder, open_folder_to_read, options, refuse_no_folder};

/// The timeout of one wait for a publication.
const PAUSE: Duration = Duration::from_millis(200);

/// `esker publish DIR TOPIC`: publishes valid lines as they arrive, and reports bad ones.
pub(crate) fn publish(args: &PublishArgs, memory: usize) -> Result<Outcome, Failure> {
    refuse_no_folder(&args.dir)?;
    let mut publishing = Publishing {
        args,
        topic: args.topic.parse()?,
        published: 0,
        matched: 0,
        unread: None,
        bad: 0,
        last: 0,
    };
    let options = PubSub::register(options(memory));
    // Each line is in the log before the next one is read. Lines of 100 ms share a sync, and a
    // stream that pauses is synced.
    let options = options.durability(Durability::Periodic(Duration::from_millis(100)));
    let db = create_or_open_folder(&args.dir, options)?;
    let broker = Broker::create_or_open(&db, Config::new())?;
    let mut feed = Feed::start(sources(&["-".into()], Some(Format::Lines))?);
    let interrupt = Interrupt::watch()?;
    let ended = publishing.run(&broker, &mut feed, &interrupt);
    let closed = db.close();
    publishing.say();
    let last = publishing.last;
    let ended = ended.and_then(|signal| closed.map(|()| signal).map_err(Failure::from));
    let said = format!(
        "everything up to line {last} was published or reported; continue with the next line"
    );
    match ended {
        Ok(None) => {}
        Ok(Some(signal)) => {
            note(format_args!("interrupted: {said}"));
            return Ok(Outcome::Interrupted(signal));
        }
        Err(failure) => {
            note(said);
            return Err(failure);
        }
    }
    match publishing.bad {
        0 => Ok(Outcome::Done),
        1 => Err(Failure::Usage("1 line was not published".to_string())),
        bad => Err(Failure::Usage(format!(
            "{} were not published",
            counted(bad, "line")
        ))),
    }
}

/// The state of `esker publish`.
struct Publishing<'a> {
    args: &'a PublishArgs,
    topic: Topic,
    published: u64,
    matched: u64,
    /// The number of publications whose subscriptions could not all be read, and the first error.
    unread: Option<(u64, Error)>,
    bad: u64,
    /// The last line that was published or reported.
    last: u64,
}

impl Publishing<'_> {
    /// Publishes the lines of standard input to its end, or until a signal, which it returns.
    fn run(
        &mut self,
        broker: &Broker,
        feed: &mut Feed,
        interrupt: &Interrupt,
    ) -> Result<Option<u8>, Failure> {
        loop {
            if let Some(signal) = interrupt.signal() {
                return Ok(Some(signal));
            }
            let (line, reason) = match feed.next() {
                Some(Event::Pause) => continue,
                Some(Event::Record { line, text, .. }) => match self.publication(text) {
                    Ok(publication) => match broker.publish(&publication) {
                        Ok(answer) => {
                            self.count(answer);
                            self.last = line;
                            continue;
                        }
                        Err(error) if error.kind() == ErrorKind::BadInput => {
                            (line, error.to_string())
                        }
                        Err(error) => return Err(error.into()),
                    },
                    Err(reason) => (line, reason),
                },
                Some(Event::Bad { line, reason, .. }) => (line, reason),
                Some(Event::Failed { reason, .. }) => {
                    let text = format!("standard input cannot be read: {reason}");
                    return Err(Failure::Usage(text));
                }
                None => return Ok(None),
            };
            self.bad += 1;
            self.last = line;
            note(format_args!("line {line}: {reason}"));
        }
    }

    /// The publication on a line, or the reason why it is none.
    fn publication(&self, text: &[u8]) -> Result<Publication, String> {
        let body = str::from_utf8(text).map_err(|_| "not valid UTF-8".to_string())?;
        let body = body.trim();
        let record: Value =
            serde_json::from_str(body).map_err(|error| format!("not valid JSON: {error}"))?;
        let mut publication = Publication::new(self.topic.clone(), body.as_bytes());
        if let Some(long) = self.args.expires {
            publication = publication.lives(long);
        }
        if let Some((lon, lat)) = &self.args.position {
            let number = |path: &Path| {
                let value = path
                    .names()
                    .try_fold(&record, |value, name| value.get(name));
                value
                    .and_then(Value::as_f64)
                    .ok_or_else(|| format!("there is no number at `{path}`"))
            };
            publication = publication.at_point(number(lon)?, number(lat)?);
        }
        Ok(publication)
    }

    fn count(&mut self, answer: Published) {
        self.published += 1;
        self.matched += answer.matches.len() as u64;
        if let Some(error) = answer.unread {
            self.unread.get_or_insert((0, error)).0 += 1;
        }
    }

    fn say(&self) {
        note(format_args!(
            "published {} to {}, for {}",
            self.published,
            // The empty topic.
            match self.args.topic.as_str() {
                "" => "''",
                topic => topic,
            },
            counted(self.matched, "subscription")
        ));
        if let Some((unread, error)) = &self.unread {
            note(format_args!(
                "the subscriptions for {unread} of them could not be read, so their number is unknown: {error}"
            ));
        }
    }
}

/// `esker subscribe DIR TOPIC`
pub(crate) fn subscribe(args: &SubscribeArgs, memory: usize) -> Result<Outcome, Failure> {
    let topics: TopicFilter = args.topic.parse()?;
    let mut subscription = Subscription::to(topics);
    let waits = args.follow || args.lasting.is_some();
    let end = args.lasting.map(|long| Instant::now() + long);
    if let Some(condition) = &args.condition {
        subscription = subscription.matching(condition.clone());
    }
    if let Some(region) = region(&args.area)? {
        subscription = subscription.within(region);
    }
    let (broker, has_waited) = if waits {
        match wait_for_broker(&args.dir, memory, end)? {
            Some(found) => found,
            None => return Ok(Outcome::NotFound),
        }
    } else {
        refuse_no_folder(&args.dir)?;
        let db = open_folder_to_read(&args.dir, memory)?;
        (Broker::open(&db)?, false)
    };
    subscription = match (args.since, waits) {
        // Everything in the store was published after this command began.
        _ if has_waited => subscription.from(::pubsub::Time::MIN),
        (Some(long), _) => subscription.since(long),
        (None, true) => subscription,
        (None, false) => subscription.from(::pubsub::Time::MIN),
    };
    if let Some(end) = end {
        subscription = subscription.lasting(end.saturating_duration_since(Instant::now()));
    }
    let mut follow = broker.follow(&subscription, None)?;
    let mut output = Output::new();
    let mut printed = 0_u64;
    loop {
        let mut next = follow.next()?;
        if next.is_none() {
            // Shows the reader all publications so far before waiting.
            output.flush()?;
            let is_late = || end.is_some_and(|end| Instant::now() >= end);
            if !waits || follow.is_over() || is_late() {
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

/// Waits for the store's broker, and returns it and whether it had to wait; `None` if the time ends
/// first.
fn wait_for_broker(
    dir: &std::path::Path,
    memory: usize,
    end: Option<Instant>,
) -> Result<Option<(Broker, bool)>, Failure> {
    refuse_no_folder(dir)?;
    let mut said = "";
    loop {
        let missing = match open_folder_to_read(dir, memory) {
            Ok(db) if Broker::is_there(&db)? => {
                return Ok(Some((Broker::open(&db)?, !said.is_empty())));
            }
            Ok(_) => "a first publication",
            Err(Error::NoStore { .. }) => "a store",
            Err(error) => return Err(error.into()),
        };
        if missing != said {
            note(format_args!(
                "waiting for {missing} in {} (`esker publish` makes both)",
                dir.display()
            ));
            said = missing;
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(None);
        }
        std::thread::sleep(PAUSE);
    }
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
            let text = esker_import::read_text(file)?;
            Region::Polygon(text.into())
        }
        _ => return Ok(None),
    };
    region.area()?;
    Ok(Some(region))
}

/// `esker topics DIR`
pub(crate) fn topics(args: &DirArgs, memory: usize) -> Result<Outcome, Failure> {
    refuse_no_folder(&args.dir)?;
    let db = open_folder_to_read(&args.dir, memory)?;
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
