//! A dataset: its operations.

use std::ops::Bound as Edge;
use std::sync::Arc;

use esker_coding::{Seq, Slice};
use esker_model::Key;
use esker_model::definition::DatasetDef;
use esker_model::query::{Order, Request};
use esker_model::record::{Record, Update};
use esker_model::schema::Extracted;
use parking_lot::Mutex;

use crate::answer::Answer;
use crate::bound::Bound;
use crate::cells::Cell;
use crate::conditional;
use crate::error::{Error, Result};
use crate::find::{self, Explained};
use crate::hit::Hit;
use crate::rows::Version;
use crate::scan::Scan;
use crate::shared::Shared;
use crate::time::{CLOCK_BOUND, stamp};
use crate::view::{Newest, View};
use crate::write::{self, Change};

/// A dataset of a keyspace.
///
/// Writes of one record are atomic. Several writes, of one batch too, are not: an error leaves some
/// of them done. No two writes have the same timestamp ([`Record::seq`]); of two writes of one
/// record the one with the later timestamp counts, by clocks that differ by [`CLOCK_BOUND`] at
/// most.
///
/// A write that fails with [`Error::Unavailable`] may have happened, or may happen later. A read
/// may show its record, and reads after that one may not: its writer seems to have died, and a
/// reader that met its index entry a minute later or more, and found no record, removes both for
/// good, while the record arrives at another replica. Once a later write of the key is
/// acknowledged, that one is its record. No acknowledged write is removed so.
#[derive(Clone)]
pub struct Dataset {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: String,
    def: Arc<Mutex<DatasetDef>>,
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dataset")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Records by key.
pub struct Scanned {
    shared: Arc<Shared>,
    bound: Arc<Bound>,
    scan: Scan,
    hits: std::collections::VecDeque<Hit>,
}

impl std::fmt::Debug for Scanned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanned").finish_non_exhaustive()
    }
}

impl Scanned {
    /// The next record.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Damaged`].
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(hit) = self.hits.pop_front() {
                return hit.record(&self.bound).map(Some);
            }
            match self.scan.next(&self.shared, &self.bound, &|_| true)? {
                Some(hits) => self.hits = hits,
                None => return Ok(None),
            }
        }
    }
}

impl Dataset {
    pub(crate) fn new(shared: Arc<Shared>, bound: &Bound) -> Dataset {
        Dataset {
            shared,
            name: bound.name.clone(),
            def: Arc::new(Mutex::new(bound.stored.def())),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The definition; as it was last known, if the cluster does not answer.
    pub fn def(&self) -> DatasetDef {
        let mut known = self.def.lock();
        if let Ok(bound) = self.bound() {
            *known = bound.stored.def();
        }
        known.clone()
    }

    pub(crate) fn bound(&self) -> Result<Arc<Bound>> {
        self.shared.bound(&self.name)
    }

    /// The record of a key.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Damaged`].
    pub fn get(&self, key: &Key) -> Result<Option<Record>> {
        Ok(self.versions(key, None, 1)?.pop())
    }

    /// The records of keys, in their order.
    ///
    /// # Errors
    /// As [`Dataset::get`].
    pub fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>> {
        let bound = self.bound()?;
        let refs: Vec<&[u8]> = keys.iter().map(Key::as_bytes).collect();
        let found = View::LATEST.newest(&self.shared, &bound, &refs);
        let records = keys.iter().zip(found).map(|(key, newest)| {
            let stored = newest?.and_then(|Newest { at, record }| Some((at, record?)));
            let record = |(at, stored)| Record::new(key.clone(), at, Slice::from(stored));
            Ok(stored.map(record).transpose()?)
        });
        records.collect()
    }

    /// The latest versions of a record, newest first, that are not newer than `until`: at most
    /// `most`, and of those that the dataset keeps.
    ///
    /// # Errors
    /// As [`Dataset::get`]; [`Error::Unsupported`] if `until` is before all versions that are kept,
    /// and there were others.
    pub fn versions(&self, key: &Key, until: Option<Seq>, most: usize) -> Result<Vec<Record>> {
        let mut found = self.versions_of(std::slice::from_ref(key), until, most)?;
        Ok(found.pop().unwrap_or_default())
    }

    /// [`Dataset::versions`] of each key, in their order.
    ///
    /// # Errors
    /// As [`Dataset::versions`].
    pub fn versions_of(
        &self,
        keys: &[Key],
        until: Option<Seq>,
        most: usize,
    ) -> Result<Vec<Vec<Record>>> {
        let bound = self.bound()?;
        let (until, kept) = (until.unwrap_or(Seq::MAX), bound.versions());
        // Older versions than those that are kept are removed in any order.
        let rows = match until {
            Seq::MAX => most.min(kept),
            _ => kept,
        };
        let refs: Vec<&[u8]> = keys.iter().map(Key::as_bytes).collect();
        let read = View::LATEST.read(&self.shared, &bound, &refs, rows, false);
        let found = keys.iter().zip(read);
        let found = found.map(|(key, cells)| versions(key, cells?, until, most, kept));
        found.collect()
    }

    /// Runs a request.
    ///
    /// # Errors
    /// [`Error::BadInput`] if it does not fit the dataset; [`Error::Unavailable`].
    pub fn find(&self, request: &Request) -> Result<Answer> {
        find::check(request)?;
        Answer::new(self.shared.clone(), self.bound()?, request)
    }

    /// The number of records of a request behind its offset, at most its limit.
    ///
    /// # Errors
    /// As [`Dataset::find`].
    pub fn count(&self, request: &Request) -> Result<(u64, Explained)> {
        let mut request = request.clone();
        request.keys_only = true;
        if request.after.is_none() {
            request.order = Order::Any;
        }
        let mut answer = self.find(&request)?;
        let mut count = 0;
        while answer.next_key()?.is_some() {
            count += 1;
        }
        Ok((count, answer.explained()))
    }

    /// Records by key, ascending or descending. A cluster has no order of keys: each piece of the
    /// answer (64 MiB) reads the whole dataset.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the range is reversed.
    pub fn scan(&self, (from, to): (Edge<Key>, Edge<Key>), reverse: bool) -> Result<Scanned> {
        let behind = |key: &Key| [key.as_bytes(), &[0]].concat();
        let lo = match &from {
            Edge::Included(key) => key.as_bytes().to_vec(),
            Edge::Excluded(key) => behind(key),
            Edge::Unbounded => Vec::new(),
        };
        let hi = match &to {
            Edge::Included(key) => Some(behind(key)),
            Edge::Excluded(key) => Some(key.as_bytes().to_vec()),
            Edge::Unbounded => None,
        };
        if hi.as_ref().is_some_and(|hi| *hi < lo) {
            return Err(Error::BadInput("the range is reversed".to_string()));
        }
        Ok(Scanned {
            shared: self.shared.clone(),
            bound: self.bound()?,
            scan: Scan::by_key(lo, hi, reverse, View::now(&self.shared)?),
            hits: std::collections::VecDeque::new(),
        })
    }

    /// A timestamp that is later than those of all writes that were acknowledged before this call.
    pub fn now(&self) -> Seq {
        stamp(self.shared.clocks().wall() + 2 * CLOCK_BOUND)
    }

    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch {
            dataset: self.clone(),
            changes: Vec::new(),
            expected: Vec::new(),
            notes: Vec::new(),
            bytes: 0,
            last_key: Vec::new(),
            extracted: Extracted::default(),
        }
    }

    /// Replaces a record by what `change` makes of it; reads again if another conditional write was
    /// first. Returns the record before.
    ///
    /// # Errors
    /// Those of `change`; [`Error::Conflict`] if others change it too often;
    /// [`Error::Unavailable`].
    pub fn update<E: std::convert::From<Error>>(
        &self,
        key: &Key,
        change: &mut dyn FnMut(Option<&Record>) -> std::result::Result<Update, E>,
    ) -> std::result::Result<Option<Record>, E> {
        let mut before = None;
        let mut failed = None;
        let done = conditional::write(
            &self.shared,
            &self.name,
            key.as_bytes(),
            &mut |now, bound| {
                let record = now
                    .map(|(at, stored)| Record::new(key.clone(), at, Slice::from(stored.to_vec())))
                    .transpose()?;
                let made = change(record.as_ref());
                before = record;
                match made {
                    Ok(Update::Put(json)) => {
                        let mut out = Extracted::default();
                        let new = bound.read_json(&json, &mut out)?;
                        if new.key != key.as_bytes() {
                            let text = format!("the record has another key than {key}");
                            return Err(Error::BadInput(text));
                        }
                        Ok(Some(Change::put(new, bound)))
                    }
                    Ok(Update::Delete) => Ok(Some(Change::delete(key, bound))),
                    Ok(Update::Keep) => Ok(None),
                    Err(error) => {
                        failed = Some(error);
                        Ok(None)
                    }
                }
            },
        );
        match (failed, done) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(error.into()),
            (None, Ok(())) => Ok(before),
        }
    }
}

/// The versions in the rows of a key, of which `kept` are kept.
fn versions(
    key: &Key,
    cells: Vec<Cell>,
    until: Seq,
    most: usize,
    kept: usize,
) -> Result<Vec<Record>> {
    let is_full = cells.len() >= kept;
    let (mut found, mut is_known) = (Vec::new(), !is_full);
    for cell in cells {
        let version = Version::of(&cell.row)?;
        match (version.at <= until, version.is_deletion) {
            (false, false) => continue,
            (false, true) => is_known = false,
            (true, true) => is_known = true,
            (true, false) if found.len() < most => {
                let stored = Slice::from(cell.value);
                found.push(Record::new(key.clone(), version.at, stored)?);
                is_known = true;
                continue;
            }
            (true, false) => {}
        }
        break;
    }
    if !is_known {
        return Err(Error::Unsupported(format!(
            "the dataset keeps {kept} versions of a record, and key {key} had another one then"
        )));
    }
    Ok(found)
}

/// What is expected of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// There is no record, since this batch inserts one.
    New,
    /// The record is of this write; there is none, with `None`.
    Of(Option<Seq>),
}

/// Writes that are sent together. Each record is written by itself: after an error some are
/// written, and writing the batch again does no harm.
pub struct Batch {
    dataset: Dataset,
    changes: Vec<Change>,
    expected: Vec<(Vec<u8>, Expected)>,
    notes: Vec<(String, Option<Vec<u8>>)>,
    bytes: usize,
    last_key: Vec<u8>,
    extracted: Extracted,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Batch {
    /// Puts a record: the JSON of an object with the dataset's key.
    ///
    /// # Errors
    /// [`Error::Record`] if it does not fit.
    pub fn put_json(&mut self, json: &[u8]) -> Result<()> {
        let bound = self.dataset.bound()?;
        let record = bound.read_json(json, &mut self.extracted)?;
        self.last_key.clone_from(&record.key);
        self.bytes += record.stored.len();
        self.changes.push(Change::put(record, &bound));
        Ok(())
    }

    /// Puts a record whose key must not exist when it is written.
    ///
    /// # Errors
    /// As [`Batch::put_json`].
    pub fn insert_json(&mut self, json: &[u8]) -> Result<()> {
        self.put_json(json)?;
        self.expected.push((self.last_key.clone(), Expected::New));
        Ok(())
    }

    /// Deletes the record of a key.
    ///
    /// # Errors
    /// [`Error::BadInput`] for a key of another type.
    pub fn delete(&mut self, key: &Key) -> Result<()> {
        let bound = self.dataset.bound()?;
        if key.key_type() != bound.key_type() {
            let text = format!("the keys of `{}` are of another type", self.dataset.name);
            return Err(Error::BadInput(text));
        }
        self.bytes += key.as_bytes().len();
        self.changes.push(Change::delete(key, &bound));
        Ok(())
    }

    /// The write of the key fails unless its record is that of the write `seq`, or, with `None`,
    /// does not exist.
    pub fn expect(&mut self, key: &Key, seq: Option<Seq>) {
        self.expected
            .push((key.as_bytes().to_vec(), Expected::Of(seq)));
    }

    /// Sets a note when all else is written; `None` deletes it.
    pub fn note(&mut self, name: &str, value: Option<&[u8]>) {
        self.notes
            .push((name.to_string(), value.map(<[u8]>::to_vec)));
    }

    /// The number of writes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// True without writes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The bytes of the batch.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The encoded key of the last record that was put.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Writes, and empties the batch.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::Conflict`] if an expectation is not met;
    /// [`Error::Unavailable`].
    pub fn commit(&mut self) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        let expected = std::mem::take(&mut self.expected);
        let notes = std::mem::take(&mut self.notes);
        self.bytes = 0;
        self.dataset.write(changes, &expected)?;
        for (name, value) in notes {
            self.dataset.note(&name, value.as_deref())?;
        }
        Ok(())
    }
}

impl Dataset {
    fn write(&self, mut changes: Vec<Change>, expected: &[(Vec<u8>, Expected)]) -> Result<()> {
        if expected.is_empty() {
            return write::write(&self.shared, &self.name, &mut changes);
        }
        for change in &changes {
            let mine = expected.iter().filter(|(key, _)| *key == change.key);
            let mine: Vec<Expected> = mine.map(|(_, expected)| *expected).collect();
            self.write_if(change, &mine)?;
        }
        // What is expected of keys that are not written.
        for (key, expected) in expected {
            if !changes.iter().any(|change| change.key == *key) {
                let now = conditional::present(&self.shared, &self.name, key)?;
                self.check_expected(key, now, &[*expected])?;
            }
        }
        Ok(())
    }

    fn write_if(&self, change: &Change, expected: &[Expected]) -> Result<()> {
        let mut decide = |now: Option<(Seq, &[u8])>, bound: &Arc<Bound>| {
            self.check_expected(&change.key, now.map(|(at, _)| at), expected)?;
            Ok(Some(change.bound_to(bound)?))
        };
        conditional::write(&self.shared, &self.name, &change.key, &mut decide)
    }

    fn check_expected(&self, key: &[u8], now: Option<Seq>, expected: &[Expected]) -> Result<()> {
        for expected in expected {
            let key = Key::from_encoded(self.bound()?.key_type(), key.to_vec());
            match expected {
                Expected::New if now.is_some() => {
                    return Err(Error::Exists(format!("a record with key {key} exists")));
                }
                Expected::Of(seq) if now != *seq => {
                    let what = match now {
                        Some(now) => format!("the record of key {key} is of write {now}"),
                        None => format!("there is no record of key {key}"),
                    };
                    let key = Some(Box::new(key));
                    return Err(Error::Conflict { key, what });
                }
                _ => {}
            }
        }
        Ok(())
    }
}
