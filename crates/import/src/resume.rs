//! Where a load is, noted in the store with each batch, in the same commit: a load that was killed and is given again begins behind the last batch
//! that is there, and loads every line once.
//!
//! The note is kept under the names of the files, with what tells that they are still the same (size, time of the last change, inode). What cannot be
//! opened again, standard input and pipes, is not noted. The last batch of a load deletes the note.

use std::fs;
use std::os::unix::fs::MetadataExt;

use esker::{Dataset, Error, WriteBatch};
use serde_json::{Value as Json, json};

use crate::error::Result;
use crate::feed::Place;
use crate::observer::Note;
use crate::source::Source;

/// What the names of the notes of loads begin with.
const PREFIX: &str = "load ";

/// The progress of one load.
pub(crate) struct Resume {
    /// The note's name; `None` where the load cannot be resumed.
    name: Option<String>,
    /// What tells that the files are the same.
    inputs: Json,
    /// There is a note, of this load or of one before.
    is_noted: bool,
}

/// Where an interrupted load was.
pub(crate) struct Interrupted {
    /// All lines up to this one are in the store, or rejected.
    pub(crate) place: Place,
    /// Records loaded before.
    pub(crate) loaded: u64,
    /// How many of these replaced a record.
    pub(crate) replaced: u64,
    /// How many lines of its source were rejected by then; `None` in a note of an earlier version.
    pub(crate) rejected: Option<u64>,
}

impl Resume {
    /// True where every input can be read again.
    pub(crate) fn is_repeatable(&self) -> bool {
        !self.inputs.is_null()
    }

    /// True when the same command continues where this load ends early.
    pub(crate) fn can_continue(&self) -> bool {
        self.name.is_some()
    }

    /// The progress of a load of these files.
    pub(crate) fn new(sources: &[Source]) -> Self {
        let inputs: Option<Vec<Json>> = sources.iter().map(identity).collect();
        let Some(inputs) = inputs else {
            return Self {
                name: None,
                inputs: Json::Null,
                is_noted: false,
            };
        };
        let paths: Vec<&Json> = inputs.iter().map(|input| &input["path"]).collect();
        let name = format!("{PREFIX}{}", json!(paths));
        Self {
            // Of very many files the names are longer than that of a note.
            name: (name.len() <= esker::WriteBatch::<esker::Key>::MAX_NOTE_NAME).then_some(name),
            inputs: Json::Array(inputs),
            is_noted: false,
        }
    }

    /// Where an earlier load of the same files was interrupted; `None` where none was, or the files are others now.
    pub(crate) fn interrupted(
        &mut self,
        dataset: &Dataset,
        note: &mut dyn FnMut(&Note),
    ) -> Result<Option<Interrupted>> {
        let Some(name) = &self.name else {
            return Ok(None);
        };
        let Some(noted) = dataset.notes()?.remove(name) else {
            return Ok(None);
        };
        self.is_noted = true;
        let noted: Json = serde_json::from_slice(&noted).unwrap_or_default();
        if noted["inputs"] != self.inputs {
            note(&Note::Changed);
            return Ok(None);
        }
        let figure = |name: &str| noted[name].as_u64();
        Ok(match (figure("source"), figure("line"), figure("loaded")) {
            (Some(source), Some(line), Some(loaded)) => Some(Interrupted {
                place: Place {
                    source: usize::try_from(source).unwrap_or(usize::MAX),
                    line,
                    part: figure("part").map_or(0, |part| u32::try_from(part).unwrap_or(u32::MAX)),
                },
                loaded,
                replaced: figure("replaced").unwrap_or(0),
                rejected: figure("rejected"),
            }),
            _ => None,
        })
    }

    /// Notes with a batch that all lines up to `place` are handled once it is committed.
    pub(crate) fn note(
        &mut self,
        batch: &mut WriteBatch,
        place: Place,
        (loaded, replaced): (u64, u64),
        rejected: u64,
    ) -> Result<()> {
        let Some(name) = &self.name else {
            return Ok(());
        };
        let noted = json!({
            "inputs": self.inputs, "source": place.source, "line": place.line, "part": place.part, "loaded": loaded,
            "replaced": replaced, "rejected": rejected,
        });
        self.is_noted = true;
        keep(batch.note(name, Some(noted.to_string().as_bytes())))
    }

    /// Deletes the note with a batch: the load is complete.
    pub(crate) fn forget(&self, batch: &mut WriteBatch) -> Result<()> {
        match &self.name {
            Some(name) if self.is_noted => keep(batch.note(name, None)),
            _ => Ok(()),
        }
    }
}

/// While somebody changes the dataset there is no place for its first note: the load goes on without.
fn keep(noted: esker::Result<()>) -> Result<()> {
    match noted {
        Err(Error::Busy(_)) => Ok(()),
        other => Ok(other?),
    }
}

/// What tells a file from others, and from itself after a change; `None` where it cannot be read twice.
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

/// An interrupted import that can be resumed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InterruptedImport {
    /// The files, as the system names them.
    pub files: Vec<String>,
    /// Records loaded so far.
    pub records: u64,
}

/// The interrupted imports of a dataset.
pub fn interrupted_imports(dataset: &Dataset) -> Result<Vec<InterruptedImport>> {
    let notes = dataset.notes()?.into_iter();
    let imports = notes
        .filter(|(name, _)| name.starts_with(PREFIX))
        .map(|(_, noted)| {
            let noted: Json = serde_json::from_slice(&noted).unwrap_or_default();
            let inputs = noted["inputs"].as_array().into_iter().flatten();
            let files = inputs.filter_map(|input| input["path"].as_str());
            InterruptedImport {
                files: files.map(str::to_string).collect(),
                records: noted["loaded"].as_u64().unwrap_or(0),
            }
        });
    Ok(imports.collect())
}
