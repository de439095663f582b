//! Changes of datasets and their consumers over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use esker::Request;
use esker_server::{Config, Role, TokenSettings, hash_of};
use serde_json::{Value, json};

use crate::common::{Served, encoded};
use crate::events::{Events, Sent, wait_until};

pub(crate) const CHANGES: &str = "/v1/datasets/visits/changes";

pub(crate) fn served() -> Served {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int", "old_records": true}));
    served.create("other", json!({"key": "id:int"}));
    served
}

pub(crate) fn put(served: &Served, id: u64, n: u64) {
    let record = json!({"id": id, "n": n}).to_string();
    let at = format!("PUT /v1/datasets/visits/records/{id}");
    let put = served.send(&at, &[], record.as_bytes());
    assert!(matches!(put.status, 201 | 204), "{}", put.text());
}

pub(crate) fn load(served: &Served, ids: std::ops::Range<u64>, padding: usize) {
    let padding = "x".repeat(padding);
    for from in ids.clone().step_by(500) {
        let lines = (from..(from + 500).min(ids.end))
            .map(|id| json!({"id": id, "n": id % 10, "padding": padding}).to_string());
        let lines: Vec<String> = lines.collect();
        let ask = "POST /v1/datasets/visits/records";
        let loaded = served.send(ask, &[], lines.join("\n").as_bytes());
        assert_eq!(loaded.status, 200, "{}", loaded.text());
    }
}

fn seqs(sent: &[Sent]) -> Vec<u64> {
    let of = |sent: &Sent| sent.data["seq"].as_u64().unwrap();
    sent.iter().map(of).collect()
}

pub(crate) fn keys(sent: &[Sent]) -> Vec<u64> {
    let of = |sent: &Sent| sent.data["key"].as_u64().unwrap();
    sent.iter().map(of).collect()
}

#[test]
fn changes_come_as_the_command_line_prints_them() {
    let served = served();
    let mut events = Events::after(&served, CHANGES, None);
    assert!(
        events
            .headers
            .contains(&"content-type: text/event-stream".to_string())
    );
    put(&served, 1, 7);
    let record = b"{\"id\": 1,\n \"n\": 8}";
    let at = "/v1/datasets/visits/records/1";
    assert_eq!(served.send(&format!("PUT {at}"), &[], record).status, 204);
    assert_eq!(served.ask(&format!("DELETE {at}")).status, 204);
    let found = events.take(3);
    let seq = |at: usize| &found[at].data["seq"];
    assert_eq!(found[0].event, "put");
    assert_eq!(
        found[0].data,
        json!({"seq": seq(0), "change": "put", "key": 1, "record": {"id": 1, "n": 7}})
    );
    assert_eq!(found[1].data["record"], json!({"id": 1, "n": 8}));
    assert_eq!(found[2].event, "delete");
    assert_eq!(
        found[2].data,
        json!({"seq": seq(2), "change": "delete", "key": 1})
    );
    for one in &found {
        let (_, seq) = one.id.as_ref().unwrap().rsplit_once('-').unwrap();
        assert_eq!(seq, one.data["seq"].to_string());
    }
    let old = Events::after(&served, &format!("{CHANGES}?old=true&from=oldest"), None).take(3);
    assert!(old[0].data.get("old").is_none());
    assert_eq!(old[1].data["old"], json!({"id": 1, "n": 7}));
    assert_eq!(old[2].data["old"], json!({"id": 1, "n": 8}));
    let from = format!("{CHANGES}?from={}", seq(0));
    assert_eq!(
        seqs(&Events::after(&served, &from, None).take(2)),
        seqs(&found[1..])
    );
    let from = format!("{CHANGES}?from={}", found[1].id.as_ref().unwrap());
    assert_eq!(
        seqs(&Events::after(&served, &from, None).take(1)),
        seqs(&found[2..])
    );
}

#[test]
fn a_reader_that_is_cut_at_any_place_receives_each_change_once() {
    let served = served();
    let total = 400;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..total / 4 {
                put(&served, id, id % 10);
                let batch = json!({"writes": [
                    {"op": "put", "dataset": "visits", "record": {"id": 1000 + id, "n": 1}},
                    {"op": "put", "dataset": "other", "record": {"id": id}},
                    {"op": "delete", "dataset": "visits", "key": id.to_string()},
                    {"op": "put", "dataset": "visits", "record": {"id": 2000 + id, "n": 1}},
                ]});
                assert_eq!(served.json("POST /v1/batch", &batch).status, 200);
            }
        });
        let mut found = Vec::new();
        let mut last_id = None;
        let mut random = fastrand::Rng::with_seed(7);
        let begins = format!("{CHANGES}?from=oldest");
        while (found.len() as u64) < total {
            let mut events = Events::after(&served, &begins, last_id.as_deref());
            let left = total as usize - found.len();
            found.extend(events.take(random.usize(0..20).min(left)));
            // What was sent and not read, half an event perhaps, is lost with the connection.
            last_id = events.last_id.clone();
        }
        let all = Events::after(&served, &begins, None).take(total as usize);
        assert_eq!(found, all);
        assert!(seqs(&all).is_sorted_by(|a, b| a < b));
        let own = |at: u64| [at, 1000 + at, at, 2000 + at];
        let wanted: Vec<u64> = (0..total / 4).flat_map(own).collect();
        assert_eq!(keys(&all), wanted);
    });
}

#[test]
fn a_reader_that_is_cut_before_its_first_event_misses_nothing() {
    let served = served();
    let place = Events::after(&served, CHANGES, None).begin();
    put(&served, 1, 1);
    put(&served, 2, 1);
    let mut events = Events::after(&served, CHANGES, Some(&place));
    assert_eq!(keys(&events.take(2)), [1, 2]);
}

#[test]
fn conditions_admit_the_new_record_and_with_old_records_the_old_one() {
    let served = served();
    for (id, n) in [(1, 1), (2, 9), (1, 9), (2, 1), (2, 2), (3, 9)] {
        put(&served, id, n);
    }
    served.ask("DELETE /v1/datasets/visits/records/3");
    put(&served, 4, 9);
    let asked = format!("{CHANGES}?from=oldest&where={}", encoded("n > 5"));
    let found = Events::after(&served, &asked, None).take(4);
    assert_eq!(keys(&found), [2, 1, 3, 4]);
    let found = Events::after(&served, &format!("{asked}&old=true"), None).take(6);
    let of = |sent: &Sent| format!("{}{}", sent.event, sent.data["key"]);
    let found: Vec<String> = found.iter().map(of).collect();
    assert_eq!(found, ["put2", "put1", "put2", "put3", "delete3", "put4"]);
}

#[test]
fn requests_that_cannot_be_served_are_problems_before_the_stream() {
    let served = served();
    put(&served, 1, 1);
    for (path, status, kind) in [
        ("visits/changes?from=then", 400, "bad-input"),
        ("visits/changes?where=n%20%3E", 400, "bad-input"),
        ("visits/changes?deadline=3s", 400, "bad-input"),
        ("visits/changes?consumer=", 400, "bad-input"),
        ("visits/changes?consumer=a&deadline=3", 400, "bad-input"),
        ("nothing/changes", 404, "unknown-dataset"),
        ("other/changes?old=true", 409, "no-old-records"),
        ("other/changes?old=true&consumer=a", 409, "no-old-records"),
        (
            "visits/changes?from=0123456789abcdef-1",
            409,
            "other-history",
        ),
        ("visits/changes?from=100000", 409, "other-history"),
    ] {
        let mut events = Events::open(&served, &format!("/v1/datasets/{path}"), &[]);
        assert_eq!(
            (events.status, &events.problem()["type"]),
            (status, &json!(kind)),
            "{path}"
        );
    }
    let mut events = Events::open(&served, CHANGES, &["last-event-id: nonsense"]);
    assert_eq!(
        (events.status, &events.problem()["type"]),
        (400, &json!("bad-input"))
    );
    let consumers = served.ask("GET /v1/datasets/other/consumers").value();
    assert_eq!(consumers["consumers"], json!([]));
}

#[test]
fn an_event_of_another_dataset_is_no_place_to_continue() {
    let served = served();
    put(&served, 1, 1);
    let of_visits = Events::after(&served, CHANGES, None).begin();
    let other = "/v1/datasets/other/changes";
    let of_other = Events::after(&served, other, None).begin();
    let refused = |path: &str, header: &str| {
        let headers: Vec<&str> = Some(header).into_iter().collect();
        let mut events = Events::open(&served, path, &headers);
        assert_eq!(events.status, 409, "{path}");
        assert_eq!(events.problem()["type"], "other-dataset", "{path}");
    };
    let header = format!("last-event-id: {of_visits}");
    let fence = "/v1/datasets/visits/fence?field=at&area=rect(0,0,1,1)";
    refused(other, &header);
    refused(&format!("{other}?consumer=one"), &header);
    refused(&format!("{other}?from={of_visits}"), "x: y");
    refused(fence, &format!("last-event-id: {of_other}"));
    // A consumer with one connection is not moved past changes that it has not read.
    let path = format!("{CHANGES}?consumer=one");
    let begin = Events::after(&served, &path, None).begin();
    put(&served, 2, 1);
    let later = Events::after(&served, other, None).begin();
    refused(&path, &format!("last-event-id: {later}"));
    assert_eq!(consumer(&served, "one")["position"], json!(begin));
    let ack = "POST /v1/datasets/visits/consumers/one/ack";
    let reply = served.json(ack, &json!({ "id": later }));
    assert_eq!(
        (reply.status, reply.problem().as_str()),
        (409, "other-dataset")
    );
    assert_eq!(consumer(&served, "one")["position"], json!(begin));
    assert_eq!(keys(&Events::after(&served, &path, None).take(1)), [2]);
    // One that gets the name later is another dataset.
    assert_eq!(served.ask("DELETE /v1/datasets/visits").status, 204);
    served.create("visits", json!({"key": "id:int", "old_records": true}));
    refused(CHANGES, &header);
}

#[test]
fn a_position_that_has_expired_is_gone() {
    let served = served();
    put(&served, 1, 1);
    let first = Events::after(&served, &format!("{CHANGES}?from=oldest"), None).take(1);
    load(&served, 0..2000, 100);
    // A clean end flushes what the log has.
    let served = Served::over(served.stop(), Config::default());
    put(&served, 2, 1);
    let header = format!("last-event-id: {}", first[0].id.as_ref().unwrap());
    let mut events = Events::open(&served, CHANGES, &[&header]);
    assert_eq!(events.status, 410);
    let problem = events.problem();
    assert_eq!(problem["type"], "position-expired");
    let oldest = problem["oldest"].as_str().unwrap();
    let from = format!("{CHANGES}?from={oldest}");
    assert_eq!(keys(&Events::after(&served, &from, None).take(1)), [2]);
}

#[test]
fn a_reader_that_is_too_slow_for_the_log_gets_an_error_event() {
    let config = Config {
        memory: Some(8 << 20),
        ..Config::default()
    };
    let served = Served::with(config);
    served.create("visits", json!({"key": "id:int"}));
    let mut events = Events::after(&served, CHANGES, None);
    events.begin();
    let mut loaded = 0;
    let from = format!("{CHANGES}?from=0");
    // Until the log is cut, and then so much that buffers cannot have it all.
    wait_until("the log is cut", || {
        load(&served, loaded..loaded + 4000, 1000);
        loaded += 4000;
        Events::open(&served, &from, &[]).status == 410
    });
    load(&served, loaded..loaded + 40_000, 1000);
    let rest = events.rest();
    let (last, changes) = rest.split_last().unwrap();
    assert_eq!(
        (last.event.as_str(), &last.data["type"]),
        ("error", &json!("position-expired"))
    );
    assert_eq!(last.data["status"], 410);
    assert!(
        keys(changes).iter().copied().eq(0..changes.len() as u64),
        "a gap before the error"
    );
}

/// A consumer, as the server lists it.
pub(crate) fn consumer(served: &Served, name: &str) -> Value {
    let listed = served.ask("GET /v1/datasets/visits/consumers").value();
    let all = listed["consumers"].as_array().unwrap();
    let found = all.iter().find(|one| one["name"] == name);
    found.cloned().unwrap_or(Value::Null)
}

#[test]
fn a_reader_that_does_not_read_is_sent_no_more_than_buffers_hold() {
    let served = served();
    let path = format!("{CHANGES}?consumer=stuck");
    let _events = Events::after(&served, &path, None);
    // Of 64 MB.
    load(&served, 0..1000, 64 << 10);
    let sent = || consumer(&served, "stuck")["outstanding"].as_u64().unwrap();
    let mut before = u64::MAX;
    wait_until("it stops", || {
        std::thread::sleep(Duration::from_secs(1));
        let now = sent();
        std::mem::replace(&mut before, now) == now
    });
    assert!(
        (1..600).contains(&before),
        "{before} changes were read for a client that reads none"
    );
}

#[test]
fn clients_that_do_not_read_leave_the_calls_to_others() {
    let mut config = Config::default();
    config.limits.idle = Duration::from_secs(1);
    let served = Served::with(config);
    served.create("visits", json!({"key": "id:int"}));
    load(&served, 0..1000, 64 << 10);
    let visit = |limit: Option<usize>| {
        let mut request = Request::of("id >= 0".parse().unwrap());
        request.limit = limit;
        json!({"at": "now", "read": {"visit": {"request": request}}})
    };
    let body = visit(None).to_string();
    let address = served.http();
    let silent = [(); 16].map(|()| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!(
            "POST /v1/datasets/visits/read HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    });
    let one = visit(Some(1));
    wait_until("another one is answered", || {
        served.json("POST /v1/datasets/visits/read", &one).status == 200
    });
    drop(silent);
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn idle_streams_cost_no_threads() {
    let served = served();
    let streams: Vec<Events> = (0..600)
        .map(|at| {
            let mut events = match at % 3 {
                0 => Events::after(&served, CHANGES, None),
                1 => Events::after(&served, "/v1/topics/traffic/subscribe", None),
                _ => Events::after(&served, &format!("{CHANGES}?where=n%3D1"), None),
            };
            events.begin();
            events
        })
        .collect();
    // Those of other tests, and of the pool, which ends them after 10 s.
    wait_until("the threads end", || threads() < 300);
    put(&served, 1, 1);
    for mut events in streams.into_iter().step_by(3) {
        assert_eq!(keys(&events.take(1)), [1]);
    }
    wait_until("the threads end", || threads() < 300);
}

fn token(name: &str, role: Role, datasets: &[&str]) -> TokenSettings {
    TokenSettings {
        name: name.to_string(),
        sha256: hash_of(name),
        role,
        datasets: Some(datasets.iter().map(ToString::to_string).collect()),
        topics: None,
    }
}

#[test]
fn rights_and_limits_hold_for_streams() {
    let mut config = Config {
        tokens: vec![
            token("admin", Role::Admin, &["*"]),
            token("reader", Role::Read, &["visits"]),
            token("stranger", Role::Write, &["other"]),
        ],
        ..Config::default()
    };
    config.limits.subscriptions = 2;
    let served = Served::with(config);
    let admin = [
        ("authorization", "Bearer admin"),
        ("content-type", "application/json"),
    ];
    let def = b"{\"key\": \"id:int\"}";
    assert_eq!(
        served.send("PUT /v1/datasets/visits", &admin, def).status,
        201
    );
    let as_reader = "authorization: Bearer reader";
    let as_stranger = "authorization: Bearer stranger";
    let status = |path: &str, token: &str| Events::open(&served, path, &[token]).status;
    assert_eq!(status(CHANGES, "x: y"), 401);
    assert_eq!(status(CHANGES, as_stranger), 404);
    assert_eq!(status(&format!("{CHANGES}?consumer=a"), as_reader), 403);
    let consumers = "GET /v1/datasets/visits/consumers";
    let stranger = [("authorization", "Bearer stranger")];
    assert_eq!(served.send(consumers, &stranger, b"").status, 404);
    let first = Events::open(&served, CHANGES, &[as_reader]);
    let second = Events::open(&served, CHANGES, &[as_reader]);
    assert_eq!((first.status, second.status), (200, 200));
    let third = Events::open(&served, CHANGES, &[as_reader]);
    assert_eq!(third.status, 429);
    assert!(third.headers.contains(&"retry-after: 10".to_string()));
    // The limit is each caller's own.
    assert_eq!(status(CHANGES, "authorization: Bearer admin"), 200);
    drop(first);
    wait_until("a place is free", || status(CHANGES, as_reader) == 200);
}

#[test]
fn the_end_of_the_server_ends_streams_at_once() {
    let served = served();
    let stuck = Events::after(&served, CHANGES, None);
    load(&served, 0..1000, 64 << 10);
    let mut idle = Events::after(&served, CHANGES, None);
    idle.begin();
    let mut topic = Events::after(&served, "/v1/topics/traffic/subscribe", None);
    topic.begin();
    let url = served.url("/v1/datasets/visits/feed");
    let poll = std::thread::spawn(move || {
        let asked = r#"{"from": "now", "wait_ms": 30000}"#;
        let post = ureq::post(url).content_type("application/json");
        post.send(asked).unwrap().status().as_u16()
    });
    wait_until("it waits", || {
        let metrics = served.ask("GET /metrics").text();
        // Beside the request for the measurements.
        metrics.contains("esker_http_requests_in_flight 2")
    });
    let begun = Instant::now();
    let _dir = served.stop();
    assert_eq!(poll.join().unwrap(), 200);
    // Requests that run have 30 s.
    assert!(
        begun.elapsed() < Duration::from_secs(25),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!((idle.rest(), topic.rest()), (vec![], vec![]));
    drop(stuck);
}
