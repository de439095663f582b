use super::*;
use crate::range::Range;
use crate::schema::{Extracted, Extraction, KeyType};

fn in_range(range: &ValueRange, encoded: &[u8]) -> bool {
    Range {
        lo: range.0.clone(),
        hi: range.1.clone(),
    }
    .contains(encoded)
}

fn matches_json(body: &[u8], conditions: &[Condition]) -> bool {
    JsonFilter::new(conditions).matches(body)
}

const SEED: u64 = 0x5eed_0005;

fn condition(text: &str) -> Condition {
    Condition::parse(text).unwrap()
}

#[test]
fn conditions_are_read_and_printed() {
    for (text, path, op, value) in [
        ("a=1", "a", Op::Eq, "1"),
        ("a.b>=1", "a.b", Op::Ge, "1"),
        ("a<=1", "a", Op::Le, "1"),
        ("a>1", "a", Op::Gt, "1"),
        ("a<1", "a", Op::Lt, "1"),
        ("a^=x", "a", Op::Prefix, "x"),
        ("a=", "a", Op::Eq, ""),
        ("a=b>=c=d", "a", Op::Eq, "b>=c=d"),
        ("a= \\x", "a", Op::Eq, " \\x"),
        (r"a\=b=c", r"a\=b", Op::Eq, "c"),
        (r"a\\=c", r"a\\", Op::Eq, "c"),
        ("a^b=c", "a^b", Op::Eq, "c"),
    ] {
        let c = condition(text);
        let expected = Condition {
            path: Path::parse(path).unwrap(),
            op,
            text: value.to_owned(),
        };
        assert_eq!(c, expected, "{text}");
        assert_eq!(condition(&c.to_string()), c, "{text}");
    }
    for wrong in ["", "a", "=1", "a..b=1", r"a\=1", r"a\x=1", "a^1"] {
        assert!(Condition::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn ranges_hold_what_satisfies_the_condition() {
    let holds = |text: &str, t, value: &str| {
        let range = condition(text).to_range(t).unwrap();
        in_range(&range, &Value::parse(t, value).unwrap().encoded())
    };
    for (op, below, equal, above) in [
        ("=", false, true, false),
        (">=", false, true, true),
        ("<=", true, true, false),
        (">", false, false, true),
        ("<", true, false, false),
    ] {
        for (t, low, middle, high) in [
            (Type::Int, "-10", "-9", "300"),
            (Type::Float, "-1e9", "0", "0.5"),
            (Type::String, "a", "ab", "b"),
            (Type::Time, "2023-12-31", "2024-01-01", "1800000000"),
        ] {
            let text = format!("x{op}{middle}");
            assert_eq!(holds(&text, t, low), below, "{text} {t}");
            assert_eq!(holds(&text, t, middle), equal, "{text} {t}");
            assert_eq!(holds(&text, t, high), above, "{text} {t}");
        }
    }
    assert!(holds("x^=a", Type::String, "ab") && !holds("x^=ab", Type::String, "a"));
    assert!(holds("x^=", Type::String, "") && holds("x=true", Type::Bool, "true"));
    let error = |text: &str, t| condition(text).to_range(t).unwrap_err();
    assert!(error("n^=1", Type::Int).contains("strings"));
    assert!(error("n>x", Type::Int).starts_with("n>x: "));
}

#[test]
fn json_is_compared_by_what_stands_there() {
    let body = br#"{"n":9007199254740993,"f":1.5,"s":"10","b":true,"z":null,"o":{"x":-0.0},
        "list":[1,[9]],"big":1e300,"users":[{"name":"al"},{"name":"bo"},{}],"u\u00e9":"x"}"#;
    let matches = |text: &str| matches_json(body, &[condition(text)]);
    for yes in [
        "n=9007199254740993",
        "n>9007199254740992",
        "n<9007199254740992.5e3",
        "f=1.5",
        "f>1",
        "f<2",
        "f=15e-1",
        "s=10",
        "s^=1",
        "s<9",
        "b=true",
        "b>false",
        "o.x=0",
        "list=9",
        "list<2",
        "list>8",
        "users.name=bo",
        "users.name^=a",
        "u\u{e9}=x",
        "big>170141183460469231731687303715884105727",
        "n<1e300",
        "f>-99999999999999999999999999999999999999999",
    ] {
        assert!(matches(yes), "{yes}");
    }
    for no in [
        "n=9007199254740992",
        "n=9007199254740992.0",
        "n=x",
        "n^=9",
        "s=10.0",
        "s>9",
        "b=1",
        "b=false",
        "z=null",
        "z=",
        "o=",
        "o={}",
        "missing=1",
        "list=2",
        "f=nan",
        "f<inf",
        "n.x=1",
        "users=al",
        "f^=1",
        "b^=t",
    ] {
        assert!(!matches(no), "{no}");
    }
    let all = |texts: &[&str]| {
        matches_json(
            body,
            &texts.iter().map(|t| condition(t)).collect::<Vec<_>>(),
        )
    };
    assert!(all(&[]));
    assert!(all(&["list>8", "users.name=al", "users.name=bo"]));
    assert!(!all(&["list>8", "users.name=cy"]));
    // Bounds on one path hold for one element together.
    assert!(all(&["list<2"]));
    assert!(!all(&["list>8", "list<2"]));
    assert!(!matches_json(b"{\"a\":", &[condition("a=1")]));
    assert!(!matches_json(b"[", &[condition("a=1")]));
}

#[test]
fn more_conditions_than_bits_in_a_word() {
    let conditions: Vec<_> = (0..100).map(|i| condition(&format!("n>{i}"))).collect();
    assert!(matches_json(br#"{"n":100}"#, &conditions));
    assert!(!matches_json(br#"{"n":99}"#, &conditions));
    assert!(matches_json(br#"{"n":[99,100]}"#, &conditions));
}

#[test]
fn filters_agree_with_ranges_over_extracted_values() {
    let mut rng = fastrand::Rng::with_seed(SEED);
    let number = |rng: &mut fastrand::Rng| match rng.u32(..3) {
        0 => rng.i64(-3..4).to_string(),
        1 => format!("{:?}", f64::from(rng.i32(-6..7)) / 2.0),
        _ => (u64::MAX - rng.u64(..3)).to_string(),
    };
    let text = |rng: &mut fastrand::Rng| "ab".repeat(rng.usize(..3))[rng.usize(..1)..].to_owned();
    for round in 0..10_000 {
        let (t, op) = if rng.bool() {
            (Type::Float, ["=", ">=", "<=", ">", "<"][rng.usize(..5)])
        } else {
            (
                Type::String,
                ["=", ">=", "<=", ">", "<", "^="][rng.usize(..6)],
            )
        };
        let draw = |rng: &mut fastrand::Rng| {
            if t == Type::Float {
                number(rng)
            } else {
                text(rng)
            }
        };
        let c = condition(&format!("v{op}{}", draw(&mut rng)));
        let values: Vec<String> = (0..rng.usize(..4)).map(|_| draw(&mut rng)).collect();
        // Numbers near u64::MAX are one float but several integers.
        if t == Type::Float && (c.text.len() > 9 || values.iter().any(|v| v.len() > 9)) {
            continue;
        }
        let list = if t == Type::Float {
            format!("[{}]", values.join(","))
        } else {
            format!("{values:?}")
        };
        let body = format!(r#"{{"id":1,"v":{list}}}"#);
        let path = |p| Path::parse(p).unwrap();
        let x = Extraction::new((path("id"), KeyType::Int), vec![(path("v"), t)]);
        let mut out = Extracted::default();
        x.extract(body.as_bytes(), &mut out).unwrap();
        let range = c.to_range(t).unwrap();
        let expected = out.values(0).any(|v| in_range(&range, v));
        let found = matches_json(body.as_bytes(), std::slice::from_ref(&c));
        assert_eq!(found, expected, "round {round}, seed {SEED}: {c} on {body}");
    }
}
