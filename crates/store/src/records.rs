//! The records of a dataset.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use esker::advise::{Advice, Mix};
use esker::maintain::{
    IndexChange, IndexProgress, MigrationProgress, MigrationReport, RepairOptions, RepairProgress,
    RepairReport,
};
use esker::request::{Aggregation, Group, Grouping};
use esker::schema::{Fields, IndexDef, Maintenance};
use esker::space::{CellCount, Latest, Neighbour, TableBox};
use esker::stats::{DatasetStats, UsageCounts};
use esker::versions::{ValuePage, ValueToken};
use esker::{
    Change, ChangesFrom, DatasetDef, Explain, Expr, Index, IndexKind, Key, Order, Path, Position,
    Record, Request, Result, Seq, Stop, Task, Update, Value,
};
use esker_model::definition::StoredDef;
use esker_model::query::{CellCounts, LatestPer, Nearest, Setting, Shape};
use esker_model::schema::{Extracted, Extraction};

use crate::answer::Answer;
use crate::batch::Batch;
use crate::bounded_groups::BoundedGroups;
use crate::capabilities::unsupported;
use crate::part::{ByKey, Part};
use crate::summary::Summary;

/// A request for versions by the values of their fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VersionRequest {
    /// Paths and values; all must be met.
    pub tokens: Vec<(Path, String)>,
    /// Versions as of this write; without it, as of now.
    pub as_of: Option<Seq>,
    /// How many of the latest versions of a record count.
    pub versions: usize,
    /// At most this many, the newest.
    pub limit: usize,
    /// Continues after a page.
    pub after: Option<ValueToken>,
}

/// The records of a dataset, as it is now or at a moment. Each call sees all earlier commits, or
/// exactly those before the moment.
pub trait Records: Send + Sync {
    /// The name of the dataset.
    fn name(&self) -> String;

    /// The definition of the dataset.
    fn def(&self) -> DatasetDef;

    /// The same records, with reads that `stop` ends; `None` if the store cannot end reads.
    fn with_stop(&self, _stop: &Stop) -> Option<Box<dyn Records>> {
        None
    }

    /// The record of a key.
    ///
    /// # Errors
    /// Any read error.
    fn get(&self, key: &Key) -> Result<Option<Record>>;

    /// The fields of the records, with the types of their values; also those that records had
    /// before, as far as the store has not forgotten them. `None` if they are unknown.
    ///
    /// # Errors
    /// Any read error.
    fn fields(&self) -> Result<Option<Fields>> {
        Ok(None)
    }

    /// True without a record.
    ///
    /// # Errors
    /// Any read error.
    fn has_no_record(&self) -> Result<bool> {
        let mut all = self.scan((Bound::Unbounded, Bound::Unbounded), false)?;
        Ok(all.next().transpose()?.is_none())
    }

    /// The records of keys, in their order: on a cluster all are asked for at the same time.
    ///
    /// # Errors
    /// Any read error.
    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// Runs a request, in its order.
    ///
    /// # Errors
    /// [`esker::Error::BadInput`] if the request does not fit the dataset; any read error.
    fn find(&self, request: &Request) -> Result<Box<dyn Answer<Record>>>;

    /// Runs a request for the keys alone.
    ///
    /// # Errors
    /// As [`Records::find`].
    fn keys(&self, request: &Request) -> Result<Box<dyn Answer<Key>>>;

    /// Passes every record of a request (at most the limit) to `visit` until that breaks. The
    /// orders any and key are faster for large answers than [`Records::find`].
    ///
    /// # Errors
    /// As [`Records::find`].
    fn visit(
        &self,
        request: &Request,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<Explain>;

    /// The number of records of a request (at most the limit), and how it was found.
    ///
    /// # Errors
    /// As [`Records::find`].
    fn count(&self, request: &Request) -> Result<(u64, Explain)>;

    /// How a request would be answered.
    ///
    /// # Errors
    /// As [`Records::find`].
    fn explain(&self, request: &Request) -> Result<Explain>;

    /// The records in a range of keys, in the order of the keys or in reverse.
    ///
    /// # Errors
    /// [`esker::Error::BadInput`] if the range is reversed; any read error.
    fn scan(
        &self,
        range: (Bound<Key>, Bound<Key>),
        reverse: bool,
    ) -> Result<Box<dyn Answer<Record>>>;

    /// The number of parts in which all records can be read beside each other.
    fn parts(&self) -> u32 {
        1
    }

    /// The records of a part, in the order in which the store has them, behind a mark.
    ///
    /// # Errors
    /// Any read error; [`esker::Error::BadInput`] for a mark of another store.
    fn part(&self, _part: u32, behind: Option<&[u8]>) -> Result<Box<dyn Part>> {
        let key_type = self.def().key_type;
        let last = behind.unwrap_or_default().to_vec();
        let from = match behind {
            Some(_) => Bound::Excluded(Key::from_encoded(key_type, last.clone())),
            None => Bound::Unbounded,
        };
        let records = self.scan((from, Bound::Unbounded), false)?;
        Ok(Box::new(ByKey::new(records, last)))
    }

    /// The latest versions of records, newest first; the order of the answers is that of the keys.
    ///
    /// # Errors
    /// As [`Records::versions`].
    fn versions_of(&self, keys: &[Key], most: usize) -> Result<Vec<Vec<Record>>> {
        let versions = keys.iter().map(|key| self.versions(key, None, most));
        versions.collect()
    }

    /// The latest versions of a record, newest first.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`versions`](crate::Capabilities::versions); any read
    /// error.
    fn versions(&self, _key: &Key, _as_of: Option<Seq>, _most: usize) -> Result<Vec<Record>> {
        unsupported(
            "versions of records",
            "copy the records to a folder or a cluster, which keep them",
        )
    }

    /// Versions by the values of their fields, newest first.
    ///
    /// # Errors
    /// As [`Records::versions`]; [`esker::Error::BadInput`] if the request asks for nothing.
    fn versions_with(&self, _request: &VersionRequest) -> Result<ValuePage> {
        unsupported(
            "versions of records",
            "copy the records to a folder or a cluster, which keep them",
        )
    }

    /// The tables of the spatial index at a path, with the boxes around their points.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`maintenance`](crate::Capabilities::maintenance);
    /// [`esker::Error::BadInput`] if there is no such index.
    fn table_boxes(&self, _path: &Path) -> Result<Vec<TableBox>> {
        unsupported("tables", "the tools of the cluster show its tables")
    }

    /// The `k` records of a request nearest to a point, at most `max` away: nearest first, ties by
    /// key.
    ///
    /// # Errors
    /// As [`Records::find`]; [`esker::Error::BadInput`] if the point or the distance is not valid,
    /// or the request has settings other than a limit, which `k` replaces.
    fn nearest(
        &self,
        request: &Request,
        path: &Path,
        (x, y): (f64, f64),
        k: usize,
        max: Option<f64>,
    ) -> Result<(Vec<Neighbour>, Explain)> {
        request.check_settings("nearest", &[Setting::Limit])?;
        let mut request = request.clone();
        if let Some(max) = max {
            let circle = esker::AreaExpr::circle(x, y, max);
            request.filter(esker::field(path).within(circle));
        }
        request.limit = Some(k);
        self.by_distance(&request, path, (x, y))
    }

    /// The records of a request after the offset (at most the limit) by their distance from a
    /// point, nearest first.
    ///
    /// # Errors
    /// As [`Records::find`]; [`esker::Error::BadInput`] if the point is not valid, or the request
    /// has settings other than a limit and an offset.
    fn by_distance(
        &self,
        request: &Request,
        path: &Path,
        from: (f64, f64),
    ) -> Result<(Vec<Neighbour>, Explain)> {
        request.check_settings("by_distance", &[Setting::Limit, Setting::Offset])?;
        let mut nearest = Nearest::new(&shape(&self.def()), path, from, request.most())?;
        let explain = self.visit(&request.all(), &mut |record| {
            nearest.add(record);
            ControlFlow::Continue(())
        })?;
        let mut near = nearest.finish();
        near.drain(..request.offset.min(near.len()));
        Ok((near, explain))
    }

    /// The number of records of a request in each cell of a grid, fullest first.
    ///
    /// # Errors
    /// As [`Records::find`]; [`esker::Error::BadInput`] if the size is not valid, or the request
    /// has settings beside its condition.
    fn cells(&self, request: &Request, path: &Path, degrees: f64) -> Result<Vec<CellCount>> {
        request.check_settings("cells", &[])?;
        let mut cells = CellCounts::new(&shape(&self.def()), path, degrees)?;
        self.visit(&request.all(), &mut |record| {
            cells.add(&record);
            ControlFlow::Continue(())
        })?;
        Ok(cells.finish())
    }

    /// The newest record of each value at `path`, as far as it satisfies the request, by primary
    /// key: those after the offset, at most the limit.
    ///
    /// # Errors
    /// As [`Records::find`]; [`esker::Error::BadInput`] if the request has settings other than a
    /// limit and an offset, or `latest` has bounds of the time but no path of it.
    fn latest_per(
        &self,
        request: &Request,
        path: &Path,
        latest: &Latest,
    ) -> Result<(Vec<Record>, Explain)> {
        let shape = shape(&self.def());
        let (mut per, request) = LatestPer::new(&shape, request.clone(), path, latest)?;
        let explain = self.visit(&request, &mut |record| {
            per.add(record);
            ControlFlow::Continue(())
        })?;
        Ok((per.finish(), explain))
    }

    /// Computes aggregates of groups of records, and passes the groups to `visit`, in their order,
    /// until that breaks.
    ///
    /// # Errors
    /// As [`Records::find`]; [`esker::Error::BadInput`] if the aggregation does not fit the
    /// dataset; [`esker::Error::Overflow`] if a sum cannot be represented;
    /// [`esker::Error::Unsupported`] if the store keeps groups in memory and there are too many.
    fn aggregate(
        &self,
        aggregation: &Aggregation,
        visit: &mut dyn FnMut(Group) -> ControlFlow<()>,
    ) -> Result<Explain> {
        let grouping = Grouping::new(&shape(&self.def()), aggregation)?;
        let mut request = Request::default();
        request.condition.clone_from(&aggregation.condition);
        request.order = Order::Any;
        let mut groups = BoundedGroups::new(grouping);
        let explain = if aggregation.is_count() {
            let (count, explain) = self.count(&request)?;
            groups.add_counted(count);
            explain
        } else {
            let mut added = Ok(());
            let explain = self.visit(&request, &mut |record| {
                added = groups.add(record.json());
                match added {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
            added?;
            explain
        };
        let _ = groups.finish()?.into_iter().try_for_each(visit);
        Ok(explain)
    }

    /// Reads a key of the dataset from text.
    ///
    /// # Errors
    /// [`esker::Error::BadInput`] if it is not a valid key.
    fn parse_key(&self, text: &str) -> Result<Key> {
        Ok(Key::parse(self.def().key_type, text)?)
    }

    /// Reads a value for the attribute at a path from text: of its type, or text.
    ///
    /// # Errors
    /// [`esker::Error::BadInput`] if it is not a value of the type.
    fn parse_value(&self, path: &Path, text: &str) -> Result<Value> {
        Ok(shape(&self.def()).parse_value(path, text)?)
    }
}

/// The changes of a dataset, in order.
pub trait ChangeFeed: Send {
    /// The next change; waits for it for `most` at most.
    ///
    /// # Errors
    /// [`esker::Error::PositionExpired`]; any read error.
    fn wait(&mut self, most: Duration) -> Result<Option<Change>>;

    /// Everything up to this position was returned.
    fn position(&self) -> Position;

    /// Stores the position of a consumer, so that changes before it are not kept any more. Does
    /// nothing for a feed without a consumer.
    ///
    /// # Errors
    /// Any write error.
    fn done(&mut self) -> Result<()>;

    /// True if the feed belongs to a consumer that was new.
    fn is_new(&self) -> bool;
}

/// A dataset: its records, which can be written, and its definition, which can be changed.
pub trait Dataset: Records {
    /// The records as they are now, for several reads that belong together.
    ///
    /// # Errors
    /// Any read error.
    fn snapshot(&self) -> Result<Box<dyn Records>>;

    /// The same dataset, to read from.
    fn records(&self) -> &dyn Records;

    /// An empty batch.
    fn batch(&self) -> Box<dyn Batch>;

    /// Replaces a record by what `change` makes of it; reads again if another writer changed the
    /// record. Returns the record before.
    ///
    /// # Errors
    /// Those of `change`; [`esker::Error::Conflict`] if other writers changed it too often.
    fn update(
        &self,
        key: &Key,
        change: &mut dyn FnMut(Option<&Record>) -> Result<Update>,
    ) -> Result<Option<Record>>;

    /// Deletes every record that satisfies the condition; `progress` gets the number so far, and
    /// can stop the deletion.
    ///
    /// # Errors
    /// [`esker::Error::Conflict`]; any read or write error.
    fn delete_where(
        &self,
        condition: Expr,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64>;

    /// Makes all earlier commits durable.
    ///
    /// # Errors
    /// Any write error.
    fn sync(&self) -> Result<()>;

    /// The notes of the dataset ([`Batch::note`]).
    ///
    /// # Errors
    /// Any read error.
    fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>>;

    /// Remarks on records that were written since the last call, for people.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// For each declared path, the number of records with something there that is not indexed.
    ///
    /// # Errors
    /// Any read error.
    fn unindexed(&self) -> Result<BTreeMap<Path, u64>> {
        Ok(BTreeMap::new())
    }

    /// The key in the JSON of a record or of a patch.
    ///
    /// # Errors
    /// [`esker::Error::Record`] if the JSON has no key, or a key of another type.
    fn key_of(&self, json: &[u8]) -> Result<Key> {
        let def = self.def();
        let extraction = Extraction::new((def.key.clone(), def.key_type), Vec::new());
        let mut extracted = Extracted::default();
        extraction.extract(json, &mut extracted)?;
        Ok(Key::from_encoded(def.key_type, extracted.key().to_vec()))
    }

    /// Adds an index.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`indexes`](crate::Capabilities::indexes).
    fn add_index(&self, _path: Path, _index: Index) -> Result<Task<IndexProgress, IndexChange>> {
        unsupported(
            "changes of indexes",
            "name the indexes when the dataset is created",
        )
    }

    /// Changes the kind of an index.
    ///
    /// # Errors
    /// As [`Dataset::add_index`].
    fn switch_index(
        &self,
        _path: Path,
        _kind: IndexKind,
    ) -> Result<Task<IndexProgress, IndexChange>> {
        unsupported(
            "changes of indexes",
            "name the indexes when the dataset is created",
        )
    }

    /// Rebuilds an index from the records.
    ///
    /// # Errors
    /// As [`Dataset::add_index`].
    fn rebuild_index(&self, _path: Path) -> Result<Task<IndexProgress, IndexChange>> {
        unsupported(
            "changes of indexes",
            "name the indexes when the dataset is created",
        )
    }

    /// Continues an interrupted change of an index.
    ///
    /// # Errors
    /// As [`Dataset::add_index`].
    fn resume_index(&self) -> Result<Task<IndexProgress, Option<IndexChange>>> {
        unsupported(
            "changes of indexes",
            "name the indexes when the dataset is created",
        )
    }

    /// Drops an index.
    ///
    /// # Errors
    /// As [`Dataset::add_index`].
    fn drop_index(&self, _path: &Path) -> Result<IndexChange> {
        unsupported(
            "changes of indexes",
            "name the indexes when the dataset is created",
        )
    }

    /// The change of an index that is not complete.
    fn unfinished_index(&self) -> Option<IndexDef> {
        None
    }

    /// Changes the maintenance strategy.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`maintenance`](crate::Capabilities::maintenance).
    fn set_maintenance(
        &self,
        _to: Maintenance,
    ) -> Result<Task<MigrationProgress, MigrationReport>> {
        unsupported(
            "maintenance strategies",
            "its indexes are deferred, and a repair removes obsolete entries",
        )
    }

    /// Lets measurements choose the maintenance strategy.
    ///
    /// # Errors
    /// As [`Dataset::set_maintenance`].
    fn set_auto(&self) -> Result<Task<MigrationProgress, MigrationReport>> {
        unsupported(
            "maintenance strategies",
            "its indexes are deferred, and a repair removes obsolete entries",
        )
    }

    /// Finds all obsolete index entries.
    ///
    /// # Errors
    /// As [`Dataset::set_maintenance`].
    fn repair(&self, _options: &RepairOptions) -> Result<Task<RepairProgress, RepairReport>> {
        unsupported("repair", "reads remove the obsolete entries that they meet")
    }

    /// Sets the time to live of records that are written from now on.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`expiry`](crate::Capabilities::expiry).
    fn set_ttl(&self, _ttl: Option<Duration>) -> Result<()> {
        unsupported(
            "expiry",
            "delete the records that have expired, or copy them to a folder",
        )
    }

    /// Deletes the expired records; returns how many.
    ///
    /// # Errors
    /// As [`Dataset::set_ttl`].
    fn expire_now(&self) -> Result<u64> {
        unsupported(
            "expiry",
            "delete the records that have expired, or copy them to a folder",
        )
    }

    /// The counted use of the dataset.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`maintenance`](crate::Capabilities::maintenance).
    fn usage(&self) -> Result<UsageCounts> {
        unsupported(
            "statistics",
            "a dataset has a summary, and the tools of the cluster show its tables",
        )
    }

    /// Advises which index kind fits each attribute.
    ///
    /// # Errors
    /// As [`Dataset::usage`]; [`esker::Error::BadInput`] for a mix that is not valid.
    fn advise(&self, _mix: Option<&Mix>) -> Result<Advice> {
        unsupported("advice", "the plan of a query says what it reads")
    }

    /// The state of the dataset.
    ///
    /// # Errors
    /// As [`Dataset::usage`].
    fn stats(&self) -> Result<DatasetStats> {
        unsupported(
            "statistics",
            "a dataset has a summary, and the tools of the cluster show its tables",
        )
    }

    /// The state of a dataset whose files are not the store's.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`summaries`](crate::Capabilities::summaries); any
    /// read error.
    fn summary(&self) -> Result<Summary> {
        unsupported(
            "summary of a dataset",
            "its statistics have the same numbers",
        )
    }

    /// The changes after a position; with `with_old`, each with the record that it replaced.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`changes`](crate::Capabilities::changes);
    /// [`esker::Error::NoOldRecords`]; [`esker::Error::PositionExpired`];
    /// [`esker::Error::OtherHistory`].
    fn changes(&self, _from: ChangesFrom, _with_old: bool) -> Result<Box<dyn ChangeFeed>> {
        unsupported("change feed", "copy the records to a folder, which has one")
    }

    /// The changes for a named consumer, which are kept for it up to `keep` bytes.
    ///
    /// # Errors
    /// As [`Dataset::changes`].
    fn consume(
        &self,
        _consumer: &str,
        _from: Option<ChangesFrom>,
        _keep: u64,
        _with_old: bool,
    ) -> Result<Box<dyn ChangeFeed>> {
        unsupported("change feed", "copy the records to a folder, which has one")
    }

    /// Forgets a consumer; false if there is none of that name.
    ///
    /// # Errors
    /// As [`Dataset::changes`].
    fn release_changes(&self, _consumer: &str) -> Result<bool> {
        unsupported("change feed", "copy the records to a folder, which has one")
    }
}

fn shape(def: &DatasetDef) -> Shape {
    Shape::new(&StoredDef::new(def))
}
