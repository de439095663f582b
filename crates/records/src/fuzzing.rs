//! Entry points for fuzzing: each passes arbitrary bytes to one decoder. None may panic, hang or
//! allocate without bound on any input; each asserts the decoder's invariants.
//!
//! Compiled only with the feature `fuzzing`, and in tests, which run each entry point briefly. The
//! targets for `cargo fuzz` are in `fuzz/`.

#![allow(
    clippy::unwrap_used,
    reason = "a target reports a violated invariant by panicking"
)]

use std::collections::BTreeSet;

use esker_lsm::coding::Reader;
use esker_model::condition::{Expr, Filter, Operand, Residual};
use esker_model::definition::StoredDef;
use esker_model::fields::{FieldGatherer, Fields};
use esker_model::geometry::{Area, Point, Space};
use esker_model::posting::{Posting, PostingList, PostingMerge, PostingWriter};
use esker_model::record::{self, RecordRef};
use esker_model::region::Region;
use esker_model::schema::{
    Extracted, Extraction, KeyType, Path, PointAt, RecordErrorKind, Type, Value, Wanted,
    WantedField, compound_field, compound_is_whole, compound_text, decode_key, encode_key, infer,
    infer_key, stand_in, without_negative_zeros,
};
use serde_json::Value as Json;

use crate::catalog::TreeConfig;

#[cfg(test)]
#[path = "fuzzing_tests.rs"]
mod tests;

/// A stored record, which is read, written and read again.
pub fn stored_record(data: &[u8]) {
    let body = RecordRef::body_of(data);
    let Some(stored) = RecordRef::parse(data) else {
        return;
    };
    assert_eq!(body, Some(stored.body()));
    let mut encoded = Vec::new();
    record::encode(
        &mut encoded,
        stored.known(),
        stored.attributes(),
        stored.body(),
    );
    let read = RecordRef::parse(&encoded).unwrap();
    assert!(read.attributes().eq(stored.attributes()));
    assert_eq!(read.body(), stored.body());
}

/// A stored set of fields, or the JSON of a record, whose fields are gathered: encoding a decoded
/// set gives the same set, and a set covers the fields that were added to it.
pub fn fields(data: &[u8]) {
    let mut gatherer = FieldGatherer::default();
    // The second time it meets its own template.
    gatherer.add(data);
    gatherer.add(data);
    let mut plain = Fields::default();
    plain.add(data);
    assert_eq!(*gatherer.fields(), plain);
    for fields in Fields::decode(data).into_iter().chain([plain]) {
        let mut stored = Vec::new();
        fields.encode(&mut stored);
        assert_eq!(Fields::decode(&stored).as_ref(), Some(&fields));
        gatherer.absorb(&fields);
        assert!(gatherer.fields().covers(&fields));
    }
}

/// Two fragments of a posting list, the first of the length in the first byte: decoded, finished,
/// joined.
pub fn postings(data: &[u8]) {
    let Some((len, rest)) = data.split_first() else {
        return;
    };
    let (newer, older) = rest.split_at(usize::from(*len).min(rest.len()));
    let (newer_seq, older_seq) = (900, 700);
    let lists = [(newer, newer_seq), (older, older_seq)];
    let [first, second] = lists.map(|(bytes, seq)| postings_of(bytes, seq));
    if let Some(postings) = &first {
        let is_newest_first = |pair: &[OwnedPosting]| matches!(pair, [a, b] if a.seq > b.seq);
        assert!(postings.windows(2).all(is_newest_first));
        let mut writer = PostingWriter::new();
        for OwnedPosting { seq, key, cancel } in postings {
            let (seq, cancel) = (*seq, *cancel);
            assert!(writer.push(Posting { seq, key, cancel }));
        }
        let mut written = Vec::new();
        writer.finish(false, &mut written);
        assert_eq!(postings_of(&written, newer_seq).as_ref(), Some(postings));
    }
    let operator = PostingMerge::default();
    for oldest in [false, true] {
        let mut finished = newer.to_vec();
        let is_kept = operator.finish(newer_seq, &mut finished, oldest);
        if let Some(postings) = first.as_ref().filter(|_| is_kept) {
            let after = postings_of(&finished, newer_seq).unwrap();
            assert!(after.iter().all(|posting| postings.contains(posting)));
        }
    }
    let mut joined = newer.to_vec();
    if !operator.combine(&mut joined, newer_seq, older, older_seq) {
        assert_eq!(joined, newer);
        return;
    }
    // Joining only reads the headers, so it may join malformed fragments.
    if let (Some(first), Some(second)) = (first, second) {
        let all: Vec<OwnedPosting> = first.into_iter().chain(second).collect();
        assert_eq!(postings_of(&joined, newer_seq), Some(all));
    }
}

/// A decoded posting.
#[derive(Debug, PartialEq)]
struct OwnedPosting {
    seq: u64,
    key: Vec<u8>,
    cancel: bool,
}

/// The postings of the fragment that write `entry` wrote; `None` if it is malformed.
fn postings_of(bytes: &[u8], entry: u64) -> Option<Vec<OwnedPosting>> {
    let mut reader = PostingList::parse(bytes, entry).ok()?.reader();
    let mut postings = Vec::new();
    while let Some(posting) = reader.next().ok()? {
        postings.push(OwnedPosting {
            seq: posting.seq,
            key: posting.key.to_vec(),
            cancel: posting.cancel,
        });
    }
    Some(postings)
}

/// Encoded values and keys of each type: each has one encoding, and its text is read as the same.
pub fn value(data: &[u8]) {
    for ty in Type::ALL {
        let mut input = Reader::new(data);
        let Some(value) = Value::decode(ty, &mut input) else {
            continue;
        };
        let len = data.len() - input.rest().len();
        let (encoded, rest) = Value::split(ty, data).unwrap();
        assert_eq!((encoded.len(), rest), (len, input.rest()));
        assert_eq!(value.encoded(), encoded, "{value:?} has two encodings");
        let text = value.to_string();
        assert_eq!(Value::parse(ty, &text).unwrap(), value, "{text}");
    }
    if let Some((whole, _)) = Value::split(Type::Compound, data) {
        let _ = (compound_text(whole), compound_is_whole(whole));
        assert_eq!(Value::split(Type::Compound, whole), Some((whole, &[][..])));
    }
    for ty in [KeyType::Int, KeyType::String, KeyType::Fields] {
        if let Some(key) = decode_key(ty, data) {
            let mut encoded = Vec::new();
            encode_key(ty, &key, &mut encoded).unwrap();
            assert_eq!(encoded, data);
        }
    }
}

/// A record as JSON: the one-pass extraction finds the same values as a full parser.
pub fn json(data: &[u8]) {
    let attributes = [
        ("a", Type::Int),
        ("b", Type::String),
        ("a.b", Type::Float),
        ("c", Type::Time),
        ("b.c", Type::Bool),
        ("d", Type::String),
        ("p", Type::Point),
        ("a.x,a.y", Type::PlanePoint),
        ("p@c", Type::PointTime),
        ("t", Type::TimeMs),
        ("t.x", Type::TimeNs),
    ];
    let attributes = attributes.map(|(path, ty)| (path.parse().unwrap(), ty));
    for key_type in [KeyType::Int, KeyType::String] {
        let key = ("id".parse().unwrap(), key_type);
        let extraction = Extraction::new(key, attributes.to_vec());
        let mut out = Extracted::default();
        if extraction.extract_new(data, &mut out).is_err() {
            continue;
        }
        // Other parsers accept every accepted record.
        serde_json::from_slice::<Json>(data).unwrap();
        let text = std::str::from_utf8(data).unwrap();
        // The parser reads the integer -0 as a float.
        let text = without_negative_zeros(text).unwrap_or_else(|| text.to_string());
        let json: Json = serde_json::from_str(&text).unwrap();
        let wanted = json.get("id").and_then(|id| naive(key_type.as_type(), id));
        let mut key = Vec::new();
        encode_key(key_type, &wanted.unwrap(), &mut key).unwrap();
        assert_eq!(out.key(), key);
        let fields = [3, 0, 5].map(|at| (at, &attributes[at]));
        combinations(data, ("id".parse().unwrap(), key_type), &out, &fields);
        for (at, (path, ty)) in attributes.iter().enumerate() {
            if ty.timed_space().is_some() {
                let expected = point_times(&out, 6, 3);
                assert!(out.values(at).eq(expected.iter().map(Vec::as_slice)));
            } else if let Some(space) = ty.space() {
                // Conditions and extraction find the same point.
                let point = PointAt::new(path).unwrap().find(space, data);
                let expected = point.map(|point| Value::Point(space, point).encoded());
                assert!(out.values(at).eq(expected.iter().map(Vec::as_slice)));
            } else {
                check_values(&json, path, *ty, &out, at);
            }
        }
    }
    for path in ["id", "a", "a.b"] {
        let path = path.parse().unwrap();
        if infer(&[data], &path).is_some() {
            infer_key(&[data], &path);
        }
    }
}

/// The extracted values of the attribute number `at` are those that the path reaches in the JSON.
fn check_values(json: &Json, path: &Path, ty: Type, out: &Extracted, at: usize) {
    let names: Vec<&str> = path.names().collect();
    let mut reached = Vec::new();
    reach(json, &names, &mut reached);
    // Objects are not indexed. For a number that no float represents exactly, the parser loses the
    // digits.
    reached.retain(|value| !value.is_null() && !value.is_object());
    if ty == Type::Float
        && out
            .values(at)
            .any(|value| stand_in(Type::Float) == Some(value))
    {
        return;
    }
    let expected: BTreeSet<Vec<u8>> = (reached.iter())
        .map(|value| naive(ty, value).unwrap().encoded())
        .collect();
    if ty.is_time() && reached.iter().any(|value| value.is_f64()) {
        let extracted: BTreeSet<Vec<u8>> = out.values(at).map(<[u8]>::to_vec).collect();
        assert!(has_all_about(ty, &extracted, &expected));
        assert!(has_all_about(ty, &expected, &extracted));
    } else {
        assert!(out.values(at).eq(expected.iter().map(Vec::as_slice)));
    }
}

/// The encoded points in time of a record: each value of the attribute number `times`, at the
/// location of the attribute number `point` if that has one.
fn point_times(out: &Extracted, point: usize, times: usize) -> BTreeSet<Vec<u8>> {
    let decode = |at: usize, ty: Type| -> Vec<Value> {
        let values = out.values(at);
        values
            .map(|value| Value::decode(ty, &mut Reader::new(value)).unwrap())
            .collect()
    };
    let points = decode(point, Type::Point);
    let [Value::Point(space, point)] = points.as_slice() else {
        return BTreeSet::new();
    };
    let times = decode(times, Type::Time).into_iter();
    let encoded = times.filter_map(|time| match time {
        Value::Time(micros) => Some(Value::PointTime(*space, *point, micros).encoded()),
        _ => None,
    });
    encoded.collect()
}

/// True if each of the times differs from one of the others by at most a microsecond, or by what
/// two floats differ: the parser may take the float beside the nearest one.
fn has_all_about(ty: Type, times: &BTreeSet<Vec<u8>>, others: &BTreeSet<Vec<u8>>) -> bool {
    let micros = |bytes: &Vec<u8>| match Value::decode(ty, &mut Reader::new(bytes)) {
        Some(Value::Time(micros)) => Some(micros),
        _ => None,
    };
    let is_near = |time: i64, other: i64| {
        let max_difference = 1 + (time.unsigned_abs() >> 51);
        other.abs_diff(time) <= max_difference
    };
    times.iter().all(|time| {
        let mut others = others.iter().filter_map(micros);
        micros(time).is_some_and(|time| others.any(|other| is_near(time, other)))
    })
}

/// All values at a path; an array on the way stands for its elements.
fn reach<'a>(json: &'a Json, names: &[&str], reached: &mut Vec<&'a Json>) {
    match (json, names) {
        (Json::Array(elements), _) => elements.iter().for_each(|e| reach(e, names, reached)),
        (_, []) => reached.push(json),
        (_, [name, rest @ ..]) => {
            if let Some(value) = json.get(name) {
                reach(value, rest, reached);
            }
        }
    }
}

/// The value of a type that a full parser finds; `None` if the JSON has no value of the type.
fn naive(ty: Type, json: &Json) -> Option<Value> {
    match ty {
        Type::Int if json.is_i64() || json.is_u64() => Value::parse(ty, &json.to_string()).ok(),
        Type::Float => json.as_f64().map(Value::Float),
        Type::String => json.as_str().map(|s| Value::String(s.to_owned())),
        Type::Bool => json.as_bool().map(Value::Bool),
        ty if ty.is_time() && json.is_number() => Value::parse(ty, &json.to_string()).ok(),
        ty if ty.is_time() => Value::parse(ty, json.as_str()?).ok(),
        Type::Int
        | Type::Time
        | Type::TimeS
        | Type::TimeMs
        | Type::TimeUs
        | Type::TimeNs
        | Type::Point
        | Type::PlanePoint
        | Type::PointTime
        | Type::PlanePointTime
        | Type::Compound => None,
    }
}

/// The combinations of the values of some fields are all that the fields alone give: `out` has the
/// values of these, with their numbers in it.
fn combinations(
    data: &[u8],
    key: (Path, KeyType),
    out: &Extracted,
    fields: &[(usize, &(Path, Type))],
) {
    let wanted = fields.iter().map(|(_, (path, ty))| WantedField {
        path: path.clone(),
        ty: *ty,
        lenient: false,
    });
    let paths: Vec<String> = fields
        .iter()
        .map(|(_, (path, _))| path.to_string())
        .collect();
    let path = paths.join(",").parse().unwrap();
    let compound = Wanted::new(path, Type::Compound).of_fields(wanted.collect());
    let mut both = Extracted::default();
    let result = Extraction::of(key, vec![compound]).extract(data, &mut both);
    let expected = expected_combinations(out, fields);
    if let Err(error) = result {
        let is_too_many = matches!(error.kind, RecordErrorKind::TooManyCombinations { .. });
        assert!(is_too_many && expected.len() > 64, "{error}");
        return;
    }
    let extracted = both.values(0).map(|value| {
        let (whole, rest) = Value::split(Type::Compound, value).unwrap();
        assert_eq!((whole, rest.len()), (value, 0));
        (0..fields.len())
            .map(|at| compound_field(value, at))
            .collect::<Vec<_>>()
    });
    let mut combinations: Vec<_> = extracted.collect();
    // Fields behind the first with several values have a mark.
    let several = fields
        .iter()
        .skip(1)
        .filter(|(at, _)| out.values(*at).count() > 1);
    let marks = if expected.is_empty() {
        0
    } else {
        several.count()
    };
    let behind = combinations.split_off(combinations.len() - marks);
    assert!(behind.iter().flatten().all(Option::is_none));
    assert_eq!(combinations, expected);
}

/// The combinations of the values that `out` has of some fields, with a value of the first one.
fn expected_combinations<'a>(
    out: &'a Extracted,
    fields: &[(usize, &(Path, Type))],
) -> Vec<Vec<Option<&'a [u8]>>> {
    let mut combinations: Vec<Vec<Option<&[u8]>>> = vec![Vec::new()];
    for (at, _) in fields {
        let mut values: Vec<Option<&[u8]>> = out.values(*at).map(Some).collect();
        if values.is_empty() {
            values.push(None);
        }
        let longer = combinations.iter().flat_map(|begin| {
            let each = values.iter();
            each.map(move |value| [begin.as_slice(), &[*value]].concat())
        });
        combinations = longer.collect();
    }
    combinations.retain(|values| values.first().is_some_and(Option::is_some));
    combinations
}

/// A condition up to the first line feed, and a record after it: parsed, printed, evaluated.
pub fn condition(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n');
    let (text, body) = data.split_at(end.unwrap_or(data.len()));
    let Some(expr) = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<Expr>().ok())
    else {
        return;
    };
    let printed = expr.to_string();
    assert_eq!(printed.parse::<Expr>().unwrap(), expr, "{printed}");
    let filter = Filter::new(&expr);
    let matches = filter.matches_json(body);
    if serde_json::from_slice::<Json>(body).is_ok() {
        assert_eq!(
            Filter::new(&!expr).matches_json(body),
            !matches,
            "{printed}"
        );
    }
    for test in filter.tests() {
        let [predicate] = test.predicates.as_slice() else {
            continue;
        };
        for ty in [Type::String, Type::Bool, Type::Int] {
            let Ok(ranges) = predicate.to_ranges(ty) else {
                continue;
            };
            // A declared attribute with the same values must give the same result.
            let mut out = Extracted::default();
            let key = ("id".parse().unwrap(), KeyType::Int);
            let extraction = Extraction::new(key, vec![(test.path.clone(), ty)]);
            let is_typed = predicate.operands().iter().all(|operand| match operand {
                Operand::Text(_) => true,
                Operand::Value(value) => value.type_of() == ty,
                _ => false,
            });
            let by_values = is_typed && !predicate.reads_records(ty, false);
            if by_values && extraction.extract(body, &mut out).is_ok() {
                let is_unindexed = out.unindexed().next().is_some();
                let apart = is_unindexed && Residual::new(test, ty).holds(body);
                let holds = apart
                    || out
                        .values(0)
                        .any(|value| ranges.iter().any(|range| range.contains(value)));
                let alone = test.to_expr().unwrap();
                let matches = Filter::new(&alone).matches_json(body);
                assert_eq!(holds, matches, "{alone} as {ty}");
            }
        }
    }
}

/// Polygons as GeoJSON: the key ranges that cover an area contain all of its points.
pub fn geojson(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for space in [Space::Sphere, Space::Plane] {
        let Ok(area) = Area::from_geojson(space, text) else {
            continue;
        };
        let region = Region::new(area.clone());
        let corners = area.boxes().iter().flat_map(|b| {
            let middle = (b.min_x.midpoint(b.max_x), b.min_y.midpoint(b.max_y));
            [(b.min_x, b.min_y), (b.max_x, b.max_y), middle]
        });
        for (x, y) in corners.chain([(0.0, 0.0), (180.0, 90.0), (-180.0, -90.0)]) {
            let Ok(point) = Point::new(space, x, y) else {
                continue;
            };
            let value = Value::Point(space, point).encoded();
            let inside = area.contains(point);
            assert_eq!(region.contains(&value), inside, "{point:?}");
            let covers = |(lo, hi): (Vec<u8>, Option<Vec<u8>>)| {
                lo <= value && hi.is_none_or(|hi| value < hi)
            };
            assert!(!inside || region.key_ranges().any(covers), "{point:?}");
            assert!(!inside || region.coarse_ranges().any(covers), "{point:?}");
        }
    }
}

/// The stored definition of a dataset, which is read, written and read again.
pub fn definition(data: &[u8]) {
    if let Some(stored) = StoredDef::from_bytes(data) {
        assert_eq!(StoredDef::from_bytes(&stored.to_bytes()), Some(stored));
    }
}

/// The stored configuration of a tree, which is read, written and read again.
pub fn tree_config(data: &[u8]) {
    if let Some(config) = TreeConfig::from_bytes(data) {
        assert_eq!(TreeConfig::from_bytes(&config.to_bytes()), Some(config));
    }
}
