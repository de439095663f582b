//! A plain store for tests: records in a map, every condition evaluated on every record, one file
//! for the whole store, read when it is opened and written when it is closed. It has no indexes, no
//! log and no snapshots, so that the answers of a program that works with it are those that any
//! store must give.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker::{
    DatasetDef, Durability, Error, Explain, Expr, Key, Order, PageToken, Path, Record, Request,
    Result, Seq, Update,
};
use esker_model::definition::StoredDef;
use esker_model::fields::Fields;
use esker_model::query::{Compiled, NoEstimates, Ranking, Shape};
use esker_model::record::RecordRef;
use esker_model::schema::{Extracted, Extraction, Projection};
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::batch::Batch;
use crate::capabilities::Capabilities;
use crate::records::{Dataset, Records};
use crate::store::{Mode, Store};

/// All datasets of a store.
#[derive(Default, Serialize, Deserialize)]
struct State {
    seq: Seq,
    datasets: BTreeMap<String, Held>,
}

/// A dataset.
#[derive(Clone, Serialize, Deserialize)]
struct Held {
    def: DatasetDef,
    /// Sequence number and JSON of each record, by encoded key.
    records: Vec<(Vec<u8>, Seq, String)>,
    notes: BTreeMap<String, Vec<u8>>,
}

impl Held {
    fn place(&self, key: &Key) -> std::result::Result<usize, usize> {
        let records = &self.records;
        records.binary_search_by(|(known, _, _)| known.as_slice().cmp(key.as_bytes()))
    }

    fn record(&self, at: usize) -> Option<Record> {
        let (key, seq, json) = self.records.get(at)?;
        let key = Key::from_encoded(self.def.key_type, key.clone());
        Some(Record::from_json(key, *seq, json.as_bytes()))
    }
}

/// The plain store.
pub(crate) struct Plain {
    file: PathBuf,
    state: Arc<Mutex<State>>,
    writes: bool,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plain {
    pub(crate) fn open(file: &FsPath, mode: Mode) -> Result<Plain> {
        let io = |op, source: std::io::Error| Error::Io {
            path: file.to_path_buf(),
            op,
            source: source.into(),
        };
        let state = match std::fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|why| Error::Damaged {
                path: Some(file.to_path_buf()),
                offset: None,
                what: why.to_string(),
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => match mode {
                Mode::Create => State::default(),
                _ => {
                    let folder = file.to_path_buf();
                    return Err(Error::NoStore { folder });
                }
            },
            Err(error) => return Err(io("read", error)),
        };
        Ok(Plain {
            file: file.to_path_buf(),
            state: Arc::new(Mutex::new(state)),
            writes: mode != Mode::Read,
        })
    }

    fn unknown(&self, name: &str) -> Error {
        let (name, meant) = (name.to_string(), None);
        Error::UnknownDataset { name, meant }
    }

    fn held(&self, name: &str) -> Box<PlainDataset> {
        Box::new(PlainDataset {
            name: name.to_string(),
            state: self.state.clone(),
        })
    }
}

impl Store for Plain {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            key_order: true,
            ..Capabilities::default()
        }
    }

    fn dataset_names(&self) -> Result<Vec<String>> {
        Ok(lock(&self.state).datasets.keys().cloned().collect())
    }

    fn dataset(&self, name: &str) -> Result<Box<dyn Dataset>> {
        if lock(&self.state).datasets.contains_key(name) {
            Ok(self.held(name))
        } else {
            Err(self.unknown(name))
        }
    }

    fn create_dataset(&self, name: &str, def: DatasetDef) -> Result<Box<dyn Dataset>> {
        esker::schema::check_dataset_name(name)?;
        def.validate()?;
        if let Some(index) = def.indexes.iter().find(|index| index.unique) {
            return Err(Error::Unsupported(format!(
                "`{}`: values are not kept unique in this store",
                index.path
            )));
        }
        let held = Held {
            def,
            records: Vec::new(),
            notes: BTreeMap::new(),
        };
        let mut state = lock(&self.state);
        if state.datasets.contains_key(name) {
            return Err(Error::Exists(format!("dataset `{name}` exists already")));
        }
        state.datasets.insert(name.to_string(), held);
        Ok(self.held(name))
    }

    fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        esker::schema::check_dataset_name(to)?;
        let mut state = lock(&self.state);
        if state.datasets.contains_key(to) {
            return Err(Error::Exists(format!("dataset `{to}` exists already")));
        }
        let held = state.datasets.remove(name);
        let held = held.ok_or_else(|| self.unknown(name))?;
        state.datasets.insert(to.to_string(), held);
        Ok(())
    }

    fn drop_dataset(&self, name: &str) -> Result<()> {
        let dropped = lock(&self.state).datasets.remove(name);
        dropped.map(drop).ok_or_else(|| self.unknown(name))
    }

    fn close(self: Box<Self>) -> Result<()> {
        if !self.writes {
            return Ok(());
        }
        let text = serde_json::to_vec(&*lock(&self.state));
        let text = text.map_err(|why| Error::BadInput(why.to_string()))?;
        std::fs::write(&self.file, text).map_err(|source| Error::Io {
            path: self.file.clone(),
            op: "write",
            source: source.into(),
        })
    }
}

/// A handle of a dataset; a snapshot has a state of its own.
struct PlainDataset {
    name: String,
    state: Arc<Mutex<State>>,
}

/// Results that are all in memory, each with the token of a page that ends with it.
struct Found<T> {
    items: std::vec::IntoIter<(PageToken, T)>,
    last: Option<PageToken>,
    explain: Explain,
}

impl<T> Iterator for Found<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let (token, item) = self.items.next()?;
        self.last = Some(token);
        Some(Ok(item))
    }
}

impl<T: Send> Answer<T> for Found<T> {
    fn explain(&self) -> Explain {
        self.explain.clone()
    }

    fn token(&self) -> Option<PageToken> {
        self.last.clone()
    }
}

impl PlainDataset {
    fn read<T>(&self, read: impl FnOnce(&Held) -> Result<T>) -> Result<T> {
        match lock(&self.state).datasets.get(&self.name) {
            Some(held) => read(held),
            None => Err(Error::UnknownDataset {
                name: self.name.clone(),
                meant: None,
            }),
        }
    }

    /// The records of a request, in its order, behind its page and offset, up to the limit.
    fn matches(&self, request: &Request) -> Result<(Vec<(PageToken, Record)>, Explain)> {
        self.read(|held| {
            let shape = Shape::new(&StoredDef::new(&held.def));
            let compiled = Compiled::new(&shape, request.condition.clone(), &mut NoEstimates)?;
            let all = (0..held.records.len()).filter_map(|at| held.record(at));
            let found = all.filter(|record| {
                let stored = RecordRef::parse(record.stored());
                stored.is_some_and(|stored| compiled.confirm(&stored, &shape, None))
            });
            let mut found = ordered(&shape, request, found)?;
            found.drain(..request.skip().min(found.len()));
            found.truncate(request.limit.unwrap_or(usize::MAX));
            if !request.select.is_empty() {
                let projection = Projection::new(&request.select);
                for (_, record) in &mut found {
                    let json = projection.apply(record.json())?;
                    *record = Record::from_json(record.key().clone(), record.seq(), &json);
                }
            }
            let mut explain = Explain::default();
            explain.plan.scan = Some("all records".to_string());
            explain.steps.answers = found.len() as u64;
            Ok((found, explain))
        })
    }
}

/// Records in the order of a request, without those of earlier pages.
fn ordered(
    shape: &Shape,
    request: &Request,
    found: impl Iterator<Item = Record>,
) -> Result<Vec<(PageToken, Record)>> {
    if request.order.is_sorted() {
        let mut ranking = Ranking::new(shape, &request.order)?;
        let behind = ranking.behind(request.after.as_ref())?;
        let mut ranked = Vec::new();
        for record in found {
            let mut rank = Vec::new();
            ranking.rank(record.json(), record.key().as_bytes(), &mut rank);
            if behind.as_ref().is_none_or(|behind| rank > *behind) {
                ranked.push((rank, record));
            }
        }
        ranked.sort_by(|a, b| a.0.cmp(&b.0));
        let rows = ranked.into_iter();
        return Ok(rows
            .map(|(rank, record)| (PageToken::Row(rank), record))
            .collect());
    }
    let order = request.order.recency();
    let after = request.after.as_ref().map(PageToken::write).transpose()?;
    let behind = after.map(|after| order.rank(after));
    let rank = |record: &Record| order.rank(record.seq());
    let mut found: Vec<Record> = found
        .filter(|record| behind.is_none_or(|behind| rank(record) > behind))
        .collect();
    found.sort_by_key(rank);
    let rows = found.into_iter();
    Ok(rows
        .map(|record| (PageToken::Write(record.seq()), record))
        .collect())
}

impl Records for PlainDataset {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn def(&self) -> DatasetDef {
        let def = self.read(|held| Ok(held.def.clone()));
        def.unwrap_or_else(|_| DatasetDef::new("id", esker::KeyType::Int))
    }

    fn fields(&self) -> Result<Option<Fields>> {
        self.read(|held| {
            let mut fields = Fields::default();
            for (_, _, json) in &held.records {
                fields.add(json.as_bytes());
            }
            Ok(Some(fields))
        })
    }

    fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.read(|held| Ok(held.place(key).ok().and_then(|at| held.record(at))))
    }

    fn find(&self, request: &Request) -> Result<Box<dyn Answer<Record>>> {
        let (found, explain) = self.matches(request)?;
        Ok(Box::new(Found {
            items: found.into_iter(),
            last: None,
            explain,
        }))
    }

    fn keys(&self, request: &Request) -> Result<Box<dyn Answer<Key>>> {
        let (found, explain) = self.matches(request)?;
        let keys = found.into_iter().map(|(token, r)| (token, r.key().clone()));
        Ok(Box::new(Found {
            items: keys.collect::<Vec<_>>().into_iter(),
            last: None,
            explain,
        }))
    }

    fn visit(
        &self,
        request: &Request,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<Explain> {
        let (found, explain) = self.matches(request)?;
        let _ = found.into_iter().try_for_each(|(_, record)| visit(record));
        Ok(explain)
    }

    fn count(&self, request: &Request) -> Result<(u64, Explain)> {
        let (found, explain) = self.matches(request)?;
        Ok((found.len() as u64, explain))
    }

    fn explain(&self, request: &Request) -> Result<Explain> {
        Ok(self.matches(request)?.1)
    }

    fn scan(
        &self,
        (from, to): (Bound<Key>, Bound<Key>),
        reverse: bool,
    ) -> Result<Box<dyn Answer<Record>>> {
        let mut request = Request::default();
        request.order = Order::Key;
        let (mut found, explain) = self.matches(&request)?;
        found.retain(|(_, record)| {
            use std::ops::RangeBounds;
            (from.clone(), to.clone()).contains(record.key())
        });
        if reverse {
            found.reverse();
        }
        Ok(Box::new(Found {
            items: found.into_iter(),
            last: None,
            explain,
        }))
    }
}

impl Dataset for PlainDataset {
    fn snapshot(&self) -> Result<Box<dyn Records>> {
        let held = self.read(|held| Ok(held.clone()))?;
        let state = State {
            seq: 0,
            datasets: BTreeMap::from([(self.name.clone(), held)]),
        };
        Ok(Box::new(PlainDataset {
            name: self.name.clone(),
            state: Arc::new(Mutex::new(state)),
        }))
    }

    fn records(&self) -> &dyn Records {
        self
    }

    fn batch(&self) -> Box<dyn Batch> {
        let stored = StoredDef::new(&self.def());
        let wanted = stored.attributes.iter().map(|a| stored.wanted(&a.def));
        Box::new(PlainBatch {
            extraction: Extraction::of((stored.key.clone(), stored.key_type), wanted.collect()),
            key_type: stored.key_type,
            dataset: PlainDataset {
                name: self.name.clone(),
                state: self.state.clone(),
            },
            writes: Vec::new(),
            expected: Vec::new(),
            notes: Vec::new(),
            bytes: 0,
            last_key: Vec::new(),
        })
    }

    fn update(
        &self,
        key: &Key,
        change: &mut dyn FnMut(Option<&Record>) -> Result<Update>,
    ) -> Result<Option<Record>> {
        let old = self.get(key)?;
        let mut batch = self.batch();
        match change(old.as_ref())? {
            Update::Put(json) if self.key_of(&json)? != *key => {
                return Err(Error::BadInput(format!(
                    "the record has another key than {key}"
                )));
            }
            Update::Put(json) => batch.put_json(&json)?,
            Update::Delete => batch.delete(key)?,
            Update::Keep => return Ok(old),
        }
        batch.commit()?;
        Ok(old)
    }

    fn delete_where(
        &self,
        condition: Expr,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let (found, _) = self.matches(&Request::of(condition))?;
        let mut batch = self.batch();
        for (_, record) in &found {
            batch.delete(record.key())?;
        }
        batch.commit()?;
        let _ = progress(found.len() as u64);
        Ok(found.len() as u64)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        self.read(|held| Ok(held.notes.clone()))
    }

    fn unindexed(&self) -> Result<BTreeMap<Path, u64>> {
        Ok(BTreeMap::new())
    }
}

/// Writes that wait for their commit.
struct PlainBatch {
    dataset: PlainDataset,
    extraction: Extraction,
    key_type: esker::KeyType,
    writes: Vec<(Key, Option<String>)>,
    expected: Vec<(Key, Option<Seq>)>,
    notes: Vec<(String, Option<Vec<u8>>)>,
    bytes: usize,
    last_key: Vec<u8>,
}

impl Batch for PlainBatch {
    fn put_json(&mut self, json: &[u8]) -> Result<()> {
        let mut extracted = Extracted::default();
        self.extraction.extract_new(json, &mut extracted)?;
        self.last_key = extracted.key().to_vec();
        let key = Key::from_encoded(self.key_type, self.last_key.clone());
        self.bytes += json.len();
        let json = String::from_utf8_lossy(json).into_owned();
        self.writes.push((key, Some(json)));
        Ok(())
    }

    fn insert_json(&mut self, json: &[u8]) -> Result<()> {
        self.put_json(json)?;
        let key = Key::from_encoded(self.key_type, self.last_key.clone());
        self.expect(&key, None)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.bytes += key.as_bytes().len();
        self.writes.push((key.clone(), None));
        Ok(())
    }

    fn expect(&mut self, key: &Key, seq: Option<Seq>) -> Result<()> {
        self.expected.push((key.clone(), seq));
        Ok(())
    }

    fn note(&mut self, name: &str, value: Option<&[u8]>) -> Result<()> {
        self.notes
            .push((name.to_string(), value.map(<[u8]>::to_vec)));
        Ok(())
    }

    fn len(&self) -> usize {
        self.writes.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    fn durability(&mut self, _durability: Durability) {}

    fn commit(&mut self) -> Result<()> {
        for (key, expected) in self.expected.drain(..) {
            let now = self.dataset.get(&key)?.map(|record| record.seq());
            if now != expected {
                let what = format!("the record of key {key} is of write {now:?}");
                let key = Some(Box::new(key));
                return Err(Error::Conflict { key, what });
            }
        }
        let mut state = lock(&self.dataset.state);
        let state = &mut *state;
        let Some(held) = state.datasets.get_mut(&self.dataset.name) else {
            return Err(Error::UnknownDataset {
                name: self.dataset.name.clone(),
                meant: None,
            });
        };
        for (key, json) in self.writes.drain(..) {
            state.seq += 1;
            let place = held.place(&key);
            let record = json.map(|json| (key.as_bytes().to_vec(), state.seq, json));
            match (place, record) {
                (Ok(at), Some(record)) => held.records.splice(at..=at, [record]).for_each(drop),
                (Ok(at), None) => drop(held.records.remove(at)),
                (Err(at), Some(record)) => held.records.insert(at, record),
                (Err(_), None) => {}
            }
        }
        for (name, value) in self.notes.drain(..) {
            match value {
                Some(value) => drop(held.notes.insert(name, value)),
                None => drop(held.notes.remove(&name)),
            }
        }
        self.bytes = 0;
        Ok(())
    }
}
