//! `replay`: runs subscriptions over recorded publications, merged by time.

use std::io::{BufRead, BufReader, Read};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::pubsub::{
    Architecture, Broker, Config, Granularity, Notification, PubSub, Publication, Region,
    RepeatedQueries, Subscription, Time, Topic, TopicFilter,
};
use esker::{Durability, Expr, Options, Path};
use esker_import::sources;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::args::{ReplayArchitecture, ReplayArgs, ReplayGranularity};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::store::FolderStore;

/// `esker replay DIR --subscriptions FILE --publications FILE --time FIELD`
pub(crate) fn replay(args: &ReplayArgs, memory: usize) -> Result<Outcome, Failure> {
    if args.dir.exists() {
        return Err(Failure::Usage(format!(
            "{} exists already: a replay creates a new store",
            args.dir.display()
        )));
    }
    if args
        .every
        .is_some_and(|every| every <= 0.0 || every.is_nan())
    {
        return Err(Failure::Usage(
            "--every must be a number above 0".to_owned(),
        ));
    }
    let mut subscriptions = Lines::open(&args.subscriptions)?;
    let mut publications = Lines::open(&args.publications)?;
    // The units are chosen by the first time of either file; a subscription may be from time 0, in
    // any unit.
    let (mut made, mut published) = (None, None);
    subscriptions.next(&mut |text| wish(text, &mut made))?;
    publications.next(&mut |text| news(text, args, &mut published))?;
    let units = made.unwrap_or(Units::SMALL);
    let units = units.coarser(published.unwrap_or(Units::SMALL));
    let clock = Arc::new(AtomicU64::new(0));
    let mut replay = Replay::open(args, memory, units, clock)?;
    let mut units = Some(units);
    subscriptions.again();
    publications.again();
    let mut next_subscription = subscriptions.next(&mut |text| wish(text, &mut units))?;
    let mut next_publication = publications.next(&mut |text| news(text, args, &mut units))?;
    loop {
        let publishes = match (&next_publication, &next_subscription) {
            (Some(publication), Some(subscription)) => publication.at <= subscription.at,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => break,
        };
        if publishes {
            if let Some(publication) = next_publication.take() {
                replay.publish(&publication)?;
            }
            next_publication = publications.next(&mut |text| news(text, args, &mut units))?;
        } else {
            if let Some(subscription) = next_subscription.take() {
                let line = subscriptions.line;
                replay.subscribe(&subscription, &subscriptions.name, line)?;
            }
            next_subscription = subscriptions.next(&mut |text| wish(text, &mut units))?;
        }
    }
    replay.finish()
}

struct Replay {
    db: FolderStore,
    broker: Broker,
    repeated: Option<RepeatedQueries>,
    clock: Arc<AtomicU64>,
    units: Units,
    output: Output,
    found: u64,
}

impl Replay {
    fn open(
        args: &ReplayArgs,
        memory: usize,
        units: Units,
        clock: Arc<AtomicU64>,
    ) -> Result<Replay, Failure> {
        let time = clock.clone();
        let options = Options::new()
            .memory_budget(memory)
            .durability(Durability::Os)
            .clock(Arc::new(move || time.load(Ordering::Relaxed)));
        let db = PubSub::create_or_open(&args.dir, options)?;
        let config = Config::new()
            .architecture(match args.architecture {
                ReplayArchitecture::Dual => Architecture::DualDb,
                ReplayArchitecture::Two => Architecture::TwoDb,
                ReplayArchitecture::Rep => Architecture::RepQueries,
            })
            .granularity(match args.granularity {
                ReplayGranularity::Variable => Granularity::Variable,
                ReplayGranularity::Fixed => Granularity::Fixed,
            })
            .remember(None)
            .resolution(units.per_tick);
        let broker = Broker::create_or_open(&db, config)?;
        let repeated = match (args.architecture, args.every) {
            (ReplayArchitecture::Rep, Some(every)) => {
                let every = units.time_of(every).unwrap_or(Time::MAX);
                Some(RepeatedQueries::new(&broker, every))
            }
            // No interval: one query at the end.
            (ReplayArchitecture::Rep, None) => Some(RepeatedQueries::new(&broker, Time::MAX)),
            _ => None,
        };
        Ok(Replay {
            db,
            broker,
            repeated,
            clock,
            units,
            output: Output::new(),
            found: 0,
        })
    }

    /// Advances the clock, with the queries due before.
    fn advance(&mut self, to: Time) -> Result<(), Failure> {
        self.run_due(to.saturating_sub(1), true)?;
        self.set_clock(to)
    }

    fn set_clock(&mut self, to: Time) -> Result<(), Failure> {
        let ticks = to.div_euclid(Time::from(self.units.per_tick)).max(0);
        self.clock.fetch_max(ticks as u64, Ordering::Relaxed);
        if self.db.unconfirmed_time().is_some() {
            // The times of the data are right.
            self.db.confirm_time()?;
        }
        Ok(())
    }

    /// Repeats the queries due by this time; with `goes_on` false, for the last time.
    fn run_due(&mut self, by: Time, goes_on: bool) -> Result<(), Failure> {
        let Some(mut repeated) = self.repeated.take() else {
            return Ok(());
        };
        let mut failed = None;
        while let Some(due) = repeated.next_due().filter(|due| *due <= by) {
            self.set_clock(due)?;
            let mut on_match = |_: u64, tag: &[u8], notification: &Notification| {
                failed = self.print(tag, &notification.body).err().or(failed.take());
            };
            if goes_on {
                repeated.advance(due, &mut on_match)?
            } else {
                repeated.finish(due, &mut on_match)?
            }
        }
        self.repeated = Some(repeated);
        failed.map_or(Ok(()), Err)
    }

    fn publish(&mut self, news: &News) -> Result<(), Failure> {
        self.advance(news.at)?;
        let mut publication =
            Publication::new(news.topic.clone(), news.body.as_bytes()).at_time(news.at);
        if let Some(expires) = news.expires {
            publication = publication.expires(expires);
        }
        if let Some((longitude, latitude)) = news.position {
            publication = publication.at_point(longitude, latitude);
        }
        let published = self.broker.publish(&publication)?;
        // An incomplete answer is an error.
        published.unread.map_or(Ok(()), Err)?;
        for matched in published.matches {
            self.print(&matched.tag, news.body.as_bytes())?;
        }
        Ok(())
    }

    fn subscribe(&mut self, wish: &Wish, file: &str, line: u64) -> Result<(), Failure> {
        self.advance(wish.at)?;
        let mut subscription = Subscription::to(wish.topics.clone())
            .at_time(wish.at)
            .from(wish.from)
            .until(wish.to)
            .user(wish.user.as_bytes())
            .tag(wish.id.get().as_bytes());
        if let Some(region) = &wish.region {
            subscription = subscription.within(region.clone());
        }
        if let Some(condition) = &wish.condition {
            subscription = subscription.matching(condition.clone());
        }
        if wish.joins {
            subscription = subscription.join();
        }
        if wish.from > wish.to {
            return Ok(());
        }
        let located = |error: esker::Error| match Failure::from(error) {
            Failure::Usage(what) => Failure::Usage(format!("{file}, line {line}: {what}")),
            other => other,
        };
        let id = wish.id.get().as_bytes();
        let Some(mut repeated) = self.repeated.take() else {
            let subscribed = self.broker.subscribe(&subscription).map_err(located)?;
            subscribed.unread.map_or(Ok(()), Err).map_err(located)?;
            for notification in &subscribed.past {
                self.print(id, &notification.body)?;
            }
            return Ok(());
        };
        let mut failed = None;
        let mut on_match = |_: u64, tag: &[u8], notification: &Notification| {
            failed = self.print(tag, &notification.body).err().or(failed.take());
        };
        repeated
            .subscribe(&subscription, &mut on_match)
            .map_err(located)?;
        self.repeated = Some(repeated);
        failed.map_or(Ok(()), Err)
    }

    fn print(&mut self, subscription: &[u8], body: &[u8]) -> Result<(), Failure> {
        let named: Named<'_> = serde_json::from_slice(body)
            .map_err(|error| Failure::Store(format!("a publication has no id: {error}")))?;
        self.found += 1;
        self.output.text("{\"subscription\":")?;
        self.output.bytes(subscription)?;
        self.output
            .line(format_args!(",\"publication\":{}}}", named.id.get()))
    }

    fn finish(mut self) -> Result<Outcome, Failure> {
        self.run_due(Time::MAX, false)?;
        self.output.finish()?;
        self.db.close()?;
        Ok(Outcome::found(self.found))
    }
}

/// A line of the file of subscriptions.
struct Wish {
    id: Box<RawValue>,
    user: String,
    at: Time,
    from: Time,
    to: Time,
    topics: TopicFilter,
    region: Option<Region>,
    condition: Option<Expr>,
    joins: bool,
}

/// A line of the file of publications.
struct News {
    at: Time,
    expires: Option<Time>,
    topic: Topic,
    position: Option<(f64, f64)>,
    body: String,
}

trait Timed {
    fn at(&self) -> Time;
}

impl Timed for Wish {
    fn at(&self) -> Time {
        self.at
    }
}

impl Timed for News {
    fn at(&self) -> Time {
        self.at
    }
}

fn wish(text: &str, units: &mut Option<Units>) -> Result<Wish, String> {
    #[derive(Deserialize)]
    struct Line {
        id: Box<RawValue>,
        #[serde(default)]
        user: Value,
        at: Box<RawValue>,
        from: Box<RawValue>,
        to: Box<RawValue>,
        topic: Option<Value>,
        rect: Option<[f64; 4]>,
        circle: Option<[f64; 3]>,
        #[serde(rename = "where")]
        condition: Option<String>,
        #[serde(default)]
        join: bool,
    }
    let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let user = plain(&line.user);
    if line.join && user.is_empty() {
        return Err(
            "`join` needs a `user`: it leaves out publications that the user received before"
                .to_owned(),
        );
    }
    let time = |name: &str, raw: &RawValue, units: &mut Option<Units>| {
        Units::read(raw.get(), units).map_err(|why| format!("`{name}`: {why}"))
    };
    let bound = |name: &str, raw: &RawValue, units: &mut Option<Units>| {
        Units::bound(raw.get(), units).map_err(|why| format!("`{name}`: {why}"))
    };
    let region = match (line.rect, line.circle) {
        (Some(_), Some(_)) => return Err("it has both `rect` and `circle`".to_owned()),
        (Some([west, south, east, north]), None) => Some(Region::Rect {
            west,
            south,
            east,
            north,
        }),
        (None, Some([longitude, latitude, metres])) => Some(Region::Circle {
            longitude,
            latitude,
            metres,
        }),
        (None, None) => None,
    };
    if let Some(region) = &region {
        region.area().map_err(|error| error.to_string())?;
    }
    let topics = match &line.topic {
        None | Some(Value::Null) => TopicFilter::everything(),
        Some(topic) => plain(topic)
            .parse()
            .map_err(|error: esker::Error| error.to_string())?,
    };
    let condition = line.condition.map(|text| text.parse::<Expr>());
    Ok(Wish {
        user,
        at: time("at", &line.at, units)?,
        from: bound("from", &line.from, units)?,
        to: bound("to", &line.to, units)?,
        topics,
        region,
        condition: condition.transpose().map_err(|error| error.to_string())?,
        joins: line.join,
        id: line.id,
    })
}

/// The id that a publication is printed as.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
}

fn news(text: &str, args: &ReplayArgs, units: &mut Option<Units>) -> Result<News, String> {
    let record: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if record.get("id").is_none() {
        return Err("it has no `id`".to_owned());
    }
    // The id as it will be printed; this refuses a duplicate `id`.
    serde_json::from_str::<Named<'_>>(text).map_err(|error| error.to_string())?;
    type ReadTime = fn(&str, &mut Option<Units>) -> Result<Time, String>;
    let mut time = |name: &str, value: Option<&Value>, read: ReadTime| match value {
        Some(Value::Number(number)) => {
            read(&number.to_string(), units).map_err(|why| format!("`{name}`: {why}"))
        }
        Some(_) => Err(format!("`{name}` is not a number")),
        None => Err(format!("it has no `{name}`")),
    };
    let name = args.time.to_string();
    let at = time(&name, at_path(&record, &args.time), Units::read)?;
    let expires = match record.get("expires") {
        None | Some(Value::Null) => None,
        some => Some(time("expires", some, Units::bound)?),
    };
    let topic = match &args.topic {
        None => Topic::root(),
        Some(path) => match at_path(&record, path) {
            // Only subscriptions to everything receive it.
            None | Some(Value::Null) => Topic::named("").map_err(|error| error.to_string())?,
            Some(value) => plain(value)
                .parse()
                .map_err(|error: esker::Error| error.to_string())?,
        },
    };
    let coordinate = |path: &Path| match at_path(&record, path) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_f64()
            .map(Some)
            .ok_or_else(|| format!("`{path}` is not a number")),
    };
    let position = match &args.position {
        None => None,
        Some((lon, lat)) => coordinate(lon)?.zip(coordinate(lat)?),
    };
    if let Some((longitude, latitude)) = position {
        // An empty circle, only to check the coordinates.
        let region = Region::Circle {
            longitude,
            latitude,
            metres: 0.0,
        };
        region.area().map_err(|error| error.to_string())?;
    }
    Ok(News {
        at,
        expires,
        topic,
        position,
        body: text.to_owned(),
    })
}

fn at_path<'v>(record: &'v Value, path: &Path) -> Option<&'v Value> {
    path.names().try_fold(record, |value, name| value.get(name))
}

/// A string as it is, anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The representation of times: whole numbers of fractions of the data's unit, and how many
/// fractions make a tick of the store's clock. Chosen by the first time: seconds and milliseconds
/// since 1970 get six decimals, microseconds three, nanoseconds none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Units {
    decimals: u32,
    per_tick: u32,
}

impl Units {
    const SMALL: Units = Units {
        decimals: 6,
        per_tick: 1_000_000,
    };

    fn of(whole: i128) -> Units {
        match whole.unsigned_abs() {
            0..4_000_000_000_000 => Units::SMALL,
            4_000_000_000_000..4_000_000_000_000_000 => Units {
                decimals: 3,
                per_tick: 1_000_000,
            },
            _ => Units {
                decimals: 0,
                per_tick: 1_000_000,
            },
        }
    }

    /// The one of the two for larger times.
    fn coarser(self, other: Units) -> Units {
        if self.decimals <= other.decimals {
            self
        } else {
            other
        }
    }

    /// Reads a time from JSON.
    fn read(text: &str, units: &mut Option<Units>) -> Result<Time, String> {
        let time = Units::scaled(text, units)?;
        let fits = Time::try_from(time).ok().filter(|time| *time != Time::MAX);
        fits.ok_or_else(|| format!("`{text}` is in another unit than the times before it"))
    }

    /// Reads a bound of a time range; values out of range are clamped.
    fn bound(text: &str, units: &mut Option<Units>) -> Result<Time, String> {
        let time = Units::scaled(text, units)?;
        let within = time.clamp(i128::from(Time::MIN), i128::from(Time::MAX - 1));
        Ok(within as Time)
    }

    fn scaled(text: &str, units: &mut Option<Units>) -> Result<i128, String> {
        let wrong = || format!("`{text}` is not a time: times must be numbers");
        let is_plain = !text.contains(['e', 'E']);
        let exact = if is_plain {
            text.to_owned()
        } else {
            let number: f64 = text.parse().map_err(|_| wrong())?;
            format!("{number:.9}")
        };
        let (whole, fraction) = exact.split_once('.').unwrap_or((&exact, ""));
        let Ok(whole) = whole.parse::<i128>() else {
            // Too many digits for an integer: the nearest float, which is beyond every time.
            let number: f64 = text.parse().map_err(|_| wrong())?;
            return Ok(number as i128);
        };
        let units = *units.get_or_insert_with(|| Units::of(whole));
        let mut digits = fraction.to_owned();
        digits.truncate(units.decimals as usize);
        let has_more = fraction
            .bytes()
            .skip(units.decimals as usize)
            .any(|b| b != b'0');
        while digits.len() < units.decimals as usize {
            digits.push('0');
        }
        let part: i128 = match digits.as_str() {
            "" => 0,
            digits => digits.parse().map_err(|_| wrong())?,
        };
        let is_negative = exact.starts_with('-');
        let part = if is_negative { -part } else { part };
        // Rounded down, so that the order of times is kept.
        let down = i128::from(has_more && is_negative);
        let scaled = whole.saturating_mul(10_i128.pow(units.decimals));
        Ok(scaled.saturating_add(part - down))
    }

    /// A duration in the unit of the data.
    fn time_of(self, units: f64) -> Option<Time> {
        let scaled = units * 10_f64.powi(self.decimals as i32);
        (scaled.is_finite() && scaled < 9e18).then_some(scaled as Time)
    }
}

/// The lines of a file, which must be sorted by time.
struct Lines {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    line: u64,
    last: Time,
    text: String,
    /// The current line is returned again.
    again: bool,
}

impl Lines {
    fn open(path: &FilePath) -> Result<Lines, Failure> {
        let sources = sources(std::slice::from_ref(&path.to_path_buf()), None);
        let name = path.display().to_string();
        let unreadable = |error| Failure::Usage(format!("cannot read {name}: {error}"));
        let source = sources?.pop();
        let Some(source) = source else {
            return Err(Failure::Usage(format!("cannot read {name}")));
        };
        let reader = source.open(&Arc::default()).map_err(unreadable)?;
        Ok(Lines {
            name,
            reader: BufReader::new(reader),
            line: 0,
            last: Time::MIN,
            text: String::new(),
            again: false,
        })
    }

    /// Returns the first line again, as if no line had been read.
    fn again(&mut self) {
        (self.again, self.last) = (true, Time::MIN);
    }

    /// The next line that is not empty.
    fn next<T: Timed>(
        &mut self,
        parse: &mut dyn FnMut(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        loop {
            let is_read = std::mem::take(&mut self.again);
            if !is_read {
                self.text.clear();
                self.line += 1;
            }
            let wrong =
                |what: String| Failure::Usage(format!("{}, line {}: {what}", self.name, self.line));
            if !is_read {
                let read = self.reader.read_line(&mut self.text);
                read.map_err(|error| wrong(error.to_string()))?;
            }
            if self.text.is_empty() {
                return Ok(None);
            }
            let text = self.text.trim();
            if text.is_empty() {
                continue;
            }
            let parsed = parse(text).map_err(&wrong)?;
            if parsed.at() < self.last {
                return Err(wrong(
                    "its time is before that of the line before: sort the file by time".to_owned(),
                ));
            }
            self.last = parsed.at();
            return Ok(Some(parsed));
        }
    }
}
