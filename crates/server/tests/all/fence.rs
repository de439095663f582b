//! Geofences on datasets over HTTP.

use serde_json::{Value, json};

use crate::common::{Served, encoded};
use crate::events::{Events, Sent};

fn served() -> Served {
    let served = Served::new();
    let definition = json!({"key": "id:int", "indexes": ["at:spatial"], "old_records": true});
    served.create("cars", definition);
    served
}

fn put(served: &Served, record: &Value) {
    let at = format!("PUT /v1/datasets/cars/records/{}", record["id"]);
    let put = served.send(&at, &[], record.to_string().as_bytes());
    assert!(matches!(put.status, 201 | 204), "{}", put.text());
}

fn fence(area: &str, more: &str) -> String {
    format!(
        "/v1/datasets/cars/fence?field=at&area={}{more}",
        encoded(area)
    )
}

fn short(sent: &[Sent]) -> Vec<String> {
    let of = |sent: &Sent| {
        assert_eq!(sent.data["event"], json!(sent.event));
        format!("{}{}", sent.event, sent.data["key"])
    };
    sent.iter().map(of).collect()
}

/// Car 1 comes from the west, drives through and leaves; car 2 appears inside and is deleted; car 3
/// stays outside; car 4 has no place.
fn drive(served: &Served) {
    for record in [
        json!({"id": 1, "at": [0.0, 0.0], "free": true}),
        json!({"id": 3, "at": [30.0, 0.0], "free": true}),
        json!({"id": 1, "at": [10.0, 0.0], "free": true}),
        json!({"id": 2, "at": [11.0, 1.0], "free": false}),
        json!({"id": 1, "at": [12.0, 0.0], "free": false}),
        json!({"id": 4, "free": true}),
        json!({"id": 3, "at": [31.0, 0.0], "free": true}),
        json!({"id": 2, "at": [12.0, 1.0], "free": true}),
        json!({"id": 1, "at": [20.0, 0.0], "free": false}),
    ] {
        put(served, &record);
    }
    assert_eq!(served.ask("DELETE /v1/datasets/cars/records/2").status, 204);
    assert_eq!(served.ask("DELETE /v1/datasets/cars/records/3").status, 204);
}

#[test]
fn records_enter_and_leave_an_area() {
    let served = served();
    let area = "rect(9,-2,13,2)";
    let mut live = Events::after(&served, &fence(area, ""), None);
    live.begin();
    drive(&served);
    let found = live.take(4);
    assert_eq!(short(&found), ["enter1", "enter2", "exit1", "exit2"]);
    assert_eq!(found[0].data["old"]["at"], json!([0.0, 0.0]));
    assert_eq!(found[0].data["record"]["at"], json!([10.0, 0.0]));
    assert_eq!(found[3].data["change"], "delete");
    let all = fence(area, "&from=oldest&events=enter,exit,inside");
    let all = Events::after(&served, &all, None).take(6);
    assert_eq!(
        short(&all),
        ["enter1", "enter2", "inside1", "inside2", "exit1", "exit2"]
    );
    let mut again = Events::after(&served, &fence(area, ""), found[1].id.as_deref());
    assert_eq!(again.take(2), found[2..]);
    let circle = fence("circle(11,0,250000)", "&from=oldest&events=exit");
    assert_eq!(
        short(&Events::after(&served, &circle, None).take(2)),
        ["exit1", "exit2"]
    );
    let polygon =
        json!({"type": "Polygon", "coordinates": [[[9, -2], [13, -2], [13, 2], [9, 2], [9, -2]]]});
    let polygon = fence(&polygon.to_string(), "&from=oldest");
    let found = Events::after(&served, &polygon, None).take(4);
    assert_eq!(short(&found), ["enter1", "enter2", "exit1", "exit2"]);
}

#[test]
fn a_condition_says_which_records_can_be_inside() {
    let served = served();
    drive(&served);
    let free = fence("rect(9,-2,13,2)", "&from=oldest&where=free%20%3D%20true");
    let found = Events::after(&served, &free, None).take(4);
    assert_eq!(short(&found), ["enter1", "exit1", "enter2", "exit2"]);
}

#[test]
fn fences_that_cannot_be_are_refused() {
    let served = served();
    served.create("plain", json!({"key": "id:int"}));
    let area = encoded("rect(9,-2,13,2)");
    for (path, status, kind) in [
        (
            format!("cars/fence?field=at&area={}", encoded("rect(1)")),
            400,
            "bad-input",
        ),
        (
            format!("cars/fence?field=at&area={}", encoded("rect(1,99,2,100)")),
            400,
            "bad-input",
        ),
        (
            format!("cars/fence?field=at&area={area}&events=leave"),
            400,
            "bad-input",
        ),
        ("cars/fence?field=at".to_string(), 400, "bad-input"),
        (
            format!("none/fence?field=at&area={area}"),
            404,
            "unknown-dataset",
        ),
        (
            format!("plain/fence?field=at&area={area}"),
            409,
            "no-old-records",
        ),
    ] {
        let mut events = Events::open(&served, &format!("/v1/datasets/{path}"), &[]);
        let problem = events.problem();
        assert_eq!(
            (events.status, &problem["type"]),
            (status, &json!(kind)),
            "{path}"
        );
        if status == 409 {
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("\"old_records\": true"), "{detail}");
        }
    }
}
