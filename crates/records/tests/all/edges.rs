//! Edge cases of numbers, texts and times.

use crate::common;
use std::path::Path as FsPath;
use std::sync::Arc;

use crate::common::{DIR, TextQuery, keys, path, small};
use esker::maintain::{RepairMethod, RepairOptions};
use esker::schema::Maintenance;
use esker::{Database, Dataset, DatasetDef, Durability, ErrorKind, IndexKind, KeyType, Type};
use esker_sim::memory::Memory;

fn store(def: DatasetDef) -> (Database, Dataset) {
    let options = small(Arc::new(Memory::new()));
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    (db, dataset)
}

#[test]
fn pages_as_of_a_write_to_come_go_on_and_stay_at_their_moment() {
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("a"),
            esker::Index::new(IndexKind::Recent).of_type(Type::Int),
        )
        .maintenance(Maintenance::Deferred)
        .versions(3);
    for ts in [1, 1000, u64::MAX]
        .map(Some)
        .into_iter()
        .chain([Some(0), None])
    {
        let (_db, dataset) = store(def.clone());
        for id in 0..7 {
            let body = format!("{{\"id\":{id},\"a\":1}}");
            dataset.put_json(body.as_bytes()).unwrap();
        }
        let ts = ts.map(|later| dataset.snapshot().seq().saturating_add(later));
        let (mut after, mut found) = (None, Vec::new());
        let of_a = || dataset.versions_with(path("a"), "1").limit(2);
        loop {
            let values = of_a().as_of(ts).after(after).read().unwrap();
            let records = values.records.iter();
            found.extend(records.map(|record| record.key().to_string()));
            let Some(next) = values.next else { break };
            // Also as text.
            let next: esker::versions::ValueToken = next.to_string().parse().unwrap();
            // Later writes are not visible, and hide no version.
            if found.len() == 2 {
                dataset.put_json(br#"{"id":0,"a":2}"#).unwrap();
            }
            after = Some(next);
            let other = of_a().as_of(3).after(after).read();
            assert_eq!(other.unwrap_err().kind(), ErrorKind::BadInput);
        }
        assert_eq!(found, ["6", "5", "4", "3", "2", "1", "0"], "{ts:?}");
    }
    for bad in ["", "1", "1.2.3.4", "5.2.4", "5.2.5", "x.1", "1.2.x"] {
        assert!(bad.parse::<esker::versions::ValueToken>().is_err(), "{bad}");
    }
}

#[test]
fn the_integer_minus_zero_is_zero() {
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("n"),
            esker::Index::new(IndexKind::Composite).of_type(Type::Int),
        )
        .index(
            path("f"),
            esker::Index::new(IndexKind::Composite).of_type(Type::Float),
        )
        .index(
            path("t"),
            esker::Index::new(IndexKind::Composite).of_type(Type::Time),
        );
    let (_db, dataset) = store(def);
    let record = br#"{"id":-0,"n":[-0, -0,-5],"f":-0,"t":-0,"s":"-0,-0","x":-0,"e":[1e-0,2E-0]}"#;
    dataset.put_json(record).unwrap();
    let found = dataset.get(dataset.parse_key("0").unwrap()).unwrap();
    assert_eq!(found.unwrap().json(), record);
    for (at, value) in [
        ("n", "0"),
        ("n", "-0"),
        ("n", "-5"),
        ("f", "0"),
        ("t", "0"),
        ("x", "0"),
    ] {
        let query = dataset.query().equals(&path(at), value);
        assert_eq!(keys(query), ["0"], "{at}={value}");
    }
    // An index added later reads it, too.
    let go = &mut |_| std::ops::ControlFlow::Continue(());
    let lazy = IndexKind::Lazy;
    dataset
        .add_index(path("x"), esker::Index::new(lazy).of_type(Type::Int))
        .on_progress(go)
        .run()
        .unwrap();
    let query = dataset.query().equals(&path("x"), "0");
    assert_eq!(keys(query), ["0"]);
    // These are floats.
    for float in ["-0.0", "-0e1", "-0E0", "0.0"] {
        for record in [
            format!("{{\"id\":1,\"n\":{float}}}"),
            format!("{{\"id\":1,\"n\":[-0,{float}]}}"),
            format!("{{\"id\":{float}}}"),
        ] {
            let error = dataset.put_json(record.as_bytes()).unwrap_err().to_string();
            assert!(
                error.contains("of type int, found float"),
                "{record}: {error}"
            );
        }
    }
    let samples: Vec<Vec<u8>> = ["1", "-0", "2"]
        .map(|n| format!("{{\"id\":{n},\"f\":{n}.0}}").into_bytes())
        .to_vec();
    assert_eq!(
        esker::schema::infer_type(&samples, &path("id")),
        Some(Type::Int)
    );
    assert_eq!(
        esker::schema::infer_key_type(&samples[1..2], &path("id")),
        Some(KeyType::Int)
    );
    assert_eq!(
        esker::schema::infer_type(&samples, &path("f")),
        Some(Type::Float)
    );
}

#[test]
fn what_no_reader_can_read_is_refused_wherever_it_stands() {
    let def = DatasetDef::new(path("id"), KeyType::Int).index(
        path("a.b"),
        esker::Index::new(IndexKind::Composite).of_type(Type::String),
    );
    let (_db, dataset) = store(def);
    let long = format!("1{}", "0".repeat(308));
    let too_long = format!("1{}", "0".repeat(309));
    let values: Vec<(String, bool)> = [
        (r#""\ud800""#, false),
        (r#""\uDBFF\u0041""#, false),
        (r#""\udc00""#, false),
        (r#""\ud800\ud800""#, false),
        (r#""x\\\ud800""#, false),
        (r#"{"\ud800":1}"#, false),
        (r#"[1,{"deep":["\uDfFf"]}]"#, false),
        (r#""\ud83d\ude00""#, true),
        (r#""\uD83D\uDE00\\ud800""#, true),
        (r#""\\ud800""#, true),
        (r#""\u00e9 \n \" \/""#, true),
        ("1e400", false),
        ("-1E+309", false),
        ("[ 1e-400 ,1.5e999]", false),
        ("1e308", true),
        ("1e-400", true),
        ("12e0000000000000001", true),
        (r#""1e400, 1e400""#, true),
        (r#""7e4001a""#, true),
        (long.as_str(), true),
        (too_long.as_str(), false),
        ("0.1e309", true),
        ("0.5e309", false),
    ]
    .map(|(value, fine)| (value.to_string(), fine))
    .to_vec();
    for (value, fine) in values {
        for record in [
            format!("{{\"id\":1,\"x\":{value}}}"),
            format!("{{\"x\":[{value}],\"id\":1}}"),
            format!("{{\"a\":{{\"b\":\"v\",\"c\":{value}}},\"id\":1}}"),
            format!("{{\"id\":1,\n\"a\":[{{\"b\":\"v\"}},{{\"z\": {value} }}]}}"),
        ] {
            let readable = serde_json::from_str::<serde_json::Value>(&record).is_ok();
            assert_eq!(readable, fine, "{record}");
            let mut batch = dataset.batch();
            match batch.put_json(record.as_bytes()) {
                Ok(()) => assert!(fine, "{record} is taken"),
                Err(error) => {
                    assert!(!fine, "{record}: {error}");
                    assert_eq!(error.kind(), ErrorKind::BadInput);
                    let text = error.to_string();
                    assert!(text.contains("not valid JSON: "), "{text}");
                    assert!(
                        text.contains("record 1: "),
                        "wherever the key stands: {text}"
                    );
                    assert!(text.contains(" column "), "{text}");
                    assert!(text.contains("line 2") || !record.contains('\n'), "{text}");
                }
            }
            let durability = Durability::Os;
            batch.durability(durability).commit().unwrap();
        }
    }
}

/// The quick checks refuse a record exactly if a parser does.
#[test]
fn random_records_are_refused_where_a_parser_refuses_them() {
    let (_db, dataset) = store(DatasetDef::new(path("id"), KeyType::Int));
    let pieces = [
        "\\ud800",
        "\\udc00",
        "\\uD83D\\uDE00",
        "\\\\",
        "\\\"",
        "u",
        "e",
        "1e400",
        "\\n",
        "d800",
        " ",
        "9",
    ];
    let numbers = [
        "1e400", "-0", "1e2", "0.1e500", "-1e-900", "12", "1E999", "3.25", "1e0000", "99e306",
        "99e307",
    ];
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..20_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut record = String::from("{\"id\":1");
        for field in 0..rng.usize(1..4) {
            let text: String = (0..rng.usize(0..6))
                .map(|_| pieces[rng.usize(0..pieces.len())])
                .collect();
            let number = match rng.usize(0..40) {
                1 => format!("{}e{}", "7".repeat(rng.usize(190..230)), rng.usize(80..100)),
                0 => "7".repeat(rng.usize(290..330)),
                _ => numbers[rng.usize(0..numbers.len())].to_string(),
            };
            let space = ["", " "][rng.usize(0..2)];
            record += &match rng.usize(0..4) {
                0 => format!(",\"f{field}\":{space}{number}{space}"),
                1 => format!(",\"f{field}{text}\":[\"{text}\",{number}]"),
                _ => format!(",\"f{field}\":{space}\"{text}\""),
            };
        }
        record.push('}');
        let readable = serde_json::from_str::<serde_json::Value>(&record).is_ok();
        let mut batch = dataset.batch();
        assert_eq!(
            batch.put_json(record.as_bytes()).is_ok(),
            readable,
            "seed {seed}: {record}"
        );
        if readable { taken += 1 } else { refused += 1 }
    }
    assert!(taken > 2000 && refused > 2000, "{taken} and {refused}");
}

/// The result of a repair in a new dataset.
fn repaired(options: &RepairOptions) -> esker::Result<esker::maintain::RepairReport> {
    let def = DatasetDef::new(path("id"), KeyType::Int)
        .index(
            path("a"),
            esker::Index::new(IndexKind::Lazy).of_type(Type::Int),
        )
        .maintenance(match options.method {
            RepairMethod::Primary { .. } => Maintenance::Deferred,
            _ => Maintenance::Validation,
        });
    let (db, dataset) = store(def);
    for id in 0..200 {
        let body = format!("{{\"id\":{},\"a\":{}}}", id % 50, id % 3);
        dataset.put_json(body.as_bytes()).unwrap();
    }
    let report = dataset.repair(options).run();
    assert_eq!(db.check().unwrap().errors, Vec::<String>::new());
    report
}

#[test]
fn repairs_with_settings_at_their_ends_are_right_or_refused() {
    let sizes = [0, 1, usize::MAX];
    let compaction = esker::maintain::Compaction::default();
    let mut all = 0;
    for method in [
        RepairMethod::Index,
        RepairMethod::Primary { compaction },
        RepairMethod::Key,
    ] {
        let usual = RepairOptions {
            method,
            ..RepairOptions::default()
        };
        let found = repaired(&usual).unwrap().found;
        all += found;
        for memory in sizes {
            for threads in sizes {
                for bytes_per_second in [None, Some(0), Some(u64::MAX)] {
                    let options = RepairOptions {
                        memory,
                        threads,
                        bytes_per_second,
                        ..usual
                    };
                    match repaired(&options) {
                        Ok(report) => {
                            assert!(report.complete && bytes_per_second != Some(0));
                            assert_eq!(report.found, found, "{options:?}");
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
                            assert_eq!(bytes_per_second, Some(0), "{error}");
                        }
                    }
                }
            }
        }
    }
    assert!(all > 0);
}

#[test]
fn limits_at_their_ends_give_nothing_or_all() {
    for kind in IndexKind::ALL {
        let def = DatasetDef::new(path("id"), KeyType::Int)
            .index(path("a"), esker::Index::new(kind).of_type(Type::Int))
            .maintenance(Maintenance::Deferred)
            .versions(2);
        if def.validate().is_err() {
            continue;
        }
        let (db, dataset) = store(def);
        for id in 0..40 {
            let body = format!("{{\"id\":{},\"a\":{}}}", id % 30, id % 2);
            dataset.put_json(body.as_bytes()).unwrap();
            if id == 25 {
                db.flush().unwrap();
            }
        }
        let key = dataset.parse_key("1").unwrap();
        for (limit, right) in [(0, 0), (usize::MAX, 15)] {
            let query = dataset.query().equals(&path("a"), "1").limit(Some(limit));
            let found = common::keys_in_every_way(&query);
            assert_eq!(found.len(), right, "{kind:?}");
            let versions = dataset.versions(&key).latest(limit).read();
            if limit == 0 {
                assert_eq!(versions.unwrap_err().kind(), ErrorKind::BadInput);
            } else {
                assert_eq!(versions.unwrap().len(), limit.min(2));
            }
        }
        for m in [0, 1, usize::MAX] {
            let versions = || dataset.versions_with(path("a"), "1").latest(m);
            let read = |limit| versions().limit(limit).read();
            let none = read(0).err().map(|error| error.kind());
            let all = read(usize::MAX);
            assert_eq!(none, Some(ErrorKind::BadInput), "{kind:?}");
            match all {
                Ok(page) => assert_eq!(page.records.len(), [0, 15, 20][m.min(2)], "{kind:?} {m}"),
                Err(error) => assert_eq!((m, error.kind()), (0, ErrorKind::BadInput)),
            }
        }
    }
}

/// The key's type is said once: by the program's type of keys, or by the definition.
#[test]
fn a_definition_takes_the_type_of_the_programs_keys() {
    let options = small(Arc::new(Memory::new()));
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let def = || DatasetDef::key("id");
    let numbers = db.create_dataset::<u64>("numbers", def()).unwrap();
    assert_eq!(numbers.def().key_type, KeyType::Int);
    let texts = db.create_dataset::<String>("texts", def()).unwrap();
    assert_eq!(texts.def().key_type, KeyType::String);
    let error = db.create_dataset::<esker::Key>("any", def()).map(drop);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the type of the key"), "{error}");
    let error = def().validate().unwrap_err().to_string();
    assert!(error.contains("the type of the key"), "{error}");
}

#[test]
fn typed_reads_return_values_and_refuse_what_does_not_fit() {
    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct User {
        id: u64,
        name: String,
    }
    let options = small(Arc::new(Memory::new()));
    let db = Database::create_or_open(FsPath::new(DIR), options).unwrap();
    let records = db
        .create_dataset::<u64>("users", DatasetDef::key("id"))
        .unwrap();
    let users: Dataset<u64, User> = records.typed();
    records.put_json(r#"{"id": 1, "name": "ann"}"#).unwrap();
    records.put_json(r#"{"id": 2, "name": null}"#).unwrap();
    let ann = User {
        id: 1,
        name: "ann".to_string(),
    };
    assert_eq!(users.get(1).unwrap().as_ref(), Some(&ann));
    assert_eq!(users.snapshot().get(1).unwrap().as_ref(), Some(&ann));
    assert_eq!(users.get(3).unwrap(), None);
    assert_eq!(users.get(2).unwrap_err().kind(), ErrorKind::BadInput);
    let scanned: Vec<_> = users.scan(..).collect();
    assert_eq!(scanned[0].as_ref().unwrap(), &ann);
    assert!(scanned[1].is_err());
    let found = users.find(esker::field("name").eq("ann"));
    assert_eq!(found.first().unwrap().as_ref(), Some(&ann));
    assert_eq!(users.delete(1).unwrap(), Some(ann));
}
