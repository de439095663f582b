//! Malformed entries and records are reported: a query that skipped them would lack answers.

use std::path::Path as FsPath;
use std::sync::Arc;

use esker_lsm::Batch;
use esker_model::Key;
use esker_model::definition::{DatasetDef, Index};
use esker_model::geometry::{Point, Space};
use esker_model::schema::{KeyType, Value};
use esker_sim::memory::Memory;

use crate::error::{ErrorKind, Result};
use crate::{Database, Dataset, Durability, Options};

fn dataset(field: &str, index: Index) -> (Database, Dataset<Key>) {
    let options = Options::new().fs(Arc::new(Memory::new())).background(false);
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int).index(field, index);
    let dataset = db.create_dataset::<Key>("d", def).unwrap();
    (db, dataset)
}

/// Writes an entry to a tree of the dataset, past its write path.
fn put_entry(dataset: &Dataset<Key>, tree: esker_lsm::TreeId, key: &[u8], value: &[u8]) {
    let mut batch = Batch::default();
    batch.put(tree, key, value).unwrap();
    let group = &dataset.handle.store.group;
    group.write(&mut batch, Durability::Os).unwrap();
}

/// Puts so many other records that a scan would not be the better plan.
fn put_others(dataset: &Dataset<Key>, record: impl Fn(u32) -> String) {
    for id in 2..500 {
        dataset.put_json(record(id)).unwrap();
    }
}

fn keys(dataset: &Dataset<Key>, condition: &str) -> Result<Vec<Key>> {
    let answer = dataset.find(condition.parse().unwrap()).into_iter();
    answer.map(|record| Ok(record?.key().clone())).collect()
}

fn assert_damaged(found: Result<Vec<Key>>, part: &str) {
    let error = found.expect_err("the malformed part was skipped");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn a_malformed_key_of_an_index_is_reported() {
    let (_db, dataset) = dataset("name", Index::composite().string());
    dataset.put_json(r#"{"id":1,"name":"tom"}"#).unwrap();
    put_others(&dataset, |id| format!(r#"{{"id":{id},"name":"ann"}}"#));
    let condition = r#"name >= "tom""#;
    assert_eq!(keys(&dataset, condition).unwrap().len(), 1);
    let tree = dataset.handle.layout().attributes[0].tree.unwrap();
    // A string without its end.
    put_entry(&dataset, tree, b"uma", b"");
    assert_damaged(keys(&dataset, condition), "index of name: malformed key");
}

#[test]
fn a_malformed_key_of_a_tree_of_points_is_reported() {
    let (_db, dataset) = dataset("at", Index::spatial());
    dataset.put_json(r#"{"id":1,"at":[20,10]}"#).unwrap();
    put_others(&dataset, |id| format!(r#"{{"id":{id},"at":[-40,-10]}}"#));
    let condition = "within(at, rect(19,9,21,11))";
    assert_eq!(keys(&dataset, condition).unwrap().len(), 1);
    let tree = dataset.handle.layout().attributes[0].tree.unwrap();
    // A point without the end of its coordinates.
    let point = Point::new(Space::Sphere, 20.0, 10.0).unwrap();
    let mut key = Value::Point(Space::Sphere, point).encoded();
    key.pop();
    put_entry(&dataset, tree, &key, b"");
    assert_damaged(keys(&dataset, condition), "index of at: malformed key");
}

#[test]
fn a_malformed_record_in_a_block_with_summaries_is_reported() {
    for index in [Index::embedded(), Index::fingerprint(), Index::filter()] {
        let (_db, dataset) = dataset("n", index.int());
        dataset.put_json(r#"{"id":1,"n":7}"#).unwrap();
        let data = dataset.handle.layout().data;
        let key = Key::parse(KeyType::Int, "2").unwrap();
        put_entry(&dataset, data, key.as_bytes(), b"\xff\xff");
        dataset.handle.store.group.flush().unwrap();
        assert_damaged(keys(&dataset, "n = 7"), "a stored record is malformed");
    }
}

#[test]
fn a_record_without_its_json_is_reported() {
    let (_db, dataset) = dataset("name", Index::composite().string());
    let key = Key::parse(KeyType::Int, "1").unwrap();
    let mut head = Vec::new();
    esker_model::record::encode(&mut head, 0, std::iter::empty(), b"");
    let data = dataset.handle.layout().data;
    put_entry(&dataset, data, key.as_bytes(), &head);
    let error = dataset.get(key).expect_err("a head passes for a record");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(
        error.to_string().contains("not stored by location"),
        "{error}"
    );
}
