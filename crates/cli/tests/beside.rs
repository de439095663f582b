//! Commands that work beside a process that has the store open for writing: here this one.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used
)]

mod common;

use common::esker;
use esker::{Database, DatasetDef, KeyType, Options};

#[test]
fn a_backup_and_a_check_beside_a_writer_are_of_all_that_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let (s, copy) = (store.display().to_string(), dir.path().join("copy"));
    let db = Database::create_or_open(&store, Options::default()).unwrap();
    let data = db
        .create_dataset::<u64>("d", DatasetDef::new("id", KeyType::Int))
        .unwrap();
    for id in 0..20 {
        data.put_json(format!("{{\"id\":{id}}}")).unwrap();
        if id == 9 {
            db.flush().unwrap();
        }
    }
    let checked = esker(&["check", &s]).expect(0);
    assert!(checked.stdout.contains("sound"), "{}", checked.stdout);
    esker(&["backup", &s, &copy.display().to_string()]).expect(0);
    // What the writer does later is not in the copy.
    data.put_json(r#"{"id":20}"#).unwrap();
    let counted = esker(&["count", &copy.display().to_string(), "d"]).expect(0);
    assert_eq!(counted.stdout.trim(), "20");
    esker(&["check", &copy.display().to_string()]).expect(0);
    // A copy is a store of its own.
    let own = Database::open(&copy, Options::default()).unwrap();
    let own = own.dataset::<u64>("d").unwrap();
    own.put_json(r#"{"id":77}"#).unwrap();
    assert_eq!(own.query().count().unwrap(), 21);
    assert_eq!(data.query().count().unwrap(), 21);
    assert!(data.get(77).unwrap().is_none());
}
