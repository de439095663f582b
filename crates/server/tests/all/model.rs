//! Random requests of several clients beside a model: each client owns some keys, so that it knows
//! what its records are, whatever the others do.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::common::{Served, encoded};

const CLIENTS: u64 = 4;
const STEPS: usize = 150;

/// What a client knows of its records: the record and its version.
type Known = BTreeMap<u64, (Value, u64)>;

struct Client<'s> {
    served: &'s Served,
    number: u64,
    rng: Rng,
    known: Known,
}

fn version(reply: &crate::common::Reply) -> u64 {
    let tag = reply.header("etag").unwrap();
    tag.trim_matches('"').parse().unwrap()
}

impl Client<'_> {
    fn record(&mut self, id: u64) -> Value {
        let n = self.rng.u32(0..10);
        json!({"id": id, "client": self.number, "n": n, "tag": format!("t{}", n % 3)})
    }

    fn step(&mut self) {
        let id = self.number + CLIENTS * self.rng.u64(0..12);
        let at = format!("/v1/datasets/things/records/{id}");
        match self.rng.u8(0..8) {
            0 | 1 => {
                let record = self.record(id);
                let body = record.to_string();
                let put = self.served.send(&format!("PUT {at}"), &[], body.as_bytes());
                let expected = if self.known.contains_key(&id) {
                    204
                } else {
                    201
                };
                assert_eq!(put.status, expected, "{}", put.text());
                self.known.insert(id, (record, version(&put)));
            }
            2 => {
                let wrong = self.rng.bool();
                let now = self.known.get(&id).map_or(1, |(_, seq)| *seq);
                let tag = format!("\"{}\"", now + u64::from(wrong));
                let record = self.record(id);
                let body = record.to_string();
                let headers = [("if-match", tag.as_str())];
                let put = self
                    .served
                    .send(&format!("PUT {at}"), &headers, body.as_bytes());
                if self.known.contains_key(&id) && !wrong {
                    assert_eq!(put.status, 204, "{}", put.text());
                    self.known.insert(id, (record, version(&put)));
                } else {
                    assert_eq!(put.status, 412, "{}", put.text());
                }
            }
            3 => {
                let deleted = self.served.ask(&format!("DELETE {at}"));
                let expected = if self.known.remove(&id).is_some() {
                    204
                } else {
                    404
                };
                assert_eq!(deleted.status, expected);
            }
            4 => {
                let n = self.rng.u32(0..10);
                let patch = json!({"id": id, "client": self.number, "n": n, "tag": null});
                let of_patches = [("content-type", "application/merge-patch+json")];
                let body = patch.to_string();
                let patched =
                    self.served
                        .send(&format!("PATCH {at}"), &of_patches, body.as_bytes());
                let expected = if self.known.contains_key(&id) {
                    204
                } else {
                    201
                };
                assert_eq!(patched.status, expected, "{}", patched.text());
                let record = json!({"id": id, "client": self.number, "n": n});
                self.known.insert(id, (record, version(&patched)));
            }
            5 => {
                let read = self.served.ask(&format!("GET {at}"));
                match self.known.get(&id) {
                    Some((record, seq)) => {
                        assert_eq!((&read.value(), version(&read)), (record, *seq));
                    }
                    None => assert_eq!(read.status, 404),
                }
            }
            6 => self.find(),
            _ => self.batch(),
        }
    }

    /// A query for the client's own records, in pages, and their count.
    fn find(&mut self) {
        let least = self.rng.u32(0..10);
        let condition = format!("client = {} and n >= {least}", self.number);
        let wanted: Vec<&Value> = (self.known.values())
            .map(|(record, _)| record)
            .filter(|record| record["n"].as_u64().unwrap() >= u64::from(least))
            .collect();
        let ask = format!(
            "GET /v1/datasets/things/records?order=key&limit=3&where={}",
            encoded(&condition)
        );
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.served.ask(&format!("{ask}{after}")).value();
            found.extend(page["records"].as_array().unwrap().iter().cloned());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", encoded(next)),
                None => break,
            }
        }
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "{condition}");
        let count = format!(
            "GET /v1/datasets/things/count?where={}",
            encoded(&condition)
        );
        assert_eq!(self.served.ask(&count).value()["count"], wanted.len());
    }

    /// A batch that moves what one record has to another, if nothing is wrong with it.
    fn batch(&mut self) {
        let ids: Vec<u64> = self.known.keys().copied().collect();
        let Some(from) = self.rng.choice(ids) else {
            return;
        };
        let to = self.number + CLIENTS * self.rng.u64(12..20);
        let (record, seq) = self.known[&from].clone();
        let mut moved = record;
        moved["id"] = json!(to);
        let is_wrong = self.rng.u8(0..4) == 0;
        let writes = json!({"writes": [
            {"op": "expect", "dataset": "things", "key": from.to_string(), "seq": seq + u64::from(is_wrong)},
            {"op": "delete", "dataset": "things", "key": from.to_string()},
            {"op": "put", "dataset": "things", "record": moved},
        ]});
        let applied = self.served.json("POST /v1/batch", &writes);
        if is_wrong {
            assert_eq!(applied.status, 409, "{}", applied.text());
            return;
        }
        assert_eq!(applied.value()["writes"], 2, "{}", applied.text());
        let read = self
            .served
            .ask(&format!("GET /v1/datasets/things/records/{to}"));
        assert_eq!(read.value(), moved);
        self.known.remove(&from);
        self.known.insert(to, (moved, version(&read)));
    }
}

#[test]
fn clients_see_what_the_model_has() {
    let first = std::env::var("ESKER_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seeds = std::env::var("ESKER_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let first: u64 = first.unwrap_or(0);
    for seed in first..first + seeds.unwrap_or(4) {
        println!("seed {seed}");
        let served = Served::new();
        let kinds = ["recent", "composite", "lazy", "embedded"];
        let kind = kinds[seed as usize % kinds.len()];
        let indexes = json!([format!("client:{kind}:int"), "n:composite:int"]);
        served.create("things", json!({"key": "id:int", "indexes": indexes}));
        let all: Vec<Known> = std::thread::scope(|scope| {
            let run = |number: u64| {
                let served = &served;
                scope.spawn(move || {
                    let rng = Rng::with_seed(seed << 8 | number);
                    let known = Known::new();
                    let mut client = Client {
                        served,
                        number,
                        rng,
                        known,
                    };
                    (0..STEPS).for_each(|_| client.step());
                    client.known
                })
            };
            let clients: Vec<_> = (0..CLIENTS).map(run).collect();
            clients
                .into_iter()
                .map(|client| client.join().unwrap())
                .collect()
        });
        // All records, after the server started again.
        let served = Served::over(served.stop(), esker_server::Config::default());
        let of_lines = [("accept", "application/x-ndjson")];
        let found = served.send("GET /v1/datasets/things/records?order=key", &of_lines, b"");
        let found: Vec<Value> = (found.text().lines())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let mut wanted: Vec<(u64, Value)> = (all.into_iter().flatten())
            .map(|(id, (record, _))| (id, record))
            .collect();
        wanted.sort_by_key(|(id, _)| *id);
        let wanted: Vec<Value> = wanted.into_iter().map(|(_, record)| record).collect();
        assert_eq!(found, wanted, "seed {seed}");
    }
}
