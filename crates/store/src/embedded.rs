//! The embedded store: a folder, in this process.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path as FsPath;
use std::time::Duration;

use esker::advise::{Advice, Mix};
use esker::changes::ChangeConsumer;
use esker::maintain::{
    CheckReport, IndexChange, IndexProgress, MigrationProgress, MigrationReport, RepairOptions,
    RepairProgress, RepairReport,
};
use esker::request::{Aggregation, Group};
use esker::schema::{Fields, IndexDef, Maintenance};
use esker::space::{CellCount, Latest, Neighbour, TableBox};
use esker::stats::{DatasetStats, NamedSnapshot, StoreStats, UsageCounts};
use esker::versions::ValuePage;
use esker::{
    Change, Changes, ChangesFrom, Consumer, Database, DatasetDef, DatasetSnapshot, Durability,
    Explain, Expr, Index, IndexKind, Key, PageToken, Path, Position, Record, Request, Result, Seq,
    Stop, Task, Update, WriteBatch,
};

use crate::answer::Answer;
use crate::batch::Batch;
use crate::capabilities::Capabilities;
use crate::records::{ChangeFeed, Dataset, Records, VersionRequest};
use crate::store::Store;

/// A store in a folder.
pub struct Embedded {
    db: Database,
}

impl Embedded {
    /// The store of a database.
    pub fn new(db: Database) -> Embedded {
        Embedded { db }
    }
}

impl Store for Embedded {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            snapshots: true,
            versions: true,
            indexes: true,
            changes: true,
            expiry: true,
            maintenance: true,
            summaries: false,
            files: true,
            key_order: true,
        }
    }

    fn dataset_names(&self) -> Result<Vec<String>> {
        Ok(self.db.dataset_names())
    }

    fn dataset(&self, name: &str) -> Result<Box<dyn Dataset>> {
        Ok(Box::new(self.db.dataset::<Key>(name)?))
    }

    fn create_dataset(&self, name: &str, def: DatasetDef) -> Result<Box<dyn Dataset>> {
        Ok(Box::new(self.db.create_dataset::<Key>(name, def)?))
    }

    fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        self.db.rename_dataset(name, to)
    }

    fn drop_dataset(&self, name: &str) -> Result<()> {
        self.db.drop_dataset(name)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.close()
    }

    fn snapshots(&self) -> Result<Vec<NamedSnapshot>> {
        Ok(self.db.snapshots())
    }

    fn keep_snapshot(&self, name: &str) -> Result<Seq> {
        self.db.keep_snapshot(name)
    }

    fn drop_snapshot(&self, name: &str) -> Result<()> {
        self.db.drop_snapshot(name)
    }

    fn dataset_names_at(&self, snapshot: &str) -> Result<Vec<String>> {
        Ok(self.db.kept_snapshot(snapshot)?.dataset_names())
    }

    fn dataset_at(&self, snapshot: &str, name: &str) -> Result<Box<dyn Records>> {
        let kept = self.db.kept_snapshot(snapshot)?;
        Ok(Box::new(kept.dataset::<Key>(name)?))
    }

    fn compact(&self, dataset: Option<&str>) -> Result<()> {
        self.db.compact(dataset)
    }

    fn check(&self) -> Result<CheckReport> {
        self.db.check()
    }

    fn backup(&self, to: &FsPath) -> Result<()> {
        self.db.backup(to)
    }

    fn stats(&self) -> Result<StoreStats> {
        Ok(self.db.stats())
    }

    fn change_consumers(&self) -> Result<Vec<ChangeConsumer>> {
        self.db.change_consumers()
    }

    fn confirm_time(&self) -> Result<()> {
        self.db.confirm_time()
    }

    fn unconfirmed_time(&self) -> Option<u64> {
        self.db.unconfirmed_time()
    }
}

impl Answer<Record> for esker::Answer {
    fn explain(&self) -> Explain {
        esker::Answer::explain(self)
    }

    fn token(&self) -> Option<PageToken> {
        esker::Answer::token(self)
    }
}

impl Answer<Key> for esker::Keys {
    fn explain(&self) -> Explain {
        esker::Keys::explain(self)
    }

    fn token(&self) -> Option<PageToken> {
        esker::Keys::token(self)
    }
}

impl Answer<Record> for esker::Scan {
    fn explain(&self) -> Explain {
        esker::Scan::explain(self)
    }

    fn token(&self) -> Option<PageToken> {
        None
    }
}

/// The reads of a dataset and of a snapshot are the same calls.
macro_rules! records {
    ($of:ty, |$it:ident| $moment:expr) => {
        impl Records for $of {
            fn name(&self) -> String {
                <$of>::name(self)
            }

            fn def(&self) -> DatasetDef {
                <$of>::def(self)
            }

            fn with_stop(&self, stop: &Stop) -> Option<Box<dyn Records>> {
                Some(Box::new(<$of>::with_stop(self, stop)))
            }

            fn fields(&self) -> Result<Option<Fields>> {
                <$of>::fields(self)
            }

            fn get(&self, key: &Key) -> Result<Option<Record>> {
                <$of>::get(self, key)
            }

            fn find(&self, request: &Request) -> Result<Box<dyn Answer<Record>>> {
                Ok(Box::new(self.request(request.clone()).run()?))
            }

            fn keys(&self, request: &Request) -> Result<Box<dyn Answer<Key>>> {
                Ok(Box::new(self.request(request.clone()).keys()?))
            }

            fn visit(
                &self,
                request: &Request,
                visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
            ) -> Result<Explain> {
                self.request(request.clone()).visit(visit)
            }

            fn aggregate(
                &self,
                aggregation: &Aggregation,
                visit: &mut dyn FnMut(Group) -> ControlFlow<()>,
            ) -> Result<Explain> {
                self.aggregation(aggregation.clone()).visit(visit)
            }

            fn count(&self, request: &Request) -> Result<(u64, Explain)> {
                self.request(request.clone()).count_explained()
            }

            fn explain(&self, request: &Request) -> Result<Explain> {
                self.request(request.clone()).explain()
            }

            fn scan(
                &self,
                range: (Bound<Key>, Bound<Key>),
                reverse: bool,
            ) -> Result<Box<dyn Answer<Record>>> {
                let scan = <$of>::scan(self, range);
                Ok(Box::new(if reverse { scan.rev() } else { scan }))
            }

            fn versions(&self, key: &Key, as_of: Option<Seq>, most: usize) -> Result<Vec<Record>> {
                <$of>::versions(self, key).as_of(as_of).latest(most).read()
            }

            fn versions_with(&self, request: &VersionRequest) -> Result<ValuePage> {
                let mut tokens = request.tokens.iter();
                let Some((path, token)) = tokens.next() else {
                    let what = "versions by value: give at least one token";
                    return Err(esker::Error::BadInput(what.to_string()));
                };
                let first = <$of>::versions_with(self, path, token);
                tokens
                    .fold(first, |versions, (path, token)| versions.and(path, token))
                    .as_of(request.as_of)
                    .latest(request.versions)
                    .limit(request.limit)
                    .after(request.after)
                    .read()
            }

            fn table_boxes(&self, path: &Path) -> Result<Vec<TableBox>> {
                let $it = self;
                $moment.table_boxes(path)
            }

            fn nearest(
                &self,
                request: &Request,
                path: &Path,
                from: (f64, f64),
                k: usize,
                max: Option<f64>,
            ) -> Result<(Vec<Neighbour>, Explain)> {
                (self.request(request.clone())).nearest_explained(path, from, k, max)
            }

            fn by_distance(
                &self,
                request: &Request,
                path: &Path,
                from: (f64, f64),
            ) -> Result<(Vec<Neighbour>, Explain)> {
                self.request(request.clone()).by_distance(path, from)
            }

            fn cells(
                &self,
                request: &Request,
                path: &Path,
                degrees: f64,
            ) -> Result<Vec<CellCount>> {
                self.request(request.clone()).cells(path, degrees)
            }

            fn latest_per(
                &self,
                request: &Request,
                path: &Path,
                latest: &Latest,
            ) -> Result<(Vec<Record>, Explain)> {
                self.request(request.clone()).latest_per(path, latest)
            }
        }
    };
}

records!(DatasetSnapshot, |it| it);
records!(esker::Dataset, |it| esker::Dataset::snapshot(it));

impl Dataset for esker::Dataset {
    fn snapshot(&self) -> Result<Box<dyn Records>> {
        Ok(Box::new(esker::Dataset::snapshot(self)))
    }

    fn records(&self) -> &dyn Records {
        self
    }

    fn batch(&self) -> Box<dyn Batch> {
        Box::new(esker::Dataset::batch(self))
    }

    fn update(
        &self,
        key: &Key,
        change: &mut dyn FnMut(Option<&Record>) -> Result<Update>,
    ) -> Result<Option<Record>> {
        esker::Dataset::update(self, key, change)
    }

    fn delete_where(
        &self,
        condition: Expr,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        esker::Dataset::delete_where(self, condition, progress)
    }

    fn sync(&self) -> Result<()> {
        esker::Dataset::sync(self)
    }

    fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        esker::Dataset::notes(self)
    }

    fn remarks(&self) -> Vec<String> {
        esker::Dataset::remarks(self)
    }

    fn unindexed(&self) -> Result<BTreeMap<Path, u64>> {
        esker::Dataset::unindexed(self)
    }

    fn add_index(&self, path: Path, index: Index) -> Result<Task<IndexProgress, IndexChange>> {
        Ok(esker::Dataset::add_index(self, path, index))
    }

    fn switch_index(
        &self,
        path: Path,
        kind: IndexKind,
    ) -> Result<Task<IndexProgress, IndexChange>> {
        Ok(esker::Dataset::switch_index(self, path, kind))
    }

    fn rebuild_index(&self, path: Path) -> Result<Task<IndexProgress, IndexChange>> {
        Ok(esker::Dataset::rebuild_index(self, path))
    }

    fn resume_index(&self) -> Result<Task<IndexProgress, Option<IndexChange>>> {
        Ok(esker::Dataset::resume_index(self))
    }

    fn drop_index(&self, path: &Path) -> Result<IndexChange> {
        esker::Dataset::drop_index(self, path)
    }

    fn unfinished_index(&self) -> Option<IndexDef> {
        esker::Dataset::unfinished_index(self)
    }

    fn set_maintenance(&self, to: Maintenance) -> Result<Task<MigrationProgress, MigrationReport>> {
        Ok(esker::Dataset::set_maintenance(self, to))
    }

    fn set_auto(&self) -> Result<Task<MigrationProgress, MigrationReport>> {
        Ok(esker::Dataset::set_auto(self))
    }

    fn repair(&self, options: &RepairOptions) -> Result<Task<RepairProgress, RepairReport>> {
        Ok(esker::Dataset::repair(self, options))
    }

    fn set_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        esker::Dataset::set_ttl(self, ttl)
    }

    fn expire_now(&self) -> Result<u64> {
        esker::Dataset::expire_now(self)
    }

    fn usage(&self) -> Result<UsageCounts> {
        Ok(esker::Dataset::usage(self))
    }

    fn advise(&self, mix: Option<&Mix>) -> Result<Advice> {
        esker::Dataset::advise(self, mix)
    }

    fn stats(&self) -> Result<DatasetStats> {
        Ok(esker::Dataset::stats(self))
    }

    fn changes(&self, from: ChangesFrom, with_old: bool) -> Result<Box<dyn ChangeFeed>> {
        let changes = esker::Dataset::changes(self, from)?;
        Ok(Box::new(if with_old {
            changes.with_old()?
        } else {
            changes
        }))
    }

    fn consume(
        &self,
        consumer: &str,
        from: Option<ChangesFrom>,
        keep: u64,
        with_old: bool,
    ) -> Result<Box<dyn ChangeFeed>> {
        if with_old {
            // Checked before a consumer is created, because a consumer retains the log.
            esker::Dataset::changes(self, ChangesFrom::Now)?.with_old()?;
        }
        let consumer = esker::Dataset::consume(self, consumer, from, keep)?;
        Ok(Box::new(if with_old {
            consumer.with_old()?
        } else {
            consumer
        }))
    }

    fn release_changes(&self, consumer: &str) -> Result<bool> {
        esker::Dataset::release_changes(self, consumer)
    }
}

impl Batch for WriteBatch {
    fn put_json(&mut self, json: &[u8]) -> Result<()> {
        WriteBatch::put_json(self, json)
    }

    fn insert_json(&mut self, json: &[u8]) -> Result<()> {
        WriteBatch::insert_json(self, json)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        WriteBatch::delete(self, key)
    }

    fn expect(&mut self, key: &Key, seq: Option<Seq>) -> Result<()> {
        match seq {
            Some(seq) => self.if_seq(key, seq),
            None => self.if_absent(key),
        }
    }

    fn note(&mut self, name: &str, value: Option<&[u8]>) -> Result<()> {
        WriteBatch::note(self, name, value)
    }

    fn len(&self) -> usize {
        WriteBatch::len(self)
    }

    fn is_empty(&self) -> bool {
        WriteBatch::is_empty(self)
    }

    fn bytes(&self) -> usize {
        WriteBatch::bytes(self)
    }

    fn last_key(&self) -> &[u8] {
        WriteBatch::last_key(self)
    }

    fn durability(&mut self, durability: Durability) {
        WriteBatch::durability(self, durability);
    }

    fn commit(&mut self) -> Result<()> {
        WriteBatch::commit(self)
    }
}

impl ChangeFeed for Changes {
    fn wait(&mut self, most: Duration) -> Result<Option<Change>> {
        Changes::wait(self, most)
    }

    fn position(&self) -> Position {
        Changes::position(self)
    }

    fn done(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_new(&self) -> bool {
        false
    }
}

impl ChangeFeed for Consumer {
    fn wait(&mut self, most: Duration) -> Result<Option<Change>> {
        Consumer::wait(self, most)
    }

    fn position(&self) -> Position {
        Consumer::position(self)
    }

    fn done(&mut self) -> Result<()> {
        Consumer::done(self)
    }

    fn is_new(&self) -> bool {
        Consumer::is_new(self)
    }
}
