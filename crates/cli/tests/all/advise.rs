//! `esker advise`: its output, and that the advised commands work.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::fmt::Write;

use crate::common::esker;
use serde_json::Value;
use tempfile::TempDir;

/// A store with a dataset `d`: `at` grows with the key, `user` does not.
fn store() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for id in 0..4000 {
        let user = id * 7919 % 101;
        writeln!(
            lines,
            "{{\"id\":{id},\"user\":\"u{user}\",\"at\":{}}}",
            5000 + id
        )
        .unwrap();
    }
    let file = dir.path().join("lines.ndjson");
    std::fs::write(&file, lines).unwrap();
    let store = dir.path().join("store").display().to_string();
    let file = file.display().to_string();
    let load = [
        "load",
        &store,
        "d",
        &file,
        "--key",
        "id",
        "--index",
        "user:lazy",
        "--index",
        "at:lazy",
    ];
    esker(&load).expect(0);
    (dir, store)
}

fn advice(store: &str, more: &[&str]) -> Value {
    let mut args = vec!["advise", store, "d", "--json"];
    args.extend(more);
    serde_json::from_str(&esker(&args).expect(0).stdout).unwrap()
}

#[test]
fn it_advises_and_its_command_makes_the_change() {
    let (_dir, store) = store();
    let mix = ["--mix", "puts=80,gets=15,ranges=5", "--k", "all"];
    let json = advice(&store, &mix);
    assert_eq!(json["mix"], "given");
    let at = &json["attributes"][1];
    assert_eq!(
        (&at["path"], &at["advised"], &at["change"]),
        (&"at".into(), &"embedded".into(), &"switch".into())
    );
    assert!(at["pruned"].as_f64().unwrap() > 0.95, "{at}");
    let mut args = vec!["advise", &store, "d"];
    args.extend(mix);
    let text = esker(&args).expect(0).stdout;
    let command = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("esker "))
        .expect(&text);
    assert_eq!(command, format!("index switch {store} d at:embedded"));
    let words: Vec<&str> = command.split(' ').collect();
    esker(&words).expect(0);
    let json = advice(&store, &mix);
    assert_eq!(json["attributes"][1]["change"], "keep");
    assert_eq!(json["attributes"][1]["now"], "embedded");
}

#[test]
fn what_is_assumed_is_said() {
    let (_dir, store) = store();
    assert_eq!(advice(&store, &[])["mix"], "assumed");
    let text = esker(&["advise", &store, "d"]).expect(0).stdout;
    assert!(text.contains("No read was counted."), "{text}");
    assert!(text.contains("--mix"), "{text}");
}

#[test]
fn slips_are_refused() {
    let (_dir, store) = store();
    let said = esker(&["advise", &store, "other"]).expect(2).stderr;
    assert!(said.contains("there is no dataset `other`"), "{said}");
    for mix in ["puts", "writes=3", "puts=x", "puts=-1", "puts=0"] {
        esker(&["advise", &store, "d", "--mix", mix]).expect(2);
    }
    esker(&["advise", &store, "d", "--mix", "puts=1", "--k", "0"]).expect(2);
    esker(&["advise", &store, "d", "--k", "5"]).expect(2);
}
