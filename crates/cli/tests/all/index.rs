//! `esker index`: its output and effects, and that it survives kills.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::fmt::Write;
use std::time::Duration;

use crate::common::{command, esker};
use serde_json::Value;
use tempfile::TempDir;

const RECORDS: i64 = 20_000;

/// A store with a dataset `d`: `v` has a lazy index, `w` and `mixed` are not declared.
fn store(records: i64) -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for id in 0..records {
        let mixed = if id == 7 { "\"x\"" } else { "1" };
        let v = id % 100;
        writeln!(
            lines,
            "{{\"id\":{id},\"v\":{v},\"w\":\"w{v}\",\"mixed\":{mixed}}}"
        )
        .unwrap();
    }
    let file = dir.path().join("lines.ndjson");
    std::fs::write(&file, lines).unwrap();
    let store = dir.path().join("store").display().to_string();
    let file = file.display().to_string();
    let load = [
        "load", &store, "d", &file, "--key", "id", "--index", "v:lazy", "--memory", "1M",
    ];
    esker(&load).expect(0);
    (dir, store)
}

fn stat(store: &str) -> Value {
    serde_json::from_str(&esker(&["stat", store, "d", "--json"]).expect(0).stdout).unwrap()
}

#[test]
pub(crate) fn indexes_are_added_switched_and_dropped() {
    let (_dir, store) = store(2000);
    let index = |verb: &str, what: &str| esker(&["index", verb, &store, "d", what]);
    let lookup = |path: &str, value: &str| {
        let run = esker(&[
            "lookup",
            &store,
            "d",
            path,
            value,
            "--limit",
            "2",
            "--explain",
        ]);
        let run = run.expect(0);
        let kind = run.stderr.split("\"kind\": \"").nth(1);
        let kind = kind
            .and_then(|rest| rest.split('"').next())
            .unwrap_or("scan");
        (run.ids(), kind.to_string())
    };
    assert_eq!(lookup("w", "w5"), (vec![1905, 1805], "scan".to_string()));
    let said = index("add", "w").expect(0).stderr;
    assert!(
        said.contains("`w` is now indexed: lazy (2,000 records in"),
        "{said}"
    );
    assert_eq!(lookup("w", "w5"), (vec![1905, 1805], "lazy".to_string()));
    for kind in ["embedded", "composite", "eager"] {
        let said = index("switch", &format!("w:{kind}")).expect(0).stderr;
        assert!(
            said.contains(&format!("`w` is now indexed: {kind}, was")),
            "{said}"
        );
        assert_eq!(lookup("w", "w5"), (vec![1905, 1805], kind.to_string()));
    }
    let said = index("drop", "w").expect(0).stderr;
    assert!(
        said.contains("dropped the eager index of `w`, which stays declared"),
        "{said}"
    );
    assert_eq!(lookup("w", "w5"), (vec![1905, 1805], "scan".to_string()));
    index("add", "w:composite").expect(0);
    let said = index("switch", "w:none").expect(0).stderr;
    assert!(
        said.contains("dropped the composite index of `w`, which stays declared"),
        "{said}"
    );
    let definition = stat(&store)["arguments"].as_str().unwrap().to_string();
    assert_eq!(
        definition,
        "--key id:int --index v:lazy:int --index w:none:string"
    );

    let refused = |verb: &str, what: &str, why: &str| {
        let said = index(verb, what).expect(2).stderr;
        assert!(said.contains(why), "{said}");
    };
    refused("switch", "v:composite:string", "does not change the type");
    refused("add", "v", "`v` has an index already, of kind lazy");
    refused("add", "v:composite", "`switch`");
    refused("switch", "v", "give the new kind, as in v:lazy");
    refused("switch", "v:lazy", "of kind lazy already");
    refused(
        "switch",
        "nope:lazy",
        "`nope` has no index (indexed: v); `esker index add",
    );
    refused("add", "v:quick", "unknown index kind `quick`");
    refused("drop", "w", "`w` has no index");
    refused(
        "add",
        "mixed:lazy:int",
        "record 7: field mixed must be of type int, found string",
    );
    refused("add", "empty", "give the index a type");
    assert_eq!(stat(&store)["arguments"], definition);
    let said = esker(&["index", "resume", &store]).expect(0).stderr;
    assert!(said.contains("no index change is unfinished"), "{said}");
    esker(&["check", &store]).expect(0);
}

/// Kills the command later and later, until it completes; the store is exact each time.
#[cfg(unix)]
#[test]
fn a_killed_switch_is_resumed_by_the_same_command_and_by_resume() {
    let (_dir, store) = store(RECORDS);
    let count = || {
        let run = esker(&["count", &store, "d", "v", "10", "12"]).expect(0);
        run.stdout.trim().to_string()
    };
    let mut resumed = 0;
    for (round, kind) in ["composite", "embedded", "eager", "lazy"]
        .iter()
        .enumerate()
    {
        for attempt in 1.. {
            let what = format!("v:{kind}");
            let mut switch = if stat(&store).get("unfinished").is_some() && attempt % 2 == 0 {
                resumed += 1;
                command(&["index", "resume", &store, "d", "--memory", "1M"])
            } else {
                command(&["index", "switch", &store, "d", &what, "--memory", "1M"])
            };
            let mut child = switch.spawn().unwrap();
            std::thread::sleep(Duration::from_millis((attempt * 7 + round * 2) as u64));
            child.kill().unwrap();
            let ended = child.wait_with_output().unwrap();
            assert_eq!(count(), (RECORDS / 100 * 3).to_string());
            if ended.status.success() {
                break;
            }
            assert_eq!(ended.status.code(), None, "{ended:?}");
            esker(&["check", &store]).expect(0);
            // The kill may have come after its last step.
            let stat = stat(&store);
            let definition = stat["arguments"].as_str().unwrap();
            if stat.get("unfinished").is_none() && definition.contains(&what) {
                break;
            }
        }
        let definition = stat(&store)["arguments"].clone();
        assert_eq!(definition, format!("--key id:int --index v:{kind}:int"));
        esker(&["check", &store]).expect(0);
    }
    println!("{resumed} resumed");
}

/// Truncates the files of the first index, like a failing disk.
fn damage(store: &str) {
    let db = esker::Database::open(store, esker::Options::default()).unwrap();
    let files: Vec<std::path::PathBuf> = {
        let snapshot = db.group().snapshot();
        let tree = snapshot.version().tree_named("d/index/0").unwrap();
        let tables = tree.runs.iter().flat_map(|run| run.tables.iter());
        tables.map(|table| table.path()).collect()
    };
    db.close().unwrap();
    assert!(!files.is_empty());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    }
}

#[test]
fn a_damaged_index_is_built_again_by_one_command() {
    let (_dir, store) = store(RECORDS);
    damage(&store);
    let run = esker(&["lookup", &store, "d", "v", "7"]).expect(3);
    assert!(run.stderr.contains(".tbl"), "{}", run.stderr);
    let run = esker(&["check", &store]).expect(3);
    let output = format!("{}{}", run.stdout, run.stderr);
    assert!(output.contains(".tbl"), "{output}");
    let run = esker(&["repair", &store, "d", "--rebuild-index", "v"]).expect(0);
    let note = "`v` is now indexed: lazy, rebuilt (20,000 records";
    assert!(run.stderr.contains(note), "{}", run.stderr);
    let run = esker(&["count", &store, "d", "v", "7", "7"]).expect(0);
    assert_eq!(run.stdout.trim(), "200");
    esker(&["check", &store]).expect(0);
    let run = esker(&["repair", &store, "d", "--rebuild-index", "w"]).expect(2);
    assert!(run.stderr.contains("`w` has no index"), "{}", run.stderr);
    let both = [
        "repair",
        &store,
        "d",
        "--rebuild-index",
        "v",
        "--method",
        "key",
    ];
    esker(&both).expect(2);
}

#[test]
fn a_damaged_index_is_dropped_by_one_command() {
    let (_dir, store) = store(RECORDS);
    damage(&store);
    esker(&["index", "drop", &store, "d", "v"]).expect(0);
    let run = esker(&["count", &store, "d", "v", "7", "7"]).expect(0);
    assert_eq!(run.stdout.trim(), "200");
    esker(&["check", &store]).expect(0);
}

#[test]
pub(crate) fn a_second_record_with_a_unique_value_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users.ndjson");
    let lines = [
        r#"{"id":1,"email":"ann@x","team":"a"}"#,
        r#"{"id":2,"email":"bob@x","team":"a"}"#,
        r#"{"id":3,"email":"ann@x","team":"b"}"#,
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let store = dir.path().join("store").display().to_string();
    let file = file.display().to_string();
    let index = "email:composite:unique";
    let load = ["load", &store, "d", &file, "--key", "id", "--index", index];
    let run = esker(&load).expect(2);
    assert!(
        run.stderr.contains("2 records loaded, 1 rejected"),
        "{}",
        run.stderr
    );
    let rejected = std::fs::read_to_string(format!("{file}.rejected")).unwrap();
    assert!(rejected.contains("`email` must be unique"), "{rejected}");
    assert!(rejected.contains("keys 3 and 1"), "{rejected}");
    let list = esker(&["list", &store]).expect(0).stdout;
    assert!(
        list.contains("--index email:composite:string:unique"),
        "{list}"
    );
    assert_eq!(stat(&store)["indexes"][0]["type"], "string, unique");
    // A switch keeps values unique; text that says so is refused.
    let switch = |to: &str| esker(&["index", "switch", &store, "d", to]);
    switch("email:recent:unique").expect(2);
    switch("email:recent").expect(0);
    let list = esker(&["list", &store]).expect(0).stdout;
    assert!(
        list.contains("--index email:recent:string:unique"),
        "{list}"
    );
    // Two records have the same value.
    let run = esker(&["index", "add", &store, "d", "team:lazy:string:unique"]).expect(2);
    assert!(
        run.stderr.contains("`team` must be unique"),
        "{}",
        run.stderr
    );
    let run = esker(&["index", "add", &store, "d", "team:embedded:string:unique"]).expect(2);
    assert!(run.stderr.contains("cannot be unique"), "{}", run.stderr);
    esker(&["check", &store]).expect(0);
}

#[test]
pub(crate) fn a_compound_index_is_loaded_explained_changed_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("visits.ndjson");
    let lines: Vec<String> = (0..400)
        .map(|id| {
            let (user, at) = (id % 4, 1_700_000_000 + id * 60);
            format!(r#"{{"id":{id},"user":"u{user}","at":{at}}}"#)
        })
        .collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
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
        "user,at:composite",
    ];
    esker(&load).expect(0);
    // The fields are declared with it, and the text of the definition is what loads it again.
    let list = esker(&["list", &store]).expect(0).stdout;
    let definition = "--index user,at:composite --index user:none:string --index at:none:int";
    assert!(list.contains(definition), "{list}");
    let shown = stat(&store);
    assert_eq!(shown["indexes"][0]["path"], "user,at");
    assert_eq!(shown["indexes"][0]["type"], "compound");
    let condition = "user = u1 and at >= 1700000600 and at < 1700001200";
    let find = ["find", &store, "d", condition];
    let explained = esker(&[find.as_slice(), &["--explain"]].concat()).expect(0);
    let both = [explained.stdout.as_str(), &explained.stderr].concat();
    for part in [
        "\"index\": \"user,at\"",
        "\"condition\": \"user = u1 & at >= 1700000600 and at < 1700001200\"",
        "\"candidates\": 2",
    ] {
        assert!(both.contains(part), "{both}");
    }
    esker(&load).expect(0);
    esker(&["index", "switch", &store, "d", "user,at:recent"]).expect(0);
    esker(&["advise", &store, "d"]).expect(0);
    esker(&["index", "drop", &store, "d", "user,at"]).expect(0);
    let list = esker(&["list", &store]).expect(0).stdout;
    assert!(!list.contains("user,at"), "{list}");
    esker(&["index", "add", &store, "d", "at,user:lazy"]).expect(0);
    let found = esker(&find).expect(0).stdout;
    assert_eq!(found.lines().count(), 2, "{found}");
    for (wrong, why) in [
        ("user,at:embedded", "cannot be of several fields"),
        ("user,at:lazy:string", "leave :string out"),
        ("user,at?:lazy", "--index at?:none"),
    ] {
        let run = esker(&["index", "add", &store, "d", wrong]).expect(2);
        assert!(run.stderr.contains(why), "{}", run.stderr);
    }
    esker(&["check", &store]).expect(0);
}
