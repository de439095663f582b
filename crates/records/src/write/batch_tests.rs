//! A batch before its commit: the writes of its records.

use std::path::Path as FsPath;
use std::sync::Arc;

use esker_model::Key;
use esker_model::definition::{DatasetDef, Index, Maintenance};
use esker_model::schema::KeyType;

use super::batch::{DatasetWrites, KeyRule};
use crate::api::{Database, Dataset, Options};
use crate::error::ErrorKind;

fn dataset(maintenance: Maintenance) -> (Database, Dataset) {
    let options = Options::new()
        .fs(Arc::new(esker_sim::memory::Memory::new()))
        .background(false);
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index("user", Index::composite().string())
        .index(
            "team",
            Index::new(esker_model::definition::IndexKind::Eager).string(),
        )
        .maintenance(maintenance);
    let dataset = db.create_dataset::<Key>("d", def).unwrap();
    (db, dataset)
}

fn part(maintenance: Maintenance) -> (Database, Dataset, DatasetWrites) {
    let (db, dataset) = dataset(maintenance);
    let part = DatasetWrites::new(dataset.handle.clone());
    (db, dataset, part)
}

fn key(key: u64) -> Key {
    Key::parse(KeyType::Int, &key.to_string()).unwrap()
}

/// The sizes of all that a batch consists of.
#[derive(Debug, PartialEq)]
struct Sizes {
    records: usize,
    bytes: usize,
    deferred: usize,
    touched: usize,
    sequences: u32,
}

fn sizes(part: &DatasetWrites) -> Sizes {
    Sizes {
        records: part.len(),
        bytes: part.bytes(),
        deferred: part.writes.deferred.len(),
        touched: part.touched.len(),
        sequences: part.writes.batch.sequences(),
    }
}

#[test]
fn a_refused_record_leaves_the_batch_unchanged() {
    for maintenance in Maintenance::ALL {
        let (_db, _dataset, mut part) = part(maintenance);
        for (json, kind) in [
            (&br#"{"id": 1, "user": 7}"#[..], ErrorKind::BadInput),
            (br#"{"user": "ann"}"#, ErrorKind::BadInput),
            (br#"{"id": 1, "user": "ann""#, ErrorKind::BadInput),
        ] {
            let before = sizes(&part);
            let error = part.put(json, KeyRule::MustBeNew).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(sizes(&part), before, "{maintenance}");
            part.put(
                br#"{"id": 1, "user": "ann", "team": "red"}"#,
                KeyRule::MayExist,
            )
            .unwrap();
        }
        assert_eq!(part.len(), 3);
    }
}

#[test]
fn a_record_and_its_entries_share_a_number() {
    let (_db, _dataset, mut part) = part(Maintenance::Validation);
    for (at, json) in [
        &br#"{"id": 1, "user": "ann", "team": "red"}"#[..],
        br#"{"id": 2, "user": ["ann", "bob"], "team": []}"#,
        br#"{"id": 3}"#,
    ]
    .into_iter()
    .enumerate()
    {
        part.put(json, KeyRule::MayExist).unwrap();
        assert_eq!(part.writes.batch.sequences(), at as u32 + 1);
    }
    part.delete(&key(1)).unwrap();
    assert_eq!(part.writes.batch.sequences(), 4);
    // Eager lists are computed at the commit.
    assert_eq!(part.writes.deferred.len(), 1);
}

#[test]
fn a_batch_reads_current_records_only_if_it_depends_on_them() {
    for maintenance in Maintenance::ALL {
        let (_db, _dataset, mut part) = part(maintenance);
        let looks = maintenance.looks_at_writes();
        assert!(part.is_empty() && part.depends_on_records() == looks);
        part.put(br#"{"id": 1, "user": "ann"}"#, KeyRule::MayExist)
            .unwrap();
        assert_eq!(part.depends_on_records(), looks, "{maintenance}");
        assert_eq!(part.is_blind(), !looks);
        assert_eq!(part.touched.len(), usize::from(looks));
        part.put(br#"{"id": 2, "user": "ann"}"#, KeyRule::MustBeNew)
            .unwrap();
        assert!(part.depends_on_records(), "after an insert: {maintenance}");
        assert_eq!(part.touched.len(), 1 + usize::from(looks));
        part.clear();
        assert_eq!(part.depends_on_records(), looks);
        part.expect(&key(1), None);
        assert!(part.depends_on_records(), "after an expectation");
    }
}

#[test]
fn index_entries_of_versions_in_memory_are_cancelled_at_once() {
    let (_db, dataset, mut part) = part(Maintenance::Deferred);
    dataset
        .put_json(br#"{"id": 1, "user": "ann", "team": "red"}"#)
        .unwrap();
    let bytes = |part: &mut DatasetWrites, json: &[u8]| {
        part.clear();
        part.put(json, KeyRule::MayExist).unwrap();
        (part.bytes(), part.writes.deferred.len())
    };
    // The records have the same length; only the cancellations differ.
    let new = bytes(&mut part, br#"{"id": 2, "user": "ann", "team": "red"}"#);
    let same = bytes(&mut part, br#"{"id": 1, "user": "ann", "team": "red"}"#);
    let other = bytes(&mut part, br#"{"id": 1, "user": "bob", "team": "red"}"#);
    let both = bytes(&mut part, br#"{"id": 1, "user": "bob", "team": "tan"}"#);
    assert_eq!(new, same, "entries that stay were cancelled");
    assert!(other.0 > same.0 && other.1 == same.1);
    assert!(both.0 == other.0 && both.1 == other.1 + 1);
}

#[test]
fn a_retry_removes_the_additions_of_the_commit() {
    let (_db, _dataset, mut part) = part(Maintenance::Validation);
    part.put(br#"{"id": 1, "user": "ann"}"#, KeyRule::MayExist)
        .unwrap();
    part.note("place", Some(b"17")).unwrap();
    let before = sizes(&part);
    part.save();
    part.add_notes().unwrap();
    assert!(sizes(&part) != before);
    part.restore();
    assert_eq!(sizes(&part), before);
}

#[test]
fn a_note_needs_a_name_and_replaces_the_note_of_that_name() {
    let (_db, dataset, mut part) = part(Maintenance::Validation);
    assert_eq!(part.note("", None).unwrap_err().kind(), ErrorKind::BadInput);
    let long = "n".repeat(DatasetWrites::MAX_NOTE_NAME + 1);
    assert!(part.note(&long, None).is_err() && part.is_empty());
    part.note("place", Some(b"1")).unwrap();
    assert!(!part.is_empty(), "a batch with a note counts as empty");
    part.clear();
    assert!(part.is_empty());
    let mut batch = dataset.batch();
    batch.note("place", Some(b"1")).unwrap();
    batch.note("place", Some(b"2")).unwrap();
    batch.commit().unwrap();
    assert_eq!(dataset.notes().unwrap()["place"], b"2");
}

#[test]
fn a_record_under_another_key_is_refused() {
    let (_db, _dataset, mut part) = part(Maintenance::Validation);
    let (other, json) = (key(1), br#"{"id": 2, "user": "ann"}"#);
    assert_eq!(
        part.put_at(&other, json).unwrap_err().kind(),
        ErrorKind::BadInput
    );
    assert!(part.is_empty());
    part.put_at(&key(2), json).unwrap();
    assert_eq!(part.len(), 1);
}
