//! Limits of requests: their headers, and how many a token may make.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use esker_server::{Config, Limits, hash_of};
use serde_json::json;

use crate::common::Served;
use crate::events::{Events, wait_until};

/// The first line of the answer to a request with headers of this many bytes; empty if the server
/// closed the connection.
fn first_line(served: &Served, bytes: usize) -> String {
    let mut stream = TcpStream::connect(served.http()).unwrap();
    let begin = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let rest = format!("x-long: {}\r\n\r\n", "x".repeat(bytes));
    // The server may close the connection before it has read all.
    let _ = stream.write_all(format!("{begin}{rest}").as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    text.lines().next().unwrap_or_default().to_string()
}

#[test]
fn headers_are_bounded() {
    let served = Served::with(Config {
        limits: Limits {
            headers: 16 << 10,
            ..Limits::default()
        },
        ..Config::default()
    });
    assert_eq!(first_line(&served, 8 << 10), "HTTP/1.1 200 OK");
    let refused = first_line(&served, 64 << 10);
    assert!(refused.is_empty() || refused.contains(" 431 "), "{refused}");
    assert_eq!(served.ask("GET /healthz").status, 200);
}

#[test]
fn a_token_that_asks_too_often_is_refused_and_others_are_not() {
    let token = |name: &str| {
        let hash = hash_of(name);
        format!("[[tokens]]\nname = \"{name}\"\nsha256 = \"{hash}\"\nrole = \"read\"\n")
    };
    let limits = "[limits]\ntoken_requests_per_second = 1\n";
    let text = format!("{limits}{}{}", token("busy"), token("calm"));
    let served = Served::with(Config::parse(&text).unwrap());
    let ask = |token: &str| {
        let token = format!("Bearer {token}");
        served.send("GET /v1/datasets", &[("authorization", &token)], b"")
    };
    let refused = (0..10_000)
        .map(|_| ask("busy"))
        .find(|reply| reply.status != 200);
    let refused = refused.unwrap();
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (429, "too-many")
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(ask("calm").status, 200);
    assert_eq!(served.ask("GET /healthz").status, 200);
}

#[test]
fn a_load_that_takes_too_long_reports_what_is_stored() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int"}));
    let limits = Limits {
        query_time: Duration::ZERO,
        ..Limits::default()
    };
    let config = Config {
        limits,
        ..Config::default()
    };
    let served = Served::over(served.stop(), config);
    let load = "POST /v1/datasets/visits/records";
    let ended = served.send(load, &[], b"{\"id\":1}\n{\"id\":2}\n");
    assert_eq!((ended.status, ended.problem().as_str()), (504, "too-slow"));
    let value = ended.value();
    assert!(value["report"]["loaded"].is_u64(), "{value}");
    assert_eq!(value["durable"], json!(null), "{value}");
}

#[test]
fn times_are_measured_by_route_and_dataset() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int"}));
    served.ask("GET /v1/datasets/visits/count");
    served.ask("GET /v1/datasets/nothing/count");
    let text = served.ask("GET /metrics").text();
    let count = "esker_http_request_seconds_count{route=\"/v1/datasets/{dataset}/count\",method=\"GET\",dataset=";
    assert!(text.contains(&format!("{count}\"visits\"}} 1")), "{text}");
    // What is no dataset has no label of its own: clients choose names.
    assert!(text.contains(&format!("{count}\"\"}} 1")), "{text}");
    assert!(!text.contains("nothing"), "{text}");
}

#[test]
fn a_dataset_has_one_label_as_long_as_it_has_its_name() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int"}));
    let count = |served: &Served, dataset: &str, route: &str| {
        let text = served.ask("GET /metrics").text();
        let begin = format!("esker_http_request_seconds_count{{route=\"{route}\",method=\"GET\"");
        let begin = format!("{begin},dataset=\"{dataset}\"}} ");
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix(begin.as_str()));
        lines
            .map(|count| count.parse::<u64>().unwrap())
            .sum::<u64>()
    };
    let route = "/v1/datasets/{dataset}/count";
    served.ask("GET /v1/datasets/visits/count");
    served.ask("GET /v1/datasets/%76isit%73/count");
    assert_eq!(count(&served, "visits", route), 2);
    let rename = "POST /v1/datasets/visits/rename";
    assert_eq!(served.json(rename, &json!({"to": "seen"})).status, 204);
    served.ask("GET /v1/datasets/seen/count");
    let text = served.ask("GET /metrics").text();
    assert!(!text.contains("dataset=\"visits\""), "{text}");
    assert_eq!(count(&served, "seen", route), 1);
    assert_eq!(served.ask("DELETE /v1/datasets/s%65en").status, 204);
    let text = served.ask("GET /metrics").text();
    assert!(!text.contains("dataset=\"seen\""), "{text}");
}

#[test]
fn open_streams_are_measured() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int"}));
    let metrics = || served.ask("GET /metrics").text();
    assert!(metrics().contains("esker_http_streams 0"), "{}", metrics());
    let stream = Events::after(&served, "/v1/datasets/visits/changes", None);
    wait_until("the stream is counted", || {
        metrics().contains("esker_http_streams 1")
    });
    drop(stream);
    wait_until("the stream has ended", || {
        metrics().contains("esker_http_streams 0")
    });
}

#[test]
fn pages_of_other_origins_are_allowed_by_the_settings_alone() {
    let allows = "access-control-allow-origin";
    let origin = ("origin", "https://app.example");
    let hash = hash_of("reader");
    let token = format!("[[tokens]]\nname = \"reader\"\nsha256 = \"{hash}\"\nrole = \"read\"\n");
    let of_reader = ("authorization", "Bearer reader");
    let served = Served::with(Config::parse(&token).unwrap());
    let reply = served.send("GET /v1/datasets", &[origin, of_reader], b"");
    assert_eq!((reply.status, reply.header(allows)), (200, None));

    let cors = "[cors]\norigins = [\"https://app.example\"]\n";
    let served = Served::with(Config::parse(&(cors.to_string() + &token)).unwrap());
    let reply = served.send("GET /v1/datasets", &[origin, of_reader], b"");
    assert_eq!(
        (reply.status, reply.header(allows)),
        (200, Some("https://app.example"))
    );
    let other = ("origin", "https://other.example");
    let reply = served.send("GET /v1/datasets", &[other, of_reader], b"");
    assert_eq!(reply.header(allows), None);
    // A browser asks without the token whether it may send it.
    let asks = [
        origin,
        ("access-control-request-method", "PATCH"),
        ("access-control-request-headers", "authorization,if-match"),
    ];
    let reply = served.send("OPTIONS /v1/datasets", &asks, b"");
    assert_eq!(reply.status, 200);
    let headers = reply.header("access-control-allow-headers").unwrap();
    assert!(
        headers.contains("authorization") && headers.contains("if-match"),
        "{headers}"
    );
}
