//! `demo pubsub`: moving drivers who receive the incidents around them.
//!
//! Every few seconds each driver subscribes anew to the incidents within some distance, from a
//! minute ago on; publications that it has received before are left out (the paper's running
//! example, section 1).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::pubsub::{Broker, Config, PubSub, Publication, Region, Subscription};
use esker::Durability;
use esker::schema::ModelError;
use esker_import::sources;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::args::DemoPubsubArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, bold, thousands};
use crate::store::{create_or_open_folder, options};

/// The default file of recorded positions, if it exists.
const MOVES: &str = "../shared/data/moves.ndjson.zst";
/// Seconds between two subscriptions of a driver.
const AGAIN: u64 = 10;
/// The maximum number of lines printed per simulated second.
const SHOWN: usize = 4;

/// The position of a driver, and when it last subscribed.
#[derive(Clone, Copy)]
struct At {
    longitude: f64,
    latitude: f64,
    notified: u64,
}

/// `esker demo pubsub`
pub(super) fn city(
    args: &DemoPubsubArgs,
    folder: &FilePath,
    memory: usize,
) -> Result<Outcome, Failure> {
    if !(args.speed > 0.0 && args.speed.is_finite()) {
        return Err(Failure::Usage(
            "--speed must be a number above 0".to_owned(),
        ));
    }
    let beside = PathBuf::from(MOVES);
    let moves = args
        .moves
        .clone()
        .or_else(|| beside.exists().then_some(beside));
    let mut world = match &moves {
        Some(file) => World::recorded(file)?,
        None => World::generated(args.drivers),
    };
    let clock = Arc::new(AtomicU64::new(world.now * 1000));
    let time = clock.clone();
    let options = PubSub::register(options(memory));
    let options = options
        .clock(Arc::new(move || time.load(Ordering::Relaxed)))
        .durability(Durability::Os);
    let db = create_or_open_folder(folder, options)?;
    let broker = Broker::create_or_open(&db, Config::new())?;
    let mut output = Output::new();
    output.line(format_args!("store: {}", folder.display()))?;
    output.line(match &moves {
        Some(file) => format!("positions: {}", file.display()),
        None => format!("positions: {} drivers in a generated city", args.drivers),
    })?;
    let (begin, first) = (Instant::now(), world.now);
    let mut notified = Notified::default();
    while world.now < first + args.length.as_secs().max(1) && world.step()? {
        clock.store(world.now * 1000, Ordering::Relaxed);
        second(&mut world, &broker, &mut output, &mut notified)?;
        output.flush()?;
        let due = Duration::from_secs_f64((world.now - first) as f64 / args.speed);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    output.line(format_args!(
        "\n{} subscriptions and {} incidents in {} s; {} notified at once, {} about the minute before",
        thousands(notified.subscriptions),
        thousands(notified.incidents),
        world.now - first,
        thousands(notified.at_once),
        thousands(notified.past),
    ))?;
    db.close()?;
    output.finish()?;
    Ok(Outcome::Done)
}

#[derive(Default)]
struct Notified {
    subscriptions: u64,
    incidents: u64,
    at_once: u64,
    past: u64,
}

/// Simulates a second.
fn second(
    world: &mut World,
    broker: &Broker,
    output: &mut Output,
    notified: &mut Notified,
) -> Result<(), Failure> {
    let mut lines = Vec::new();
    let now = world.now;
    for (driver, at) in &mut world.drivers {
        if now < at.notified + AGAIN {
            continue;
        }
        at.notified = now;
        let subscription = Subscription::to("incidents".parse()?)
            .user(driver.as_bytes())
            .tag(driver.as_bytes())
            .since(Duration::from_secs(60))
            .lasting(Duration::from_secs(AGAIN))
            .within(Region::Circle {
                longitude: at.longitude,
                latitude: at.latitude,
                metres: world.reach,
            })
            .join();
        let made = broker.subscribe(&subscription)?;
        made.unread.map_or(Ok(()), Err)?;
        notified.subscriptions += 1;
        notified.past += made.past.len() as u64;
        for past in made.past {
            let ago = now.saturating_sub(past.time as u64 / 1000);
            lines.push(format!(
                "{driver} comes near {}, {ago} s ago",
                shown(&past.body)
            ));
        }
    }
    for (longitude, latitude) in world.incidents() {
        let kind = ["accident", "roadwork", "fog", "fire"][world.rng.usize(0..4)];
        let number = notified.incidents;
        notified.incidents += 1;
        let body = json!({"id": number, "kind": kind}).to_string();
        let topic = format!("incidents/{kind}").parse()?;
        let incident = Publication::new(topic, body.clone())
            .at_point(longitude, latitude)
            .lives(Duration::from_secs(120));
        let published = broker.publish(&incident)?;
        published.unread.map_or(Ok(()), Err)?;
        notified.at_once += published.matches.len() as u64;
        let users = published.matches.iter().map(|matched| &matched.tag);
        let names: Vec<String> = users
            .take(3)
            .map(|tag| String::from_utf8_lossy(tag).into_owned())
            .collect();
        lines.push(match published.matches.len() {
            0 => continue,
            n if n <= 3 => format!("{}: {}", bold(&shown(body.as_bytes())), names.join(", ")),
            n => format!(
                "{}: {} and {} more",
                bold(&shown(body.as_bytes())),
                names.join(", "),
                n - 3
            ),
        });
    }
    let time = now % 86_400;
    let clock = format!("{:02}:{:02}:{:02}", time / 3600, time / 60 % 60, time % 60);
    let more = lines.len().saturating_sub(SHOWN);
    for line in lines.into_iter().take(SHOWN) {
        output.line(format_args!("{clock}  {line}"))?;
    }
    if more > 0 {
        output.line(format_args!("{clock}  and {more} more"))?;
    }
    Ok(())
}

fn shown(body: &[u8]) -> String {
    let incident: Value = serde_json::from_slice(body).unwrap_or_default();
    format!(
        "{} {}",
        incident["kind"].as_str().unwrap_or_default(),
        incident["id"]
    )
}

/// The drivers and their movement.
struct World {
    now: u64,
    drivers: BTreeMap<String, At>,
    /// The radius of subscriptions, in metres.
    reach: f64,
    rng: Rng,
    recorded: Option<Recorded>,
}

/// Recorded positions of a file, and the next one, already read.
struct Recorded {
    lines: Box<dyn Iterator<Item = std::io::Result<String>>>,
    next: Option<(u64, String, f64, f64)>,
}

impl World {
    fn generated(drivers: u32) -> World {
        let mut rng = Rng::with_seed(7);
        let drivers = (0..drivers).map(|n| {
            let at = At {
                longitude: 10.0 + (rng.f64() - 0.5) * 0.3,
                latitude: 53.55 + (rng.f64() - 0.5) * 0.2,
                notified: rng.u64(0..AGAIN),
            };
            (format!("driver{n}"), at)
        });
        World {
            now: 28_800,
            drivers: drivers.collect(),
            reach: 800.0,
            rng: Rng::with_seed(11),
            recorded: None,
        }
    }

    fn recorded(file: &FilePath) -> Result<World, Failure> {
        let opened = sources(std::slice::from_ref(&file.to_path_buf()), None);
        let source = opened?.pop();
        let unreadable = || Failure::Usage(format!("cannot read {}", file.display()));
        let source = source.ok_or_else(unreadable)?;
        let reader = source.open(&Arc::default()).map_err(|_| unreadable())?;
        let mut recorded = Recorded {
            lines: Box::new(BufReader::new(reader).lines()),
            next: None,
        };
        recorded.advance()?;
        let now = recorded.next.as_ref().map_or(0, |next| next.0);
        Ok(World {
            now,
            drivers: BTreeMap::new(),
            reach: 15_000.0,
            rng: Rng::with_seed(11),
            recorded: Some(recorded),
        })
    }

    /// Advances the clock by a second. False at the end of the recording.
    fn step(&mut self) -> Result<bool, Failure> {
        self.now += 1;
        let Some(recorded) = &mut self.recorded else {
            for at in self.drivers.values_mut() {
                at.longitude += (self.rng.f64() - 0.5) * 0.0006;
                at.latitude += (self.rng.f64() - 0.5) * 0.0004;
            }
            return Ok(true);
        };
        // Gaps without positions are skipped.
        if let Some((time, ..)) = recorded
            .next
            .as_ref()
            .filter(|next| next.0 > self.now + 600)
        {
            self.now = *time;
        }
        while let Some((time, name, longitude, latitude)) = recorded.next.take() {
            if time > self.now {
                recorded.next = Some((time, name, longitude, latitude));
                return Ok(true);
            }
            let notified = self.drivers.get(&name).map_or(0, |at| at.notified);
            let at = At {
                longitude,
                latitude,
                notified,
            };
            self.drivers.insert(name, at);
            recorded.advance()?;
        }
        Ok(false)
    }

    /// The positions of this second's incidents: near one driver in 200, at least one.
    fn incidents(&mut self) -> Vec<(f64, f64)> {
        let count = (self.drivers.len() / 200).max(1);
        let places: Vec<At> = self.drivers.values().copied().collect();
        let near = |rng: &mut Rng| {
            let at = places.get(rng.usize(0..places.len().max(1)))?;
            Some((
                at.longitude + rng.f64() * 0.01,
                at.latitude + rng.f64() * 0.01,
            ))
        };
        (0..count)
            .filter_map(|_| near(&mut self.rng))
            .filter(|(longitude, latitude)| longitude.abs() < 180.0 && latitude.abs() < 90.0)
            .collect()
    }
}

impl Recorded {
    /// Reads the next line with a time and a position.
    fn advance(&mut self) -> Result<(), Failure> {
        for line in self.lines.by_ref() {
            let line =
                line.map_err(|error| Failure::Usage(format!("cannot read further: {error}")))?;
            let record: Value = serde_json::from_str(&line)
                .map_err(|error| Failure::from(ModelError::bad_input(error.to_string())))?;
            let number = |name: &str| record.get(name).and_then(Value::as_f64);
            let time = record.get("time").and_then(Value::as_u64);
            let name = record.get("icao24").and_then(Value::as_str);
            if let (Some(time), Some(name), Some(lon), Some(lat)) =
                (time, name, number("lon"), number("lat"))
                && lon.abs() <= 180.0
                && lat.abs() <= 90.0
            {
                self.next = Some((time, name.to_owned(), lon, lat));
                return Ok(());
            }
        }
        self.next = None;
        Ok(())
    }
}
