//! `put`: what it leaves out, and how far it says that it came.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::io::Write;
use std::path::Path;

use crate::common::{Run, esker, esker_fed};
use serde_json::json;

fn put(store: &str, lines: &str, more: &[&str]) -> Run {
    let lines = lines.to_string();
    let args = [&["put", store, "d"][..], more].concat();
    let folder = Path::new(store).parent().unwrap();
    esker_fed(&args, folder, move |stdin: &mut dyn Write| {
        stdin.write_all(lines.as_bytes()).unwrap();
    })
}

/// One value that another record has lost up to 999 good lines, which were not named.
#[test]
pub(crate) fn a_value_that_is_not_unique_is_one_bad_line() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("db").display().to_string();
    let unique = ["--key", "id:int", "--index", "v:composite:int:unique"];
    esker(&[&["create", &store, "d"][..], &unique].concat()).expect(0);
    let lines: String = (1..=500)
        .map(|id| match id {
            77 => "{\"id\":77,\"v\":5}\n".to_string(),
            _ => format!("{{\"id\":{id},\"v\":{id}}}\n"),
        })
        .collect();
    let run = put(&store, &lines, &[]).expect(2);
    assert!(run.stderr.contains("line 77: "), "{}", run.stderr);
    assert!(run.stderr.contains("`v` must be unique"), "{}", run.stderr);
    assert!(run.stderr.contains("put 499 records"), "{}", run.stderr);
    assert!(run.stderr.contains("1 line was not put"), "{}", run.stderr);
    assert_eq!(
        esker(&["count", &store, "d"]).expect(0).stdout.trim(),
        "499"
    );
    // More of them than are left out by a try each; and of a line with several records.
    let lines: String = (1001..=1060)
        .map(|id| match id {
            1003 => "{\"id\":1003,\"v\":1003} {\"id\":2003,\"v\":6} {\"id\":3003,\"v\":3003}\n"
                .to_string(),
            _ if id % 2 == 0 => format!("{{\"id\":{id},\"v\":7}}\n"),
            _ => format!("{{\"id\":{id},\"v\":{id}}}\n"),
        })
        .collect();
    let run = put(&store, &lines, &[]).expect(2);
    assert!(run.stderr.contains("put 31 records"), "{}", run.stderr);
    assert!(
        run.stderr.contains("31 lines were not put"),
        "{}",
        run.stderr
    );
    for line in (2..=60).step_by(2).chain([3]) {
        let named = format!("line {line}: ");
        assert_eq!(run.stderr.matches(&named).count(), 1, "{}", run.stderr);
    }
    assert_eq!(
        esker(&["count", &store, "d"]).expect(0).stdout.trim(),
        "530"
    );
    // Patches are applied anew to the stored records.
    let lines = "{\"id\":1,\"n\":1}\n{\"id\":2,\"v\":9}\n{\"id\":1,\"m\":2}\n{\"id\":3,\"n\":3}\n";
    let run = put(&store, lines, &["--merge"]).expect(2);
    assert!(run.stderr.contains("line 2: "), "{}", run.stderr);
    assert!(run.stderr.contains("put 3 records"), "{}", run.stderr);
    let get = |key: &str| esker(&["get", &store, "d", key]).expect(0).rows().remove(0);
    assert_eq!(get("1"), json!({"id": 1, "v": 1, "n": 1, "m": 2}));
    assert_eq!(get("2"), json!({"id": 2, "v": 2}));
    assert_eq!(get("3"), json!({"id": 3, "v": 3, "n": 3}));
}

/// The first record was taken apart if its only member was an array of objects.
#[test]
pub(crate) fn a_record_with_one_member_is_a_record_where_keys_are_generated() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("db").display().to_string();
    esker(&["create", &store, "d", "--key", "auto"]).expect(0);
    let record = "{\"Records\":[{\"a\":1},{\"a\":2}]}\n";
    put(&store, record, &[]).expect(0);
    let file = dir.path().join("in.json");
    std::fs::write(&file, record).unwrap();
    let file = file.display().to_string();
    esker(&["load", &store, "d", &file]).expect(0);
    let load = esker(&["load", &store, "e", &file, "--key", "auto"]).expect(0);
    assert!(load.stderr.contains("--records Records"), "{}", load.stderr);
    for (dataset, count) in [("d", 2), ("e", 1)] {
        let rows = esker(&["find", &store, dataset]).expect(0).rows();
        assert_eq!(rows.len(), count);
        for row in rows {
            assert_eq!(row["Records"], json!([{"a": 1}, {"a": 2}]), "{row}");
        }
    }
    // On request the elements are the records.
    let records = ["--records", "Records"];
    esker(&[&["load", &store, "e", &file][..], &records].concat()).expect(0);
    assert_eq!(esker(&["count", &store, "e"]).expect(0).stdout.trim(), "3");
}
