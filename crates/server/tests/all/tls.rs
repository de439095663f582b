//! Connections: TLS, limits of rate, and clients that are slow.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use esker_server::{Config, Tls};
use serde_json::json;

use crate::common::Served;

fn connect(served: &Served) -> TcpStream {
    let url = served.url("");
    let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

#[test]
fn a_client_that_makes_too_many_requests_is_told_when_to_come_back() {
    let mut config = Config::default();
    config.limits.requests_per_second = 5;
    let served = Served::with(config);
    let replies: Vec<_> = (0..200).map(|_| served.ask("GET /healthz")).collect();
    let refused = replies.iter().find(|reply| reply.status == 429).unwrap();
    assert_eq!(refused.problem(), "too-many");
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[test]
fn a_client_that_does_not_finish_its_headers_or_its_body_is_cut_off() {
    let mut config = Config::default();
    config.limits.idle = Duration::from_millis(200);
    let served = Served::with(config);
    served.create("visits", json!({"key": "id:int"}));
    for begun in [
        "",
        "PRI * HTTP/2",
        "GET /healthz HTTP/1.1\r\nhost: x\r\n",
        "PUT /v1/datasets/visits/records/1 HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"id\"",
        "POST /v1/datasets/visits/records HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"id\":1}\n",
    ] {
        let mut stream = connect(&served);
        stream.write_all(begun.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // It ends, with an answer or without.
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.starts_with("HTTP/1.1 20"), "{answer}");
    }
}

#[test]
fn malformed_requests_are_refused() {
    let served = Served::new();
    for malformed in [
        b"nonsense\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/9\r\n\r\n".to_vec(),
        vec![0xff; 100_000],
        [b"GET / HTTP/1.1\r\nx: ".to_vec(), vec![b'a'; 1 << 20]].concat(),
    ] {
        let mut stream = connect(&served);
        // The server may close before it has read everything.
        let _ = stream.write_all(&malformed);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    assert_eq!(served.ask("GET /healthz").status, 200);
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let mut config = Config::default();
    config.limits.body = 1000;
    let served = Served::with(config);
    served.create("visits", json!({"key": "id:int"}));
    let record = json!({"id": 1, "text": "x".repeat(2000)}).to_string();
    let refused = served.send("PUT /v1/datasets/visits/records/1", &[], record.as_bytes());
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (413, "too-large")
    );
}

#[test]
fn metrics_count_requests_and_the_store() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int"}));
    served.send("PUT /v1/datasets/visits/records/1", &[], b"{\"id\":1}");
    served.ask("GET /v1/datasets/nothing");
    let metrics = served.ask("GET /metrics").text();
    for line in [
        "esker_http_requests_total{route=\"/v1/datasets/{dataset}/records/{key}\",method=\"PUT\",status=\"201\"} 1",
        "esker_http_requests_total{route=\"/v1/datasets/{dataset}\",method=\"GET\",status=\"404\"} 1",
        "esker_tree_memtable_bytes{dataset=\"visits\",tree=\"data\"}",
        "esker_store_batches_total",
        "esker_http_request_seconds_bucket",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
}

pub(crate) fn certificate(dir: &std::path::Path, name: &str) -> Tls {
    let made = rcgen::generate_simple_self_signed(vec![name.to_string()]).unwrap();
    std::fs::create_dir_all(dir).unwrap();
    let tls = Tls {
        certificate: dir.join("server.pem"),
        key: dir.join("server.key"),
    };
    std::fs::write(&tls.certificate, made.cert.pem()).unwrap();
    std::fs::write(&tls.key, made.signing_key.serialize_pem()).unwrap();
    tls
}

#[test]
fn connections_are_encrypted_with_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let tls = certificate(dir.path(), "localhost");
    let trusted = std::fs::read(&tls.certificate).unwrap();
    let config = Config {
        tls: Some(tls),
        ..Config::default()
    };
    let served = Served::with(config);
    let url = served
        .url("/healthz")
        .replace("http://127.0.0.1", "https://localhost");
    assert_eq!(trusting(&trusted).get(&url).call().unwrap().status(), 200);
    // A client that trusts another certificate goes away, and without TLS there is no answer.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = certificate(elsewhere.path(), "localhost");
    let other = std::fs::read(&other.certificate).unwrap();
    assert!(trusting(&other).get(&url).call().is_err());
    assert!(ureq::get(served.url("/healthz")).call().is_err());
}

/// A client that trusts one certificate.
fn trusting(pem: &[u8]) -> ureq::Agent {
    let certificate = ureq::tls::Certificate::from_pem(pem).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = ureq::tls::TlsConfig::builder()
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(ureq::tls::RootCerts::new_with_certs(&[certificate]))
        .build();
    ureq::Agent::config_builder().tls_config(tls).build().into()
}

#[test]
fn a_certificate_without_its_key_is_refused_with_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut tls = certificate(dir.path(), "localhost");
    tls.key = dir.path().join("nothing.key");
    let config = Config {
        dir: dir.path().join("db"),
        listen: "127.0.0.1:0".parse().unwrap(),
        tls: Some(tls),
        ..Config::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refused = runtime
        .block_on(esker_server::Server::start(config))
        .err()
        .unwrap();
    assert!(refused.to_string().contains("nothing.key"), "{refused}");
}
