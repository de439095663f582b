//! Real events and places, loaded with each kind of index and queried through the command line. The
//! answers must equal those computed by other software (`../shared/data/truth.json`).

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::collections::HashMap;
use std::path::PathBuf;

use crate::common::{Run, esker, esker_fed, real_data};
use ::esker::IndexKind;
use serde_json::Value;
use tempfile::TempDir;

const KINDS: [&str; 7] = [
    "embedded",
    "eager",
    "lazy",
    "composite",
    "recent",
    "fingerprint",
    "filter",
];

/// The kinds that answer by day: one for events, which take longer, and for places one that merges
/// lists, one of single entries and one without entries. At night all answer for both.
const OF_EVENTS: [&str; 1] = ["recent"];
const OF_PLACES: [&str; 3] = ["lazy", "composite", "embedded"];

#[test]
fn no_kind_for_values_is_left_out() {
    let mut known: Vec<String> = IndexKind::ALL
        .iter()
        .filter(|kind| **kind != IndexKind::None)
        .map(ToString::to_string)
        .collect();
    known.sort();
    let mut listed = KINDS.to_vec();
    listed.sort_unstable();
    assert_eq!(listed, known);
}

/// A dataset loaded with one kind of index.
struct Loaded {
    /// A folder, or an address.
    store: String,
    dir: TempDir,
    file: PathBuf,
    kind: &'static str,
}

impl Loaded {
    /// Loads a file into the store at an address, or into a new folder.
    fn new(store: Option<&str>, file: PathBuf, kind: &'static str, indexes: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let own = || dir.path().join("store").display().to_string();
        let store = store.map_or_else(own, str::to_string);
        let loaded = Self {
            store,
            dir,
            file,
            kind,
        };
        let file = loaded.file.display().to_string();
        let indexes: Vec<String> = indexes
            .iter()
            .map(|index| match index.split_once(':') {
                Some((path, ty)) => format!("{path}:{kind}:{ty}"),
                None => format!("{index}:{kind}"),
            })
            .collect();
        let mut args = vec!["d", &file, "--key", "id"];
        for index in &indexes {
            args.extend(["--index", index]);
        }
        loaded.run("load", &args).expect(0);
        loaded
    }

    fn run(&self, verb: &str, args: &[&str]) -> Run {
        let mut all = vec![verb, &self.store];
        all.extend_from_slice(args);
        esker(&all)
    }

    /// The records that meet all conditions, as the command line prints them.
    fn select(&self, conditions: &[String], options: &[&str]) -> Vec<Value> {
        let mut args = vec!["d"];
        args.extend(conditions.iter().map(String::as_str));
        args.extend_from_slice(options);
        let verb = if conditions.is_empty() {
            "scan"
        } else {
            "find"
        };
        let run = self.run(verb, &args);
        assert!(
            run.code == 0 || (run.code == 1 && run.stdout.is_empty()),
            "{run:?}"
        );
        run.rows()
    }

    fn feed(&self, args: &[&str], text: String) {
        let mut all = vec![args[0], &self.store];
        all.extend_from_slice(&args[1..]);
        esker_fed(&all, self.dir.path(), move |stdin| {
            stdin.write_all(text.as_bytes()).unwrap()
        })
        .expect(0);
    }

    fn put(&self, records: &[Value]) {
        let text: String = records.iter().map(|record| format!("{record}\n")).collect();
        self.feed(&["put", "d"], text);
    }

    /// Deletes records: the first few one by one, the others by one process.
    fn delete(&self, ids: &[i64]) {
        let (few, many) = ids.split_at(ids.len().min(5));
        for id in few {
            let id = id.to_string();
            self.run("delete", &["d", &id, "--durability", "os"])
                .expect(0);
        }
        if !many.is_empty() {
            let text: String = many.iter().map(|id| format!("{id}\n")).collect();
            self.feed(&["delete", "d", "-", "--durability", "os"], text);
        }
    }

    /// Restores every record from the file.
    fn restore(&self) {
        let file = self.file.display().to_string();
        self.run("load", &["d", &file]).expect(0);
    }
}

/// The conditions of a question as expressions of `find`; `None` if one has no such form. A
/// rectangle across the meridian of 180 degrees is two lists.
fn expressions(question: &Value) -> Option<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for condition in question["where"].as_array()? {
        let op = match condition[1].as_str()? {
            op @ ("=" | ">=" | "<=" | ">" | "<") => op,
            "prefix" => "^=",
            _ => return None,
        };
        let value = match &condition[2] {
            // Text with a blank is quoted as in JSON.
            Value::String(text) if !text.contains(' ') => text.clone(),
            other => other.to_string(),
        };
        all.push(format!("{}{op}{value}", condition[0].as_str()?));
    }
    let Some(rect) = question.get("rect") else {
        return Some(vec![all]);
    };
    let (lat, lon) = (&rect["lat"], &rect["lon"]);
    all.push(format!("lat>={}", lat[0]));
    all.push(format!("lat<={}", lat[1]));
    let (west, east) = (format!("lon>={}", lon[0]), format!("lon<={}", lon[1]));
    if lon[0].as_f64() <= lon[1].as_f64() {
        all.extend([west, east]);
        return Some(vec![all]);
    }
    let with = |expression| [all.clone(), vec![expression]].concat();
    Some(vec![with(west), with(east)])
}

fn ids(rows: &[Value]) -> Vec<i64> {
    rows.iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

/// Sorts records by the order of a question: `[["time", "desc"], ["id", "desc"]]`.
fn sort(rows: &mut [Value], order: &Value) {
    let keys = order.as_array().unwrap();
    rows.sort_by(|a, b| {
        keys.iter().fold(std::cmp::Ordering::Equal, |so_far, key| {
            let name = key[0].as_str().unwrap();
            let ordering = a[name].as_i64().cmp(&b[name].as_i64());
            so_far.then(if key[1] == "desc" {
                ordering.reverse()
            } else {
                ordering
            })
        })
    });
}

fn integers(value: &Value) -> Vec<i64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_i64().unwrap())
        .collect()
}

/// Compares ids (in the question's order, or ascending) with the expected result.
fn compare(ids: &[i64], result: &Value, what: &str) {
    assert_eq!(ids.len() as u64, result["n"].as_u64().unwrap(), "{what}");
    if let Some(all) = result.get("ids") {
        assert_eq!(ids, integers(all), "{what}");
    } else {
        assert_eq!(ids[..5], integers(&result["first"]), "{what}");
        assert_eq!(ids[ids.len() - 5..], integers(&result["last"]), "{what}");
    }
}

/// Runs one question; false if the command line has no form for it.
fn ask(loaded: &Loaded, question: &Value) -> bool {
    let name = question["q"].as_str().unwrap();
    let what = format!(
        "{}/{}/{name}",
        loaded.kind,
        question["dataset"].as_str().unwrap()
    );
    let result = &question["result"];
    if question.get("radius").is_some() {
        return false;
    }
    let Some(lists) = expressions(question) else {
        return false;
    };
    let mutated = question.get("mutate").is_some();
    let everything = lists.iter().all(Vec::is_empty);
    let recency = question["order"] == serde_json::json!([["time", "desc"], ["id", "desc"]]);
    let select = |options: &[&str]| -> Vec<Value> {
        lists
            .iter()
            .flat_map(|list| loaded.select(list, options))
            .collect()
    };
    match question["op"].as_str().unwrap() {
        "count" if everything => {
            let counted = loaded.run("count", &["d"]).expect(0).stdout;
            assert_eq!(counted.trim(), result["count"].to_string(), "{what}");
        }
        "count" => assert_eq!(
            select(&[]).len() as u64,
            result["count"].as_u64().unwrap(),
            "{what}"
        ),
        // The files are sorted by time and id, so this order is newest first.
        "select" if recency && !mutated => {
            let skip = question["offset"].as_u64().unwrap_or(0) as usize;
            let limit = question["limit"].as_u64().unwrap() as usize + skip;
            let rows = select(&["--limit", &limit.to_string()]);
            compare(&ids(&rows)[skip.min(rows.len())..], result, &what);
        }
        "select" => {
            let mut rows = select(&[]);
            assert_eq!(
                rows.len() as u64,
                result["matched"].as_u64().unwrap(),
                "{what}"
            );
            let newest_first = ids(&rows);
            match question.get("order") {
                Some(order) => sort(&mut rows, order),
                None => rows.sort_by_key(|row| row["id"].as_i64()),
            }
            let mut sorted = ids(&rows);
            if question.get("order").is_none() && lists.len() == 1 {
                assert!(
                    newest_first.iter().eq(sorted.iter().rev()),
                    "{what}: not newest first"
                );
                let oldest_first = ids(&loaded.select(&lists[0], &["--oldest"]));
                assert_eq!(oldest_first, sorted, "{what}: not oldest first");
            }
            sorted.truncate(question["limit"].as_u64().unwrap_or(u64::MAX) as usize);
            compare(&sorted, result, &what);
        }
        "agg" => {
            let field = question["field"].as_str().unwrap();
            let values: Vec<i64> = select(&[])
                .iter()
                .filter_map(|r| r[field].as_i64())
                .collect();
            let got = serde_json::json!({
                "count": values.len(), "min": values.iter().min(),
                "max": values.iter().max(), "sum": values.iter().sum::<i64>()
            });
            assert_eq!(got, *result, "{what}");
        }
        "group" => {
            let mut counts: HashMap<String, u64> = HashMap::new();
            for row in select(&[]) {
                if let Some(value) = row[question["by"].as_str().unwrap()].as_str() {
                    *counts.entry(value.to_string()).or_default() += 1;
                }
            }
            let mut groups: Vec<(String, u64)> = counts.into_iter().collect();
            assert_eq!(
                groups.len() as u64,
                result["distinct"].as_u64().unwrap(),
                "{what}"
            );
            groups.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            groups.truncate(question["limit"].as_u64().unwrap() as usize);
            assert_eq!(serde_json::json!(groups), result["groups"], "{what}");
        }
        "windows" => {
            let number = |name: &str| question[name].as_i64().unwrap();
            let (start, period, windows) = (number("start"), number("period"), number("n"));
            let mut list = lists[0].clone();
            list.push(format!("time>={start}"));
            list.push(format!("time<{}", start + period * windows));
            let mut counts = vec![0i64; windows as usize];
            for row in loaded.select(&list, &[]) {
                counts[((row["time"].as_i64().unwrap() - start) / period) as usize] += 1;
            }
            assert_eq!(counts, integers(&result["counts"]), "{what}");
        }
        _ => return false,
    }
    true
}

/// Applies the updates of a question, and those deletes that the question can observe.
fn mutate(loaded: &Loaded, question: &Value) {
    for step in question["mutate"].as_array().unwrap() {
        let hit = |row: &Value, rule: &Value| {
            row["id"].as_i64().unwrap() % rule["id_mod"].as_i64().unwrap()
                == rule["eq"].as_i64().unwrap()
        };
        if let Some(rule) = step.get("update") {
            let mut rows = loaded.select(&[], &[]);
            rows.retain(|row| hit(row, rule));
            for row in &mut rows {
                for (name, value) in rule["set"].as_object().unwrap() {
                    row[name] = value.clone();
                }
            }
            loaded.put(&rows);
        } else if let Some(rule) = step.get("delete") {
            for list in expressions(question).unwrap() {
                let mut rows = loaded.select(&list, &[]);
                rows.retain(|row| hit(row, rule));
                loaded.delete(&ids(&rows));
            }
        }
    }
}

/// Runs all questions of a dataset; `expected` of them have a form on the command line.
fn ask_all(loaded: &Loaded, truth: &Value, dataset: &str, expected: usize) {
    let questions: Vec<&Value> = truth["queries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|question| question["dataset"] == dataset)
        .collect();
    let (still, moving): (Vec<&Value>, Vec<&Value>) = questions
        .iter()
        .partition(|question| question.get("mutate").is_none());
    let mut counted = still
        .iter()
        .filter(|question| ask(loaded, question))
        .count();
    let mut restored = true;
    for question in moving {
        if !restored {
            loaded.restore();
        }
        restored = false;
        mutate(loaded, question);
        counted += usize::from(ask(loaded, question));
    }
    loaded.run("check", &[]).expect(0);
    assert_eq!(
        counted,
        expected,
        "{dataset}, {}: questions counted, of {}",
        loaded.kind,
        questions.len()
    );
}

/// Asks with the kinds of `by_day`, and in the nightly tier with all.
fn run(by_day: &[&'static str], dataset: &str, file: &str, indexes: &[&str], expected: usize) {
    let Some((folder, truth)) = real_data(dataset) else {
        return;
    };
    let with = |kind: &'static str| {
        let loaded = Loaded::new(None, folder.join(file), kind, indexes);
        ask_all(&loaded, &truth, dataset, expected);
    };
    // Two at a time, since most of the time is spent waiting for a process.
    let kinds = esker_sim::by_tier(by_day, &KINDS);
    let (first, second) = kinds.split_at(kinds.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| second.iter().copied().for_each(with));
        first.iter().copied().for_each(with);
        if let Err(panic) = other.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Asks the same of the store at an address: before, between and after updates, and after a repair.
#[cfg(feature = "cluster")]
pub(crate) fn run_at(store: &str, dataset: &str, file: &str, indexes: &[&str], expected: usize) {
    let Some((folder, truth)) = real_data(dataset) else {
        return;
    };
    let loaded = Loaded::new(Some(store), folder.join(file), "composite", indexes);
    ask_all(&loaded, &truth, dataset, expected);
    // Every record gets a second version, a part of them a third one: the answers are as before.
    loaded.restore();
    let rows = loaded.select(&[], &["--limit", "5000"]);
    let elsewhere = |mut row: Value| {
        row[indexes[0]] = serde_json::json!(-7);
        row
    };
    let moved: Vec<Value> = rows.into_iter().map(elsewhere).collect();
    loaded.put(&moved);
    let found = loaded.select(&[format!("{}=-7", indexes[0])], &[]);
    assert_eq!(found.len(), moved.len(), "{dataset}: what was moved");
    loaded.restore();
    assert!(
        loaded
            .select(&[format!("{}=-7", indexes[0])], &[])
            .is_empty(),
        "{dataset}: obsolete entries show"
    );
    let still = |question: &&Value| {
        question["dataset"] == dataset && question.get("mutate").is_none() && ask(&loaded, question)
    };
    let all = truth["queries"].as_array().unwrap();
    let before = all.iter().filter(still).count();
    loaded.run("repair", &["d"]).expect(0);
    loaded.run("check", &[]).expect(0);
    assert_eq!(all.iter().filter(still).count(), before);
}

#[test]
fn events_give_the_true_answers() {
    run(
        &OF_EVENTS,
        "events",
        "events.ndjson.zst",
        &["author", "time", "committer", "sha", "path", "repo", "dir"],
        23,
    );
}

#[test]
fn places_give_the_true_answers() {
    run(
        &OF_PLACES,
        "points",
        "points.ndjson.zst",
        &["lat:float", "lon:float", "country", "pop:int", "name"],
        16,
    );
}
