//! What one damaged table costs: nothing but itself. Other datasets are written and merged, the store closes, and where the
//! table is of something derived (an index, the obsolete set), that is made again and everything is as it was.

use std::ops::Range;
use std::path::Path as FsPath;

use esker::maintain::RepairOptions;
use esker::{Database, DatasetDef, KeyType};
use esker_sim::memory::Memory;

use crate::ask;
use crate::common::path;
use crate::runner::count;
use crate::world::{Set, State, Store};

/// The tree whose table is damaged, if it is one: others may have tables in the same file.
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

/// Lives on in a copy of a store, one table of which is damaged.
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
        // Says what cannot be merged, and merges the rest.
        let _ = db.group().run_compactions();
    }
    let key = other.parse_key("1").unwrap();
    assert!(other.get(&key).unwrap().is_some());
    let (name, role) = owner.split_once('/').unwrap();
    let is_derived = role.starts_with("index/") || role == "superseded";
    let set = store.sets.iter().find(|set| set.name == name);
    // The tree by place has the records themselves.
    let is_clustered = |set: &&Set| {
        set.def
            .indexes
            .iter()
            .any(|index| index.kind.is_clustered())
    };
    let set = set.filter(|set| role == "superseded" || !is_clustered(set));
    let mended = set.filter(|set| is_derived && set.unfinished.is_none() && rng.bool());
    if let (Some(set), None) = (set, mended) {
        // Writes that have to read what is damaged fail; the others pile up runs that cannot be merged.
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
        // What a snapshot has of it is damaged for as long as that is kept.
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
