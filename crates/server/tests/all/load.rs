//! Records in bulk over HTTP.

use serde_json::json;

use crate::common::Served;

const LOAD: &str = "POST /v1/datasets/visits/records";

#[test]
fn lines_that_are_no_records_are_reported_and_left_out() {
    let served = Served::new();
    served.create(
        "visits",
        json!({"key": "id:int", "indexes": ["n:composite:int:unique"]}),
    );
    let body = "{\"id\":1,\"n\":1}\n\n  \nbad\n{\"id\":2,\"n\":2}\r\n{\"id\":3,\"n\":1}\n{\"id\":\"x\"}\n{\"id\":4,\"n\":4}";
    let report = served.send(LOAD, &[], body.as_bytes()).value();
    assert_eq!(
        (report["loaded"].as_u64(), report["rejected"].as_u64()),
        (Some(3), Some(3))
    );
    let lines: Vec<u64> = report["rejects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reject| reject["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines.len(), 3, "{report}");
    for line in [4, 6, 7] {
        assert!(lines.contains(&line), "{report}");
    }
    let again = served.send(
        &format!("{LOAD}?insert=true"),
        &[],
        b"{\"id\":1}\n{\"id\":9}\n",
    );
    assert_eq!(again.value()["loaded"], 1, "{}", again.text());
    let strict = served.send(
        &format!("{LOAD}?strict=true"),
        &[],
        b"{\"id\":10}\nbad\n{\"id\":11}\n",
    );
    assert_eq!(
        (strict.status, strict.problem().as_str()),
        (422, "rejected")
    );
    assert_eq!(strict.value()["report"]["loaded"], 1);
    assert_eq!(served.ask("GET /v1/datasets/visits/records/11").status, 404);
}

#[test]
fn many_records_are_loaded_in_batches() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int"}));
    let lines: String = (0..25_000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    assert_eq!(
        served.send(LOAD, &[], lines.as_bytes()).value()["loaded"],
        25_000
    );
    assert_eq!(
        served.ask("GET /v1/datasets/visits/count").value()["count"],
        25_000
    );
}

#[test]
fn a_line_beyond_the_limit_ends_the_load() {
    let mut config = esker_server::Config::default();
    config.limits.line = 1000;
    let served = Served::with(config);
    served.create("visits", json!({"key": "id:int"}));
    let long = format!(
        "{{\"id\":1}}\n{{\"id\":2,\"text\":\"{}\"}}\n",
        "x".repeat(200_000)
    );
    let reply = served.send(LOAD, &[], long.as_bytes());
    assert_eq!((reply.status, reply.problem().as_str()), (413, "too-large"));
    assert_eq!(reply.value()["report"]["loaded"], 1);
}

fn gzip(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn bodies_may_be_compressed() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int"}));
    // Files that were joined are one body.
    let joined = [gzip("{\"id\":1}\n"), gzip("{\"id\":2}\n")].concat();
    let loaded = served.send(LOAD, &[("content-encoding", "GZIP")], &joined);
    assert_eq!(loaded.value()["loaded"], 2, "{}", loaded.text());
    let zstd = zstd::encode_all("{\"id\":3}\n".as_bytes(), 1).unwrap();
    let loaded = served.send(LOAD, &[("content-encoding", "zstd")], &zstd);
    assert_eq!(loaded.value()["loaded"], 1, "{}", loaded.text());
    let cut = &joined[..joined.len() - 10];
    let broken = served.send(LOAD, &[("content-encoding", "gzip")], cut);
    assert_eq!(
        (broken.status, broken.value()["report"]["loaded"].as_u64()),
        (400, Some(1))
    );
    let unknown = served.send(LOAD, &[("content-encoding", "br")], b"x");
    assert_eq!(
        (unknown.status, unknown.problem().as_str()),
        (415, "no-coding")
    );
    let compressed = [("accept-encoding", "gzip")];
    let all = served.send(
        "GET /v1/datasets/visits/records?order=key",
        &compressed,
        b"",
    );
    assert_eq!(all.header("content-encoding"), Some("gzip"));
}

#[test]
fn a_small_body_that_becomes_large_is_refused() {
    let mut config = esker_server::Config::default();
    config.limits.body = 1 << 20;
    let served = Served::with(config);
    served.create("visits", json!({"key": "id:int"}));
    let bomb = gzip(&format!(
        "{{\"id\":1,\"text\":\"{}\"}}",
        "x".repeat(16 << 20)
    ));
    assert!(bomb.len() < 1 << 20);
    let put = "PUT /v1/datasets/visits/records/1";
    let refused = served.send(put, &[("content-encoding", "gzip")], &bomb);
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (413, "too-large")
    );
}
