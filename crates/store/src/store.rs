//! A store: datasets by name.

use std::path::Path;

use esker::changes::ChangeConsumer;
use esker::maintain::CheckReport;
use esker::stats::{NamedSnapshot, StoreStats};
use esker::{DatasetDef, Result, Seq};

use crate::capabilities::{Capabilities, unsupported};
use crate::records::{Dataset, Records};

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For reading, which works beside a process that writes.
    Read,
    /// For writing.
    Write,
    /// For writing, or for reading if another process writes.
    WriteIfFree,
    /// For writing; created if it does not exist.
    Create,
}

/// A store.
pub trait Store: Send + Sync {
    /// The operations that the store has.
    fn capabilities(&self) -> Capabilities;

    /// The names of the datasets, ascending.
    ///
    /// # Errors
    /// Any read error.
    fn dataset_names(&self) -> Result<Vec<String>>;

    /// The dataset of this name.
    ///
    /// # Errors
    /// [`esker::Error::UnknownDataset`]; any read error.
    fn dataset(&self, name: &str) -> Result<Box<dyn Dataset>>;

    /// Creates a dataset.
    ///
    /// # Errors
    /// [`esker::Error::Exists`]; [`esker::Error::BadInput`] for a name or a definition that is not
    /// valid.
    fn create_dataset(&self, name: &str, def: DatasetDef) -> Result<Box<dyn Dataset>>;

    /// The definition that the store takes in place of one that comes from another store: the same
    /// as far as it can be, with a sentence for each difference.
    fn adapted(&self, def: &DatasetDef) -> (DatasetDef, Vec<String>) {
        (def.clone(), Vec::new())
    }

    /// Gives a dataset another name.
    ///
    /// # Errors
    /// [`esker::Error::UnknownDataset`]; [`esker::Error::Exists`]; any write error.
    fn rename_dataset(&self, name: &str, to: &str) -> Result<()>;

    /// Drops a dataset with its records and indexes.
    ///
    /// # Errors
    /// [`esker::Error::UnknownDataset`]; [`esker::Error::Busy`] while an index is being changed.
    fn drop_dataset(&self, name: &str) -> Result<()>;

    /// Closes the store. Everything written is durable then.
    ///
    /// # Errors
    /// Any write error.
    fn close(self: Box<Self>) -> Result<()>;

    /// The named snapshots.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::snapshots`].
    fn snapshots(&self) -> Result<Vec<NamedSnapshot>> {
        unsupported(
            "named snapshots",
            "read at a time with the versions of records, or copy the records to a folder",
        )
    }

    /// Keeps the store as it is now under a name.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::snapshots`]; [`esker::Error::Exists`].
    fn keep_snapshot(&self, _name: &str) -> Result<Seq> {
        unsupported(
            "named snapshots",
            "read at a time with the versions of records, or copy the records to a folder",
        )
    }

    /// Drops a named snapshot.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::snapshots`];
    /// [`esker::Error::UnknownSnapshot`].
    fn drop_snapshot(&self, _name: &str) -> Result<()> {
        unsupported(
            "named snapshots",
            "read at a time with the versions of records, or copy the records to a folder",
        )
    }

    /// The names of the datasets in a named snapshot.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::snapshots`];
    /// [`esker::Error::UnknownSnapshot`].
    fn dataset_names_at(&self, _snapshot: &str) -> Result<Vec<String>> {
        unsupported(
            "named snapshots",
            "read at a time with the versions of records, or copy the records to a folder",
        )
    }

    /// A dataset in a named snapshot.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::snapshots`];
    /// [`esker::Error::UnknownSnapshot`]; [`esker::Error::UnknownDataset`].
    fn dataset_at(&self, _snapshot: &str, _name: &str) -> Result<Box<dyn Records>> {
        unsupported(
            "named snapshots",
            "read at a time with the versions of records, or copy the records to a folder",
        )
    }

    /// Compacts a dataset, or all.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::maintenance`]; any read or write
    /// error.
    fn compact(&self, _dataset: Option<&str>) -> Result<()> {
        unsupported("compaction", "the cluster compacts its tables by itself")
    }

    /// Reads and verifies everything that the store has on disk.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::files`]. Damage is part of the report.
    fn check(&self) -> Result<CheckReport> {
        unsupported("files to check", "a scan reads all records")
    }

    /// Verifies one dataset.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] if the store is checked as a whole; otherwise as
    /// [`Store::check`].
    fn check_dataset(&self, _dataset: &str) -> Result<CheckReport> {
        unsupported("check of one dataset", "check the whole store")
    }

    /// Copies the store to a new folder.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::files`]; any read or write error.
    fn backup(&self, _to: &Path) -> Result<()> {
        unsupported("backup", "copy the records to a folder")
    }

    /// The state of the store.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::maintenance`].
    fn stats(&self) -> Result<StoreStats> {
        unsupported(
            "statistics",
            "a dataset has a summary, and the tools of the cluster show its tables",
        )
    }

    /// The bytes of the store's files, the log included; `None` if they are not known here.
    ///
    /// # Errors
    /// Any read error.
    fn bytes_on_disk(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// The consumers of changes.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::changes`]; any read error.
    fn change_consumers(&self) -> Result<Vec<ChangeConsumer>> {
        unsupported("change feed", "copy the records to a folder, which has one")
    }

    /// Confirms that the clock is right after it jumped ahead, so that expired records are deleted.
    ///
    /// # Errors
    /// [`esker::Error::Unsupported`] without [`Capabilities::expiry`]; any write error.
    fn confirm_time(&self) -> Result<()> {
        unsupported(
            "expiry",
            "delete the records that have expired, or copy them to a folder",
        )
    }

    /// The time that waits for a confirmation, in milliseconds since 1970.
    fn unconfirmed_time(&self) -> Option<u64> {
        None
    }
}
