//! A client that floods: others are served, and what it may not have it is refused.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use esker_server::{Config, Limits};
use serde_json::json;
use tokio::net::TcpSocket;

use crate::common::Served;
use crate::events::{PATIENCE, wait_until};

/// A client with one connection, and an address of this machine of its own.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(served: &Served, last: u8) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            let own = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
            socket.bind(own).unwrap();
            socket.connect(served.http()).await.unwrap()
        });
        let stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(BufReader::new(stream))
    }

    /// The status and the body of an answer; `None` if the connection was closed.
    fn ask(&mut self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes()).ok()?;
        let (mut head, mut line) = (Vec::new(), String::new());
        while line != "\r\n" {
            line.clear();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            head.push(line.to_lowercase());
        }
        let status = head[0].split(' ').nth(1).unwrap().parse().unwrap();
        let length = head
            .iter()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.trim().parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        Some((status, String::from_utf8(body).unwrap()))
    }
}

/// Ends a flood, also when the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn an_address_that_asks_too_often_is_refused_and_another_is_served() {
    let limits = Limits {
        requests_per_second: 20,
        ..Limits::default()
    };
    let served = Served::with(Config {
        limits,
        ..Config::default()
    });
    let ends = AtomicBool::new(false);
    let (answered, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _ends = Ends(&ends);
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = Client::new(&served, 2);
                while !ends.load(Ordering::SeqCst) {
                    match client.ask("GET", "/v1/datasets", "") {
                        Some((200, _)) => answered.fetch_add(1, Ordering::SeqCst),
                        Some((429, body)) if body.contains("too-many") => {
                            refused.fetch_add(1, Ordering::SeqCst)
                        }
                        other => panic!("{other:?}"),
                    };
                }
            });
        }
        wait_until("the flood is refused", || {
            refused.load(Ordering::SeqCst) > 20
        });
        let before = refused.load(Ordering::SeqCst);
        // As many at once as it may make in a second.
        let mut calm = Client::new(&served, 3);
        for _ in 0..20 {
            let (status, body) = calm.ask("GET", "/v1/datasets", "").unwrap();
            assert_eq!(status, 200, "{body}");
        }
        wait_until("the flood goes on", || {
            refused.load(Ordering::SeqCst) > before
        });
    });
    assert!(answered.load(Ordering::SeqCst) >= 20);
}

#[test]
fn long_queries_of_one_client_leave_threads_and_turns_to_others() {
    let served = Served::new();
    served.create(
        "visits",
        json!({"key": "id:int", "indexes": ["user:recent:string"]}),
    );
    let line = |id: u32| {
        json!({"id": id, "user": format!("u{}", id % 100), "text": "x".repeat(300)}).to_string()
    };
    let lines: Vec<String> = (0..2000).map(line).collect();
    let load = "POST /v1/datasets/visits/records";
    assert_eq!(
        served.send(load, &[], lines.join("\n").as_bytes()).status,
        200
    );
    let ends = AtomicBool::new(false);
    let floods = AtomicUsize::new(0);
    thread::scope(|scope| {
        let _ends = Ends(&ends);
        // More than the threads that queries may have.
        for _ in 0..100 {
            scope.spawn(|| {
                let mut client = Client::new(&served, 2);
                while !ends.load(Ordering::SeqCst) {
                    let scan = "/v1/datasets/visits/count?where=text%20contains%20y";
                    let (status, body) = client.ask("GET", scan, "").unwrap();
                    assert_eq!(status, 200, "{body}");
                    floods.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        wait_until("the flood has begun", || {
            floods.load(Ordering::SeqCst) > 100
        });
        let before = floods.load(Ordering::SeqCst);
        let mut other = Client::new(&served, 3);
        for id in 0..15 {
            let record = format!("/v1/datasets/visits/records/{id}");
            let (status, body) = other.ask("GET", &record, "").unwrap();
            assert_eq!((status, body), (200, line(id)));
            let (status, body) = other.ask("PUT", &record, &line(id)).unwrap();
            assert_eq!(status, 204, "{body}");
        }
        // Its query has its turn.
        let query = "/v1/datasets/visits/count?where=user%20%3D%20u7";
        let (status, body) = other.ask("GET", query, "").unwrap();
        assert_eq!((status, body.contains("20")), (200, true), "{body}");
        wait_until("the flood goes on", || {
            floods.load(Ordering::SeqCst) > before
        });
    });
}
