//! The checks: each derived structure is made inconsistent with its source, through the engine.

use std::sync::Arc;

use crate::common::{open, path};
use esker::schema::Maintenance;
use esker::{Database, Dataset, DatasetDef, IndexKind, KeyType, Type};
use esker_lsm::{Batch, Cursor, Durability, TreeId};
use esker_sim::memory::Memory;

fn store(kind: IndexKind, maintenance: Maintenance) -> (Database, Dataset) {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(path("a"), esker::Index::new(kind).of_type(Type::Int))
        .maintenance(maintenance);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for id in 0..4 {
        put(&dataset, id, id);
    }
    put(&dataset, 1, 8);
    db.flush().unwrap();
    assert_eq!(wrong(&db), Vec::<String>::new());
    (db, dataset)
}

fn put(dataset: &Dataset, id: u64, a: u64) {
    let body = format!("{{\"id\":{id},\"a\":{a}}}");
    dataset.put_json(body.as_bytes()).unwrap();
}

fn wrong(db: &Database) -> Vec<String> {
    db.check().unwrap().errors
}

fn tree(db: &Database, name: &str) -> TreeId {
    db.group().tree(name).unwrap()
}

/// The key of a record, by its position in key order, and its stored form.
fn stored(db: &Database, place: usize) -> (Vec<u8>, Vec<u8>) {
    let snapshot = db.group().snapshot();
    let mut cursor = snapshot.cursor(tree(db, "d/data"), 0);
    cursor.seek_first().unwrap();
    (0..place).for_each(|_| cursor.next().unwrap());
    (cursor.key().to_vec(), cursor.value().to_vec())
}

fn write(db: &Database, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    db.group().write(&mut batch, Durability::Os).unwrap();
}

/// Overwrites a record in violation of the strategy: in the data tree only.
fn overwrite(db: &Database) {
    let (key, value) = stored(db, 0);
    let data = tree(db, "d/data");
    write(db, |batch| batch.put(data, &key, &value).unwrap());
}

fn says(db: &Database, what: &str) {
    let wrong = wrong(db);
    assert!(wrong.iter().any(|text| text.contains(what)), "{wrong:?}");
}

#[test]
fn an_obsolete_version_that_the_set_lacks_is_found_for_every_kind() {
    for kind in IndexKind::ALL {
        for maintenance in [Maintenance::MutableBitmap, Maintenance::Eager] {
            let (db, _dataset) = store(kind, maintenance);
            overwrite(&db);
            says(
                &db,
                "1 versions of records are obsolete, but not in the obsolete set",
            );
        }
    }
}

#[test]
fn a_current_record_in_the_set_is_found_for_every_kind() {
    for kind in IndexKind::ALL {
        for maintenance in Maintenance::ALL {
            let (db, _dataset) = store(kind, maintenance);
            let set = tree(&db, "d/superseded");
            // The record with key 0 is the first write.
            write(&db, |batch| {
                batch.put(set, &esker_lsm::entry::seq_key(1), &[]).unwrap();
            });
            says(&db, "1 records are current, but in the obsolete set");
        }
    }
}

#[test]
fn a_number_that_was_not_given_out_is_found() {
    let (db, _dataset) = store(IndexKind::Lazy, Maintenance::Validation);
    let set = tree(&db, "d/superseded");
    let ahead = db.group().snapshot().seq() + 100;
    write(&db, |batch| {
        batch
            .put(set, &esker_lsm::entry::seq_key(ahead), &[])
            .unwrap();
    });
    db.flush().unwrap();
    says(&db, &format!("an obsolete write has the number {ahead}"));
    let data = tree(&db, "d/data");
    let config = {
        let snapshot = db.group().snapshot();
        let config = snapshot.version().trees.get(&data).unwrap().config.clone();
        String::from_utf8(config.to_vec()).unwrap()
    };
    assert!(config.contains("\"since\":0"), "{config}");
    let config = config.replacen("\"since\":0", "\"since\":99999", 1);
    db.group()
        .configure_tree(data, config.into_bytes())
        .unwrap();
    says(
        &db,
        "the last migration of the strategy has the number 99999",
    );
}

#[test]
fn keys_that_are_missing_where_written_keys_are_kept_are_found() {
    let (db, _dataset) = store(IndexKind::Composite, Maintenance::DeletedKey);
    overwrite(&db);
    says(&db, "1 keys that were written are missing");
    let (db, _dataset) = store(IndexKind::Composite, Maintenance::Validation);
    overwrite(&db);
    says(
        &db,
        "1 keys differ between the primary-key index and the data",
    );
}

#[test]
fn a_replaced_value_that_a_range_filter_was_not_given_is_found() {
    let (db, _dataset) = store(IndexKind::Filter, Maintenance::Eager);
    let data = tree(&db, "d/data");
    let ((key, _), (_, other)) = (stored(&db, 2), stored(&db, 3));
    write(&db, |batch| batch.put(data, &key, &other).unwrap());
    says(&db, "1 values that were replaced are missing");
}

#[test]
fn a_tree_that_no_dataset_has_is_found() {
    let (db, _dataset) = store(IndexKind::Lazy, Maintenance::Deferred);
    let trees = [("d/staging".to_string(), b"staging".to_vec())];
    db.group().create_trees(&trees).unwrap();
    says(&db, "tree d/staging: it belongs to no dataset");
}
