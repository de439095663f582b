//! Repairing a damaged index: rebuilding or dropping it although its files cannot be read.

use std::ops::ControlFlow;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use crate::common::{DIR, Doing, INDEXED, PATHS, TextQuery, check, converge, keys, path, small};

use esker::fs::Fs;
use esker::maintain::RepairOptions;
use esker::schema::Maintenance;
use esker::{Database, Dataset, DatasetDef, ErrorKind, IndexKind, KeyType, Type};
use esker_sim::memory::Memory;

/// The damage of a file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Flipped,
    Cut,
    Removed,
}

const DAMAGES: [Damage; 3] = [Damage::Flipped, Damage::Cut, Damage::Removed];

impl Damage {
    fn happens_to(self, fs: &Memory, file: &FsPath) {
        let mut bytes = fs.read(file).unwrap();
        match self {
            Damage::Flipped => {
                bytes.iter_mut().step_by(50).for_each(|byte| *byte ^= 0x40);
                fs.write(file, &bytes);
            }
            Damage::Cut => {
                bytes.truncate(bytes.len() / 2);
                fs.write(file, &bytes);
            }
            Damage::Removed => fs.remove(file).unwrap(),
        }
    }
}

const RECORDS: u64 = 300;

fn store() -> Memory {
    store_under(Maintenance::default())
}

fn store_under(maintenance: Maintenance) -> Memory {
    let fs = Memory::new();
    let db = open(Arc::new(fs.clone())).unwrap();
    let def = PATHS.iter().zip(INDEXED).fold(
        DatasetDef::new(path("id"), KeyType::Int),
        |def, (at, kind)| def.index(path(at), esker::Index::new(kind).of_type(Type::Int)),
    );
    let dataset = db
        .create_dataset::<esker::Key>("d", def.maintenance(maintenance))
        .unwrap();
    for round in 0..3 {
        for id in (0..RECORDS).filter(|id| id % (round + 1) == 0) {
            put(&dataset, id, id % 5 + round);
        }
        converge(&db);
    }
    drop(dataset);
    db.close().unwrap();
    fs
}

/// A store with one table per file, because only some tables are to be damaged.
fn open(fs: Arc<dyn Fs>) -> esker::Result<Database> {
    let options = small(fs).engine(|engine| engine.share_from = usize::MAX);
    Database::create_or_open(FsPath::new(DIR), options)
}

fn put(dataset: &Dataset, id: u64, value: u64) {
    let fields: String = PATHS
        .iter()
        .map(|at| format!("\"{at}\":{value},"))
        .collect();
    let body = format!("{{{fields}\"id\":{id},\"pad\":\"{}\"}}", "p".repeat(50));
    dataset.put_json(body.as_bytes()).unwrap();
}

/// The files of the index of `at`.
fn files(db: &Database, at: &str) -> Vec<PathBuf> {
    let place = PATHS.iter().position(|path| *path == at).unwrap();
    files_of(db, &format!("d/index/{place}"))
}

fn files_of(db: &Database, tree: &str) -> Vec<PathBuf> {
    let snapshot = db.group().snapshot();
    let tree = snapshot.version().tree_named(tree);
    let runs = &tree.unwrap().runs;
    let tables = runs.iter().flat_map(|run| run.tables.iter());
    tables.map(|table| table.path()).collect()
}

/// The answers of every index agree with a scan.
fn exact(dataset: &Dataset) {
    let mut value_of = std::collections::BTreeMap::new();
    for record in dataset.scan(..) {
        let record = record.unwrap();
        let json: serde_json::Value = serde_json::from_slice(record.json()).unwrap();
        value_of.insert(record.key().to_string(), json["lazy"].as_u64().unwrap());
    }
    for at in PATHS {
        for value in 0..8 {
            let mut right: Vec<&String> = value_of
                .iter()
                .filter(|(_, of)| **of == value)
                .map(|(key, _)| key)
                .collect();
            right.sort();
            let query = dataset.query().equals(&path(at), &value.to_string());
            let mut found = keys(query);
            found.sort();
            assert!(found.iter().eq(right), "{at} = {value}");
        }
    }
}

fn damaged(kind: IndexKind, damage: Damage) -> (Memory, Database, Dataset) {
    let fs = store();
    let db = open(Arc::new(fs.clone())).unwrap();
    let files = files(&db, &kind.to_string());
    assert!(!files.is_empty());
    drop(db);
    files.iter().for_each(|file| damage.happens_to(&fs, file));
    let db = open(Arc::new(fs.clone())).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let query = dataset.query().equals(&path(&kind.to_string()), "1");
    let error = query.run().and_then(Iterator::collect::<Result<Vec<_>, _>>);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Damaged);
    (fs, db, dataset)
}

#[test]
fn an_index_whose_files_cannot_be_read_is_built_again_from_the_records() {
    for kind in INDEXED.into_iter().filter(|kind| kind.is_standalone()) {
        for damage in DAMAGES {
            let _doing = Doing(format!("{kind}, {damage:?}"));
            let (fs, db, dataset) = damaged(kind, damage);
            // A write to an eager index reads the list that it extends.
            if kind != IndexKind::Eager {
                put(&dataset, 7, 1);
            }
            let change = dataset.rebuild_index(path(&kind.to_string())).run();
            let change = change.unwrap();
            assert!(change.complete);
            assert_eq!((change.from, change.to), (Some(kind), kind));
            exact(&dataset);
            put(&dataset, 8, 2);
            exact(&dataset);
            check(&db);
            db.compact(None).unwrap();
            drop(dataset);
            db.close().unwrap();
            let db = open(Arc::new(fs)).unwrap();
            exact(&db.dataset::<esker::Key>("d").unwrap());
            check(&db);
        }
    }
}

#[test]
fn an_index_whose_files_cannot_be_read_is_dropped() {
    for kind in INDEXED.into_iter().filter(|kind| kind.is_standalone()) {
        for damage in DAMAGES {
            let _doing = Doing(format!("{kind}, {damage:?}"));
            let (_fs, db, dataset) = damaged(kind, damage);
            let at = path(&kind.to_string());
            dataset.drop_index(&at).unwrap();
            exact(&dataset);
            check(&db);
            dataset.add_index(&at, kind).run().unwrap();
            exact(&dataset);
            check(&db);
        }
    }
}

/// The data tables contain these indexes; rewriting the tables rebuilds their summaries.
#[test]
fn every_kind_can_be_built_again_and_stays_exact() {
    for maintenance in Maintenance::ALL {
        built_again_under(maintenance);
    }
}

fn built_again_under(maintenance: Maintenance) {
    let fs = store_under(maintenance);
    let db = open(Arc::new(fs.clone())).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    for (at, kind) in PATHS.iter().zip(INDEXED) {
        let _doing = Doing(format!("{maintenance}, {kind}"));
        let mut writes = 0;
        let mut amid = |_| {
            put(&dataset, writes * 3, 4);
            writes += 1;
            ControlFlow::Continue(())
        };
        assert!(
            dataset
                .rebuild_index(path(at))
                .on_progress(&mut amid)
                .run()
                .unwrap()
                .complete
        );
        assert!(writes > 0);
        exact(&dataset);
        check(&db);
    }
    assert_eq!(dataset.unfinished_index(), None);
}

/// A filter under eager maintenance needs the earlier values of records; they are kept whatever
/// happens to a rebuild.
#[test]
fn a_filter_is_built_again_or_not_under_eager_maintenance() {
    let fs = store_under(Maintenance::Eager);
    let db = open(Arc::new(fs.clone())).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let mut stop = |_| ControlFlow::Break(());
    for round in 0..3 {
        let begun = dataset.rebuild_index(path("filter")).on_progress(&mut stop);
        assert!(!begun.run().unwrap().complete);
        for id in 0..RECORDS / 2 {
            put(&dataset, id * 2, 5 + round);
        }
        exact(&dataset);
        match round {
            0 => drop(dataset.drop_index(path("filter")).unwrap()),
            _ => assert!(
                dataset
                    .rebuild_index(path("filter"))
                    .run()
                    .unwrap()
                    .complete
            ),
        }
        exact(&dataset);
        db.flush().unwrap();
        converge(&db);
        for id in 0..RECORDS / 3 {
            put(&dataset, id * 3, 9 + round);
        }
        exact(&dataset);
        check(&db);
    }
}

#[test]
fn a_rebuild_that_was_broken_off_goes_on_or_is_taken_back() {
    let fs = store();
    let db = open(Arc::new(fs.clone())).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let mut stop = |_| ControlFlow::Break(());
    assert!(
        !dataset
            .rebuild_index(path("lazy"))
            .on_progress(&mut stop)
            .run()
            .unwrap()
            .complete
    );
    exact(&dataset);
    let error = dataset.rebuild_index(path("recent")).run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(dataset.rebuild_index(path("lazy")).run().unwrap().complete);
    exact(&dataset);
    assert!(
        !dataset
            .rebuild_index(path("lazy"))
            .on_progress(&mut stop)
            .run()
            .unwrap()
            .complete
    );
    let change = dataset.drop_index(path("lazy")).unwrap();
    assert_eq!(change.to, IndexKind::Lazy);
    exact(&dataset);
    check(&db);
    let unknown = dataset.rebuild_index(path("none")).run().unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::BadInput);
    dataset.drop_index(path("lazy")).unwrap();
    let none = dataset.rebuild_index(path("lazy")).run().unwrap_err();
    assert_eq!(none.kind(), ErrorKind::BadInput);
    let key = dataset.parse_key("1").unwrap();
    dataset.delete(&key).unwrap();
    assert_eq!(FsPath::new(DIR), db.group().dir());
}

/// The obsolete set is read completely at the opening. If it cannot be read, everything else works,
/// and a repair rebuilds it.
#[test]
fn an_obsolete_set_that_cannot_be_read_costs_no_answer_and_is_made_again() {
    for maintenance in Maintenance::ALL {
        for damage in DAMAGES {
            let _doing = Doing(format!("{maintenance}, {damage:?}"));
            let fs = store_under(maintenance);
            let db = open(Arc::new(fs.clone())).unwrap();
            let dataset = db.dataset::<esker::Key>("d").unwrap();
            // Puts numbers into the set under every strategy.
            let repaired = dataset.repair(&RepairOptions::default()).run().unwrap();
            assert!(repaired.complete);
            drop(dataset);
            db.close().unwrap();
            let db = open(Arc::new(fs.clone())).unwrap();
            let files = files_of(&db, "d/superseded");
            assert!(!files.is_empty());
            drop(db);
            files.iter().for_each(|file| damage.happens_to(&fs, file));
            let db = open(Arc::new(fs.clone())).unwrap();
            let dataset = db.dataset::<esker::Key>("d").unwrap();
            exact(&dataset);
            let named = |text: &String| files.iter().any(|f| text.contains(f.to_str().unwrap()));
            let errors = db.check().unwrap().errors;
            assert!(!errors.is_empty() && errors.iter().all(named), "{errors:?}");
            let other = DatasetDef::new(path("id"), KeyType::Int);
            let other = db.create_dataset::<esker::Key>("other", other).unwrap();
            other.put_json(b"{\"id\":1}").unwrap();
            put(&dataset, 7, 1);
            put(&dataset, 8, 3);
            exact(&dataset);
            db.flush().unwrap();
            exact(&dataset);
            let repaired = dataset.repair(&RepairOptions::default()).run().unwrap();
            assert!(repaired.complete);
            exact(&dataset);
            check(&db);
            put(&dataset, 9, 4);
            db.compact(None).unwrap();
            exact(&dataset);
            check(&db);
            drop((dataset, other));
            db.close().unwrap();
            let db = open(Arc::new(fs)).unwrap();
            exact(&db.dataset::<esker::Key>("d").unwrap());
            check(&db);
        }
    }
}

#[test]
fn merges_that_fail_show_in_the_numbers_of_the_store_and_of_their_dataset_until_they_are_mended() {
    let (_fs, db, dataset) = damaged(IndexKind::Lazy, Damage::Flipped);
    let other = db
        .create_dataset::<esker::Key>("other", DatasetDef::new(path("id"), KeyType::Int))
        .unwrap();
    assert!(db.stats().failures.is_empty());
    for round in 0..12 {
        (0..20).for_each(|id| put(&dataset, id, round % 5));
        db.flush().unwrap();
    }
    // All other trees are compacted.
    db.group().run_compactions().unwrap_err();
    let place = PATHS.iter().position(|path| *path == "lazy").unwrap();
    for failures in [db.stats().failures, dataset.stats().failures] {
        let [failure] = &failures[..] else {
            panic!("one tree fails: {failures:?}");
        };
        assert_eq!(failure.job, "merge");
        assert_eq!(failure.tree, Some(format!("d/index/{place}")));
        assert!(failure.error.contains(".tbl"), "{}", failure.error);
        assert!(failure.times > 0, "{failure:?}");
    }
    assert!(other.stats().failures.is_empty());
    let rebuilt = dataset.rebuild_index(path("lazy")).run().unwrap();
    assert!(rebuilt.complete);
    converge(&db);
    assert!(db.stats().failures.is_empty());
    exact(&dataset);
}
