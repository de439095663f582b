//! Types that a load infers from the first records, and what it says of them.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use esker::schema::IndexText;
use esker::{KeyType, Path, Type};
use serde_json::Value as Json;

use super::fields::{has_points, known_paths};
use crate::failure::Failure;
use crate::nearest::meant;
use crate::output::{counted, note, thousands};

/// The first records of a load.
pub(super) struct FirstRecords<'a> {
    records: &'a [Vec<u8>],
    /// The paths of their fields, when a note needs them.
    known: OnceCell<BTreeSet<String>>,
    /// They are rows of a table, so their columns have types already.
    is_table: bool,
}

impl<'a> FirstRecords<'a> {
    pub(super) fn new(records: &'a [Vec<u8>], is_table: bool) -> FirstRecords<'a> {
        FirstRecords {
            records,
            known: OnceCell::new(),
            is_table,
        }
    }

    fn known(&self) -> &BTreeSet<String> {
        let read = || known_paths(self.records.iter().map(Vec::as_slice));
        self.known.get_or_init(read)
    }

    /// The type of the key; an error if no record has such a field.
    pub(super) fn key_type(&self, key: &Path) -> Result<KeyType, Failure> {
        if let Some((ty, others)) = esker::schema::infer_key_type_counted(self.records, key) {
            self.say_dissent(key, ty.as_type(), others);
            return Ok(ty);
        }
        let meant = self.meant(&key.to_string());
        let records = match arrays_of_objects(self.records).first() {
            Some(name) => format!(
                "\nIf the records are the objects of the array at `{name}`, use --records {name}"
            ),
            None => String::new(),
        };
        let none = match self.records.len() {
            1 => "the first record has no such field".to_string(),
            more => format!(
                "none of the first {} records has such a field",
                thousands(more as u64)
            ),
        };
        Err(Failure::Usage(format!(
            "--key {key}: {none}{meant}{} nothing was created{records}",
            if meant.is_empty() { ";" } else { "" },
        )))
    }

    /// The type of an index: the given one, the type of most values, or strings with a note.
    pub(super) fn index_type(&self, wanted: &IndexText) -> Type {
        let path = &wanted.path;
        match wanted.known_type() {
            // The unit of the numbers is inferred from the first records.
            Some(Type::Time) => return esker::schema::infer_time_type(self.records, path),
            Some(ty) => return ty,
            None => {}
        }
        let found = esker::schema::infer_type_counted(self.records, path);
        if let Some((ty, others)) = found {
            self.say_dissent(path, ty, others);
        }
        if has_points(self.records, path) {
            note(format_args!(
                "note: `{path}` looks like [longitude, latitude], but this index is for single numbers; --index {path}:spatial indexes points"
            ));
        }
        match found {
            Some((ty, _)) => ty,
            None => {
                self.say_untyped(&path.to_string());
                Type::String
            }
        }
    }

    /// Notes that no value tells the type of a field.
    fn say_untyped(&self, path: &str) {
        if self.known().contains(path) {
            note(format_args!(
                "note: `{path}` has no text, number or truth value in the first {} records: its values are treated as strings",
                thousands(self.records.len() as u64)
            ));
            return;
        }
        let meant = self.meant(path);
        let none = match self.records.len() {
            1 => "the first record has no".to_string(),
            more => format!("none of the first {} records has", thousands(more as u64)),
        };
        note(format_args!(
            "note: {none} `{path}`{meant} Its values are treated as strings",
            meant = if meant.is_empty() { "." } else { &meant },
        ));
    }

    fn meant(&self, path: &str) -> String {
        meant(path, self.known().iter().map(String::as_str))
    }

    /// Notes how many of the first records have a value of another type than the inferred one.
    fn say_dissent(&self, path: &Path, ty: Type, others: usize) {
        // The cells of a string column are strings.
        if self.is_table && ty == Type::String {
            return;
        }
        let others = others as u64;
        if others > 0 {
            let (have, are) = match others {
                1 => ("has", "is"),
                _ => ("have", "are"),
            };
            note(format_args!(
                "note: most of the first {} have a value of type {ty} at `{path}`; {} {have} one of another type and {are} rejected",
                counted(self.records.len() as u64, "record"),
                thousands(others),
            ));
        }
    }
}

/// The paths of arrays of objects in the first record.
fn arrays_of_objects(records: &[Vec<u8>]) -> Vec<String> {
    fn look(json: &Json, path: &str, found: &mut Vec<String>) {
        let Json::Object(members) = json else {
            return;
        };
        for (name, value) in members {
            let Ok(name) = name.parse::<Path>() else {
                continue;
            };
            let path = match path {
                "" => name.to_string(),
                path => format!("{path}.{name}"),
            };
            match value.get(0) {
                Some(Json::Object(_)) => found.push(path),
                _ => look(value, &path, found),
            }
        }
    }
    let first = records.first().map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::new();
    if let Ok(first) = serde_json::from_slice(first) {
        look(&first, "", &mut found);
    }
    found
}
