//! `esker replay`, `publish`, `subscribe` and `topics`: real moves, flights, edits and commits,
//! replayed with subscriptions whose answers other software computed (`../shared/data/truth.json`),
//! and mistakes of users.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Run, command, esker, esker_fed, real_data};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

fn digest(ids: &[i64]) -> String {
    let text: Vec<String> = ids.iter().map(i64::to_string).collect();
    let hash = Sha256::digest(text.join("\n").as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The subscriptions of a question; in turn, each is made before, in or after its interval.
fn subscriptions(question: &Value) -> Vec<Value> {
    let rect = |of: &Value| {
        let (lon, lat) = (&of["rect"]["lon"], &of["rect"]["lat"]);
        (!of["rect"].is_null()).then(|| json!([lon[0], lat[0], lon[1], lat[1]]))
    };
    let mut all = Vec::new();
    let mut add = |of: &Value, from: i64, to: i64| {
        let id = all.len();
        let at = [from - 1000, i64::midpoint(from, to), to + 5][id % 3];
        // The end of the interval is excluded.
        let mut wish =
            json!({"id": id, "user": format!("u{id}"), "at": at, "from": from, "to": to - 1});
        if let Some(rect) = rect(of) {
            wish["rect"] = rect;
        }
        if let Some(test) = question["where"].get(0) {
            let (path, value) = (test[0].as_str().unwrap(), test[2].as_str().unwrap());
            wish["where"] = json!(format!("{path} = \"{value}\""));
        }
        all.push(wish);
    };
    let number = |value: &Value| value.as_i64().unwrap();
    match question["op"].as_str() {
        Some("fanout") => {
            for sub in question["subs"].as_array().unwrap() {
                add(sub, number(&sub["from"]), number(&sub["to"]));
            }
        }
        _ => {
            let (start, period) = (number(&question["start"]), number(&question["period"]));
            for at in 0..number(&question["n"]) {
                add(question, start + at * period, start + (at + 1) * period);
            }
        }
    }
    all
}

/// Replays a question; returns the publications of each subscription, sorted.
fn answer(folder: &Path, question: &Value, options: &[&str]) -> BTreeMap<i64, Vec<i64>> {
    let dir = tempfile::tempdir().unwrap();
    let wishes = dir.path().join("s.ndjson");
    let mut sorted = subscriptions(question);
    sorted.sort_by_key(|wish| wish["at"].as_i64());
    let text: String = sorted.iter().map(|wish| format!("{wish}\n")).collect();
    std::fs::write(&wishes, text).unwrap();
    let name = question["dataset"].as_str().unwrap();
    let news = folder.join(format!("{name}.ndjson.zst"));
    let store = dir.path().join("store");
    let mut args = vec![
        "replay".as_ref(),
        store.as_os_str(),
        "--subscriptions".as_ref(),
        wishes.as_os_str(),
        "--publications".as_ref(),
        news.as_os_str(),
        "--time".as_ref(),
        "time".as_ref(),
    ];
    if name != "events" {
        args.extend(["--position".as_ref(), std::ffi::OsStr::new("lon,lat")]);
    }
    args.extend(options.iter().map(std::ffi::OsStr::new));
    let run = esker(&args).expect(0);
    let mut found: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for row in run.rows() {
        let of = found
            .entry(row["subscription"].as_i64().unwrap())
            .or_default();
        of.push(row["publication"].as_i64().unwrap());
    }
    for ids in found.values_mut() {
        ids.sort_unstable();
    }
    found
}

/// Runs all questions of some sets, and returns their number.
fn check(sets: &[&str], options: &[&str]) -> Option<usize> {
    let (folder, truth) = real_data("replays")?;
    let questions = truth["queries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|question| {
            let of_set = sets.contains(&question["dataset"].as_str().unwrap());
            of_set && matches!(question["op"].as_str(), Some("fanout" | "windows"))
        });
    let mut queries = 0;
    for question in questions {
        let found = answer(&folder, question, options);
        let result = &question["result"];
        let of = |at: usize| found.get(&(at as i64)).cloned().unwrap_or_default();
        if question["op"] == "fanout" {
            for (at, expected) in result["subs"].as_array().unwrap().iter().enumerate() {
                let ids = of(at);
                assert_eq!(
                    json!(ids.len()),
                    expected["n"],
                    "{} {at}",
                    question["dataset"]
                );
                assert_eq!(json!(digest(&ids)), expected["ids_sha256"]);
            }
        } else {
            let counts = result["counts"].as_array().unwrap();
            for (at, expected) in counts.iter().enumerate() {
                assert_eq!(
                    json!(of(at).len()),
                    *expected,
                    "{} {at}",
                    question["dataset"]
                );
            }
            let mut all: Vec<i64> = found.values().flatten().copied().collect();
            all.sort_unstable();
            assert_eq!(json!(digest(&all)), result["ids_sha256"]);
        }
        queries += 1;
    }
    Some(queries)
}

#[test]
fn edits_of_a_map_reach_whom_they_concern() {
    for options in [
        &["--architecture", "two", "--granularity", "fixed"][..],
        &[],
    ] {
        if let Some(queries) = check(&["osm_edits"], options) {
            assert_eq!(queries, 2);
        }
    }
}

#[test]
#[ignore = "takes minutes; .ci/extra runs it"]
fn moves_flights_and_commits_reach_whom_they_concern() {
    if let Some(queries) = check(&["moves", "flights", "events"], &[]) {
        assert_eq!(queries, 5);
    }
}

/// Input files, and a store that does not exist yet.
struct Files(TempDir);

impl Files {
    fn new(subscriptions: &str, publications: &str) -> Files {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("s"), subscriptions).unwrap();
        std::fs::write(dir.path().join("p"), publications).unwrap();
        Files(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn replay(&self, options: &[&str]) -> Run {
        let (store, s, p) = (self.path("store"), self.path("s"), self.path("p"));
        let mut args = vec![
            "replay",
            &store,
            "--subscriptions",
            &s,
            "--publications",
            &p,
            "--time",
            "t",
        ];
        args.extend_from_slice(options);
        esker(&args)
    }
}

#[test]
fn a_replay_prints_each_match_once_with_ids_as_they_are() {
    let files = Files::new(
        r#"{"id":"x","user":"ann","at":2.5,"from":0,"to":10,"topic":"a"}
{"id":{"n":7},"user":"ann","at":3,"from":1,"to":10,"topic":"a/b","join":true}
{"id":8,"user":"bob","at":3,"from":9,"to":1}
{"id":9,"user":5,"at":4,"from":0,"to":3,"where":"v >= 2"}
"#,
        r#"{"id":"p1","t":1,"topic":"a/b","v":1}
{"id":2.50,"t":2,"topic":"a","v":2,"expires":2.75}

{"id":3,"t":5,"topic":"a/b/c"}
{"id":4,"t":11,"topic":"a"}
"#,
    );
    let run = files.replay(&["--topic", "topic"]).expect(0);
    assert_eq!(
        run.stdout,
        r#"{"subscription":"x","publication":"p1"}
{"subscription":"x","publication":2.50}
{"subscription":"x","publication":3}
"#
    );
    let again = files.replay(&[]).expect(2);
    assert!(again.stderr.contains("exists already"), "{}", again.stderr);
}

/// Bounds may be beyond every possible time of the data, and the first subscription may be from
/// time 0 in any unit.
#[test]
fn times_are_of_one_unit_whichever_comes_first() {
    let files = Files::new(
        r#"{"id":1,"user":"a","at":0,"from":0,"to":9007199254740991}
{"id":2,"user":"a","at":1.5,"from":-1e30,"to":1e30}
"#,
        r#"{"id":1,"t":1.25,"expires":1e300}
{"id":2,"t":2}
"#,
    );
    let matches = |run: Run| {
        let of = |row: &Value| (row["subscription"].as_i64(), row["publication"].as_i64());
        run.rows().iter().map(of).collect::<Vec<_>>()
    };
    let all = |pairs: &[(i64, i64)]| {
        let each = pairs.iter().map(|(s, p)| (Some(*s), Some(*p)));
        each.collect::<Vec<_>>()
    };
    let found = matches(files.replay(&[]).expect(0));
    assert_eq!(found, all(&[(1, 1), (2, 1), (1, 2), (2, 2)]));
    // Nanoseconds since 1970.
    let files = Files::new(
        r#"{"id":1,"user":"a","at":0,"from":0,"to":1760000000000000005}
"#,
        r#"{"id":1,"t":1760000000000000005}
{"id":2,"t":1760000000000000006}
"#,
    );
    let found = matches(files.replay(&[]).expect(0));
    assert_eq!(found, all(&[(1, 1)]));
}

#[test]
fn what_does_not_fit_is_refused_with_its_line() {
    let good = "{\"id\":1,\"t\":1}\n";
    let wish = "{\"id\":1,\"at\":1,\"from\":1,\"to\":2}\n";
    for (subscriptions, publications, options, line, what) in [
        (
            wish,
            "{\"id\":1,\"t\":2}\n{\"id\":2,\"t\":1}\n",
            &[][..],
            "p, line 2",
            "before that of the line before",
        ),
        (
            wish,
            "{\"id\":1,\"t\":1}\n{\"id\":2}\n",
            &[],
            "p, line 2",
            "it has no `t`",
        ),
        (wish, "{\"t\":1}\n", &[], "p, line 1", "it has no `id`"),
        (
            wish,
            "{\"id\":1,\"t\":\"1\"}\n",
            &[],
            "p, line 1",
            "`t` is not a number",
        ),
        (wish, "{\"id\":1,", &[], "p, line 1", "EOF"),
        (
            wish,
            "{\"id\":1,\"t\":1}\n{\"id\":1,\"t\":1,\"id\":2}\n",
            &[],
            "p, line 2",
            "duplicate field `id`",
        ),
        (
            "{\"id\":1,\"at\":1,\"from\":1,\"to\":2,\"id\":2}\n",
            good,
            &[],
            "s, line 1",
            "duplicate field `id`",
        ),
        (
            wish,
            "{\"id\":1,\"t\":1,\"x\":200,\"y\":0}\n",
            &["--position", "x,y"],
            "p, line 1",
            "longitude 200",
        ),
        (
            "{\"id\":1,\"at\":1,\"from\":1}\n",
            good,
            &[],
            "s, line 1",
            "missing field `to`",
        ),
        (
            "\n{\"id\":1,\"at\":1,\"from\":1,\"to\":2,\"where\":\"a >\"}\n",
            good,
            &[],
            "s, line 2",
            "condition",
        ),
        (
            "{\"id\":1,\"at\":1,\"from\":1,\"to\":2,\"rect\":[0,1,0,0]}\n",
            good,
            &[],
            "s, line 1",
            "south",
        ),
        (
            "{\"id\":1,\"at\":1,\"from\":1,\"to\":2,\"join\":true}\n",
            good,
            &[],
            "s, line 1",
            "`user`",
        ),
        (
            "{\"id\":1,\"at\":1,\"from\":1,\"to\":2,\"topic\":\"a/#/b\"}\n",
            good,
            &[],
            "s, line 1",
            "`#`",
        ),
    ] {
        let run = Files::new(subscriptions, publications)
            .replay(options)
            .expect(2);
        let found = run.stderr.contains(line) && run.stderr.contains(what);
        assert!(found, "{} lacks {line}: {what}", run.stderr);
    }
    let run = Files::new(wish, good)
        .replay(&["--architecture", "rep"])
        .expect(2);
    assert!(run.stderr.contains("--every"), "{}", run.stderr);
}

#[test]
fn repeated_queries_miss_nothing_but_what_expires_in_between() {
    let wishes = r#"{"id":1,"user":"a","at":0,"from":0,"to":25}
"#;
    let news = r#"{"id":1,"t":1,"expires":9}
{"id":2,"t":2,"expires":11}
{"id":3,"t":10}
{"id":4,"t":25}
{"id":5,"t":26}
"#;
    let run = Files::new(wishes, news)
        .replay(&["--architecture", "rep", "--every", "10"])
        .expect(0);
    let ids: Vec<i64> = run
        .rows()
        .iter()
        .map(|row| row["publication"].as_i64().unwrap())
        .collect();
    assert_eq!(ids, [2, 3, 4]);
}

/// Queries are not repeated after the last publication, however long a subscription lasts.
#[test]
fn repeated_queries_end_with_the_publications() {
    let wishes = r#"{"id":1,"user":"a","at":0,"from":0,"to":1700000000}
"#;
    let news = r#"{"id":1,"t":1}
{"id":2,"t":2,"expires":4}
"#;
    let run = Files::new(wishes, news)
        .replay(&["--architecture", "rep", "--every", "1"])
        .expect(0);
    assert_eq!(run.rows().len(), 2);
}

#[test]
fn a_slip_in_the_arguments_makes_no_store() {
    let files = Files::new("", "");
    for every in ["0", "NaN"] {
        let run = files.replay(&["--architecture", "rep", "--every", every]);
        let run = run.expect(2);
        assert!(run.stderr.contains("--every"), "{}", run.stderr);
        assert!(!Path::new(&files.path("store")).exists());
    }
}

/// Times are numbers in the unit of the data, also before 1970.
#[test]
fn what_expires_before_1970_is_there_until_then() {
    let wishes = r#"{"id":1,"user":"a","at":-68,"from":-369,"to":-69}
{"id":2,"user":"a","at":-30,"from":-369,"to":-69}
"#;
    let run = Files::new(wishes, "{\"id\":2,\"t\":-88,\"expires\":-38}\n").replay(&[]);
    let run = run.expect(0);
    assert_eq!(run.rows(), [json!({"subscription": 1, "publication": 2})]);
}

#[test]
fn a_subscriber_reads_beside_publishers() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store").display().to_string();
    let publish = |topic: &str, lines: &'static str, options: &[&str]| {
        let mut args = vec!["publish", &store, topic];
        args.extend_from_slice(options);
        esker_fed(&args, dir.path(), move |stdin| {
            // A command that refuses its arguments does not read its input.
            let _ = stdin.write_all(lines.as_bytes());
        })
    };
    publish(
        "traffic/a7",
        "{\"n\":1,\"lon\":9.99,\"lat\":53.55}\n",
        &["--position", "lon,lat"],
    )
    .expect(0);
    let mut follower = command(&[
        "subscribe",
        &store,
        "traffic/+",
        "--since",
        "1h",
        "--follow",
        "--where",
        "n != 3",
    ]);
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().unwrap()));
    assert_eq!(
        lines.next().unwrap().unwrap(),
        "{\"n\":1,\"lon\":9.99,\"lat\":53.55}"
    );
    publish("traffic/a1", "{\"n\":2}\n{\"n\":3}\n", &[]).expect(0);
    publish("traffic", "{\"n\":4}\n", &[]).expect(0);
    publish("traffic/a1", "{\"n\":5}\n", &["--expires", "1d"]).expect(0);
    let next: Vec<String> = lines.by_ref().take(2).map(Result::unwrap).collect();
    assert_eq!(next, ["{\"n\":2}", "{\"n\":5}"]);
    follower.kill().unwrap();
    follower.wait().unwrap();

    let all = esker(&["subscribe", &store, "traffic"]).expect(0);
    assert_eq!(all.rows().len(), 5);
    let near = esker(&["subscribe", &store, "traffic", "--circle=10,53.5,20000"]).expect(0);
    assert_eq!(near.rows()[0]["n"], 1);
    esker(&["subscribe", &store, "trains"]).expect(1);
    let topics = esker(&["topics", &store]).expect(0).rows();
    let counts: Vec<(&str, i64)> = topics
        .iter()
        .map(|topic| {
            (
                topic["topic"].as_str().unwrap(),
                topic["publications"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        counts,
        [("traffic", 1), ("traffic/a1", 3), ("traffic/a7", 1)]
    );
    esker(&["check", &store]).expect(0);
    let wrong = esker(&["subscribe", &store, "a/x+"]).expect(2);
    assert!(
        wrong.stderr.contains("a wildcard is a whole level"),
        "{}",
        wrong.stderr
    );
    let wrong = publish("a/+", "{}\n", &[]).expect(2);
    assert!(
        wrong.stderr.contains("which only subscriptions can have"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn the_demo_notifies_drivers_of_a_generated_city() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("city").display().to_string();
    let mut run = command(&[
        "demo", "pubsub", "--dir", &store, "--length", "30s", "--speed", "1000000",
    ]);
    let run = run.current_dir(dir.path()).output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{text}");
    assert!(text.contains("500 drivers in a generated city"), "{text}");
    assert!(
        text.contains(" subscriptions and ") && !text.contains(" 0 notified at once"),
        "{text}"
    );
    esker(&["check", &store]).expect(0);
    let moves = dir.path().join("moves").display().to_string();
    std::fs::write(
        &moves,
        "{\"time\":5,\"icao24\":\"x\",\"lon\":1,\"lat\":2}\nnot JSON\n",
    )
    .unwrap();
    esker(&["demo", "pubsub", "--moves", &moves, "--speed", "1000000"]).expect(2);
    esker(&["demo", "pubsub", "--speed", "0"]).expect(2);
}

#[test]
fn a_killed_publisher_leaves_a_prefix_and_the_next_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store").display().to_string();
    for round in 0..3_u64 {
        let mut child = command(&["publish", &store, "a/b"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // By the kill the process may have read any part of this.
        for n in 0..20_000 * (round + 1) {
            if writeln!(stdin, "{{\"round\":{round},\"n\":{n}}}").is_err() {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        esker(&["check", &store]).expect(0);
        let found = esker(&[
            "subscribe",
            &store,
            "a",
            "--where",
            &format!("round = {round}"),
        ]);
        let found: Vec<u64> = found
            .rows()
            .iter()
            .map(|row| row["n"].as_u64().unwrap())
            .collect();
        let prefix: Vec<u64> = (0..found.len() as u64).collect();
        assert!(
            found == prefix,
            "round {round}: {} are no prefix",
            found.len()
        );
    }
    let all = esker(&["subscribe", &store, "a"]).expect(0).rows().len();
    assert!(all > 0);
}
