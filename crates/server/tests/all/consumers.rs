//! Named consumers of changes over HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use esker_server::{Config, Role, TokenSettings, hash_of};
use serde_json::{Value, json};

use crate::common::{Served, encoded};
use crate::events::{Events, Sent, wait_until};
use crate::live::{CHANGES, consumer, keys, load, put, served};

fn acknowledge(served: &Served, name: &str, id: &Value) -> crate::common::Reply {
    let at = format!("POST /v1/datasets/visits/consumers/{name}/ack");
    served.json(&at, &json!({ "id": id }))
}

fn id(sent: &Sent) -> String {
    sent.id.clone().unwrap()
}

#[test]
fn a_consumer_moves_by_acknowledgements_alone() {
    let served = served();
    let path = format!("{CHANGES}?consumer=mailer&keep=64M");
    let begin = Events::after(&served, &path, None).begin();
    assert_eq!(consumer(&served, "mailer")["position"], json!(begin));
    assert_eq!(consumer(&served, "mailer")["keeps_bytes"], 64 << 20);
    for n in 1..=6 {
        put(&served, n, n);
    }
    let first = Events::after(&served, &path, None).take(6);
    assert_eq!(keys(&first), [1, 2, 3, 4, 5, 6]);
    // Sent, but not acknowledged.
    assert_eq!(consumer(&served, "mailer")["position"], json!(begin));
    let mut again = Events::after(&served, &path, None);
    assert_eq!(again.take(6), first);
    let acked = acknowledge(&served, "mailer", &json!(id(&first[1])));
    assert_eq!(acked.status, 200, "{}", acked.text());
    assert_eq!(
        acked.value(),
        json!({"acknowledged": 2, "position": id(&first[1])})
    );
    assert_eq!(
        consumer(&served, "mailer")["position"],
        json!(id(&first[1]))
    );
    // An earlier one moves nothing back.
    assert_eq!(
        acknowledge(&served, "mailer", &json!(id(&first[0]))).value()["acknowledged"],
        0
    );
    assert_eq!(
        consumer(&served, "mailer")["position"],
        json!(id(&first[1]))
    );
    let mut events = Events::after(&served, &path, None);
    assert_eq!(keys(&events.take(4)), [3, 4, 5, 6]);
    // The connection before was taken over.
    let last = again.rest().pop().unwrap();
    assert_eq!(
        (last.event.as_str(), &last.data["type"]),
        ("error", &json!("taken-over"))
    );
    drop(events);
    let mut events = Events::after(&served, &path, Some(&id(&first[3])));
    assert_eq!(
        consumer(&served, "mailer")["position"],
        json!(id(&first[3]))
    );
    assert_eq!(keys(&events.take(2)), [5, 6]);
    drop(events);
    // Through a restart.
    let served = Served::over(served.stop(), Config::default());
    put(&served, 7, 7);
    let mut events = Events::after(&served, &path, None);
    assert_eq!(keys(&events.take(3)), [5, 6, 7]);
    let unsent = Events::after(&served, CHANGES, None).begin();
    let (history, _) = unsent.rsplit_once('-').unwrap();
    let refused = acknowledge(&served, "mailer", &json!(format!("{history}-99999")));
    assert_eq!(refused.status, 400, "{}", refused.text());
    let forget = "DELETE /v1/datasets/visits/consumers/mailer";
    assert_eq!(served.ask(forget).status, 204);
    assert_eq!(events.rest().pop().unwrap().data["type"], "forgotten");
    assert_eq!(consumer(&served, "mailer"), Value::Null);
    let reply = served.ask(forget);
    assert_eq!(
        (reply.status, reply.problem().as_str()),
        (404, "unknown-consumer")
    );
    let reply = acknowledge(&served, "mailer", &json!(id(&first[3])));
    assert_eq!(reply.status, 404);
}

/// The folder of a store with the consumer `old`, which an earlier version made for the whole store.
fn with_consumer_of_the_store() -> tempfile::TempDir {
    let mut store: &[u8] =
        include_bytes!("../../../records/tests/fixtures/consumer-of-the-store.store");
    let dir = tempfile::tempdir().unwrap();
    while let Some(end) = store.iter().position(|byte| *byte == b'\n') {
        let (name, len) = std::str::from_utf8(&store[..end])
            .unwrap()
            .split_once(' ')
            .unwrap();
        let (bytes, next) = store[end + 1..].split_at(len.parse().unwrap());
        let file = dir.path().join("db").join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
        store = next;
    }
    dir
}

#[test]
fn a_consumer_of_the_whole_store_is_changed_by_writers_of_all_datasets_alone() {
    let token = |name: &str, role, datasets: Option<&str>| TokenSettings {
        name: name.to_string(),
        sha256: hash_of(name),
        role,
        datasets: datasets.map(|one| vec![one.to_string()]),
        topics: None,
    };
    let config = Config {
        tokens: vec![
            token("one", Role::Write, Some("one")),
            token("all", Role::Write, None),
        ],
        ..Config::default()
    };
    let served = Served::over(with_consumer_of_the_store(), config);
    let ask = |token: &str, ask: &str, body: &[u8]| {
        let headers = [
            ("authorization", token),
            ("content-type", "application/json"),
        ];
        served.send(ask, &headers, body).status
    };
    let consume = br#"{"consumer": "old", "keep": 1000000}"#;
    let (forget, feed) = (
        "DELETE /v1/datasets/one/consumers/old",
        "/v1/datasets/one/feed/consumers",
    );
    for refused in [
        ask("Bearer one", forget, b""),
        ask("Bearer one", &format!("DELETE {feed}/old"), b""),
        ask("Bearer one", &format!("POST {feed}"), consume),
    ] {
        assert_eq!(refused, 403);
    }
    let changes = "/v1/datasets/one/changes?consumer=old";
    let events = Events::open(&served, changes, &["authorization: Bearer one"]);
    assert_eq!(events.status, 403);
    // It is still there for those that may.
    assert_eq!(ask("Bearer all", forget, b""), 204);
    assert_eq!(ask("Bearer all", forget, b""), 404);
    // A consumer of the dataset is its writers' own.
    assert_eq!(ask("Bearer one", &format!("POST {feed}"), consume), 200);
    assert_eq!(ask("Bearer one", forget, b""), 204);
}

#[test]
fn what_is_for_no_consumer_is_not_kept_for_it() {
    let served = served();
    let path = format!("{CHANGES}?consumer=few&where={}", encoded("n = 9"));
    let mut events = Events::after(&served, &path, None);
    events.begin();
    put(&served, 1, 9);
    put(&served, 2, 1);
    let first = events.take(1);
    assert_eq!(
        acknowledge(&served, "few", &json!(id(&first[0]))).status,
        200
    );
    // The change that does not match may be acknowledged with it, or later.
    wait_until("it moves", || {
        let position = consumer(&served, "few")["position"]
            .as_str()
            .unwrap()
            .to_string();
        position.rsplit_once('-').unwrap().1.parse::<u64>().unwrap()
            >= first[0].data["seq"].as_u64().unwrap()
    });
}

#[test]
fn workers_share_the_changes_of_a_consumer() {
    let served = served();
    let path = format!("{CHANGES}?consumer=work&deadline=1h");
    let workers = [(); 2].map(|()| Events::after(&served, &path, None));
    wait_until("both wait", || {
        consumer(&served, "work")["connections"] == 2
    });
    for n in 0..100 {
        put(&served, n, n);
    }
    wait_until("all are sent", || {
        consumer(&served, "work")["outstanding"] == 100
    });
    // All were sent: what does not come in this time is not for this worker.
    let reads = |mut events: Events| {
        events.set_timeout(Duration::from_secs(2));
        std::iter::from_fn(move || events.next()).collect::<Vec<Sent>>()
    };
    let begin = consumer(&served, "work")["position"].clone();
    let [first, second] = workers;
    let (first, second) = (reads(first), reads(second));
    assert!(
        !first.is_empty() && !second.is_empty(),
        "{} {}",
        first.len(),
        second.len()
    );
    let mut all = [keys(&first), keys(&second)].concat();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..100), "{all:?}");
    assert_eq!(consumer(&served, "work")["position"], begin);
    // One by one: the position is that before the oldest that is missing.
    let mut by_seq = BTreeMap::new();
    for one in first.iter().chain(&second) {
        by_seq.insert(one.data["seq"].as_u64().unwrap(), id(one));
    }
    let ids: Vec<String> = by_seq.into_values().collect();
    let acked = acknowledge(&served, "work", &json!(ids[1..50]));
    assert_eq!(
        acked.value(),
        json!({"acknowledged": 49, "position": begin})
    );
    let acked = acknowledge(&served, "work", &json!(ids[0]));
    assert_eq!(
        acked.value(),
        json!({"acknowledged": 1, "position": ids[49]})
    );
    let acked = acknowledge(&served, "work", &json!(ids[50..]));
    assert_eq!(
        acked.value(),
        json!({"acknowledged": 50, "position": ids[99]})
    );
}

#[test]
fn a_stream_ends_when_its_dataset_has_another_name() {
    let served = served();
    put(&served, 1, 1);
    let consumer = format!("{CHANGES}?consumer=work&deadline=1h&from=oldest");
    let mut worker = Events::after(&served, &consumer, None);
    assert_eq!(worker.next().unwrap().data["key"], 1);
    let mut plain = Events::after(&served, CHANGES, None);
    plain.begin();
    let renamed = served.json("POST /v1/datasets/visits/rename", &json!({"to": "secret"}));
    assert_eq!(renamed.status, 204);
    served.create("visits", json!({"key": "id:int"}));
    let secret = served.send("PUT /v1/datasets/secret/records/2", &[], br#"{"id": 2}"#);
    assert_eq!(secret.status, 201);
    for stream in [&mut worker, &mut plain] {
        let last = stream.next().unwrap();
        assert_eq!(
            (last.event.as_str(), &last.data["type"]),
            ("error", &json!("unknown-dataset"))
        );
    }
    // The consumer of this name is another one.
    let mut other = Events::after(&served, &consumer, None);
    put(&served, 3, 3);
    assert_eq!(other.next().unwrap().data["key"], 3);
    let known = served.ask("GET /v1/datasets/secret/consumers").value();
    assert_eq!(known["consumers"][0]["connections"], 0);
}

#[test]
fn a_dataset_that_is_made_anew_has_consumers_of_its_own() {
    let served = served();
    put(&served, 1, 1);
    let consumer = format!("{CHANGES}?consumer=work&deadline=1h&from=oldest");
    let mut worker = Events::after(&served, &consumer, None);
    assert_eq!(worker.next().unwrap().data["key"], 1);
    drop(worker);
    assert_eq!(served.ask("DELETE /v1/datasets/visits").status, 204);
    served.create("visits", json!({"key": "id:int"}));
    put(&served, 2, 2);
    let mut other = Events::after(&served, &consumer, None);
    assert_eq!(other.status, 200);
    assert_eq!(other.next().unwrap().data["key"], 2);
}

#[test]
fn a_consumer_that_a_polling_client_forgets_stays_forgotten() {
    let served = served();
    put(&served, 1, 1);
    let mut worker = Events::after(
        &served,
        &format!("{CHANGES}?consumer=work&from=oldest"),
        None,
    );
    let first = worker.next().unwrap();
    let forgotten = served.ask("DELETE /v1/datasets/visits/feed/consumers/work");
    assert_eq!(forgotten.status, 204);
    assert_eq!(acknowledge(&served, "work", &json!(id(&first))).status, 404);
    let known = served.ask("GET /v1/datasets/visits/consumers").value();
    assert_eq!(known["consumers"], json!([]));
}

#[test]
fn what_a_dead_worker_has_not_acknowledged_is_sent_to_another() {
    let served = served();
    let path = format!("{CHANGES}?consumer=work&deadline=2s");
    let mut dead = Events::after(&served, &path, None);
    wait_until("it waits", || consumer(&served, "work")["connections"] == 1);
    for n in 0..50 {
        put(&served, n, n);
    }
    let taken = dead.take(50);
    assert_eq!(
        acknowledge(&served, "work", &json!(id(&taken[7]))).value()["acknowledged"],
        1
    );
    drop(dead);
    let mut other = Events::after(&served, &path, None);
    put(&served, 100, 1);
    let mut found = BTreeMap::new();
    while found.len() < 50 {
        let one = other.next().unwrap();
        let acked = acknowledge(&served, "work", &json!(id(&one)));
        assert_eq!(acked.status, 200);
        found.insert(one.data["key"].as_u64().unwrap(), one);
    }
    let wanted: Vec<u64> = (0..50).filter(|key| *key != 7).chain([100]).collect();
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), wanted);
    let last = &found[&100];
    wait_until("all are acknowledged", || {
        consumer(&served, "work")["position"] == json!(id(last))
    });
}

#[test]
fn a_slow_worker_gets_what_it_does_not_acknowledge_again() {
    let served = served();
    let path = format!("{CHANGES}?consumer=work&deadline=1s");
    let mut events = Events::after(&served, &path, None);
    wait_until("it waits", || consumer(&served, "work")["connections"] == 1);
    put(&served, 1, 1);
    let first = events.take(1);
    assert_eq!(events.take(1), first);
    let wrong = Events::open(&served, &format!("{path}&old=true"), &[]).problem();
    assert_eq!(wrong["type"], "busy");
}

#[test]
fn sending_waits_for_acknowledgements() {
    let served = served();
    let path = format!("{CHANGES}?consumer=slow");
    let mut events = Events::after(&served, &path, None);
    events.begin();
    load(&served, 0..1500, 1);
    let first = events.take(1000);
    assert_eq!(consumer(&served, "slow")["outstanding"], 1000);
    // Nothing more is sent until something is acknowledged.
    events.set_timeout(Duration::from_secs(1));
    assert!(events.next().is_none());
    events.set_timeout(crate::events::PATIENCE);
    let acked = acknowledge(&served, "slow", &json!(id(&first[499])));
    assert_eq!(acked.value()["acknowledged"], 500);
    let second = events.take(500);
    let all = [keys(&first), keys(&second)].concat();
    assert!(all.iter().copied().eq(0..1500));
}
