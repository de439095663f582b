//! Topics over HTTP, as server-sent events and over WebSocket.

use std::time::{Duration, Instant};

use esker_server::{Config, Role, TokenSettings, hash_of};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::common::{Served, encoded};
use crate::events::{Events, Sent, wait_until};

fn publish(served: &Served, topic: &str, more: &str, body: &[u8]) -> u64 {
    let at = format!("POST /v1/topics/{}{more}", encoded(topic));
    let published = served.send(&at, &[], body);
    assert_eq!(published.status, 200, "{}", published.text());
    published.value()["seq"].as_u64().unwrap()
}

fn subscribe(topic: &str, more: &str) -> String {
    format!("/v1/topics/{}/subscribe{more}", encoded(topic))
}

fn numbers(sent: &[Sent]) -> Vec<u64> {
    let of = |sent: &Sent| sent.data["record"]["n"].as_u64().unwrap();
    sent.iter().map(of).collect()
}

fn number(n: u64) -> Vec<u8> {
    json!({ "n": n }).to_string().into_bytes()
}

#[test]
fn what_is_published_is_kept_listed_and_queried() {
    let served = Served::new();
    let first = publish(
        &served,
        "traffic/a7",
        "?x=9.99&y=53.55",
        b"{\"lanes\":\n 2}",
    );
    publish(&served, "traffic/a1", "?lives=1h", b"{\"lanes\": 1}");
    publish(&served, "news", "", b"plain text");
    publish(&served, "news", "", b"\xff\xfe");
    let topics = served.ask("GET /v1/topics").value();
    let topics = topics["topics"].as_array().unwrap();
    let of = |topic: &Value| {
        format!(
            "{} {}",
            topic["topic"].as_str().unwrap(),
            topic["publications"]
        )
    };
    let topics: Vec<String> = topics.iter().map(of).collect();
    assert_eq!(topics, ["news 2", "traffic/a1 1", "traffic/a7 1"]);
    let records = |topic: &str, more: &str| {
        let asked = format!("GET /v1/topics/{}/records?limit=10{more}", encoded(topic));
        served.ask(&asked).value()
    };
    let found = records("traffic", "");
    let found = found["records"].as_array().unwrap();
    assert_eq!(found.len(), 2);
    let time = &found[0]["time"];
    assert_eq!(
        found[0],
        json!({"seq": first, "topic": "traffic/a7", "time": time, "x": 9.99, "y": 53.55, "record": {"lanes": 2}})
    );
    let (time, expires) = (&found[1]["time"], &found[1]["expires"]);
    assert_eq!(
        expires.as_i64().unwrap() - time.as_i64().unwrap(),
        3_600_000
    );
    let found = records("traffic/+", &format!("&where={}", encoded("lanes >= 2")));
    assert_eq!(found["records"].as_array().unwrap().len(), 1);
    let found = records(
        "#",
        &format!("&area={}", encoded("circle(9.99,53.55,1000)")),
    );
    assert_eq!(found["records"][0]["topic"], "traffic/a7");
    assert_eq!(found["records"].as_array().unwrap().len(), 1);
    let found = records("news", "&since=1h");
    assert_eq!(found["records"][0]["text"], "plain text");
    assert_eq!(found["records"][1]["base64"], "//4=");
    for (ask, status) in [
        ("POST /v1/topics/a%2F%2B", 400),
        ("POST /v1/topics/a?x=1", 400),
        ("POST /v1/topics/a?x=1&y=100", 400),
        ("POST /v1/topics/a?lives=soon", 400),
        ("GET /v1/topics/a/records?where=x%20%3E", 400),
        ("GET /v1/topics/a%2F%23%2Fb/records", 400),
        ("GET /v1/topics/a/subscribe?for=soon", 400),
        ("GET /v1/topics/a/subscribe?after=soon", 400),
        ("GET /v1/topics/a/subscribe?area=here", 400),
    ] {
        assert_eq!(served.ask(ask).status, status, "{ask}");
    }
}

#[test]
fn kept_messages_come_in_pages() {
    let served = Served::new();
    for n in 0..25 {
        publish(&served, "t", "", &number(n));
    }
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = served
            .ask(&format!("GET /v1/topics/t/records?limit=10{after}"))
            .value();
        let records = page["records"].as_array().unwrap();
        found.extend(
            records
                .iter()
                .map(|one| one["record"]["n"].as_u64().unwrap()),
        );
        let Some(next) = page["next"].as_u64() else {
            break;
        };
        after = format!("&after={next}");
    }
    assert_eq!(found, (0..25).collect::<Vec<_>>());
}

#[test]
fn a_subscription_has_the_past_and_then_what_is_published() {
    let served = Served::new();
    for n in 0..10 {
        publish(&served, "t/a", "", &number(n));
    }
    let mut without = Events::after(&served, &subscribe("t", ""), None);
    without.begin();
    let mut with = Events::after(&served, &subscribe("t", "?since=1h"), None);
    let over = format!("?since=1h&where={}", encoded("n > 7"));
    let mut some = Events::after(&served, &subscribe("t", &over), None);
    for n in 10..20 {
        publish(&served, "t/b", "", &number(n));
        publish(&served, "u", "", &number(n));
    }
    assert_eq!(numbers(&without.take(10)), (10..20).collect::<Vec<_>>());
    assert_eq!(numbers(&with.take(20)), (0..20).collect::<Vec<_>>());
    assert_eq!(numbers(&some.take(12)), (8..20).collect::<Vec<_>>());
}

#[test]
fn areas_choose_by_place() {
    let served = Served::new();
    let area = format!("?area={}", encoded("rect(9,53,10,54)"));
    let mut events = Events::after(&served, &subscribe("#", &area), None);
    events.begin();
    publish(&served, "cars", "?x=8.5&y=53.5", &number(1));
    publish(&served, "cars", "?x=9.5&y=53.5", &number(2));
    publish(&served, "cars", "", &number(3));
    publish(&served, "cars", "?x=10&y=54", &number(4));
    assert_eq!(numbers(&events.take(2)), [2, 4]);
}

#[test]
fn a_subscriber_that_is_cut_at_any_place_receives_each_message_once() {
    let served = Served::new();
    let total = 300_usize;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..total as u64 {
                publish(&served, &format!("t/{}", n % 3), "", &number(n));
            }
        });
        let mut random = fastrand::Rng::with_seed(11);
        // The first begins before or behind the first message; its window would be over for later
        // ones.
        let path = subscribe("t/+", "?since=1h");
        let (mut found, mut last_id) = (Vec::new(), None);
        while found.len() < total {
            let mut events = Events::after(&served, &path, last_id.as_deref());
            found.extend(events.take(random.usize(0..20).min(total - found.len())));
            last_id = events.last_id.clone();
        }
        assert_eq!(numbers(&found), (0..total as u64).collect::<Vec<_>>());
    });
}

#[test]
fn a_subscription_that_is_continued_does_not_depend_on_its_window() {
    let served = Served::new();
    let path = subscribe("t", "");
    let place = Events::after(&served, &path, None).begin();
    publish(&served, "t", "", &number(1));
    let mut events = Events::after(&served, &path, Some(&place));
    assert_eq!(numbers(&events.take(1)), [1]);
}

#[test]
fn a_subscription_ends_after_its_time() {
    let served = Served::new();
    publish(&served, "t", "", &number(1));
    let begun = Instant::now();
    let path = subscribe("t", "?since=1h&for=3s");
    let mut events = Events::after(&served, &path, None);
    assert_eq!(numbers(&events.take(1)), [1]);
    publish(&served, "t", "", &number(2));
    assert_eq!(numbers(&events.rest()), [2]);
    assert!(begun.elapsed() >= Duration::from_secs(3));
    let last_id = events.last_id.unwrap();
    // A browser that comes back is not served for another 3 s.
    let header = format!("last-event-id: {last_id}");
    assert_eq!(Events::open(&served, &path, &[&header]).status, 204);
    publish(&served, "t", "", &number(3));
    assert_eq!(Events::open(&served, &path, &[&header]).status, 204);
    // One that has not received all gets the rest.
    let (_, to) = last_id.split_once('@').unwrap();
    let mut rest = Events::after(&served, &path, Some(&format!("0@{to}")));
    assert_eq!(numbers(&rest.rest()), [1, 2]);
}

#[test]
fn a_web_socket_has_a_message_for_each_publication() {
    let served = Served::new();
    publish(&served, "t", "", &number(1));
    let address = served.url("").replace("http", "ws");
    let connect = |path: String| {
        let url = format!("{address}{path}");
        async move { tokio_tungstenite::connect_async(url).await.unwrap().0 }
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let values = |messages: Vec<Message>| {
        let of = |message: &Message| serde_json::from_str(message.to_text().unwrap()).unwrap();
        messages.iter().map(of).collect::<Vec<Value>>()
    };
    let next = async |socket: &mut tokio_tungstenite::WebSocketStream<_>, count: usize| {
        let mut found = Vec::new();
        while found.len() < count {
            let message: Message = socket.next().await.unwrap().unwrap();
            if message.is_text() {
                found.push(message);
            }
        }
        values(found)
    };
    let (mut socket, first) = runtime.block_on(async {
        let mut socket = connect(subscribe("t", "?since=1h")).await;
        let first = next(&mut socket, 1).await;
        (socket, first)
    });
    assert_eq!(first[0]["record"], json!({"n": 1}));
    assert_eq!(first[0]["id"], json!(first[0]["seq"].to_string()));
    publish(&served, "t", "", &number(2));
    let second = runtime.block_on(next(&mut socket, 1));
    assert_eq!(second[0]["record"], json!({"n": 2}));
    let after = format!("?after={}", first[0]["id"].as_str().unwrap());
    let again = runtime.block_on(async {
        let mut socket = connect(subscribe("t", &after)).await;
        next(&mut socket, 1).await
    });
    assert_eq!(again, second);
    // The end of the subscription, and of the server.
    let close = |message: Message| match message {
        Message::Close(Some(frame)) => frame.code,
        other => panic!("{other}"),
    };
    let ended = runtime.block_on(async {
        let mut socket = connect(subscribe("t", "?for=1ms")).await;
        socket.next().await.unwrap().unwrap()
    });
    assert_eq!(close(ended), CloseCode::Normal);
    let dir = served.stop();
    let ended = runtime.block_on(async { socket.next().await.unwrap().unwrap() });
    assert_eq!(close(ended), CloseCode::Away);
    drop(dir);
}

#[test]
fn a_caller_sees_its_topics_alone() {
    let token = |name: &str, role: Role, topics: &[&str]| TokenSettings {
        name: name.to_string(),
        sha256: hash_of(name),
        role,
        datasets: None,
        topics: Some(topics.iter().map(ToString::to_string).collect()),
    };
    let served = Served::with(Config {
        tokens: vec![
            token("writer", Role::Write, &["a", "b"]),
            token("reader", Role::Read, &["a/x"]),
        ],
        ..Config::default()
    });
    let writer = [("authorization", "Bearer writer")];
    let reader = [("authorization", "Bearer reader")];
    for topic in ["a", "a/x", "a/x/y", "b"] {
        let at = format!("POST /v1/topics/{}", encoded(topic));
        assert_eq!(served.send(&at, &writer, b"{}").status, 200);
        assert_eq!(served.send(&at, &reader, b"{}").status, 403);
    }
    assert_eq!(served.send("POST /v1/topics/c", &writer, b"{}").status, 403);
    let topics = served.send("GET /v1/topics", &reader, b"").value();
    let topics = topics["topics"].as_array().unwrap().clone();
    let names: Vec<&Value> = topics.iter().map(|one| &one["topic"]).collect();
    assert_eq!(names, ["a/x", "a/x/y"]);
    for filter in ["a", "b", "#", "+/x", "a/#"] {
        let path = format!("/v1/topics/{}", encoded(filter));
        let asked = format!("GET {path}/records");
        assert_eq!(served.send(&asked, &reader, b"").status, 403, "{filter}");
        let opened = Events::open(
            &served,
            &format!("{path}/subscribe"),
            &["authorization: Bearer reader"],
        );
        assert_eq!(opened.status, 403, "{filter}");
    }
    // `a/x` would receive what is published to `a`.
    let found = served
        .send("GET /v1/topics/a%2Fx/records", &reader, b"")
        .value();
    let found = found["records"].as_array().unwrap().clone();
    let names: Vec<&Value> = found.iter().map(|one| &one["topic"]).collect();
    assert_eq!(names, ["a/x", "a/x/y"]);
    let mut events = Events::open(
        &served,
        &subscribe("a/x", "?since=1h"),
        &["authorization: Bearer reader"],
    );
    let topics: Vec<Value> = events
        .take(2)
        .iter()
        .map(|one| one.data["topic"].clone())
        .collect();
    assert_eq!(topics, ["a/x", "a/x/y"]);
}

#[test]
fn many_past_messages_come_before_new_ones() {
    let served = Served::new();
    let total = 2500;
    std::thread::scope(|scope| {
        for part in 0..5 {
            let served = &served;
            scope.spawn(move || {
                for n in 0..total / 5 {
                    publish(served, "t", "", &number(part * (total / 5) + n));
                }
            });
        }
        let mut early = Events::after(&served, &subscribe("t", "?since=1h"), None);
        let mut found = numbers(&early.take(total as usize));
        found.sort_unstable();
        assert_eq!(found, (0..total).collect::<Vec<_>>());
    });
    let mut late = Events::after(&served, &subscribe("t", "?since=1h"), None);
    let found = late.take(total as usize);
    let seqs: Vec<u64> = found
        .iter()
        .map(|one| one.data["seq"].as_u64().unwrap())
        .collect();
    assert!(seqs.is_sorted_by(|a, b| a < b));
    publish(&served, "t", "", &number(total));
    assert_eq!(numbers(&late.take(1)), [total]);
    wait_until("all are kept", || {
        let page = served.ask("GET /v1/topics/t/records?limit=1000").value();
        page["next"].is_u64()
    });
}
