//! `esker read-key`, `esker read-value`, and tokenizers on the command line.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use crate::common::esker;
use esker::schema::Tokenizer;
use esker::{Database, DatasetDef, IndexKind, KeyType, Options, Type};
use serde_json::Value;
use tempfile::TempDir;

/// A store with a dataset `d` that keeps three versions; `name` has a prefix index, `n` a recent
/// one.
fn store() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let db = Database::create_or_open(&store, Options::default()).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index(
            "name",
            esker::Index::new(IndexKind::Lazy)
                .of_type(Type::String)
                .tokenizer(Tokenizer::Prefix),
        )
        .index("n", esker::Index::new(IndexKind::Recent).of_type(Type::Int))
        .versions(3);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for n in 0..8 {
        let (id, name) = (n % 2, if n < 6 { "Ada Lovelace" } else { "Adam Smith" });
        let record = format!("{{\"id\":{id},\"n\":{},\"name\":\"{name}\"}}", n % 4);
        dataset.put_json(record.as_bytes()).unwrap();
    }
    db.close().unwrap();
    (dir, store.display().to_string())
}

fn lines(text: &str) -> Vec<(u64, i64, i64)> {
    let parse = |line: &str| {
        let json: Value = serde_json::from_str(line).unwrap();
        let record = &json["record"];
        (
            json["seq"].as_u64().unwrap(),
            record["id"].as_i64().unwrap(),
            record["n"].as_i64().unwrap(),
        )
    };
    text.lines().map(parse).collect()
}

#[test]
pub(crate) fn versions_are_read_by_key_and_by_value() {
    let (_dir, store) = store();
    let read = |verb: &str, rest: &[&str]| {
        let args = [&[verb, &store, "d"], rest, &["--json"]].concat();
        lines(&esker(&args).expect(0).stdout)
    };
    let all = read("read-key", &["1", "--versions", "9"]);
    let seqs: Vec<u64> = all.iter().map(|line| line.0).collect();
    assert_eq!(all.iter().map(|line| line.2).collect::<Vec<_>>(), [3, 1, 3]);
    assert!(seqs.is_sorted_by(|a, b| a > b));
    let at = (seqs[1]).to_string();
    assert_eq!(read("read-key", &["1", "--at", &at]), all[1..2]);

    assert_eq!(read("read-value", &["n=3"]), all[..1]);
    let both = read("read-value", &["n=3", "--versions", "3"]);
    assert_eq!(both, [all[0], all[2]]);
    let some = read("read-value", &["n=3", "name=Ada ", "--versions", "3"]);
    assert_eq!(some, all[2..]);
    assert_eq!(read("read-value", &["name=Adam"]).len(), 2);

    let first = esker(&[
        "read-value",
        &store,
        "d",
        "n=3",
        "--versions",
        "3",
        "--limit",
        "1",
    ]);
    let first = first.expect(0);
    let (seq, body) = first.stdout.trim_end().split_once('\t').unwrap();
    assert_eq!(seq, seqs[0].to_string());
    assert_eq!(body, "{\"id\":1,\"n\":3,\"name\":\"Adam Smith\"}");
    let token = first.stderr.trim_end().rsplit_once(' ').unwrap().1;
    let next = read("read-value", &["n=3", "--versions", "3", "--after", token]);
    assert_eq!(next, all[2..]);

    esker(&["read-key", &store, "d", "77"]).expect(1);
    esker(&["read-value", &store, "d", "n=77"]).expect(1);
    for bad in [
        &["read-value", &store, "d", "n"][..],
        &["read-value", &store, "d", "n=x"],
        &["read-value", &store, "d", "n=3", "--versions", "0"],
        &["read-value", &store, "d", "n=3", "--after", "x"],
        &[
            "read-value",
            &store,
            "d",
            "n=3",
            "--after",
            token,
            "--at",
            "1",
        ],
    ] {
        esker(bad).expect(2);
    }
}

#[test]
fn tokenizers_are_given_behind_the_type() {
    let (dir, store) = store();
    let file = dir.path().join("more.ndjson").display().to_string();
    std::fs::write(&file, "{\"id\":1,\"name\":\"Ada\",\"n\":1}\n").unwrap();
    let load = |name: &str, index: &str| {
        esker(&["load", &store, name, &file, "--key", "id", "--index", index])
    };
    load("e", "name:recent:string:prefix").expect(0);
    load("e", "name:recent:string").expect(2);
    load("e", "name:recent:string:prefix").expect(0);
    load("f", "n:lazy:int:number").expect(0);
    for bad in [
        "name:lazy:string:number",
        "n:lazy:int:prefix",
        "name:embedded:string:prefix",
        "name:lazy:string:words",
    ] {
        load("g", bad).expect(2);
    }
    esker(&["index", "add", &store, "f", "name:composite:string:prefix"]).expect(0);
    esker(&["index", "switch", &store, "f", "name:eager"]).expect(0);
    let find = esker(&["find", &store, "f", "name^=Ad", "--explain"]).expect(0);
    assert!(
        find.stderr.contains("\"kind\": \"eager\""),
        "{}",
        find.stderr
    );
    esker(&["index", "switch", &store, "f", "name:embedded"]).expect(2);
    esker(&["check", &store]).expect(0);
}
