use std::cmp::Ordering;
use std::str::FromStr;

use esker_coding::Reader;

use super::*;
use crate::geometry::{Point, Space};
use crate::range::Range;

fn in_range(range: &ValueRange, encoded: &[u8]) -> bool {
    Range::between(range.0.clone(), range.1.clone()).contains(encoded)
}

const SEED: u64 = 0x5eed_0001;

/// The order of values by definition, as a reference for the encodings.
fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b).unwrap(),
        (Value::String(a), Value::String(b)) => a.chars().cmp(b.chars()),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Time(a), Value::Time(b)) => a.cmp(b),
        _ => panic!("values of two types"),
    }
}

fn random_string(rng: &mut fastrand::Rng) -> String {
    const CHARS: [char; 12] = [
        '\0',
        '\u{1}',
        'a',
        'b',
        '\u{7f}',
        '\u{80}',
        '\u{ff}',
        '\u{7ff}',
        '\u{ffff}',
        '\u{d7ff}',
        '\u{10000}',
        '\u{10ffff}',
    ];
    (0..rng.usize(..5))
        .map(|_| CHARS[rng.usize(..CHARS.len())])
        .collect()
}

fn random_value(t: Type, rng: &mut fastrand::Rng) -> Value {
    match t {
        Type::Int if rng.bool() => Value::Int(i128::from(rng.u64(..) >> rng.u32(..64))),
        Type::Int => Value::Int(-i128::from(rng.u64(..=1 << 63) >> rng.u32(..64))),
        Type::Time | Type::TimeS | Type::TimeMs | Type::TimeUs | Type::TimeNs => {
            Value::Time(rng.i64(..) >> rng.u32(..64))
        }
        Type::Float => loop {
            let v = f64::from_bits(rng.u64(..));
            if v.is_finite() {
                return Value::Float(v);
            }
        },
        Type::String => Value::String(random_string(rng)),
        Type::Bool => Value::Bool(rng.bool()),
        Type::Point => {
            let (x, y) = (rng.f64() * 360.0 - 180.0, rng.f64() * 180.0 - 90.0);
            Value::Point(Space::Sphere, Point::new(Space::Sphere, x, y).unwrap())
        }
        Type::PlanePoint => loop {
            let (x, y) = (f64::from_bits(rng.u64(..)), f64::from_bits(rng.u64(..)));
            if let Ok(point) = Point::new(Space::Plane, x, y) {
                return Value::Point(Space::Plane, point);
            }
        },
        Type::PointTime | Type::PlanePointTime => {
            let point = if t == Type::PointTime {
                Type::Point
            } else {
                Type::PlanePoint
            };
            at_time(random_value(point, rng), rng.i64(..) >> rng.u32(..64))
        }
        Type::Compound => panic!("several fields have tests of their own: compound.rs"),
    }
}

fn at_time(point: Value, micros: i64) -> Value {
    match point {
        Value::Point(space, point) => Value::PointTime(space, point, micros),
        other => other,
    }
}

fn corner_values(t: Type) -> Vec<Value> {
    match t {
        Type::Int => {
            let mut all = vec![i128::from(i64::MIN), i128::from(u64::MAX), 0];
            for shift in 0..64 {
                for around in -1..=1 {
                    all.push((1i128 << shift) + around);
                    all.push((-(1i128 << shift) + around).max(i128::from(i64::MIN)));
                }
            }
            all.into_iter().map(Value::Int).collect()
        }
        Type::Time | Type::TimeS | Type::TimeMs | Type::TimeUs | Type::TimeNs => [
            i64::MIN,
            i64::MIN + 1,
            -256,
            -255,
            -1,
            0,
            1,
            255,
            256,
            i64::MAX,
        ]
        .map(Value::Time)
        .into(),
        Type::Float => {
            let positive = [
                0.0,
                5e-324,
                1e-310,
                f64::MIN_POSITIVE,
                0.1,
                1.0,
                1.5,
                1e300,
                f64::MAX,
            ];
            positive
                .into_iter()
                .flat_map(|v| [Value::Float(v), Value::Float(-v)])
                .collect()
        }
        Type::String => [
            "", "\0", "\0\0", "\0\u{1}", "\u{1}", "a", "a\0", "a\0b", "ab", "b",
        ]
        .map(|s| Value::String(s.to_owned()))
        .into(),
        Type::Bool => vec![Value::Bool(false), Value::Bool(true)],
        Type::Point | Type::PlanePoint => {
            let space = t.space().unwrap();
            let corners = [
                (0.0, 0.0),
                (-180.0, -90.0),
                (180.0, 90.0),
                (-0.0, 5e-324),
                (179.99999999999997, 89.99999999999999),
            ];
            let value = |(x, y)| Value::Point(space, Point::new(space, x, y).unwrap());
            corners.map(value).into()
        }
        Type::PointTime => {
            let times = [i64::MIN, -1, 0, (1 << 39) - 1, 1 << 39, i64::MAX];
            let points = corner_values(Type::Point).into_iter();
            let at = |point: Value| times.map(|micros| at_time(point.clone(), micros));
            points.flat_map(at).collect()
        }
        Type::PlanePointTime => {
            let points = corner_values(Type::PlanePoint).into_iter();
            points.map(|point| at_time(point, 7)).collect()
        }
        Type::Compound => panic!("several fields have tests of their own: compound.rs"),
    }
}

fn values(t: Type, rng: &mut fastrand::Rng) -> Vec<Value> {
    let mut all = corner_values(t);
    all.extend((0..300).map(|_| random_value(t, rng)));
    all
}

#[test]
fn byte_order_is_value_order_and_no_encoding_begins_another() {
    let mut rng = fastrand::Rng::with_seed(SEED);
    for t in Type::SCALAR {
        let all = values(t, &mut rng);
        let encoded: Vec<_> = all.iter().map(Value::encoded).collect();
        for (a, ea) in all.iter().zip(&encoded) {
            for (b, eb) in all.iter().zip(&encoded) {
                assert_eq!(order(a, b), ea.cmp(eb), "{t}: {a:?} and {b:?}, seed {SEED}");
                assert!(
                    ea == eb || !eb.starts_with(ea),
                    "{t}: {a:?} begins {b:?}, seed {SEED}"
                );
            }
        }
    }
}

#[test]
fn values_come_back_from_bytes_and_from_text() {
    let mut rng = fastrand::Rng::with_seed(SEED + 1);
    for t in Type::ALL {
        for v in values(t, &mut rng) {
            let mut bytes = v.encoded();
            let length = bytes.len();
            bytes.extend_from_slice(b"\xff\x00rest");
            let mut input = Reader::new(&bytes);
            assert_eq!(Value::decode(t, &mut input), Some(v.clone()), "{t}");
            assert_eq!(input.rest(), b"\xff\x00rest");
            assert_eq!(
                Value::split(t, &bytes),
                Some((&bytes[..length], &b"\xff\x00rest"[..]))
            );
            for cut in 0..length {
                assert_eq!(Value::decode(t, &mut Reader::new(&bytes[..cut])), None);
                assert_eq!(Value::split(t, &bytes[..cut]), None);
            }
            assert_eq!(Value::parse(t, &v.to_string()), Ok(v.clone()), "{t}: {v}");
        }
    }
}

#[test]
fn small_numbers_are_short_and_minus_zero_is_zero() {
    assert_eq!(Value::Int(0).encoded(), [0x80]);
    assert_eq!(Value::Int(7).encoded(), [0x81, 7]);
    assert_eq!(Value::Int(-7).encoded(), [0x7f, !7]);
    assert_eq!(Value::Int(i128::from(u64::MAX)).encoded().len(), 9);
    assert_eq!(Value::Float(-0.0).encoded(), Value::Float(0.0).encoded());
    assert_eq!(
        Value::Int(i128::MAX).encoded(),
        Value::Int(i128::from(u64::MAX)).encoded()
    );
}

#[test]
fn only_canonical_bytes_decode() {
    let decode = |t, bytes: &[u8]| Value::decode(t, &mut Reader::new(bytes));
    assert_eq!(decode(Type::Int, &[0x81, 0]), None, "leading zero");
    assert_eq!(decode(Type::Int, &[0x7f, 0xff]), None, "minus zero");
    assert_eq!(
        decode(Type::Int, &[0x89, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        None,
        "too long"
    );
    assert_eq!(
        decode(Type::Int, &[0x78, 0, 0, 0, 0, 0, 0, 0, 0]),
        None,
        "below i64"
    );
    assert_eq!(
        decode(Type::Time, &Value::Int(1 << 63).encoded()),
        None,
        "above i64"
    );
    assert_eq!(decode(Type::Float, &[0xff; 8]), None, "NaN");
    assert_eq!(
        decode(Type::Float, &Value::Float(f64::INFINITY).encoded()),
        None
    );
    assert_eq!(
        decode(Type::Float, &[0x7f, 255, 255, 255, 255, 255, 255, 255]),
        None,
        "-0.0"
    );
    assert_eq!(decode(Type::String, &[b'a', 0, 2]), None, "unknown escape");
    assert_eq!(decode(Type::String, &[0xff, 0, 1]), None, "not UTF-8");
    assert_eq!(decode(Type::Bool, &[2]), None);
}

#[test]
fn random_bytes_never_panic() {
    let mut rng = fastrand::Rng::with_seed(SEED + 2);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..rng.usize(..16))
            .map(|_| rng.u8(..) >> rng.u32(..8))
            .collect();
        for t in Type::ALL {
            let mut input = Reader::new(&bytes);
            if let Some(v) = Value::decode(t, &mut input) {
                let used = bytes.len() - input.rest().len();
                assert_eq!(v.encoded(), &bytes[..used], "not canonical, seed {SEED}");
            }
            Value::split(t, &bytes);
        }
        decode_key(KeyType::Int, &bytes);
        decode_key(KeyType::String, &bytes);
    }
}

#[test]
fn a_prefix_range_holds_exactly_the_strings_with_the_prefix() {
    let mut rng = fastrand::Rng::with_seed(SEED + 3);
    let strings: Vec<String> = (0..300).map(|_| random_string(&mut rng)).collect();
    for prefix in &strings {
        let range = string_prefix_range(prefix);
        for s in &strings {
            let encoded = Value::String(s.clone()).encoded();
            let expected = s.starts_with(prefix.as_str());
            assert_eq!(
                in_range(&range, &encoded),
                expected,
                "{prefix:?} {s:?}, seed {SEED}"
            );
        }
    }
}

#[test]
fn times_are_read_as_rfc_3339_or_seconds() {
    let time = |text: &str| match Value::parse(Type::Time, text) {
        Ok(Value::Time(v)) => Some(v),
        _ => None,
    };
    let second = 1_714_566_600_000_000;
    assert_eq!(time("2024-05-01T12:30:00Z"), Some(second));
    assert_eq!(time("2024-05-01 12:30:00z"), Some(second));
    assert_eq!(time("2024-05-01T14:30:00.25+02:00"), Some(second + 250_000));
    assert_eq!(time("2024-05-01T07:00:00-05:30"), Some(second));
    assert_eq!(time("2024-05-01T12:30:00.1234567Z"), Some(second + 123_456));
    assert_eq!(time("1714566600"), Some(second));
    assert_eq!(time("1714566600.123456"), Some(second + 123_456));
    assert_eq!(time("-0.5"), Some(-500_000));
    assert_eq!(time("1970-01-01"), Some(0));
    assert_eq!(time("1969-12-31T23:59:60Z"), Some(0));
    assert_eq!(time("2000-02-29"), Some(951_782_400_000_000));
    assert_eq!(time("0000-01-01"), Some(-62_167_219_200_000_000));
    for wrong in [
        "",
        "now",
        "2023-02-29",
        "1900-02-29",
        "2024-13-01",
        "2024-00-01",
        "2024-5-1",
        "inf",
        "nan",
        "2024-05-01T24:00:00Z",
        "2024-05-01T12:30:00.Z",
        "2024-05-01Z",
        "1e30",
        "99999999999999999999",
        "+999999-01-01",
    ] {
        assert_eq!(time(wrong), None, "{wrong}");
    }
    assert_eq!(Value::Time(second).to_string(), "2024-05-01T12:30:00Z");
    assert_eq!(
        Value::Time(second + 250_000).to_string(),
        "2024-05-01T12:30:00.250Z"
    );
    assert_eq!(Value::Time(-1).to_string(), "1969-12-31T23:59:59.999999Z");
    assert_eq!(
        Value::Time(i64::MAX).to_string(),
        "+294247-01-10T04:00:54.775807Z"
    );
}

#[test]
fn text_of_the_wrong_type_is_explained() {
    for (t, text) in [
        (Type::Int, "3.0"),
        (Type::Int, "18446744073709551616"),
        (Type::Int, "-9223372036854775809"),
        (Type::Float, "NaN"),
        (Type::Float, "1e999"),
        (Type::Bool, "yes"),
        (Type::Time, "yesterday"),
    ] {
        let message = Value::parse(t, text).unwrap_err();
        assert!(
            message.contains(text) && message.contains(t.name()),
            "{message}"
        );
    }
}

#[test]
fn keys_encode_and_decode_within_their_limits() {
    let encode = |t, key: Value| {
        let mut out = Vec::new();
        encode_key(t, &key, &mut out).map(|()| out)
    };
    let text = |s: &str| Value::String(s.to_owned());
    assert_eq!(encode(KeyType::String, text("a\0b")), Ok(b"a\0b".to_vec()));
    assert_eq!(decode_key(KeyType::String, b"a\0b"), Some(text("a\0b")));
    let key = encode(KeyType::Int, Value::Int(-300)).unwrap();
    assert_eq!(decode_key(KeyType::Int, &key), Some(Value::Int(-300)));
    assert_eq!(decode_key(KeyType::Int, &[&key[..], b"x"].concat()), None);
    assert!(encode(KeyType::String, text(&"k".repeat(MAX_PRIMARY_KEY))).is_ok());
    for refused in [
        text(""),
        text(&"k".repeat(MAX_PRIMARY_KEY + 1)),
        Value::Int(1),
    ] {
        assert!(encode(KeyType::String, refused).is_err());
    }
    assert!(encode(KeyType::Int, text("1")).is_err());
    assert_eq!(decode_key(KeyType::String, b""), None);
}

#[test]
fn types_have_names_and_numbers() {
    for t in Type::ALL {
        assert_eq!(Type::from_str(t.name()).unwrap(), t);
        assert_eq!(Type::from_byte(t.to_byte()), Some(t));
    }
    for t in [KeyType::Int, KeyType::String] {
        assert_eq!(KeyType::from_str(&t.to_string()).unwrap(), t);
        assert_eq!(KeyType::from_byte(t.to_byte()), Some(t));
    }
    assert_eq!(Type::from_byte(0), None);
    assert!(
        Type::from_str("date")
            .unwrap_err()
            .to_string()
            .contains("\"date\"")
    );
    assert!(
        KeyType::from_str("bool")
            .unwrap_err()
            .to_string()
            .contains("\"bool\"")
    );
}

#[test]
fn paths_read_back_what_they_print() {
    let names = |text: &str| -> Vec<String> {
        let path = Path::parse(text).unwrap();
        assert_eq!(Path::parse(&path.to_string()), Ok(path.clone()));
        path.names().map(str::to_owned).collect()
    };
    assert_eq!(names("user.name"), ["user", "name"]);
    assert_eq!(names(r"a\.b.c\\"), ["a.b", r"c\"]);
    assert_eq!(names(r"a\=b\<c"), ["a=b<c"]);
    assert_eq!(names("a=b c"), ["a=b c"]);
    for wrong in ["", ".", "a.", ".a", "a..b", r"a\", r"a\b"] {
        assert!(Path::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn types_are_inferred_from_samples() {
    let path = Path::parse("a.b").unwrap();
    let of = |samples: &[&str]| {
        infer(
            &samples.iter().map(|s| s.as_bytes()).collect::<Vec<_>>(),
            &path,
        )
    };
    assert_eq!(
        of(&[r#"{"a":{"b":null}}"#, "{}", "broken", r#"{"a":{"b":1}}"#]),
        Some(Type::Int)
    );
    assert_eq!(
        of(&[r#"{"a":{"b":1}}"#, r#"{"a":{"b":[2,1.5]}}"#]),
        Some(Type::Float)
    );
    assert_eq!(
        of(&[r#"{"a":[{"b":[null,"2024-01-01"]}]}"#]),
        Some(Type::String)
    );
    assert_eq!(
        of(&[r#"{"a":{"b":true}}"#, r#"{"a":{"b":1.5}}"#]),
        Some(Type::Bool)
    );
    assert_eq!(of(&[r#"{"a":1}"#, r#"{"a":{"b":{}}}"#]), None);
    let key = |samples: &[&str]| {
        let samples: Vec<_> = samples.iter().map(|s| s.as_bytes()).collect();
        infer_key(&samples, &Path::parse("id").unwrap()).map(|(ty, _)| ty)
    };
    assert_eq!(key(&[r#"{"id":1}"#, r#"{"id":2}"#]), Some(KeyType::Int));
    assert_eq!(
        key(&[r#"{"id":1}"#, r#"{"id":"2"}"#]),
        Some(KeyType::String)
    );
    assert_eq!(key(&[r#"{"id":1.5}"#]), Some(KeyType::String));
    assert_eq!(key(&["{}"]), None);
}

/// Cells grow with coordinates: the points in a rectangle have cells in the rectangle of its
/// corners' cells.
#[test]
fn cells_are_in_the_order_of_coordinates() {
    let mut rng = fastrand::Rng::with_seed(SEED + 5);
    let apart = |z: u64, from: u32| {
        (0..32).fold(0_u32, |v, bit| {
            v | ((z >> (2 * bit + from)) as u32 & 1) << bit
        })
    };
    for t in [Type::Point, Type::PlanePoint] {
        let all: Vec<(Point, u32, u32)> = values(t, &mut rng)
            .into_iter()
            .map(|value| {
                let z = u64::from_be_bytes(value.encoded()[..8].try_into().unwrap());
                let Value::Point(_, point) = value else {
                    panic!("no point")
                };
                (point, apart(z, 1), apart(z, 0))
            })
            .collect();
        for (a, ax, ay) in &all {
            for (b, bx, by) in &all {
                assert!(a.x() > b.x() || ax <= bx, "{a} {b}");
                assert!(a.y() > b.y() || ay <= by, "{a} {b}");
            }
        }
    }
}

#[test]
fn times_are_read_in_forms_close_to_rfc_3339() {
    let second = 1_714_566_600_000_000;
    for text in [
        "2024-05-01 12:30:00",
        "2024-05-01T12:30:00",
        "2024-05-01T12:30",
        "2024-05-01 12:30Z",
        "2024-05-01T14:30:00+0200",
        "2024-05-01T14:30:00+02",
        "2024-05-01 14:30:00 +02:00",
        "2024-05-01 12:30:00 UTC",
        "2024-05-01 12:30:00 gmt",
        "2024-05-01 12:30:00.000 +0000 UTC",
        "2024-05-01 14:30:00 +0200 CEST",
        "2024-05-01T14:30:00+02:00[Europe/Paris]",
        "2024/05/01 12:30:00",
        "2024-05-01 12:30:00,000",
        "20240501T123000Z",
        "20240501T143000+0200",
        " 2024-05-01T12:30:00Z ",
    ] {
        let parsed = super::time::parse(text);
        assert_eq!(parsed.map(|(micros, _)| micros), Some(second), "{text}");
        let has_offset = text.contains(['Z', '+', 'U', 'g']);
        let said = if has_offset {
            super::time::Offset::Said
        } else {
            super::time::Offset::Assumed
        };
        assert_eq!(parsed.map(|(_, said)| said), Some(said), "{text}");
    }
    let date = super::time::parse("2024-05-01");
    assert_eq!(
        date,
        Some((1_714_521_600_000_000, super::time::Offset::Said))
    );
    for wrong in [
        "20240501",
        "20240501 123000",
        "20240501T12:30:00Z",
        "2024-05-01T123000Z",
        "2024/05-01",
        "2024-05-01T12",
        "2024-05-01 12:30:00 CEST",
        "2024-05-01T12:30:00Z UTC+1",
        "2024-05-01T12:30:00[Europe/Paris]",
        "2024-05-01T12:30:00+02:00[]",
        "01/05/2024 12:30:00",
        "2024-05-01T12:30:00+2",
        "2024-05-01  12:30:00",
        "2024-05-01T",
        "noon",
        "",
    ] {
        assert_eq!(super::time::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn numbers_are_times_in_the_unit_of_their_type() {
    let time = |ty: Type, text: &str| match Value::parse(ty, text) {
        Ok(Value::Time(micros)) => Some(micros),
        _ => None,
    };
    for (ty, text, micros) in [
        (Type::TimeS, "1700000000", Some(1_700_000_000_000_000)),
        (Type::TimeMs, "1700000000123", Some(1_700_000_000_123_000)),
        (
            Type::TimeUs,
            "1700000000123456",
            Some(1_700_000_000_123_456),
        ),
        (
            Type::TimeNs,
            "1700000000123456789",
            Some(1_700_000_000_123_456),
        ),
        (Type::TimeMs, "-0.5", Some(-500)),
        (
            Type::TimeMs,
            "1700000000123.25",
            Some(1_700_000_000_123_250),
        ),
        (Type::TimeNs, "-1", Some(-1)),
        (Type::TimeNs, "-1000", Some(-1)),
        (Type::TimeUs, "18446744073709551615", None),
        (Type::TimeNs, "2024-05-01", Some(1_714_521_600_000_000)),
    ] {
        assert_eq!(time(ty, text), micros, "{ty} {text}");
    }
    for ty in Type::TIMES {
        assert_eq!(ty.to_string().parse::<Type>().unwrap(), ty);
        assert_eq!(Type::from_byte(ty.to_byte()), Some(ty));
        assert!(ty.is_time() && ty.is_allowed_by(Type::Time) && !Type::Time.is_allowed_by(ty));
    }
    assert_eq!(Type::TimeS.year_of(1_577_836_800_000), 51_969);
    assert!(Type::TimeMs.is_usual_year(1_577_836_800_000));
}

#[test]
fn the_unit_of_times_is_that_of_most_numbers() {
    let infer = |values: &[&str]| {
        let records: Vec<String> = values.iter().map(|v| format!("{{\"t\":{v}}}")).collect();
        let records: Vec<&[u8]> = records.iter().map(|r| r.as_bytes()).collect();
        infer_time(&records, &Path::parse("t").unwrap())
    };
    for (values, ty) in [
        (&["1700000000"][..], Type::TimeS),
        (&["1700000000.5", "0"], Type::TimeS),
        (
            &["1700000000123", "1700000000", "1700000000124"],
            Type::TimeMs,
        ),
        (&["1700000000123456"], Type::TimeUs),
        (&["1700000000123456789"], Type::TimeNs),
        (&["50000000000"], Type::TimeMs),
        (&["-86400"], Type::TimeS),
        (&["\"2024-05-01\"", "null", "0"], Type::Time),
        (&["\"2024-05-01\"", "1700000000123"], Type::TimeMs),
        (&["1e300"], Type::Time),
        (&[], Type::Time),
    ] {
        assert_eq!(infer(values), ty, "{values:?}");
    }
}
