//! Long operations, statistics and snapshots over HTTP.

use std::time::{Duration, Instant};

use esker_server::Config;
use serde_json::{Value, json};

use crate::common::{Reply, Served};

fn served(records: u64) -> Served {
    loaded(Served::new(), records)
}

fn loaded(served: Served, records: u64) -> Served {
    served.create("visits", json!({"key": "id:int"}));
    let record = |id: u64| format!("{{\"id\":{id},\"user\":\"u{}\"}}\n", id % 7);
    let lines: String = (0..records).map(record).collect();
    let loaded = served.send("POST /v1/datasets/visits/records", &[], lines.as_bytes());
    assert_eq!(loaded.value()["loaded"], records);
    served
}

/// Waits for the end of a job; returns it.
fn ended(served: &Served, begun: &Reply) -> Value {
    assert_eq!(begun.status, 202, "{}", begun.text());
    let ask = format!("GET {}", begun.header("location").unwrap());
    let begin = Instant::now();
    loop {
        let job = served.ask(&ask).value();
        if job["state"] != "running" {
            return job;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{job}");
        std::thread::yield_now();
    }
}

#[test]
fn an_index_is_added_switched_rebuilt_and_dropped_while_it_is_used() {
    let served = served(2000);
    let change = |change: Value| served.json("POST /v1/datasets/visits/indexes", &change);
    let job = ended(
        &served,
        &change(json!({"change": "add", "index": "user:lazy"})),
    );
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(
        (&job["result"]["records"], &job["job"]),
        (&json!(2000), &json!("index"))
    );
    let plan = "GET /v1/datasets/visits/explain?where=user%3Du3";
    assert_eq!(served.ask(plan).value()["plan"]["kind"], "lazy");
    let job = ended(
        &served,
        &change(json!({"change": "switch", "path": "user", "kind": "recent"})),
    );
    assert_eq!(job["result"]["from"], "lazy", "{job}");
    assert_eq!(served.ask(plan).value()["plan"]["kind"], "recent");
    let job = ended(
        &served,
        &change(json!({"change": "rebuild", "path": "user"})),
    );
    assert_eq!(job["state"], "done", "{job}");
    let job = ended(&served, &change(json!({"change": "resume"})));
    assert_eq!(
        (&job["state"], job.get("result")),
        (&json!("done"), Some(&Value::Null))
    );
    assert_eq!(
        served.ask("DELETE /v1/datasets/visits/indexes/user").status,
        204
    );
    assert!(served.ask(plan).value()["plan"]["scan"].is_string());
    let job = ended(
        &served,
        &change(json!({"change": "switch", "path": "nothing", "kind": "lazy"})),
    );
    assert_eq!(
        (&job["state"], &job["problem"]["type"]),
        (&json!("failed"), &json!("bad-input"))
    );
    assert_eq!(
        change(json!({"change": "add", "index": "user:lasy"})).status,
        400
    );
    assert_eq!(change(json!({"change": "move"})).status, 422);
    let jobs = served.ask("GET /v1/jobs").value();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 5);
    assert_eq!(served.ask("GET /v1/jobs/99").status, 404);
}

#[test]
fn tables_are_mapped_and_not_compressed_if_the_settings_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let settings = dir.path().join("esker.toml");
    std::fs::write(&settings, "mapped_reads = true\ncompress = false\n").unwrap();
    let mapped = loaded(Served::with(Config::read(&settings).unwrap()), 2000);
    let usual = served(2000);
    let [of_mapped, of_usual] = [&mapped, &usual].map(|served| {
        let job = ended(served, &served.json("POST /v1/compact", &json!(null)));
        assert_eq!(job["state"], "done", "{job}");
        let record = served.ask("GET /v1/datasets/visits/records/1999").value();
        assert_eq!(record, json!({"id": 1999, "user": "u4"}));
        let stat = served.ask("GET /v1/stat").value();
        stat["memory"]["mapped_bytes"].as_u64().unwrap()
    });
    assert_eq!(of_usual, 0);
    if cfg!(target_os = "linux") {
        // What is not compressed takes at least its JSON.
        assert!(of_mapped > 2000 * 25, "{of_mapped}");
    }
}

#[test]
fn the_store_is_maintained_and_checked() {
    let served = served(500);
    for (ask, body) in [
        (
            "POST /v1/datasets/visits/maintenance",
            json!({"strategy": "validation"}),
        ),
        (
            "POST /v1/datasets/visits/maintenance",
            json!({"strategy": "auto"}),
        ),
        ("POST /v1/datasets/visits/repair", json!(null)),
        ("POST /v1/datasets/visits/compact", json!(null)),
        ("POST /v1/datasets/visits/expire", json!(null)),
        ("POST /v1/compact", json!(null)),
        ("POST /v1/check", json!(null)),
    ] {
        let job = ended(&served, &served.json(ask, &body));
        assert_eq!(job["state"], "done", "{ask}: {job}");
        if ask.ends_with("check") {
            assert_eq!(job["result"]["errors"], json!([]));
            assert_eq!(job["result"]["records"], 500);
        }
    }
    assert_eq!(
        served
            .json("PUT /v1/datasets/visits/ttl", &json!({"ttl": "36h"}))
            .status,
        204
    );
    let described = served.ask("GET /v1/datasets/visits").value();
    assert_eq!(described["definition"]["ttl"], "36h");
    assert_eq!(
        served
            .json("PUT /v1/datasets/visits/ttl", &json!({"ttl": null}))
            .status,
        204
    );
    let bad = json!({"strategy": "lazy"});
    assert_eq!(
        served
            .json("POST /v1/datasets/visits/maintenance", &bad)
            .status,
        400
    );
    let stat = served.ask("GET /v1/datasets/visits/stat").value();
    assert!(stat["trees"].is_array(), "{stat}");
    assert!(served.ask("GET /v1/stat").value().is_object());
    assert!(served.ask("GET /v1/datasets/visits/advise").value()["attributes"].is_array());
    let refused = served.json("POST /v1/backups", &json!({"name": "monday"}));
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (409, "no-backups")
    );
}

#[test]
fn backups_are_made_in_their_folder_alone() {
    let backups = tempfile::tempdir().unwrap();
    let config = esker_server::Config {
        backups: Some(backups.path().to_path_buf()),
        ..esker_server::Config::default()
    };
    let served = Served::with(config);
    served.create("visits", json!({"key": "id:int"}));
    for name in ["", "..", "../x", "a/b", ".hidden"] {
        let refused = served.json("POST /v1/backups", &json!({"name": name}));
        assert_eq!(refused.status, 400, "{name}");
    }
    let job = ended(
        &served,
        &served.json("POST /v1/backups", &json!({"name": "monday"})),
    );
    assert_eq!(job["state"], "done", "{job}");
    assert!(backups.path().join("monday/CURRENT").exists());
    let job = ended(
        &served,
        &served.json("POST /v1/backups", &json!({"name": "monday"})),
    );
    assert_eq!(job["state"], "failed", "{job}");
}

#[test]
fn a_named_snapshot_is_read_as_it_was() {
    let served = served(10);
    assert_eq!(served.ask("PUT /v1/snapshots/monday").status, 201);
    assert_eq!(served.ask("PUT /v1/snapshots/monday").status, 409);
    assert_eq!(
        served.ask("DELETE /v1/datasets/visits/records/3").status,
        204
    );
    let count = "GET /v1/datasets/visits/count";
    assert_eq!(served.ask(count).value()["count"], 9);
    assert_eq!(
        served.ask(&format!("{count}?snapshot=monday")).value()["count"],
        10
    );
    let read = "GET /v1/datasets/visits/records/3?snapshot=monday";
    assert_eq!(served.ask(read).value()["user"], "u3");
    let listed = served.ask("GET /v1/snapshots").value();
    assert_eq!(listed["snapshots"][0]["name"], "monday");
    assert_eq!(served.ask("DELETE /v1/snapshots/monday").status, 204);
    let gone = served.ask(&format!("{count}?snapshot=monday"));
    assert_eq!(
        (gone.status, gone.problem().as_str()),
        (404, "unknown-snapshot")
    );
}
