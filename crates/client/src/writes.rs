//! Writes that are applied together. Records are checked before they are sent, as a store in this
//! process checks them.

use esker::schema::{RecordErrorKind, with_generated_key};
use esker::{Durability, Error, Key, KeyType, Result, Seq};
use esker_model::definition::StoredDef;
use esker_model::schema::{Extracted, Extraction, Path, Wanted};
use serde::Deserialize;
use ureq::http::Method;

use crate::client::{Ask, Client};
use crate::wire;

/// The longest name of a note, in bytes.
const MOST_NAME: usize = 1024;

/// How the records of a dataset are checked.
pub(crate) struct Checks {
    key: Path,
    key_type: KeyType,
    has_auto_key: bool,
    extraction: Extraction,
}

impl Checks {
    pub(crate) fn new(def: &esker::DatasetDef) -> Checks {
        let stored = StoredDef::new(def);
        let wanted = stored.attributes.iter().map(|a| stored.wanted(&a.def));
        let mut wanted: Vec<Wanted> = wanted.collect();
        let expires = stored.expiry.path.as_ref();
        wanted.extend(
            expires.map(|path| Wanted::new(path.clone(), stored.expiry.ty).refusing_objects()),
        );
        Checks {
            key: stored.key.clone(),
            key_type: stored.key_type,
            has_auto_key: def.auto_key,
            extraction: Extraction::of((stored.key.clone(), stored.key_type), wanted),
        }
    }
}

/// Writes of a dataset that wait for their commit.
pub struct Writes {
    client: Client,
    path: String,
    checks: std::sync::Arc<Checks>,
    frames: Vec<u8>,
    records: usize,
    last_key: Vec<u8>,
    extracted: Extracted,
    durability: Option<Durability>,
}

/// What a commit has done.
#[derive(Debug, Clone, Default, Deserialize)]
#[non_exhaustive]
pub struct Written {
    /// The sequence number of the first write.
    #[serde(default)]
    pub seq: Option<Seq>,
    /// Remarks on the records, for people.
    #[serde(default)]
    pub remarks: Vec<String>,
}

impl Writes {
    pub(crate) fn new(client: &Client, path: String, checks: std::sync::Arc<Checks>) -> Writes {
        Writes {
            client: client.clone(),
            path,
            checks,
            frames: Vec::new(),
            records: 0,
            last_key: Vec::new(),
            extracted: Extracted::default(),
            durability: None,
        }
    }

    fn frame(&mut self, kind: u8, parts: &[&[u8]]) -> Result<()> {
        wire::put_frame(kind, parts, &mut self.frames).map_err(Error::BadInput)
    }

    fn record(&mut self, kind: u8, json: &[u8]) -> Result<()> {
        let checks = self.checks.clone();
        let extraction = &checks.extraction;
        let with_key = match extraction.extract_new(json, &mut self.extracted) {
            Ok(()) => None,
            Err(error) => {
                let lacks_key = matches!(error.kind, RecordErrorKind::KeyMissing { .. });
                let with_key = (checks.has_auto_key && lacks_key)
                    .then(|| with_generated_key(&checks.key, json));
                let with_key = with_key.flatten().ok_or(Error::Record(error))?;
                extraction.extract_new(&with_key, &mut self.extracted)?;
                Some(with_key)
            }
        };
        self.frame(kind, &[with_key.as_deref().unwrap_or(json)])?;
        self.extracted.key().clone_into(&mut self.last_key);
        self.records += 1;
        Ok(())
    }

    /// Puts a record: the JSON of an object with the dataset's key.
    ///
    /// # Errors
    /// [`Error::Record`] if it does not fit the dataset.
    pub fn put_json(&mut self, json: &[u8]) -> Result<()> {
        self.record(wire::PUT, json)
    }

    /// Puts a record whose key must not exist at the commit.
    ///
    /// # Errors
    /// As [`Writes::put_json`].
    pub fn insert_json(&mut self, json: &[u8]) -> Result<()> {
        self.record(wire::INSERT, json)
    }

    /// Deletes the record of a key.
    ///
    /// # Errors
    /// [`Error::BadInput`] for a key of another type.
    pub fn delete(&mut self, key: &Key) -> Result<()> {
        self.check(key)?;
        self.frame(wire::DELETE, &[key.to_string().as_bytes()])?;
        self.records += 1;
        Ok(())
    }

    /// The commit fails unless the record of the key was put by the write `seq`, or, with `None`,
    /// does not exist.
    ///
    /// # Errors
    /// As [`Writes::delete`].
    pub fn expect(&mut self, key: &Key, seq: Option<Seq>) -> Result<()> {
        self.check(key)?;
        let seq = seq.unwrap_or(wire::NO_RECORD).to_le_bytes();
        self.frame(wire::EXPECT, &[&seq, key.to_string().as_bytes()])
    }

    fn check(&self, key: &Key) -> Result<()> {
        let wanted = self.checks.key_type;
        if key.key_type() == wanted {
            return Ok(());
        }
        Err(Error::BadInput(format!(
            "key {key} is of type {}, and the dataset has keys of type {wanted}",
            key.key_type()
        )))
    }

    /// Stores a note under a name in the same commit; `None` deletes it.
    ///
    /// # Errors
    /// [`Error::BadInput`] for a name that is empty or too long.
    pub fn note(&mut self, name: &str, value: Option<&[u8]>) -> Result<()> {
        if name.is_empty() || name.len() > MOST_NAME {
            return Err(Error::BadInput(format!(
                "the name of a note has {} bytes: 1 to {MOST_NAME} are allowed",
                name.len()
            )));
        }
        match value {
            Some(value) => {
                // Its length was checked.
                let length = (name.len() as u32).to_le_bytes();
                self.frame(wire::NOTE, &[&length, name.as_bytes(), value])
            }
            None => self.frame(wire::NO_NOTE, &[name.as_bytes()]),
        }
    }

    /// The number of puts, inserts and deletions.
    pub fn len(&self) -> usize {
        self.records
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The bytes that are sent.
    pub fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// The encoded key of the last record that was put.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Sets how durable the writes are when they are acknowledged. Default: synced.
    pub fn durability(&mut self, durability: Durability) {
        self.durability = Some(durability);
    }

    /// Removes everything that was added.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.last_key.clear();
        self.records = 0;
    }

    /// Applies the writes, and empties the batch.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Conflict`] and [`Error::NotUnique`] if an expectation is not
    /// met; any write error. [`Error::Unavailable`] if no answer came: the writes may have been
    /// applied.
    pub fn commit(&mut self) -> Result<Written> {
        if self.frames.is_empty() {
            return Ok(Written::default());
        }
        let durability = match self.durability {
            None | Some(Durability::Sync) => "sync".to_string(),
            Some(Durability::Os) => "os".to_string(),
            Some(Durability::Periodic(every)) => format!("{}ms", every.as_millis()),
        };
        let path = format!("{}?durability={durability}", self.path);
        let ask = Ask::new(Method::POST, &path)
            .with(wire::FRAMES, &self.frames)
            .of_keys(self.checks.key_type);
        let written = self.client.ask(&ask);
        self.clear();
        written
    }
}
