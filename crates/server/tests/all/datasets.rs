//! Datasets over HTTP.

use serde_json::json;

use crate::common::Served;

#[test]
fn a_dataset_is_created_described_renamed_and_dropped() {
    let served = Served::new();
    let definition = json!({"key": "id:int", "indexes": ["user.name:recent:string"], "ttl": "36h"});
    served.create("visits", definition.clone());
    let again = served.json("PUT /v1/datasets/visits", &definition);
    assert_eq!(again.status, 200);
    let other = served.json("PUT /v1/datasets/visits", &json!({"key": "id:string"}));
    assert_eq!((other.status, other.problem().as_str()), (409, "exists"));
    let described = served.ask("GET /v1/datasets/visits").value();
    assert_eq!(described["definition"], definition);
    let renamed = served.json("POST /v1/datasets/visits/rename", &json!({"to": "views"}));
    assert_eq!(renamed.status, 204);
    assert_eq!(
        served.ask("GET /v1/datasets/visits").problem(),
        "unknown-dataset"
    );
    let listed = served.ask("GET /v1/datasets").value();
    assert_eq!(listed["datasets"][0]["name"], "views");
    assert_eq!(served.ask("DELETE /v1/datasets/views").status, 204);
    assert_eq!(served.ask("DELETE /v1/datasets/views").status, 404);
}

#[test]
fn a_definition_that_is_not_valid_is_refused_with_its_part() {
    let served = Served::new();
    for (definition, part) in [
        (json!({"key": "id"}), "key `id`"),
        (
            json!({"key": "id:int", "indexes": ["user:lasy"]}),
            "index `user:lasy`",
        ),
        (
            json!({"key": "id:int", "indexes": ["user"]}),
            "give its type",
        ),
        (json!({"key": "id:int", "ttl": "soon"}), "ttl `soon`"),
        (
            json!({"key": "id:int", "index": []}),
            "unknown field `index`",
        ),
    ] {
        let reply = served.json("PUT /v1/datasets/visits", &definition);
        assert!((400..=422).contains(&reply.status), "{}", reply.text());
        assert!(reply.text().contains(part), "{}", reply.text());
    }
    assert_eq!(
        served.ask("GET /v1/datasets").value()["datasets"],
        json!([])
    );
}

#[test]
fn unknown_routes_methods_and_parameters_are_problems() {
    let served = Served::new();
    assert_eq!(served.ask("GET /v1/nothing").problem(), "not-found");
    let reply = served.ask("DELETE /v1/datasets");
    assert_eq!((reply.status, reply.problem().as_str()), (405, "no-method"));
    served.create("visits", json!({"key": "id:int"}));
    let reply = served.ask("GET /v1/datasets/visits/records?limt=1");
    assert_eq!((reply.status, reply.problem().as_str()), (400, "bad-input"));
    assert_eq!(served.ask("GET /healthz").status, 200);
    assert_eq!(served.ask("GET /readyz").status, 200);
    let document = served.ask("GET /v1/openapi.json").value();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/v1/datasets/{dataset}/records/{key}"]["put"].is_object());
}

#[test]
fn what_was_written_is_there_when_the_server_starts_again() {
    let served = Served::new();
    served.create("visits", json!({"key": "id:int"}));
    let put = served.send("PUT /v1/datasets/visits/records/1", &[], b"{\"id\": 1}");
    assert_eq!(put.status, 201);
    let dir = served.stop();
    let served = Served::over(dir, esker_server::Config::default());
    assert_eq!(
        served.ask("GET /v1/datasets/visits/records/1").value(),
        json!({"id": 1})
    );
}
