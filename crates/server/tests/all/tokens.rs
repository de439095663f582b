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
    let served = Served::with(Config::parse(&tokens.concat()).unwrap());
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
