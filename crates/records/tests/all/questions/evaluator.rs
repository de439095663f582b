//! Answers of questions by a look at each record. Shares no code with the store: values come from
//! a catalogue that says of each what it is.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A value of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Bool(bool),
    /// Digits and the power of ten behind them.
    Number(i128, i32),
    /// Microseconds since 1970 where the field is one of times, with the begins of its day and
    /// month; and whether the record has a number.
    Time {
        micros: i64,
        day: i64,
        month: i64,
        is_number: bool,
    },
    Text,
    /// Null, an object: no value.
    None,
}

/// A value of the catalogue: its JSON in a record, and in an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) json: &'static str,
    pub(super) shown: &'static str,
    pub(super) kind: Kind,
}

const fn item(json: &'static str, shown: &'static str, kind: Kind) -> Item {
    Item { json, shown, kind }
}

const fn number(json: &'static str, shown: &'static str, digits: i128, power: i32) -> Item {
    item(json, shown, Kind::Number(digits, power))
}

const fn time(json: &'static str, [micros, day, month]: [i64; 3], is_number: bool) -> Item {
    let kind = Kind::Time {
        micros,
        day,
        month,
        is_number,
    };
    item(json, json, kind)
}

const S: i64 = 1_000_000;
const MAY: i64 = 1_714_521_600 * S;
const JUNE: i64 = 1_717_200_000 * S;

/// Values of any type.
pub(super) const MIXED: [Item; 22] = [
    item("true", "true", Kind::Bool(true)),
    item("false", "false", Kind::Bool(false)),
    item("null", "null", Kind::None),
    item("{\"z\":1}", "null", Kind::None),
    item("\"\"", "\"\"", Kind::Text),
    item("\"a\"", "\"a\"", Kind::Text),
    item("\"ab\"", "\"ab\"", Kind::Text),
    item("\"b\\u0000\"", "\"b\\u0000\"", Kind::Text),
    item("\"7\"", "\"7\"", Kind::Text),
    number("0", "0", 0, 0),
    number("-0.0", "0", 0, 0),
    number("7", "7", 7, 0),
    number("7.0", "7", 7, 0),
    number("-3", "-3", -3, 0),
    number("2.5", "2.5", 25, -1),
    number("1e2", "100", 1, 2),
    number(
        "0.30000000000000004",
        "0.30000000000000004",
        30_000_000_000_000_004,
        -17,
    ),
    number(
        "18446744073709551615",
        "18446744073709551615",
        18_446_744_073_709_551_615,
        0,
    ),
    number(
        "-9223372036854775808",
        "-9223372036854775808",
        -9_223_372_036_854_775_808,
        0,
    ),
    number(
        "18446744073709551616.5",
        "18446744073709551616.5",
        184_467_440_737_095_516_165,
        -1,
    ),
    number("1.7e300", "1.7e300", 17, 299),
    number("-5e-320", "-5e-320", -5, -320),
];

/// Numbers whose sums are exact in eighths.
pub(super) const EIGHTHS: [Item; 9] = [
    number("1", "1", 1, 0),
    number("-4", "-4", -4, 0),
    number(
        "9007199254740991",
        "9007199254740991",
        9_007_199_254_740_991,
        0,
    ),
    number("0", "0", 0, 0),
    number("0.5", "0.5", 5, -1),
    number("-2.125", "-2.125", -2125, -3),
    number("3.25", "3.25", 325, -2),
    item("null", "null", Kind::None),
    item("\"x\"", "\"x\"", Kind::Text),
];

/// Values of a field of times.
pub(super) const TIMES: [Item; 9] = [
    time("1714521600", [MAY, MAY, MAY], true),
    time("\"2024-05-01\"", [MAY, MAY, MAY], false),
    time(
        "\"2024-05-01T12:00:00Z\"",
        [MAY + 43_200 * S, MAY, MAY],
        false,
    ),
    time(
        "1714608000.5",
        [MAY + 86_400 * S + S / 2, MAY + 86_400 * S, MAY],
        true,
    ),
    time(
        "\"2024-05-31T23:59:59Z\"",
        [JUNE - S, JUNE - 86_400 * S, MAY],
        false,
    ),
    time("1717200000", [JUNE, JUNE, JUNE], true),
    time("-1", [-S, -86_400 * S, -31 * 86_400 * S], true),
    item("null", "null", Kind::None),
    item("false", "false", Kind::Bool(false)),
];

impl Item {
    fn class(&self) -> u8 {
        match self.kind {
            Kind::Bool(_) => 0,
            Kind::Number(..) => 1,
            Kind::Time { .. } => 2,
            Kind::Text => 3,
            Kind::None => 4,
        }
    }

    pub(super) fn is_value(&self) -> bool {
        self.kind != Kind::None
    }

    fn is_number(&self) -> bool {
        matches!(
            self.kind,
            Kind::Number(..)
                | Kind::Time {
                    is_number: true,
                    ..
                }
        )
    }

    /// The order of all values.
    pub(super) fn order(&self, other: &Item) -> Ordering {
        self.class()
            .cmp(&other.class())
            .then_with(|| match (&self.kind, &other.kind) {
                (Kind::Bool(a), Kind::Bool(b)) => a.cmp(b),
                (Kind::Number(a, p), Kind::Number(b, q)) => numbers((*a, *p), (*b, *q)),
                (Kind::Time { micros: a, .. }, Kind::Time { micros: b, .. }) => a.cmp(b),
                (Kind::Text, Kind::Text) => {
                    let text = |json| serde_json::from_str::<String>(json).unwrap();
                    text(self.json).cmp(&text(other.json))
                }
                _ => Ordering::Equal,
            })
    }
}

/// Compares numbers by their parts before and behind the point, as text.
fn numbers(a: (i128, i32), b: (i128, i32)) -> Ordering {
    let sign = a.0.signum().cmp(&b.0.signum());
    let text = |(digits, power): (i128, i32)| {
        let digits = digits.unsigned_abs().to_string();
        let zeros = "0".repeat(power.max(0) as usize);
        let all = format!("{:0>400}{digits}{zeros}", "");
        let (whole, fraction) = match power {
            0.. => (all, String::new()),
            _ => {
                let (whole, fraction) = all.split_at(all.len() - power.unsigned_abs() as usize);
                (whole.to_string(), fraction.to_string())
            }
        };
        format!("{:0>900}.{fraction:0<400}", whole)
    };
    let magnitude = || match a.0.signum() {
        0 => Ordering::Equal,
        1 => text(a).cmp(&text(b)),
        _ => text(b).cmp(&text(a)),
    };
    sign.then_with(magnitude)
}

/// A record: its JSON, and the values at each path; an array has several.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) json: String,
    pub(super) values: BTreeMap<&'static str, Vec<Item>>,
}

impl Row {
    fn values(&self, path: &str) -> impl Iterator<Item = &Item> {
        self.values[path].iter().filter(|item| item.is_value())
    }
}

/// Sorts records by paths, each ascending (true) or descending, then by id.
pub(super) fn sort(rows: &mut [Row], by: &[(&'static str, bool)]) {
    rows.sort_by(|a, b| {
        for (path, ascending) in by {
            let of = |row: &Row| {
                let all: Vec<Item> = row.values(path).cloned().collect();
                let least = all.iter().min_by(|a, b| a.order(b)).cloned();
                let most = all.iter().max_by(|a, b| a.order(b)).cloned();
                if *ascending { least } else { most }
            };
            let order = match (of(a), of(b)) {
                (None, None) => Ordering::Equal,
                (None, _) => Ordering::Greater,
                (_, None) => Ordering::Less,
                (Some(a), Some(b)) if *ascending => a.order(&b),
                (Some(a), Some(b)) => b.order(&a),
            };
            if order.is_ne() {
                return order;
            }
        }
        a.id.cmp(&b.id)
    });
}

/// How records form groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum By {
    Value(&'static str),
    Day(&'static str),
    Month(&'static str),
    /// Buckets of two from one on, of numbers in eighths.
    Two(&'static str),
}

impl By {
    pub(super) fn text(self) -> String {
        match self {
            By::Value(path) => path.to_string(),
            By::Day(path) => format!("{path}/1d"),
            By::Month(path) => format!("{path}/month"),
            By::Two(path) => format!("{path}/2@1"),
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            By::Value(path) | By::Day(path) | By::Month(path) | By::Two(path) => path,
        }
    }
}

/// The part of a group's key: what it is ordered by, and what is shown.
#[derive(Debug, Clone)]
struct Part {
    item: Option<Item>,
    /// The begin of a bucket.
    begin: Option<i128>,
    has_number: bool,
}

fn parts(row: &Row, by: By) -> Vec<Part> {
    let mut found: Vec<Part> = Vec::new();
    for item in row.values(by.path()) {
        let begin = match (by, &item.kind) {
            (By::Value(_), _) => None,
            (By::Day(_), Kind::Time { day, .. }) => Some(i128::from(*day)),
            (By::Month(_), Kind::Time { month, .. }) => Some(i128::from(*month)),
            (By::Two(_), Kind::Number(digits, power)) => match whole(*digits, *power) {
                Some(whole) => Some((whole - 1).div_euclid(2) * 2 + 1),
                None => continue,
            },
            _ => continue,
        };
        let part = Part {
            item: Some(item.clone()),
            begin,
            has_number: item.is_number(),
        };
        match found
            .iter_mut()
            .find(|known| order_of(known, &part).is_eq())
        {
            Some(known) => known.has_number |= part.has_number,
            None => found.push(part),
        }
    }
    if found.is_empty() {
        found.push(Part {
            item: None,
            begin: None,
            has_number: false,
        });
    }
    found
}

fn order_of(a: &Part, b: &Part) -> Ordering {
    match (&a.item, &b.item) {
        (None, None) => Ordering::Equal,
        (None, _) => Ordering::Greater,
        (_, None) => Ordering::Less,
        (Some(x), Some(y)) => match (a.begin, b.begin) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => x.order(y),
        },
    }
}

/// The greatest whole number that is not above a number, but for one that is beyond all buckets.
fn whole(digits: i128, power: i32) -> Option<i128> {
    match 10_i128.checked_pow(power.unsigned_abs()) {
        Some(all) if power < 0 => Some(digits.div_euclid(all)),
        Some(all) => digits.checked_mul(all),
        None if power < 0 => Some(digits.signum().min(0)),
        None => None,
    }
}

fn eighths(digits: i128, power: i32) -> i128 {
    digits * 8 / 10_i128.pow(power.unsigned_abs())
}

/// A time as it is shown: a number of seconds or text.
fn shown_time(micros: i128, as_number: bool) -> String {
    if !as_number {
        return match micros / i128::from(S) {
            1_714_521_600 => "\"2024-05-01T00:00:00Z\"".to_string(),
            1_714_564_800 => "\"2024-05-01T12:00:00Z\"".to_string(),
            1_717_113_600 => "\"2024-05-31T00:00:00Z\"".to_string(),
            1_717_199_999 => "\"2024-05-31T23:59:59Z\"".to_string(),
            other => panic!("no text of {other}"),
        };
    }
    let half = if micros % i128::from(S) == 0 {
        ""
    } else {
        ".5"
    };
    format!("{}{half}", micros.div_euclid(i128::from(S)))
}

fn shown(item: Option<&Item>, as_number: bool) -> String {
    match item {
        None => "null".to_string(),
        Some(Item {
            kind: Kind::Time { micros, .. },
            ..
        }) => shown_time(i128::from(*micros), as_number),
        Some(item) => item.shown.to_string(),
    }
}

/// The groups of records, each as JSON, in the order of their keys.
pub(super) fn groups(rows: &[Row], by: &[By], aggregates: &[String]) -> Vec<String> {
    let mut groups: Vec<(Vec<Part>, Vec<&Row>)> = Vec::new();
    if by.is_empty() {
        groups.push((Vec::new(), Vec::new()));
    }
    for row in rows {
        let mut keys: Vec<Vec<Part>> = vec![Vec::new()];
        for by in by {
            let parts = parts(row, *by);
            keys = (keys.iter())
                .flat_map(|key| {
                    let with = |part: &Part| [key.clone(), vec![part.clone()]].concat();
                    parts.iter().map(with).collect::<Vec<_>>()
                })
                .collect();
        }
        for key in keys {
            let known = groups
                .iter_mut()
                .find(|(known, _)| compare(known, &key).is_eq());
            match known {
                Some((known, rows)) => {
                    for (known, part) in known.iter_mut().zip(&key) {
                        known.has_number |= part.has_number;
                    }
                    rows.push(row);
                }
                None => groups.push((key, vec![row])),
            }
        }
    }
    groups.sort_by(|a, b| compare(&a.0, &b.0));
    let line = |(key, rows): &(Vec<Part>, Vec<&Row>)| {
        let mut cells = Vec::new();
        for (by, part) in by.iter().zip(key) {
            let value = match (by, part.begin) {
                (By::Two(_), Some(begin)) => begin.to_string(),
                (_, Some(begin)) => shown_time(begin, part.has_number),
                (_, None) => shown(part.item.as_ref(), part.has_number),
            };
            cells.push(format!("\"{}\":{value}", by.path()));
        }
        for aggregate in aggregates {
            cells.push(format!("\"{aggregate}\":{}", value_of(rows, aggregate)));
        }
        format!("{{{}}}", cells.join(","))
    };
    groups.iter().map(line).collect()
}

fn compare(a: &[Part], b: &[Part]) -> Ordering {
    let each = a.iter().zip(b).map(|(a, b)| order_of(a, b));
    each.fold(Ordering::Equal, Ordering::then)
}

fn value_of(rows: &[&Row], aggregate: &str) -> String {
    if aggregate == "count" {
        return rows.len().to_string();
    }
    let (name, path) = aggregate.trim_end_matches(')').split_once('(').unwrap();
    let mut all: Vec<&Item> = rows.iter().flat_map(|row| row.values(path)).collect();
    all.sort_by(|a, b| a.order(b));
    let has_number = all.iter().any(|item| item.is_number());
    let numbers = || {
        // Sums are asked of a path whose numbers are few and small.
        let all = all.iter().filter(|_| path == "x");
        all.filter_map(|item| match item.kind {
            Kind::Number(digits, power) => Some((eighths(digits, power), power)),
            _ => None,
        })
    };
    let sum: i128 = numbers().map(|(eighths, _)| eighths).sum();
    let count = numbers().count();
    match name {
        "distinct" => {
            let mut different = all.clone();
            different.dedup_by(|a, b| a.order(b).is_eq());
            different.len().to_string()
        }
        "min" => shown(all.first().copied(), has_number),
        "max" => shown(all.last().copied(), has_number),
        "sum" | "avg" if count == 0 => "null".to_string(),
        "sum" if numbers().all(|(_, power)| power == 0) => (sum / 8).to_string(),
        "sum" => format!("{:?}", sum as f64 / 8.0),
        "avg" => format!("{:?}", sum as f64 / 8.0 / count as f64),
        percentile => {
            let percent: usize = percentile[1..].parse().unwrap();
            let rank = (all.len() * percent).div_ceil(100);
            shown(rank.checked_sub(1).map(|at| all[at]), has_number)
        }
    }
}

/// The paths that a question can name.
pub(super) fn paths() -> BTreeSet<&'static str> {
    BTreeSet::from(["n", "t", "u", "o.p", "x"])
}
