//! A dataset of a server: its records, read and written.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use esker::request::{Aggregation, Group};
use esker::schema::{Fields, IndexDef};
use esker::space::{CellCount, Latest, Neighbour, TableBox};
use esker::versions::{ValuePage, ValueToken};
use esker::{DatasetDef, Error, Explain, Expr, Key, KeyType, Path, Record, Request, Result, Seq};
use esker_model::definition::StoredDef;
use esker_model::query::{Grouping, Shape};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use ureq::http::Method;

use crate::answer::Rows;
use crate::client::{Ask, Client, json, segment};
use crate::moments::{Moment, Renewed};
use crate::wire::{self, At, KeyBound, Read, ReadAt};
use crate::writes::{Checks, Writes, Written};

/// A dataset of a server.
#[derive(Clone)]
pub struct Dataset {
    client: Client,
    name: String,
    key_type: KeyType,
    known: Arc<Mutex<Known>>,
    renewed: Arc<Renewed>,
}

/// What is known of the dataset's definition.
struct Known {
    def: DatasetDef,
    checks: Arc<Checks>,
}

impl Known {
    fn new(def: DatasetDef) -> Known {
        let checks = Arc::new(Checks::new(&def));
        Known { def, checks }
    }
}

/// The definition of a dataset, and the change of it that is not complete.
#[derive(Deserialize)]
struct Layout {
    definition: DatasetDef,
    unfinished: Option<IndexDef>,
}

/// Notes, encoded.
#[derive(Deserialize)]
struct Notes {
    notes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Unindexed {
    unindexed: BTreeMap<Path, u64>,
}

impl Client {
    /// A dataset.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::Unavailable`].
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        let layout: Layout = self.get(&format!("/v1/datasets/{}/layout", segment(name)))?;
        Ok(Dataset {
            client: self.clone(),
            name: name.to_string(),
            key_type: layout.definition.key_type,
            known: Arc::new(Mutex::new(Known::new(layout.definition))),
            renewed: Arc::default(),
        })
    }

    /// A dataset as it is in a named snapshot.
    ///
    /// # Errors
    /// [`Error::UnknownSnapshot`]; [`Error::UnknownDataset`]; [`Error::Unavailable`].
    pub fn dataset_at(&self, snapshot: &str, name: &str) -> Result<(Dataset, Moment)> {
        let renewed = Arc::default();
        let moment = Moment::take(self, &renewed, name, Some(snapshot))?;
        let dataset = Dataset {
            client: self.clone(),
            name: name.to_string(),
            key_type: moment.def().key_type,
            known: Arc::new(Mutex::new(Known::new(moment.def().clone()))),
            renewed,
        };
        Ok((dataset, moment))
    }
}

/// Reads rows that are records.
fn records(key_type: KeyType) -> impl FnMut(u8, &[u8]) -> Option<Record> + Send + 'static {
    move |kind, frame| match kind {
        wire::RECORD => wire::read_record(key_type, frame),
        _ => None,
    }
}

/// Reads a row that is a JSON document.
fn document<T: serde::de::DeserializeOwned>(kind: u8, frame: &[u8]) -> Option<T> {
    match kind {
        wire::JSON => serde_json::from_slice(frame).ok(),
        _ => None,
    }
}

fn near(key_type: KeyType) -> impl FnMut(u8, &[u8]) -> Option<Neighbour> + Send + 'static {
    move |kind, frame| {
        let (distance, record) = match kind {
            wire::NEAR => wire::read_near(key_type, frame)?,
            _ => return None,
        };
        Some(Neighbour { record, distance })
    }
}

impl Dataset {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The path of something of the dataset.
    pub fn path(&self, of: &str) -> String {
        format!("/v1/datasets/{}/{of}", segment(&self.name))
    }

    /// Its definition, as it was when it was last asked for.
    pub fn def(&self) -> DatasetDef {
        self.known.lock().def.clone()
    }

    /// Asks for the definition again; returns the change of an index that is not complete.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::Unavailable`].
    pub fn refresh(&self) -> Result<Option<IndexDef>> {
        let layout: Layout = self.client.get(&self.path("layout"))?;
        let known = Known::new(layout.definition);
        *self.known.lock() = known;
        Ok(layout.unfinished)
    }

    /// The moment now, for several reads that belong together.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::Unavailable`].
    pub fn moment(&self) -> Result<Moment> {
        Moment::take(&self.client, &self.renewed, &self.name, None)
    }

    fn rows<T>(
        &self,
        at: &At,
        read: Read,
        row: impl FnMut(u8, &[u8]) -> Option<T> + Send + 'static,
    ) -> Result<Rows<T>> {
        let at = at.clone();
        self.read_rows("read", &ReadAt { at, read }, row)
    }

    /// Sends a document that changes nothing, and reads the rows that answer it.
    pub(crate) fn read_rows<T>(
        &self,
        of: &str,
        document: &impl Serialize,
        row: impl FnMut(u8, &[u8]) -> Option<T> + Send + 'static,
    ) -> Result<Rows<T>> {
        let body = json(document)?;
        let path = self.path(of);
        let ask = Ask::new(Method::POST, &path).json(&body).reading();
        self.answered(&ask.of_keys(self.key_type), row)
    }

    fn answered<T>(
        &self,
        ask: &Ask<'_>,
        row: impl FnMut(u8, &[u8]) -> Option<T> + Send + 'static,
    ) -> Result<Rows<T>> {
        let response = self.client.send(ask)?;
        Rows::new(&self.client, self.key_type, response, Box::new(row))
    }

    fn texts(keys: &[Key]) -> Vec<String> {
        keys.iter().map(ToString::to_string).collect()
    }

    /// The records of keys, in their order.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; the error of the server.
    pub fn get_many(&self, at: &At, keys: &[Key]) -> Result<Vec<Option<Record>>> {
        let (key_type, keys) = (self.key_type, Dataset::texts(keys));
        let rows = self.rows(at, Read::Get { keys }, move |kind, frame| match kind {
            wire::NONE => Some(None),
            wire::RECORD => wire::read_record(key_type, frame).map(Some),
            _ => None,
        })?;
        rows.collect()
    }

    /// The record of a key.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn get(&self, at: &At, key: &Key) -> Result<Option<Record>> {
        let found = self.get_many(at, std::slice::from_ref(key))?;
        Ok(found.into_iter().next().flatten())
    }

    /// Runs a request, in its order.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn find(&self, at: &At, request: &Request) -> Result<Rows<Record>> {
        let request = request.clone();
        self.rows(at, Read::Find { request }, records(self.key_type))
    }

    /// Runs a request as fast as it can be, in its order.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn visit(&self, at: &At, request: &Request) -> Result<Rows<Record>> {
        let request = request.clone();
        self.rows(at, Read::Visit { request }, records(self.key_type))
    }

    /// Runs a request for the keys alone.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn keys(&self, at: &At, request: &Request) -> Result<Rows<Key>> {
        let (request, key_type) = (request.clone(), self.key_type);
        self.rows(at, Read::Keys { request }, move |kind, frame| {
            (kind == wire::KEY).then(|| Key::from_encoded(key_type, frame.to_vec()))
        })
    }

    /// The number of records of a request, and how it was found.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn count(&self, at: &At, request: &Request) -> Result<(u64, Explain)> {
        let request = request.clone();
        self.rows(at, Read::Count { request }, document)?.only()
    }

    /// How a request would be answered.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn explain(&self, at: &At, request: &Request) -> Result<Explain> {
        let request = request.clone();
        self.rows(at, Read::Explain { request }, document)?.only()
    }

    /// The records in a range of keys.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn scan(
        &self,
        at: &At,
        (from, to): (Bound<Key>, Bound<Key>),
        reverse: bool,
    ) -> Result<Rows<Record>> {
        let (from, to) = (KeyBound::of(&from), KeyBound::of(&to));
        let scan = Read::Scan { from, to, reverse };
        self.rows(at, scan, records(self.key_type))
    }

    /// The latest versions of records, newest first; the order of the answers is that of the keys.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn versions(
        &self,
        at: &At,
        keys: &[Key],
        as_of: Option<Seq>,
        most: usize,
    ) -> Result<Vec<Vec<Record>>> {
        let (key_type, keys) = (self.key_type, Dataset::texts(keys));
        let asked = Read::Versions { keys, as_of, most };
        let rows = self.rows(at, asked, move |kind, frame| match kind {
            wire::NONE => Some(None),
            wire::RECORD => wire::read_record(key_type, frame).map(Some),
            _ => None,
        })?;
        let (mut all, mut of_key) = (Vec::new(), Vec::new());
        for row in rows {
            match row? {
                Some(version) => of_key.push(version),
                None => all.push(std::mem::take(&mut of_key)),
            }
        }
        Ok(all)
    }

    /// Versions by the values of their fields, newest first: at most `limit`, of the latest
    /// `versions` of each record.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn versions_with(
        &self,
        at: &At,
        tokens: &[(Path, String)],
        as_of: Option<Seq>,
        (versions, limit): (usize, usize),
        after: Option<ValueToken>,
    ) -> Result<ValuePage> {
        let asked = Read::VersionsWith {
            tokens: tokens.to_vec(),
            as_of,
            versions,
            limit,
            after,
        };
        let mut rows = self.rows(at, asked, records(self.key_type))?;
        let records = rows.by_ref().collect::<Result<_>>()?;
        let next = rows.next_versions();
        Ok(ValuePage { records, next })
    }

    /// The tables of the spatial index at a path.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn table_boxes(&self, at: &At, path: &Path) -> Result<Vec<TableBox>> {
        let path = path.clone();
        self.rows(at, Read::TableBoxes { path }, document)?.only()
    }

    /// The `k` records of a request nearest to a point.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn nearest(
        &self,
        at: &At,
        request: &Request,
        (path, from): (&Path, (f64, f64)),
        k: usize,
        max: Option<f64>,
    ) -> Result<(Vec<Neighbour>, Explain)> {
        let asked = Read::Nearest {
            request: request.clone(),
            path: path.clone(),
            from,
            k,
            max,
        };
        gathered(self.rows(at, asked, near(self.key_type))?)
    }

    /// The records of a request by their distance from a point.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn by_distance(
        &self,
        at: &At,
        request: &Request,
        (path, from): (&Path, (f64, f64)),
    ) -> Result<(Vec<Neighbour>, Explain)> {
        let (request, path) = (request.clone(), path.clone());
        let asked = Read::ByDistance {
            request,
            path,
            from,
        };
        gathered(self.rows(at, asked, near(self.key_type))?)
    }

    /// The number of records of a request in each cell of a grid.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn cells(
        &self,
        at: &At,
        request: &Request,
        path: &Path,
        degrees: f64,
    ) -> Result<Vec<CellCount>> {
        let (request, path) = (request.clone(), path.clone());
        let asked = Read::Cells {
            request,
            path,
            degrees,
        };
        self.rows(at, asked, document)?.collect()
    }

    /// The newest record of each value at a path.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn latest_per(
        &self,
        at: &At,
        request: &Request,
        path: &Path,
        latest: &Latest,
    ) -> Result<(Vec<Record>, Explain)> {
        let asked = Read::LatestPer {
            request: request.clone(),
            path: path.clone(),
            latest: latest.clone(),
        };
        gathered(self.rows(at, asked, records(self.key_type))?)
    }

    /// Groups of records, in their order.
    ///
    /// # Errors
    /// As [`Dataset::get_many`]; [`Error::Overflow`].
    pub fn aggregate(&self, at: &At, aggregation: &Aggregation) -> Result<Rows<Group>> {
        let shape = Shape::new(&StoredDef::new(&self.def()));
        let grouping = Grouping::new(&shape, aggregation)?;
        let aggregation = aggregation.clone();
        let asked = Read::Aggregate { aggregation };
        self.rows(at, asked, move |kind, frame| match kind {
            wire::GROUP => grouping.decode(frame),
            _ => None,
        })
    }

    /// The fields of the records; `None` if they are unknown.
    ///
    /// # Errors
    /// As [`Dataset::get_many`].
    pub fn fields(&self, at: &At) -> Result<Option<Fields>> {
        let encoded: Option<String> = self.rows(at, Read::Fields, document)?.only()?;
        let Some(encoded) = encoded else {
            return Ok(None);
        };
        let fields = wire::from_hex(&encoded).and_then(|bytes| Fields::decode(&bytes));
        let malformed = || {
            let text = format!("{}: the fields are malformed", self.client.address());
            Error::Unavailable(text)
        };
        fields.ok_or_else(malformed).map(Some)
    }

    /// An empty batch.
    pub fn writes(&self) -> Writes {
        let checks = self.known.lock().checks.clone();
        Writes::new(&self.client, self.path("write"), checks)
    }

    /// Puts a record, durably.
    ///
    /// # Errors
    /// [`Error::Record`] if it does not fit the dataset; as [`Writes::commit`].
    pub fn put_json(&self, json: &[u8]) -> Result<Written> {
        let mut writes = self.writes();
        writes.put_json(json)?;
        writes.commit()
    }

    /// Deletes every record that satisfies the condition; `progress` gets the number so far, and
    /// can stop the deletion.
    ///
    /// # Errors
    /// [`Error::Conflict`]; any error of the server.
    pub fn delete_where(
        &self,
        condition: Expr,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let row = |kind, frame: &[u8]| match kind {
            wire::PROGRESS => wire::take_u64(frame).map(|(number, _)| number),
            _ => None,
        };
        let body = json(&wire::DeleteWhere { condition })?;
        let path = self.path("delete-where");
        let ask = Ask::new(Method::POST, &path).json(&body);
        let rows = self.answered(&ask.of_keys(self.key_type), row)?;
        let mut deleted = 0;
        for now in rows {
            deleted = now?;
            // Ending the answer ends the deletion.
            if progress(deleted).is_break() {
                break;
            }
        }
        Ok(deleted)
    }

    /// Begins a job of the dataset, and waits for its end ([`Client::run_job`]).
    ///
    /// # Errors
    /// That of the job; any error of the server.
    pub fn run_job(
        &self,
        of: &str,
        document: &impl Serialize,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Option<serde_json::Value>> {
        let key_type = Some(self.key_type);
        (self.client).job_of(key_type, &self.path(of), document, progress)
    }

    /// Makes all earlier commits durable.
    ///
    /// # Errors
    /// Any error of the server.
    pub fn sync(&self) -> Result<()> {
        self.client.tell(&self.path("sync"), &json!({}))
    }

    /// The notes of the dataset.
    ///
    /// # Errors
    /// Any error of the server.
    pub fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let Notes { notes } = self.client.get(&self.path("notes"))?;
        let notes = notes.into_iter().map(|(name, value)| {
            let value = wire::from_hex(&value);
            let malformed = || {
                let text = format!("{}: a note is malformed", self.client.address());
                Error::Unavailable(text)
            };
            Ok((name, value.ok_or_else(malformed)?))
        });
        notes.collect()
    }

    /// For each declared path, the number of records with something there that is not indexed.
    ///
    /// # Errors
    /// Any error of the server.
    pub fn unindexed(&self) -> Result<BTreeMap<Path, u64>> {
        let Unindexed { unindexed } = self.client.get(&self.path("unindexed"))?;
        Ok(unindexed)
    }
}

/// All rows of an answer, and how they were found.
fn gathered<T>(mut rows: Rows<T>) -> Result<(Vec<T>, Explain)> {
    let found = rows.by_ref().collect::<Result<_>>()?;
    Ok((found, rows.explain()))
}
