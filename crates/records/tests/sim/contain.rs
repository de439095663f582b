//! The damage of one table affects only that table. Other datasets accept writes and compactions,
//! and the store closes. If the table belongs to derived data (an index, the obsolete set), a
//! rebuild restores everything.

use std::ops::Range;
use std::path::Path as FsPath;

use esker::maintain::RepairOptions;
use esker::{Database, DatasetDef, KeyType};
use esker_sim::memory::Memory;

use crate::ask;
use crate::common::path;
use crate::runner::count;
use crate::world::{Set, State, Store};

/// The tree of the damaged table, if only one: a file may have tables of other trees.
fn owner(db: &Database, file: &FsPath, damaged: &Range<u64>) -> Option<String> {
    let snapshot = db.group().snapshot();
    let trees = snapshot.version().trees.values();
    let mut has = trees.filter(|tree| {
        tree.tables().any(|table| {
            let end = table.offset() + table.meta().size;
            table.path() == file && table.offset() < damaged.end && damaged.start < end
        })
    });
    let owner = has.next().map(|tree| tree.name.clone());
    owner.filter(|_| has.next().is_none())
}

/// Continues in a copy of a store with one damaged table.
pub(crate) fn live_on(
    db: Database,
    image: &Memory,
    (store, state): (&Store, &State),
    (table, damaged): (&FsPath, &Range<u64>),
    rng: &mut fastrand::Rng,
) {
    let Some(owner) = owner(&db, table, damaged) else {
        return;
    };
    let def = DatasetDef::new(path("id"), KeyType::Int);
    let other = db.create_dataset::<esker::Key>("other", def).unwrap();
    for id in 0..3 {
        other
            .put_json(format!("{{\"id\":{id}}}").as_bytes())
            .unwrap();
        db.flush().unwrap();
    }
    if rng.bool() {
        // Reports the tables that cannot be compacted, and compacts the others.
        let _ = db.group().run_compactions();
    }
    let key = other.parse_key("1").unwrap();
    assert!(other.get(&key).unwrap().is_some());
    let (name, role) = owner.split_once('/').unwrap();
    let is_derived = role.starts_with("index/") || role == "superseded";
    let set = store.sets.iter().find(|set| set.name == name);
    // The tree of records by location has the records themselves.
    let is_clustered = |set: &&Set| {
        set.def
            .indexes
            .iter()
            .any(|index| index.kind.is_clustered())
    };
    let set = set.filter(|set| role == "superseded" || !is_clustered(set));
    let mended = set.filter(|set| is_derived && set.unfinished.is_none() && rng.bool());
    if let (Some(set), None) = (set, mended) {
        // Writes that read the damaged table fail; others add runs that cannot be compacted.
        let dataset = db.dataset::<esker::Key>(&set.name).unwrap();
        for key in 0..5 {
            let key = match set.key_type {
                KeyType::Int => key.to_string(),
                KeyType::Fields => format!("{key},\"k\":0"),
                _ => format!("\"{key}\""),
            };
            let _ = dataset.put_json(format!("{{\"id\":{key}}}").as_bytes());
            db.flush().unwrap();
        }
    }
    if let Some(set) = mended {
        count("damage: made again");
        let dataset = db.dataset::<esker::Key>(name).unwrap();
        if role == "superseded" {
            let repaired = dataset.repair(&RepairOptions::default()).run();
            assert!(repaired.unwrap().complete);
        }
        for index in dataset
            .def()
            .indexes
            .iter()
            .filter(|_| role != "superseded")
        {
            if index.kind.is_standalone() {
                let rebuilt = dataset.rebuild_index(&index.path).run();
                assert!(rebuilt.unwrap().complete);
            }
        }
        let records = state.records.get(&set.uid).cloned().unwrap_or_default();
        let now = dataset.snapshot();
        ask::everything(&now, &set.view(), &records.at(db.group().time()), rng).unwrap();
        // A snapshot keeps its damaged table as long as it exists.
        for kept in db.snapshots() {
            db.drop_snapshot(&kept.name).unwrap();
        }
        assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
    }
    drop(other);
    db.close().unwrap();
    let db = store.try_open(Some(image)).unwrap();
    assert_eq!(
        db.dataset::<esker::Key>("other")
            .unwrap()
            .query()
            .count()
            .unwrap(),
        3
    );
    if let Some(set) = mended {
        let dataset = db.dataset::<esker::Key>(name).unwrap();
        let records = state.records.get(&set.uid).cloned().unwrap_or_default();
        let now = dataset.snapshot();
        ask::everything(&now, &set.view(), &records.at(db.group().time()), rng).unwrap();
    }
}
