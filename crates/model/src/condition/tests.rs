use serde_json::{Value as Json, json};

use super::expr::Node;
use super::*;
use crate::schema::{Extracted, Extraction, KeyType, Path, Type, Value, Wanted};

mod random;

const SEED: u64 = 0x5eed_0005;

fn read(text: &str) -> Expr {
    text.parse().unwrap()
}

fn refused(text: &str) -> ParseError {
    text.parse::<Expr>().unwrap_err()
}

fn matches(text: &str, body: &Json) -> bool {
    Filter::new(&read(text)).matches_json(body.to_string().as_bytes())
}

#[test]
fn comparisons_are_read_as_they_were_without_and_and_or() {
    for (text, path, op, value) in [
        ("a=1", "a", Op::Eq, "1"),
        ("a.b>=1", "a.b", Op::Ge, "1"),
        ("a<=1", "a", Op::Le, "1"),
        ("a>1", "a", Op::Gt, "1"),
        ("a<1", "a", Op::Lt, "1"),
        ("a!=1", "a", Op::Ne, "1"),
        ("a^=x", "a", Op::Prefix, "x"),
        ("at>=2024-05-01", "at", Op::Ge, "2024-05-01"),
        ("a=b>=c=d", "a", Op::Eq, "b>=c=d"),
        (
            "kind=amenity=restaurant",
            "kind",
            Op::Eq,
            "amenity=restaurant",
        ),
        ("a=C:\\x", "a", Op::Eq, "C:\\x"),
        ("a=O'Brien", "a", Op::Eq, "O'Brien"),
        ("a=x(y", "a", Op::Eq, "x(y"),
        ("  a \t=  1 ", "a", Op::Eq, "1"),
        (r"a\=b=c", r"a\=b", Op::Eq, "c"),
        (r"a\\=c", r"a\\", Op::Eq, "c"),
        (r"a\ b=c", "a b", Op::Eq, "c"),
        ("\"a b\"=c", "a b", Op::Eq, "c"),
        ("\"not\"=c", "not", Op::Eq, "c"),
        ("not=c", "not", Op::Eq, "c"),
        ("or = c", "or", Op::Eq, "c"),
        ("a^b=c", "a^b", Op::Eq, "c"),
        ("in=c", "in", Op::Eq, "c"),
        ("a=and", "a", Op::Eq, "and"),
    ] {
        let path = Path::parse(path).unwrap();
        assert_eq!(
            read(text),
            Expr::compare(path, op, Operand::text(value)),
            "{text}"
        );
    }
}

#[test]
fn trees_are_read_by_precedence() {
    let f = |name: &str| field(name).eq(Operand::text("1"));
    for (text, expr) in [
        ("a=1 and b=1 or c=1", (f("a") & f("b")) | f("c")),
        ("a=1 or b=1 and c=1", f("a") | (f("b") & f("c"))),
        ("(a=1 or b=1) and c=1", (f("a") | f("b")) & f("c")),
        ("( a = 1 or b=1 )and c=1", (f("a") | f("b")) & f("c")),
        ("not a=1 and b=1", !f("a") & f("b")),
        ("NOT (a=1 AND b=1)", !(f("a") & f("b"))),
        ("not not a=1", f("a")),
        ("a contains 1", field("a").contains_text(Operand::text("1"))),
        ("a CONTAINS \"1\"", field("a").contains_text("1")),
        ("a = null", field("a").is_null()),
        ("a != NULL", field("a").exists()),
        ("a = \"null\"", field("a").eq("null")),
        ("a = text(null)", field("a").eq(Operand::text("null"))),
        (
            "a in (null, 1)",
            field("a").one_of([Operand::text("1")]) | field("a").is_null(),
        ),
        (
            "a not in (1, null) and b = 1",
            !(field("a").one_of([Operand::text("1")]) | field("a").is_null()) & f("b"),
        ),
        ("a = now", field("a").eq(Operand::text("now"))),
        ("a < now-1x", field("a").lt(Operand::text("now-1x"))),
        ("a < text(now)", field("a").lt(Operand::text("now"))),
        ("a is null", field("a").is_null()),
        ("a Is Not Null", field("a").exists()),
        ("not a exists", field("a").is_null()),
        ("(a exists)", field("a").exists()),
        (
            "a in (1,2 , 3)",
            field("a").one_of(["1", "2", "3"].map(Operand::text)),
        ),
        ("a in(\"x, y\",'z')", field("a").one_of(["x, y", "z"])),
        ("a not in (1)", !field("a").one_of([Operand::text("1")])),
        ("a in ()", field("a").one_of::<i64>([])),
        ("a=\"b c\"", field("a").eq("b c")),
        ("a='it\\'s'", field("a").eq("it's")),
        (r#"a="C:\x\\""#, field("a").eq(r"C:\x\")),
        ("a=\"\"", field("a").eq("")),
        ("a=int(-5)", field("a").eq(-5)),
        ("a=float(2)", field("a").eq(2.0)),
        ("a=bool(true)", field("a").eq(true)),
        ("a>time(1970-01-01)", field("a").gt(std::time::UNIX_EPOCH)),
        ("a=text(\"b c\")", field("a").eq(Operand::text("b c"))),
    ] {
        assert_eq!(read(text), expr, "{text}");
        assert_eq!(read(&expr.to_string()), expr, "{expr}");
    }
}

#[test]
fn mistakes_name_the_column_and_what_was_expected() {
    for (text, column, what) in [
        ("", 1, "expected the path of a field, found the end"),
        ("a", 2, "expected one of ="),
        ("=1", 1, "expected the path of a field, found `=1`"),
        (
            "a=",
            3,
            "expected a value (the empty text is \"\"), found the end",
        ),
        ("a..b=1", 1, "a field name is empty"),
        (r"a\x=1", 1, "a backslash"),
        ("a^1", 4, "expected one of"),
        ("a=1 or", 7, "expected the path of a field"),
        (
            "a=1 and or b=1",
            9,
            "expected the path of a field, found `or`",
        ),
        ("(a=1", 5, "expected `)`, `and` or `or`, found the end"),
        ("a=1)", 4, "expected `and`, `or` or the end, found `)`"),
        (
            "é=1 und b=1",
            5,
            "found `und`; a value with blanks is quoted: é=\"1 und b=1\"",
        ),
        ("a==b", 3, "equality is written `=`"),
        ("a = =b", 4, "equality is written `=`"),
        (
            "a >> 3",
            4,
            "expected a value (one that begins with an operator is quoted), found `>`",
        ),
        (
            "a=1 && b=2",
            5,
            "expected `and` or `or`, which join conditions, found `&&`",
        ),
        ("a = b c or x=1", 7, "quoted: a = \"b c\""),
        ("a=b \"c\" d and x=1", 5, r#"quoted: a="b \"c\" d""#),
        ("(a contains b c)", 15, "quoted: a contains \"b c\""),
        ("a=f(x y) or b=1", 7, "quoted: a=\"f(x y)\""),
        ("(a=b (old) c)", 6, "quoted: a=\"b (old) c\""),
        ("a=\"b", 3, "without the closing \""),
        ("a=\"b\"c", 6, "expected a blank"),
        ("a=\"b\" c", 7, "expected `and`"),
        ("a in 1", 6, "expected `(`"),
        ("a in (1 2)", 9, "expected `,` or `)`"),
        (
            "a in (b, c d ) or x=1",
            12,
            "expected `,` or `)`, found `d`; a value with blanks is quoted: \"c d\"",
        ),
        ("a in (b c", 9, "quoted: \"b c\""),
        ("a in (b", 8, "expected `,` or `)`, found the end"),
        ("a not 1", 7, "expected `in`"),
        ("a not exists", 7, "as in `not PATH exists`"),
        ("a is 1", 6, "expected `null`"),
        ("a=int(x)", 7, "not of type int"),
        ("a=int(1", 8, "expected `)`"),
    ] {
        let error = refused(text);
        assert!(error.what.contains(what), "{text}: {error}");
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.to_string().contains(&format!("column {column}")));
    }
    let deep = |n: usize, open: &str, close: &str| {
        format!("{}a=1{}", open.repeat(n), close.repeat(n)).parse::<Expr>()
    };
    assert!(deep(60, "(", ")").is_ok() && deep(100_000, "(", ")").is_err());
    assert!(deep(60, "not ", "").is_ok() && deep(100_000, "not ", "").is_err());
    let chain = vec!["a=1"; 2000].join(" and ");
    assert_eq!(read(&chain).to_string().matches(" and ").count(), 1999);
}

#[test]
fn build_errors_are_reported_on_use() {
    let wrong = field("a..b").eq(1) & field("c").eq(2);
    assert!(wrong.check().unwrap_err().contains("field name is empty"));
    assert!((!field("").exists()).check().is_err());
    assert!(field("a").eq(f64::NAN).check().is_err());
    assert!(field("a").one_of([1.0, f64::INFINITY]).check().is_err());
    let mut deep = field("a").eq(1);
    for _ in 0..100_000 {
        deep = !(deep & field("b").eq(2));
    }
    assert!(deep.check().unwrap_err().contains("levels"));
}

#[test]
fn json_is_compared_by_what_stands_there() {
    let body = json!({"n": 9_007_199_254_740_993_i64, "f": 1.5, "s": "10", "b": true, "z": null,
        "o": {"x": -0.0}, "list": [1, [9]], "big": 1e300, "users": [{"name": "al"}, {"name": "bo"}, {}],
        "é": "x", "t": "2024-05-01T00:00:00Z", "empty": [], "nulls": [null], "mixed": [1, "x", null]});
    for yes in [
        "n=9007199254740993",
        "n>9007199254740992",
        "n<9007199254740992.5e3",
        "n!=9007199254740992",
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
        "é=x",
        "n<1e300",
        "big>170141183460469231731687303715884105727",
        "f>-99999999999999999999999999999999999999999",
        "s=\"10\"",
        "f=float(1.5)",
        "n>float(9007199254740992)",
        "b=bool(true)",
        "t=time(2024-05-01)",
        "f=time(1970-01-01T00:00:01.5Z)",
        "t<time(2024-05-02)",
        "t<2024-05-02",
        // A value of another type is not equal.
        "s!=int(10)",
        "o!=1",
        "s!=time(2024-05-01)",
        "mixed!=1",
        "mixed=x",
        "mixed=1",
        "z is null",
        "missing is null",
        "n.x is null",
        "empty is null",
        "nulls is null",
        "mixed exists",
        "o exists",
        "users exists",
        "users.name exists",
        "not z exists",
        "not z=1",
        "not z!=1",
        "not missing in (1)",
        "n in (x, 9007199254740993)",
        "list in (2, 9)",
        "list contains 9",
        "not list contains 2",
        "z=null",
        "missing=null",
        "n!=null",
        "z in (1, null)",
        "n not in (null)",
        "s contains 1",
        "s contains \"0\"",
        "t contains 05-01",
        "users.name contains l",
        "mixed contains x",
        "f contains 1.5",
        "list=1 and list=9",
        "list>8 or list<0",
        "list<2 and not list>9",
        "not (list>8 and list<2)",
        "list>8 and not not list<2 or true=1 or n exists",
    ] {
        assert!(matches(yes, &body), "{yes}");
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
        "z=\"null\"",
        "z!=null",
        "n=null",
        "s contains 2",
        "list contains 99",
        "mixed contains y",
        "users.name contains x",
        "o={}",
        "missing=1",
        "list=2",
        "f=nan",
        "f<inf",
        "n.x=1",
        "users=al",
        "f^=1",
        "b^=t",
        "s=int(10)",
        "f=\"1.5\"",
        "b=\"true\"",
        "n!=9007199254740993",
        "z!=1",
        "missing!=1",
        "empty!=1",
        "nulls!=1",
        "z exists",
        "empty exists",
        "users.age exists",
        "n is null",
        "missing in (1)",
        "list in (2, 3)",
        "n in ()",
        // Bounds on one path hold for one element together, however they are grouped.
        "list>8 and list<2",
        "list>8 and (n exists and list<2)",
    ] {
        assert!(!matches(no, &body), "{no}");
    }
    assert!(!Filter::new(&read("not a=1")).matches_json(b"{\"b\":"));
    assert!(!Filter::new(&read("a=1")).matches_json(b"["));
}

#[test]
fn more_conditions_than_bits_in_a_word() {
    let all: Vec<String> = (0..100).map(|i| format!("n in ({i}, 100)")).collect();
    let all = all.join(" and ");
    assert!(matches(&all, &json!({"n": 100})));
    assert!(!matches(&all, &json!({"n": 99})));
    let bounds: Vec<String> = (0..100).map(|i| format!("n>{i}")).collect();
    assert!(matches(&bounds.join(" and "), &json!({"n": [99, 100]})));
    assert!(!matches(&bounds.join(" and "), &json!({"n": [99, 0]})));
}

/// The predicate of a condition of one test.
fn predicate(expr: &Expr) -> Predicate {
    match &expr.node {
        Node::Test(_, predicate) => predicate.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ranges_hold_what_satisfies_the_condition() {
    let holds = |expr: &Expr, t, value: &str| {
        let value = Value::parse(t, value).unwrap().encoded();
        let ranges = predicate(expr).to_ranges(t).unwrap();
        assert!(ranges.iter().filter(|range| range.contains(&value)).count() <= 1);
        ranges.iter().any(|range| range.contains(&value))
    };
    for (op, below, equal, above) in [
        ("=", false, true, false),
        ("!=", true, false, true),
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
            (Type::Int, "-10", "float(-9)", "300"),
            (Type::Float, "-1e9", "int(0)", "0.5"),
            (Type::Time, "2023-12-31", "\"2024-01-01\"", "1800000000"),
            (Type::Time, "-1", "int(0)", "1"),
        ] {
            let expr = read(&format!("x{op}{middle}"));
            let value = middle.trim_matches('"');
            let inner = value
                .split_once('(')
                .map_or(value, |(_, v)| v.trim_end_matches(')'));
            assert_eq!(holds(&expr, t, low), below, "{expr} {t}");
            assert_eq!(holds(&expr, t, inner), equal, "{expr} {t}");
            assert_eq!(holds(&expr, t, high), above, "{expr} {t}");
        }
        // Between two values of the type.
        for middle in [2.5, 1e300, -1e300] {
            let expr = Expr::compare(Path::parse("x").unwrap(), read_op(op), middle);
            for value in ["-9223372036854775808", "2", "3", "18446744073709551615"] {
                let number: f64 = value.parse().unwrap();
                let wanted = match op {
                    "=" => false,
                    "!=" => true,
                    ">" | ">=" => number > middle,
                    _ => number < middle,
                };
                assert_eq!(holds(&expr, Type::Int, value), wanted, "{expr} {value}");
            }
        }
    }
    assert!(holds(&read("x^=a"), Type::String, "ab") && !holds(&read("x^=ab"), Type::String, "a"));
    assert!(
        holds(&read("x^=\"\""), Type::String, "") && holds(&read("x=true"), Type::Bool, "true")
    );
    assert!(
        holds(&read("x exists"), Type::Int, "5") && holds(&read("x in (5,5,6)"), Type::Int, "5")
    );
    assert!(!holds(&read("x in (5,6)"), Type::Int, "7"));
    let error = |text: &str, t| predicate(&read(text)).to_ranges(t).unwrap_err();
    assert!(error("n^=1", Type::Int).contains("strings"));
    assert!(error("n>x", Type::Int).contains("not of type int"));
    assert!(error("n>int(5)", Type::String).contains("cannot be compared"));
    assert!(error("n in (1, x)", Type::Int).contains("not of type int"));
}

fn read_op(symbol: &str) -> Op {
    Op::ALL
        .into_iter()
        .find(|op| op.symbol() == symbol)
        .unwrap()
}

#[test]
fn areas_are_read_printed_and_evaluated() {
    let texts = [
        "within(at, rect(-1,-2.5,3,4))",
        "within(place.lon,place.lat, circle(2.35,48.85,5000))",
        "within(at, polygon({\"type\":\"Polygon\",\"coordinates\":[[[0,0],[9,0],[9,9],[0,0]]]})) and n > 3",
        "not within(at, rect(170,-30,-170,0)) or at = point(2,3)",
        "within(\"a b\", rect(0,0,1,1))",
    ];
    for text in texts {
        let expr: Expr = text.parse().unwrap();
        assert_eq!(expr.to_string(), text);
        assert_eq!(expr.to_string().parse::<Expr>().unwrap(), expr);
    }
    for text in [
        "WITHIN( at , rect( 0 , 0 , 9 , 9 ) )",
        "within(at, polygon([[0,0],[9,0],[9,9],[0,9],[0,0]]))",
        "within(at,polygon([[[0,0],[9,0],[9,9],[0,9],[0,0]]]))",
        "within(at, circle(4,4,200000))",
    ] {
        let filter = Filter::new(&text.parse().unwrap());
        for (body, inside) in [
            (r#"{"at":[5,4]}"#, true),
            (r#"{"at":{"type":"Point","coordinates":[4,3]}}"#, true),
            (r#"{"at":[50,4]}"#, false),
            (r#"{"at":null}"#, false),
            (r#"{"at":"5,4"}"#, false),
            (r#"{"x":1}"#, false),
            (r#"{"at":[5,200]}"#, false),
        ] {
            assert_eq!(
                filter.matches_json(body.as_bytes()),
                inside,
                "{text}: {body}"
            );
        }
    }
    // A field of that name is still a field.
    assert!(Filter::new(&"within = 5".parse().unwrap()).matches_json(br#"{"within":5}"#));
    for (text, why) in [
        ("within(at, rect(1,2,3))", "rect(WEST,SOUTH,EAST,NORTH)"),
        ("within(at, rect(1,9,3,4))", "south"),
        ("within(at, circle(1,2,-3))", "radius"),
        ("within(at, polygon([[0,0],[1,1]]))", "ring"),
        ("within(at)", "`,` and an area"),
        (
            "within(at, b, c, rect(0,0,1,1))",
            "a point is at one path or at two",
        ),
        ("within(at, rect(0,0,1,1)", "`)`"),
        ("within(at, rect(0,0,1,1", "not closed"),
    ] {
        let error = text.parse::<Expr>().unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

/// Bounds that are negated twice are no part of the range of those beside them; what is not a bound
/// loses both.
#[test]
fn bounds_that_are_negated_twice_are_a_condition_of_their_own() {
    for (text, expected) in [
        ("a > 3 and a < 5", false),
        ("a > 3 and (a < 5)", false),
        ("a > 3 and not (not a < 5)", true),
        ("a > 3 and not not (a < 5 and b = 1)", true),
        ("a > 3 and not not not not a < 5", true),
        ("a > 3 and not not not a < 5", false),
        ("not not (a > 3 and a < 5)", false),
        ("not not a = 9 and not not (a = 1 or b = 2)", true),
    ] {
        let expr = read(text);
        assert_eq!(read(&expr.to_string()), expr, "{text}");
        let found = Filter::new(&expr).matches_json(br#"{"a":[1,9],"b":1}"#);
        assert_eq!(found, expected, "{text}");
    }
    let many = (0..1000).fold(field("a").lt(5), |expr, _| !expr);
    assert!(many.check().is_ok());
}

/// A number is found by the text that it has in the record, whatever its length.
#[test]
fn a_number_beyond_64_bits_is_found_by_its_text() {
    for text in [
        "18446744073709551617",
        "-9223372036854775809",
        "170141183460469231731687303715884105727",
        "999999999999999999999999999999999999999999999",
        "18446744073709551615",
        "-9223372036854775808",
        "9007199254740993",
        "-0",
    ] {
        let record = format!("{{\"n\":{text}}}");
        for condition in [format!("n = {text}"), format!("n in (7, {text})")] {
            let filter = Filter::new(&read(&condition));
            assert!(filter.matches_json(record.as_bytes()), "{condition}");
        }
        for condition in [format!("n < {text}"), format!("n != {text}")] {
            let filter = Filter::new(&read(&condition));
            assert!(!filter.matches_json(record.as_bytes()), "{condition}");
        }
    }
    // Two that differ in the last digit are two.
    for (text, below) in [
        ("211230200427052203004205123", "211230200427052203004205122"),
        ("-9223372036854775809", "-9223372036854775810"),
        ("0.12345678901234567891", "0.12345678901234567890"),
        ("18446744073709551617", "18446744073709551616.5"),
        ("1e23", "99999999999999999999999"),
    ] {
        let record = format!("{{\"n\":[{text}]}}");
        let other = format!("{{\"n\":[{below}]}}");
        for (condition, of_it, of_other) in [
            (format!("n = {text}"), true, false),
            (format!("n != {text}"), false, true),
            (format!("n in (1, {text})"), true, false),
            (format!("n > {below}"), true, false),
            (format!("n >= {text}"), true, false),
            (format!("n < {text}"), false, true),
            (format!("n <= {below}"), false, true),
        ] {
            let filter = Filter::new(&read(&condition));
            assert_eq!(filter.matches_json(record.as_bytes()), of_it, "{condition}");
            assert_eq!(
                filter.matches_json(other.as_bytes()),
                of_other,
                "{condition}"
            );
        }
    }
    for (same, text) in [
        ("0.10", "0.1"),
        ("1e2", "100"),
        ("100.0", "100"),
        ("1.5e1", "15"),
    ] {
        let filter = Filter::new(&read(&format!("n = {text}")));
        assert!(
            filter.matches_json(format!("{{\"n\":{same}}}").as_bytes()),
            "{same}"
        );
    }
    // Those of 64 bits are distinguished to the last bit.
    let filter = Filter::new(&read("n = 18446744073709551615"));
    assert!(!filter.matches_json(br#"{"n":18446744073709551616}"#));
}

/// The middle of polygons lies among them, on either side of the meridian of 180 degrees, too.
#[test]
fn the_middle_of_a_polygon_is_that_of_the_box_around_it() {
    for (ring, x, y) in [
        (
            "[[170,-20],[-170,-20],[-170,-10],[170,-10],[170,-20]]",
            180.0,
            -15.0,
        ),
        (
            "[[176,-20],[-170,-20],[-170,-10],[176,-10],[176,-20]]",
            -177.0,
            -15.0,
        ),
        (
            "[[-180,0],[-160,0],[-160,10],[-180,10],[-180,0]]",
            -170.0,
            5.0,
        ),
        ("[[160,0],[180,0],[180,10],[160,10],[160,0]]", 170.0, 5.0),
        ("[[10,80],[20,80],[20,90],[10,80]]", 15.0, 85.0),
        ("[[0,0],[10,0],[10,10],[0,10],[0,0]]", 5.0, 5.0),
        ("[[500,0],[700,0],[700,10],[500,10],[500,0]]", 600.0, 5.0),
    ] {
        let area = AreaExpr::parse("polygon", &format!("[{ring}]")).unwrap();
        assert_eq!(area.middle().unwrap(), (x, y), "{ring}");
    }
}

/// Of several fields of one name in an object the last one counts, as with every parser.
#[test]
fn the_last_of_several_fields_of_a_name_counts() {
    for (condition, body, holds) in [
        ("a = 2", r#"{"a":1,"a":2}"#, true),
        ("a = 1", r#"{"a":1,"a":2}"#, false),
        ("a = 1", r#"{"a":1,"b":0,"\u0061":2}"#, false),
        ("a.b = 1", r#"{"a":{"b":1},"a":{"c":2}}"#, false),
        ("a.b is null", r#"{"a":{"b":1},"a":{"c":2}}"#, true),
        ("a.b = 1", r#"{"a":[{"b":1,"b":3},{"b":1}]}"#, true),
        ("a.b = 3", r#"{"a":[{"b":1,"b":3},{"b":1}]}"#, true),
        ("a exists", r#"{"a":1,"a":null}"#, false),
        ("a = 1 or b = 2", r#"{"a":1,"a":3,"b":2}"#, true),
        (
            "within(p, rect(0,0,2,2))",
            r#"{"p":[1,1],"p":[5,5]}"#,
            false,
        ),
        ("within(p, rect(4,4,6,6))", r#"{"p":[1,1],"p":[5,5]}"#, true),
        ("a = 1", r#"{"a":1,"b":1,"b":2}"#, true),
    ] {
        let filter = Filter::new(&read(condition));
        assert_eq!(
            filter.matches_json(body.as_bytes()),
            holds,
            "{condition}: {body}"
        );
    }
}

#[test]
fn one_of_many_is_what_equals_one_of_them() {
    const OPERANDS: [&str; 16] = [
        "7",
        "7.0",
        "7.5",
        "1e2",
        "100",
        "\"7\"",
        "\"7.0\"",
        "abc",
        "\"\"",
        "true",
        "false",
        "int(8)",
        "float(7.0)",
        "string(8)",
        "18446744073709551617",
        "2021-01-01T00:00:00Z",
    ];
    const VALUES: [&str; 17] = [
        "7",
        "7.0",
        "7.5",
        "100",
        "1e2",
        "8",
        "8.0",
        "\"7\"",
        "\"8\"",
        "\"7.0\"",
        "\"abc\"",
        "\"\"",
        "true",
        "\"true\"",
        "18446744073709551617",
        "null",
        "[1,[\"abc\"],7.5]",
    ];
    let mut rng = fastrand::Rng::with_seed(SEED);
    let mut met = 0;
    for _ in 0..500 {
        let some: Vec<&str> = (0..rng.usize(1..6))
            .map(|_| OPERANDS[rng.usize(0..OPERANDS.len())])
            .collect();
        let any = read(&format!("a in ({})", some.join(", ")));
        let each: Vec<String> = some
            .iter()
            .map(|operand| format!("a = {operand}"))
            .collect();
        let each = read(&each.join(" or "));
        for value in VALUES {
            let body = format!("{{\"a\":{value}}}");
            let holds = |expr: &Expr| Filter::new(expr).matches_json(body.as_bytes());
            assert_eq!(holds(&any), holds(&each), "{any} of {value}");
            met += usize::from(holds(&any));
        }
    }
    assert!(met > 500, "{met}");
}

#[test]
fn areas_are_read_and_nothing_else() {
    let rect = " rect(1, 2, 3, 4)".parse::<AreaExpr>().unwrap();
    assert_eq!(rect, AreaExpr::rect(1.0, 2.0, 3.0, 4.0));
    assert!(matches!(
        "{\"type\": \"Polygon\"}".parse(),
        Ok(AreaExpr::Polygon(_))
    ));
    for wrong in [
        "",
        "rect(1,2,3)",
        "1,2,3,4",
        "rect(1,2,3,4)) and within(b, rect(1,2,3,4)",
        "rect(1,2,3,4)) or x = 1 or (y = 1",
    ] {
        assert!(wrong.parse::<AreaExpr>().is_err(), "{wrong}");
    }
}
