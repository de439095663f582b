//! The fields of records, and suggestions for paths that no record has.

use std::collections::BTreeSet;
use std::ops::Bound;

use esker::schema::{Fields, JsonTypes};
use esker::{DatasetDef, Expr, KeyType, Operand, Path, Predicate};
use esker_store::Records;
use serde_json::Value;

use crate::args::FieldsArgs;
use crate::failure::{Failure, Outcome};
use crate::nearest::meant;
use crate::output::{Output, columns, note, thousands};
use crate::store::{dataset_at, open_to_read};

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

/// Notes each queried path that no record has, and values of conditions that no value there can
/// equal: by the statistics of the dataset. `None` if it has none that are complete.
fn note_by_statistics(
    dataset: &dyn Records,
    queried: &[&Path],
    conditions: &[Expr],
) -> Result<Option<()>, Failure> {
    let fields = dataset.fields()?.filter(|fields| !fields.has_more());
    let Some(fields) = fields else {
        return Ok(None);
    };
    if fields.is_empty() {
        return Ok(Some(()));
    }
    let listed = fields.list().map(|field| field.path().replace("[]", ""));
    let mut known: BTreeSet<String> = listed.collect();
    let def = dataset.def();
    known.extend(def.indexes.iter().map(|index| index.path.to_string()));
    for path in queried {
        if fields.has(path) {
            note_only_objects(path, &fields);
        } else {
            note(format_args!(
                "note: no record has the field `{path}`{}",
                meant(&path.to_string(), known.iter().map(String::as_str))
            ));
        }
    }
    for (path, predicate) in conditions.iter().flat_map(Expr::tests) {
        let types = fields.types_at(path).without(JsonTypes::NULL);
        let are_numbers = !types.is_empty() && types.without(JsonTypes::NUMBER).is_empty();
        if are_numbers && queried.contains(&path) {
            note_texts(path, predicate);
        }
    }
    Ok(Some(()))
}

/// Notes that a path holds only objects, and proposes fields in them.
fn note_only_objects(path: &Path, fields: &Fields) {
    let types = fields.types_at(path);
    let below: Vec<String> = fields
        .list()
        .map(|field| field.path().replace("[]", ""))
        .filter(|known| known.starts_with(&format!("{path}.")))
        .map(|known| format!("`{known}`"))
        .take(3)
        .collect();
    let others = types.without(JsonTypes::OBJECT | JsonTypes::NULL);
    if others.is_empty() && !below.is_empty() {
        note(format_args!(
            "note: `{path}` holds objects: did you mean {}?",
            below.join(" or ")
        ));
    }
}

/// Notes a comparison with text of a field whose values are all numbers.
fn note_texts(path: &Path, predicate: &Predicate) {
    for operand in predicate.operands() {
        let Some(text) = operand.as_text() else {
            continue;
        };
        let is_number = text.parse::<f64>().is_ok_and(f64::is_finite);
        match operand {
            Operand::Value(_) if is_number => note(format_args!(
                "note: all values of `{path}` are numbers, and \"{text}\" in quotes is text: write it without quotes"
            )),
            Operand::Text(_) if is_number => {}
            _ => note(format_args!(
                "note: all values of `{path}` are numbers, and `{text}` is text"
            )),
        }
    }
}

/// What a query names.
pub(super) struct Queried<'q> {
    pub(super) conditions: &'q [Expr],
    /// The fields that each record in the answer has, as far as the conditions need all their
    /// tests.
    pub(super) tested: Vec<Path>,
    /// Fields that records need not have: those of an order, of groups, of aggregates.
    pub(super) others: Vec<Path>,
}

impl<'q> Queried<'q> {
    /// Of a query without other fields than those that are tested.
    pub(super) fn by(conditions: &'q [Expr], tested: Vec<Path>) -> Queried<'q> {
        Queried {
            conditions,
            tested,
            others: Vec::new(),
        }
    }

    /// Notes fields that no record has, with suggestions, and comparisons that no value meets.
    pub(super) fn note(&self, dataset: &dyn Records, found: Outcome) -> Result<(), Failure> {
        match found {
            Outcome::NotFound => {
                let all = self.with_others(&self.tested);
                note_unknown(dataset, &all, self.conditions)
            }
            _ => self.note_mistakes(dataset),
        }
    }

    /// Some fields and the others, each once.
    fn with_others(&self, some: &[Path]) -> Vec<Path> {
        let mut all: Vec<Path> = some.iter().chain(&self.others).cloned().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// After an answer with records: notes what the statistics of the dataset say, and reads
    /// nothing else.
    fn note_mistakes(&self, dataset: &dyn Records) -> Result<(), Failure> {
        // Of a record that was found each test is true.
        let (tested, conditions) = if self.conditions.iter().all(Expr::needs_all_tests) {
            (&[][..], &[][..])
        } else {
            (self.tested.as_slice(), self.conditions)
        };
        let def = dataset.def();
        note_key(&def, conditions);
        let all = self.with_others(tested);
        let queried = undeclared(&def, &all);
        if !queried.is_empty() {
            note_by_statistics(dataset, &queried, conditions)?;
        }
        Ok(())
    }
}

/// Notes comparisons of a key of whole numbers with text. A declared key has refused them.
fn note_key(def: &DatasetDef, conditions: &[Expr]) {
    let is_declared = def.indexes.iter().any(|index| index.path == def.key);
    if def.key_type != KeyType::Int || is_declared {
        return;
    }
    for (path, predicate) in conditions.iter().flat_map(Expr::tests) {
        if *path == def.key {
            note_texts(path, predicate);
        }
    }
}

/// The paths that are not declared: a declared one is known, and its values have its type.
fn undeclared<'p>(def: &DatasetDef, queried: &'p [Path]) -> Vec<&'p Path> {
    let declared = |path: &Path| *path == def.key || def.indexes.iter().any(|i| i.path == *path);
    queried.iter().filter(|path| !declared(path)).collect()
}

/// After an answer without records: notes each queried path that no record has, by the statistics
/// of the dataset, or else by a sample of its records.
pub(super) fn note_unknown(
    dataset: &dyn Records,
    queried: &[Path],
    conditions: &[Expr],
) -> Result<(), Failure> {
    let def = dataset.def();
    note_key(&def, conditions);
    let queried = undeclared(&def, queried);
    if queried.is_empty() {
        return Ok(());
    }
    match note_by_statistics(dataset, &queried, conditions)? {
        Some(()) => Ok(()),
        None => note_by_sample(dataset, &def, &queried),
    }
}

/// Notes each path that no sampled record has.
fn note_by_sample(
    dataset: &dyn Records,
    def: &DatasetDef,
    queried: &[&Path],
) -> Result<(), Failure> {
    let scan = dataset.scan((Bound::Unbounded, Bound::Unbounded), false)?;
    let records: Vec<_> = scan.take(RECORDS + 1).collect::<Result<_, _>>()?;
    let is_all = records.len() <= RECORDS;
    let mut known = known_paths(records.iter().take(RECORDS).map(|record| record.json()));
    for path in queried {
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

/// `esker fields DIR DATASET`
pub(crate) fn fields(args: &FieldsArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_to_read(&args.dir, memory)?;
    let dataset = dataset_at(&*db, &args.dataset, args.snapshot.as_deref())?;
    let Some(fields) = dataset.fields()? else {
        let (dir, name) = (args.dir.display(), &args.dataset);
        let why = if db.capabilities().maintenance {
            format!(
                "a part of its tables is from an earlier version, until `esker compact {dir} {name}`"
            )
        } else {
            "this store has no statistics of fields".to_string()
        };
        note(format_args!("the fields of `{name}` are unknown: {why}"));
        return Ok(Outcome::NotFound);
    };
    let mut output = Output::new();
    if args.json {
        let list = fields.list().map(|field| {
            let types: Vec<&str> = field.types().names().collect();
            serde_json::json!({"path": field.path(), "types": types})
        });
        let list: Vec<Value> = list.collect();
        output.line(serde_json::json!({"fields": list, "more": fields.has_more()}))?;
    } else {
        let rows = fields.list().map(|field| {
            let types: Vec<&str> = field.types().names().collect();
            [field.path().to_string(), types.join(", ")]
        });
        output.text(columns(&rows.collect::<Vec<_>>()))?;
    }
    output.finish()?;
    if fields.has_more() {
        note("there are more fields than are listed");
    }
    Ok(Outcome::Done)
}
