//! Compound indexes: answers, counts and orders are those of a look at each record, for all kinds
//! and strategies, for arrays, absent values and values of other types; and the index is what
//! answers.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker::experimental::Combining;
use esker::schema::Maintenance;
use esker::{
    Database, Dataset, DatasetDef, ErrorKind, Explain, Expr, Index, IndexKind, KeyType, Query, Type,
};
use esker_sim::by_tier;
use esker_sim::memory::Memory;
use serde_json::{Value as Json, json};

use crate::common::{Doing, check, converge, keys_in_every_way, open, path, seeds, with_strategy};

const KINDS: [IndexKind; 4] = [
    IndexKind::Composite,
    IndexKind::Lazy,
    IndexKind::Recent,
    IndexKind::Eager,
];

/// The fields of compound indexes: `user` is text, `at` a time, `n` a number that may be of another
/// type, `x` a float.
const COMPOUNDS: [&str; 6] = [
    "user,at",
    "user,n,at",
    "n,user",
    "x,at",
    "user,x",
    "at,user,n",
];

fn fields(def: DatasetDef) -> DatasetDef {
    def.index("user", Index::none().string())
        .index("at", Index::none().of_type(Type::Time))
        .index("n", Index::none().int().lenient())
        .index("x", Index::none().float())
}

fn one(name: &str, rng: &mut fastrand::Rng) -> Json {
    match name {
        "user" => json!(["", "a", "a\0", "ab", "b"][rng.usize(0..5)]),
        "at" if rng.bool() => json!(rng.i64(0..12)),
        "at" => json!(format!("1970-01-01T00:00:{:02}Z", rng.i64(0..12))),
        // What is no whole number, or no exact float, has only a stand-in in an index.
        "n" => [json!(rng.i64(-2..5)), json!(2.5), json!("b"), json!(true)]
            [[0, 0, 0, 0, 1, 2, 3][rng.usize(0..7)]]
        .clone(),
        _ => [
            json!(-1.5),
            json!(0),
            json!(2.5),
            json!(9007199254740993_i64),
        ][rng.usize(0..4)]
        .clone(),
    }
}

/// A record with absent fields, nulls, objects, and arrays.
fn record(id: i64, rng: &mut fastrand::Rng) -> Json {
    let mut record = json!({ "id": id });
    for name in ["user", "at", "n", "x", "other"] {
        let value = match rng.usize(0..12) {
            0 => continue,
            1 => Json::Null,
            2 => json!({ "a": 1 }),
            3 | 4 => (0..rng.usize(0..4)).map(|_| one(name, rng)).collect(),
            _ => one(name, rng),
        };
        record[name] = value;
    }
    record
}

/// Conditions on one field.
fn test(rng: &mut fastrand::Rng) -> String {
    let pick = |all: &[&str], rng: &mut fastrand::Rng| all[rng.usize(0..all.len())].to_string();
    let users = ["\"\"", "\"a\"", "\"ab\"", "\"b\"", "\"c\""];
    let (lo, hi) = (rng.i64(0..7), rng.i64(7..13));
    match rng.usize(0..16) {
        0..=4 => format!("user = {}", pick(&users, rng)),
        5 => format!("user in ({}, {})", pick(&users, rng), pick(&users, rng)),
        6 => "user ^= \"a\"".to_string(),
        7 => format!(
            "user {} {}",
            pick(&[">", "<=", "!="], rng),
            pick(&users, rng)
        ),
        8 | 9 => format!("at >= {lo} and at < {hi}"),
        10 => format!("at {} {lo}", pick(&["=", ">", "<="], rng)),
        11 => format!("n {} {}", pick(&["=", ">", "<", "="], rng), rng.i64(-2..5)),
        12 => format!("n in ({lo}, 2.5, b)"),
        13 => format!(
            "x {} {}",
            pick(&["=", ">=", "<"], rng),
            pick(&["0", "2.5"], rng)
        ),
        14 => "x in (0, 9007199254740993, 9007199254740992)".to_string(),
        _ => pick(
            &["user exists", "not at exists", "other = 3", "n != 1"],
            rng,
        ),
    }
}

fn condition(rng: &mut fastrand::Rng) -> String {
    let some: Vec<String> = (0..rng.usize(1..4)).map(|_| test(rng)).collect();
    match rng.usize(0..8) {
        0 => some.join(" or "),
        1 => format!("{} and not ({})", some.join(" and "), test(rng)),
        _ => some.join(" and "),
    }
}

/// A dataset without any index, and one with compound indexes.
struct Pair {
    db: Database,
    plain: Dataset,
    indexed: Dataset,
}

impl Pair {
    fn new(seed: u64, rng: &mut fastrand::Rng) -> Pair {
        let db = open(Arc::new(Memory::new())).unwrap();
        let strategy = |def| with_strategy(def, seed as usize);
        let plain = fields(DatasetDef::new("id", KeyType::Int));
        let mut def = fields(DatasetDef::new("id", KeyType::Int));
        let kind = KINDS[seed as usize % KINDS.len()];
        for compound in COMPOUNDS {
            if rng.usize(0..3) > 0 {
                def = def.index(compound, Index::new(kind).compound());
            }
        }
        // Another index, with which a compound one is compared.
        if rng.bool() {
            def.indexes[0].kind = KINDS[rng.usize(0..KINDS.len())];
        }
        let plain = db.create_dataset("plain", strategy(plain)).unwrap();
        let indexed = db.create_dataset("d", strategy(def)).unwrap();
        Pair { db, plain, indexed }
    }

    fn write(&self, rng: &mut fastrand::Rng) {
        let id = rng.i64(0..120);
        if rng.usize(0..10) == 0 {
            for dataset in [&self.plain, &self.indexed] {
                let key = dataset.parse_key(&id.to_string()).unwrap();
                dataset.delete(&key).unwrap();
            }
            return;
        }
        let body = record(id, rng).to_string();
        for dataset in [&self.plain, &self.indexed] {
            dataset.put_json(body.as_bytes()).unwrap();
        }
    }

    fn compare(&self, rng: &mut fastrand::Rng) -> bool {
        let text = condition(rng);
        let _doing = Doing(text.clone());
        let expr: Expr = text.parse().unwrap();
        let combining = [Combining::Auto, Combining::Always][rng.usize(0..2)];
        let find = |dataset: &Dataset| dataset.find(expr.clone()).combining(combining);
        if let Err(error) = find(&self.plain).count() {
            assert!(error.to_string().contains("are reversed"), "{error}");
            assert!(find(&self.indexed).count().is_err());
            return false;
        }
        let right = keys_in_every_way(&find(&self.plain));
        assert_eq!(keys_in_every_way(&find(&self.indexed)), right);
        let (by, direction) = (["at", "user", "n", "x"][rng.usize(0..4)], rng.bool());
        let order = format!("{by}:{}", if direction { "asc" } else { "desc" });
        let limit = [Some(1), Some(5), None][rng.usize(0..3)];
        let ordered = |dataset: &Dataset| {
            let query = find(dataset).order(order.parse().unwrap());
            let (mut keys, mut token) = (Vec::new(), None);
            loop {
                let mut page = query.clone().limit(limit);
                if let Some(token) = token {
                    page = page.after(token);
                }
                let mut answer = page.run().unwrap();
                let before = keys.len();
                keys.extend(answer.by_ref().map(|row| row.unwrap().key().to_string()));
                token = answer.token();
                if keys.len() == before || limit.is_none() {
                    return keys;
                }
            }
        };
        let _doing = Doing(format!("{order} limit {limit:?}"));
        assert_eq!(ordered(&self.indexed), ordered(&self.plain));
        !right.is_empty()
    }
}

#[test]
fn answers_and_orders_are_those_of_a_look_at_each_record() {
    let mut found_some = 0;
    for seed in seeds(by_tier(12, 64)) {
        let _doing = Doing(format!("seed {seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let pair = Pair::new(seed, &mut rng);
        for at in 0..400 {
            pair.write(&mut rng);
            match rng.usize(0..60) {
                0 => pair.db.flush().unwrap(),
                1 => converge(&pair.db),
                _ => {}
            }
            if at % 200 == 199 {
                // Indexes are added to records that are there, dropped, and added again.
                let compound = COMPOUNDS[rng.usize(0..COMPOUNDS.len())];
                let declared = pair.indexed.def().indexes;
                if declared.iter().any(|index| index.path == path(compound)) {
                    pair.indexed.drop_index(compound).unwrap();
                } else {
                    let index = Index::new(KINDS[rng.usize(0..KINDS.len())]).compound();
                    pair.indexed.add_index(compound, index).run().unwrap();
                }
            }
            if at % 10 == 9 {
                found_some += usize::from(pair.compare(&mut rng));
            }
        }
        check(&pair.db);
    }
    assert!(found_some > 200, "{found_some}");
}

fn explained(query: Query) -> (Vec<String>, Explain) {
    let mut answer = query.run().unwrap();
    let keys = answer.by_ref().map(|row| row.unwrap().key().to_string());
    let keys = keys.collect();
    (keys, answer.explain())
}

const RECORDS: i64 = 4000;

/// Each of 20 users has 200 records, one a minute.
fn events(kind: IndexKind) -> (Database, Dataset) {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .maintenance(Maintenance::Validation)
        .index("user", Index::lazy().string())
        .index("at", Index::none().of_type(Type::TimeS))
        .index("user,at", Index::new(kind).compound());
    let dataset = db.create_dataset("d", def).unwrap();
    for id in 0..RECORDS {
        let (user, at) = (id % 20, id / 20 * 60);
        let body = json!({"id": id, "user": format!("u{user}"), "at": at, "kind": id % 3});
        dataset.put_json(body.to_string()).unwrap();
    }
    db.flush().unwrap();
    (db, dataset)
}

#[test]
fn a_value_and_a_range_read_the_entries_of_the_answer_alone() {
    for kind in KINDS {
        let (_db, dataset) = events(kind);
        for (text, answers, candidates) in [
            ("user = u3 and at >= 600 and at < 1200", 10, 10),
            ("user = u3 and at > 600 and at <= 1200", 10, 10),
            ("user = u3 and at = 600", 1, 1),
            ("user in (u3, u5) and at < 600", 20, 20),
            ("at < 600 and user in (u3, u5) and kind = 0", 7, 20),
            ("user ^= \"u1\" and at < 60", 11, 2200),
        ] {
            let (keys, explain) = explained(dataset.find(text.parse().unwrap()));
            assert_eq!(keys.len(), answers, "{text}");
            assert_eq!(explain.steps.candidates, candidates, "{text}: {explain}");
            let plan = &explain.plan;
            let index = plan.index.iter().chain(&plan.union).next().unwrap();
            let shown = (index.index.as_str(), index.kind.clone());
            // A range of the first field is no better than an index of that field.
            if !text.contains("^=") {
                assert_eq!(shown, ("user,at", kind.to_string()), "{text}");
                assert!(index.condition.contains("at "), "{index:?}");
            }
        }
        // Counts need no record.
        let text = "user = u3 and at >= 600 and at < 1200";
        let (count, explain) = dataset
            .find(text.parse().unwrap())
            .count_explained()
            .unwrap();
        assert_eq!((count, explain.steps.fetched), (10, 0), "{explain}");
        // A later field alone is a scan.
        let (keys, explain) = explained(dataset.find("at < 60".parse().unwrap()));
        assert_eq!((keys.len(), explain.plan.scan.is_some()), (20, true));
    }
}

#[test]
fn the_first_field_alone_is_answered_too() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = fields(DatasetDef::new("id", KeyType::Int))
        .index("user,at,n", Index::composite().compound());
    let dataset = db.create_dataset("d", def).unwrap();
    // Fields behind the first may be absent.
    for (id, rest) in ["", r#","at":3"#, r#","n":4"#, r#","at":[3,9],"n":[4,5]"#]
        .iter()
        .enumerate()
    {
        let body = format!(r#"{{"id":{id},"user":"a"{rest}}}"#);
        dataset.put_json(body).unwrap();
    }
    dataset.put_json(r#"{"id":9,"at":3,"n":4}"#).unwrap();
    for (text, wanted) in [
        ("user = a", vec!["3", "2", "1", "0"]),
        ("user = a and n = 4", vec!["3", "2"]),
        ("user = a and at = 3", vec!["3", "1"]),
        ("user = a and at is null", vec!["2", "0"]),
        // For different elements, and for one.
        ("user = a and at = 3 and at = 9", vec!["3"]),
        ("user = a and at > 3 and at < 9", vec![]),
        ("user = a and at > 3 and n <= 4", vec!["3"]),
    ] {
        let (keys, explain) = explained(dataset.find(text.parse().unwrap()));
        assert_eq!(keys, wanted, "{text}");
        let index = explain.plan.index.map(|index| index.index);
        assert_eq!(index.as_deref(), Some("user,at,n"), "{text}");
    }
}

#[test]
fn the_newest_of_a_user_are_read_in_order() {
    // The lists of an eager index are too long for an estimate of this few records.
    for kind in [IndexKind::Composite, IndexKind::Lazy, IndexKind::Recent] {
        let (_db, dataset) = events(kind);
        for (order, first) in [("at:desc", 3983_i64), ("at:asc", 3)] {
            let query = dataset.find("user = u3".parse().unwrap());
            let query = query.order(order.parse().unwrap()).limit(Some(10));
            let (keys, explain) = explained(query);
            let step = if first == 3 { 20 } else { -20 };
            let right: Vec<String> = (0..10).map(|i| (first + step * i).to_string()).collect();
            assert_eq!(keys, right, "{order}");
            let notes: Vec<String> = explain.notes.iter().map(ToString::to_string).collect();
            assert!(
                notes.concat().contains("`user,at` was read in its order"),
                "{explain}"
            );
            assert!(explain.steps.fetched < 40, "{explain}");
        }
    }
}

#[test]
fn an_order_begins_within_a_range_unless_a_record_has_several_values() {
    let (_db, dataset) = events(IndexKind::Composite);
    let ask = |condition: &str, order: &str| {
        let query = dataset.find(condition.parse().unwrap());
        explained(query.order(order.parse().unwrap()).limit(Some(5)))
    };
    let before = ("user = u3 and at < 6000", "at:desc");
    let behind = ("user = u3 and at > 6000", "at:asc");
    for ((condition, order), wanted) in [
        (before, ["1983", "1963", "1943", "1923", "1903"]),
        (behind, ["2023", "2043", "2063", "2083", "2103"]),
    ] {
        let (keys, explain) = ask(condition, order);
        assert_eq!(keys, wanted, "{condition}");
        assert!(explain.steps.fetched < 40, "{explain}");
    }
    // A record is ordered by its greatest, or least, value, also outside of the range.
    let body = r#"{"id": 9999, "user": "u3", "at": [60, 100000]}"#;
    dataset.put_json(body).unwrap();
    let (keys, explain) = ask(before.0, before.1);
    assert_eq!(keys, ["9999", "1983", "1963", "1943", "1923"]);
    assert!(explain.notes.is_empty(), "{explain}");
    let (keys, _) = ask(behind.0, behind.1);
    assert_eq!(keys[0], "9999");
    // Once it is gone, the mark is obsolete.
    dataset
        .put_json(r#"{"id": 9999, "user": "u3", "at": 60}"#)
        .unwrap();
    let (keys, explain) = ask(before.0, before.1);
    assert_eq!(
        (keys[0].as_str(), explain.notes.len()),
        ("1983", 1),
        "{explain}"
    );
}

/// A record has several entries of one value if a field behind that has several values: it is one
/// row, however many records share the value.
#[test]
fn an_order_takes_a_record_once_for_all_its_combinations() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .maintenance(Maintenance::Validation)
        .index("user", Index::none().string())
        .index("status", Index::none().int())
        .index("tags", Index::none().string())
        .index("user,status,tags", Index::composite().compound());
    let dataset: Dataset = db.create_dataset("d", def).unwrap();
    for id in 1..=12_000 {
        let (status, tags) = match id {
            1..=1200 => (1, json!(["x", "y"])),
            _ => (2 + id % 8, json!(["x"])),
        };
        let body = json!({"id": id, "user": "a", "status": status, "tags": tags});
        dataset.put_json(body.to_string()).unwrap();
    }
    db.flush().unwrap();
    for (condition, limit) in [
        ("user = a", 10),
        ("user = a", 1500),
        ("user = a and tags = y", 1100),
    ] {
        let query = dataset.find(condition.parse().unwrap());
        let query = query.order("status:asc".parse().unwrap());
        let (keys, _) = explained(query.clone().limit(Some(limit)));
        let (all, _) = explained(query);
        assert_eq!(keys, all[..limit], "{condition}, {limit}");
    }
}

#[test]
fn combinations_of_values_are_unique() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index("tenant", Index::none().int())
        .index("email", Index::none().string().lenient())
        .index("tenant,email", Index::composite().compound().unique());
    let dataset = db.create_dataset::<i64>("d", def).unwrap();
    let put = |body: &str| dataset.put_json(body);
    put(r#"{"id":1,"tenant":1,"email":"a"}"#).unwrap();
    put(r#"{"id":2,"tenant":2,"email":"a"}"#).unwrap();
    put(r#"{"id":3,"tenant":1,"email":["b","c"]}"#).unwrap();
    // Absent fields, and values of other types, are not compared.
    for id in 4..8 {
        put(&format!(r#"{{"id":{id},"tenant":1}}"#)).unwrap();
        put(&format!(r#"{{"id":{},"tenant":1,"email":7}}"#, id + 10)).unwrap();
        put(&format!(r#"{{"id":{},"email":"a"}}"#, id + 20)).unwrap();
    }
    let error = put(r#"{"id":9,"tenant":1,"email":["x","c"]}"#).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotUnique);
    let text = error.to_string();
    for part in ["tenant,email", "1, c", "9", "3"] {
        assert!(text.contains(part), "{text}");
    }
    put(r#"{"id":3,"tenant":1,"email":"b"}"#).unwrap();
    put(r#"{"id":9,"tenant":1,"email":["x","c"]}"#).unwrap();
    check(&db);
    // An index is not built where two records have the same.
    put(r#"{"id":30,"tenant":5,"email":"e"}"#).unwrap();
    dataset.drop_index("tenant,email").unwrap();
    assert!(
        dataset
            .def()
            .indexes
            .iter()
            .all(|index| index.ty != Type::Compound)
    );
    put(r#"{"id":31,"tenant":5,"email":"e"}"#).unwrap();
    let unique = || Index::lazy().compound().unique();
    let add = || dataset.add_index("tenant,email", unique()).run();
    assert_eq!(add().unwrap_err().kind(), ErrorKind::NotUnique);
    assert_eq!(dataset.unfinished_index(), None);
    put(r#"{"id":31,"tenant":6,"email":"e"}"#).unwrap();
    add().unwrap();
    let error = put(r#"{"id":32,"tenant":6,"email":"e"}"#).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotUnique);
    check(&db);
}

#[test]
fn fields_are_declared_with_the_index_and_stay_declared() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new("id", KeyType::Int);
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    for id in 0..50 {
        let body = json!({"id": id, "user": format!("u{}", id % 5), "o": {"n": id}});
        dataset.put_json(body.to_string()).unwrap();
    }
    let index = Index::recent().compound();
    dataset.add_index("user,o.n", index).run().unwrap();
    let texts = || {
        let indexes = dataset.def().indexes;
        let text = |def| esker::schema::IndexText::of(def).to_string();
        indexes.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(
        texts(),
        ["user:none:string", "o.n:none:int", "user,o.n:recent"]
    );
    // Its definition survives as text and as JSON.
    let json = serde_json::to_string(&dataset.def()).unwrap();
    let again: DatasetDef = serde_json::from_str(&json).unwrap();
    assert_eq!(again, dataset.def());
    let find = || explained(dataset.find("user = u3 and o.n < 20".parse().unwrap()));
    let (keys, explain) = find();
    assert_eq!(keys, ["18", "13", "8", "3"]);
    assert_eq!(explain.plan.index.unwrap().index, "user,o.n");
    dataset
        .switch_index("user,o.n", IndexKind::Lazy)
        .run()
        .unwrap();
    dataset.rebuild_index("user,o.n").run().unwrap();
    assert_eq!(find().0, keys);
    for kind in [IndexKind::Embedded, IndexKind::Filter] {
        let error = dataset.switch_index("user,o.n", kind).run().unwrap_err();
        assert!(
            error.to_string().contains("cannot be of several fields"),
            "{error}"
        );
    }
    let wrong = Index::lazy().compound();
    assert!(dataset.add_index("user", wrong).run().is_err());
    assert!(dataset.add_index("user,nowhere", wrong).run().is_err());
    // An addition that is refused declares no fields, wherever it fails.
    assert!(dataset.add_index("id,nowhere", wrong).run().is_err());
    assert!(dataset.add_index("id,user", wrong.lenient()).run().is_err());
    assert!(
        dataset
            .add_index("p,user", Index::embedded().compound())
            .run()
            .is_err()
    );
    for id in [100, 101] {
        let body = json!({"id": id, "p": 1, "q": [1, 2]}).to_string();
        dataset.put_json(body).unwrap();
    }
    let error = dataset.add_index("p,q", wrong.unique()).run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotUnique, "{error}");
    assert_eq!(texts().len(), 3);
    assert!(dataset.unfinished_index().is_none());
    // A condition on a field of that name is not one on the index.
    let odd = dataset.find("\"user,o.n\" = 3".parse().unwrap());
    assert_eq!(odd.count().unwrap(), 0);
    dataset.drop_index("user,o.n").unwrap();
    assert_eq!(texts(), ["user:none:string", "o.n:none:int"]);
    check(&db);
}

/// Versions that were replaced before the fields were declared need not fit them.
#[test]
fn old_versions_that_do_not_fit_are_found_by_the_other_fields() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .maintenance(Maintenance::Deferred)
        .versions(2);
    let dataset = db.create_dataset::<i64>("d", def).unwrap();
    for n in ["\"x\"", "5"] {
        let body = format!(r#"{{"id":1,"user":"a","n":{n}}}"#);
        dataset.put_json(body).unwrap();
    }
    dataset
        .add_index("user,n", Index::lazy().compound())
        .run()
        .unwrap();
    let versions = dataset.versions_with(path("user"), "a").latest(2);
    let page = versions.limit(10).read().unwrap();
    assert_eq!(page.records.len(), 2);
    check(&db);
}

/// Versions that were replaced before the index was added may have any number of combinations.
#[test]
fn old_versions_with_too_many_combinations_are_found() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .maintenance(Maintenance::Deferred)
        .versions(2);
    let dataset = db.create_dataset::<i64>("d", def).unwrap();
    let many: Vec<i64> = (0..9).collect();
    for (a, b) in [(json!(many), json!(many)), (json!(1), json!(1))] {
        let body = json!({"id": 1, "a": a, "b": b});
        dataset.put_json(body.to_string()).unwrap();
    }
    let added = dataset.add_index("a,b", Index::lazy().compound()).run();
    assert!(added.unwrap().complete);
    let found = || {
        let versions = dataset.versions_with(path("a"), "1").latest(2);
        versions.limit(10).read().unwrap().records.len()
    };
    assert_eq!(found(), 2);
    dataset.rebuild_index("a,b").run().unwrap();
    assert_eq!(found(), 2);
    check(&db);
}

/// Fields that an addition declares: each step of it can be stopped and continued.
#[test]
fn an_addition_that_is_stopped_is_continued() {
    for steps in 0..8 {
        let db = open(Arc::new(Memory::new())).unwrap();
        let def = DatasetDef::new("id", KeyType::Int);
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        for id in 0..50 {
            let body = json!({"id": id, "user": format!("u{}", id % 5), "n": id});
            dataset.put_json(body.to_string()).unwrap();
        }
        let add = |left: u32| {
            let mut left = left;
            let progress = move |_| {
                left = left.saturating_sub(1);
                if left == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let added = dataset.add_index("user,n", Index::lazy().compound());
            added.on_progress(progress).run().unwrap()
        };
        let first = add(steps + 1);
        assert_eq!(first.complete, dataset.unfinished_index().is_none());
        if !first.complete {
            let unfinished = dataset.unfinished_index().unwrap();
            assert_eq!(unfinished.path, first.path);
            assert!(add(u32::MAX).complete);
        }
        assert_eq!(dataset.def().indexes.len(), 3);
        let (keys, explain) = explained(dataset.find("user = u3 and n < 20".parse().unwrap()));
        assert_eq!(keys, ["18", "13", "8", "3"]);
        assert_eq!(explain.plan.index.unwrap().index, "user,n");
    }
}

#[test]
fn a_record_with_too_many_combinations_is_refused() {
    let db = open(Arc::new(Memory::new())).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index("tags", Index::none().string())
        .index("ns", Index::none().int())
        .index("tags,ns", Index::lazy().compound());
    let dataset = db.create_dataset::<i64>("d", def).unwrap();
    let put = |tags: usize, ns: usize| {
        let tags: Vec<String> = (0..tags).map(|n| n.to_string()).collect();
        let ns: Vec<usize> = (0..ns).collect();
        let body = json!({"id": 1, "tags": tags, "ns": ns});
        dataset.put_json(body.to_string())
    };
    put(8, 8).unwrap();
    put(3000, 1).unwrap();
    let error = put(13, 5).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    let text = error.to_string();
    assert!(
        text.contains(
            "record 1: the fields tags,ns have 65 combinations of values, over the limit of 64"
        ),
        "{text}"
    );
    let long = "x".repeat(20 << 10);
    let body = json!({"id": 1, "tags": long, "ns": 1}).to_string();
    dataset.put_json(body).unwrap();
}
