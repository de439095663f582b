//! Edge cases of input: columns whose names look like paths, and zeros.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use crate::common;
use crate::common::esker;
use serde_json::json;

struct Room(tempfile::TempDir);

impl Room {
    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn load(&self, csv: &str, args: &[&str]) -> common::Run {
        let file = self.path("rows.csv");
        std::fs::write(&file, csv).unwrap();
        let store = self.path("store");
        let all = [&["load", &store, "d", &file], args].concat();
        esker(&all)
    }

    fn rows(&self) -> Vec<serde_json::Value> {
        esker(&["scan", &self.path("store"), "d"]).expect(0).rows()
    }
}

fn room() -> Room {
    Room(tempfile::tempdir().unwrap())
}

#[test]
fn string_columns_are_known_by_their_names_whatever_these_hold() {
    for (column, declared) in [
        ("a.b", "a\\.b"),
        ("a=b", "a\\=b"),
        ("a<b>^", "a\\<b\\>\\^"),
        ("a\\b", "a\\\\b"),
        ("ab", "ab"),
    ] {
        let room = room();
        let csv = format!("id,{column}\n1,123\n2,true\n3,007\n4,1e400\n");
        let index = format!("{declared}:lazy:string");
        room.load(&csv, &["--key", "id:int", "--index", &index])
            .expect(0);
        let wanted = ["123", "true", "007", "1e400"];
        let wanted = (1..)
            .zip(wanted)
            .map(|(id, text)| json!({"id": id, column: text}));
        let mut rows = room.rows();
        rows.sort_by_key(|row| row["id"].as_i64());
        assert_eq!(rows, wanted.collect::<Vec<_>>(), "{column}");
        // The same for the key.
        let room = self::room();
        let key = format!("{declared}:string");
        room.load(&format!("{column}\n123\n007\n"), &["--key", &key])
            .expect(0);
        let rows = room.rows();
        assert_eq!(rows, [json!({column: "007"}), json!({column: "123"})]);
    }
}

/// Without a kind, an array that looks like a point gets an index of its numbers, and a note that
/// proposes a spatial index.
#[test]
fn an_index_of_numbers_over_points_says_that_there_are_others() {
    let points = "{\"id\":1,\"at\":[9.99,53.55]}\n{\"id\":2}\n{\"id\":3,\"at\":[-74,40.7]}\n";
    let pairs = "{\"id\":1,\"at\":[9.99,53.55]}\n{\"id\":2,\"at\":[1,2,3]}\n";
    let beyond = "{\"id\":1,\"at\":[200,1]}\n";
    let plain = "{\"id\":1,\"at\":9.99}\n";
    for (text, index, is_noted) in [
        (points, "at", true),
        (points, "at:eager", true),
        (points, "at:eager:float", false),
        (points, "at:spatial", false),
        (pairs, "at", false),
        (beyond, "at", false),
        (plain, "at", false),
    ] {
        let room = room();
        let file = room.path("records.ndjson");
        std::fs::write(&file, text).unwrap();
        let store = room.path("store");
        let args = ["load", &store, "d", &file, "--key", "id", "--index", index];
        let run = esker(&args).expect(0);
        let note = run.stderr.contains("note: `at`");
        assert_eq!(note, is_noted, "{index} of {text}: {}", run.stderr);
    }
}

#[test]
fn a_nested_path_makes_no_strings_of_a_column_that_reads_like_it() {
    let room = room();
    let args = ["--key", "id:int", "--index", "user.name:lazy:string"];
    room.load("id,user.name\n1,123\n", &args).expect(0);
    assert_eq!(room.rows(), [json!({"id": 1, "user.name": 123})]);
}

#[test]
fn a_cell_that_is_minus_zero_is_an_integer() {
    let room = room();
    let args = ["--key", "id:int", "--index", "n:lazy:int"];
    room.load("id,n\n-0,-0\n1,5\n", &args).expect(0);
    let found = esker(&["find", &room.path("store"), "d", "n=0"]).expect(0);
    assert_eq!(found.stdout.trim(), r#"{"id":-0,"n":-0}"#);
    // Also if the type is inferred.
    let room = self::room();
    room.load("id,n\n-0,-0\n1,5\n", &["--key", "id", "--index", "n:lazy"])
        .expect(0);
    let found = esker(&["find", &room.path("store"), "d", "n<=0"]).expect(0);
    assert_eq!(found.stdout.trim(), r#"{"id":-0,"n":-0}"#);
    assert_eq!(
        esker(&["get", &room.path("store"), "d", "0"])
            .expect(0)
            .stdout
            .trim(),
        r#"{"id":-0,"n":-0}"#
    );
}

#[test]
pub(crate) fn a_record_that_no_reader_can_read_is_rejected_with_its_line() {
    let room = room();
    let file = room.path("rows.jsonl");
    let lines = [
        "{\"id\":1}",
        "{\"id\":2,\"x\":\"\\ud800\"}",
        "{\"id\":3,\"x\":[1e400]}",
        "{\"id\":4,\"x\":\"\\ud83d\\ude00\"}",
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let run = esker(&["load", &room.path("store"), "d", &file, "--key", "id:int"]);
    run.expect(2);
    let rejected = std::fs::read_to_string(format!("{file}.rejected")).unwrap();
    for (line, what) in [(2, "hex escape"), (3, "number out of range")] {
        let reason = rejected.lines().find(|reason| reason.contains(what));
        let reason = reason.unwrap_or_else(|| panic!("{what}: {rejected}"));
        let reason: serde_json::Value = serde_json::from_str(reason).unwrap();
        assert_eq!(reason["line"], line, "{reason}");
        assert!(reason.to_string().contains(" at column "), "{reason}");
    }
    assert_eq!(room.rows().len(), 2);
}
