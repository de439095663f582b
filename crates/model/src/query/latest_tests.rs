//! Which record is the latest of each value.

use super::{Latest, LatestPer, Request, Shape};
use crate::definition::{DatasetDef, Index, StoredDef};
use crate::key::Key;
use crate::record::Record;
use crate::schema::{KeyType, Path, Type};

fn shape(indexes: impl FnOnce(DatasetDef) -> DatasetDef) -> Shape {
    let def = indexes(DatasetDef::new("id", KeyType::Int));
    Shape::new(&StoredDef::new(&def))
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

/// The keys of the latest records of each value of `of`, among records that were written in this
/// order; each is an object without its key, which is its place, from 1 on.
fn latest(shape: &Shape, request: &Request, latest: &Latest, records: &[&str]) -> Vec<String> {
    let of = path("of");
    let (mut per, considered) = LatestPer::new(shape, request.clone(), &of, latest).unwrap();
    let condition = considered.condition.as_ref();
    let considered = super::Compiled::new(shape, condition.cloned(), &mut super::NoEstimates);
    let considered = considered.unwrap();
    for (record, id) in records.iter().zip(1..) {
        let key = Key::parse(KeyType::Int, &id.to_string()).unwrap();
        let (_, fields) = record.split_once('{').unwrap();
        let record = format!(r#"{{"id":{id},{fields}"#);
        let record = Record::from_json(key, id, record.as_bytes());
        let stored = crate::record::RecordRef::parse(record.stored()).unwrap();
        if considered.confirm(&stored, shape, None) {
            per.add(record);
        }
    }
    let found = per.finish().into_iter();
    found.map(|record| record.key().to_string()).collect()
}

#[test]
fn values_are_told_apart_as_in_groups() {
    let any = shape(|def| def);
    let of = |values: &[&str]| {
        let records: Vec<String> = values.iter().map(|v| format!(r#"{{"of":{v}}}"#)).collect();
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        latest(&any, &Request::default(), &Latest::written(), &records)
    };
    // One number, however it is written.
    assert_eq!(of(&["1", "1.0", "10e-1"]), ["3"]);
    assert_eq!(of(&["0", "-0", "-0.0"]), ["3"]);
    // Numbers that share a nearest float.
    let long = ["36893488147419103232", "36893488147419103233"];
    assert_eq!(of(&long), ["1", "2"]);
    let long = ["0.1", "0.1000000000000000055511151231257827"];
    assert_eq!(of(&long), ["1", "2"]);
    // Values of several types, and none.
    assert_eq!(of(&["1", "\"1\"", "true", "null", "{}"]), ["1", "2", "3"]);
    assert_eq!(of(&["\"Int(1)\"", "1"]), ["1", "2"]);
}

#[test]
fn a_field_of_times_has_the_times_as_its_values() {
    let timed = shape(|def| def.index("of", Index::none().time()));
    let records = [
        r#"{"of":0}"#,
        r#"{"of":"1970-01-01T01:00:00+01:00"}"#,
        r#"{"of":"1970-01-01T01:00:00Z"}"#,
    ];
    let written = Latest::written();
    assert_eq!(
        latest(&timed, &Request::default(), &written, &records),
        ["2", "3"]
    );
}

#[test]
fn a_record_may_be_the_latest_of_several_values_and_is_shown_once() {
    let any = shape(|def| def);
    let records = [
        r#"{"of":["a","b"]}"#,
        r#"{"of":["b","c","b"]}"#,
        r#"{"of":"c"}"#,
        r#"{"of":["d","e"]}"#,
        r#"{"of":[]}"#,
        r#"{"of":"d"}"#,
    ];
    let ask = |text: &str| {
        let request = Request::of(text.parse().unwrap());
        latest(&any, &request, &Latest::written(), &records)
    };
    // 1 is that of a, 2 of b, 3 of c, 4 of e, and 6 of d.
    assert_eq!(ask("of exists"), ["1", "2", "3", "4", "6"]);
    assert_eq!(ask("of = d"), ["4", "6"]);
    assert_eq!(ask("of = b"), ["1", "2"]);
    assert_eq!(ask("of = c"), ["2", "3"]);
}

#[test]
fn bounds_of_a_time_that_is_not_declared_compare_times() {
    let records = [
        // In the order of times, and not of texts.
        r#"{"of":1,"at":"2024-05-01T10:00:00+02:00"}"#,
        r#"{"of":2,"at":"2024-05-01T09:30:00Z"}"#,
        r#"{"of":3,"at":1714557600}"#,
        r#"{"of":4,"at":"no time"}"#,
        r#"{"of":5,"at":9223372036854775807}"#,
        r#"{"of":6}"#,
        r#"{"of":7,"at":"1714557601"}"#,
    ];
    let ask = |shape: &Shape, from: &str, until: &str| {
        let bounds = Latest::by_time(path("at")).from(from).until(until);
        latest(shape, &Request::default(), &bounds, &records)
    };
    let undeclared = shape(|def| def);
    let lenient = shape(|def| def.index("at", Index::none().time().lenient()));
    let text = shape(|def| def.index("at", Index::none().string().lenient()));
    for (shape, is_declared) in [(undeclared, false), (lenient, true), (text, false)] {
        assert_eq!(ask(&shape, "1970-01-01", "2024-05-01T09:00:00Z"), ["1"]);
        assert_eq!(ask(&shape, "1970-01-01", "1714555800"), ["1", "2"]);
        // Seconds as text are times where none are declared, and so are numbers beyond all times.
        let later = ask(&shape, "2024-05-01T08:30:00Z", "2025-01-01");
        assert_eq!(later, ["2", "3", "7"][..if is_declared { 2 } else { 3 }]);
        let all = latest(
            &shape,
            &Request::default(),
            &Latest::by_time(path("at")),
            &records,
        );
        let right = ["1", "2", "3", "5", "7"];
        assert_eq!(all, right[..if is_declared { 3 } else { 5 }]);
    }
}

#[test]
fn numbers_that_are_no_declared_times_are_ranked_and_bounded_whatever_their_unit() {
    let records = [
        r#"{"of":1,"at":1764270000000002}"#,
        r#"{"of":1,"at":1764270000000001}"#,
        r#"{"of":2,"at":1764270000000003}"#,
        r#"{"of":2,"at":5}"#,
    ];
    for shape in [
        shape(|def| def),
        shape(|def| def.index("at", Index::composite().of_type(Type::Int))),
        shape(|def| def.index("at", Index::composite().of_type(Type::Float).lenient())),
    ] {
        let by_time = || Latest::by_time(path("at"));
        let ask = |bounds: &Latest| latest(&shape, &Request::default(), bounds, &records);
        assert_eq!(ask(&by_time()), ["1", "3"]);
        assert_eq!(ask(&by_time().until("1764270000000002")), ["1", "4"]);
        assert_eq!(ask(&by_time().until("1764270000000001")), ["2", "4"]);
        let recent = by_time().until("1764270000000003");
        let recent = recent.max_age(std::time::Duration::from_secs(1));
        assert_eq!(ask(&recent), ["1", "3"]);
    }
    // An index of numbers serves the bounds.
    let numbers = shape(|def| def.index("at", Index::composite().of_type(Type::Int)));
    let bounds = Latest::by_time(path("at")).from("7").until("9");
    let (_, considered) =
        LatestPer::new(&numbers, Request::default(), &path("of"), &bounds).unwrap();
    assert_eq!(
        considered.condition.unwrap().to_string(),
        "at <= int(10) and at >= int(7)"
    );
}

#[test]
fn of_several_times_the_latest_within_the_bounds_counts() {
    let records = [r#"{"of":1,"at":[10,500]}"#, r#"{"of":1,"at":20}"#];
    for shape in [
        shape(|def| def),
        shape(|def| def.index("at", Index::none().time())),
    ] {
        let until = |time: &str| {
            let bounds = Latest::by_time(path("at")).until(time);
            latest(&shape, &Request::default(), &bounds, &records)
        };
        assert_eq!(until("1000"), ["1"]);
        assert_eq!(until("100"), ["2"]);
        assert_eq!(until("15"), ["1"]);
    }
}
