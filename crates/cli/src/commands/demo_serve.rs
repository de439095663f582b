//! `demo serve`: a served store with a city that moves, to look at in a browser and from a shell.

use std::path::Path as FilePath;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::pubsub::{Broker, Config as Topics, PubSub, Region, Subscription};
use esker::{AreaExpr, ChangesFrom, DatasetDef, Expr, Index, KeyType, Op, Operand, Request, field};
use esker_client::{Access, At, Client, Dataset, Feed, segment};
use esker_server::{Config, Ends, Server, run_until};

use super::demo_folder::DemoFolder;
use super::serve::ended;
use crate::args::DemoServeArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, note};
use crate::store::{create_or_open_folder, options};
use crate::traffic::{CENTRE, Traffic};

const VEHICLES: &str = "vehicles";
const INCIDENTS: &str = "incidents";
/// How often each vehicle has moved when the server starts.
const MOVES: usize = 40;
/// After how many of these moves the records are written to tables.
const MOVES_A_TABLE: usize = 10;
/// The memory of the store, in bytes: little, so that tables are written while one watches.
const MEMORY: usize = 8 << 20;
/// Batches of updates in a second.
const BATCHES: u32 = 5;
/// Published positions in a second.
const POSITIONS: u32 = 5;
/// How long the stored subscriptions last.
const LASTING: Duration = Duration::from_secs(24 * 3600);
/// How long a published position lives.
const POSITION_LIVES: &str = "60s";
/// The log that is kept for a consumer, in bytes.
const KEPT: u64 = 64 << 20;
/// Seconds between two reads of the consumer that keeps up.
const DISPATCH: u64 = 5;
/// Seconds between two incidents.
const INCIDENT: u64 = 3;

/// `esker demo serve [DIR]`
pub(super) fn serve(args: &DemoServeArgs, folder: &DemoFolder) -> Result<Outcome, Failure> {
    let watch = folder.watch()?;
    let mut output = Output::new();
    output.line(format_args!("store: {}", folder.path.display()))?;
    output.flush()?;
    let mut traffic = Traffic::new(args.seed, args.vehicles);
    prepare(&folder.path, &mut traffic)?;
    let config = Config {
        dir: folder.path.clone(),
        memory: Some(MEMORY),
        listen: args.listen,
        mqtt: Some(args.mqtt),
        ..Config::default()
    };
    let rate = args.rate;
    let ends = Ends {
        length: args.seconds.map(Duration::from_secs),
        at_once: Some(Box::new(folder.removal())),
    };
    let (end, ended_city) = channel();
    let mut running = None;
    let signal = run_until(config, ends, |server| {
        // From here on the server waits for the signals.
        drop(watch);
        let url = format!("http://{}", server.address());
        let shown = show(&mut output, server, &url, args);
        let lives = thread::spawn(move || City::connect(&url, traffic, rate)?.live(&ended_city));
        running = Some((shown, lives));
    });
    drop(end);
    let signal = signal.map_err(ended)?;
    if let Some((shown, lives)) = running {
        shown?;
        match lives.join() {
            // The server may end before the city.
            Ok(Ok(()) | Err(esker::Error::Unavailable(_) | esker::Error::Closed)) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(Failure::Store("the city's thread panicked".to_string())),
        }
    }
    if !folder.temporary {
        note(format_args!("the store stays in {}", folder.path.display()));
    }
    Ok(signal.map_or(Outcome::Done, Outcome::Interrupted))
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Creates the datasets and gives them a past: updates, tables, consumers, subscriptions and a
/// snapshot.
fn prepare(folder: &FilePath, traffic: &mut Traffic) -> Result<(), Failure> {
    let db = create_or_open_folder(folder, PubSub::register(options(MEMORY)))?;
    let def = DatasetDef::new("id", KeyType::Int)
        .index("at", Index::spatial())
        .index("line", Index::recent().string())
        .index("delay", Index::embedded().int())
        .keep_old_records();
    let vehicles = db.create_dataset::<esker::Key>(VEHICLES, def)?;
    let def = DatasetDef::new("id", KeyType::Int)
        .index("at", Index::spatial())
        .index("kind", Index::lazy().string())
        .expires_at("until")
        .keep_old_records();
    db.create_dataset::<esker::Key>(INCIDENTS, def)?;
    let broker = Broker::create_or_open(&db, Topics::new())?;
    for (user, topic) in [
        ("control room", "incidents"),
        ("drivers of U1", "incidents/signal"),
        ("pedestrians", "vehicles/bus 5"),
    ] {
        let subscription = Subscription::to(topic.parse()?)
            .user(user.as_bytes())
            .lasting(LASTING)
            .within(Region::Circle {
                longitude: CENTRE[0],
                latitude: CENTRE[1],
                metres: 5_000.0,
            });
        broker.subscribe(&subscription)?;
    }
    for moves in 1..=MOVES {
        let mut batch = vehicles.batch();
        for _ in 0..traffic.len() {
            if let Some(record) = traffic.step(now()) {
                batch.put_json(record.to_string().as_bytes())?;
            }
        }
        batch.durability(esker::Durability::Os).commit()?;
        if moves.is_multiple_of(MOVES_A_TABLE) {
            db.flush()?;
        }
    }
    db.keep_snapshot("morning")?;
    drop((vehicles, broker));
    db.close()?;
    Ok(())
}

/// Prints the address and the commands to try.
fn show(
    output: &mut Output,
    server: &Server,
    url: &str,
    args: &DemoServeArgs,
) -> Result<(), Failure> {
    let [lon, lat] = CENTRE;
    let (vehicles, rate) = (args.vehicles, args.rate);
    output.line(format_args!(
        "{vehicles} vehicles in Hamburg, {rate} updates a second, incidents that expire; until Ctrl-C"
    ))?;
    output.line(format_args!("\n# the dashboard, in a browser\n  {url}/"))?;
    let records = format!("curl -G {url}/v1/datasets/{VEHICLES}");
    let area = format!("circle({lon},{lat},1500)");
    let mut commands = vec![
        (
            "two vehicles of a line that are late",
            format!(
                "{records}/records --data-urlencode 'where=line = U1 and delay > 30' -d limit=2"
            ),
        ),
        (
            "vehicles near the central station",
            format!("{records}/records --data-urlencode 'where=within(at, {area})' -d limit=3"),
        ),
        (
            "vehicles that come there and leave it, as they do",
            format!("{records}/fence -N -d field=at --data-urlencode 'area={area}'"),
        ),
        (
            "incidents of the last minute, and new ones",
            format!("curl -N '{url}/v1/topics/incidents/subscribe?since=60s'"),
        ),
    ];
    if let Some(address) = server.mqtt_address() {
        let (host, port) = (address.ip(), address.port());
        commands.push((
            "incidents over MQTT",
            format!("mosquitto_sub -h {host} -p {port} -t 'incidents/#' -v"),
        ));
    }
    for (title, command) in [
        (
            "the command line, with the address in place of a folder",
            format!("find {url} {VEHICLES} 'line = U1 and delay > 30' --limit 2 --explain"),
        ),
        (
            "vehicles and their mean delay, by line",
            format!("aggregate {url} {VEHICLES} 'count,avg(delay)' --by line"),
        ),
        (
            "the first five vehicles that came to the central station or left it",
            format!("fence {url} {VEHICLES} at '{area}' --follow --limit 5"),
        ),
    ] {
        commands.push((title, format!("esker {command}")));
    }
    for (title, command) in commands {
        output.line(format_args!("\n# {title}\n$ {command}"))?;
    }
    output.flush()
}

/// The city as a client of its server.
struct City {
    client: Client,
    vehicles: Dataset,
    incidents: Dataset,
    /// A consumer that keeps up.
    dispatcher: Feed,
    traffic: Traffic,
    /// Updates in a batch.
    updates: u32,
    /// Seconds since the start.
    second: u64,
}

impl City {
    fn connect(url: &str, traffic: Traffic, rate: u32) -> esker::Result<City> {
        let client = Client::connect(url, &Access::default())?;
        let vehicles = client.dataset(VEHICLES)?;
        let incidents = client.dataset(INCIDENTS)?;
        let dispatcher = vehicles.consume("dispatcher", Some(ChangesFrom::Now), KEPT, false)?;
        // One that never reads: its lag grows.
        vehicles.consume("archive", Some(ChangesFrom::Now), KEPT, false)?;
        Ok(City {
            client,
            vehicles,
            incidents,
            dispatcher,
            traffic,
            updates: rate.div_ceil(BATCHES),
            second: 0,
        })
    }

    /// Lives until the other end of the channel is dropped.
    fn live(mut self, ends: &Receiver<()>) -> esker::Result<()> {
        let pause = Duration::from_secs(1) / BATCHES;
        let mut next = Instant::now();
        for batch in 0_u64.. {
            self.movement()?;
            if batch.is_multiple_of(u64::from(BATCHES)) {
                self.second += 1;
                self.second()?;
            }
            // A machine that is too slow has fewer updates, not a queue of them.
            next = (next + pause).max(Instant::now());
            match ends.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }

    fn movement(&mut self) -> esker::Result<()> {
        let mut writes = self.vehicles.writes();
        for _ in 0..self.updates {
            if let Some(record) = self.traffic.step(now()) {
                writes.put_json(record.to_string().as_bytes())?;
            }
        }
        writes.commit().map(drop)
    }

    /// What happens once a second.
    fn second(&mut self) -> esker::Result<()> {
        if self.second % INCIDENT == 1 {
            self.incident()?;
        }
        for _ in 0..POSITIONS {
            self.position()?;
        }
        self.queries()?;
        if self.second.is_multiple_of(DISPATCH) {
            while self.dispatcher.wait(Duration::ZERO)?.is_some() {}
            self.dispatcher.done()?;
        }
        Ok(())
    }

    fn incident(&mut self) -> esker::Result<()> {
        let Some(incident) = self.traffic.incident(now()) else {
            return Ok(());
        };
        self.incidents
            .put_json(incident.record.to_string().as_bytes())?;
        let [x, y] = incident.at;
        let topic = segment(&format!("incidents/{}", incident.kind));
        let lives = incident.lasts;
        let path = format!("/v1/topics/{topic}?lives={lives}s&x={x}&y={y}");
        self.client.tell(&path, &incident.record)
    }

    /// Moves a vehicle and publishes where it is.
    fn position(&mut self) -> esker::Result<()> {
        let Some(record) = self.traffic.step(now()) else {
            return Ok(());
        };
        self.vehicles.put_json(record.to_string().as_bytes())?;
        let text = |name: &str| record.get(name).and_then(|value| value.as_str());
        let number = |at: usize| record.get("at").and_then(|point| point.get(at)?.as_f64());
        let (Some(line), Some(x), Some(y)) = (text("line"), number(0), number(1)) else {
            return Ok(());
        };
        let topic = segment(&format!("vehicles/{line}"));
        let path = format!("/v1/topics/{topic}?lives={POSITION_LIVES}&x={x}&y={y}");
        self.client.tell(&path, &record)
    }

    /// The queries of others, which make the indexes useful.
    fn queries(&self) -> esker::Result<()> {
        let line = field("line").eq(Traffic::line(self.second));
        let late = Expr::compare("delay".parse()?, Op::Gt, Operand::text("600"));
        let [x, y] = CENTRE;
        let near = field("at").within(AreaExpr::circle(x, y, 800.0));
        for condition in [line, late, near.clone()] {
            Self::query(&self.vehicles, condition)?;
        }
        let kind = field("kind").eq(Traffic::kind(self.second));
        for condition in [kind, near] {
            Self::query(&self.incidents, condition)?;
        }
        Ok(())
    }

    fn query(dataset: &Dataset, condition: Expr) -> esker::Result<()> {
        let mut request = Request::of(condition);
        request.limit = Some(10);
        for record in dataset.find(&At::Now, &request)? {
            record?;
        }
        Ok(())
    }
}
