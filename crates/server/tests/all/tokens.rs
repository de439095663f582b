//! Tokens and their rights.

use esker_server::{Config, hash_of};
use serde_json::json;

use crate::common::{Reply, Served};

fn served() -> Served {
    let grants = [
        ("root", "admin", "[\"*\"]"),
        ("reader", "read", "[\"visits\"]"),
        ("writer", "write", "[\"tmp-*\"]"),
    ];
    let tokens = grants.map(|(name, role, datasets)| {
        let hash = hash_of(name);
        format!("[[tokens]]\nname = \"{name}\"\nsha256 = \"{hash}\"\nrole = \"{role}\"\ndatasets = {datasets}\n")
    });
    let hash = hash_of("all");
    let all = format!("[[tokens]]\nname = \"all\"\nsha256 = \"{hash}\"\nrole = \"admin\"\n");
    let served = Served::with(Config::parse(&(tokens.concat() + &all)).unwrap());
    for name in ["visits", "tmp-1", "secret"] {
        let made = send(
            &served,
            "root",
            &format!("PUT /v1/datasets/{name}"),
            json!({"key": "id:int"}),
        );
        assert_eq!(made.status, 201, "{}", made.text());
    }
    served
}

fn send(served: &Served, token: &str, ask: &str, body: serde_json::Value) -> Reply {
    let token = format!("Bearer {token}");
    let headers = [
        ("authorization", token.as_str()),
        ("content-type", "application/json"),
    ];
    served.send(ask, &headers, body.to_string().as_bytes())
}

#[test]
fn requests_without_a_known_token_are_refused() {
    let served = served();
    for headers in [
        vec![],
        vec![("authorization", "Bearer nonsense")],
        vec![("authorization", "Basic cm9vdDo=")],
    ] {
        let reply = served.send("GET /v1/datasets", &headers, b"");
        assert_eq!((reply.status, reply.problem().as_str()), (401, "no-token"));
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(served.ask("GET /healthz").status, 200);
}

#[test]
fn what_a_caller_may_not_read_does_not_exist_for_it() {
    let served = served();
    let listed = send(&served, "reader", "GET /v1/datasets", json!(null)).value();
    assert_eq!(listed["datasets"].as_array().unwrap().len(), 1);
    let hidden = send(&served, "reader", "GET /v1/datasets/secret", json!(null));
    let absent = send(&served, "reader", "GET /v1/datasets/nothing", json!(null));
    assert_eq!((hidden.status, absent.status), (404, 404));
    assert_eq!(hidden.text().replace("secret", "nothing"), absent.text());
    // A name that is nearly right reveals nothing.
    let near = send(&served, "writer", "GET /v1/datasets/tmp-11", json!(null));
    assert!(!near.text().contains("tmp-1`"), "{}", near.text());
    let put = send(
        &served,
        "reader",
        "PUT /v1/datasets/visits/records/1",
        json!({"id": 1}),
    );
    assert_eq!((put.status, put.problem().as_str()), (403, "forbidden"));
    let put = send(
        &served,
        "writer",
        "PUT /v1/datasets/tmp-1/records/1",
        json!({"id": 1}),
    );
    assert_eq!(put.status, 201);
    let writes = json!({"writes": [
        {"op": "put", "dataset": "tmp-1", "record": {"id": 2}},
        {"op": "put", "dataset": "secret", "record": {"id": 2}},
    ]});
    assert_eq!(
        send(&served, "writer", "POST /v1/batch", writes).status,
        404
    );
    assert_eq!(
        send(
            &served,
            "writer",
            "GET /v1/datasets/tmp-1/records/2",
            json!(null)
        )
        .status,
        404
    );
    let drop = send(&served, "writer", "DELETE /v1/datasets/tmp-1", json!(null));
    assert_eq!(drop.status, 403);
}

#[test]
fn pages_of_other_origins_may_not_use_an_open_server() {
    let served = Served::new();
    for headers in [
        [("origin", "https://example.org")],
        [("sec-fetch-site", "cross-site")],
        [("host", "example.org:7700")],
    ] {
        let reply = served.send("POST /v1/compact", &headers, b"");
        assert_eq!((reply.status, reply.problem().as_str()), (403, "forbidden"));
    }
    assert_eq!(served.ask("POST /v1/compact").status, 202);
}

#[test]
fn rights_are_checked_before_a_body_is_read() {
    let served = served();
    // It would be no record, and no document.
    for ask in [
        "PUT /v1/datasets/visits/records/1",
        "POST /v1/datasets/visits/records",
        "POST /v1/datasets/visits/indexes",
        "POST /v1/batch",
    ] {
        let headers = [
            ("authorization", "Bearer reader"),
            ("content-encoding", "gzip"),
        ];
        assert_eq!(served.send(ask, &headers, b"nonsense").status, 403, "{ask}");
    }
}

#[test]
fn an_open_server_serves_its_own_machine_alone() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        dir: dir.path().join("db"),
        listen: "0.0.0.0:0".parse().unwrap(),
        ..Config::default()
    };
    let refused = runtime
        .block_on(esker_server::Server::start(config))
        .err()
        .unwrap();
    assert!(refused.to_string().contains("esker token"), "{refused}");
    assert!(!dir.path().join("db").exists());
}

#[test]
fn a_snapshot_without_the_callers_datasets_does_not_exist_for_it() {
    let served = served();
    let kept = send(&served, "all", "PUT /v1/snapshots/kept", json!(null));
    assert_eq!(kept.status, 201, "{}", kept.text());
    let definition = json!({"key": "id:int"});
    let made = send(&served, "all", "PUT /v1/datasets/tmp-2", definition);
    assert_eq!(made.status, 201);
    for path in [
        "datasets/tmp-2/count?snapshot=NAME",
        "datasets/tmp-2/records?snapshot=NAME",
        "datasets/tmp-2/records/1?snapshot=NAME",
        "snapshots/NAME/datasets",
    ] {
        let ask = |token: &str, name: &str| {
            let path = path.replace("NAME", name);
            send(&served, token, &format!("GET /v1/{path}"), json!(null))
        };
        // Of the datasets of `reader` the snapshot has one; `writer` may see `tmp-2` alone there.
        if path.starts_with("snapshots") {
            assert_eq!(ask("reader", "kept").status, 200);
            continue;
        }
        let (hidden, absent) = (ask("writer", "kept"), ask("writer", "none"));
        assert_eq!((hidden.status, absent.status), (404, 404), "{path}");
        assert_eq!(
            hidden.text().replace("kept", "none"),
            absent.text(),
            "{path}"
        );
        assert_eq!(ask("all", "kept").problem(), "unknown-dataset", "{path}");
    }
    let dropped = send(&served, "all", "DELETE /v1/datasets/tmp-1", json!(null));
    assert_eq!(dropped.status, 204);
    let kept = send(&served, "all", "PUT /v1/snapshots/later", json!(null));
    assert_eq!(kept.status, 201);
    let dropped = send(&served, "all", "DELETE /v1/datasets/tmp-2", json!(null));
    assert_eq!(dropped.status, 204);
    let seen = send(
        &served,
        "writer",
        "GET /v1/snapshots/later/datasets",
        json!(null),
    );
    assert_eq!(seen.value()["datasets"][0]["name"], "tmp-2");
    let kept = send(&served, "all", "PUT /v1/snapshots/empty", json!(null));
    assert_eq!(kept.status, 201);
    let hidden = send(
        &served,
        "writer",
        "GET /v1/snapshots/empty/datasets",
        json!(null),
    );
    let absent = send(
        &served,
        "writer",
        "GET /v1/snapshots/none/datasets",
        json!(null),
    );
    assert_eq!(hidden.text().replace("empty", "none"), absent.text());
}

#[test]
fn jobs_follow_a_dataset_that_is_renamed() {
    let served = served();
    let begun = send(
        &served,
        "root",
        "POST /v1/datasets/visits/compact",
        json!(null),
    );
    let job = format!("GET {}", begun.header("location").unwrap());
    while send(&served, "root", &job, json!(null)).value()["state"] == "running" {
        std::thread::yield_now();
    }
    assert_eq!(send(&served, "reader", &job, json!(null)).status, 200);
    assert_eq!(send(&served, "writer", &job, json!(null)).status, 404);
    let to = json!({"to": "tmp-9"});
    let renamed = send(&served, "root", "POST /v1/datasets/visits/rename", to);
    assert_eq!(renamed.status, 204, "{}", renamed.text());
    assert_eq!(send(&served, "reader", &job, json!(null)).status, 404);
    let seen = send(&served, "writer", &job, json!(null)).value();
    assert_eq!(seen["dataset"], "tmp-9");
}
