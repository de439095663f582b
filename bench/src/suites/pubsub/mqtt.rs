//! A real broker, for the part that brokers do: subscriptions to what comes from now on, for ever, by topic. Mosquitto over
//! the loopback, beside DualDB and lists in a hash map in the process itself. It is started here when it is installed
//! (Debian's `mosquitto`); it knows no past, no intervals and no expiry, and has everything in memory.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esker::{Durability, Options};
use esker_pubsub::{Broker, Config, PubSub, Publication, Subscription, Topic};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::failure::{Failure, Result};
use crate::measure::Row;
use crate::meter::{self, Latency};
use crate::run::Job;

/// The experiment's name.
pub const EXPERIMENT: &str = "brokers";
/// Subscriptions to each topic.
const MATCHES: usize = 4;
/// Publications that are sent before their notifications are read.
const TOGETHER: usize = 100;
/// Bytes of a publication.
const BODY: usize = 200;
/// Topics of a request to subscribe.
const REQUESTED: usize = 1000;
/// Where Debian puts it.
const PLACES: [&str; 2] = ["/usr/sbin/mosquitto", "/usr/bin/mosquitto"];

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// Mosquitto, over the loopback.
    Mosquitto,
    /// Esker, in the process.
    Dual,
    /// Lists in a hash map, in the process.
    Memory,
}

impl Who {
    /// All of them.
    pub const ALL: [Who; 3] = [Who::Mosquitto, Who::Dual, Who::Memory];

    /// The name in the rows.
    pub fn name(self) -> &'static str {
        match self {
            Who::Mosquitto => "mosquitto",
            Who::Dual => "DualDB",
            Who::Memory => "in memory",
        }
    }
}

/// The broker's program, where it is installed.
pub fn installed() -> Option<PathBuf> {
    PLACES.iter().map(PathBuf::from).find(|path| path.exists())
}

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// Who does it.
    pub who: Who,
    /// Subscriptions that are there.
    pub subscriptions: usize,
    /// Publications.
    pub publications: usize,
    /// Bytes of memory that a store has.
    pub memory: usize,
}

/// A broker that is asked.
trait Subject {
    /// Adds a subscription of one of [`MATCHES`] clients to each of these topics.
    fn subscribe(&mut self, client: usize, topics: &[u64]) -> Result<()>;

    /// Publishes to these topics, and returns how many notifications there were, all of them delivered.
    fn publish(&mut self, topics: &[u64], body: &[u8]) -> Result<usize>;

    /// Bytes of memory, and CPU time so far.
    fn used(&self) -> Result<(u64, Duration)>;
}

/// Does the task.
pub fn run(job: &Job, task: &Task) -> Result<()> {
    let mut subject: Box<dyn Subject> = match task.who {
        Who::Mosquitto => Box::new(Mosquitto::start(&job.scratch)?),
        Who::Dual => Box::new(Dual::create(&job.scratch, task.memory)?),
        Who::Memory => Box::new(Lists::default()),
    };
    let topics = (task.subscriptions / MATCHES).max(1) as u64;
    let before = subject.used()?;
    let mut latency = Latency::new()?;
    for client in 0..MATCHES {
        let all: Vec<u64> = (0..topics).collect();
        for some in all.chunks(REQUESTED) {
            let start = Instant::now();
            subject.subscribe(client, some)?;
            let took = start.elapsed() / some.len() as u32;
            (0..some.len()).for_each(|_| latency.add(took));
        }
    }
    let after = subject.used()?;
    let memory = after.0.saturating_sub(before.0);
    let mut made = row(
        job,
        task,
        "subscribe",
        &latency,
        after.1.saturating_sub(before.1),
    );
    let each = memory as f64 / latency.ops().max(1) as f64;
    made.figures
        .insert("memory_per_subscription".to_string(), each);
    job.report(&made)?;
    for (operation, together) in [("publish", TOGETHER), ("publish, one at a time", 1)] {
        let mut rng = Rng::with_seed(job.seed);
        let (mut latency, mut told) = (Latency::new()?, 0);
        let count = match together {
            1 => task.publications / 20,
            _ => task.publications,
        };
        let before = subject.used()?;
        for _ in 0..(count / together).max(1) {
            let some: Vec<u64> = (0..together).map(|_| rng.u64(0..topics)).collect();
            let body: Vec<u8> = (0..BODY).map(|_| rng.lowercase() as u8).collect();
            let start = Instant::now();
            told += subject.publish(&some, &body)?;
            let took = start.elapsed() / together as u32;
            (0..together).for_each(|_| latency.add(took));
        }
        if told != MATCHES * latency.ops() as usize {
            return Err(Failure::new(format!(
                "{} delivered {told} notifications of {}",
                task.who.name(),
                MATCHES * latency.ops() as usize
            )));
        }
        let used = subject.used()?;
        let cpu = used.1.saturating_sub(before.1);
        job.report(&row(job, task, operation, &latency, cpu))?;
    }
    Ok(())
}

fn row(job: &Job, task: &Task, operation: &str, latency: &Latency, cpu: Duration) -> Row {
    let ops = latency.ops().max(1) as f64;
    Row {
        suite: job.suite.clone(),
        experiment: EXPERIMENT.to_string(),
        subject: task.who.name().to_string(),
        operation: operation.to_string(),
        parameters: BTreeMap::from([("subscriptions".to_string(), Json::from(task.subscriptions))]),
        repeat: job.repeat,
        ops: latency.ops(),
        seconds: latency.wall().as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / ops,
        p50_us: latency.quantile_us(0.5),
        p99_us: latency.quantile_us(0.99),
        p999_us: latency.quantile_us(0.999),
        max_us: latency.quantile_us(1.0),
        figures: BTreeMap::from([(
            "mean_us".to_string(),
            latency.wall().as_secs_f64() * 1e6 / ops,
        )]),
    }
}

/// Esker, in the process.
struct Dual {
    broker: Broker,
}

impl Dual {
    fn create(dir: &Path, memory: usize) -> Result<Dual> {
        let options = Options::new()
            .memory_budget(memory)
            .durability(Durability::Os);
        let db = PubSub::create_or_open(dir, options)?;
        Ok(Dual {
            broker: Broker::create_or_open(&db, Config::new())?,
        })
    }
}

impl Subject for Dual {
    fn subscribe(&mut self, _: usize, topics: &[u64]) -> Result<()> {
        for topic in topics {
            let new = Subscription::to(Topic::dewey(&[*topic])?.into());
            self.broker.subscribe(&new)?;
        }
        Ok(())
    }

    fn publish(&mut self, topics: &[u64], body: &[u8]) -> Result<usize> {
        let mut told = 0;
        for topic in topics {
            let new = Publication::new(Topic::dewey(&[*topic])?, body);
            let published = self.broker.publish(&new)?;
            published.unread.map_or(Ok(()), Err)?;
            told += published.matches.len();
        }
        Ok(told)
    }

    fn used(&self) -> Result<(u64, Duration)> {
        Ok((meter::memory()?.0, meter::process_cpu()))
    }
}

/// Lists in a hash map.
#[derive(Default)]
struct Lists {
    topics: std::collections::HashMap<u64, Vec<u64>>,
    next: u64,
    delivered: Vec<(u64, Box<[u8]>)>,
}

impl Subject for Lists {
    fn subscribe(&mut self, _: usize, topics: &[u64]) -> Result<()> {
        for topic in topics {
            self.next += 1;
            self.topics.entry(*topic).or_default().push(self.next);
        }
        Ok(())
    }

    fn publish(&mut self, topics: &[u64], body: &[u8]) -> Result<usize> {
        let mut told = 0;
        for topic in topics {
            self.delivered.clear();
            for subscription in self.topics.get(topic).into_iter().flatten() {
                self.delivered.push((*subscription, body.into()));
            }
            told += self.delivered.len();
        }
        Ok(told)
    }

    fn used(&self) -> Result<(u64, Duration)> {
        Ok((meter::memory()?.0, meter::process_cpu()))
    }
}

/// A broker that was started, and its clients: one that publishes, the others subscribe.
struct Mosquitto {
    process: Child,
    publisher: Client,
    subscribers: Vec<Client>,
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Mosquitto {
    fn start(dir: &Path) -> Result<Mosquitto> {
        let program = installed().ok_or_else(|| Failure::new("mosquitto is not installed"))?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let config = dir.join("mosquitto.conf");
        let text = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\nlog_dest none\n\
             max_queued_messages 0\n"
        );
        std::fs::write(&config, text)?;
        let mut process = Command::new(program)
            .arg("-c")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let clients = (0..=MATCHES)
            .map(|n| Client::connect(port, n))
            .collect::<Result<Vec<_>>>();
        let mut subscribers = match clients {
            Ok(clients) => clients,
            Err(failure) => {
                process.kill().ok();
                process.wait().ok();
                return Err(failure.context("mosquitto"));
            }
        };
        let publisher = subscribers.remove(0);
        Ok(Mosquitto {
            process,
            publisher,
            subscribers,
        })
    }
}

impl Subject for Mosquitto {
    fn subscribe(&mut self, client: usize, topics: &[u64]) -> Result<()> {
        match self.subscribers.get_mut(client) {
            Some(client) => client.subscribe(topics),
            None => Err(Failure::new("there is no such client")),
        }
    }

    fn publish(&mut self, topics: &[u64], body: &[u8]) -> Result<usize> {
        let mut packets = Vec::new();
        for topic in topics {
            let mut packet = Vec::with_capacity(body.len() + 16);
            put_text(&mut packet, &topic.to_string());
            packet.extend_from_slice(body);
            put_packet(&mut packets, PUBLISH, &packet);
        }
        self.publisher.stream.get_mut().write_all(&packets)?;
        let mut told = 0;
        for subscriber in &mut self.subscribers {
            for _ in topics {
                told += usize::from(subscriber.packet()? == PUBLISH);
            }
        }
        Ok(told)
    }

    fn used(&self) -> Result<(u64, Duration)> {
        let of =
            |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", self.process.id()));
        let status = of("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        let kib: u64 = number.map_or(Ok(0), str::parse)?;
        // Behind the name, which may have blanks: user and system time are the 12th and 13th, in hundredths of a second.
        let stat = of("stat")?;
        let (_, behind) = stat.rsplit_once(')').unwrap_or_default();
        let ticks = behind.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|text| text.parse::<u64>().ok()).sum();
        Ok((kib * 1024, Duration::from_millis(ticks * 10)))
    }
}

/// Kinds of packets of MQTT 3.1.1, without a delivery guarantee.
const CONNECT: u8 = 0x10;
const CONNECTED: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const SUBSCRIBE: u8 = 0x82;
const SUBSCRIBED: u8 = 0x90;

/// A connection.
struct Client {
    stream: BufReader<TcpStream>,
    packet: Vec<u8>,
}

impl Client {
    fn connect(port: u16, number: usize) -> Result<Client> {
        let begin = Instant::now();
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(failure) if begin.elapsed() > Duration::from_secs(5) => {
                    return Err(failure.into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut client = Client {
            stream: BufReader::with_capacity(64 << 10, stream),
            packet: Vec::new(),
        };
        let mut body = Vec::new();
        put_text(&mut body, "MQTT");
        // Version 3.1.1, a new session, kept without a sign of life.
        body.extend_from_slice(&[4, 2, 0, 0]);
        put_text(&mut body, &format!("bench{number}"));
        client.ask(CONNECT, &body, CONNECTED)?;
        Ok(client)
    }

    fn subscribe(&mut self, topics: &[u64]) -> Result<()> {
        let mut body = vec![0, 1];
        for topic in topics {
            put_text(&mut body, &topic.to_string());
            body.push(0);
        }
        self.ask(SUBSCRIBE, &body, SUBSCRIBED)
    }

    fn ask(&mut self, kind: u8, body: &[u8], answer: u8) -> Result<()> {
        let mut packet = Vec::new();
        put_packet(&mut packet, kind, body);
        self.stream.get_mut().write_all(&packet)?;
        match self.packet()? {
            kind if kind == answer => Ok(()),
            kind => Err(Failure::new(format!("the broker answered by {kind:#x}"))),
        }
    }

    /// The kind of the next packet.
    fn packet(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        let [kind] = byte;
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            self.stream.read_exact(&mut byte)?;
            let [digit] = byte;
            length |= usize::from(digit & 127) << shift;
            shift += 7;
            if digit & 128 == 0 || shift > 21 {
                break;
            }
        }
        self.packet.resize(length, 0);
        self.stream.read_exact(&mut self.packet)?;
        Ok(kind)
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_packet(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    let mut length = body.len();
    loop {
        let digit = (length & 127) as u8;
        length >>= 7;
        out.push(if length > 0 { digit | 128 } else { digit });
        if length == 0 {
            break;
        }
    }
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_packets_have_seven_bits_a_byte() {
        let mut out = Vec::new();
        put_packet(&mut out, PUBLISH, &[0; 321]);
        assert_eq!(out[..3], [PUBLISH, 0xC1, 0x02]);
        assert_eq!(out.len(), 324);
    }
}
