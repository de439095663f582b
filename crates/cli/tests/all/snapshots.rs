//! `esker snapshot`, and `--snapshot` of the commands that read.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

use crate::common::esker;
use esker::{Database, DatasetDef, IndexKind, KeyType, Options, Type};

#[test]
pub(crate) fn snapshots_are_kept_queried_listed_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let db = Database::create_or_open(&store, Options::default()).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index("n", esker::Index::new(IndexKind::Lazy).of_type(Type::Int));
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let put = |dataset: &esker::Dataset, ids: std::ops::Range<u32>, n: u32| {
        for id in ids {
            let body = format!("{{\"id\":{id},\"n\":{n}}}");
            dataset.put_json(body.as_bytes()).unwrap();
        }
    };
    put(&dataset, 0..5, 1);
    drop(dataset);
    db.close().unwrap();
    let s = store.display().to_string();

    assert_eq!(esker(&["snapshot", &s]).expect(0).stdout, "");
    esker(&["snapshot", &s, "first"]).expect(0);
    let again = esker(&["snapshot", &s, "first"]).expect(2);
    assert!(again.stderr.contains("kept already"), "{}", again.stderr);
    let db = Database::open(&store, Options::default()).unwrap();
    put(&db.dataset::<esker::Key>("d").unwrap(), 0..3, 2);
    db.close().unwrap();
    esker(&["compact", &s]).expect(0);

    let now = |args: &[&str]| esker(args).expect(0).ids();
    let then = |args: &[&str]| {
        let args = [args, &["--snapshot", "first"]].concat();
        esker(&args).expect(0).ids()
    };
    for args in [
        &["lookup", &s, "d", "n", "1"][..],
        &["find", &s, "d", "n=1"],
        &["find", &s, "d", "id=4", "n=1"],
        &["range", &s, "d", "n", "0", "1"],
    ] {
        let (now, then) = (now(args), then(args));
        let right = if args.contains(&"id=4") { 1 } else { 5 };
        assert_eq!(then.len(), right, "{args:?}");
        assert!(now.len() <= 2 && now.iter().all(|id| then.contains(id)));
    }
    let get = esker(&["get", &s, "d", "1", "--snapshot", "first"]).expect(0);
    assert_eq!(get.stdout, "{\"id\":1,\"n\":1}\n");
    let versions = esker(&["read-key", &s, "d", "1", "--snapshot", "first"]).expect(0);
    assert!(versions.stdout.contains("\"n\":1"));
    let count = ["count", &s, "d", "n", "2", "2", "--snapshot", "first"];
    assert_eq!(esker(&count).expect(0).stdout, "0\n");
    let keys = ["scan", &s, "d", "--keys-only", "--snapshot", "first"];
    assert_eq!(esker(&keys).expect(0).stdout, "0\n1\n2\n3\n4\n");
    let wrong = esker(&["scan", &s, "d", "--snapshot", "second"]).expect(2);
    assert!(wrong.stderr.contains("existing: first"), "{}", wrong.stderr);

    let listed = esker(&["snapshot", &s]).expect(0).stdout;
    assert!(listed.starts_with("first\twrite 5\t"), "{listed}");
    let copy = dir.path().join("copy").display().to_string();
    esker(&["backup", &s, &copy]).expect(0);
    assert_eq!(esker(&["snapshot", &copy]).expect(0).stdout, listed);
    esker(&["snapshot", &s, "first", "--drop"]).expect(0);
    assert_eq!(esker(&["snapshot", &s]).expect(0).stdout, "");
    esker(&["snapshot", &s, "first", "--drop"]).expect(2);
    esker(&["snapshot", &s, "--drop"]).expect(2);
    esker(&["check", &s]).expect(0);
    esker(&["check", &copy]).expect(0);
}
