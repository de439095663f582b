//! `esker changes`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::{esker, esker_fed};
use esker::{Database, DatasetDef, KeyType, Options};

#[test]
fn changes_are_printed_from_a_place_on_for_a_consumer_and_as_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let s = store.display().to_string();
    let db = Database::create_or_open(&store, Options::default()).unwrap();
    let def = DatasetDef::new("id", KeyType::String);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    dataset.put_json(b"{\"id\":\"a\\\"b\",\n\"n\":1}").unwrap();
    dataset.put_json(br#"{"id":"c"}"#).unwrap();
    let key = dataset.parse_key("c").unwrap();
    dataset.delete(&key).unwrap();
    drop(dataset);
    db.close().unwrap();
    let lines = [
        r#"{"seq":1,"change":"put","key":"a\"b","record":{"id":"a\"b", "n":1}}"#,
        r#"{"seq":2,"change":"put","key":"c","record":{"id":"c"}}"#,
        r#"{"seq":3,"change":"delete","key":"c"}"#,
    ];
    let printed = |args: &[&str], code| {
        let output = esker(&[&["changes", &s, "d"], args].concat()).expect(code);
        output.stdout.lines().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(printed(&[], 0), lines);
    assert_eq!(printed(&["--from", "1"], 0), lines[1..]);
    assert!(printed(&["--from", "3"], 1).is_empty());

    // A new consumer begins now and misses no later change.
    let made = esker(&["changes", &s, "d", "--consumer", "audit"]).expect(0);
    assert!(made.stdout.is_empty(), "{}", made.stdout);
    assert!(made.stderr.contains("`audit` is new"), "{}", made.stderr);
    let more = || {
        let db = Database::open(&store, Options::default()).unwrap();
        db.dataset::<esker::Key>("d")
            .unwrap()
            .put_json(br#"{"id":"e"}"#)
            .unwrap();
        db.flush().unwrap();
        db.close().unwrap();
    };
    more();
    more();
    let both = printed(&["--consumer", "audit"], 0);
    assert_eq!(both.len(), 2);
    assert!(both[0].starts_with(r#"{"seq":4,"#), "{both:?}");
    assert!(printed(&["--consumer", "audit"], 1).is_empty());
    esker(&["changes", &s, "d", "--consumer", "audit", "--forget"]).expect(0);
    let none = esker(&["changes", &s, "d", "--consumer", "audit", "--forget"]).expect(2);
    assert!(
        none.stderr.contains("no consumer `audit`"),
        "{}",
        none.stderr
    );
    let expired = esker(&["changes", &s, "d", "--from", "1"]).expect(3);
    assert!(
        expired.stderr.contains("oldest position"),
        "{}",
        expired.stderr
    );
    let future = esker(&["changes", &s, "d", "--from", "999999"]).expect(2);
    assert!(
        future.stderr.contains("there is no write"),
        "{}",
        future.stderr
    );
    esker(&["changes", &s, "nothing"]).expect(2);

    // Beside a writer.
    let db = Database::open(&store, Options::default()).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let at = db.position().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_esker"))
        .args(["changes", &s, "d", "--follow", "--from", &at])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for number in 0..3 {
        let body = format!("{{\"id\":\"{number}\"}}");
        dataset.put_json(body.as_bytes()).unwrap();
        let line = lines.next().unwrap().unwrap();
        assert!(line.ends_with(&format!("\"record\":{body}}}")), "{line}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A dataset created with `--old-records` prints the replaced records; another one reports why it
/// cannot.
#[test]
pub(crate) fn old_records_are_printed_of_a_dataset_that_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let load = |name: &str, more: &[&str], text: &'static str| {
        let args = [&["load", "db", name, "-", "--key", "id:int"], more].concat();
        esker_fed(&args, dir.path(), |input| {
            input.write_all(text.as_bytes()).unwrap();
        })
        .expect(0)
    };
    let s = dir.path().join("db").display().to_string();
    esker(&["create", &s, "d", "--key", "id:int", "--old-records"]).expect(0);
    for name in ["with", "without"] {
        esker(&["changes", &s, "d", "--consumer", name]).expect(0);
    }
    load("d", &["--old-records"], "{\"id\":1,\"n\":1}\n{\"id\":2}\n");
    load("d", &[], "{\"id\":1,\"n\":2}\n");
    load("plain", &[], "{\"id\":1}\n");
    esker(&["delete", &s, "d", "2"]).expect(0);
    let lines = [
        r#"{"seq":1,"change":"put","key":1,"record":{"id":1,"n":1}}"#,
        r#"{"seq":2,"change":"put","key":2,"record":{"id":2}}"#,
        r#"{"seq":3,"change":"put","key":1,"record":{"id":1,"n":2},"old":{"id":1,"n":1}}"#,
        r#"{"seq":5,"change":"delete","key":2,"old":{"id":2}}"#,
    ];
    let printed = esker(&["changes", &s, "d", "--old", "--consumer", "with"]).expect(0);
    assert_eq!(printed.stdout.lines().collect::<Vec<_>>(), lines);
    // Without `--old` no replaced records are printed.
    let printed = esker(&["changes", &s, "d", "--consumer", "without"]).expect(0);
    assert!(!printed.stdout.contains("old"), "{}", printed.stdout);
    for consumer in [&[][..], &["--consumer", "c"]] {
        let refused = esker(&[&["changes", &s, "plain", "--old"], consumer].concat()).expect(2);
        let why = "have no old records";
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
    let kept = esker(&["stat", &s, "--json"]).expect(0);
    assert!(!kept.stdout.contains("\"c\""), "a log is kept");
    // Loading into a dataset cannot change its definition.
    let other = esker_fed(
        &["load", "db", "plain", "-", "--old-records"],
        dir.path(),
        |_| {},
    );
    assert!(other.stderr.contains("--old-records"), "{}", other.stderr);
}

/// The same name in two datasets is two consumers. Changes that did not reach the reader are not
/// acknowledged.
#[test]
pub(crate) fn a_consumer_belongs_to_a_dataset_and_has_read_what_was_put_out() {
    let dir = tempfile::tempdir().unwrap();
    let s = dir.path().join("db").display().to_string();
    for name in ["orders", "users"] {
        esker(&["create", &s, name, "--key", "id:int"]).expect(0);
        let made = esker(&["changes", &s, name, "--consumer", "mailer"]).expect(0);
        assert!(made.stderr.contains("`mailer` is new"), "{}", made.stderr);
    }
    for name in ["users", "orders"] {
        esker_fed(&["put", "db", name], dir.path(), |input| {
            input.write_all(b"{\"id\":1}\n").unwrap();
        })
        .expect(0);
    }
    let read = |name: &str| esker(&["changes", &s, name, "--consumer", "mailer"]);
    assert_eq!(read("orders").expect(0).stdout.lines().count(), 1);
    #[cfg(target_os = "linux")]
    {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let status = Command::new(env!("CARGO_BIN_EXE_esker"))
            .args(["changes", &s, "users", "--consumer", "mailer"])
            .stdout(full.unwrap())
            .stderr(Stdio::null())
            .status();
        assert!(!status.unwrap().success());
    }
    let stat = esker(&["stat", &s, "--json"]).expect(0);
    for part in ["\"dataset\":\"users\"", "\"lag_bytes\":"] {
        let dense: String = stat.stdout.split_whitespace().collect();
        assert!(dense.contains(part), "{}", stat.stdout);
    }
    assert_eq!(read("users").expect(0).stdout.lines().count(), 1);
    assert!(read("users").expect(1).stdout.is_empty());
    assert!(read("orders").expect(1).stdout.is_empty());

    esker(&["changes", &s, "users", "--consumer", ""]).expect(2);
    let args = ["changes", &s, "users", "--consumer", "mailer", "--forget"];
    esker(&args).expect(0);
    esker(&args).expect(2);
    assert!(read("orders").expect(1).stdout.is_empty());
}

/// A consumer whose changes are no longer kept reports how to continue, and that works.
#[test]
fn the_error_of_a_late_consumer_names_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let s = dir.path().join("db").display().to_string();
    esker(&["create", &s, "d", "--key", "id:int"]).expect(0);
    let call = ["changes", &s, "d", "--consumer", "slow", "--keep", "1"];
    esker(&call).expect(0);
    for _ in 0..2 {
        let db = Database::open(&s, Options::default()).unwrap();
        let dataset = db.dataset::<esker::Key>("d").unwrap();
        dataset.put_json(br#"{"id":1}"#).unwrap();
        db.flush().unwrap();
        drop(dataset);
        db.close().unwrap();
    }
    let late = esker(&call).expect(3).stderr;
    assert!(late.contains("--forget"), "{late}");
    let oldest = late.split("--from ").nth(1).unwrap();
    let oldest = oldest.split([',', ' ']).next().unwrap();
    let mut on = call.to_vec();
    on.extend(["--from", oldest]);
    esker(&on).expect(1);
    esker(&call).expect(1);
}

/// A call without `--keep` set the limit of a consumer to that of a new one.
#[test]
fn a_consumer_keeps_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let s = dir.path().join("db").display().to_string();
    for name in ["d", "other"] {
        esker(&["create", &s, name, "--key", "id:int"]).expect(0);
    }
    let kept = |dataset: &str| {
        let stat = esker(&["stat", &s, "--json"]).expect(0).stdout;
        let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
        let consumers = stat["consumers"].as_array().unwrap().iter();
        let mut own = consumers.filter(|consumer| consumer["dataset"] == dataset);
        own.next().unwrap()["keeps_bytes"].as_u64().unwrap()
    };
    let call = |dataset: &str, more: &[&str]| {
        esker(&[&["changes", &s, dataset, "--consumer", "mailer"][..], more].concat())
    };
    call("d", &["--keep", "4M"]).expect(0);
    call("other", &[]).expect(0);
    assert_eq!((kept("d"), kept("other")), (4 << 20, 1 << 30));
    call("d", &[]).expect(1);
    assert_eq!((kept("d"), kept("other")), (4 << 20, 1 << 30));
    call("d", &["--keep", "5M"]).expect(1);
    assert_eq!(kept("d"), 5 << 20);
}
