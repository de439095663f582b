//! `esker repair`, and the strategies of `esker load`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use crate::common;
use std::fmt::Write;

use crate::common::esker;
use serde_json::Value;
use tempfile::TempDir;

/// A file of records that replace each other.
fn lines() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for n in 0..6000 {
        let (id, v) = (n * 7 % 1500, n % 10);
        writeln!(lines, "{{\"id\":{id},\"v\":{v},\"n\":{n}}}").unwrap();
    }
    let file = dir.path().join("lines.ndjson");
    std::fs::write(&file, lines).unwrap();
    let file = file.display().to_string();
    (dir, file)
}

fn load(dir: &TempDir, name: &str, file: &str, strategy: &[&str]) -> (String, common::Run) {
    let store = dir.path().join(name).display().to_string();
    let mut args = vec![
        "load",
        &store,
        "d",
        file,
        "--key",
        "id",
        "--index",
        "v:composite",
        "--memory",
        "1M",
    ];
    args.extend(strategy);
    let run = esker(&args);
    (store, run)
}

fn repair(store: &str, args: &[&str]) -> common::Run {
    let mut all = vec!["repair", store, "d"];
    all.extend(args);
    esker(&all)
}

fn json(run: common::Run) -> Value {
    serde_json::from_str(&run.expect(0).stdout).unwrap()
}

#[test]
fn every_strategy_is_loaded_repaired_shown_and_checked() {
    let (dir, file) = lines();
    let cases: [(&[&str], &str); 6] = [
        (&["--maintenance", "validation"], "key"),
        (
            &[
                "--maintenance",
                "validation",
                "--repair",
                "none",
                "--merging",
                "tiered",
            ],
            "index",
        ),
        (
            &["--maintenance", "mutable-bitmap", "--merging", "correlated"],
            "key",
        ),
        (&["--maintenance", "eager"], "key"),
        (&["--maintenance", "deleted-key"], "index"),
        (
            &[
                "--maintenance",
                "deferred",
                "--repair",
                "staged",
                "--versions",
                "2",
            ],
            "primary",
        ),
    ];
    for (at, (strategy, method)) in cases.into_iter().enumerate() {
        let (store, run) = load(&dir, &format!("store{at}"), &file, strategy);
        let said = run.expect(0).stderr;
        let text = strategy.join(" ");
        if strategy != ["--maintenance", "deferred"] {
            let first = strategy.get(2..).unwrap_or_default().join(" ");
            assert!(said.contains(&first), "{said}");
        }
        let report = json(repair(&store, &["--json"]));
        assert_eq!(report["method"], *method, "{text}");
        assert!(report["mark"].as_u64() > Some(0), "{report}");
        let again = json(repair(
            &store,
            &["--json", "--threads", "1", "--lookups", "points"],
        ));
        assert_eq!(again["found"], 0, "{text}");
        let stat = esker(&["stat", &store, "d", "--json"]).expect(0).stdout;
        let stat: Value = serde_json::from_str(&stat).unwrap();
        assert_eq!(stat["strategy"]["maintenance"], *strategy.get(1).unwrap());
        assert_eq!(stat["strategy"]["repaired_up_to"], report["mark"]);
        let shown = esker(&["stat", &store, "d", "--verbose"]).expect(0).stdout;
        assert!(shown.contains("repaired_up_to"), "{shown}");
        esker(&["compact", &store]).expect(0);
        esker(&["check", &store]).expect(0);
        let found = esker(&["lookup", &store, "d", "v", "3"]).expect(0).ids();
        assert_eq!(found.len(), 150, "{text}");
        // The same definition may be given again.
        load(&dir, &format!("store{at}"), &file, strategy)
            .1
            .expect(0);
        let said = load(&dir, &format!("store{at}"), &file, &["--versions", "3"]).1;
        assert!(said.expect(2).stderr.contains("--versions 3"));
    }
}

#[test]
fn a_repair_says_what_it_did() {
    let (dir, file) = lines();
    let (store, run) = load(&dir, "store", &file, &["--repair", "staged"]);
    run.expect(0);
    let said = repair(&store, &["--method", "primary", "--compaction", "after"]);
    let said = said.expect(0).stderr;
    assert!(said.starts_with("repaired by primary: "), "{said}");
    assert!(said.contains("all obsolete writes up to write"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    let index = [
        "--method",
        "index",
        "--no-bloom",
        "--buffer",
        "64K",
        "--rate",
        "100M",
    ];
    repair(&store, &index).expect(0);
}

#[test]
pub(crate) fn bad_values_are_refused_with_the_good_ones() {
    let (dir, file) = lines();
    for (option, value, good) in [
        (
            "--maintenance",
            "lazy",
            "auto, deferred, validation, mutable-bitmap, eager",
        ),
        ("--repair", "often", "merge, none"),
        ("--merging", "levelled", "lazy-leveled, leveled, tiered"),
        ("--versions", "0", "at least 1"),
    ] {
        let (store, run) = load(&dir, "store", &file, &[option, value]);
        let said = run.expect(2).stderr;
        assert!(said.contains(good), "{said}");
        assert!(!std::path::Path::new(&store).exists());
    }
    let staged = ["--maintenance", "eager", "--repair", "staged"];
    let said = load(&dir, "store", &file, &staged).1.expect(2).stderr;
    assert!(said.contains("deferred"), "{said}");
    let (store, run) = load(&dir, "store", &file, &[]);
    run.expect(0);
    for (args, good) in [
        (&["--method", "all"][..], "primary"),
        (&["--method", "primary", "--compaction", "never"], "before"),
        (
            &["--method", "index", "--compaction", "after"],
            "--method primary",
        ),
        (&["--lookups", "few"], "merge-scan"),
        (&["--threads", "0"], "threads"),
        (&["--rate", "fast"], "unknown unit"),
        (&["--method", "key"], "primary-key index"),
    ] {
        let said = repair(&store, args).expect(2).stderr;
        assert!(said.contains(good), "{said}");
    }
}

#[test]
pub(crate) fn the_strategy_is_changed_and_keys_come_without_records() {
    let (dir, file) = lines();
    let (store, run) = load(&dir, "store", &file, &[]);
    run.expect(0);
    let keys = |args: &[&str]| {
        let mut all = vec!["lookup", &store, "d", "v", "3", "--keys-only"];
        all.extend(args);
        let mut keys: Vec<i64> = (esker(&all).expect(0).stdout.lines())
            .map(|line| line.parse().unwrap())
            .collect();
        keys.sort_unstable();
        keys
    };
    let right = keys(&["--validation", "direct"]);
    assert!(right.len() > 100);
    for strategy in ["mutable-bitmap", "deleted-key", "eager", "auto", "deferred"] {
        esker(&["maintain", &store, "d", strategy]).expect(0);
        let strategy_now = json(esker(&["stat", &store, "d", "--json"]))["strategy"].clone();
        assert_eq!(
            strategy_now["automatic"],
            strategy == "auto",
            "{strategy_now}"
        );
        assert_eq!(strategy_now["converged"], true, "{strategy_now}");
        if strategy != "auto" {
            assert_eq!(strategy_now["maintenance"], strategy);
        }
        for order in ["newest", "oldest", "any", "key"] {
            assert_eq!(keys(&["--order", order]), right, "{strategy}, {order}");
        }
        esker(&["check", &store]).expect(0);
    }
    let unknown = esker(&["maintain", &store, "d", "never"]).expect(2).stderr;
    assert!(unknown.contains("mutable-bitmap"), "{unknown}");
}
