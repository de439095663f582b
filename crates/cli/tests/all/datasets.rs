//! `esker list`, `rename` and `drop`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use crate::common::{esker, esker_fed};

/// A store with two datasets; the name of one has a typing error.
fn store() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store").display().to_string();
    esker(&[
        "create",
        &store,
        "vists",
        "--key",
        "id:int",
        "--index",
        "user:lazy:string",
    ])
    .expect(0);
    esker(&["create", &store, "users", "--key", "name:string"]).expect(0);
    put(
        dir.path(),
        &store,
        "vists",
        "{\"id\":1,\"user\":\"ann\"}\n{\"id\":2,\"user\":\"bob\"}\n",
    );
    (dir, store)
}

fn put(folder: &std::path::Path, store: &str, dataset: &str, lines: &str) {
    let lines = lines.to_string();
    esker_fed(&["put", store, dataset], folder, move |input| {
        input.write_all(lines.as_bytes()).unwrap();
    })
    .expect(0);
}

#[test]
fn datasets_are_listed_with_what_makes_them() {
    let (dir, store) = store();
    let listed = esker(&["list", &store]).expect(0);
    assert_eq!(
        listed.stdout,
        "users\t--key name:string\nvists\t--key id:int --index user:lazy:string\n"
    );
    esker(&["snapshot", &store, "before"]).expect(0);
    esker(&["drop", &store, "users", "vists"]).expect(0);
    let none = esker(&["list", &store]).expect(0);
    assert!(none.stdout.is_empty(), "{}", none.stdout);
    assert!(none.stderr.contains("no dataset"), "{}", none.stderr);
    let before = esker(&["list", &store, "--snapshot", "before"]).expect(0);
    assert_eq!(before.stdout, listed.stdout);
    let unknown = esker(&["list", &store, "--snapshot", "befor"]).expect(2);
    assert!(
        unknown.stderr.contains("did you mean `before`?"),
        "{}",
        unknown.stderr
    );
    let missing = dir.path().join("nothing").display().to_string();
    esker(&["list", &missing]).expect(3);
}

#[test]
fn a_dataset_is_renamed_with_all_that_it_has() {
    let (dir, store) = store();
    let new = esker(&["changes", &store, "vists", "--consumer", "mailer"]).expect(0);
    assert!(new.stderr.contains("is new"), "{}", new.stderr);
    put(dir.path(), &store, "vists", "{\"id\":3,\"user\":\"ann\"}\n");
    esker(&["snapshot", &store, "before"]).expect(0);
    let renamed = esker(&["rename", &store, "vists", "visits"]).expect(0);
    assert!(
        renamed
            .stderr
            .contains("dataset `vists` is now called `visits`"),
        "{}",
        renamed.stderr
    );
    assert!(
        renamed.stderr.contains("under its old name: before"),
        "{}",
        renamed.stderr
    );

    let gone = esker(&["count", &store, "vists"]).expect(2);
    assert!(
        gone.stderr.contains("did you mean `visits`?"),
        "{}",
        gone.stderr
    );
    assert_eq!(esker(&["count", &store, "visits"]).expect(0).stdout, "3\n");
    // The index answers, so there is no note about a scan.
    let found = esker(&["find", &store, "visits", "user=ann"]).expect(0);
    assert_eq!((found.ids(), found.stderr.as_str()), (vec![3, 1], ""));
    // The consumer continues where it was, under the same name.
    let read = esker(&["changes", &store, "visits", "--consumer", "mailer"]).expect(0);
    assert!(!read.stderr.contains("is new"), "{}", read.stderr);
    assert_eq!(read.rows()[0]["key"], 3);
    let stat = esker(&["stat", &store, "visits"]).expect(0);
    assert!(stat.stdout.contains("consumer mailer"), "{}", stat.stdout);
    // An older snapshot has the old name.
    let args = ["count", &store, "vists", "--snapshot", "before"];
    assert_eq!(esker(&args).expect(0).stdout, "3\n");
    esker(&["count", &store, "visits", "--snapshot", "before"]).expect(2);
    esker(&["check", &store]).expect(0);

    // The old name can be used again.
    esker(&["create", &store, "vists", "--key", "id:int"]).expect(0);
    assert_eq!(esker(&["count", &store, "vists"]).expect(0).stdout, "0\n");
    assert_eq!(esker(&["count", &store, "visits"]).expect(0).stdout, "3\n");
    let copy = dir.path().join("copy").display().to_string();
    esker(&["backup", &store, &copy]).expect(0);
    assert_eq!(esker(&["count", &copy, "visits"]).expect(0).stdout, "3\n");
}

#[test]
pub(crate) fn a_name_that_is_taken_or_no_name_is_refused() {
    let (_dir, store) = store();
    for (args, said) in [
        (["vists", "users"], "dataset `users` exists"),
        (["vists", "vists"], "dataset `vists` exists"),
        (["vists", "a/b"], "1 to 64 letters, digits"),
        (["vists", ".."], "an address cannot hold it"),
        (["visits", "other"], "did you mean `vists`?"),
    ] {
        let refused = esker(&["rename", &store, args[0], args[1]]).expect(2);
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
    }
    assert_eq!(esker(&["count", &store, "vists"]).expect(0).stdout, "2\n");
    let refused = esker(&["create", &store, "..", "--key", "id"]).expect(2);
    let said = "dataset name `..`: an address cannot hold it";
    assert!(refused.stderr.contains(said), "{}", refused.stderr);
}

#[test]
pub(crate) fn a_load_goes_on_under_the_new_name() {
    let (dir, store) = store();
    let file = dir.path().join("in.ndjson").display().to_string();
    std::fs::write(&file, "{\"id\":7}\n{\"id\":8}\n").unwrap();
    esker(&["load", &store, "vists", &file]).expect(0);
    esker(&["rename", &store, "vists", "visits"]).expect(0);
    esker(&["load", &store, "visits", &file]).expect(0);
    assert_eq!(esker(&["count", &store, "visits"]).expect(0).stdout, "4\n");
}

#[test]
fn datasets_are_dropped_all_or_none() {
    let (_dir, store) = store();
    let refused = esker(&["drop", &store, "users", "visits"]).expect(2);
    assert!(
        refused.stderr.contains("did you mean `vists`?"),
        "{}",
        refused.stderr
    );
    assert_eq!(esker(&["list", &store]).expect(0).stdout.lines().count(), 2);

    esker(&["changes", &store, "vists", "--consumer", "mailer"]).expect(0);
    esker(&["snapshot", &store, "before"]).expect(0);
    let dropped = esker(&["drop", &store, "vists", "vists"]).expect(0);
    assert_eq!(
        dropped.stderr,
        "dropped dataset `vists` with 1 consumer of its changes\n\
         snapshots that still contain it and use its space: before\n"
    );
    esker(&["count", &store, "vists"]).expect(2);
    let args = ["count", &store, "vists", "--snapshot", "before"];
    assert_eq!(esker(&args).expect(0).stdout, "2\n");
    assert_eq!(esker(&["count", &store, "users"]).expect(0).stdout, "0\n");
    esker(&["check", &store]).expect(0);
    esker(&["drop", &store]).expect(2);
}
