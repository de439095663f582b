//! A store with an index of a type from another crate opens with that type, and is refused without.

use std::path::Path as FsPath;

use esker::extension::index::IndexTypes;
use esker::schema::Maintenance;
use esker::{Database, DatasetDef, ErrorKind, Index, IndexKind, KeyType, Options, field};

fn with_type() -> Options {
    Options::new().index_types(kind_example::index_types().unwrap())
}

fn by_hash() -> IndexKind {
    kind_example::NAME.parse().unwrap()
}

fn count(db: &Database) -> u64 {
    let dataset = db.dataset::<u64>("d").unwrap();
    dataset.find(field("city").eq("Ulm")).count().unwrap()
}

/// A store with an index by hash, finished or only begun.
fn make(dir: &FsPath, begun: bool) {
    let db = Database::create_or_open(dir, with_type()).unwrap();
    let def = DatasetDef::new("id", KeyType::Int).maintenance(Maintenance::Validation);
    let index = Index::new(if begun { IndexKind::Lazy } else { by_hash() });
    let def = def.index("city", index.string());
    let dataset = db.create_dataset::<u64>("d", def).unwrap();
    for id in 0..10 {
        let record = format!(r#"{{"id": {id}, "city": "{}"}}"#, ["Ulm", "Bonn"][id % 2]);
        dataset.put_json(record).unwrap();
    }
    if begun {
        let change = dataset.switch_index("city", by_hash());
        let change = change.on_progress(|_| std::ops::ControlFlow::Break(()));
        assert!(!change.run().unwrap().complete);
    }
    db.flush().unwrap();
}

#[test]
fn a_store_is_refused_without_the_type() {
    for begun in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        make(dir, begun);
        for open in [Database::open, Database::open_reader] {
            let error = open(dir, Options::default()).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{begun}: {error}");
            assert!(error.to_string().contains("`by-hash`"), "{error}");
        }
        // The refusals changed nothing.
        let db = Database::open(dir, with_type()).unwrap();
        assert_eq!(count(&db), 5);
        let dataset = db.dataset::<u64>("d").unwrap();
        let resumed = dataset.resume_index().run().unwrap();
        assert_eq!(resumed.is_some(), begun);
        assert_eq!(dataset.def().indexes[0].kind.to_string(), "by-hash");
        assert_eq!(count(&db), 5);
        assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
    }
}

#[test]
fn two_stores_of_a_process_have_their_own_types() {
    let folder = tempfile::tempdir().unwrap();
    let with = Database::create_or_open(folder.path().join("with"), with_type()).unwrap();
    let without =
        Database::create_or_open(folder.path().join("without"), Options::default()).unwrap();
    let def = || DatasetDef::new("id", KeyType::Int).index("city", Index::new(by_hash()).string());
    with.create_dataset::<u64>("d", def()).unwrap();
    let error = without
        .create_dataset::<u64>("d", def())
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    assert!(error.to_string().contains("`by-hash`"), "{error}");
    let plain = DatasetDef::new("id", KeyType::Int).index("city", Index::lazy().string());
    let dataset = without.create_dataset::<u64>("d", plain).unwrap();
    let change = dataset.switch_index("city", by_hash()).run();
    assert_eq!(change.map(drop).unwrap_err().kind(), ErrorKind::BadInput);
    let added = dataset
        .add_index("n", Index::new(by_hash()).int())
        .run()
        .map(drop);
    assert_eq!(added.unwrap_err().kind(), ErrorKind::BadInput);
}

#[test]
fn a_name_is_that_of_one_type() {
    let twice = kind_example::index_types()
        .unwrap()
        .with(kind_example::NAME, kind_example::ByHash);
    assert_eq!(twice.map(drop).unwrap_err().kind(), ErrorKind::BadInput);
    for name in ["hash", "By-hash", "space-time"] {
        let refused = IndexTypes::new().with(name, kind_example::ByHash);
        assert!(refused.is_err(), "{name}");
    }
    assert_eq!(by_hash().to_string(), kind_example::NAME);
}
