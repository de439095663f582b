//! Single records, and batches, over HTTP.

use serde_json::json;

use crate::common::{Served, encoded};

const ONE: &str = "/v1/datasets/visits/records/1";

fn served() -> Served {
    let served = Served::new();
    served.create(
        "visits",
        json!({"key": "id:int", "indexes": ["mail:composite:string:unique"]}),
    );
    served
}

/// The status of a put; 204 also for a record that is new.
fn put(served: &Served, headers: &[(&str, &str)], record: &str) -> u16 {
    let put = served.send(&format!("PUT {ONE}"), headers, record.as_bytes());
    if put.status == 201 { 204 } else { put.status }
}

#[test]
fn an_etag_is_the_version_that_a_write_made() {
    let served = served();
    let made = served.send(&format!("PUT {ONE}"), &[], b"{\"id\":1,\"n\":1}");
    assert_eq!(made.status, 201);
    let tag = made.header("etag").unwrap().to_string();
    let read = served.ask(&format!("GET {ONE}"));
    assert_eq!(read.header("etag"), Some(tag.as_str()));
    assert_eq!(read.body, b"{\"id\":1,\"n\":1}");
    let known = served.send(&format!("GET {ONE}"), &[("if-none-match", &tag)], b"");
    assert_eq!((known.status, known.body.len()), (304, 0));
    assert_eq!(
        put(&served, &[("if-match", &tag)], "{\"id\":1,\"n\":2}"),
        204
    );
    assert_eq!(
        put(&served, &[("if-match", &tag)], "{\"id\":1,\"n\":3}"),
        412
    );
    let patched = served.send(
        &format!("PATCH {ONE}"),
        &[("content-type", "application/merge-patch+json")],
        b"{\"n\":null,\"m\":{\"a\":1}}",
    );
    let read = served.ask(&format!("GET {ONE}"));
    assert_eq!(read.header("etag"), patched.header("etag"));
    assert_eq!(read.value(), json!({"id": 1, "m": {"a": 1}}));
    let stale = served.send(&format!("DELETE {ONE}"), &[("if-match", &tag)], b"");
    assert_eq!(
        (stale.status, stale.problem().as_str()),
        (412, "precondition-failed")
    );
    assert_eq!(served.ask(&format!("DELETE {ONE}")).status, 204);
    assert_eq!(served.ask(&format!("DELETE {ONE}")).problem(), "no-record");
}

#[test]
fn expectations_hold_for_records_that_are_not_there() {
    let served = served();
    assert_eq!(put(&served, &[("if-match", "*")], "{\"id\":1}"), 412);
    assert_eq!(put(&served, &[("if-match", "\"7\"")], "{\"id\":1}"), 412);
    assert_eq!(put(&served, &[("if-none-match", "*")], "{\"id\":1}"), 204);
    assert_eq!(put(&served, &[("if-none-match", "*")], "{\"id\":1}"), 412);
    assert_eq!(put(&served, &[("if-match", "*")], "{\"id\":1}"), 204);
    assert_eq!(put(&served, &[("if-match", "seven")], "{\"id\":1}"), 412);
    let both = [("if-match", "*"), ("if-none-match", "*")];
    assert_eq!(put(&served, &both, "{\"id\":1}"), 400);
    let tag = served
        .ask(&format!("GET {ONE}"))
        .header("etag")
        .unwrap()
        .to_string();
    assert_eq!(put(&served, &[("if-none-match", &tag)], "{\"id\":1}"), 412);
    assert_eq!(
        put(
            &served,
            &[("if-match", &format!("\"0\", {tag}"))],
            "{\"id\":1}"
        ),
        204
    );
}

#[test]
fn records_that_do_not_fit_are_refused() {
    let served = served();
    for record in ["", "[]", "{\"id\":2}", "{\"id\":\"1\"}", "{\"id\":1", "{}"] {
        assert_eq!(put(&served, &[], record), 400, "{record}");
    }
    assert_eq!(
        served.ask("GET /v1/datasets/visits/records/one").status,
        400
    );
    assert_eq!(put(&served, &[], "{\"id\":1,\"mail\":\"a\"}"), 204);
    let other = "PUT /v1/datasets/visits/records/2";
    let taken = served.send(other, &[], b"{\"id\":2,\"mail\":\"a\"}");
    assert_eq!(
        (taken.status, taken.problem().as_str()),
        (409, "not-unique")
    );
    assert_eq!(taken.value()["holder"], "1");
}

#[test]
fn a_key_is_one_segment_of_the_address() {
    let served = Served::new();
    served.create("files", json!({"key": "path:string"}));
    for key in ["a/b", "ü?#%", "..", "a b+c"] {
        let record = json!({"path": key}).to_string();
        let at = format!(
            "/v1/datasets/files/records/{}",
            encoded(key).replace("..", "%2E%2E")
        );
        let put = served.send(&format!("PUT {at}"), &[], record.as_bytes());
        assert_eq!(put.status, 201, "{key}: {}", put.text());
        assert_eq!(served.ask(&format!("GET {at}")).text(), record);
    }
}

#[test]
fn a_batch_is_applied_as_a_whole() {
    let served = served();
    served.create("users", json!({"key": "name:string"}));
    let batch = |writes| served.json("POST /v1/batch", &json!({"writes": writes}));
    let applied = batch(json!([
        {"op": "put", "dataset": "visits", "record": {"id": 1, "user": "ann"}},
        {"op": "insert", "dataset": "users", "record": {"name": "ann"}},
    ]));
    assert_eq!(applied.value()["writes"], 2, "{}", applied.text());
    // The second insert fails, and nothing of the batch is written.
    let refused = batch(json!([
        {"op": "delete", "dataset": "visits", "key": "1"},
        {"op": "insert", "dataset": "users", "record": {"name": "ann"}},
    ]));
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (409, "exists")
    );
    let read = served.ask(&format!("GET {ONE}"));
    let seq: u64 = read
        .header("etag")
        .unwrap()
        .trim_matches('"')
        .parse()
        .unwrap();
    for (expected, status) in [(Some(seq + 1), 409), (None, 409), (Some(seq), 200)] {
        let reply = batch(json!([
            {"op": "expect", "dataset": "visits", "key": "1", "seq": expected},
            {"op": "delete", "dataset": "visits", "key": "1"},
        ]));
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    let bad = batch(json!([
        {"op": "put", "dataset": "visits", "record": {"id": 1}},
        {"op": "put", "dataset": "visits", "record": {"id": "x"}},
    ]));
    assert_eq!((bad.status, bad.value()["write"].as_u64()), (400, Some(1)));
    let odd = batch(json!([{"op": "put", "dataset": "visits", "key": "1"}]));
    assert_eq!(odd.status, 400);
}

#[test]
fn versions_are_read_as_far_as_they_are_kept() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int", "versions": 3}));
    for n in 0..5 {
        assert_eq!(put(&served, &[], &format!("{{\"id\":1,\"n\":{n}}}")), 204);
    }
    let versions = served.ask(&format!("GET {ONE}/versions?latest=2")).value();
    let versions = versions["versions"].as_array().unwrap();
    let numbers: Vec<u64> = versions
        .iter()
        .map(|v| v["record"]["n"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [4, 3]);
    let at = versions[1]["seq"].as_u64().unwrap();
    let then = served.ask(&format!("GET {ONE}/versions?at={at}")).value();
    assert_eq!(then["versions"][0]["record"]["n"], 3);
}

#[test]
fn each_coding_of_a_record_has_its_own_etag() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int"}));
    let record = format!("{{\"id\": 1, \"text\": \"{}\"}}", "long ".repeat(200));
    let path = "/v1/datasets/visits/records/1";
    let put = served.send(&format!("PUT {path}"), &[], record.as_bytes());
    let plain = put.header("etag").unwrap().to_string();
    let get = format!("GET {path}");
    for coding in ["gzip", "zstd"] {
        let accept = ("accept-encoding", coding);
        let reply = served.send(&get, &[accept], b"");
        assert_eq!(reply.header("content-encoding"), Some(coding));
        let etag = reply.header("etag").unwrap().to_string();
        assert_eq!(etag, format!("{}-{coding}\"", plain.trim_end_matches('"')));
        let known = served.send(&get, &[accept, ("if-none-match", &etag)], b"");
        assert_eq!(
            (known.status, known.header("etag")),
            (304, Some(etag.as_str()))
        );
        let known = served.send(&get, &[accept, ("if-none-match", &plain)], b"");
        assert_eq!(
            (known.status, known.header("etag")),
            (304, Some(plain.as_str()))
        );
    }
    assert_eq!(served.ask(&get).header("etag"), Some(plain.as_str()));
    // It says which version is meant, in whatever coding it was read.
    let gzip = format!("{}-gzip\"", plain.trim_end_matches('"'));
    let matches = [("if-match", gzip.as_str())];
    let put = format!("PUT {path}");
    assert_eq!(served.send(&put, &matches, b"{\"id\": 1}").status, 204);
    assert_eq!(served.send(&put, &matches, b"{\"id\": 1}").status, 412);
}

#[test]
fn what_is_no_patch_is_said_before_the_version() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int"}));
    let patch = "PATCH /v1/datasets/visits/records/1";
    for body in ["", "[null]", "17", "{"] {
        let reply = served.send(patch, &[("if-match", "\"17\"")], body.as_bytes());
        let said = (reply.status, reply.problem());
        assert_eq!(said, (400, "bad-input".to_string()), "{body}");
    }
}
