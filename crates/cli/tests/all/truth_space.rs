//! Real points, loaded with each layout of a spatial index, and stored by location, and queried
//! through the command line. Areas with and without conditions, nearest points, cells, and the
//! latest record of each key must equal the results of other software
//! (`../shared/data/truth.json`), also after records were moved and deleted. Points with times also
//! get an index of place and time.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::path::Path;

use crate::common::{Run, esker, esker_fed, real_data};
use serde_json::Value;
use tempfile::TempDir;

const LAYOUTS: [&str; 5] = ["z", "mbr", "stacked", "embedded", "clustered"];

struct Loaded {
    dir: TempDir,
    file: String,
    /// The only index as declared, or the path that the records are clustered by.
    index: String,
}

impl Loaded {
    fn new(file: &Path, index: &str) -> Loaded {
        let loaded = Loaded {
            dir: tempfile::tempdir().unwrap(),
            file: file.display().to_string(),
            index: index.to_string(),
        };
        let clustered = index.strip_suffix(":spatial:clustered");
        let clustered = clustered.or_else(|| index.strip_suffix(":space-time:clustered"));
        let (how, index) = match clustered {
            Some(path) => ("--cluster", path),
            None => ("--index", index),
        };
        let args = ["d", &loaded.file, "--key", "id", how, index];
        loaded.run("load", &args).expect(0);
        loaded
    }

    /// Restores every record from the file.
    fn restore(&self) {
        self.run("load", &["d", &self.file]).expect(0);
    }

    fn store(&self) -> String {
        self.dir.path().join("store").display().to_string()
    }

    fn run(&self, verb: &str, args: &[&str]) -> Run {
        let store = self.store();
        let mut all = vec![verb, &store];
        all.extend_from_slice(args);
        esker(&all)
    }

    fn fed(&self, verb: &str, args: &[&str], lines: String) {
        let mut all = vec![verb.to_string(), self.store()];
        all.extend(args.iter().map(ToString::to_string));
        esker_fed(&all, self.dir.path(), move |stdin| {
            stdin.write_all(lines.as_bytes()).unwrap();
        })
        .expect(0);
    }

    /// Runs a query; an empty answer is valid.
    fn answer(&self, verb: &str, args: &[String]) -> Run {
        let args: Vec<&str> = ["d", "lon,lat"]
            .into_iter()
            .chain(args.iter().map(String::as_str))
            .collect();
        let run = self.run(verb, &args);
        assert!(
            run.code == 0 || (run.code == 1 && run.stdout.is_empty()),
            "{run:?}"
        );
        run
    }

    /// All current records.
    fn all(&self) -> Vec<Value> {
        self.run("scan", &["d"]).expect(0).rows()
    }

    /// Moves and deletes records as the question says.
    fn mutate(&self, changes: &Value) {
        for change in changes.as_array().unwrap() {
            let of = change.get("update").or(change.get("delete")).unwrap();
            let (modulus, rest) = (of["id_mod"].as_i64().unwrap(), of["eq"].as_i64().unwrap());
            let mut rows = self.all();
            rows.retain(|row| row["id"].as_i64().unwrap() % modulus == rest);
            let mut lines = String::new();
            for mut row in rows {
                match of.get("set") {
                    Some(set) => {
                        for (field, value) in set.as_object().unwrap() {
                            row[field] = value.clone();
                        }
                        lines += &format!("{row}\n");
                    }
                    None => lines += &format!("{}\n", row["id"]),
                }
            }
            match of.get("set") {
                Some(_) => self.fed("put", &["d"], lines),
                None => self.fed("delete", &["d", "-", "--durability", "os"], lines),
            }
        }
    }
}

fn ids(rows: &[Value]) -> Vec<i64> {
    rows.iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

fn integers(value: &Value) -> Vec<i64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_i64().unwrap())
        .collect()
}

fn area(question: &Value) -> String {
    if let Some(circle) = question.get("radius") {
        return format!(
            "--circle={},{},{}",
            circle["lon"], circle["lat"], circle["m"]
        );
    }
    match question.get("rect") {
        Some(rect) => {
            let (lat, lon) = (&rect["lat"], &rect["lon"]);
            format!("--rect={},{},{},{}", lon[0], lat[0], lon[1], lat[1])
        }
        None => "--rect=-180,-90,180,90".to_string(),
    }
}

fn conditions(question: &Value) -> Vec<String> {
    let each = question["where"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| {
            let (field, value) = (condition[0].as_str().unwrap(), &condition[2]);
            match condition[1].as_str().unwrap() {
                "prefix" => format!("{field} ^= {value}"),
                "absent" if value == true => format!("{field} is null"),
                "absent" => format!("{field} exists"),
                op => format!("{field} {op} {value}"),
            }
        });
    each.collect()
}

/// Runs one question and compares the answer.
fn ask(loaded: &Loaded, question: &Value) {
    let what = format!("{}/{}/{}", loaded.index, question["dataset"], question["q"]);
    let (result, limit) = (&question["result"], question["limit"].as_u64());
    let mut args = vec![area(question)];
    args.extend(conditions(question));
    let with = |more: &[String]| [args.as_slice(), more].concat();
    match question["op"].as_str().unwrap() {
        "count" => {
            let counted = loaded
                .answer("within", &with(&["--count".to_string()]))
                .stdout;
            assert_eq!(counted.trim(), result["count"].to_string(), "{what}");
        }
        "knn" => {
            let mut args = vec![format!("{},{}", question["lon"], question["lat"])];
            args.extend(["--k".to_string(), question["k"].to_string()]);
            args.extend(conditions(question));
            assert_eq!(
                ids(&loaded.answer("near", &args).rows()),
                integers(&result["ids"]),
                "{what}"
            );
        }
        "cells" => {
            let size = [
                "--cells",
                &question["size"].to_string(),
                "--limit",
                &limit.unwrap().to_string(),
            ];
            let rows = loaded
                .answer("within", &with(&size.map(str::to_string)))
                .rows();
            let cells: Vec<Value> = rows
                .iter()
                .map(|cell| serde_json::json!([cell["row"], cell["column"], cell["count"]]))
                .collect();
            assert_eq!(Value::from(cells), result["top"], "{what}");
        }
        "latest_per" => {
            let key = question["key"].as_str().unwrap().to_string();
            let mut more = vec![
                "--latest-per".to_string(),
                key,
                "--time".to_string(),
                "time".to_string(),
            ];
            more.extend(["--as-of".to_string(), question["as_of"].to_string()]);
            if let Some(age) = question.get("max_age") {
                more.extend(["--max-age".to_string(), age.to_string()]);
            }
            let mut found = ids(&loaded.answer("within", &with(&more)).rows());
            found.sort_unstable();
            compare(&found, result, &what);
        }
        "windows" => {
            let number = |name: &str| question[name].as_i64().unwrap();
            let (start, period) = (number("start"), number("period"));
            let counts = (0..number("n")).map(|at| {
                let from = start + at * period;
                let window = [
                    format!("time >= {from}"),
                    format!("time < {}", from + period),
                ];
                let counted = with(&[window.as_slice(), &["--count".to_string()]].concat());
                let counted = loaded.answer("within", &counted).stdout;
                counted.trim().parse::<i64>().unwrap()
            });
            assert_eq!(
                counts.collect::<Vec<_>>(),
                integers(&result["counts"]),
                "{what}"
            );
        }
        "select" => {
            let mut rows = loaded.answer("within", &args).rows();
            assert_eq!(
                rows.len() as u64,
                result["matched"].as_u64().unwrap(),
                "{what}"
            );
            let order = question
                .get("order")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            rows.sort_by(|a, b| {
                let by = |field: &str| a[field].as_i64().cmp(&b[field].as_i64());
                let all = order.iter().map(|key| {
                    if key[1] == "desc" {
                        by(key[0].as_str().unwrap()).reverse()
                    } else {
                        by(key[0].as_str().unwrap())
                    }
                });
                all.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
                    .then(by("id"))
            });
            let mut found = ids(&rows);
            found.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
            compare(&found, result, &what);
        }
        other => panic!("{what}: {other}"),
    }
}

fn compare(found: &[i64], result: &Value, what: &str) {
    assert_eq!(found.len() as u64, result["n"].as_u64().unwrap(), "{what}");
    if let Some(all) = result.get("ids") {
        assert_eq!(found, integers(all), "{what}");
    } else {
        assert_eq!(found[..5], integers(&result["first"]), "{what}");
        assert_eq!(
            found[found.len() - 5..],
            integers(&result["last"]),
            "{what}"
        );
    }
}

/// Runs all questions of a data set about space with every layout; with `timed`, also with indexes
/// of place and time.
fn check(dataset: &str, timed: bool, expected: usize) {
    let Some((folder, truth)) = real_data("points of real data") else {
        return;
    };
    let has_form = |question: &&Value| {
        let is_spatial = question.get("rect").is_some() || question.get("radius").is_some();
        let op = question["op"].as_str().unwrap();
        let known = matches!(op, "count" | "select" | "latest_per" | "windows") && is_spatial;
        question["dataset"] == dataset && (known || matches!(op, "knn" | "cells"))
    };
    let questions: Vec<&Value> = truth["queries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(has_form)
        .collect();
    assert_eq!(questions.len(), expected, "questions about space");
    let (changed, plain): (Vec<&Value>, Vec<&Value>) = questions
        .iter()
        .partition(|question| question.get("mutate").is_some());
    let file = folder.join(format!("{dataset}.ndjson.zst"));
    let spatial = LAYOUTS.map(|layout| (layout, format!("lon,lat:spatial:{layout}")));
    let both = LAYOUTS.map(|layout| (layout, format!("lon,lat@time:space-time:{layout}")));
    let indexes = spatial.iter().chain(both.iter().filter(|_| timed));
    // By day every third one; the tests of the library have each of them.
    let step = esker_sim::by_tier(3, 1);
    for (layout, index) in indexes.step_by(step) {
        let loaded = Loaded::new(&file, index);
        for question in &plain {
            ask(&loaded, question);
        }
        for (at, question) in changed.iter().enumerate() {
            if at > 0 {
                loaded.restore();
            }
            loaded.mutate(&question["mutate"]);
            ask(&loaded, question);
        }
        loaded.run("check", &[]).expect(0);
        let view = loaded.run("view", &["d"]);
        match *layout {
            "embedded" => assert!(view.code == 2 && view.stdout.is_empty(), "{view:?}"),
            _ => {
                let tables = view.stdout.matches("<title>").count();
                assert!(
                    view.code == 0 && view.stdout.starts_with("<svg") && tables > 0,
                    "{index}: {tables} tables"
                );
            }
        }
    }
}

#[test]
fn places() {
    check("points", false, 18);
}

/// Takes a few minutes in debug builds; `.ci/extra` runs it.
#[test]
#[ignore = "long: .ci/extra runs it"]
fn aircraft() {
    check("moves", true, 13);
}

#[test]
#[ignore = "long: .ci/extra runs it"]
fn edits_of_a_map() {
    check("osm_edits", true, 11);
}

/// Three million records, ten times.
#[test]
#[ignore = "long: .ci/extra runs it"]
fn flights() {
    check("flights", true, 7);
}
