//! Datasets are renamed while they are in use.

use std::sync::Arc;

use crate::common::{DIR, small};
use esker::schema::Maintenance;
use esker::{Database, Dataset, DatasetDef, ErrorKind, Expr, Index, IndexKind, KeyType, Type};
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

fn open(memory: &Memory) -> Database {
    Database::create_or_open(DIR, small(Arc::new(memory.clone()))).unwrap()
}

fn def() -> DatasetDef {
    let lazy = Index::new(IndexKind::Lazy).of_type(Type::String);
    let embedded = Index::new(IndexKind::Embedded).of_type(Type::Int);
    DatasetDef::new("id", KeyType::Int)
        .index("user", lazy)
        .index("at", embedded)
        .maintenance(Maintenance::Validation)
        .keep_old_records()
}

fn put(dataset: &Dataset<u64>, ids: std::ops::Range<u64>, user: &str) {
    for id in ids {
        let record = format!(r#"{{"id":{id},"user":"{user}","at":{id}}}"#);
        dataset.put_json(record).unwrap();
    }
}

fn count(dataset: &Dataset<u64>, condition: &str) -> u64 {
    let condition: Expr = condition.parse().unwrap();
    dataset.find(condition).count().unwrap()
}

#[test]
fn handles_snapshots_and_feeds_go_on_under_the_new_name() {
    let memory = Memory::new();
    let db = open(&memory);
    let old = db.create_dataset::<u64>("old", def()).unwrap();
    put(&old, 0..50, "ann");
    db.flush().unwrap();
    put(&old, 40..60, "bob");
    let snapshot = old.snapshot();
    let mut changes = old.changes(snapshot.seq()).unwrap();
    let mut prepared = old.batch();
    prepared
        .put_json(r#"{"id":60,"user":"cid","at":60}"#)
        .unwrap();
    let reader = Database::open_reader(DIR, small(Arc::new(memory.clone()))).unwrap();
    let read = reader.dataset::<u64>("old").unwrap();
    db.keep_snapshot("before").unwrap();

    db.rename_dataset("old", "new").unwrap();

    assert_eq!(db.dataset_names(), ["new"]);
    assert_eq!((old.name(), snapshot.name()), ("new".into(), "new".into()));
    let gone = db.dataset::<u64>("old").map(drop).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::UnknownDataset);
    // The error suggests a name if one is similar.
    assert_eq!(gone.to_string(), "there is no dataset `old`");
    let near = db.dataset::<u64>("news").map(drop).unwrap_err();
    let said = "there is no dataset `news`: did you mean `new`?";
    assert_eq!(near.to_string(), said);
    // Old and new records, through a handle from before and a new one.
    prepared.commit().unwrap();
    put(&old, 61..70, "ann");
    let new = db.dataset::<u64>("new").unwrap();
    put(&new, 70..80, "ann");
    for handle in [&old, &new] {
        assert_eq!(count(handle, "user = ann"), 40 + 9 + 10);
        assert_eq!(count(handle, "user = bob"), 20);
        assert_eq!(count(handle, "at >= 60"), 20);
        assert_eq!(handle.get(60).unwrap().unwrap().seq(), 71);
    }
    // The earlier snapshot, and the feed, which continues.
    let bob: Expr = "user = bob".parse().unwrap();
    assert_eq!(snapshot.find(bob).count().unwrap(), 20);
    assert_eq!(snapshot.query().count().unwrap(), 60);
    let mut keys = Vec::new();
    while let Some(change) = changes.next().unwrap() {
        keys.push(*change.key());
    }
    assert_eq!(keys, (60..80).collect::<Vec<_>>());
    // A kept snapshot has the old name.
    let before = db.kept_snapshot("before").unwrap();
    assert_eq!(before.dataset_names(), ["old"]);
    assert_eq!(
        before
            .dataset::<u64>("old")
            .unwrap()
            .query()
            .count()
            .unwrap(),
        60
    );
    // A reader beside this process sees the old name until it refreshes; its handle still works.
    assert_eq!(
        (read.name(), read.query().count().unwrap()),
        ("old".into(), 60)
    );
    reader.refresh().unwrap();
    assert_eq!(
        (read.name(), read.query().count().unwrap()),
        ("new".into(), 80)
    );
    assert_eq!(reader.dataset_names(), ["new"]);

    // Indexes and the strategy can be changed through either handle.
    old.switch_index("user", IndexKind::Composite)
        .run()
        .unwrap();
    assert_eq!(count(&new, "user = bob"), 20);
    // The snapshot's trees have the old name.
    let bob: Expr = "user = bob".parse().unwrap();
    assert_eq!(snapshot.find(bob).count().unwrap(), 20);
    db.compact(Some("new")).unwrap();
    assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
    drop((old, new, snapshot, changes, before, read, reader));
    db.close().unwrap();

    let db = open(&memory);
    assert_eq!(db.dataset_names(), ["new"]);
    let new = db.dataset::<u64>("new").unwrap();
    assert_eq!(count(&new, "user = bob"), 20);
    assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
}

#[test]
fn names_that_are_taken_change_nothing() {
    let memory = Memory::new();
    let db = open(&memory);
    let a = db.create_dataset::<u64>("a", def()).unwrap();
    let b = db.create_dataset::<u64>("b", def()).unwrap();
    put(&a, 0..3, "ann");
    let kind = |name: &str, to: &str| db.rename_dataset(name, to).unwrap_err().kind();
    assert_eq!(kind("a", "b"), ErrorKind::Exists);
    assert_eq!(kind("a", "a"), ErrorKind::Exists);
    assert_eq!(kind("c", "c"), ErrorKind::UnknownDataset);
    assert_eq!(kind("c", "d"), ErrorKind::UnknownDataset);
    assert_eq!(kind("a", "a/b"), ErrorKind::BadInput);
    assert_eq!(kind("a", ""), ErrorKind::BadInput);
    // Two datasets swap their names through a third.
    db.rename_dataset("a", "c").unwrap();
    db.rename_dataset("b", "a").unwrap();
    db.rename_dataset("c", "b").unwrap();
    assert_eq!((a.name(), b.name()), ("b".into(), "a".into()));
    assert_eq!(db.dataset::<u64>("b").unwrap().query().count().unwrap(), 3);
    assert_eq!(db.dataset::<u64>("a").unwrap().query().count().unwrap(), 0);
    // A dataset created and dropped under the former name is a different one.
    db.rename_dataset("b", "z").unwrap();
    let c = db.create_dataset::<u64>("b", def()).unwrap();
    put(&c, 0..9, "bob");
    db.drop_dataset("b").unwrap();
    assert_eq!((a.name(), a.query().count().unwrap()), ("z".into(), 3));
    let refused = Database::open_reader(DIR, small(Arc::new(memory.clone()))).unwrap();
    let kind = refused.rename_dataset("z", "y").unwrap_err().kind();
    assert_eq!(kind, ErrorKind::ReadOnly);
}

#[test]
fn a_consumer_belongs_to_the_dataset_and_not_to_its_name() {
    let memory = Memory::new();
    let db = open(&memory);
    let a = db.create_dataset::<u64>("a", def()).unwrap();
    let mut mailer = a.consume("mailer", None, u64::MAX).unwrap();
    put(&a, 0..5, "ann");
    assert_eq!(*mailer.next().unwrap().unwrap().key(), 0);
    mailer.done().unwrap();
    db.rename_dataset("a", "b").unwrap();
    let other = db.create_dataset::<u64>("a", def()).unwrap();
    put(&other, 90..95, "bob");
    // An active consumer continues, and stores its place.
    assert_eq!(*mailer.next().unwrap().unwrap().key(), 1);
    mailer.done().unwrap();
    drop(mailer);
    let listed = db.change_consumers().unwrap();
    let of: Vec<_> = listed.iter().map(|one| one.dataset.as_deref()).collect();
    assert_eq!(of, [Some("b")]);
    assert!(other.change_consumer("mailer").unwrap().is_none());
    // Dropping the dataset that now has the old name does not end the consumer.
    db.drop_dataset("a").unwrap();
    drop((a, other));
    db.close().unwrap();
    let db = open(&memory);
    let b = db.dataset::<u64>("b").unwrap();
    let mut mailer = b.consume("mailer", None, u64::MAX).unwrap();
    assert!(!mailer.is_new());
    let mut keys = Vec::new();
    while let Some(change) = mailer.next().unwrap() {
        keys.push(*change.key());
    }
    assert_eq!(keys, [2, 3, 4]);
}

/// Whenever the power fails, the dataset has the old or the new name, with all its content; after
/// the call has returned, the new one.
#[test]
fn a_power_cut_leaves_one_name_or_the_other() {
    for after in 0.. {
        let memory = Memory::new();
        let faulty = Faulty::new(Arc::new(memory.clone()));
        let db = Database::create_or_open(DIR, small(Arc::new(faulty.clone()))).unwrap();
        let a = db.create_dataset::<u64>("a", def()).unwrap();
        put(&a, 0..30, "ann");
        db.flush().unwrap();
        put(&a, 20..40, "bob");
        db.sync().unwrap();
        faulty.fail_from(after);
        let renamed = db.rename_dataset("a", "b");
        let all = renamed.is_ok();
        let image = memory.power_cut(after, PowerCut::Lost);
        drop((a, db));
        let db = open(&image);
        let names = db.dataset_names();
        assert!(
            names == ["b"] || names == ["a"] && !all,
            "{names:?} after {after} calls"
        );
        let dataset = db.dataset::<u64>(&names[0]).unwrap();
        assert_eq!(count(&dataset, "user = bob"), 20);
        assert_eq!(count(&dataset, "user = ann"), 20);
        assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
        if all {
            assert!(after > 1, "a rename makes calls");
            break;
        }
    }
}

/// Concurrent writers, readers and renames: none fails, and no record is lost.
#[test]
fn renames_while_others_write() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::create_or_open(dir.path(), esker::Options::default()).unwrap();
    let first = db.create_dataset::<u64>("n0", def()).unwrap();
    std::thread::scope(|scope| {
        for part in 0..2 {
            let dataset = &first;
            scope.spawn(move || {
                let mut batch = dataset.batch();
                for id in 0..400 {
                    let id = part * 400 + id;
                    let record = format!(r#"{{"id":{id},"user":"u{part}","at":{id}}}"#);
                    batch.put_json(record).unwrap();
                    batch
                        .durability(esker_lsm::Durability::Os)
                        .commit()
                        .unwrap();
                    assert!(dataset.get(id).unwrap().is_some());
                }
            });
        }
        for number in 0..20 {
            db.rename_dataset(&format!("n{number}"), &format!("n{}", number + 1))
                .unwrap();
        }
    });
    assert_eq!(first.name(), "n20");
    assert_eq!(count(&first, "user = u0"), 400);
    assert_eq!(count(&first, "user = u1"), 400);
    assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
}
