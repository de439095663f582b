//! `update`, and the merging of `put --merge`: partial changes of records.

use std::collections::HashMap;

use esker::schema::merge_patch;
use esker::{DatasetDef, Error, Key, Path, Type, Update};
use esker_store::Dataset;
use serde_json::Value;

use super::fields::escaped;
use crate::args::UpdateArgs;
use crate::failure::{Failure, Outcome};
use crate::output::note;
use crate::store::{dataset, open_durable};

/// `esker update DIR DATASET KEY FIELD=VALUE...`
pub(crate) fn update(args: &UpdateArgs, memory: usize) -> Result<Outcome, Failure> {
    let db = open_durable(&args.dir, memory, args.durability)?;
    let dataset = dataset(&*db, &args.dataset)?;
    let key = dataset.parse_key(&args.key)?;
    let def = dataset.def();
    let changes = args.changes.iter().map(|text| Change::parse(text, &def));
    let changes: Vec<Change> = changes.collect::<Result<_, _>>().map_err(Failure::Usage)?;
    let found = dataset.update(&key, &mut |old| {
        let Some(old) = old else {
            return Ok(Update::Keep);
        };
        let mut json = old.json().to_vec();
        for change in &changes {
            json = change.apply(&json).map_err(Error::BadInput)?;
        }
        Ok(Update::Put(json))
    })?;
    db.close()?;
    if found.is_none() {
        note(format_args!("no record with key {key}"));
        return Ok(Outcome::NotFound);
    }
    note(format_args!("updated the record with key {key}"));
    Ok(Outcome::Done)
}

/// A field and its new value.
struct Change {
    path: Path,
    /// The change as a merge patch of the record.
    patch: String,
}

impl Change {
    /// Reads `FIELD=VALUE`.
    fn parse(text: &str, def: &DatasetDef) -> Result<Change, String> {
        let wrong = || format!("`{text}` is not FIELD=VALUE");
        let (field, value) = split(text).ok_or_else(wrong)?;
        let path = Path::parse(field)?;
        let mut declared = def.indexes.iter().filter(|index| index.path == path);
        let is_string = declared.any(|index| index.ty == Type::String);
        let mut patch = json_of(value, is_string);
        let names: Vec<&str> = path.names().collect();
        for name in names.iter().rev() {
            patch = format!("{{{}:{patch}}}", Value::from(*name));
        }
        Ok(Change { path, patch })
    }

    /// The record with the change.
    fn apply(&self, json: &[u8]) -> Result<Vec<u8>, String> {
        let record: Value =
            serde_json::from_slice(json).map_err(|error| format!("not valid JSON: {error}"))?;
        let mut names: Vec<&str> = self.path.names().collect();
        names.pop();
        let (mut at, mut above) = (Some(&record), Vec::new());
        for name in names {
            above.push(escaped(name));
            at = at.and_then(|value| value.get(name));
            let holds = match at {
                Some(Value::Array(_)) => "an array",
                Some(Value::String(_)) => "a string",
                Some(Value::Number(_)) => "a number",
                Some(Value::Bool(_)) => "a boolean",
                Some(Value::Null | Value::Object(_)) | None => continue,
            };
            let above = above.join(".");
            return Err(format!(
                "`{}` cannot be set: `{above}` holds {holds}; give `{above}` as a whole",
                self.path
            ));
        }
        merge_patch(Some(json), self.patch.as_bytes())
    }
}

/// The texts before and behind the first unescaped `=`, which must not be the first character.
fn split(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'=' if at > 0 => return Some((text.get(..at)?, text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

/// The value as JSON: the text itself if it is JSON, else a JSON string.
fn json_of(text: &str, is_string: bool) -> String {
    let is_json = serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
    let trimmed = text.trim();
    let may_be = !is_string || trimmed == "null" || trimmed.starts_with('"');
    if is_json && may_be {
        trimmed.to_string()
    } else {
        Value::from(text).to_string()
    }
}

/// Applies the merge patches of a batch.
pub(super) struct Merging<'d> {
    dataset: &'d dyn Dataset,
    /// Records of the batch, which are not in the store yet.
    made: HashMap<Key, Vec<u8>>,
}

impl<'d> Merging<'d> {
    pub(super) fn of(dataset: &'d dyn Dataset) -> Merging<'d> {
        Merging {
            dataset,
            made: HashMap::new(),
        }
    }

    /// The result of a patch on its record, with the changes of earlier lines. No other process
    /// writes to the store.
    pub(super) fn merged(&self, patch: &[u8]) -> Result<(Key, Vec<u8>), Error> {
        let key = self.dataset.key_of(patch)?;
        let stored = if self.made.contains_key(&key) {
            None
        } else {
            self.dataset.get(&key)?
        };
        let before = match &stored {
            Some(record) => Some(record.json()),
            None => self.made.get(&key).map(Vec::as_slice),
        };
        let merged = merge_patch(before, patch).map_err(Error::BadInput)?;
        Ok((key, merged))
    }

    /// Remembers a record that was added to the batch.
    pub(super) fn remember(&mut self, key: Key, record: Vec<u8>) {
        self.made.insert(key, record);
    }

    /// Forgets the records of the batch, which are now in the store.
    pub(super) fn forget_all(&mut self) {
        self.made.clear();
    }
}
