//! A store with an index of a kind from another crate opens in a process that registered the kind,
//! and is refused in others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path as FsPath;
use std::process::Command;

use esker::schema::Maintenance;
use esker::{Database, DatasetDef, ErrorKind, Index, IndexKind, KeyType, Options, field};

/// The folder of the stores, for the process that registers nothing.
const STORES: &str = "ESKER_TEST_STORES";

fn count(db: &Database) -> u64 {
    let dataset = db.dataset::<u64>("d").unwrap();
    dataset.find(field("city").eq("Ulm")).count().unwrap()
}

/// Registrations belong to a process, so the refusal is tested in another one.
#[test]
fn a_store_is_refused_where_the_kind_is_not_registered() {
    let dir = tempfile::tempdir().unwrap();
    let by_hash = kind_example::by_hash().unwrap();
    for (name, begun) in [("whole", false), ("begun", true)] {
        let db = Database::create_or_open(dir.path().join(name), Options::default()).unwrap();
        let def = DatasetDef::new("id", KeyType::Int).maintenance(Maintenance::Validation);
        let index = Index::new(if begun { IndexKind::Lazy } else { by_hash });
        let dataset = db
            .create_dataset::<u64>("d", def.index("city", index.string()))
            .unwrap();
        for id in 0..10 {
            let record = format!(r#"{{"id": {id}, "city": "{}"}}"#, ["Ulm", "Bonn"][id % 2]);
            dataset.put_json(record).unwrap();
        }
        if begun {
            let change = dataset.switch_index("city", by_hash);
            let change = change.on_progress(|_| std::ops::ControlFlow::Break(()));
            assert!(!change.run().unwrap().complete);
        }
        db.flush().unwrap();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_process_that_registers_nothing",
            "--nocapture",
        ])
        .env(STORES, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn the_process_that_registers_nothing() {
    let Ok(stores) = std::env::var(STORES) else {
        return;
    };
    let error = "by-hash".parse::<IndexKind>().unwrap_err().to_string();
    assert!(error.contains("not registered"), "{error}");
    for name in ["whole", "begun"] {
        let dir = FsPath::new(&stores).join(name);
        for open in [Database::open, Database::open_reader] {
            let error = open(&dir, Options::default()).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
            assert!(error.to_string().contains("`by-hash`"), "{error}");
        }
    }
    // The refusals changed nothing.
    kind_example::by_hash().unwrap();
    for name in ["whole", "begun"] {
        let db = Database::open(FsPath::new(&stores).join(name), Options::default()).unwrap();
        assert_eq!(count(&db), 5);
        let dataset = db.dataset::<u64>("d").unwrap();
        let resumed = dataset.resume_index().run().unwrap();
        assert_eq!(resumed.is_some(), name == "begun");
        assert_eq!(dataset.def().indexes[0].kind.to_string(), "by-hash");
        assert_eq!(count(&db), 5);
        assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
    }
}

#[test]
fn a_name_is_that_of_one_kind() {
    kind_example::by_hash().unwrap();
    let parsed: IndexKind = "by-hash".parse().unwrap();
    assert_eq!(parsed, kind_example::by_hash().unwrap());
    assert_eq!(parsed.to_string(), kind_example::NAME);
}
