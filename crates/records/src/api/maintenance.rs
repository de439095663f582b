//! Changing a dataset's indexes and strategy, repairing it, looking at it.

use std::time::Duration;

use model::definition::{Index, IndexDef, IndexKind, Maintenance};
use model::schema::IntoPath;

use super::Dataset;
use super::task::Task;
use crate::advise::{Advice, Mix};
use crate::ddl::{IndexChange, IndexProgress, SwitchProgress, SwitchReport};
use crate::error::Result;
use crate::repair::{RepairOptions, RepairProgress, RepairReport};
use crate::stats::DatasetStats;
use crate::telemetry::UsageCounts;

impl<K> Dataset<K> {
    /// Indexes the attribute at `path`, which is declared thereby if it is not yet; its type is then
    /// inferred from the first records where `index` does not say it. Writes and queries continue meanwhile; queries use the index when the task has
    /// run. Run again after it was cut off, it continues where it was.
    ///
    /// Reads every record once; memory is borrowed from the budget, a sixteenth of it at most.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Index, KeyType, Options, field};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let pages = db.create_dataset::<u64>("pages", DatasetDef::new("id", KeyType::Int))?;
    /// pages.put_json(br#"{"id": 1, "path": "/a"}"#)?;
    ///
    /// pages.add_index("path", Index::lazy()).run()?;
    /// assert_eq!(pages.find(field("path").eq("/a")).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Exists`] when the attribute has an index; [`crate::Error::Record`] when a record does not fit the type, and then everything is as
    /// before; [`crate::Error::BadInput`] when the tokenizer does not go with the kind or the type; [`crate::Error::Busy`] while another index of the
    /// dataset is changed, or that is unfinished.
    pub fn add_index(
        &self,
        path: impl IntoPath,
        index: impl Into<Index>,
    ) -> Task<'_, IndexProgress, IndexChange> {
        let (path, index) = (path.into_path(), index.into());
        Task::new(move |progress| self.handle.add_index(&path?, index, progress))
    }

    /// Changes the kind of the index of the attribute at `path`. As [`Dataset::add_index`] does, which
    /// lists the errors too; the old index answers until the new one is complete. The tokenizer stays.
    pub fn switch_index(
        &self,
        path: impl IntoPath,
        kind: IndexKind,
    ) -> Task<'_, IndexProgress, IndexChange> {
        let path = path.into_path();
        Task::new(move |progress| self.handle.switch_index(&path?, kind, progress))
    }

    /// Builds the index of the attribute at `path` again, from the records alone: the way out when its files are damaged or
    /// missing. Its kind and tokenizer stay; the old one answers, as far as it can be read, until the new one is complete. As
    /// [`Dataset::add_index`] does, which lists the other errors too.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] when the attribute has no index; what reading the records gives.
    pub fn rebuild_index(&self, path: impl IntoPath) -> Task<'_, IndexProgress, IndexChange> {
        let path = path.into_path();
        Task::new(move |progress| self.handle.rebuild_index(&path?, progress))
    }

    /// Drops the index of the attribute at `path`, at once. The attribute stays declared, with kind
    /// [`IndexKind::None`]: records are still refused where they do not fit its type. An index that is being
    /// built, and was cut off, is taken back instead: everything is as before the change.
    pub fn drop_index(&self, path: impl IntoPath) -> Result<IndexChange> {
        self.handle.drop_index(&path.into_path()?)
    }

    /// The change of an index that was begun and is not complete: the attribute as it will be.
    /// One that is under way now counts too.
    pub fn unfinished_index(&self) -> Option<IndexDef> {
        self.handle.unfinished_index()
    }

    /// Goes on with a change of an index that was cut off; its report is `None` when there is none.
    pub fn resume_index(&self) -> Task<'_, IndexProgress, Option<IndexChange>> {
        Task::new(move |progress| self.handle.resume_index(progress))
    }

    /// Changes the maintenance strategy. Writes and queries continue meanwhile and stay exact: the new strategy
    /// is in force for all writes after the first moment, and queries use what it knows when the task has
    /// run. Run again after it was cut off, it continues.
    ///
    /// To a strategy with a primary-key index from one without, every record is read once. What the old
    /// strategy left behind is found by a repair by index, unless the old one was eager or
    /// mutable-bitmap, which leave nothing.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] when the strategy does not go with the definition (several versions, staged
    /// repair); [`crate::Error::Busy`] while an index of the dataset is changed, or that is unfinished.
    pub fn set_maintenance(
        &self,
        maintenance: Maintenance,
    ) -> Task<'_, SwitchProgress, SwitchReport> {
        Task::new(move |progress| self.handle.set_maintenance(maintenance, progress))
    }

    /// From now on the strategy is chosen by what is measured ([`crate::DatasetDef::auto`]). Begins with the present
    /// one if it is among the choices, else changes to validation, as [`Dataset::set_maintenance`] does,
    /// which lists the errors too.
    pub fn set_auto(&self) -> Task<'_, SwitchProgress, SwitchReport> {
        Task::new(move |progress| self.handle.set_auto(progress))
    }

    /// From now on records expire so long after they were written, or, with `None`, at the time that they have themselves at most
    /// ([`crate::DatasetDef::expires_at`]). Records that are there keep the time that they were written with. One edit, at once; reads and writes continue.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] for a time to live under a millisecond; [`crate::Error::Busy`] while the dataset is changed.
    pub fn set_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        self.handle.set_ttl(ttl)
    }

    /// Deletes the records that have expired, and returns how many. Nobody sees them anyway: this is for their space, and for feeds, which give each as a
    /// change ([`crate::ChangeKind::Expired`]). Open stores that are written to do it by themselves, a moment after; with
    /// [`background`](crate::Options::background) off, when a memtable is flushed.
    ///
    /// Nothing is deleted where the clock is a day or more ahead of the last time that the store was used with, until
    /// [`Database::confirm_time`](crate::Database::confirm_time).
    ///
    /// A record that another writer replaces during the call is left as it is.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] if the dataset's definition was changed a hundred times in a row; errors of reads and writes.
    pub fn expire_now(&self) -> Result<u64> {
        self.handle.expire(&|| true)
    }

    /// Finds what writes are obsolete and not known to be: those that were superseded by anything written before the
    /// task runs. Reads and writes continue meanwhile; snapshots see what they saw. Flushes the store first.
    ///
    /// Takes a pass over what the method goes through, and memory as the options say, and a bit per write.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] when the method does not fit the dataset; [`crate::Error::Busy`] by index while an
    /// index is changed, or that is unfinished; what reading and writing files gives.
    pub fn repair(&self, options: &RepairOptions) -> Task<'_, RepairProgress, RepairReport> {
        let options = options.clone();
        Task::new(move |progress| self.handle.repair(&options, progress))
    }

    /// What was counted of the dataset's use: by this handle, and by those before that wrote and were closed. A handle that
    /// only reads leaves nothing on disk, so what it counted goes with it.
    pub fn usage(&self) -> UsageCounts {
        self.handle.usage()
    }

    /// Which kind of index fits each attribute, for the given mix of operations or, without one, for what was
    /// counted ([`Dataset::usage`]). Reads about two thousand data blocks, spread evenly, whatever the size of the dataset.
    ///
    /// # Errors
    /// Those of reading; [`crate::Error::BadInput`] when the mix is negative or empty.
    pub fn advise(&self, mix: Option<&Mix>) -> Result<Advice> {
        self.handle.advise(mix)
    }

    /// The state of the dataset: its definition, and its trees level by level.
    pub fn stats(&self) -> DatasetStats {
        self.handle.stats()
    }
}
