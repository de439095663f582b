//! Range filters (`IndexKind::Filter`): how much they let a query skip, as in Luo & Carey (section
//! 6.4.2). The simulation (`sim/`) checks the answers.

use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{DIR, TextQuery, converge, path, small};
use esker::schema::{Maintenance, Merging};
use esker::{Database, Dataset, DatasetDef, IndexKind, KeyType, Type};
use esker_sim::memory::Memory;
use serde_json::json;

/// Records in the order of their times, with keys in random order; half of the writes are updates,
/// or none.
fn history(maintenance: Maintenance, updates: bool) -> (Database, Dataset) {
    let mut options = small(Arc::new(Memory::new())).table_size(1 << 20);
    // Many components, as in a large dataset.
    options = options.largest_mergeable(64 << 10);
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("at"),
            esker::Index::new(IndexKind::Filter).of_type(Type::Int),
        )
        .maintenance(maintenance)
        .merging(Merging::Correlated);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut ids = Vec::new();
    for at in 0..WRITES {
        let id = if updates && rng.bool() && !ids.is_empty() {
            ids[rng.usize(0..ids.len())]
        } else {
            let id = rng.u32(..);
            ids.push(id);
            id
        };
        let pad: String = (0..200).map(|_| rng.alphanumeric()).collect();
        let record = json!({ "id": id, "at": at, "pad": pad }).to_string();
        dataset.put_json(record.as_bytes()).unwrap();
    }
    converge(&db);
    (db, dataset)
}

const WRITES: i64 = 8000;

/// The data blocks that a count of a range of times reads.
fn blocks(dataset: &Dataset, lo: i64, hi: i64) -> u64 {
    let query = dataset
        .query()
        .between(&path("at"), &lo.to_string(), &hi.to_string());
    let (_, explain) = query.count_explained().unwrap();
    assert_eq!(explain.plan.index.unwrap().kind, "filter");
    explain.cost.data.data_blocks
}

/// For a strategy: the blocks of all data, of old data, and of recent data.
fn shape(maintenance: Maintenance, updates: bool) -> [u64; 3] {
    let (_db, dataset) = history(maintenance, updates);
    let (_, all) = dataset.query().count_explained().unwrap();
    let all = all.cost.data.data_blocks;
    let old = blocks(&dataset, 0, WRITES / 10);
    let recent = blocks(&dataset, WRITES - WRITES / 50, WRITES);
    eprintln!("{maintenance} updates {updates}: all {all}, old {old}, recent {recent}");
    [all, old, recent]
}

#[test]
fn components_are_passed_over_as_the_strategy_lets_them() {
    let [eager, validation, bitmap] = [
        Maintenance::Eager,
        Maintenance::Validation,
        Maintenance::MutableBitmap,
    ]
    .map(|maintenance| [false, true].map(|updates| shape(maintenance, updates)));
    for [_, [all, _, recent]] in [eager, validation, bitmap] {
        assert!(recent * 5 < all, "recent data is in the newest components");
    }
    for [all, old, _] in validation {
        assert!(old * 10 > all * 9, "old data: all that is newer is read");
    }
    let [[all, old, _], [all_updated, old_updated, _]] = eager;
    assert!(old * 5 < all, "nothing was replaced");
    assert!(
        old_updated * 10 > all_updated * 8,
        "values of all times were replaced"
    );
    let [[_, old, recent], [_, old_updated, recent_updated]] = bitmap;
    assert!(old_updated * 10 <= old * 12 && recent_updated * 10 <= recent * 12);
    assert_eq!(old, eager[0][1]);
}
