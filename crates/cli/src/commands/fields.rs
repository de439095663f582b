//! The fields of records, and suggestions for paths that no record has.

use std::collections::BTreeSet;
use std::ops::Bound;

use esker::Path;
use esker_store::Records;
use serde_json::Value;

use crate::failure::Failure;
use crate::nearest::meant;
use crate::output::{note, thousands};

/// The number of records in the sample.
const RECORDS: usize = 1000;
/// The maximum number of fields collected: objects whose names are data may have any number.
const FIELDS: usize = 10_000;
/// The maximum per object, so that one such object leaves room for others.
const FIELDS_OF_ONE: usize = 500;

/// The paths of all fields in the records, as text.
pub(super) fn known_paths<'a>(records: impl Iterator<Item = &'a [u8]>) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for record in records {
        if let Ok(record) = serde_json::from_slice(record) {
            add(&record, "", &mut paths);
        }
    }
    paths
}

fn add(value: &Value, above: &str, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().take(FIELDS_OF_ONE) {
                if paths.len() >= FIELDS {
                    return;
                }
                let name = escaped(name);
                let path = match above {
                    "" => name,
                    _ => format!("{above}.{name}"),
                };
                add(value, &path, paths);
                paths.insert(path);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|value| add(value, above, paths)),
        _ => {}
    }
}

/// True if the record has the field at a path, with any value; for an array on the way, if one of
/// its elements has it.
fn has(record: &Value, names: &[&str]) -> bool {
    match (record, names.split_first()) {
        (_, None) => true,
        (Value::Object(fields), Some((name, rest))) => {
            fields.get(*name).is_some_and(|value| has(value, rest))
        }
        (Value::Array(elements), Some(_)) => elements.iter().any(|value| has(value, names)),
        _ => false,
    }
}

/// True if every value at the path looks like `[longitude, latitude]`, and there is at least one.
pub(super) fn has_points(records: &[Vec<u8>], path: &Path) -> bool {
    let read = |record: &Vec<u8>| serde_json::from_slice::<Value>(record).ok();
    let at = |record: Value| {
        path.names()
            .try_fold(&record, |value, name| value.get(name))
            .filter(|value| !value.is_null())
            .map(|value| match value.as_array().map(Vec::as_slice) {
                Some([longitude, latitude]) => {
                    let within =
                        |value: &Value, most: f64| value.as_f64().is_some_and(|v| v.abs() <= most);
                    within(longitude, 180.0) && within(latitude, 90.0)
                }
                _ => false,
            })
    };
    let mut found = records.iter().filter_map(read).filter_map(at).peekable();
    found.peek().is_some() && found.all(|is_point| is_point)
}

/// A field name as a part of a path.
pub(super) fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if ".\\=<>^".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// Notes that a path holds only objects, and proposes fields in them.
fn note_objects<'a>(
    path: &Path,
    known: &BTreeSet<String>,
    mut records: impl Iterator<Item = &'a [u8]>,
) {
    let is_object = |record: &[u8]| {
        let record = serde_json::from_slice::<Value>(record).ok()?;
        let at = path
            .names()
            .try_fold(&record, |value, name| value.get(name))?;
        Some(at.is_object())
    };
    let below: Vec<String> = known
        .iter()
        .filter(|known| known.starts_with(&format!("{path}.")))
        .map(|known| format!("`{known}`"))
        .take(3)
        .collect();
    if !below.is_empty() && !records.any(|record| is_object(record) == Some(false)) {
        note(format_args!(
            "note: `{path}` holds objects: did you mean {}?",
            below.join(" or ")
        ));
    }
}

/// After an answer without records: notes each queried path that no sampled record has.
pub(super) fn note_unknown(dataset: &dyn Records, queried: &[Path]) -> Result<(), Failure> {
    let def = dataset.def();
    let declared = |path: &Path| *path == def.key || def.indexes.iter().any(|i| i.path == *path);
    let queried: Vec<&Path> = queried.iter().filter(|path| !declared(path)).collect();
    if queried.is_empty() {
        return Ok(());
    }
    let scan = dataset.scan((Bound::Unbounded, Bound::Unbounded), false)?;
    let records: Vec<_> = scan.take(RECORDS + 1).collect::<Result<_, _>>()?;
    let is_all = records.len() <= RECORDS;
    let mut known = known_paths(records.iter().take(RECORDS).map(|record| record.json()));
    for path in &queried {
        note_objects(path, &known, records.iter().map(|record| record.json()));
    }
    if records.is_empty() {
        return Ok(());
    }
    known.extend(def.indexes.iter().map(|index| index.path.to_string()));
    for path in queried {
        let names: Vec<&str> = path.names().collect();
        let has_it = |record: &esker::Record| {
            serde_json::from_slice(record.json()).is_ok_and(|record| has(&record, &names))
        };
        let path = path.to_string();
        if known.contains(&path) || records.iter().take(RECORDS).any(has_it) {
            continue;
        }
        let whose = if is_all {
            "no record".to_string()
        } else {
            format!("none of the first {} records", thousands(RECORDS as u64))
        };
        note(format_args!(
            "note: {whose} has the field `{path}`{}",
            meant(&path, known.iter().map(String::as_str))
        ));
    }
    Ok(())
}
