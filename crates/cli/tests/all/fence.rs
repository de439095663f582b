//! `esker fence`: what enters an area and leaves it; on a folder, and on a served store.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::common::{command, esker, esker_fed};
use serde_json::Value;

const AREA: &str = "rect(0,0,10,10)";

fn put(folder: &Path, store: &str, lines: &'static str) {
    esker_fed(&["put", store, "cars"], folder, move |to| {
        to.write_all(lines.as_bytes()).unwrap();
    })
    .expect(0);
}

/// The events and keys of printed lines.
fn events(stdout: &str) -> Vec<String> {
    let event = |line: &str| {
        let line: Value = serde_json::from_str(line).expect(line);
        format!("{} {}", line["event"].as_str().unwrap(), line["key"])
    };
    stdout.lines().map(event).collect()
}

pub(crate) fn records_enter_an_area_and_leave_it() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let s = folder.join("store").display().to_string();
    let s = s.as_str();
    esker(&["create", s, "cars", "--key", "id:int", "--old-records"]).expect(0);
    let fence = |more: &[&str]| esker(&[&["fence", s, "cars", "at", AREA], more].concat());
    assert_eq!(fence(&[]).expect(1).stdout, "");
    let new = fence(&["--consumer", "gate"]).expect(0);
    assert!(new.stderr.contains("`gate` is new"), "{}", new.stderr);

    put(
        folder,
        s,
        "{\"id\":1,\"at\":[5,5],\"kind\":\"bus\"}\n\
         {\"id\":2,\"at\":[50,5],\"kind\":\"bus\"}\n\
         {\"id\":3,\"at\":\"unknown\"}\n",
    );
    put(
        folder,
        s,
        "{\"id\":1,\"at\":[6,5],\"kind\":\"tram\"}\n{\"id\":2,\"at\":[10,10],\"kind\":\"bus\"}\n",
    );
    put(folder, s, "{\"id\":1,\"at\":[60,5],\"kind\":\"tram\"}\n");
    esker(&["delete", s, "cars", "2"]).expect(0);

    let all = fence(&[]).expect(0).stdout;
    assert_eq!(events(&all), ["enter 1", "enter 2", "exit 1", "exit 2"]);
    let first = all.lines().next().unwrap();
    assert_eq!(
        first,
        r#"{"seq":1,"event":"enter","change":"put","key":1,"record":{"id":1,"at":[5,5],"kind":"bus"}}"#
    );
    let last = all.lines().last().unwrap();
    assert!(
        last.contains(r#""event":"exit","change":"delete","key":2,"old":{"id":2,"#),
        "{last}"
    );
    let inside = fence(&["--events", "inside"]).expect(0).stdout;
    assert_eq!(events(&inside), ["inside 1"]);
    // A record that ceases to meet the condition exits.
    let buses = fence(&["--where", "kind = bus"]).expect(0).stdout;
    assert_eq!(events(&buses), ["enter 1", "exit 1", "enter 2", "exit 2"]);
    let none = fence(&["--where", "kind = bus", "--where", "id > 7"]);
    assert_eq!(none.expect(1).stdout, "");

    // A page says where the next one begins.
    let page = fence(&["--limit", "3"]).expect(0);
    assert_eq!(events(&page.stdout).len(), 3);
    let from = page.stderr.trim().rsplit(' ').next().unwrap().to_string();
    let rest = fence(&["--from", &from]).expect(0).stdout;
    assert_eq!(events(&rest), ["exit 2"]);
    // A consumer continues there by itself.
    let page = fence(&["--consumer", "gate", "--limit", "3"]).expect(0);
    assert_eq!(events(&page.stdout).len(), 3);
    let rest = fence(&["--consumer", "gate"]).expect(0).stdout;
    assert_eq!(events(&rest), ["exit 2"]);
    assert_eq!(fence(&["--consumer", "gate"]).expect(1).stdout, "");
    fence(&["--consumer", "gate", "--forget"]).expect(0);
    fence(&["--consumer", "gate", "--forget"]).expect(2);
}

pub(crate) fn what_is_no_fence_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let s = dir.path().join("store").display().to_string();
    let s = s.as_str();
    esker(&["create", s, "cars", "--key", "id:int", "--old-records"]).expect(0);
    esker(&["create", s, "plain", "--key", "id:int"]).expect(0);
    for (args, says) in [
        (vec!["plain", "at", AREA], "old records"),
        (vec!["boats", "at", AREA], "boats"),
        (vec!["cars", "at", "rect(0,0,10)"], "column"),
        (vec!["cars", "at", "rect(0,10,10,0)"], "south"),
        (vec!["cars", "at", "x = 1"], "column"),
        (vec!["cars", "at", AREA, "--events", "leave"], "enter"),
        (vec!["cars", "at", AREA, "--where", "kind ="], "kind ="),
        (vec!["cars", "at", AREA, "--limit", "0"], "at least 1"),
        (vec!["cars", "at", AREA, "--from", "999999"], "999999"),
    ] {
        let consumer = ["--consumer", "gate"];
        for more in [&[][..], &consumer] {
            let refused = esker(&[&["fence", s][..], &args, more].concat()).expect(2);
            assert!(
                refused.stderr.contains(says),
                "{args:?}: {}",
                refused.stderr
            );
        }
    }
    // None of them created a consumer.
    let stat = esker(&["stat", s, "--json"]).expect(0).stdout;
    assert!(!stat.contains("gate"), "{stat}");
}

#[test]
fn a_fence_is_the_same_in_a_folder() {
    records_enter_an_area_and_leave_it();
    what_is_no_fence_is_refused();
}

#[test]
#[cfg(feature = "server")]
fn a_fence_is_the_same_on_a_server() {
    crate::common::with_served_stores(records_enter_an_area_and_leave_it);
    crate::common::with_served_stores(what_is_no_fence_is_refused);
}

/// Events are printed as they come, with the line of each at once.
#[test]
fn a_fence_that_follows_prints_what_happens() {
    let dir = tempfile::tempdir().unwrap();
    let s = dir.path().join("store").display().to_string();
    esker(&["create", &s, "cars", "--key", "id:int", "--old-records"]).expect(0);
    let mut child = command(&[
        "fence", &s, "cars", "lon,lat", AREA, "--follow", "--limit", "2",
    ])
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    put(dir.path(), &s, "{\"id\":1,\"lon\":5,\"lat\":5}\n");
    let first = lines.next().unwrap().unwrap();
    assert_eq!(events(&first), ["enter 1"]);
    put(dir.path(), &s, "{\"id\":1,\"lon\":5,\"lat\":50}\n");
    let second = lines.next().unwrap().unwrap();
    assert_eq!(events(&second), ["exit 1"]);
    assert!(child.wait().unwrap().success());
    assert!(lines.next().is_none());
}
