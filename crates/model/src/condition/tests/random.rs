//! Random conditions on random JSON, compared with an evaluator without tries and formulas.

use super::*;

fn path(rng: &mut fastrand::Rng) -> Path {
    Path::parse(["a", "b", "a.b", "b.a", "a.b.a", "c"][rng.usize(..6)]).unwrap()
}

fn json(rng: &mut fastrand::Rng, depth: usize) -> Json {
    match rng.u32(..if depth == 0 { 8 } else { 12 }) {
        0 => Json::Null,
        1 => json!(rng.bool()),
        2 => json!(rng.i64(-2..4)),
        3 => json!(f64::from(rng.i32(-4..8)) / 2.0),
        4 => json!([u64::MAX, 1 << 53, (1 << 53) + 1][rng.usize(..3)]),
        5 => json!(["", "a", "ab", "b", "1", "true", "1.0"][rng.usize(..7)]),
        6 => json!(["1970-01-01T00:00:01Z", "1970-01-01"][rng.usize(..2)]),
        7 => json!(rng.i64(0..3)),
        8 | 9 => Json::Array((0..rng.usize(..4)).map(|_| json(rng, depth - 1)).collect()),
        _ => object(rng, depth - 1),
    }
}

fn object(rng: &mut fastrand::Rng, depth: usize) -> Json {
    let names = ["a", "b", "c", "d"];
    let fields = names.iter().filter_map(|name| {
        let there = rng.u32(..4) > 0;
        there.then(|| ((*name).to_owned(), json(rng, depth)))
    });
    Json::Object(fields.collect())
}

pub(super) fn operand(rng: &mut fastrand::Rng) -> Operand {
    match rng.u32(..10) {
        0 => rng.i64(-2..4).into(),
        1 => (f64::from(rng.i32(-4..8)) / 2.0).into(),
        2 => [u64::MAX, 1 << 53, (1 << 53) + 1][rng.usize(..3)].into(),
        3 => rng.bool().into(),
        4 => ["", "a", "ab", "1", "true", "a b", "c\"\\", "and"][rng.usize(..8)].into(),
        5 => Value::Time(rng.i64(-1..3) * 1_000_000).into(),
        6 => [1e300, -0.0, 9_007_199_254_740_992.0][rng.usize(..3)].into(),
        7 => Operand::text(rng.i64(-2..4).to_string()),
        _ => Operand::text(
            [
                "a", "ab", "true", "1.0", "1e0", "x y", "", "int(5)", "(", "a,b", "=", "\"a",
                "null", "now-1h",
            ][rng.usize(..14)],
        ),
    }
}

fn expr(rng: &mut fastrand::Rng, depth: usize) -> Expr {
    let path = path(rng);
    match rng.u32(..if depth == 0 { 7 } else { 14 }) {
        0 => Expr::test(path, Predicate::Exists),
        1 => Expr::test(
            path,
            Predicate::In((0..rng.usize(..4)).map(|_| operand(rng)).collect()),
        ),
        2 => Expr::test(path, Predicate::Contains(operand(rng))),
        3..=6 => Expr::compare(path, Op::ALL[rng.usize(..7)], operand(rng)),
        7 | 8 => !expr(rng, depth - 1),
        9 | 10 => expr(rng, depth - 1) | expr(rng, depth - 1),
        11 | 12 => expr(rng, depth - 1) & expr(rng, depth - 1),
        // Two bounds of one path.
        _ => {
            let bound = |rng: &mut fastrand::Rng| {
                let op = [Op::Ge, Op::Gt, Op::Le, Op::Lt][rng.usize(..4)];
                Expr::compare(path.clone(), op, operand(rng))
            };
            bound(rng) & expr(rng, depth - 1) & bound(rng)
        }
    }
}

/// Every value at a path that is not null, and whether it is an element of an array.
fn reach<'a>(json: &'a Json, names: &[&str], in_array: bool, found: &mut Vec<(&'a Json, bool)>) {
    match (json, names) {
        (Json::Array(elements), _) => elements.iter().for_each(|e| reach(e, names, true, found)),
        (Json::Null, []) => {}
        (_, []) => found.push((json, in_array)),
        (_, [name, rest @ ..]) => {
            if let Some(value) = json.get(name) {
                reach(value, rest, false, found);
            }
        }
    }
}

/// A number, scaled so that those of these tests are whole; beyond that, only its sign matters.
fn scaled(text: &str) -> Option<i128> {
    if let Ok(v) = text.parse::<i128>() {
        return Some(v * 2);
    }
    let v: f64 = text.parse().ok()?;
    v.is_finite().then_some((v * 2.0) as i128)
}

fn order(value: &Json, operand: &Operand) -> Option<std::cmp::Ordering> {
    let seconds = |text: &str| Value::parse(Type::Time, text).ok();
    match (operand, value) {
        (Operand::Value(Value::Time(t)), Json::Number(n)) => {
            seconds(&n.to_string())?.partial_cmp(&Value::Time(*t))
        }
        (Operand::Value(Value::Time(t)), Json::String(s)) => {
            let is_date = s.contains('-');
            seconds(s)
                .filter(|_| is_date)?
                .partial_cmp(&Value::Time(*t))
        }
        (Operand::Value(Value::String(text)) | Operand::Text(text), Json::String(s)) => {
            Some(s.as_bytes().cmp(text.as_bytes()))
        }
        (Operand::Value(v @ (Value::Int(_) | Value::Float(_))), Json::Number(n)) => {
            Some(scaled(&n.to_string())?.cmp(&scaled(&v.to_string())?))
        }
        (Operand::Text(text), Json::Number(n)) => Some(scaled(&n.to_string())?.cmp(&scaled(text)?)),
        (Operand::Value(Value::Bool(b)), Json::Bool(v)) => Some(v.cmp(b)),
        (Operand::Text(text), Json::Bool(v)) => match text.as_str() {
            "true" => Some(v.cmp(&true)),
            "false" => Some(v.cmp(&false)),
            _ => None,
        },
        _ => None,
    }
}

fn accepts((value, is_element): (&Json, bool), predicate: &Predicate) -> bool {
    let ordered =
        |operand, holds: fn(std::cmp::Ordering) -> bool| order(value, operand).is_some_and(holds);
    match predicate {
        Predicate::Exists => true,
        Predicate::Within(_) => unreachable!("areas have tests of their own"),
        Predicate::Contains(operand) => match (value, operand) {
            (Json::String(s), Operand::Value(Value::String(part)) | Operand::Text(part))
                if !is_element =>
            {
                s.contains(part)
            }
            _ => ordered(operand, |o| o.is_eq()),
        },
        Predicate::In(any) => any.iter().any(|operand| ordered(operand, |o| o.is_eq())),
        Predicate::Compare(op, operand) => match op {
            Op::Eq => ordered(operand, |o| o.is_eq()),
            Op::Ne => !ordered(operand, |o| o.is_eq()),
            Op::Ge => ordered(operand, |o| o.is_ge()),
            Op::Le => ordered(operand, |o| o.is_le()),
            Op::Gt => ordered(operand, |o| o.is_gt()),
            Op::Lt => ordered(operand, |o| o.is_lt()),
            Op::Prefix => match (value, operand) {
                (Json::String(s), Operand::Value(Value::String(p)) | Operand::Text(p)) => {
                    s.starts_with(p)
                }
                _ => false,
            },
        },
    }
}

fn holds(expr: &Expr, body: &Json) -> bool {
    let values = |path: &Path| {
        let names: Vec<&str> = path.names().collect();
        let mut found = Vec::new();
        reach(body, &names, false, &mut found);
        found
    };
    match &expr.node {
        Node::Test(path, predicate) => values(path).iter().any(|v| accepts(*v, predicate)),
        Node::Or(parts) => parts.iter().any(|part| holds(part, body)),
        Node::Not(inner) => !holds(inner, body),
        Node::And(parts) => {
            let bound = |part: &Expr| match &part.node {
                Node::Test(path, predicate @ Predicate::Compare(op, _)) => {
                    let bounds = matches!(op, Op::Ge | Op::Gt | Op::Le | Op::Lt);
                    bounds.then(|| (path.clone(), predicate.clone()))
                }
                _ => None,
            };
            let bounds: Vec<(Path, Predicate)> = parts.iter().filter_map(bound).collect();
            parts
                .iter()
                .filter(|part| bound(part).is_none())
                .all(|part| holds(part, body))
                && bounds.iter().all(|(path, _)| {
                    values(path).iter().any(|value| {
                        let mine = bounds.iter().filter(|(other, _)| other == path);
                        mine.into_iter()
                            .all(|(_, predicate)| accepts(*value, predicate))
                    })
                })
        }
        Node::Invalid(why) => panic!("{why}"),
    }
}

#[test]
fn filters_agree_with_a_search_of_the_parsed_record() {
    let mut rng = fastrand::Rng::with_seed(SEED);
    let (mut yes, rounds) = (0, 60_000);
    for round in 0..rounds {
        let (expr, body) = (expr(&mut rng, 3), object(&mut rng, 3));
        let wanted = holds(&expr, &body);
        yes += u32::from(wanted);
        let text = body.to_string();
        let filter = Filter::new(&expr);
        let seen = format!("round {round}, seed {SEED}: {expr} on {text}");
        assert_eq!(filter.matches_json(text.as_bytes()), wanted, "{seen}");
        // Some truth values are supplied.
        let declared = |path: &Path| path.names().next() == Some("a");
        let filter = Filter::with(expr.clone(), declared);
        let mut elsewhere = |at: usize| {
            let test = &filter.tests()[at];
            assert!(declared(&test.path), "{seen}");
            holds(&test.to_expr().unwrap(), &body)
        };
        let found = filter.matches(&mut elsewhere, text.as_bytes());
        assert_eq!(found, wanted, "{seen}");
    }
    assert!(yes > rounds / 5 && yes < rounds * 4 / 5, "{yes}");
}

#[test]
fn conditions_read_back_as_they_were_printed() {
    let mut rng = fastrand::Rng::with_seed(SEED);
    for round in 0..30_000 {
        let expr = expr(&mut rng, 4);
        let text = expr.to_string();
        let again = text.parse::<Expr>();
        assert_eq!(
            again.as_ref(),
            Ok(&expr),
            "round {round}, seed {SEED}: {text}"
        );
    }
    for name in [
        "a b", "not", "a!b", "x(y)", "it's", "a\"b", "a\\.b", "<", "^=", "a,b", "\u{a0}", "null",
    ] {
        let escaped: String = name
            .chars()
            .flat_map(|c| match c {
                '.' | '\\' | '<' | '^' | '=' => vec!['\\', c],
                c => vec![c],
            })
            .collect();
        let expr = field(&escaped).eq(1) & field(&escaped).exists();
        assert_eq!(read(&expr.to_string()), expr, "{expr}");
    }
}

#[test]
fn ranges_of_declared_values_agree_with_filters() {
    let mut rng = fastrand::Rng::with_seed(SEED);
    let path = |p| Path::parse(p).unwrap();
    let mut compared = 0;
    for round in 0..40_000 {
        let t = Type::SCALAR[rng.usize(..5)];
        let op = Op::ALL[rng.usize(..7)];
        let operand = operand(&mut rng);
        let expr = match rng.u32(..5) {
            0 => Expr::test(
                path("v"),
                Predicate::In(vec![operand.clone(), self::operand(&mut rng)]),
            ),
            1 => Expr::test(path("v"), Predicate::Contains(operand.clone())),
            _ => Expr::compare(path("v"), op, operand.clone()),
        };
        let values: Vec<Json> = (0..rng.usize(..4)).map(|_| json(&mut rng, 0)).collect();
        let body = json!({"id": 1, "v": values}).to_string();
        let lenient = rng.bool();
        let wanted = Wanted::new(path("v"), t).lenient(lenient);
        let x = Extraction::of((path("id"), KeyType::Int), vec![wanted]);
        let mut out = Extracted::default();
        let ranges = match predicate(&expr).to_ranges(t) {
            Ok(ranges) => ranges,
            Err(_) if lenient => predicate(&expr).to_ranges_where_comparable(t),
            Err(_) => continue,
        };
        if x.extract(body.as_bytes(), &mut out).is_err() {
            continue;
        }
        // A declared type reads text in its own way.
        let operands = match predicate(&expr) {
            Predicate::In(operands) => operands,
            _ => vec![operand],
        };
        let comparable = operands.iter().all(|operand| match operand {
            Operand::Text(_) => t != Type::Time,
            Operand::Value(Value::String(_)) => t == Type::String,
            Operand::Value(Value::Int(_) | Value::Float(_)) => t != Type::Time,
            Operand::Value(_) => true,
        });
        if !comparable {
            continue;
        }
        compared += 1;
        let expected = Filter::new(&expr).matches_json(body.as_bytes());
        let doubtful = predicate(&expr).doubtful(t);
        let test = Test {
            path: path("v"),
            predicates: vec![predicate(&expr)],
        };
        let mut in_doubt = out.unindexed().next().is_some();
        let met = out.values(0).any(|v| {
            if doubtful.iter().any(|doubtful| doubtful == v)
                || crate::schema::stand_in(t) == Some(v)
            {
                in_doubt = true;
                return false;
            }
            ranges.iter().any(|range| range.contains(v))
        });
        let found = if predicate(&expr).reads_records(t, lenient) {
            Residual::of_all(&test).holds(body.as_bytes())
        } else {
            met || in_doubt && Residual::new(&test, t).holds(body.as_bytes())
        };
        assert_eq!(
            found, expected,
            "round {round}, seed {SEED}: {expr} as {t} on {body}"
        );
    }
    assert!(compared > 2000, "{compared}");
}
