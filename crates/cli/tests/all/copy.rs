//! Copies between stores: killed and continued, compared, refused.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::common::{Run, command, esker};
use serde_json::Value;
use tempfile::TempDir;

/// A store with the datasets `d`, of `records` records, and `e`, of one.
pub(crate) fn source(dir: &Path, records: u64, indexes: &[&str]) -> String {
    let lines = (0..records).map(|id| {
        let (user, n) = (id % 1000, id * 7919 % 100);
        format!("{{\"id\":{id},\"user\":\"u{user}\",\"n\":{n},\"pad\":\"{id:040}\"}}\n")
    });
    let file = dir.join("d.ndjson");
    fs::write(&file, lines.collect::<String>()).unwrap();
    let store = dir.join("from").display().to_string();
    let file = file.display().to_string();
    let mut args = vec!["load", &store, "d", &file, "--key", "id"];
    for index in indexes {
        args.extend(["--index", index]);
    }
    args.extend(["--durability", "os"]);
    esker(&args).expect(0);
    let one = dir.join("e.ndjson");
    fs::write(&one, "{\"id\":\"a\",\"n\":1}\n").unwrap();
    let one = one.display().to_string();
    esker(&["load", &store, "e", &one, "--key", "id:string"]).expect(0);
    store
}

/// Copies `d`, and kills the process once it has reported `most` records more than at first. The
/// event at the end of a copy that was not killed.
pub(crate) fn copy_and_kill(from: &str, to: &str, most: u64) -> Option<Value> {
    let args = ["copy", from, to, "d", "--progress", "json"];
    let mut child = command(&args).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (mut first, mut copied) = (None, None);
    for line in stderr.lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if event["event"] == "copied" {
            copied = Some(event);
        } else if event["event"] == "progress" && event["unit"] == "copied" {
            let records = event["records"].as_u64().unwrap();
            if records >= *first.get_or_insert(records) + most {
                child.kill().unwrap();
                break;
            }
        }
    }
    child.wait().unwrap();
    copied
}

/// Copies `d` with kills; returns their number, and the event at the end.
pub(crate) fn copied_with_kills(from: &str, to: &str, most: u64) -> (u64, Value) {
    for kills in 0..60 {
        // After some kills, more and more records are waited for, so that it ends at any speed.
        if let Some(copied) = copy_and_kill(from, to, most * (1 + kills / 4)) {
            return (kills, copied);
        }
    }
    unreachable!("the copy does not end");
}

/// What a store answers about `d`, in an order that does not depend on the store.
pub(crate) fn answers(store: &str) -> Vec<String> {
    let sorted = |run: Run| {
        let run = run.expect(0);
        let mut lines: Vec<&str> = run.stdout.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    let find = |condition: &str| sorted(esker(&["find", store, "d", condition]));
    vec![
        sorted(esker(&["count", store, "d"])),
        find("user=u77"),
        find("n=12"),
        find("user=u5 and n>50"),
        sorted(esker(&["get", store, "d", "123"])),
    ]
}

const INDEXES: [&str; 2] = ["user:lazy:string", "n:composite:int"];

#[test]
fn a_killed_copy_continues() {
    let dir = tempfile::tempdir().unwrap();
    let from = source(dir.path(), 150_000, &INDEXES);
    let to = dir.path().join("to").display().to_string();
    let (kills, copied) = copied_with_kills(&from, &to, 20_000);
    assert_eq!(copied["equal"], true, "{copied}");
    assert_eq!(copied["at_target"], 150_000);
    assert!(
        kills == 0 || copied["resumed"].as_u64().unwrap() > 0,
        "{kills}: {copied}"
    );
    assert_eq!(answers(&to), answers(&from));
    esker(&["check", &to]).expect(0);
    let list = |store: &str| esker(&["list", store]).expect(0).stdout;
    esker(&["copy", &from, &to]).expect(0);
    assert_eq!(list(&to), list(&from));
}

#[test]
fn another_kind_of_store_takes_a_copy_and_gives_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let from = source(dir.path(), 3000, &INDEXES);
    let plain = format!("plain:{}", dir.path().join("plain").display());
    let back = dir.path().join("back").display().to_string();
    let run = esker(&["copy", &from, &plain]).expect(0);
    assert!(
        run.stderr.contains("dataset `d`: 3,000 records copied"),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("both sides are equal: 3,000 records"),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.contains("dataset `e`: 1 record copied"),
        "{}",
        run.stderr
    );
    esker(&["copy", &plain, &back, "d"]).expect(0);
    assert_eq!(answers(&back), answers(&from));
    // `e` was not asked for.
    esker(&["get", &back, "e", "a"]).expect(2);
}

#[test]
fn a_copy_that_differs_is_said_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    let from = source(dir.path(), 3000, &INDEXES);
    let to = dir.path().join("to").display().to_string();
    esker(&["copy", &from, &to]).expect(0);
    esker(&["delete", &to, "d", "700"]).expect(0);
    let run = esker(&["copy", &from, &to]).expect(3);
    for part in [
        "0 records copied (and 3,000 before)",
        "3,000 records at the source, 2,999 at the target",
        "differs: keys from 512 to before 768: 256 records at the source, 255 at the target",
        "key 700 is missing at the target",
        "differ in `d`",
        "--mend",
    ] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    let run = esker(&["copy", &from, &to, "--mend"]).expect(0);
    assert!(
        run.stderr.contains("1 once more after a comparison"),
        "{}",
        run.stderr
    );
    assert_eq!(answers(&to), answers(&from));
}

#[test]
fn what_is_in_the_way_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let from = source(dir.path(), 100, &INDEXES);
    let to = dir.path().join("to").display().to_string();
    esker(&["create", &to, "d", "--key", "id:int"]).expect(0);
    let refused = |args: &[&str], text: &str| {
        let mut all = vec!["copy"];
        all.extend(args);
        let run = esker(&all).expect(2);
        assert!(run.stderr.contains(text), "{}", run.stderr);
    };
    refused(
        &[&from, &to],
        "with another definition: there, `user` is not declared",
    );
    refused(&[&from, &to, "nope"], "there is no dataset `nope`");
    refused(&[&from, &from], "both the source and the target");
    refused(&[&from, &to, "--snapshot", "x"], "there is no snapshot `x`");
    let run = esker(&["copy", &to, &format!("{from}/none/none"), "--workers", "0"]).expect(2);
    assert!(run.stderr.contains("--workers"), "{}", run.stderr);
    let run = esker(&["copy", &dir.path().join("none").display().to_string(), &to]).expect(3);
    assert!(run.stderr.contains("no store"), "{}", run.stderr);
    assert_eq!(esker(&["count", &to, "d"]).expect(0).stdout, "0\n");
}

#[test]
fn a_snapshot_is_copied() {
    let dir: TempDir = tempfile::tempdir().unwrap();
    let from = source(dir.path(), 200, &INDEXES);
    let to = dir.path().join("to").display().to_string();
    esker(&["snapshot", &from, "monday"]).expect(0);
    esker(&["delete", &from, "d", "7"]).expect(0);
    esker(&["copy", &from, &to, "d", "--snapshot", "monday"]).expect(0);
    assert_eq!(esker(&["get", &to, "d", "7"]).expect(0).ids(), [7]);
}
