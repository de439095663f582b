//! Sets of fields beside a walk through the parsed records.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{FieldGatherer, Fields, JsonTypes};

/// The types at each path, as [`Fields::list`] has them.
type Expected = BTreeMap<String, JsonTypes>;

fn type_of(value: &Value) -> JsonTypes {
    match value {
        Value::Null => JsonTypes::NULL,
        Value::Bool(_) => JsonTypes::BOOL,
        Value::Number(number) if number.is_i64() => JsonTypes::INT,
        Value::Number(number) if number.is_u64() => JsonTypes::BIG_INT,
        Value::Number(_) => JsonTypes::FLOAT,
        Value::String(_) => JsonTypes::TEXT,
        Value::Array(_) => JsonTypes::ARRAY,
        Value::Object(_) => JsonTypes::OBJECT,
    }
}

fn expect(record: &Value, all: &mut Expected) {
    for (name, value) in record.as_object().unwrap() {
        expect_at(value, &escaped(name), all);
    }
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('.', "\\.")
}

fn expect_at(value: &Value, path: &str, all: &mut Expected) {
    *all.entry(path.to_string()).or_default() |= type_of(value);
    match value {
        Value::Array(elements) => {
            for element in elements {
                expect_at(element, &format!("{path}[]"), all);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                expect_at(value, &format!("{path}.{}", escaped(name)), all);
            }
        }
        _ => {}
    }
}

fn listed(fields: &Fields) -> Expected {
    let all = fields.list();
    all.map(|field| (field.path().to_string(), field.types()))
        .collect()
}

const NAMES: [&str; 9] = [
    "a",
    "b",
    "user",
    "us",
    "at.x",
    "\\",
    "\"q\"",
    "\u{e9}t\u{e9}",
    "",
];

fn random(rng: &mut fastrand::Rng, depth: usize) -> Value {
    match rng.u8(..if depth == 0 { 8 } else { 12 }) {
        0 => Value::Null,
        1 => Value::Bool(rng.bool()),
        2 => Value::from(rng.i64(-5..5)),
        3 => Value::from(*rng.choice(&[i64::MAX, i64::MIN]).unwrap()),
        4 => Value::from(u64::MAX - rng.u64(..9)),
        5 => Value::from(rng.f64()),
        6 | 7 => Value::from(
            *rng.choice(&["", "x", "\\", "a \"quoted\" one", "]}"])
                .unwrap(),
        ),
        8 | 9 => {
            let elements = (0..rng.usize(..4)).map(|_| random(rng, depth - 1));
            elements.collect()
        }
        _ => object(rng, depth - 1),
    }
}

fn object(rng: &mut fastrand::Rng, depth: usize) -> Value {
    let mut fields = serde_json::Map::new();
    for _ in 0..rng.usize(..5) {
        let name = *rng.choice(&NAMES).unwrap();
        fields.insert(name.to_string(), random(rng, depth));
    }
    Value::Object(fields)
}

/// Replaces or removes a random value.
fn vary(record: &mut Value, rng: &mut fastrand::Rng) {
    let fields = record.as_object_mut().unwrap();
    let names: Vec<String> = fields.keys().cloned().collect();
    let Some(name) = rng.choice(&names) else {
        return;
    };
    let of = &mut fields[name.as_str()];
    match rng.u8(..4) {
        0 => drop(fields.remove(name)),
        _ if of.as_object().is_some_and(|of| !of.is_empty()) => vary(of, rng),
        _ => *of = random(rng, 1),
    }
}

#[test]
fn random_records_have_the_fields_of_a_walk() {
    for seed in 0..400 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut all, mut expected) = (Fields::default(), Expected::new());
        for _ in 0..rng.usize(..6) {
            let (mut part, mut of_part) = (Fields::default(), Expected::new());
            let mut gatherer = FieldGatherer::default();
            let mut last = None;
            for _ in 0..rng.usize(..12) {
                // Often one of the same form, with other values or one field less.
                let mut record = last.take().unwrap_or_else(|| object(&mut rng, 3));
                if rng.bool() {
                    vary(&mut record, &mut rng);
                }
                let json = if rng.bool() {
                    serde_json::to_vec(&record).unwrap()
                } else {
                    serde_json::to_vec_pretty(&record).unwrap()
                };
                part.add(&json);
                gatherer.add(&json);
                last = (rng.u8(..3) > 0).then(|| record.clone());
                expect(&record, &mut of_part);
            }
            assert_eq!(listed(&part), of_part, "seed {seed}");
            assert_eq!(listed(gatherer.fields()), of_part, "seed {seed}");
            let mut stored = Vec::new();
            part.encode(&mut stored);
            let read = Fields::decode(&stored).unwrap();
            assert_eq!(read, part, "seed {seed}");
            all.absorb(&read);
            for (path, types) in of_part {
                *expected.entry(path).or_default() |= types;
            }
        }
        assert_eq!(listed(&all), expected, "seed {seed}");
        assert!(!all.has_more());
    }
}

#[test]
fn text_that_is_no_json_leaves_a_set_that_says_so() {
    let whole = br#"{"a": [1, {"b\n": "x"}], "c": -1.5e3, "d": true, "e": null}"#;
    for end in 0..whole.len() {
        let mut fields = Fields::default();
        fields.add(&whole[..end]);
        assert!(fields.has_more(), "{end}");
        let mut stored = Vec::new();
        fields.encode(&mut stored);
        assert_eq!(Fields::decode(&stored), Some(fields));
    }
    // Cut in the middle of what fits a template.
    for end in 0..whole.len() {
        let mut gatherer = FieldGatherer::default();
        gatherer.add(whole);
        gatherer.add(whole);
        assert!(!gatherer.fields().has_more());
        gatherer.add(&whole[..end]);
        assert!(gatherer.fields().has_more(), "{end}");
    }
    for wrong in [
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":x}",
        "{a:1}",
        "[1 2]",
        "{\"a\":trua}",
    ] {
        let mut fields = Fields::default();
        fields.add(wrong.as_bytes());
        assert!(fields.has_more(), "{wrong}");
    }
    let mut fields = Fields::default();
    fields.add(&vec![b'['; 10_000_000]);
    assert!(fields.has_more());
}

#[test]
fn a_set_is_bounded() {
    let mut fields = Fields::default();
    for n in 0..3000 {
        fields.add(format!(r#"{{"id": 1, "of": {{"n{n}": 1}}}}"#).as_bytes());
    }
    assert!(fields.has_more());
    assert_eq!(fields.list().count(), super::tree::MAX_FIELDS);
    let mut long = Fields::default();
    for n in 0..100 {
        long.add(format!(r#"{{"{n}{}": 1}}"#, "x".repeat(1000)).as_bytes());
    }
    assert!(long.has_more() && long.list().count() < 70);
    let mut deep = Fields::default();
    deep.add(format!("{}1{}", r#"{"a":"#.repeat(30), "}".repeat(30)).as_bytes());
    assert!(deep.has_more());
    assert_eq!(deep.list().count(), super::tree::MAX_LEVELS);
    for mut set in [fields, long, deep] {
        let mut stored = Vec::new();
        set.encode(&mut stored);
        assert_eq!(Fields::decode(&stored), Some(set.clone()));
        let mut other = Fields::default();
        other.add(br#"{"another": 1}"#);
        set.absorb(&other);
        assert!(set.has_more());
    }
}

#[test]
fn paths_pass_arrays() {
    let mut fields = Fields::default();
    fields.add(br#"{"tags": ["a", 7], "items": [[{"price": 1.5}], {"price": null}]}"#);
    let types = |path: &str| fields.types_at(&path.parse().unwrap());
    assert_eq!(types("tags"), JsonTypes::TEXT | JsonTypes::INT);
    assert_eq!(types("items.price"), JsonTypes::FLOAT | JsonTypes::NULL);
    assert!(types("items.cost").is_empty());
    assert!(fields.has(&"items".parse().unwrap()));
    assert!(!fields.has(&"item".parse().unwrap()));
}
