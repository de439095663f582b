//! The progress of an import, stored as a note in the commit of each batch. An import that was
//! killed and is run again continues behind the last committed batch, so every line is loaded once.
//!
//! The note's name contains the names of the files, and the options by which they are read; its
//! value has their size, modification time and inode, which show whether the files are still the
//! same. Standard input and pipes cannot be read again and have no note. The last batch of an
//! import deletes the note.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use esker::Error;
use esker_store::{Batch, Dataset};
use serde_json::{Value as Json, json};

use crate::error::Result;
use crate::feed::Place;
use crate::observer::Note;
use crate::source::{Format, Source, format_by_name};

/// The prefix of the names of these notes.
const PREFIX: &str = "load ";

/// The progress of one import.
pub(crate) struct Resume {
    /// The note's name; `None` if the import cannot be resumed.
    name: Option<String>,
    /// The identities of the files.
    inputs: Json,
    /// The dataset has a note of this name, of this import or an earlier one.
    is_noted: bool,
    /// The beginning of the names of all notes of these files.
    of_files: String,
    /// Other notes of these files that are deleted with this import's: that of an earlier version,
    /// and, if the import begins anew, those of imports with other options.
    others: Vec<String>,
}

/// The progress of an interrupted import.
pub(crate) struct Interrupted {
    /// All lines up to this one are in the store, or rejected.
    pub(crate) place: Place,
    /// The number of records loaded.
    pub(crate) loaded: u64,
    /// The number of these that replaced a record.
    pub(crate) replaced: u64,
    /// The number of rejected lines of each source; `None` in a note of an earlier version.
    pub(crate) rejected: Option<Vec<u64>>,
    /// The number of lines of each source that were rejected and could not be written.
    pub(crate) unwritten: Vec<u64>,
}

impl Resume {
    /// True if every input can be read again.
    pub(crate) fn is_repeatable(&self) -> bool {
        !self.inputs.is_null()
    }

    /// True if the same import, run again, continues where this one stops.
    pub(crate) fn can_continue(&self) -> bool {
        self.name.is_some()
    }

    /// The progress of an import of these files.
    pub(crate) fn new(sources: &[Source]) -> Self {
        let inputs: Option<Vec<Json>> = sources.iter().map(identity).collect();
        let Some(inputs) = inputs else {
            return Self {
                name: None,
                inputs: Json::Null,
                is_noted: false,
                of_files: String::new(),
                others: Vec::new(),
            };
        };
        let paths: Vec<&Json> = inputs.iter().map(|input| &input["path"]).collect();
        let of_files = format!("{PREFIX}{}", json!(paths));
        let mut name = of_files.clone();
        // The same files, read in another way, have other records: each import has its own note.
        let read_as: Vec<Option<Json>> = inputs.iter().map(read_as).collect();
        if read_as.iter().any(Option::is_some) {
            name += &format!(" {}", json!(read_as));
        }
        Self {
            // With very many files, the name would be too long for a note.
            name: (name.len() <= esker::WriteBatch::<esker::Key>::MAX_NOTE_NAME).then_some(name),
            inputs: Json::Array(inputs),
            is_noted: false,
            of_files,
            others: Vec::new(),
        }
    }

    /// Also deletes, at the end, the notes of interrupted imports of these files with other
    /// options.
    pub(crate) fn forget_others(&mut self, dataset: &dyn Dataset) -> Result<()> {
        let is_of_files = |name: &String| {
            let rest = name.strip_prefix(&self.of_files);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let notes = dataset.notes()?.into_keys().filter(is_of_files);
        self.others = notes
            .filter(|name| Some(name) != self.name.as_ref())
            .collect();
        Ok(())
    }

    /// The progress of an interrupted import of the same files; `None` if there is none, or the
    /// files have changed.
    pub(crate) fn interrupted(
        &mut self,
        dataset: &dyn Dataset,
        note: &mut dyn FnMut(&Note),
    ) -> Result<Option<Interrupted>> {
        let Some(name) = &self.name else {
            return Ok(None);
        };
        let mut notes = dataset.notes()?;
        let read = |noted: Vec<u8>| serde_json::from_slice(&noted).unwrap_or_default();
        let own = notes.remove(name);
        self.is_noted = own.is_some();
        // An earlier version gave all notes of the same files the same name.
        let earlier = notes.remove(&self.of_files).map(read);
        let earlier = earlier.filter(|noted: &Json| noted["inputs"] == self.inputs);
        if earlier.is_some() {
            self.others.push(self.of_files.clone());
        }
        let Some(noted) = own.map(read).or(earlier) else {
            return Ok(None);
        };
        if noted["inputs"] != self.inputs {
            note(&Note::Changed);
            return Ok(None);
        }
        let figure = |name: &str| noted[name].as_u64();
        let counts = |name: &str| {
            let counts = noted[name].as_array()?.iter();
            Some(counts.filter_map(Json::as_u64).collect::<Vec<u64>>())
        };
        Ok(match (figure("source"), figure("line"), figure("loaded")) {
            (Some(source), Some(line), Some(loaded)) => Some(Interrupted {
                place: Place {
                    source: usize::try_from(source).unwrap_or(usize::MAX),
                    line,
                    part: figure("part").map_or(0, |part| u32::try_from(part).unwrap_or(u32::MAX)),
                },
                loaded,
                replaced: figure("replaced").unwrap_or(0),
                rejected: counts("rejected"),
                unwritten: counts("unwritten").unwrap_or_default(),
            }),
            _ => None,
        })
    }

    /// Adds a note to the batch: once it is committed, all lines up to its place are handled.
    pub(crate) fn note(&mut self, batch: &mut dyn Batch, progress: &Interrupted) -> Result<()> {
        let Some(name) = &self.name else {
            return Ok(());
        };
        let place = progress.place;
        let noted = json!({
            "inputs": self.inputs, "source": place.source, "line": place.line, "part": place.part,
            "loaded": progress.loaded, "replaced": progress.replaced,
            "rejected": progress.rejected, "unwritten": progress.unwritten,
        });
        self.is_noted = true;
        keep(batch.note(name, Some(noted.to_string().as_bytes())))
    }

    /// Deletes the note with the last batch.
    pub(crate) fn forget(&self, batch: &mut dyn Batch) -> Result<()> {
        let own = self.name.iter().filter(|_| self.is_noted);
        own.chain(&self.others)
            .try_for_each(|name| keep(batch.note(name, None)))
    }
}

/// Ignores `Busy`: during a change of the dataset, its first note cannot be stored, and the import
/// continues without.
fn keep(noted: esker::Result<()>) -> Result<()> {
    match noted {
        Err(Error::Busy(_)) => Ok(()),
        other => Ok(other?),
    }
}

/// The identity of a file: distinguishes it from other files, and from itself after a change.
/// `None` if it cannot be read again.
fn identity(source: &Source) -> Option<Json> {
    source.size?;
    let path = fs::canonicalize(source.path.as_deref()?).ok()?;
    let metadata = fs::metadata(&path).ok()?;
    Some(json!({
        "path": path.to_string_lossy(),
        "format": format!("{:?}", source.format),
        "delimiter": source.delimiter,
        "records": source.records,
        "size": metadata.size(),
        "modified": [metadata.mtime(), metadata.mtime_nsec()],
        "inode": [metadata.dev(), metadata.ino()],
    }))
}

/// How an input is read, if its name does not say so.
fn read_as(input: &Json) -> Option<Json> {
    let path = Path::new(input["path"].as_str()?);
    let (format, delimiter) = format_by_name(path);
    let is_usual = input["format"] == format!("{format:?}")
        && input["delimiter"] == json!(delimiter)
        && input["records"].is_null();
    (!is_usual).then(|| json!([input["format"], input["delimiter"], input["records"]]))
}

/// An interrupted import that can be resumed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InterruptedImport {
    /// The canonical paths of the files.
    pub files: Vec<String>,
    /// Records loaded so far.
    pub records: u64,
    /// The format of the files, if it was given: their names imply another one, or the delimiter
    /// or the path of the records was given.
    pub format: Option<Format>,
    /// The separator of CSV columns, if it was given.
    pub delimiter: Option<u8>,
    /// The path to the array of records, as names, if it was given.
    pub records_at: Option<Vec<String>>,
}

impl InterruptedImport {
    fn of(noted: &Json) -> InterruptedImport {
        let inputs = noted["inputs"].as_array().into_iter().flatten();
        let files = inputs.clone().filter_map(|input| input["path"].as_str());
        // Options are those of all files.
        let unusual = inputs.clone().find(|input| read_as(input).is_some());
        let format = unusual.and_then(|input| {
            let formats = [Format::Ndjson, Format::Csv, Format::Lines];
            let mut formats = formats.into_iter();
            formats.find(|format| input["format"] == format!("{format:?}"))
        });
        let delimiter = unusual.and_then(|input| input["delimiter"].as_u64());
        let names = unusual.and_then(|input| input["records"].as_array());
        InterruptedImport {
            files: files.map(str::to_string).collect(),
            records: noted["loaded"].as_u64().unwrap_or(0),
            format,
            delimiter: delimiter.and_then(|byte| u8::try_from(byte).ok()),
            records_at: names.map(|names| {
                let names = names.iter().filter_map(Json::as_str);
                names.map(str::to_string).collect()
            }),
        }
    }
}

/// The interrupted imports of a dataset.
pub fn interrupted_imports(dataset: &dyn Dataset) -> Result<Vec<InterruptedImport>> {
    let notes = dataset.notes()?.into_iter();
    let imports = notes
        .filter(|(name, _)| name.starts_with(PREFIX))
        .map(|(_, noted)| {
            InterruptedImport::of(&serde_json::from_slice(&noted).unwrap_or_default())
        });
    Ok(imports.collect())
}
