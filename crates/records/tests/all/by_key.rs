//! Conditions on the primary key: the answers agree with a model, and the condition bounds the keys
//! that are read.

use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, seeds, small};
use esker::{Database, Dataset, DatasetDef, Expr, Index, Key, KeyType, Operand, Order, field};
use esker_sim::by_tier;
use esker_sim::memory::Memory;
use fastrand::Rng;
use serde_json::{Value, json};
use std::ops::ControlFlow;

const KEYS: i64 = 300;

fn database() -> Database {
    let options = small(Arc::new(Memory::new())).memory_budget(4 << 20);
    Database::create_or_open(Path::new(DIR), options).unwrap()
}

fn fill(
    db: &Database,
    dataset: &Dataset<Key>,
    rng: &mut Rng,
    key: impl Fn(i64) -> Value,
) -> Vec<(Value, i64)> {
    let mut rows = Vec::new();
    for id in 0..KEYS {
        let n = rng.i64(0..5);
        let record = json!({"id": key(id), "n": n, "at": [id as f64 / 10.0, 1.0]});
        dataset.put(&record).unwrap();
        match rng.usize(0..8) {
            0 => db.flush().unwrap(),
            1 => {
                let key = dataset
                    .parse_key(key(id).to_string().trim_matches('"'))
                    .unwrap();
                assert!(dataset.delete(key).unwrap().is_some());
                continue;
            }
            _ => {}
        }
        rows.push((key(id), n));
    }
    rows
}

/// A condition, and whether it holds for a row.
type Asked = (Expr, Holds);
type Holds = Box<dyn Fn(&Value, i64) -> bool>;

fn compared<T: Clone + 'static>(
    rng: &mut Rng,
    value: T,
    operand: Operand,
    order: fn(&Value, &T) -> std::cmp::Ordering,
) -> Asked {
    let path = || field("id");
    let by = |test: fn(std::cmp::Ordering) -> bool| -> Holds {
        Box::new(move |key, _| test(order(key, &value)))
    };
    match rng.usize(0..6) {
        0 => (path().eq(operand), by(std::cmp::Ordering::is_eq)),
        1 => (path().ne(operand), by(std::cmp::Ordering::is_ne)),
        2 => (path().lt(operand), by(std::cmp::Ordering::is_lt)),
        3 => (path().le(operand), by(std::cmp::Ordering::is_le)),
        4 => (path().gt(operand), by(std::cmp::Ordering::is_gt)),
        _ => (path().ge(operand), by(std::cmp::Ordering::is_ge)),
    }
}

fn of_integer(rng: &mut Rng) -> Asked {
    let whole = rng.i64(-5..KEYS + 5);
    match rng.usize(0..5) {
        0 => {
            let half = whole as f64 + 0.5;
            let order = |key: &Value, half: &f64| key.as_f64().unwrap().total_cmp(half);
            compared(rng, half, half.into(), order)
        }
        1 => {
            let some: Vec<i64> = (0..rng.usize(0..5)).map(|_| rng.i64(-5..KEYS)).collect();
            let operands: Vec<Operand> = some.iter().map(|key| (*key).into()).collect();
            let holds = move |key: &Value, _| some.contains(&key.as_i64().unwrap());
            (field("id").one_of(operands), Box::new(holds))
        }
        kind => {
            let operand = match kind {
                2 => Operand::text(whole.to_string()),
                _ => whole.into(),
            };
            let order = |key: &Value, whole: &i64| key.as_i64().unwrap().cmp(whole);
            compared(rng, whole, operand, order)
        }
    }
}

fn of_text(rng: &mut Rng) -> Asked {
    let text = |rng: &mut Rng| match rng.usize(0..4) {
        0 => String::new(),
        1 => name(rng.i64(0..KEYS)),
        2 => format!("{}x", name(rng.i64(0..KEYS))),
        _ => name(rng.i64(0..KEYS))[..2].to_string(),
    };
    let one = text(rng);
    match rng.usize(0..5) {
        0 => {
            let holds = {
                let one = one.clone();
                move |key: &Value, _| key.as_str().unwrap().starts_with(&one)
            };
            (field("id").prefix(one), Box::new(holds))
        }
        1 => {
            let some: Vec<String> = (0..rng.usize(0..5)).map(|_| text(rng)).collect();
            let operands: Vec<Operand> = some.iter().map(|key| key.as_str().into()).collect();
            let holds = move |key: &Value, _| some.iter().any(|text| key == text);
            (field("id").one_of(operands), Box::new(holds))
        }
        _ => {
            let operand = Operand::from(one.as_str());
            let order = |key: &Value, one: &String| key.as_str().unwrap().cmp(one);
            compared(rng, one, operand, order)
        }
    }
}

/// Names, some of which are prefixes of others.
fn name(id: i64) -> String {
    match id % 3 {
        0 => format!("k{}", id / 3),
        1 => format!("k{}a", id / 3),
        _ => format!("\u{e9}{}", id / 3),
    }
}

/// A condition on one field of a composite key of two, whose values are numbers and texts.
fn of_a_field(rng: &mut Rng) -> Asked {
    let (path, at) = [("f", 0), ("g", 1)][rng.usize(0..2)];
    let number = rng.i64(-2..10);
    let text = ["1", "", "a", "ab", "3\0", "z"][rng.usize(0..6)].to_string();
    let compares = |order: fn(std::cmp::Ordering) -> bool,
                    number: Option<i64>,
                    text: Option<String>|
     -> Holds {
        Box::new(move |key, _| match &key[at] {
            Value::Number(n) => {
                number.is_some_and(|number| order(n.as_i64().unwrap().cmp(&number)))
            }
            Value::String(t) => text.as_ref().is_some_and(|text| order(t.cmp(text))),
            _ => false,
        })
    };
    let of = |rng: &mut Rng| match rng.usize(0..4) {
        0 | 1 => (Operand::from(number), Some(number), None),
        2 => (Operand::from(text.as_str()), None, Some(text.clone())),
        _ => (
            Operand::text(number.to_string()),
            Some(number),
            Some(number.to_string()),
        ),
    };
    let (operand, number, text) = of(rng);
    match rng.usize(0..9) {
        0 => (
            field(path).lt(operand),
            compares(std::cmp::Ordering::is_lt, number, text),
        ),
        1 => (
            field(path).ge(operand),
            compares(std::cmp::Ordering::is_ge, number, text),
        ),
        2 => (
            field(path).gt(operand),
            compares(std::cmp::Ordering::is_gt, number, text),
        ),
        3 => {
            let is_equal = compares(std::cmp::Ordering::is_eq, number, text);
            (
                field(path).ne(operand),
                Box::new(move |key, n| !is_equal(key, n)),
            )
        }
        4 => {
            let holds = move |key: &Value, _| key[at].as_str().is_some_and(|t| t.starts_with('a'));
            (field(path).prefix("a"), Box::new(holds))
        }
        5 => {
            let operands = vec![operand, Operand::from("b"), Operand::from(3_i64)];
            let is_equal = compares(std::cmp::Ordering::is_eq, number, text);
            let is_other = move |key: &Value| key[at] == json!("b") || key[at] == json!(3);
            let holds = move |key: &Value, n| is_equal(key, n) || is_other(key);
            (field(path).one_of(operands), Box::new(holds))
        }
        _ => (
            field(path).eq(operand),
            compares(std::cmp::Ordering::is_eq, number, text),
        ),
    }
}

fn any(rng: &mut Rng, of_key: fn(&mut Rng) -> Asked, depth: usize) -> Asked {
    match rng.usize(0..if depth == 0 { 2 } else { 6 }) {
        0 => of_key(rng),
        1 => {
            let n = rng.i64(0..5);
            if rng.bool() {
                (field("n").eq(n), Box::new(move |_, of| of == n))
            } else {
                of_key(rng)
            }
        }
        2 => {
            let (a, holds) = any(rng, of_key, depth - 1);
            (!a, Box::new(move |key, n| !holds(key, n)))
        }
        3 => {
            let ((a, x), (b, y)) = (any(rng, of_key, depth - 1), any(rng, of_key, depth - 1));
            (a | b, Box::new(move |key, n| x(key, n) || y(key, n)))
        }
        _ => {
            let ((a, x), (b, y)) = (any(rng, of_key, depth - 1), any(rng, of_key, depth - 1));
            (a & b, Box::new(move |key, n| x(key, n) && y(key, n)))
        }
    }
}

fn compare(dataset: &Dataset<Key>, rows: &[(Value, i64)], (expr, holds): &Asked, what: &str) {
    let what = format!("{what}: {expr}");
    let text = |key: &Value| key.to_string().trim_matches('"').to_string();
    let matching = rows.iter().filter(|(key, n)| holds(key, *n));
    let mut right: Vec<String> = matching.map(|(key, _)| text(key)).collect();
    right.sort();
    let sorted = |mut keys: Vec<String>| {
        keys.sort();
        keys
    };
    let upside_down = |error: &esker::Error| error.to_string().contains("are reversed");
    let query = || dataset.query().filter(expr.clone());
    let answer = match query().run() {
        // Reversed bounds of a declared field are refused.
        Err(error) if upside_down(&error) => return,
        answer => answer.unwrap(),
    };
    let found = answer
        .map(|record| record.unwrap().key().to_string())
        .collect();
    assert_eq!(sorted(found), right, "{what}");
    let keys = query().keys().unwrap().map(|key| key.unwrap().to_string());
    assert_eq!(sorted(keys.collect()), right, "{what}, keys");
    assert_eq!(query().count().unwrap(), right.len() as u64, "{what}");
    for order in [Order::Key, Order::Any] {
        let mut found = Vec::new();
        let mut visit = |record: esker::Record<Key>| {
            found.push(record.key().to_string());
            ControlFlow::Continue(())
        };
        query().order(order.clone()).visit(&mut visit).unwrap();
        assert_eq!(sorted(found), right, "{what}, {order:?}");
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let db = database();
    let def = |ty| {
        let def = DatasetDef::new("id", ty);
        match seed % 4 {
            0 => def,
            1 => def.index("n", Index::composite().int()),
            2 => def.cluster("at"),
            _ => {
                // Some have an index on the key with another type, in which close numbers are
                // equal.
                let index = match (ty, seed % 8) {
                    (KeyType::Int, 3) => Index::composite().int(),
                    (KeyType::Int, _) => Index::composite().float(),
                    _ => Index::composite().string(),
                };
                def.index("id", index)
            }
        }
    };
    let numbers = db
        .create_dataset::<Key>("numbers", def(KeyType::Int))
        .unwrap();
    let rows = fill(&db, &numbers, &mut rng, |id| json!(id * 3 - 100));
    let names = db
        .create_dataset::<Key>("names", def(KeyType::String))
        .unwrap();
    let named = fill(&db, &names, &mut rng, |id| json!(name(id)));
    for round in 0..60 {
        let condition = any(&mut rng, of_integer, 3);
        compare(
            &numbers,
            &rows,
            &condition,
            &format!("ESKER_SEED={seed}, {round}"),
        );
        let condition = any(&mut rng, of_text, 3);
        compare(
            &names,
            &named,
            &condition,
            &format!("ESKER_SEED={seed}, {round}"),
        );
    }
}

#[test]
fn conditions_on_the_key_agree_with_a_model() {
    for seed in seeds(by_tier(6, 12)) {
        run(seed);
    }
}

#[test]
fn conditions_on_fields_of_the_key_agree_with_a_model() {
    for seed in seeds(by_tier(6, 12)) {
        let rng = &mut Rng::with_seed(seed);
        let db = database();
        let def = DatasetDef::new("f,g", KeyType::Fields);
        let def = match seed % 3 {
            0 => def,
            1 => def.index("g", Index::composite().string().lenient()),
            _ => def.index("n", Index::composite().int()),
        };
        let dataset = db.create_dataset::<Key>("d", def).unwrap();
        let texts = ["1", "", "a", "ab", "3\0", "b"];
        let mut rows: Vec<(Value, i64)> = Vec::new();
        for _ in 0..KEYS {
            let mut one = || {
                if rng.bool() {
                    json!(rng.i64(-2..10))
                } else {
                    json!(texts[rng.usize(0..texts.len())])
                }
            };
            let (f, g) = (one(), one());
            let n = rng.i64(0..5);
            dataset.put(&json!({"f": f, "g": g, "n": n})).unwrap();
            if rng.usize(0..20) == 0 {
                db.flush().unwrap();
            }
            let key = json!([f, g]);
            rows.retain(|row| row.0 != key);
            rows.push((key, n));
        }
        for round in 0..150 {
            let condition = any(rng, of_a_field, 3);
            let what = format!("ESKER_SEED={seed}, {round}");
            compare(&dataset, &rows, &condition, &what);
        }
    }
}

#[test]
fn a_condition_on_fields_of_the_key_reads_their_records_alone() {
    let db = database();
    let dataset = db
        .create_dataset::<Key>("d", DatasetDef::new("a,b,c", KeyType::Fields))
        .unwrap();
    let mut batch = dataset.batch();
    for id in 0..20_000_u64 {
        let (a, b, c) = (id / 1_000, id / 10 % 100, format!("c{}", id % 10));
        batch.put(&json!({"a": a, "b": b, "c": c})).unwrap();
    }
    batch.commit().unwrap();
    db.flush().unwrap();
    for (condition, candidates, scan) in [
        (
            "a = int(7) and b = int(5) and c = c3",
            1,
            "the record of a key",
        ),
        // An untyped operand may be a number or a text.
        ("c = c3 and a = 7 and b = 5", 1, "the records of 4 keys"),
        ("a = 7", 1_000, "the records in a range of keys"),
        ("a = 7 and b >= 98", 20, "the records in a range of keys"),
        ("a = 7 and c = c3", 1_000, "the records in a range of keys"),
        (
            "a in (3, 4) and b = 9",
            20,
            "the records in a range of keys",
        ),
        ("a > 18", 1_000, "the records in a range of keys"),
        (
            "a = 7 and b = 5 or a = 8 and b = 6",
            20,
            "the records in a range of keys",
        ),
        ("b = 5", 20_000, "all records"),
        ("a != 7", 20_000, "all records"),
    ] {
        let query = dataset.query().filter(condition.parse().unwrap());
        let (_, explain) = query.count_explained().unwrap();
        assert_eq!(explain.steps.candidates, candidates, "{condition}");
        assert_eq!(explain.plan.scan.as_deref(), Some(scan), "{condition}");
        let is_noted = !explain.notes.is_empty();
        assert_eq!(is_noted, scan == "all records", "{condition}");
    }
}

#[test]
fn a_condition_on_the_key_reads_its_records_alone() {
    let db = database();
    let dataset = db
        .create_dataset::<u64>("d", DatasetDef::new("id", KeyType::Int))
        .unwrap();
    let mut batch = dataset.batch();
    for id in 0..20_000_u64 {
        batch
            .put(&json!({"id": id, "text": "x".repeat(50)}))
            .unwrap();
    }
    batch.commit().unwrap();
    db.flush().unwrap();
    for (condition, candidates, scan) in [
        ("id = 700", 1, "the record of a key"),
        ("id in (7, 19000, 20001)", 2, "the records of 3 keys"),
        (
            "id > 100 and id <= 150 and text ^= x",
            50,
            "the records in a range of keys",
        ),
        ("id = 5 or id = 7", 2, "the records of 2 keys"),
        ("id = 5 or id in (7, 9)", 3, "the records of 3 keys"),
        ("id = 8 or id = 7 or id = 8", 2, "the records of 2 keys"),
        ("id < 3", 3, "the records in a range of keys"),
        ("id = 700 or text = y", 20_000, "all records"),
        ("id != 700", 20_000, "all records"),
    ] {
        let query = dataset.query().filter(condition.parse().unwrap());
        let (_, explain) = query.count_explained().unwrap();
        assert_eq!(explain.steps.candidates, candidates, "{condition}");
        assert_eq!(explain.plan.scan.as_deref(), Some(scan), "{condition}");
        let noted = !explain.notes.is_empty();
        assert_eq!(
            noted,
            condition.contains("text") || scan == "all records",
            "{condition}"
        );
    }
}
