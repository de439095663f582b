//! Limits of every kind of index: ranges, types, lengths, refused batches. The simulation (`sim/`)
//! compares the answers of all kinds with a model.

use std::sync::Arc;

use crate::common::{TextQuery, check, open, path, rows};
use esker::{DatasetDef, Durability, ErrorKind, IndexKind, KeyType, Type};
use esker_sim::memory::Memory;
use serde_json::json;

#[test]
fn an_upside_down_range_and_a_value_of_the_wrong_type_are_refused() {
    for kind in IndexKind::ALL {
        let db = open(Arc::new(Memory::new())).unwrap();
        let def = DatasetDef::new(path("id"), KeyType::Int)
            .index(path("n"), esker::Index::new(kind).of_type(Type::Int))
            .index(path("s"), esker::Index::new(kind).of_type(Type::String));
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        dataset.put_json(br#"{"id":1,"n":5,"s":"x"}"#).unwrap();
        let kind_of = |query: esker::Query| query.run().err().map(|error| error.kind());
        let bad = Some(ErrorKind::BadInput);
        assert_eq!(kind_of(dataset.query().between(&path("n"), "7", "5")), bad);
        assert_eq!(kind_of(dataset.query().between(&path("s"), "b", "a")), bad);
        assert_eq!(kind_of(dataset.query().equals(&path("n"), "five")), bad);
        let prefix = "n^=5".parse().unwrap();
        assert_eq!(kind_of(dataset.query().filter(prefix)), bad);
        assert_eq!(kind_of(dataset.query().between(&path("n"), "5", "5")), None);
        for wrong in [
            r#"{"id":2,"n":"5"}"#,
            r#"{"id":2,"n":1.5}"#,
            r#"{"id":2,"s":[["x",1]]}"#,
        ] {
            let error = dataset.put_json(wrong.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadInput);
            assert!(error.to_string().contains('2'), "{error}");
        }
        assert_eq!(dataset.query().count().unwrap(), 1);
    }
}

#[test]
fn the_longest_keys_and_values_are_found_and_longer_ones_refused() {
    for kind in IndexKind::ALL {
        let db = open(Arc::new(Memory::new())).unwrap();
        let def = DatasetDef::new(path("id"), KeyType::String)
            .index(path("s"), esker::Index::new(kind).of_type(Type::String));
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        let (key, value) = ("k".repeat(64 << 10), "v".repeat((32 << 10) - 2));
        let record = |key: &str, value: &str| json!({ "id": key, "s": value }).to_string();
        dataset.put_json(record(&key, &value).as_bytes()).unwrap();
        dataset
            .put_json(record("short", &value).as_bytes())
            .unwrap();
        dataset.put_json(record(&key, &value).as_bytes()).unwrap();
        for (key, value) in [
            (format!("{key}k"), "v".into()),
            ("k".into(), format!("{value}v")),
        ] {
            let error = dataset
                .put_json(record(&key, &value).as_bytes())
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadInput);
        }
        for _ in 0..2 {
            let found = rows(dataset.query().equals(&path("s"), &value));
            let right = [key.as_str(), "short"].map(|key| (key.to_string(), record(key, &value)));
            assert!(found == right, "{kind}: {} rows", found.len());
            assert!(
                dataset
                    .get(dataset.parse_key(&key).unwrap())
                    .unwrap()
                    .is_some()
            );
            check(&db);
            db.compact(None).unwrap();
        }
    }
}

#[test]
fn a_refused_batch_is_as_it_was_and_can_be_committed_later() {
    for kind in IndexKind::ALL {
        let db = open(Arc::new(Memory::new())).unwrap();
        let def = DatasetDef::new(path("id"), KeyType::Int)
            .index(path("n"), esker::Index::new(kind).of_type(Type::Int));
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        dataset.put_json(br#"{"id":1,"n":5}"#).unwrap();
        let mut batch = dataset.batch();
        for json in [r#"{"id":3,"n":5}"#, r#"{"id":2,"n":4}"#] {
            batch.put_json(json.as_bytes()).unwrap();
        }
        batch.insert_json(br#"{"id":1,"n":4}"#).unwrap();
        let n = |value: &str| {
            let found = rows(dataset.query().equals(&path("n"), value));
            found.into_iter().map(|row| row.0).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            let error = batch.durability(Durability::Os).commit().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exists);
            assert_eq!((n("4"), n("5")), (vec![], vec!["1".to_string()]));
            check(&db);
        }
        let one = dataset.parse_key("1").unwrap();
        assert!(dataset.delete(&one).unwrap().is_some());
        assert!(batch.put_json(b"{").is_err());
        batch.put_json(br#"{"id":4,"n":4}"#).unwrap();
        batch.durability(Durability::Os).commit().unwrap();
        assert_eq!(n("4"), ["4", "1", "2"], "{kind}");
        assert_eq!(n("5"), ["3"], "{kind}");
        check(&db);
        assert!(batch.is_empty());
        batch.put_json(br#"{"id":4,"n":9}"#).unwrap();
        batch.durability(Durability::Os).commit().unwrap();
        assert_eq!((n("4").len(), n("9").len()), (2, 1));
        check(&db);
    }
}
