//! A keyspace of a cluster, as a store.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Instant;

use esker::explain::{ExplainedIndex, Note};
use esker::maintain::{
    CheckReport, IndexChange, IndexProgress, IndexStep, RepairOptions, RepairProgress, RepairReport,
};
use esker::versions::{ValuePage, ValueToken};
use esker::{
    DatasetDef, Durability, Error, Explain, Expr, Index, IndexKind, Key, Order, PageToken, Path,
    Record, Request, Result, Seq, Task, Update, field,
};
use esker_cluster::cells::{Cassandra, Cells, HBase};
use esker_cluster::{Explained, Options};

use crate::answer::Answer;
use crate::batch::Batch;
use crate::capabilities::Capabilities;
use crate::part::Part;
use crate::records::{Dataset, Records, VersionRequest};
use crate::store::{Mode, Store};
use crate::summary::{IndexSummary, Summary};

/// A keyspace.
pub(crate) struct Cluster {
    address: String,
    store: esker_cluster::Store,
}

/// The same error for all stores.
fn failed(error: esker_cluster::Error) -> Error {
    use esker_cluster::Error as Of;
    match error {
        Of::UnknownDataset { name, meant } => Error::UnknownDataset { name, meant },
        Of::Exists(text) => Error::Exists(text),
        Of::BadInput(text) => Error::BadInput(text),
        Of::Overflow(text) => Error::Overflow(text),
        Of::Record(error) => Error::Record(error),
        Of::Unsupported(text) => Error::Unsupported(text),
        Of::Conflict { key, what } => Error::Conflict { key, what },
        Of::Busy(text) => Error::Busy(text),
        Of::ReadOnly => Error::ReadOnly,
        Of::Damaged(what) => Error::Damaged {
            path: None,
            offset: None,
            what,
        },
        other => Error::Unavailable(other.to_string()),
    }
}

impl Cluster {
    /// Connects to a Cassandra cluster by what follows `cassandra:` in its address.
    pub(crate) fn cassandra(rest: &str, mode: Mode) -> Result<Cluster> {
        let settings = esker_cluster::cassandra_address(rest).map_err(failed)?;
        Cluster::open(format!("cassandra:{rest}"), mode, |creates| {
            Ok(Arc::new(Cassandra::connect(&settings, creates)?))
        })
    }

    /// Connects to an HBase cluster by what follows `hbase:` in its address.
    pub(crate) fn hbase(rest: &str, mode: Mode) -> Result<Cluster> {
        let settings = esker_cluster::hbase_address(rest).map_err(failed)?;
        Cluster::open(format!("hbase:{rest}"), mode, |creates| {
            Ok(Arc::new(HBase::connect(&settings, creates)?))
        })
    }

    fn open(
        address: String,
        mode: Mode,
        connect: impl FnOnce(bool) -> esker_cluster::Result<Arc<dyn Cells>>,
    ) -> Result<Cluster> {
        let creates = mode == Mode::Create;
        let options = Options {
            is_reader: mode == Mode::Read,
            ..Options::default()
        };
        let opened =
            connect(creates).and_then(|cells| esker_cluster::Store::open(cells, creates, options));
        match opened {
            Ok(store) => Ok(Cluster { address, store }),
            Err(esker_cluster::Error::NoStore(_)) => Err(Error::NoStore {
                folder: address.into(),
            }),
            Err(error) => Err(failed(error)),
        }
    }

    fn held(&self, dataset: esker_cluster::Dataset) -> Box<dyn Dataset> {
        Box::new(Held(dataset))
    }
}

impl Store for Cluster {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            versions: true,
            indexes: true,
            files: true,
            summaries: true,
            ..Capabilities::default()
        }
    }

    fn dataset_names(&self) -> Result<Vec<String>> {
        self.store.dataset_names().map_err(failed)
    }

    fn dataset(&self, name: &str) -> Result<Box<dyn Dataset>> {
        Ok(self.held(self.store.dataset(name).map_err(failed)?))
    }

    fn create_dataset(&self, name: &str, def: DatasetDef) -> Result<Box<dyn Dataset>> {
        let created = self.store.create_dataset(name, &def);
        Ok(self.held(created.map_err(failed)?))
    }

    fn adapted(&self, def: &DatasetDef) -> (DatasetDef, Vec<String>) {
        esker_cluster::adapted(def)
    }

    fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        self.store.rename_dataset(name, to).map_err(failed)
    }

    fn drop_dataset(&self, name: &str) -> Result<()> {
        self.store.drop_dataset(name).map_err(failed)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        for name in self.dataset_names()? {
            let of_dataset = self.check_dataset(&name)?;
            report.errors.extend(of_dataset.errors);
            report.records += of_dataset.records;
            report.index_entries += of_dataset.index_entries;
            report.entries += of_dataset.entries;
        }
        Ok(report)
    }

    fn check_dataset(&self, name: &str) -> Result<CheckReport> {
        let dataset = self.store.dataset(name).map_err(failed)?;
        let found = dataset.check(&mut |_| ControlFlow::Continue(()));
        let found = found.map_err(failed)?;
        let (address, errors) = (&self.address, found.errors.iter());
        let mut report = CheckReport::default();
        report.errors = errors
            .map(|error| format!("{address}: dataset {name}: {error}"))
            .collect();
        report.records = found.records;
        report.index_entries = found.entries;
        report.entries = found.records + found.entries;
        Ok(report)
    }
}

/// A dataset of a keyspace.
#[derive(Clone)]
struct Held(esker_cluster::Dataset);

/// An answer of records, or of keys.
struct Found(esker_cluster::Answer);

impl Iterator for Found {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.0.next_record().map_err(failed).transpose()
    }
}

impl Answer<Record> for Found {
    fn explain(&self) -> Explain {
        explain(&self.0.explained())
    }

    fn token(&self) -> Option<PageToken> {
        self.0.token()
    }
}

struct Keys(esker_cluster::Answer);

impl Iterator for Keys {
    type Item = Result<Key>;

    fn next(&mut self) -> Option<Result<Key>> {
        self.0.next_key().map_err(failed).transpose()
    }
}

impl Answer<Key> for Keys {
    fn explain(&self) -> Explain {
        explain(&self.0.explained())
    }

    fn token(&self) -> Option<PageToken> {
        self.0.token()
    }
}

struct Scanned(esker_cluster::Scanned);

impl Iterator for Scanned {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.0.next_record().map_err(failed).transpose()
    }
}

impl Answer<Record> for Scanned {
    fn explain(&self) -> Explain {
        let mut explain = Explain::default();
        explain.plan.scan = Some("all records".to_string());
        explain
    }

    fn token(&self) -> Option<PageToken> {
        None
    }
}

struct InPart(esker_cluster::PartScan);

impl Iterator for InPart {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.0.next_record().map_err(failed).transpose()
    }
}

impl Part for InPart {
    fn mark(&self) -> Vec<u8> {
        self.0.mark()
    }
}

fn explain(of: &Explained) -> Explain {
    let mut explain = Explain::default();
    explain.plan.scan.clone_from(&of.scan);
    let mut indexes: Vec<ExplainedIndex> = of
        .indexes
        .iter()
        .map(|(path, condition)| {
            let mut index = ExplainedIndex::default();
            index.index.clone_from(path);
            index.kind = IndexKind::Composite.to_string();
            index.condition.clone_from(condition);
            index
        })
        .collect();
    match indexes.len() {
        1 => explain.plan.index = indexes.pop(),
        _ => explain.plan.union = indexes,
    }
    if !of.without_index.is_empty() {
        let paths = of.without_index.clone();
        explain.notes.push(Note::NoIndex { paths });
    }
    if !of.intersected.is_empty() {
        let conditions = of.intersected.iter().map(|(_, text)| format!("`{text}`"));
        explain.notes.push(Note::Intersected {
            conditions: conditions.collect(),
            ruled_out: of.ruled_out,
        });
    }
    match of.scan {
        Some(_) => explain.steps.scanned = of.keys,
        None => explain.steps.candidates = of.entries,
    }
    explain.steps.fetched = of.keys;
    explain.steps.obsolete = of.removed;
    explain.steps.answers = of.answers;
    explain
}

impl Records for Held {
    fn name(&self) -> String {
        self.0.name().to_string()
    }

    fn def(&self) -> DatasetDef {
        self.0.def()
    }

    fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.0.get(key).map_err(failed)
    }

    fn has_no_record(&self) -> Result<bool> {
        // A scan by key reads all records for the first one.
        let mut any = Request::default();
        any.limit = Some(1);
        any.order = Order::Any;
        Ok(self.0.count(&any).map_err(failed)?.0 == 0)
    }

    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>> {
        self.0.get_many(keys).map_err(failed)
    }

    fn find(&self, request: &Request) -> Result<Box<dyn Answer<Record>>> {
        Ok(Box::new(Found(self.0.find(request).map_err(failed)?)))
    }

    fn keys(&self, request: &Request) -> Result<Box<dyn Answer<Key>>> {
        let mut request = request.clone();
        request.keys_only = true;
        Ok(Box::new(Keys(self.0.find(&request).map_err(failed)?)))
    }

    fn visit(
        &self,
        request: &Request,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<Explain> {
        let mut answer = self.0.find(request).map_err(failed)?;
        while let Some(record) = answer.next_record().map_err(failed)? {
            if visit(record).is_break() {
                break;
            }
        }
        Ok(explain(&answer.explained()))
    }

    fn count(&self, request: &Request) -> Result<(u64, Explain)> {
        let (count, explained) = self.0.count(request).map_err(failed)?;
        Ok((count, explain(&explained)))
    }

    fn explain(&self, request: &Request) -> Result<Explain> {
        let answer = self.0.find(request).map_err(failed)?;
        Ok(explain(&answer.explained()))
    }

    fn scan(
        &self,
        range: (Bound<Key>, Bound<Key>),
        reverse: bool,
    ) -> Result<Box<dyn Answer<Record>>> {
        let scanned = self.0.scan(range, reverse).map_err(failed)?;
        Ok(Box::new(Scanned(scanned)))
    }

    fn parts(&self) -> u32 {
        self.0.parts()
    }

    fn part(&self, part: u32, behind: Option<&[u8]>) -> Result<Box<dyn Part>> {
        Ok(Box::new(InPart(self.0.part(part, behind).map_err(failed)?)))
    }

    fn versions_of(&self, keys: &[Key], most: usize) -> Result<Vec<Vec<Record>>> {
        self.0.versions_of(keys, None, most).map_err(failed)
    }

    fn versions(&self, key: &Key, as_of: Option<Seq>, most: usize) -> Result<Vec<Record>> {
        self.0.versions(key, as_of, most).map_err(failed)
    }

    fn versions_with(&self, request: &VersionRequest) -> Result<ValuePage> {
        let tokens = request.tokens.iter();
        let conditions = tokens.map(|(path, token)| {
            let value = self.parse_value(path, token)?;
            Ok(field(path).eq(value))
        });
        let conditions = conditions.collect::<Result<Vec<Expr>>>()?;
        let Some(condition) = conditions.into_iter().reduce(|a, b| a & b) else {
            let what = "versions by value: give at least one token";
            return Err(Error::BadInput(what.to_string()));
        };
        let (at, last) = match &request.after {
            Some(after) => (after.at, Some(after.after)),
            None => (request.as_of.unwrap_or_else(|| self.0.now()), None),
        };
        let limit = request.limit.max(1);
        let most = limit.saturating_add(1);
        let found = self
            .0
            .versions_with(condition, Some(at), request.versions, most, last);
        let mut records = found.map_err(failed)?;
        let is_more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| is_more).map(|last| ValueToken {
            at,
            after: last.seq(),
            as_of: at,
        });
        Ok(ValuePage { records, next })
    }
}

impl Dataset for Held {
    fn snapshot(&self) -> Result<Box<dyn Records>> {
        // Each query answers as of its start; there is no moment that several share.
        Ok(Box::new(self.clone()))
    }

    fn records(&self) -> &dyn Records {
        self
    }

    fn batch(&self) -> Box<dyn Batch> {
        Box::new(Writes(self.0.batch()))
    }

    fn update(
        &self,
        key: &Key,
        change: &mut dyn FnMut(Option<&Record>) -> Result<Update>,
    ) -> Result<Option<Record>> {
        let updated = self
            .0
            .update(key, &mut |record| change(record).map_err(Failed));
        updated.map_err(|Failed(error)| error)
    }

    fn delete_where(
        &self,
        condition: Expr,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let deleted = self.0.delete_where(&Request::of(condition), progress);
        deleted.map_err(failed)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        self.0.notes().map_err(failed)
    }

    fn add_index(&self, path: Path, index: Index) -> Result<Task<IndexProgress, IndexChange>> {
        let dataset = self.0.clone();
        Ok(Task::new(move |progress| {
            let kind = index.kind();
            let before = kind_of(&dataset.def(), &path);
            let filled = dataset.add_index(path.clone(), index, &mut |now| progress(step(now)));
            Ok(change(path, (before, kind), filled.map_err(failed)?))
        }))
    }

    fn resume_index(&self) -> Result<Task<IndexProgress, Option<IndexChange>>> {
        let dataset = self.0.clone();
        Ok(Task::new(move |progress| {
            let resumed = dataset.resume_index(&mut |now| progress(step(now)));
            let resumed = resumed.map_err(failed)?;
            Ok(resumed.map(|(path, filled)| {
                let kinds = (Some(IndexKind::None), IndexKind::Composite);
                change(path, kinds, filled)
            }))
        }))
    }

    fn drop_index(&self, path: &Path) -> Result<IndexChange> {
        let before = kind_of(&self.0.def(), path);
        self.0.drop_index(path).map_err(failed)?;
        let mut dropped = IndexChange::new(path.clone(), before, IndexKind::None);
        dropped.complete = true;
        Ok(dropped)
    }

    fn unfinished_index(&self) -> Option<esker::schema::IndexDef> {
        self.0.unfinished_index().ok().flatten()
    }

    fn summary(&self) -> Result<Summary> {
        let of = self.0.summary().map_err(failed)?;
        let index = |index: esker_cluster::IndexSummary| IndexSummary {
            path: index.path,
            is_ready: index.is_ready,
            buckets: index.buckets,
            partitions: index.partitions,
        };
        Ok(Summary {
            indexes: of.indexes.into_iter().map(index).collect(),
            repaired: of.repaired,
        })
    }

    fn repair(&self, options: &RepairOptions) -> Result<Task<RepairProgress, RepairReport>> {
        let dataset = self.0.clone();
        let options = esker_cluster::RepairOptions {
            full: options.method == esker::maintain::RepairMethod::Index,
            // A row is taken to have 256 bytes.
            rows_per_second: options.bytes_per_second.map(|bytes| bytes.div_ceil(256)),
        };
        Ok(Task::new(move |progress| {
            let begun = Instant::now();
            let mut report = RepairReport::default();
            report.watermark_before = dataset.repaired_to().map_err(failed)?;
            let repaired = dataset.repair(options, &mut |now| {
                progress(RepairProgress::new(u64::from(now.parts), u64::from(now.of)))
            });
            let repaired = repaired.map_err(failed)?;
            report.method = esker::maintain::RepairMethod::Primary {
                compaction: esker::maintain::Compaction::Without,
            };
            report.entries = repaired.versions;
            report.found = repaired.obsolete;
            report.watermark = dataset.repaired_to().map_err(failed)?;
            report.elapsed = begun.elapsed();
            report.complete = repaired.complete;
            Ok(report)
        }))
    }
}

/// An error of a closure that a dataset of a cluster calls.
struct Failed(Error);

impl From<esker_cluster::Error> for Failed {
    fn from(error: esker_cluster::Error) -> Failed {
        Failed(failed(error))
    }
}

fn kind_of(def: &DatasetDef, path: &Path) -> Option<IndexKind> {
    let known = def.indexes.iter().find(|index| index.path == *path);
    known.map(|index| index.kind)
}

fn step(now: esker_cluster::IndexProgress) -> IndexProgress {
    let step = match now.step {
        esker_cluster::IndexStep::Sampling => IndexStep::Reading,
        esker_cluster::IndexStep::Waiting => IndexStep::Waiting,
        esker_cluster::IndexStep::Filling => IndexStep::Writing,
    };
    IndexProgress::new(step, now.done, now.of)
}

fn change(
    path: Path,
    (from, to): (Option<IndexKind>, IndexKind),
    filled: esker_cluster::Filled,
) -> IndexChange {
    let mut change = IndexChange::new(path, from, to);
    (change.records, change.complete) = (filled.records, filled.complete);
    change
}

/// A batch.
struct Writes(esker_cluster::Batch);

impl Batch for Writes {
    fn put_json(&mut self, json: &[u8]) -> Result<()> {
        self.0.put_json(json).map_err(failed)
    }

    fn insert_json(&mut self, json: &[u8]) -> Result<()> {
        self.0.insert_json(json).map_err(failed)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.0.delete(key).map_err(failed)
    }

    fn expect(&mut self, key: &Key, seq: Option<Seq>) -> Result<()> {
        self.0.expect(key, seq);
        Ok(())
    }

    fn note(&mut self, name: &str, value: Option<&[u8]>) -> Result<()> {
        self.0.note(name, value);
        Ok(())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn last_key(&self) -> &[u8] {
        self.0.last_key()
    }

    fn durability(&mut self, _durability: Durability) {}

    fn commit(&mut self) -> Result<()> {
        self.0.commit().map_err(failed)
    }
}
