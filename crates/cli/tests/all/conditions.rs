//! The conditions of `find` and `count`, as people write them.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use crate::common::esker;

const RECORDS: &str = r#"{"id":1,"user":"ann","ms":12,"kind":"amenity=restaurant","tags":["new","mobile"],"title":"two words"}
{"id":2,"user":"bob","ms":3,"kind":"shop","tags":[],"title":null,"extra":"5"}
{"id":3,"user":"Ann Lee","ms":7,"tags":["old"],"extra":5}
{"id":4,"user":"cy","ms":9,"extra":true}
"#;

#[test]
pub(crate) fn find_takes_conditions_with_and_or_not_and_brackets() {
    for index in ["user:lazy:string", "ms:composite", "user:embedded"] {
        let room = tempfile::tempdir().unwrap();
        let store = room.path().join("store").display().to_string();
        let file = room.path().join("rows.ndjson");
        std::fs::write(&file, RECORDS).unwrap();
        let file = file.display().to_string();
        esker(&["load", &store, "d", &file, "--key", "id", "--index", index]).expect(0);
        let find = |conditions: &[&str]| {
            let run = esker(&[&["find", &store, "d", "--order", "key"], conditions].concat());
            assert!(run.code <= 1, "{conditions:?}: {}", run.stderr);
            let ids = run
                .rows()
                .into_iter()
                .map(|row| row["id"].as_i64().unwrap());
            let ids = ids.collect::<Vec<_>>();
            let wheres: Vec<&str> = conditions.iter().flat_map(|c| ["--where", *c]).collect();
            let count = esker(&[&["count", &store, "d"], &wheres[..]].concat()).expect(0);
            assert_eq!(count.stdout.trim(), ids.len().to_string(), "{conditions:?}");
            ids
        };
        for (conditions, ids) in [
            (&["ms>10 or ms<5"][..], &[1, 2][..]),
            (&["ms > 10 OR ms< 5"], &[1, 2]),
            (&["ms>5", "ms<10"], &[3, 4]),
            (&["ms>5 and ms<10 and not user=cy"], &[3]),
            (&["not (user = ann or user = bob)"], &[3, 4]),
            (&["user in (ann, bob,\"Ann Lee\")"], &[1, 2, 3]),
            (&["user not in (ann)"], &[2, 3, 4]),
            (&["user=\"Ann Lee\""], &[3]),
            (&["user='Ann Lee'"], &[3]),
            (&["user^=An or user ^= b"], &[2, 3]),
            (&["kind=amenity=restaurant"], &[1]),
            (&["tags contains new"], &[1]),
            (&["tags=new", "tags=mobile"], &[1]),
            (&["not tags contains new"], &[2, 3, 4]),
            // Without a value, comparisons are false; so is `!=`.
            (&["kind!=shop"], &[1]),
            (&["not kind=shop"], &[1, 3, 4]),
            (&["title is null"], &[2, 3, 4]),
            (&["title exists"], &[1]),
            (&["title is not null"], &[1]),
            (&["tags is null"], &[2, 4]),
            (&["tags!=new"], &[1, 3]),
            // An unquoted value takes the type of the value that it is compared with.
            (&["extra=5"], &[2, 3]),
            (&["extra=\"5\""], &[2]),
            (&["extra=true"], &[4]),
            (&["(ms=3 or (ms=7))and(user exists)"], &[2, 3]),
            (&["ms in (3, 7) and user in (bob)"], &[2]),
        ] {
            assert_eq!(find(conditions), ids, "{index}: {conditions:?}");
        }
        for (condition, column, what) in [
            ("user=Ann Lee", 10, "user=\"Ann Lee\""),
            ("user = Ann Lee and ms>1", 12, "user = \"Ann Lee\""),
            ("ms>10 or", 9, "the path of a field"),
            ("(ms>10", 7, "`)`"),
            ("ms>", 4, "a value"),
            ("ms", 3, "is null"),
        ] {
            let run = esker(&["find", &store, "d", condition]).expect(2);
            assert_eq!(run.stdout, "");
            let column = format!("column {column}");
            assert!(run.stderr.contains(&column), "{condition}: {}", run.stderr);
            assert!(run.stderr.contains(what), "{condition}: {}", run.stderr);
        }
        if index.starts_with("ms") {
            let run = esker(&["find", &store, "d", "ms=1 or ms=many"]).expect(2);
            assert!(run.stderr.contains("not of type int"), "{}", run.stderr);
        }
    }
}

#[test]
fn a_scan_names_the_fields_that_have_no_index() {
    let room = tempfile::tempdir().unwrap();
    let store = room.path().join("store").display().to_string();
    let file = room.path().join("rows.ndjson");
    std::fs::write(&file, RECORDS).unwrap();
    let file = file.display().to_string();
    esker(&[
        "load",
        &store,
        "d",
        &file,
        "--key",
        "id",
        "--index",
        "user:lazy:string",
    ])
    .expect(0);
    for (condition, note) in [
        (
            "user=ann or ms>5 or ms<2",
            "no index on `ms`: answered by a scan",
        ),
        ("kind=shop", "no index on `kind`: answered by a scan"),
        (
            "not user=ann",
            "no index answers this condition: answered by a scan",
        ),
    ] {
        let run = esker(&["find", &store, "d", condition]).expect(0);
        let said = format!("note: {note}\nnote: the scan read 4 records\n");
        assert_eq!(run.stderr, said, "{condition}");
    }
    let run = esker(&["find", &store, "d", "user=ann and ms>5"]).expect(0);
    assert_eq!(run.stderr, "");
}
