//! A served dataset: its writes, and the changes of its definition.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use esker::advise::{Advice, Mix};
use esker::maintain::{
    IndexChange, IndexProgress, IndexStep, MigrationProgress, MigrationReport, MigrationStep,
    RepairOptions, RepairProgress, RepairReport,
};
use esker::schema::{IndexDef, IndexText, Maintenance};
use esker::stats::{DatasetStats, UsageCounts};
use esker::units::duration_text;
use esker::{
    Change, ChangesFrom, DatasetDef, Durability, Error, ErrorKind, Expr, Index, IndexKind, Key,
    Path, Position, Record, Result, Seq, Task, Update,
};
use esker_client::{Client, Feed, Writes, segment};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::reads::{Remarks, Served};
use super::requests;
use crate::batch::Batch;
use crate::records::{ChangeFeed, Dataset, Records};

/// How often an update is made again because other writers were faster.
const ATTEMPTS: usize = 1000;

/// The progress of a task, by how much is done of how much.
type ProgressOf<P> = fn(u64, u64) -> P;

impl Served {
    fn client(&self) -> &Client {
        self.dataset.client()
    }

    fn writes(&self) -> Result<()> {
        if self.reads_only {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// A task that is a job of the server. What stops it has no report.
    fn task<P: 'static, R: DeserializeOwned + 'static>(
        &self,
        of: &str,
        document: Value,
        progress_of: ProgressOf<P>,
        stopped: impl FnOnce() -> R + Send + 'static,
    ) -> Result<Task<P, R>> {
        self.writes()?;
        let dataset = self.dataset.clone();
        let of = of.to_string();
        Ok(Task::new(move |progress| {
            let mut show = |done, total| progress(progress_of(done, total));
            let result = dataset.run_job(&of, &document, &mut show);
            // A change shows in the definition also if it failed half-way.
            let refreshed = dataset.refresh();
            match result? {
                Some(result) => {
                    refreshed?;
                    requests::report(result)
                }
                None => Ok(stopped()),
            }
        }))
    }

    fn index_task(
        &self,
        document: Value,
        (path, to): (Path, IndexKind),
    ) -> Result<Task<IndexProgress, IndexChange>> {
        let from = kind_of(&self.def(), &path);
        let stopped = move || IndexChange::new(path, from, to);
        self.task("indexes", document, index_progress, stopped)
    }

    fn migration(&self, strategy: &str) -> Result<Task<MigrationProgress, MigrationReport>> {
        let now = self.def().maintenance;
        let stopped = move || MigrationReport::stopped(now);
        let document = json!({"strategy": strategy});
        let progress = |done, total| MigrationProgress::new(MigrationStep::Repair, done, total);
        self.task("maintenance", document, progress, stopped)
    }
}

fn index_progress(done: u64, total: u64) -> IndexProgress {
    IndexProgress::new(IndexStep::Reading, done, total)
}

fn kind_of(def: &DatasetDef, path: &Path) -> Option<IndexKind> {
    let known = def.indexes.iter().find(|index| index.path == *path);
    known.map(|index| index.kind)
}

impl Dataset for Served {
    fn snapshot(&self) -> Result<Box<dyn Records>> {
        let moment = self.dataset.moment()?;
        Ok(Box::new(Served::at(self.dataset.clone(), moment)))
    }

    fn records(&self) -> &dyn Records {
        self
    }

    fn batch(&self) -> Box<dyn Batch> {
        Box::new(Waiting {
            writes: self.dataset.writes(),
            reads_only: self.reads_only,
            remarks: self.remarks.clone(),
        })
    }

    fn update(
        &self,
        key: &Key,
        change: &mut dyn FnMut(Option<&Record>) -> Result<Update>,
    ) -> Result<Option<Record>> {
        self.writes()?;
        let mut batch = self.batch();
        for _ in 0..ATTEMPTS {
            let old = self.get(key)?;
            match change(old.as_ref())? {
                Update::Put(json) => {
                    batch.put_json(&json)?;
                    if batch.last_key() != key.as_bytes() {
                        return Err(Error::BadInput(format!(
                            "the new record of key {key} has another key, {}",
                            Key::display(key.key_type(), batch.last_key())
                        )));
                    }
                }
                Update::Delete if old.is_some() => batch.delete(key)?,
                Update::Delete | Update::Keep => return Ok(old),
            }
            let seq = old.as_ref().map(Record::seq);
            batch.expect(key, seq)?;
            match batch.commit() {
                Ok(()) => return Ok(old),
                Err(error) if error.conflict().is_some() => {}
                // Another record has the value, perhaps because of a commit that has changed this
                // record, too.
                Err(error) if error.kind() == ErrorKind::NotUnique => {
                    if self.get(key)?.map(|now| now.seq()) == seq {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
            batch = self.batch();
        }
        Err(Error::Conflict {
            key: None,
            what: format!(
                "other writers changed the record of key {key} {ATTEMPTS} times in a row: try again"
            ),
        })
    }

    fn delete_where(
        &self,
        condition: Expr,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        self.writes()?;
        self.dataset.delete_where(condition, progress)
    }

    fn sync(&self) -> Result<()> {
        self.dataset.sync()
    }

    fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        self.dataset.notes()
    }

    fn remarks(&self) -> Vec<String> {
        std::mem::take(&mut self.remarks.lock())
    }

    fn unindexed(&self) -> Result<BTreeMap<Path, u64>> {
        self.dataset.unindexed()
    }

    fn add_index(&self, path: Path, index: Index) -> Result<Task<IndexProgress, IndexChange>> {
        let text = IndexText {
            path: path.clone(),
            kind: index.kind(),
            ty: index.explicit_type(),
            tokenizer: index.tokens(),
            lenient: index.is_lenient(),
            unique: index.is_unique(),
        };
        let document = json!({"change": "add", "index": text.to_string()});
        self.index_task(document, (path, index.kind()))
    }

    fn switch_index(
        &self,
        path: Path,
        kind: IndexKind,
    ) -> Result<Task<IndexProgress, IndexChange>> {
        let document = json!({"change": "switch", "path": path, "kind": kind});
        self.index_task(document, (path, kind))
    }

    fn rebuild_index(&self, path: Path) -> Result<Task<IndexProgress, IndexChange>> {
        let kind = kind_of(&self.def(), &path).unwrap_or(IndexKind::None);
        let document = json!({"change": "rebuild", "path": path});
        self.index_task(document, (path, kind))
    }

    fn resume_index(&self) -> Result<Task<IndexProgress, Option<IndexChange>>> {
        let unfinished = self.unfinished_index();
        let stopped = move || unfinished.map(|def| IndexChange::new(def.path, None, def.kind));
        let document = json!({"change": "resume"});
        self.task("indexes", document, index_progress, stopped)
    }

    fn drop_index(&self, path: &Path) -> Result<IndexChange> {
        self.writes()?;
        let from = kind_of(&self.def(), path);
        let of = format!("indexes/{}", segment(&path.to_string()));
        self.client().delete(&self.dataset.path(&of))?;
        self.dataset.refresh()?;
        let mut dropped = IndexChange::new(path.clone(), from, IndexKind::None);
        dropped.complete = true;
        Ok(dropped)
    }

    fn unfinished_index(&self) -> Option<IndexDef> {
        self.dataset.refresh().ok().flatten()
    }

    fn set_maintenance(&self, to: Maintenance) -> Result<Task<MigrationProgress, MigrationReport>> {
        self.migration(&to.to_string())
    }

    fn set_auto(&self) -> Result<Task<MigrationProgress, MigrationReport>> {
        self.migration("auto")
    }

    fn repair(&self, options: &RepairOptions) -> Result<Task<RepairProgress, RepairReport>> {
        let document = serde_json::to_value(options);
        let document = document.map_err(|error| Error::BadInput(error.to_string()))?;
        self.task(
            "repair",
            document,
            RepairProgress::new,
            RepairReport::default,
        )
    }

    fn set_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        self.writes()?;
        let document = json!({"ttl": ttl.map(duration_text)});
        self.client().put(&self.dataset.path("ttl"), &document)?;
        self.dataset.refresh().map(drop)
    }

    fn expire_now(&self) -> Result<u64> {
        self.writes()?;
        let result = requests::job(self.client(), &self.dataset.path("expire"), &json!({}))?;
        Ok(result
            .get("deleted")
            .and_then(Value::as_u64)
            .unwrap_or_default())
    }

    fn usage(&self) -> Result<UsageCounts> {
        self.client().get(&self.dataset.path("usage"))
    }

    fn advise(&self, mix: Option<&Mix>) -> Result<Advice> {
        let mix = json!({"mix": mix});
        self.client().post(&self.dataset.path("advise"), &mix)
    }

    fn stats(&self) -> Result<DatasetStats> {
        self.client().get(&self.dataset.path("stat"))
    }

    fn changes(&self, from: ChangesFrom, with_old: bool) -> Result<Box<dyn ChangeFeed>> {
        Ok(Box::new(self.dataset.changes(from, with_old)?))
    }

    fn consume(
        &self,
        consumer: &str,
        from: Option<ChangesFrom>,
        keep: u64,
        with_old: bool,
    ) -> Result<Box<dyn ChangeFeed>> {
        let feed = self.dataset.consume(consumer, from, keep, with_old)?;
        Ok(Box::new(feed))
    }

    fn release_changes(&self, consumer: &str) -> Result<bool> {
        let name = self.dataset.name();
        let known = requests::consumers(self.client())?.into_iter();
        let mut own = known.filter(|known| known.dataset.as_deref().is_none_or(|of| of == name));
        if !own.any(|known| known.name == consumer) {
            return Ok(false);
        }
        let path = self
            .dataset
            .path(&format!("feed/consumers/{}", segment(consumer)));
        self.client().delete(&path)?;
        Ok(true)
    }
}

impl ChangeFeed for Feed {
    fn wait(&mut self, most: Duration) -> Result<Option<Change>> {
        Feed::wait(self, most)
    }

    fn position(&self) -> Position {
        Feed::position(self)
    }

    fn done(&mut self) -> Result<()> {
        Feed::done(self)
    }

    fn is_new(&self) -> bool {
        Feed::is_new(self)
    }
}

/// Writes that wait for their commit.
struct Waiting {
    writes: Writes,
    reads_only: bool,
    remarks: Remarks,
}

impl Batch for Waiting {
    fn put_json(&mut self, json: &[u8]) -> Result<()> {
        self.writes.put_json(json)
    }

    fn insert_json(&mut self, json: &[u8]) -> Result<()> {
        self.writes.insert_json(json)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.writes.delete(key)
    }

    fn expect(&mut self, key: &Key, seq: Option<Seq>) -> Result<()> {
        self.writes.expect(key, seq)
    }

    fn note(&mut self, name: &str, value: Option<&[u8]>) -> Result<()> {
        self.writes.note(name, value)
    }

    fn len(&self) -> usize {
        self.writes.len()
    }

    fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    fn bytes(&self) -> usize {
        self.writes.bytes()
    }

    fn last_key(&self) -> &[u8] {
        self.writes.last_key()
    }

    fn durability(&mut self, durability: Durability) {
        self.writes.durability(durability);
    }

    fn commit(&mut self) -> Result<()> {
        if self.reads_only {
            return Err(Error::ReadOnly);
        }
        let written = self.writes.commit()?;
        self.remarks.lock().extend(written.remarks);
        Ok(())
    }
}
