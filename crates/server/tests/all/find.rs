//! Queries over HTTP.

use serde_json::{Value, json};

use crate::common::{Served, encoded};

fn served(records: u64) -> Served {
    let served = Served::new();
    let indexes = json!(["user:recent:string", "at:spatial"]);
    served.create("visits", json!({"key": "id:int", "indexes": indexes}));
    let record = |id: u64| {
        let at = json!([(id % 100) as f64 / 10.0, 50.0]);
        json!({"id": id, "user": format!("u{}", id % 7), "n": id % 10, "at": at}).to_string()
    };
    let lines: Vec<String> = (0..records).map(record).collect();
    let loaded = served.send(
        "POST /v1/datasets/visits/records",
        &[],
        lines.join("\n").as_bytes(),
    );
    assert_eq!(loaded.value()["loaded"], records, "{}", loaded.text());
    served
}

fn ids(page: &Value) -> Vec<u64> {
    let records = page["records"].as_array().unwrap().iter();
    records
        .map(|record| record["id"].as_u64().unwrap())
        .collect()
}

#[test]
fn pages_of_an_answer_read_one_snapshot() {
    let served = served(100);
    for order in ["newest", "oldest", "key", "n:desc,id", "user,n"] {
        let all = format!(
            "GET /v1/datasets/visits/records?where={}&order={}",
            encoded("n < 7"),
            encoded(order)
        );
        let whole = ids(&served.ask(&format!("{all}&limit=1000")).value());
        assert_eq!(whole.len(), 70);
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = served.ask(&format!("{all}&limit=9{after}")).value();
            found.extend(ids(&page));
            let Some(next) = page["next"].as_str() else {
                break;
            };
            after = format!("&after={}", encoded(next));
            // What is written meanwhile is on no page.
            for id in [3, 5000 + found.len() as u64] {
                let record = json!({"id": id, "user": "new", "n": 1}).to_string();
                let at = format!("PUT /v1/datasets/visits/records/{id}");
                assert!([201, 204].contains(&served.send(&at, &[], record.as_bytes()).status));
            }
        }
        assert_eq!(found, whole, "{order}");
        // The next order begins with the same records again.
        for id in 5000..5100 {
            served.ask(&format!("DELETE /v1/datasets/visits/records/{id}"));
        }
        let record = json!({"id": 3, "user": "u3", "n": 3, "at": [0.3, 50.0]}).to_string();
        served.send("PUT /v1/datasets/visits/records/3", &[], record.as_bytes());
    }
}

#[test]
fn tokens_of_other_answers_are_refused() {
    let served = served(20);
    served.create("other", json!({"key": "id:int"}));
    let page = served
        .ask("GET /v1/datasets/visits/records?limit=5")
        .value();
    let token = page["next"].as_str().unwrap();
    let reply = served.ask(&format!("GET /v1/datasets/other/records?after={token}"));
    assert_eq!(reply.status, 400);
    let reply = served.ask("GET /v1/datasets/visits/records?after=0000000000000001.5");
    assert_eq!(
        (reply.status, reply.problem().as_str()),
        (410, "page-expired")
    );
    assert_eq!(
        served.ask("GET /v1/datasets/visits/records?after=5").status,
        400
    );
}

#[test]
fn an_answer_of_lines_is_whole() {
    let served = served(5000);
    let of_lines = [("accept", "application/x-ndjson")];
    let all = served.send("GET /v1/datasets/visits/records?order=key", &of_lines, b"");
    assert_eq!(all.header("content-type"), Some("application/x-ndjson"));
    let text = all.text();
    let found: Vec<u64> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["id"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(found, (0..5000).collect::<Vec<_>>());
    let keys = "GET /v1/datasets/visits/records?order=key&keys_only=true&limit=3";
    assert_eq!(served.send(keys, &of_lines, b"").text(), "0\n1\n2\n");
    let none = served.send("GET /v1/datasets/visits/records?limit=0", &of_lines, b"");
    assert_eq!(none.status, 400);
}

#[test]
fn counts_aggregates_and_plans_are_those_of_the_library() {
    let served = served(100);
    let condition = encoded("user = u3 and n < 5");
    let count = format!("GET /v1/datasets/visits/count?where={condition}&explain=true");
    let count = served.ask(&count).value();
    let wanted = (0..100).filter(|id| id % 7 == 3 && id % 10 < 5).count();
    assert_eq!(count["count"], wanted);
    assert_eq!(count["explain"]["plan"]["index"], "user");
    let two = format!(
        "GET /v1/datasets/visits/count?where={}&where={}",
        encoded("user = u3"),
        encoded("n < 5")
    );
    assert_eq!(served.ask(&two).value()["count"], wanted);
    let groups =
        "GET /v1/datasets/visits/aggregate?agg=count,max(id)&by=user&order=user:desc&limit=2";
    let by_word = "GET /v1/datasets/visits/aggregate?agg=count&by=user&order=newest";
    assert_eq!(served.ask(by_word).status, 400);
    let groups = served.ask(groups).value();
    assert_eq!(
        groups["groups"][0],
        json!({"user": "u6", "count": 14, "max(id)": 97})
    );
    assert_eq!(groups["groups"].as_array().unwrap().len(), 2);
    let plan = format!(
        "GET /v1/datasets/visits/explain?where={}",
        encoded("user = u3")
    );
    assert_eq!(served.ask(&plan).value()["plan"]["index"], "user");
    let bad = format!("GET /v1/datasets/visits/count?where={}", encoded("user ="));
    assert_eq!(served.ask(&bad).problem(), "bad-input");
    let selected = "GET /v1/datasets/visits/records?select=n,user&order=key&limit=1";
    let selected = served.ask(selected).value();
    assert_eq!(selected["records"][0], json!({"user": "u0", "n": 0}));
    let document = json!({"where": ["user = u3", "n < 5"], "order": "key", "limit": 1});
    let asked = served
        .json("POST /v1/datasets/visits/query", &document)
        .value();
    assert_eq!(ids(&asked), [3]);
}

#[test]
fn places_are_found_by_distance_and_by_cell() {
    let served = served(100);
    let near = "GET /v1/datasets/visits/nearest?field=at&x=2.0&y=50.0&k=3";
    let near = served.ask(near).value();
    let near = near["records"].as_array().unwrap();
    assert_eq!(near[0]["record"]["id"], 20);
    assert_eq!(near[0]["distance"], 0.0);
    assert_eq!(near.len(), 3);
    let asked = "GET /v1/datasets/visits/nearest?field=at&x=2.0&y=50.0&k=1";
    let selects = served
        .ask(&format!("{asked}&select=n,id&explain=true"))
        .value();
    let nearest = json!({"distance": 0.0, "record": {"id": 20, "n": 0}});
    assert_eq!(selects["records"], json!([nearest]));
    assert!(selects["explain"]["plan"].is_object(), "{selects}");
    let keys = served.ask(&format!("{asked}&keys_only=true")).value();
    let nearest = json!({"records": [{"distance": 0.0, "key": 20}]});
    assert_eq!(keys, nearest);
    let cells = served
        .ask("GET /v1/datasets/visits/cells?field=at&degrees=1")
        .value();
    let cells = cells["cells"].as_array().unwrap();
    let sum: u64 = cells
        .iter()
        .map(|cell| cell["count"].as_u64().unwrap())
        .sum();
    assert_eq!((cells.len(), sum), (10, 100));
    let latest = "GET /v1/datasets/visits/records?latest_per=user&select=n&limit=1";
    let latest = served.ask(latest).value();
    let fields = latest["records"][0].as_object().unwrap().keys();
    assert_eq!(fields.collect::<Vec<_>>(), ["n"]);
    let latest = "GET /v1/datasets/visits/records?latest_per=user&limit=2";
    assert_eq!(
        served.ask(latest).value()["records"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}
