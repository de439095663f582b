//! Index changes, migrations of the strategy, repair, statistics and advice.

use std::time::Duration;

use esker_model::definition::{Index, IndexDef, IndexKind, Maintenance};
use esker_model::schema::IntoPath;

use super::Dataset;
use super::task::Task;
use crate::advise::{Advice, Mix};
use crate::ddl::{IndexChange, IndexProgress, MigrationProgress, MigrationReport};
use crate::error::Result;
use crate::repair::{RepairOptions, RepairProgress, RepairReport};
use crate::stats::{DatasetStats, TableStats};
use crate::telemetry::UsageCounts;

impl<K, V> Dataset<K, V> {
    /// Indexes the attribute at `path`, and declares it if necessary; if `index` does not give the
    /// type, it is inferred from the first records. Writes and queries continue; queries use the
    /// index once the task is complete. An interrupted task continues where it stopped when it is
    /// run again.
    ///
    /// Reads every record once, and borrows at most a sixteenth of the memory budget.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Index, Options, field};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let pages = db.create_dataset::<u64>("pages", DatasetDef::key("id"))?;
    /// pages.put_json(br#"{"id": 1, "path": "/a"}"#)?;
    ///
    /// pages.add_index("path", Index::lazy()).run()?;
    /// assert_eq!(pages.find(field("path").eq("/a")).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Exists`] if the attribute has an index; [`crate::Error::Record`] if a record
    /// does not fit the type (nothing is changed then); [`crate::Error::BadInput`] if the tokenizer
    /// does not fit the kind or the type; [`crate::Error::Busy`] while another index change of the
    /// dataset is running or unfinished.
    pub fn add_index(
        &self,
        path: impl IntoPath,
        index: impl Into<Index>,
    ) -> Task<IndexProgress, IndexChange> {
        let (path, index) = (path.into_path(), index.into());
        let handle = self.handle.clone();
        Task::new(move |progress| handle.add_index(&path?, index, progress))
    }

    /// Changes the kind of the index of the attribute at `path`, as [`Dataset::add_index`] does,
    /// with the same errors. Queries use the old index until the new one is complete. The tokenizer
    /// stays.
    pub fn switch_index(
        &self,
        path: impl IntoPath,
        kind: IndexKind,
    ) -> Task<IndexProgress, IndexChange> {
        let path = path.into_path();
        let handle = self.handle.clone();
        Task::new(move |progress| handle.switch_index(&path?, kind, progress))
    }

    /// Rebuilds the index of the attribute at `path` from the records, for example if its files are
    /// damaged or missing. Kind and tokenizer stay; queries use the old index, as far as it can be
    /// read, until the new one is complete. Otherwise as [`Dataset::add_index`], which lists the
    /// other errors.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the attribute has no index; also any error of reading the
    /// records.
    pub fn rebuild_index(&self, path: impl IntoPath) -> Task<IndexProgress, IndexChange> {
        let path = path.into_path();
        let handle = self.handle.clone();
        Task::new(move |progress| handle.rebuild_index(&path?, progress))
    }

    /// Drops the index of the attribute at `path`, at once. The attribute stays declared, with kind
    /// [`IndexKind::None`]: records that do not fit its type are still refused. If an interrupted
    /// change of the index is unfinished, this cancels the change instead, and everything is as
    /// before it.
    pub fn drop_index(&self, path: impl IntoPath) -> Result<IndexChange> {
        self.handle.drop_index(&path.into_path()?)
    }

    /// The index change that was started and is not complete, running or interrupted: the attribute
    /// as it will be.
    pub fn unfinished_index(&self) -> Option<IndexDef> {
        self.handle.unfinished_index()
    }

    /// Continues an interrupted index change; the report is `None` if there is none.
    pub fn resume_index(&self) -> Task<IndexProgress, Option<IndexChange>> {
        let handle = self.handle.clone();
        Task::new(move |progress| handle.resume_index(progress))
    }

    /// Migrates to another maintenance strategy. Writes and queries continue and stay exact: new
    /// writes use the new strategy from the start of the task, and queries use it once the task is
    /// complete. An interrupted task continues when it is run again.
    ///
    /// A migration from a strategy without a primary-key index to one with it reads every record
    /// once. A repair by index finds the obsolete index entries of the old strategy, unless that
    /// was eager or mutable-bitmap, which leave none.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the strategy does not fit the definition (several versions,
    /// staged repair); [`crate::Error::Busy`] while an index change of the dataset is running or
    /// unfinished.
    pub fn set_maintenance(
        &self,
        maintenance: Maintenance,
    ) -> Task<MigrationProgress, MigrationReport> {
        let handle = self.handle.clone();
        Task::new(move |progress| handle.set_maintenance(maintenance, progress))
    }

    /// Lets measurements choose the strategy from now on ([`crate::DatasetDef::auto`]). Begins with
    /// the current strategy if it is among the choices, otherwise migrates to validation as
    /// [`Dataset::set_maintenance`] does, with the same errors.
    pub fn set_auto(&self) -> Task<MigrationProgress, MigrationReport> {
        let handle = self.handle.clone();
        Task::new(move |progress| handle.set_auto(progress))
    }

    /// Sets the time to live of records that are written from now on. With `None` records expire
    /// only at the time in their own field ([`crate::DatasetDef::expires_at`]), if any. Existing
    /// records keep their expiry time. Takes effect at once; reads and writes continue.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the time to live is less than a millisecond;
    /// [`crate::Error::Busy`] while an index or the strategy of the dataset is being changed.
    pub fn set_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        self.handle.set_ttl(ttl)
    }

    /// Deletes the records that have expired, and returns how many. Reads do not return them
    /// anyway: this frees their space, and change feeds report each as a change
    /// ([`crate::ChangeKind::Expired`]). A store that is open for writing does this by itself
    /// shortly after the expiry; with [`background`](crate::Options::background) off, when a
    /// memtable is flushed.
    ///
    /// If the clock is a day or more ahead of the store's last use, nothing is deleted until
    /// [`Database::confirm_time`](crate::Database::confirm_time).
    ///
    /// A record that another writer replaces during the call is left as it is.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] if the dataset's definition was changed a hundred times in a row;
    /// also any read or write error.
    pub fn expire_now(&self) -> Result<u64> {
        self.handle.expire(&|| true)
    }

    /// Finds all writes that were replaced or deleted before the task runs and that the store does
    /// not know to be obsolete yet. Reads and writes continue; snapshots are not affected. Flushes
    /// the store first.
    ///
    /// Makes one pass over the data that the method reads. Needs the memory set in the options, and
    /// a bit per write.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the method does not fit the dataset; [`crate::Error::Busy`]
    /// for a repair by index while an index change is running or unfinished; also any read or write
    /// error.
    pub fn repair(&self, options: &RepairOptions) -> Task<RepairProgress, RepairReport> {
        let options = options.clone();
        let handle = self.handle.clone();
        Task::new(move |progress| handle.repair(&options, progress))
    }

    /// The counted use of the dataset: by this handle, and by earlier handles that wrote and were
    /// closed. The counts of a handle that only reads are lost when it is dropped.
    pub fn usage(&self) -> UsageCounts {
        self.handle.usage()
    }

    /// Advises which index kind fits each attribute, for the given mix of operations or, without
    /// one, for the counted use ([`Dataset::usage`]). Reads about two thousand data blocks, spread
    /// evenly, independent of the size of the dataset.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the mix has a negative share or only zeros; also any read
    /// error.
    pub fn advise(&self, mix: Option<&Mix>) -> Result<Advice> {
        self.handle.advise(mix)
    }

    /// The state of the dataset: its definition, and its trees level by level.
    pub fn stats(&self) -> DatasetStats {
        self.handle.stats()
    }

    /// The tables of the dataset, tree by tree, the newest runs first: what a picture of its levels
    /// is made of. Reads no file.
    pub fn tables(&self) -> Vec<TableStats> {
        self.handle.tables()
    }
}
