//! SIGKILL of a server under load: what was acknowledged is there, and streams of events resume
//! without a gap and without a duplicate.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use esker::{Change, ChangeKind, ChangesFrom, Database, Key, Options, Record};
use pubsub::{Broker, Config as Topics, PubSub, Subscription, Time};
use serde_json::{Value, json};

use crate::events::{Events, Sent, wait_until};
use crate::process::Process;

/// How often the server is killed.
const KILLS: usize = 3;
const WRITERS: u64 = 3;
/// Keys of each writer.
const KEYS: u64 = 40;
/// What is acknowledged before each kill, and what each reader receives.
const ACKNOWLEDGED: usize = 150;
const RECEIVED: usize = 20;

/// What the threads of the test share.
struct Scene {
    address: Mutex<SocketAddr>,
    has_ended: AtomicBool,
    acknowledged: AtomicUsize,
    has_failed: AtomicBool,
}

/// Ends all threads when one of them has failed.
struct Guard<'a>(&'a Scene);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.has_failed.store(true, Ordering::SeqCst);
            self.0.has_ended.store(true, Ordering::SeqCst);
        }
    }
}

impl Scene {
    /// The status of an answer; `None` if the server is killed meanwhile.
    fn send(&self, method: &str, path: &str, body: &Value) -> Option<u16> {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_idle_connections(0)
            .build();
        let address = *self.address.lock().unwrap();
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{address}{path}"))
            .header("content-type", "application/json")
            .body(body.to_string())
            .unwrap();
        let answer = ureq::Agent::from(agent).run(request);
        let status = answer.ok().map(|answer| answer.status().as_u16());
        if status.is_none() {
            // Until there is another server.
            thread::sleep(Duration::from_millis(5));
        }
        status
    }
}

/// A record: some lie in the area of the fence, some meet the condition.
fn record(id: i64, v: u64) -> Value {
    json!({"id": id, "v": v, "n": (v + id.unsigned_abs()) % 10, "at": [v % 31, 0]})
}

fn is_inside(record: &Value) -> bool {
    (10..=20).contains(&record["at"][0].as_i64().unwrap())
}

/// What a change did to its key: the new `v`, or nothing after a deletion.
type Effect = (i64, Option<u64>);

/// Writes until the end; returns what was acknowledged, in order.
fn write(scene: &Scene, writer: u64) -> Vec<Effect> {
    let _guard = Guard(scene);
    let mut acknowledged = Vec::new();
    for n in 0.. {
        if scene.has_ended.load(Ordering::SeqCst) {
            break;
        }
        let id = i64::try_from(writer * 1000 + n % KEYS).unwrap();
        let path = format!("/v1/datasets/visits/records/{id}");
        let (effects, status) = if n % 9 == 8 {
            let status = scene.send("DELETE", &path, &Value::Null);
            // It may have been deleted by a request that a kill left without an answer.
            let effects = Vec::from_iter((status != Some(404)).then_some((id, None)));
            (
                effects,
                status.map(|status| if status == 404 { 204 } else { status }),
            )
        } else if n % 9 == 4 {
            let other = id + 500;
            let put = |id| json!({"op": "put", "dataset": "visits", "record": record(id, n)});
            let batch = json!({"writes": [put(id), put(other)]});
            let effects = vec![(id, Some(n)), (other, Some(n))];
            (effects, scene.send("POST", "/v1/batch", &batch))
        } else {
            (
                vec![(id, Some(n))],
                scene.send("PUT", &path, &record(id, n)),
            )
        };
        match status {
            None => {}
            Some(200 | 201 | 204) => {
                scene.acknowledged.fetch_add(1, Ordering::SeqCst);
                acknowledged.extend(effects);
            }
            Some(other) => panic!("{other}"),
        }
    }
    acknowledged
}

/// Publishes numbers until the end; returns those that were acknowledged.
fn publish(scene: &Scene) -> Vec<i64> {
    let _guard = Guard(scene);
    let mut acknowledged = Vec::new();
    for n in 1.. {
        if scene.has_ended.load(Ordering::SeqCst) {
            break;
        }
        match scene.send("POST", "/v1/topics/t", &json!({ "n": n })) {
            None => {}
            Some(200 | 201 | 204) => acknowledged.push(n),
            Some(other) => panic!("{other}"),
        }
    }
    acknowledged
}

/// A reader of events that resumes with the last id.
struct Reader {
    path: String,
    /// It breaks off after so many events, and connects again.
    breaks_after: usize,
    received: AtomicUsize,
}

impl Reader {
    fn new(path: &str, breaks_after: usize) -> Reader {
        Reader {
            path: format!("/v1/{path}"),
            breaks_after,
            received: AtomicUsize::new(0),
        }
    }

    /// Reads up to the last event, which `is_last` knows.
    fn read(&self, scene: &Scene, is_last: impl Fn(&Sent) -> bool) -> Vec<Sent> {
        let _guard = Guard(scene);
        let (mut seen, mut last_id) = (Vec::new(), None::<String>);
        loop {
            assert!(
                !scene.has_failed.load(Ordering::SeqCst),
                "another thread has failed"
            );
            let header = last_id.as_ref().map(|id| format!("last-event-id: {id}"));
            let headers: Vec<&str> = header.as_deref().into_iter().collect();
            let address = *scene.address.lock().unwrap();
            let Ok(events) = Events::at(address, &self.path, &headers) else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            let mut events = events.may_break();
            if events.status != 200 {
                panic!("{}: {}", self.path, events.problem());
            }
            events.last_id = last_id;
            for _ in 0..self.breaks_after {
                let Some(sent) = events.next() else { break };
                assert_ne!(sent.event, "error", "{}: {sent:?}", self.path);
                let ends = is_last(&sent);
                seen.push(sent);
                self.received.fetch_add(1, Ordering::SeqCst);
                if ends {
                    return seen;
                }
            }
            last_id = events.last_id;
        }
    }
}

/// An event of a dataset, in short.
#[derive(Debug, PartialEq)]
struct Short {
    seq: u64,
    event: String,
    key: i64,
    record: Value,
}

fn short(sent: &Sent) -> Short {
    Short {
        seq: sent.data["seq"].as_u64().unwrap(),
        event: sent.event.clone(),
        key: sent.data["key"].as_i64().unwrap(),
        record: sent.data["record"].clone(),
    }
}

/// A change in the log of the store.
struct Logged {
    seq: u64,
    kind: ChangeKind,
    new: Option<Value>,
    old: Option<Value>,
}

impl Logged {
    fn of(change: &Change) -> Logged {
        let value = |record: &Record| serde_json::from_slice(record.json()).unwrap();
        Logged {
            seq: change.seq(),
            kind: change.kind(),
            new: change.record().map(value),
            old: change.old().map(value),
        }
    }

    fn key(&self) -> i64 {
        let either = self.new.as_ref().or(self.old.as_ref());
        either.unwrap()["id"].as_i64().unwrap()
    }

    fn effect(&self) -> Effect {
        let v = self.new.as_ref().map(|new| new["v"].as_u64().unwrap());
        (self.key(), v)
    }

    fn short(&self, event: &str) -> Short {
        Short {
            seq: self.seq,
            event: event.to_string(),
            key: self.key(),
            record: self.new.clone().unwrap_or_default(),
        }
    }

    /// The event of a stream of changes.
    fn change(&self) -> Short {
        self.short(match self.kind {
            ChangeKind::Put => "put",
            _ => "delete",
        })
    }

    /// The event of the fence.
    fn fence(&self) -> Option<Short> {
        let [old, new] = [&self.old, &self.new].map(|one| one.as_ref().is_some_and(is_inside));
        let event = match (old, new) {
            (false, true) => "enter",
            (true, false) => "exit",
            (true, true) => "inside",
            (false, false) => return None,
        };
        Some(self.short(event))
    }

    fn meets(record: Option<&Value>) -> bool {
        record.is_some_and(|record| record["n"].as_u64().unwrap() > 5)
    }
}

/// The changes that the store has, and the numbers that were published, each with its own.
fn stored(folder: &Path) -> (Vec<Logged>, Vec<(u64, i64)>) {
    let db = Database::create_or_open(folder, PubSub::register(Options::new())).unwrap();
    let visits = db.dataset::<Key>("visits").unwrap();
    let mut log = visits.changes(ChangesFrom::Oldest).unwrap();
    log = log.with_old().unwrap();
    let changes = std::iter::from_fn(|| log.next().unwrap());
    let changes = changes.map(|change| Logged::of(&change)).collect();
    let broker = Broker::create_or_open(&db, Topics::new()).unwrap();
    let all = Subscription::to("t".parse().unwrap()).from(Time::MIN);
    let published = broker.query_after(&all, 0, usize::MAX).unwrap();
    let number = |body: &[u8]| {
        let value: Value = serde_json::from_slice(body).unwrap();
        value["n"].as_i64().unwrap()
    };
    let published = published.iter();
    let published = published.map(|one| (one.seq, number(&one.body)));
    (changes, published.collect())
}

/// Asserts that `part` is in `whole`, in order.
fn assert_contains<T: PartialEq + std::fmt::Debug>(whole: &[T], part: &[T]) {
    let mut whole = whole.iter();
    for one in part {
        assert!(whole.any(|other| other == one), "{one:?} is missing");
    }
}

fn assert_events(path: &str, seen: &[Sent], wanted: Vec<Short>) {
    let seen: Vec<Short> = seen.iter().map(short).collect();
    let differs = seen
        .iter()
        .zip(&wanted)
        .position(|(seen, wanted)| seen != wanted);
    if let Some(at) = differs {
        panic!("{path}: at {at} {:?} instead of {:?}", seen[at], wanted[at]);
    }
    assert_eq!(seen.len(), wanted.len(), "{path}");
}

#[test]
fn streams_resume_after_kills_without_a_gap_and_without_a_duplicate() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("db");
    let mut process = Process::start(&folder);
    let scene = Scene {
        address: Mutex::new(process.http),
        has_ended: AtomicBool::new(false),
        acknowledged: AtomicUsize::new(0),
        has_failed: AtomicBool::new(false),
    };
    let definition = json!({"key": "id:int", "indexes": ["at:spatial"], "old_records": true});
    let created = scene.send("PUT", "/v1/datasets/visits", &definition);
    assert_eq!(created, Some(201));
    let changes = "datasets/visits/changes?from=oldest";
    // Keeps the log: it acknowledges nothing.
    let keeper = format!("/v1/{changes}&consumer=keeper&keep=1G");
    Events::at(process.http, &keeper, &[]).unwrap().begin();
    let area = "datasets/visits/fence?from=oldest&field=at&area=rect(10,-1,20,1)";
    let readers = [
        Reader::new(changes, usize::MAX),
        Reader::new(changes, 5),
        Reader::new(&format!("{changes}&where=n%20%3E%205"), usize::MAX),
        Reader::new(&format!("{changes}&where=n%20%3E%205&old=true"), 40),
        Reader::new(&format!("{changes}&consumer=mailer&keep=1G"), 100),
        Reader::new(&format!("{area}&events=enter,exit,inside"), usize::MAX),
        Reader::new(&format!("{area}&events=enter,exit,inside"), 30),
        Reader::new("topics/t/subscribe?since=1h", usize::MAX),
        Reader::new("topics/t/subscribe?since=1h", 30),
    ];
    let is_last = |sent: &Sent| sent.data["key"] == -1 || sent.data["record"]["n"] == -1;
    let (mut acknowledged, mut published) = (Vec::new(), Vec::new());
    let mut seen = Vec::new();
    thread::scope(|scope| {
        let scene = &scene;
        let _guard = Guard(scene);
        let writers = (0..WRITERS).map(|writer| scope.spawn(move || write(scene, writer)));
        let writers: Vec<_> = writers.collect();
        let publisher = scope.spawn(|| publish(scene));
        let reading = readers
            .iter()
            .map(|reader| scope.spawn(|| reader.read(scene, is_last)));
        let reading: Vec<_> = reading.collect();
        for _ in 0..KILLS {
            let count = || scene.acknowledged.load(Ordering::SeqCst);
            let received = |reader: &Reader| reader.received.load(Ordering::SeqCst);
            let (begin, before) = (count(), readers.each_ref().map(received));
            wait_until("writes are acknowledged and received", || {
                assert!(
                    !scene.has_failed.load(Ordering::SeqCst),
                    "a thread has failed"
                );
                let mut each = readers.iter().zip(before);
                count() >= begin + ACKNOWLEDGED
                    && each.all(|(reader, before)| received(reader) >= before + RECEIVED)
            });
            process.kill();
            process = Process::start(&folder);
            *scene.address.lock().unwrap() = process.http;
        }
        scene.has_ended.store(true, Ordering::SeqCst);
        acknowledged.extend(writers.into_iter().map(|writer| writer.join().unwrap()));
        published.extend(publisher.join().unwrap());
        // What each reader waits for: in the area, and with a number above five.
        let last = json!({"id": -1, "v": 0, "n": 9, "at": [15, 0]});
        let put = scene.send("PUT", "/v1/datasets/visits/records/-1", &last);
        assert_eq!(put, Some(201));
        let last = scene.send("POST", "/v1/topics/t", &json!({"n": -1}));
        assert!(last.is_some_and(|status| status < 300), "{last:?}");
        seen.extend(reading.into_iter().map(|reader| reader.join().unwrap()));
    });
    process.kill();
    let (logged, of_topic) = stored(&folder);
    let effects: Vec<Effect> = logged.iter().map(Logged::effect).collect();
    for acknowledged in &acknowledged {
        assert_contains(&effects, acknowledged);
    }
    let numbers: Vec<i64> = of_topic.iter().map(|(_, number)| *number).collect();
    assert_contains(&numbers, &published);
    for (reader, seen) in readers.iter().zip(&seen) {
        let path = reader.path.as_str();
        let meets_new = |one: &&Logged| Logged::meets(one.new.as_ref());
        let meets = |one: &&Logged| meets_new(one) || Logged::meets(one.old.as_ref());
        let wanted = match path {
            path if path.contains("topics") => {
                let of = |sent: &Sent| {
                    let seq = sent.data["seq"].as_u64().unwrap();
                    (seq, sent.data["record"]["n"].as_i64().unwrap())
                };
                let seen: Vec<(u64, i64)> = seen.iter().map(of).collect();
                assert_eq!(seen, of_topic, "{path}");
                continue;
            }
            path if path.contains("fence") => logged.iter().filter_map(Logged::fence).collect(),
            path if path.contains("old=true") => {
                logged.iter().filter(meets).map(Logged::change).collect()
            }
            path if path.contains("where") => logged
                .iter()
                .filter(meets_new)
                .map(Logged::change)
                .collect(),
            _ => logged.iter().map(Logged::change).collect(),
        };
        assert_events(path, seen, wanted);
    }
}
