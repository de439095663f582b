//! `load --ttl --expires`, `ttl`, `expire`, and the lines of `changes` about them.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use crate::common::esker;

#[test]
pub(crate) fn records_expire_by_their_age_and_by_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store").display().to_string();
    let file = dir.path().join("in.ndjson");
    let lines = [
        r#"{"id":1,"until":"2001-01-01T00:00:00Z"}"#,
        r#"{"id":2,"until":1000000000.5}"#,
        r#"{"id":3,"until":null}"#,
        r#"{"id":4}"#,
        r#"{"id":5,"until":"2901-01-01T00:00:00Z"}"#,
        r#"{"id":6,"until":"soon"}"#,
        r#"{"id":7,"until":true}"#,
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let file = file.display().to_string();
    let load = ["load", &store, "d", &file, "--key", "id"];
    esker(&[&load[..], &["--ttl", "7x"]].concat()).expect(2);
    let loaded = esker(&[&load[..], &["--ttl", "7d", "--expires", "until"]].concat()).expect(2);
    assert!(loaded.stderr.contains("2 rejected"), "{}", loaded.stderr);
    let rejected = std::fs::read_to_string(format!("{file}.rejected")).unwrap();
    assert!(
        rejected.matches("until").count() >= 2 && rejected.contains("bool"),
        "{rejected}"
    );
    let count = || esker(&["count", &store, "d"]).expect(0).stdout;
    assert_eq!(count().trim(), "3");
    esker(&["get", &store, "d", "1"]).expect(1);
    esker(&["get", &store, "d", "3"]).expect(0);
    let stat = esker(&["stat", &store, "d", "--json"]).expect(0).stdout;
    assert!(stat.contains("--ttl 1w --expires until"), "{stat}");

    // The maintenance of a server may have removed them before; the changes below count both.
    let expired = esker(&["expire", &store]).expect(0);
    assert!(expired.stderr.contains(" record"), "{}", expired.stderr);
    let none = esker(&["expire", &store, "d"]).expect(0);
    assert!(none.stderr.contains("0 records"), "{}", none.stderr);
    esker(&["expire", &store, "nothing"]).expect(2);
    let changes = esker(&["changes", &store, "d"]).expect(0).stdout;
    let expiries = changes
        .lines()
        .filter(|line| line.contains("\"change\":\"expire\""));
    assert_eq!(expiries.count(), 2, "{changes}");

    let none = esker(&["ttl", &store, "d", "none"]).expect(0);
    assert!(
        none.stderr.contains("is now none") && none.stderr.contains("1w"),
        "{}",
        none.stderr
    );
    esker(&["ttl", &store, "d", "0s"]).expect(2);
    esker(&["ttl", &store, "d", "1ms"]).expect(0);
    esker(&["check", &store]).expect(0);
    assert_eq!(count().trim(), "3");
    // The new time to live applies, so the record has expired before the query.
    esker(&["load", &store, "d", &file]).expect(2);
    let begin = std::time::Instant::now();
    while count().trim() != "0" {
        assert!(begin.elapsed().as_secs() < 60);
    }
    let other = esker(&["load", &store, "d", &file, "--ttl", "1h"]).expect(2);
    assert!(other.stderr.contains("--ttl 1ms"), "{}", other.stderr);
}
