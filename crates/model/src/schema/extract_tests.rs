use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::types::MAX_INDEXED_VALUE;
use super::*;

const SEED: u64 = 0x5eed_0002;

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn extraction(key: &str, key_type: KeyType, attributes: &[(&str, Type)]) -> Extraction {
    let attributes = attributes.iter().map(|(p, t)| (path(p), *t)).collect();
    Extraction::new((path(key), key_type), attributes)
}

/// The decoded values of each attribute.
fn extract(x: &Extraction, json: &str) -> Result<Vec<Vec<Value>>, RecordError> {
    let mut out = Extracted::default();
    x.extract(json.as_bytes(), &mut out)?;
    let decode = |t, bytes| Value::decode(t, &mut esker_coding::Reader::new(bytes)).unwrap();
    let attributes = x.attributes.iter().enumerate();
    Ok(attributes
        .map(|(i, wanted)| out.values(i).map(|v| decode(wanted.ty, v)).collect())
        .collect())
}

fn refusal(x: &Extraction, json: &str) -> RecordErrorKind {
    extract(x, json).unwrap_err().kind
}

#[test]
fn attributes_of_every_type_come_out() {
    let x = extraction(
        "id",
        KeyType::String,
        &[
            ("user.name", Type::String),
            ("n", Type::Int),
            ("score", Type::Float),
            ("on", Type::Bool),
            ("at", Type::Time),
            ("tags.text", Type::String),
        ],
    );
    let json = r#" {"x":{"id":[1,{"y":"}"}]},"n":18446744073709551615,"tags":[{"text":"b"},
        {"text":["a","b",null]},3,{}],"user":{"name":"Jos\u00e9","id":9},"score":3,"on":true,
        "at":"2024-05-01T12:30:00Z","i\u0064":"k\n1"} "#;
    let s = |s: &str| Value::String(s.to_owned());
    assert_eq!(
        extract(&x, json).unwrap(),
        [
            vec![s("Jos\u{e9}")],
            vec![Value::Int(i128::from(u64::MAX))],
            vec![Value::Float(3.0)],
            vec![Value::Bool(true)],
            vec![Value::Time(1_714_566_600_000_000)],
            vec![s("a"), s("b")],
        ]
    );
    let mut out = Extracted::default();
    x.extract(json.as_bytes(), &mut out).unwrap();
    assert_eq!(out.key(), b"k\n1");
    assert!(out.iter().map(|(i, v)| (i, v.to_vec())).is_sorted());

    x.extract(
        br#"{"id":"2","user":null,"n":null,"score":[],"tags":"none"}"#,
        &mut out,
    )
    .unwrap();
    assert_eq!(
        (out.key(), out.iter().count()),
        (&b"2"[..], 0),
        "nothing stays from before"
    );
}

#[test]
fn floats_are_read_exactly() {
    let x = extraction("id", KeyType::Int, &[("f", Type::Float)]);
    let mut rng = fastrand::Rng::with_seed(SEED);
    for _ in 0..2_000 {
        let v = f64::from_bits(rng.u64(..));
        if v.is_finite() {
            let found = extract(&x, &format!(r#"{{"id":1,"f":{v:e}}}"#)).unwrap();
            assert_eq!(found, [[Value::Float(v)]], "seed {SEED}");
        }
    }
}

#[test]
fn times_are_strings_or_seconds() {
    let x = extraction("id", KeyType::Int, &[("at", Type::Time)]);
    let at = |json: &str| extract(&x, &format!(r#"{{"id":1,"at":{json}}}"#));
    assert_eq!(
        at("1714566600").unwrap(),
        [[Value::Time(1_714_566_600_000_000)]]
    );
    assert_eq!(
        at("1714566600.123456").unwrap(),
        [[Value::Time(1_714_566_600_123_456)]]
    );
    assert_eq!(
        at("\"2024-05-01\"").unwrap(),
        [[Value::Time(1_714_521_600_000_000)]]
    );
    assert_eq!(
        at("\"May 1\"").unwrap_err().to_string(),
        "record 1: field at must be of type time, found a string that is not an RFC 3339 time; an index of `at?` keeps such records, as in at?:lazy:time"
    );
    assert!(
        at("1e300")
            .unwrap_err()
            .to_string()
            .contains("out of range")
    );
    assert!(at("true").is_err());
}

#[test]
fn what_is_not_a_record_is_refused() {
    use RecordErrorKind as K;
    let x = extraction("a.id", KeyType::Int, &[("n", Type::Int)]);
    for json in ["[1]", "1", " null", "\"{}\"", "hello"] {
        assert_eq!(refusal(&x, json), K::NotAnObject, "{json}");
    }
    for json in [
        "",
        " ",
        "{",
        r#"{"a":{"id":1}"#,
        r#"{"a":{"id":1}} x"#,
        r#"{"a":{"id":1}}{}"#,
    ] {
        assert!(
            matches!(refusal(&x, json), K::Json { line: 1, .. }),
            "{json}"
        );
    }
    assert_eq!(
        extract(&x, "{\"a\":{\"id\":5},\n\"n\":tru}")
            .unwrap_err()
            .to_string(),
        "record 5: not valid JSON: expected ident at line 2 column 8"
    );
    let mut out = Extracted::default();
    let e = x
        .extract(b"{\"a\":{\"id\":1},\"x\":\"\xff\"}", &mut out)
        .unwrap_err();
    assert_eq!(e.kind, K::InvalidUtf8 { offset: 19 });
    let p = path("a.id");
    for (json, kind) in [
        ("{}", K::KeyMissing { path: p.clone() }),
        (r#"{"a":5}"#, K::KeyMissing { path: p.clone() }),
        (r#"{"a":{"id":null}}"#, K::KeyNull { path: p.clone() }),
        // The last of several fields of a name counts.
        (
            r#"{"a":{"id":1},"a":{}}"#,
            K::KeyMissing { path: p.clone() },
        ),
        (
            r#"{"a":{"id":1,"id":null}}"#,
            K::KeyNull { path: p.clone() },
        ),
    ] {
        assert_eq!(refusal(&x, json), kind, "{json}");
    }
    for (json, found) in [
        (r#"{"a":{"id":"1"}}"#, "string"),
        (r#"{"a":{"id":1.0}}"#, "float"),
        (
            r#"{"a":{"id":18446744073709551616}}"#,
            "a number beyond 64 bits",
        ),
        (r#"{"a":{"id":[1]}}"#, "array"),
        (r#"{"a":[{"id":1}]}"#, "array"),
        (r#"{"a":{"id":{}}}"#, "object"),
        (r#"{"a":{"id":false}}"#, "bool"),
    ] {
        let expected = K::KeyType {
            path: p.clone(),
            expected: KeyType::Int,
            found,
        };
        assert_eq!(refusal(&x, json), expected, "{json}");
    }
}

#[test]
fn values_of_the_wrong_type_are_refused_with_the_key() {
    let x = extraction("id", KeyType::Int, &[("n", Type::Int), ("s", Type::String)]);
    let message = |json: &str| extract(&x, json).unwrap_err().to_string();
    // The key is reported even when it follows the error.
    assert_eq!(
        message(r#"{"n":"7","s":1,"id":17}"#),
        "record 17: field n must be of type int, found string; an index of `n?` keeps such records, as in n?:lazy:int"
    );
    assert_eq!(
        message(r#"{"id":17,"n":[1,3.0]}"#),
        "record 17: field n must be of type int, found float; an index of `n?` keeps such records, as in n?:lazy:int"
    );
    assert!(message(r#"{"id":1,"n":-9223372036854775809}"#).contains("beyond 64 bits"));
    assert_eq!(message(r#"{"n":1}"#), "the key id is missing");
}

#[test]
fn keys_and_values_have_limits() {
    let x = extraction("id", KeyType::String, &[("s", Type::String)]);
    let record = |key: usize, value: usize| {
        extract(
            &x,
            &format!(
                r#"{{"id":"{}","s":"{}"}}"#,
                "k".repeat(key),
                "v".repeat(value)
            ),
        )
    };
    assert!(record(MAX_PRIMARY_KEY, MAX_INDEXED_VALUE - 2).is_ok());
    let e = record(MAX_PRIMARY_KEY + 1, 1).unwrap_err().kind;
    assert!(
        matches!(e, RecordErrorKind::KeyTooLong { length: 65537, .. }),
        "{e:?}"
    );
    let e = record(1, MAX_INDEXED_VALUE - 1).unwrap_err().kind;
    assert!(
        matches!(e, RecordErrorKind::ValueTooLong { length: 32769, .. }),
        "{e:?}"
    );
    assert!(matches!(
        record(0, 0).unwrap_err().kind,
        RecordErrorKind::KeyEmpty { .. }
    ));
}

#[test]
fn depth_is_limited_in_what_is_skipped_too() {
    let x = extraction("id", KeyType::Int, &[("n", Type::Int)]);
    for field in ["n", "skipped"] {
        let record = |depth: usize| {
            let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
            extract(&x, &format!(r#"{{"id":1,"{field}":{open}{close}}}"#))
        };
        assert!(record(127).is_ok(), "{field}");
        assert_eq!(
            record(128).unwrap_err().kind,
            RecordErrorKind::TooDeep { limit: 127 }
        );
        assert!(record(100_000).is_err());
    }
    let brackets = "[{\\\"".repeat(1000);
    assert!(
        extract(
            &x,
            &format!(
                r#"{{"id":1,"s":"{brackets}","a":[{}[]]}}"#,
                "[],".repeat(500)
            )
        )
        .is_ok()
    );
}

#[test]
fn many_attributes_share_paths() {
    let names: Vec<String> = (0..200).map(|i| format!("f{i}")).collect();
    let mut attributes: Vec<(&str, Type)> = names.iter().map(|n| (&**n, Type::Int)).collect();
    attributes.push(("f7", Type::Float));
    attributes.push(("id", Type::Int));
    let x = extraction("id", KeyType::Int, &attributes);
    let fields: Vec<String> = names.iter().rev().map(|n| format!(r#""{n}":1"#)).collect();
    let json = format!(r#"{{"id":3,{}}}"#, fields.join(","));
    let mut expected = vec![vec![Value::Int(1)]; 200];
    expected.push(vec![Value::Float(1.0)]);
    expected.push(vec![Value::Int(3)]);
    assert_eq!(extract(&x, &json), Ok(expected));
    let twice = json.replace("}", r#","f0":1,"f199":2}"#);
    let mut last = extract(&x, &twice).unwrap();
    assert_eq!(last.remove(199), vec![Value::Int(2)]);
}

// A reference implementation: parse everything, then search. The names come from a small set, so
// that they occur in the paths.

/// The encoded key, and the encoded values of each attribute.
type Expected = (Vec<u8>, Vec<BTreeSet<Vec<u8>>>);

fn naive(x: &Extraction, json: &Json) -> Option<Expected> {
    let (key_path, key_type) = &x.key;
    let mut at = json;
    for name in key_path.names() {
        at = at.as_object()?.get(name)?;
    }
    let mut key = Vec::new();
    encode_key(*key_type, &naive_value(key_type.as_type(), at)?, &mut key).ok()?;
    let mut attributes = Vec::new();
    for Wanted { path: p, ty: t, .. } in &x.attributes {
        let mut found = Vec::new();
        naive_at(json, &p.names().collect::<Vec<_>>(), &mut found);
        let values = found.into_iter().filter(|v| !v.is_null() && !v.is_object());
        let encoded = values.map(|v| match (*t, v.to_string().parse::<i128>().ok()) {
            // No float represents it exactly.
            (Type::Float, Some(n)) if n.to_string() != (n as f64).to_string() => {
                Some(crate::schema::stand_in(Type::Float)?.to_vec())
            }
            _ => naive_value(*t, v).map(|v| v.encoded()),
        });
        attributes.push(encoded.collect::<Option<BTreeSet<_>>>()?);
    }
    Some((key, attributes))
}

fn naive_at<'a>(json: &'a Json, names: &[&str], found: &mut Vec<&'a Json>) {
    match (json, names) {
        (Json::Array(elements), _) => elements.iter().for_each(|e| naive_at(e, names, found)),
        (_, []) => found.push(json),
        (_, [name, rest @ ..]) => {
            if let Some(value) = json.get(name) {
                naive_at(value, rest, found);
            }
        }
    }
}

fn naive_value(t: Type, json: &Json) -> Option<Value> {
    match t {
        Type::Int if json.is_i64() || json.is_u64() => Value::parse(t, &json.to_string()).ok(),
        Type::Float => json.as_f64().map(Value::Float),
        Type::String => json.as_str().map(|s| Value::String(s.to_owned())),
        Type::Bool => json.as_bool().map(Value::Bool),
        Type::Time if json.is_number() => Value::parse(t, &json.to_string()).ok(),
        Type::Time if json.as_str()?.contains('-') => Value::parse(t, json.as_str()?).ok(),
        _ => None,
    }
}

fn random_json(rng: &mut fastrand::Rng, depth: usize) -> Json {
    match rng.u32(..if depth > 3 { 8 } else { 12 }) {
        0 => Json::Null,
        1 => rng.bool().into(),
        2 => (rng.i64(..) >> rng.u32(..64)).into(),
        3 => (rng.u64(..) >> rng.u32(..64)).into(),
        4 => (rng.i32(..) as f64 / 64.0).into(),
        5 => "2024-05-01T00:00:00Z".into(),
        6 | 7 => ["", "a", "\"\u{e9}\\\n\0", "12"][rng.usize(..4)].into(),
        8 | 9 => (0..rng.usize(..4))
            .map(|_| random_json(rng, depth + 1))
            .collect(),
        _ => Json::Object(random_object(rng, depth + 1)),
    }
}

fn random_object(rng: &mut fastrand::Rng, depth: usize) -> Map<String, Json> {
    const NAMES: [&str; 5] = ["a", "b", "c\u{e9}", "d\"", "id"];
    let fields = rng.usize(..6);
    (0..fields)
        .map(|_| (NAMES[rng.usize(..5)].to_owned(), random_json(rng, depth)))
        .collect()
}

#[test]
fn extraction_agrees_with_the_naive_way() {
    let mut rng = fastrand::Rng::with_seed(SEED + 1);
    let paths = [
        "a", "b", "c\u{e9}", "a.b", "a.a", "d\".a", "b.id", "id", "a.b.a",
    ];
    let mut out = Extracted::default();
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..60_000 {
        let key_type = if rng.bool() {
            KeyType::Int
        } else {
            KeyType::String
        };
        let key = if rng.u32(..8) == 0 { "b.id" } else { "id" };
        let attributes: Vec<_> = (0..rng.usize(..4))
            .map(|_| {
                (
                    paths[rng.usize(..paths.len())],
                    Type::SCALAR[rng.usize(..5)],
                )
            })
            .collect();
        let x = extraction(key, key_type, &attributes);
        let mut object = random_object(&mut rng, 0);
        if rng.u32(..4) > 0 {
            let id = if key_type == KeyType::Int {
                Json::from(7)
            } else {
                "seven".into()
            };
            object.insert("id".to_owned(), id);
        }
        let json = Json::Object(object);
        let mut text = if rng.bool() {
            json.to_string()
        } else {
            format!("{json:#}\n")
        };
        if rng.bool() {
            text = text
                .replace('\u{e9}', "\\u00E9")
                .replace("\"a\"", "\"\\u0061\"");
        }
        let expected = naive(&x, &json);
        let found = x.extract(text.as_bytes(), &mut out);
        match (expected, found) {
            (None, Err(_)) => refused += 1,
            (Some((key, attributes)), Ok(())) => {
                accepted += 1;
                assert_eq!(out.key(), key, "round {round}, seed {SEED}: {text}");
                for (i, values) in attributes.iter().enumerate() {
                    assert!(
                        out.values(i).eq(values.iter().map(Vec::as_slice)),
                        "round {round}, seed {SEED}: attribute {i} of {text}"
                    );
                }
            }
            (e, f) => panic!("round {round}, seed {SEED}: {e:?} but {f:?}: {text}"),
        }
    }
    assert!(
        accepted > 1_000 && refused > 1_000,
        "{accepted} accepted, {refused} refused"
    );
}

#[test]
fn damaged_text_never_panics() {
    let x = extraction(
        "id",
        KeyType::Int,
        &[("a.b", Type::Int), ("c", Type::String)],
    );
    let text = br#"{"id":12,"a":[{"b":-3},{"b":[4e2,null]}],"c":"x\u00e9\\","d":{"e":[true]}}"#;
    let mut rng = fastrand::Rng::with_seed(SEED + 2);
    let mut out = Extracted::default();
    for _ in 0..20_000 {
        let mut damaged = text.to_vec();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..damaged.len());
            match rng.u32(..3) {
                0 => damaged[at] = rng.u8(..),
                1 => damaged.truncate(at.max(1)),
                _ => damaged.insert(at, b"{}[]\",:\\"[rng.usize(..8)]),
            }
        }
        let json = std::str::from_utf8(&damaged)
            .ok()
            .map(serde_json::from_str::<Json>);
        if x.extract(&damaged, &mut out).is_ok() && !damaged.contains(&b'\\') {
            assert!(
                matches!(json, Some(Ok(Json::Object(_)))),
                "seed {SEED}: {damaged:?}"
            );
        }
    }
}

/// The accepted forms of points, and refused ones.
#[test]
fn points_are_extracted_from_all_their_forms_and_bad_ones_are_refused() {
    use crate::geometry::Point;
    let path = |p: &str| Path::parse(p).unwrap();
    let found = |at: &str, ty: Type, json: &str| {
        let x = Extraction::new((path("id"), KeyType::Int), vec![(path(at), ty)]);
        let mut out = Extracted::default();
        let text = format!("{{\"id\":1,{json}}}");
        x.extract(text.as_bytes(), &mut out)
            .map_err(|e| e.to_string())?;
        let values: Vec<String> = out
            .values(0)
            .map(|v| {
                Value::decode(ty, &mut esker_coding::Reader::new(v))
                    .unwrap()
                    .to_string()
            })
            .collect();
        // The reader of conditions finds the same points.
        let space = ty.space().unwrap();
        let read = PointAt::new(&path(at))
            .unwrap()
            .find(space, text.as_bytes());
        assert_eq!(
            read.iter().map(Point::to_string).collect::<Vec<_>>(),
            values,
            "{json}"
        );
        Ok::<_, String>(values.join(" "))
    };
    let p = Type::Point;
    for (at, json, expected) in [
        ("at", r#""at":[2.5,48]"#, "2.5,48"),
        ("at", r#""at":[2.5,48,120.5]"#, "2.5,48"),
        (
            "at",
            r#""at":{"type":"Point","coordinates":[-0.0,-90]}"#,
            "0,-90",
        ),
        (
            "a.at",
            r#""a":{"at":{"coordinates":[180,1e-9],"type":"Point"}}"#,
            "180,0.000000001",
        ),
        ("lon,lat", r#""lat":48,"lon":2"#, "2,48"),
        ("p.lon,p.lat", r#""p":{"lat":48,"lon":2}"#, "2,48"),
        ("at", r#""at":null"#, ""),
        ("at", r#""at":[]"#, ""),
        ("lon,lat", r#""lon":null,"lat":null"#, ""),
        ("lon,lat", r#""x":1"#, ""),
    ] {
        assert_eq!(found(at, p, json).as_deref(), Ok(expected), "{json}");
    }
    // Invalid positions are kept, and not indexed.
    for (at, json) in [
        ("at", r#""at":[48,200]"#),
        ("at", r#""at":[48,100]"#),
        ("lon,lat", r#""lon":181,"lat":91"#),
        ("at", r#""at":{"x":1}"#),
        ("at", r#""at":{"coordinates":[1]}"#),
        (
            "at",
            r#""at":{"type":"LineString","coordinates":[[1,2],[3,4]]}"#,
        ),
    ] {
        assert_eq!(found(at, p, json).as_deref(), Ok(""), "{json}");
        let x = Extraction::new((path("id"), KeyType::Int), vec![(path(at), p)]);
        let mut out = Extracted::default();
        let text = format!("{{\"id\":1,{json}}}");
        x.extract(text.as_bytes(), &mut out).unwrap();
        assert!(out.unindexed().eq([0]), "{json}");
    }
    assert_eq!(
        found("at", Type::PlanePoint, r#""at":[1e300,-7]"#)
            .unwrap()
            .len(),
        304
    );
    for (at, json, why) in [
        ("lon,lat", r#""lon":2"#, "one coordinate without the other"),
        (
            "lon,lat",
            r#""lon":2,"lat":null"#,
            "one coordinate without the other",
        ),
        ("lon,lat", r#""lon":2,"lat":"NaN""#, "string"),
        ("at", r#""at":[1]"#, "one coordinate without the other"),
        ("at", r#""at":[[1,2],[3,4]]"#, "more than one point"),
        ("at", r#""at":"2,48""#, "string"),
        (
            "p.lon,p.lat",
            r#""p":[{"lat":48,"lon":2},{"lat":4,"lon":3}]"#,
            "more than one point",
        ),
    ] {
        let error = found(at, p, json).unwrap_err();
        assert!(
            error.contains(why) && error.contains("must be of type point"),
            "{json}: {error}"
        );
    }
}

#[test]
fn a_point_at_a_time_needs_both_and_comes_once_for_each_time() {
    let paths = [
        ("at@time", Type::PointTime),
        ("a.x,a.y@a.t", Type::PlanePointTime),
    ];
    let x = extraction("id", KeyType::Int, &paths);
    let found = |json: &str| {
        let values = extract(&x, json).unwrap();
        let text = |v: &Vec<Value>| v.iter().map(Value::to_string).collect::<Vec<_>>();
        (text(&values[0]), text(&values[1]))
    };
    let none: Vec<String> = Vec::new();
    let (geo, plane) = found(
        r#"{"id":1,"at":[7.5,-3],"time":["1970-01-01T00:00:05Z",0.5],"a":{"x":1,"t":-1,"y":2}}"#,
    );
    let at = "7.5,-3@1970-01-01T00:00:";
    assert_eq!(geo, [format!("{at}00.500Z"), format!("{at}05Z")]);
    assert_eq!(plane, ["1,2@1969-12-31T23:59:59Z"]);
    assert_eq!(found(r#"{"id":1,"at":[7.5,-3]}"#).0, none);
    assert_eq!(found(r#"{"id":1,"time":5,"at":null}"#).0, none);
    assert_eq!(found(r#"{"id":1,"at":[7.5,-300],"time":3}"#).0, none);
    assert_eq!(found(r#"{"id":1,"at":[7.5,-3],"time":{}}"#).0, none);
    for json in [
        r#"{"id":1,"at":[7.5,-3],"time":"noon"}"#,
        r#"{"id":1,"time":1e300}"#,
    ] {
        assert!(matches!(
            refusal(&x, json),
            RecordErrorKind::AttributeType { .. }
        ));
    }
}

#[test]
fn fields_that_do_not_fit_have_no_values_in_a_compound_index() {
    let field = |name: &str, ty, lenient| WantedField {
        path: path(name),
        ty,
        lenient,
    };
    let fields = vec![
        field("s", Type::String, false),
        field("n", Type::Int, false),
        field("m", Type::Int, true),
    ];
    let wanted = Wanted::new(path("s,n,m"), Type::Compound).of_fields(fields);
    let x = Extraction::of((path("id"), KeyType::Int), vec![wanted]);
    let found = |json: &str| {
        let mut out = Extracted::default();
        x.extract(json.as_bytes(), &mut out).unwrap();
        let values: Vec<_> = out.values(0).map(|v| compound_text(v).unwrap()).collect();
        values.join("; ")
    };
    for (json, wanted) in [
        (r#"{"id":1,"s":"a","n":-0,"m":[]}"#, "a, 0, (none)"),
        (
            r#"{"id":1,"s":"a","n":"x","m":"x"}"#,
            "a, (none), (another type)",
        ),
        (r#"{"id":1,"s":"a","n":{},"m":null}"#, "a, (none), (none)"),
        (r#"{"id":1,"s":["a",true],"n":1,"m":2}"#, ""),
        (r#"{"id":1,"n":1,"m":2}"#, ""),
    ] {
        assert_eq!(found(json), wanted, "{json}");
    }
}

#[test]
fn the_values_of_a_refused_record_are_not_combined() {
    let field = |name: &str, ty| WantedField {
        path: path(name),
        ty,
        lenient: false,
    };
    let fields = vec![field("s", Type::String), field("n", Type::Int)];
    let wanted = vec![
        Wanted::new(path("b"), Type::Bool),
        Wanted::new(path("s,n"), Type::Compound).of_fields(fields),
    ];
    let x = Extraction::of((path("id"), KeyType::Int), wanted);
    let combined = |json: &str| {
        let mut out = Extracted::default();
        let is_taken = x.extract(json.as_bytes(), &mut out).is_ok();
        (is_taken, out.values(1).count())
    };
    assert_eq!(
        combined(r#"{"id":1,"s":"a","n":[1,2],"b":true}"#),
        (true, 3)
    );
    assert_eq!(combined(r#"{"id":1,"s":"a","n":[1,2],"b":1}"#), (false, 0));
}
