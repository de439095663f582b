//! Numbers are read for what they are, floats to the last bit, whichever features `serde_json` is
//! built with. Built alone (`cargo test -p esker-model`), this crate has none of the features that
//! change how numbers are read, and with its own feature `arbitrary-precision` that one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use esker_model::Key;
use esker_model::condition::{Expr, Filter, field};
use esker_model::definition::{DatasetDef, Index, StoredAttribute, StoredChange, StoredDef};
use esker_model::geometry::{Area, Point, Space};
use esker_model::schema::{
    Extracted, Extraction, KeyType, Path, Scalar, Type, Value, Values, Wanted, stand_in,
};

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

/// Texts of numbers. Many are hard to read: long ones, numbers near the middle of two floats, the
/// smallest and the largest.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "0.1",
        "1e23",
        "8.41e21",
        "9007199254740993.0",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "123456789012345678901234567890",
        "-9223372036854775808",
        "-9223372036854775809",
        "5e-324",
        "2.2250738585072011e-308",
        "2.2250738585072014E-308",
        "1.7976931348623157e308",
        "0.500000000000000166533453693773481063544750213623046875",
        "3.518437208883201171875E+13",
        "62.5364939768271845828",
        "-0",
        "-0.0",
        "0e9999",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut rng = fastrand::Rng::with_seed(1);
    while texts.len() < 20_000 {
        let float = f64::from_bits(rng.u64(..));
        if float.is_finite() {
            texts.push(format!("{float:?}"));
            texts.push(format!("{float:.17e}"));
        }
        texts.push(format!("{}.{}", rng.i32(..), rng.u64(..)));
        texts.push(format!(
            "{}{}e{}",
            rng.u64(..),
            rng.u64(..),
            rng.i32(-320..260)
        ));
    }
    texts.retain(|text| text.parse::<f64>().unwrap().is_finite());
    texts
}

/// The sign and the significant digits of a number, and the power of ten behind the last digit.
fn digits(text: &str) -> (bool, String, i64) {
    let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole.trim_start_matches('-'), fraction].concat();
    let shorter = all.trim_end_matches('0');
    let dropped = (all.len() - shorter.len()) as i64 - fraction.len() as i64;
    let shorter = shorter.trim_start_matches('0').to_owned();
    if shorter.is_empty() {
        (false, shorter, 0)
    } else {
        (
            text.starts_with('-'),
            shorter,
            power.parse::<i64>().unwrap() + dropped,
        )
    }
}

#[test]
fn declared_floats_are_exact() {
    let attributes = vec![(path("n"), Type::Float), (path("in.list"), Type::Float)];
    let extraction = Extraction::new((path("id"), KeyType::Int), attributes);
    let mut out = Extracted::default();
    for text in texts() {
        let record = format!(r#"{{"id": 7, "n": {text}, "in": [{{"list": [ {text} ]}}]}}"#);
        extraction.extract_new(record.as_bytes(), &mut out).unwrap();
        let mut wanted = Vec::new();
        let float: f64 = text.parse().unwrap();
        Value::Float(float).encode(&mut wanted);
        // A number that no float represents is distinguished from the nearest float.
        if digits(&text) != digits(&format!("{float:e}")) {
            wanted = stand_in(Type::Float).unwrap().to_vec();
        }
        for attribute in 0..2 {
            let found: Vec<&[u8]> = out.values(attribute).collect();
            assert_eq!(found, [wanted.as_slice()], "{text}");
        }
    }
}

#[test]
fn floats_that_conditions_ask_for_are_exact() {
    for text in texts() {
        let float: f64 = text.parse().unwrap();
        let body = format!(r#"{{"n": {text}}}"#);
        let holds = |expr: Expr| Filter::new(&expr).matches_json(body.as_bytes());
        // Integers are compared exactly, so an integer that is not a float equals no float.
        let is_int = text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
        if !is_int || text.parse::<i128>().unwrap() == float as i128 {
            assert!(holds(field("n").eq(float)), "{text}");
            assert!(!holds(field("n").gt(float)), "{text}");
            assert!(!holds(field("n").lt(float)), "{text}");
            assert!(!holds(field("n").eq(float.next_up())), "{text}");
        }
    }
}

#[test]
fn other_reads_are_exact() {
    let values = Values::new(&[path("n")]);
    for text in texts() {
        let mut found = Vec::new();
        assert!(values.visit(
            format!(r#"{{"n": [{text}]}}"#).as_bytes(),
            &mut |_, value| {
                let (Scalar::Int(_) | Scalar::Float(_)) = value else {
                    panic!("{value:?}");
                };
                found.push(value.as_f64().unwrap().to_bits());
            }
        ));
        assert_eq!(found, [text.parse::<f64>().unwrap().to_bits()], "{text}");
    }
}

#[test]
fn corners_of_polygons_are_exact() {
    // Near the middle of two floats.
    let text = "0.500000000000000166533453693773481063544750213623046875";
    let x: f64 = text.parse().unwrap();
    let polygon = format!(
        r#"{{"type": "Polygon", "coordinates": [[[0, 0], [{text}, 0], [{text}, 1], [0, 1], [0, 0]]]}}"#
    );
    let area = Area::from_geojson(Space::Plane, &polygon).unwrap();
    let holds = |x| area.contains(Point::new(Space::Plane, x, 0.5).unwrap());
    assert!(holds(x) && !holds(x.next_up()));
}

#[test]
fn what_is_no_number_or_beyond_all_floats_is_refused() {
    let extraction = Extraction::new((path("id"), KeyType::Int), vec![(path("n"), Type::Float)]);
    let mut out = Extracted::default();
    for text in [
        "1e400",
        "-1e309",
        "\"1\"",
        "\"\\u0031\"",
        "true",
        "[[1e999]]",
        "\"\\ud800\"",
    ] {
        let record = format!(r#"{{"id": 7, "n": {text}}}"#);
        assert!(
            extraction.extract_new(record.as_bytes(), &mut out).is_err(),
            "{text}"
        );
    }
    for text in ["01", "1.", ".5", "+1", "1e", "-", "NaN", "1 2"] {
        let record = format!(r#"{{"id": 7, "n": {text}}}"#);
        assert!(
            extraction.extract_new(record.as_bytes(), &mut out).is_err(),
            "{text}"
        );
    }
}

/// The decoded values of an attribute in a record with a value at `n`, with the stand-in as none;
/// `None` if the record is refused.
fn values_of(at: &str, ty: Type, lenient: bool, value: &str) -> Option<Vec<Option<Value>>> {
    let wanted = Wanted::new(path(at), ty).lenient(lenient);
    let extraction = Extraction::of((path("id"), KeyType::Int), vec![wanted]);
    let mut out = Extracted::default();
    let record = format!(r#"{{"id": 7, "n": [{value}], "x": {{"y": [{value}]}}}}"#);
    extraction.extract_new(record.as_bytes(), &mut out).ok()?;
    let values = out.values(0).map(|bytes| {
        let value = || Value::decode(ty, &mut esker_coding::Reader::new(bytes)).unwrap();
        (Some(bytes) != stand_in(ty)).then(value)
    });
    Some(values.collect())
}

/// A parser may give a number as a map with its text (the feature `arbitrary_precision`).
#[test]
fn a_number_is_no_object() {
    let int = |v| Some(vec![Some(Value::Int(v))]);
    for (number, as_int) in [
        ("0", int(0)),
        ("-0", int(0)),
        ("18446744073709551615", int(i128::from(u64::MAX))),
        ("-9223372036854775808", int(i128::from(i64::MIN))),
        ("18446744073709551616", None),
        ("-9223372036854775809", None),
        ("1.0", None),
        ("1.5", None),
        ("-0.0", None),
        ("1e2", None),
        ("1E-2", None),
    ] {
        let values = |ty, lenient| values_of("n", ty, lenient, number);
        assert_eq!(values(Type::Int, false), as_int, "{number}");
        let lenient = as_int.clone().or(Some(vec![None]));
        // A lenient field takes the text for what it is.
        if number != "-0" {
            assert_eq!(values(Type::Int, true), lenient, "{number}");
        }
        for ty in [Type::String, Type::Bool] {
            assert_eq!(values(ty, false), None, "{ty} {number}");
            assert_eq!(values(ty, true), Some(vec![None]), "{ty} {number}");
        }
        let key = Key::parse(KeyType::Fields, &format!("[{number}]"));
        assert!(
            number == "-0" || key.is_ok() == as_int.is_some(),
            "{number}"
        );
        let holds =
            |expr: Expr| Filter::new(&expr).matches_json(format!("{{\"n\":{number}}}").as_bytes());
        assert!(
            holds(field("n").exists()) && !holds(field("n").eq("a")),
            "{number}"
        );
        assert!(
            holds(field("n").ge(0)) != number.starts_with("-9"),
            "{number}"
        );
    }
    // Beyond all floats: no reader could parse the record.
    for number in ["1e400", "-1e309"] {
        for at in ["n", "absent"] {
            for ty in [Type::Int, Type::Float, Type::String] {
                assert_eq!(values_of(at, ty, true, number), None, "{at} {ty} {number}");
            }
        }
    }
    let keys = Extraction::new((path("id"), KeyType::Int), Vec::new());
    let mut out = Extracted::default();
    for (key, is_key) in [("-0", true), ("5", true), ("1.0", false), ("1e0", false)] {
        let record = format!(r#"{{"id": {key}}}"#);
        let taken = keys.extract_new(record.as_bytes(), &mut out);
        assert_eq!(taken.is_ok(), is_key, "{key}");
    }
}

/// An object in a record that looks like a number of such a parser is an object nevertheless.
#[test]
fn an_object_is_no_number() {
    const NAME: &str = "$serde_json::private::Number";
    for value in [
        "\"5\"",
        "\"1.5\"",
        "\"\\u0035\"",
        "5",
        "1.5",
        "[1]",
        "{}",
        "null",
        "true",
    ] {
        let object = format!(r#"{{"{NAME}":{value},"m":3}}"#);
        for ty in [Type::Int, Type::String] {
            let found = values_of("n", ty, false, &object);
            assert_eq!(found, Some(Vec::new()), "{ty} {object}");
        }
        let below = values_of("n.m", Type::Int, false, &object);
        assert_eq!(below, Some(vec![Some(Value::Int(3))]), "{object}");
    }
    let unreadable = format!(r#"{{"{NAME}":"\ud800"}}"#);
    assert_eq!(values_of("n", Type::Int, false, &unreadable), None);
    assert_eq!(values_of("absent", Type::Int, false, &unreadable), None);
}

/// The order of maps does not change the bytes on disk.
#[test]
fn stored_definitions_keep_the_order_of_their_fields() {
    let def = DatasetDef::new("id", KeyType::Int).index("at", Index::recent().time());
    let stored = StoredDef::new(&def);
    assert_eq!(
        String::from_utf8(stored.to_bytes()).unwrap(),
        concat!(
            r#"{"key":"id","key_type":"int","attributes":[{"id":0,"path":"at","kind":"recent","type":"time"}],"next_id":1,"#,
            r#""maintenance":"deferred","repair":"merge","merging":"lazy-leveled","versions":1,"since":0}"#
        )
    );
    assert_eq!(StoredDef::from_bytes(&stored.to_bytes()), Some(stored));
}

/// Newer settings are stored only if they differ from the default, so other definitions keep their
/// bytes.
#[test]
fn definitions_keep_units_and_lenience() {
    let def = DatasetDef::new("id", KeyType::Int)
        .index("at", Index::lazy().of_type(Type::TimeMs))
        .index("n", Index::lazy().int().lenient())
        .index("f", Index::lazy().float())
        .expires_as("until", Type::TimeNs);
    def.validate().unwrap();
    let stored = StoredDef::new(&def);
    let bytes = stored.to_bytes();
    assert_eq!(
        String::from_utf8(bytes.clone()).unwrap(),
        concat!(
            r#"{"key":"id","key_type":"int","attributes":[{"id":0,"path":"at","kind":"lazy","type":"time_ms"},"#,
            r#"{"id":1,"path":"n","kind":"lazy","type":"int","lenient":true},"#,
            r#"{"id":2,"path":"f","kind":"lazy","type":"float","exact":true}],"next_id":3,"#,
            r#""maintenance":"deferred","repair":"merge","merging":"lazy-leveled","versions":1,"since":0,"#,
            r#""expires":"until","expires_type":"time_ns"}"#
        )
    );
    assert_eq!(StoredDef::from_bytes(&bytes), Some(stored.clone()));
    assert_eq!(stored.def(), def);
    let text = serde_json::to_string(&def).unwrap();
    assert_eq!(serde_json::from_str::<DatasetDef>(&text).unwrap(), def);
    // A definition of an earlier version.
    let before = String::from_utf8(bytes).unwrap();
    let before = before
        .replace(r#","exact":true"#, "")
        .replace(r#","lenient":true"#, "")
        .replace(r#","expires_type":"time_ns""#, "");
    let before = StoredDef::from_bytes(before.as_bytes()).unwrap();
    let exact: Vec<bool> = before.attributes.iter().map(|a| a.exact).collect();
    assert_eq!(exact, [true, true, false]);
    assert!(!before.attributes[1].def.lenient && before.expiry.ty == Type::Time);
    // Unique values, and the state of an index that is being built.
    let def = DatasetDef::new("id", KeyType::Int).index("e", Index::recent().string().unique());
    let mut stored = StoredDef::new(&def);
    stored.change = Some(StoredChange {
        attribute: StoredAttribute {
            since: 7,
            ..stored.attributes[0].clone()
        },
        since: 7,
        tables: 1,
        gathered: true,
    });
    let bytes = stored.to_bytes();
    let text = String::from_utf8(bytes.clone()).unwrap();
    for part in [
        r#"{"id":0,"path":"e","kind":"recent","type":"string","unique":true}]"#,
        r#""since":7,"unique":true,"tables":1,"gathered":true}"#,
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(StoredDef::from_bytes(&bytes), Some(stored.clone()));
    assert_eq!(stored.def(), def);
    let text = serde_json::to_string(&def).unwrap();
    assert!(text.contains(r#""unique":true"#));
    assert_eq!(serde_json::from_str::<DatasetDef>(&text).unwrap(), def);
    let before = text.replace(r#","unique":true"#, "");
    assert!(!serde_json::from_str::<DatasetDef>(&before).unwrap().indexes[0].unique);
    let wrong = DatasetDef::new("id", KeyType::Int).expires_as("until", Type::Int);
    assert!(wrong.validate().is_err());
}

#[cfg(all(feature = "jiff", feature = "chrono"))]
#[test]
fn the_same_time_is_the_same_operand_from_every_library() {
    use std::time::{Duration, SystemTime};

    use esker_model::condition::Operand;

    for nanos in [0, 1, 999, 1000, 1_700_000_000_123_456_789, -1, -1000, -1001] {
        let stamp = jiff::Timestamp::from_nanosecond(nanos).unwrap();
        let date = chrono::DateTime::from_timestamp_nanos(i64::try_from(nanos).unwrap());
        let distance = Duration::from_nanos(nanos.unsigned_abs().try_into().unwrap());
        let system = if nanos < 0 {
            SystemTime::UNIX_EPOCH - distance
        } else {
            SystemTime::UNIX_EPOCH + distance
        };
        let micros = i64::try_from(nanos.div_euclid(1000)).unwrap();
        let expected = Operand::Value(Value::Time(micros));
        assert_eq!(Operand::from(system), expected, "{nanos}");
        assert_eq!(Operand::from(stamp), expected, "{nanos}");
        assert_eq!(Operand::from(date), expected, "{nanos}");
    }
}
