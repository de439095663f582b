//! Values that a type cannot encode, numbers of any length, objects instead of values, duplicate
//! names. A condition on an indexed field finds the same records as a scan with the same condition
//! on an undeclared field with the same values, for every kind of index and every type, lenient or
//! not.

use crate::common;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{
    Doing, check, converge, keys, keys_in_every_way, open, path, seeds, with_strategy,
};
use esker::schema::Tokenizer;
use esker::{
    Dataset, DatasetDef, ErrorKind, Expr, Index, IndexKind, KeyType, Op, Operand, Order, Query,
    Type, field,
};
use esker_sim::by_tier;
use esker_sim::memory::Memory;

const NUMBERS: [&str; 26] = [
    "0",
    "-0.0",
    "1",
    "1.0",
    "1e0",
    "2",
    "2.5",
    "0.1",
    "0.10",
    "0.1000000000000000055511151231257827",
    "0.30000000000000004",
    "9007199254740992",
    "9007199254740993",
    "9007199254740993.0",
    "9007199254740992.5",
    "18446744073709551615",
    "18446744073709551616",
    "18446744073709551617",
    "-9223372036854775809",
    "211230200427052203004205123",
    "211230200427052203004205124",
    "1e23",
    "99999999999999999999999",
    "1e300",
    "5e-324",
    "3e-324",
];

const OTHERS: [&str; 12] = [
    "\"\"",
    "\"a\"",
    "\"ab\"",
    "\"1\"",
    "\"0.1\"",
    "\"true\"",
    "\"9007199254740993\"",
    "true",
    "false",
    "{}",
    "{\"x\":1}",
    "null",
];

fn value(rng: &mut fastrand::Rng) -> &'static str {
    if rng.bool() {
        NUMBERS[rng.usize(..NUMBERS.len())]
    } else {
        OTHERS[rng.usize(..OTHERS.len())]
    }
}

/// The field at a path: a value, an array of some, or a duplicate, of which the last one counts.
fn field_of(name: &str, rng: &mut fastrand::Rng, fits: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut one = || loop {
        let value = value(rng);
        if fits(value) {
            break value;
        }
    };
    let (first, second) = (one(), one());
    match rng.usize(0..12) {
        0 => vec![],
        1 => vec![format!("\"{name}\":[]")],
        2 | 3 => vec![format!("\"{name}\":[{first},{second}]")],
        4 => vec![format!("\"{name}\":[[{first}],{second},null]")],
        5 => vec![
            format!("\"{name}\":{first}"),
            format!("\"{name}\":{second}"),
        ],
        _ => vec![format!("\"{name}\":{first}")],
    }
}

fn operand(rng: &mut fastrand::Rng) -> Operand {
    match rng.usize(0..12) {
        0 => Operand::from(rng.i64(-1..3)),
        1 => Operand::from([0.1, 2.5, 1e23, 9_007_199_254_740_992.0][rng.usize(..4)]),
        2 => Operand::from(rng.bool()),
        3 => Operand::text(["a", "", "true", "ab"][rng.usize(..4)]),
        4 => Operand::text("1e400"),
        _ => Operand::text(NUMBERS[rng.usize(..NUMBERS.len())]),
    }
}

/// The same condition on two paths.
fn conditions(rng: &mut fastrand::Rng, depth: usize) -> (Expr, Expr) {
    let both = |on: &dyn Fn(&str) -> Expr| (on("v"), on("w"));
    match rng.usize(0..if depth == 0 { 9 } else { 13 }) {
        0 => both(&|p| field(p).exists()),
        1 => {
            let some: Vec<Operand> = (0..rng.usize(0..4)).map(|_| operand(rng)).collect();
            both(&|p| field(p).one_of(some.clone()))
        }
        2 => {
            let (lo, hi) = (operand(rng), operand(rng));
            both(&|p| field(p).ge(lo.clone()) & field(p).lt(hi.clone()))
        }
        3 => {
            let operand = operand(rng);
            both(&|p| field(p).contains_text(operand.clone()))
        }
        9 => {
            let (v, w) = conditions(rng, depth - 1);
            (!v, !w)
        }
        10 => {
            let ((v, w), (x, y)) = (conditions(rng, depth - 1), conditions(rng, depth - 1));
            (v | x, w | y)
        }
        11 | 12 => {
            let ((v, w), (x, y)) = (conditions(rng, depth - 1), conditions(rng, depth - 1));
            (v & x, w & y)
        }
        _ => {
            let ops = [Op::Eq, Op::Ne, Op::Ge, Op::Le, Op::Gt, Op::Lt];
            let (op, operand) = (ops[rng.usize(..ops.len())], operand(rng));
            both(&|p| field(p).compare(op, operand.clone()))
        }
    }
}

fn bulk(query: &Query) -> Vec<String> {
    let mut found = Vec::new();
    let visit = &mut |record: esker::Record| {
        found.push(record.key().to_string());
        ControlFlow::Continue(())
    };
    query.clone().order(Order::Key).visit(visit).unwrap();
    found
}

#[test]
fn an_index_gives_what_a_scan_gives_whatever_the_values_are() {
    let (mut compared, mut found_some) = (0, 0);
    let types = [Type::Float, Type::Int, Type::String, Type::Bool];
    for seed in seeds(by_tier(32, 64)) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kinds = IndexKind::ALL;
        let kind = kinds[seed as usize % kinds.len()];
        let ty = types[seed as usize / kinds.len() % types.len()];
        let lenient = rng.bool();
        let db = open(Arc::new(Memory::new())).unwrap();
        let mut index = Index::new(kind).of_type(ty);
        if lenient {
            index = index.lenient();
        }
        if ty == Type::String && kind.is_standalone() && rng.bool() {
            index = index.tokenizer(Tokenizer::Prefix);
        }
        // Half of them declare the field after the records are written.
        let is_late = rng.bool();
        let mut def = DatasetDef::new(path("id"), KeyType::Int);
        if !is_late {
            def = def.index(path("v"), index);
        }
        let def = with_strategy(def, rng.usize(0..20));
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        let fits = |value: &str| {
            let is_number = value.starts_with(|c: char| c == '-' || c.is_ascii_digit());
            lenient
                || value.starts_with('{')
                || value == "null"
                || match ty {
                    Type::Float => is_number,
                    Type::Int => value.parse::<i64>().is_ok() || value.parse::<u64>().is_ok(),
                    Type::String => value.starts_with('"'),
                    _ => matches!(value, "true" | "false"),
                }
        };
        let mut bodies: BTreeMap<i64, String> = BTreeMap::new();
        for _ in 0..120 {
            let id = rng.i64(0..50);
            let mut fields = vec![format!("\"id\":{id}")];
            let own = field_of("v", &mut rng, &fits);
            let same = own.iter().map(|field| field.replacen("\"v\"", "\"w\"", 1));
            fields.extend(own.iter().cloned().chain(same));
            let body = format!("{{{}}}", fields.join(","));
            let _doing = Doing(format!("seed {seed} {kind} {ty} {lenient}: put {body}"));
            dataset.put_json(body.as_bytes()).unwrap();
            bodies.insert(id, body);
            match rng.usize(0..40) {
                0 | 1 => db.flush().unwrap(),
                2 => converge(&db),
                3 => {
                    let key = dataset.parse_key(&id.to_string()).unwrap();
                    dataset.delete(&key).unwrap();
                    bodies.remove(&id);
                }
                _ => {}
            }
        }
        if is_late {
            let _doing = Doing(format!("seed {seed} {kind} {ty} {lenient}: index"));
            dataset.add_index("v", index).run().unwrap();
        }
        assert!(dataset.query().count().unwrap() == bodies.len() as u64);
        for round in 0..60 {
            let (v, w) = conditions(&mut rng, 2);
            let _doing = Doing(format!(
                "seed {seed} round {round} {kind} {ty} {lenient}: {v}"
            ));
            match dataset.find(v.clone()).run().err().map(|e| e.kind()) {
                None => {}
                // A lenient field is compared with anything.
                Some(ErrorKind::BadInput) if !lenient => continue,
                other => panic!("{other:?}"),
            }
            let Ok(right) = common::try_rows(dataset.find(w)) else {
                continue;
            };
            let right: Vec<String> = right.into_iter().map(|row| row.0).collect();
            compared += 1;
            found_some += usize::from(!right.is_empty() && right.len() < bodies.len());
            let query = dataset.find(v.clone());
            assert_eq!(keys(query.clone()), right);
            keys_in_every_way(&query);
            let mut by_key: Vec<i64> = right.iter().map(|key| key.parse().unwrap()).collect();
            by_key.sort_unstable();
            let by_key: Vec<String> = by_key.iter().map(i64::to_string).collect();
            assert_eq!(bulk(&query), by_key);
            let read: Expr = v.to_string().parse().unwrap();
            assert_eq!(
                keys(dataset.find(read).limit(Some(3))),
                right[..right.len().min(3)]
            );
        }
        check(&db);
        check_counts(&dataset, &bodies, kind);
    }
    assert!(
        compared > by_tier(1000, 1500) && found_some > 500,
        "{compared} {found_some}"
    );
}

/// The number of records with an object at the path.
fn check_counts(dataset: &Dataset, bodies: &BTreeMap<i64, String>, kind: IndexKind) {
    let with_object = bodies.values().filter(|body| {
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        fn has(json: &serde_json::Value) -> bool {
            match json {
                serde_json::Value::Array(all) => all.iter().any(has),
                other => other.is_object(),
            }
        }
        has(&json["v"])
    });
    let expected = match kind {
        IndexKind::None => 0,
        _ => with_object.count() as u64,
    };
    let counted = dataset.unindexed().unwrap();
    assert_eq!(counted.get(&path("v")).copied().unwrap_or(0), expected);
}

/// A store from before rounded floats were distinguished: numbers of any length, times, an expiry
/// time, an index added later, duplicate names.
#[test]
fn a_store_of_an_earlier_version_answers_as_before() {
    let fs = common::unpack(include_bytes!("../fixtures/values-before.store"));
    let db = open(Arc::new(fs)).unwrap();
    let dataset = db.dataset::<esker::Key>("d").unwrap();
    let answers = |written: &[(&str, &[&str])]| {
        for (condition, found) in written {
            let expr: Expr = condition.parse().unwrap();
            let query = dataset.find(expr).order(esker::Order::Oldest);
            assert_eq!(keys(query.clone()), *found, "{condition}");
            keys_in_every_way(&query);
        }
    };
    let as_before: &[(&str, &[&str])] = &[
        ("f = 0.1", &["1"]),
        ("f > 1e20", &["2", "3"]),
        ("f = 18446744073709551616", &[]),
        ("g = 9007199254740992", &["1", "2"]),
        ("g > 1 and g < 3", &["3"]),
        ("at >= 2023-11-14 and at < 2023-11-15", &["1", "2"]),
        ("at > 2500-01-01", &["3"]),
        ("n > 3 and n < 8", &["1"]),
        ("s = b", &["2"]),
        ("late = 0.12345678901234568", &["3"]),
        ("late > 0.1", &["3"]),
        ("late > 0.1 and f > 1", &["3"]),
    ];
    answers(as_before);
    // If a condition needs the exact number, the record decides.
    answers(&[
        ("f = 211230200427052203004205123", &["2"]),
        ("f != 211230200427052203004205123", &["1", "3"]),
        ("f > 211230200427052203004205123", &["3"]),
        ("late = 0.12345678901234567891", &["3"]),
        ("late = 0.12345678901234567892", &[]),
        ("x = 1", &[]),
        ("x = 2", &["1"]),
    ]);
    check(&db);
    // New records beside the old ones.
    dataset
        .put_json(br#"{"id":5,"g":9007199254740993,"late":0.5,"n":{"x":1}}"#)
        .unwrap();
    db.flush().unwrap();
    answers(&[
        ("g = 9007199254740993", &["1", "5"]),
        ("n exists", &["1", "2", "5"]),
        ("late > 0.1", &["3", "5"]),
    ]);
    dataset
        .switch_index("late", IndexKind::Composite)
        .run()
        .unwrap();
    dataset.switch_index("f", IndexKind::Recent).run().unwrap();
    answers(&[
        ("late = 0.12345678901234567891", &["3"]),
        ("late = 0.12345678901234568", &[]),
        ("f = 211230200427052203004205123", &["2"]),
    ]);
    check(&db);
}

/// Texts of times, and the times in microseconds since 1970.
const TIMES: [(&str, i64); 9] = [
    ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
    ("2023-11-14 22:13:20", 1_700_000_000_000_000),
    ("2023-11-14T23:13:20.000001+0100", 1_700_000_000_000_001),
    ("2023-11-14", 1_699_920_000_000_000),
    ("2023/11/14 22:13:20,123 UTC", 1_700_000_000_123_000),
    ("20231114T221320Z", 1_700_000_000_000_000),
    ("1969-12-31T23:59:59.999999Z", -1),
    ("1850-01-01", -3_786_825_600_000_000),
    ("2600-01-01T00:00Z", 19_880_899_200_000_000),
];

/// A number in a unit, as in a record, and its time.
fn number_of(per_second: i128, rng: &mut fastrand::Rng) -> (String, i64) {
    let seconds = [1_700_000_000_i128, 1_699_920_000, 0, -1, 1_700_000_001][rng.usize(..5)];
    let part = [0, 1, 123, 999, 999_999_999][rng.usize(..5)] % per_second;
    let number = seconds * per_second + part;
    let micros = (number * 1_000_000).div_euclid(per_second);
    // Half a unit as a decimal, if it is a whole number of microseconds.
    let half = 500_000 / per_second.min(1_000_000);
    if rng.usize(0..6) == 0 && half > 0 && per_second < 1_000_000 {
        let half = if number < 0 { -half } else { half };
        return (format!("{number}.5"), (micros + half) as i64);
    }
    (number.to_string(), micros as i64)
}

#[test]
fn times_of_every_unit_are_found_by_every_kind_of_index() {
    let mut found_some = 0;
    let units = [
        (Type::Time, 1),
        (Type::TimeS, 1),
        (Type::TimeMs, 1000),
        (Type::TimeUs, 1_000_000),
        (Type::TimeNs, 1_000_000_000),
    ];
    for seed in seeds(45) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kinds = IndexKind::ALL;
        let kind = kinds[seed as usize % kinds.len()];
        let (ty, per_second) = units[seed as usize / kinds.len() % units.len()];
        let db = open(Arc::new(Memory::new())).unwrap();
        let index = Index::new(kind).of_type(ty);
        let is_late = rng.bool();
        let mut def = DatasetDef::new(path("id"), KeyType::Int);
        if !is_late {
            def = def.index(path("t"), index);
        }
        let def = with_strategy(def, rng.usize(0..20));
        let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
        let mut model: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        let mut order: Vec<i64> = Vec::new();
        for _ in 0..100 {
            let id = rng.i64(0..40);
            let mut times = Vec::new();
            let mut texts = Vec::new();
            for _ in 0..[0, 1, 1, 1, 2][rng.usize(..5)] {
                let (text, micros) = if rng.bool() {
                    number_of(per_second, &mut rng)
                } else {
                    let (text, micros) = TIMES[rng.usize(..TIMES.len())];
                    (format!("{text:?}"), micros)
                };
                times.push(micros);
                texts.push(text);
            }
            let body = format!("{{\"id\":{id},\"t\":[{}]}}", texts.join(","));
            let _doing = Doing(format!("seed {seed} {kind} {ty}: put {body}"));
            dataset.put_json(body.as_bytes()).unwrap();
            model.insert(id, times);
            order.retain(|known| *known != id);
            order.push(id);
            if rng.usize(0..30) == 0 {
                converge(&db);
            }
        }
        if is_late {
            dataset.add_index("t", index).run().unwrap();
            // Without a given unit, the unit is inferred from the records.
            let found = dataset.def().indexes[0].ty;
            assert!(found.is_allowed_by(ty), "{found}");
        }
        for _ in 0..40 {
            let (text, micros) = if rng.bool() {
                number_of(per_second, &mut rng)
            } else {
                let (text, micros) = TIMES[rng.usize(..TIMES.len())];
                (text.to_owned(), micros)
            };
            let ops = [Op::Eq, Op::Ne, Op::Ge, Op::Le, Op::Gt, Op::Lt];
            let op = ops[rng.usize(..ops.len())];
            let expr = field("t").compare(op, Operand::text(text));
            let _doing = Doing(format!("seed {seed} {kind} {ty}: {expr}"));
            let meets = |time: &i64| match op {
                Op::Eq => *time == micros,
                Op::Ne => *time != micros,
                Op::Ge => *time >= micros,
                Op::Le => *time <= micros,
                Op::Gt => *time > micros,
                _ => *time < micros,
            };
            let newest = order.iter().rev();
            let right: Vec<String> = newest
                .filter(|id| model[*id].iter().any(meets))
                .map(i64::to_string)
                .collect();
            found_some += usize::from(!right.is_empty() && right.len() < model.len());
            let query = dataset.find(expr);
            assert_eq!(keys(query.clone()), right);
            keys_in_every_way(&query);
        }
        check(&db);
    }
    assert!(found_some > 300, "{found_some}");
}
