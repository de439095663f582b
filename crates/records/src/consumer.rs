//! Consumers of changes: each belongs to a dataset.
//!
//! The engine keeps the log for names. That of a consumer is here the number of its dataset's data tree, which the dataset keeps as long
//! as it lives and no other one gets, and the consumer's name: `\0` NUMBER `\0` NAME. A name has no 0 byte, so this is never a name that an
//! earlier version, which knew consumers of the whole store only, gave to the engine; such a one is bound by the first dataset that uses it.

use lsm::{Position, TreeId};

use crate::error::{Error, Result};
use crate::store::{Handle, Store};

/// The longest name of a consumer in bytes.
const MAX_NAME: usize = 255;

/// A consumer that changes of a dataset are kept for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeConsumer {
    /// Its name.
    pub name: String,
    /// The dataset that it belongs to; `None` of one that an earlier version kept for the whole store, until a dataset uses it.
    pub dataset: Option<String>,
    /// The place behind which changes are kept.
    pub position: Position,
    /// The most bytes of log that are kept.
    pub keeps_bytes: u64,
    /// Bytes of log that it has not read, of all datasets: those of the log files that have a write behind its place, each as a whole.
    pub lag_bytes: u64,
}

fn scoped(data: TreeId, name: &str) -> String {
    format!("\0{data}\0{name}")
}

/// The dataset's data tree and the consumer's name; `None` for a consumer of the whole store.
fn parts(kept: &str) -> Option<(TreeId, &str)> {
    let (data, name) = kept.strip_prefix('\0')?.split_once('\0')?;
    Some((data.parse().ok()?, name))
}

fn check_name(name: &str) -> Result<()> {
    let wrong = match name {
        "" => "is empty",
        _ if name.contains('\0') => "has a 0 byte",
        _ if name.len() > MAX_NAME => "is longer than 255 bytes",
        _ => return Ok(()),
    };
    Err(Error::bad_input(format!(
        "the name of a consumer of changes {wrong}"
    )))
}

impl Store {
    /// See [`crate::Database::change_consumers`]. Consumers of dropped datasets are left out.
    pub(crate) fn consumers(&self) -> Vec<ChangeConsumer> {
        let datasets = self.currents();
        let kept = self.group.log_consumers().into_iter();
        let all = kept.filter_map(|(kept, position, keeps_bytes)| {
            let (name, dataset) = match parts(&kept) {
                None => (kept.as_str(), None),
                Some((data, name)) => {
                    let dataset = datasets.iter().find(|dataset| dataset.data == data)?;
                    (name, Some(dataset.name.to_string()))
                }
            };
            Some(ChangeConsumer {
                name: name.to_string(),
                dataset,
                position,
                keeps_bytes,
                lag_bytes: self.group.log_bytes_behind(position),
            })
        });
        all.collect()
    }

    /// Ends the consumers of datasets that do not exist.
    pub(crate) fn release_orphans(&self) -> Result<()> {
        let version = self.group.snapshot();
        let trees = &version.version().trees;
        let is_orphan =
            |kept: &str| parts(kept).is_some_and(|(data, _)| !trees.contains_key(&data));
        let kept = self.group.log_consumers();
        if kept.iter().any(|(kept, _, _)| is_orphan(kept)) {
            self.group.release_logs(&mut |kept| is_orphan(kept))?;
        }
        Ok(())
    }

    fn is_kept(&self, kept: &str) -> bool {
        let all = self.group.log_consumers();
        all.iter().any(|(other, _, _)| other == kept)
    }
}

impl Handle {
    /// See [`crate::Dataset::keep_changes_for`].
    pub(crate) fn keep_changes_for(&self, name: &str, at: Position, bytes: u64) -> Result<()> {
        check_name(name)?;
        // A drop has it, too, until the dataset's consumers are gone.
        let _reserved = self.shared.names.reserve(self.name());
        if self.now().is_dropped() {
            return Err(Error::unknown_dataset(self.name()));
        }
        self.shared.release_orphans()?;
        let group = &self.shared.group;
        let own = scoped(self.current.data, name);
        let replaced = (!self.shared.is_kept(&own)).then_some(name);
        Ok(group.keep_log_in_place_of(replaced, &own, at, bytes)?)
    }

    /// See [`crate::Dataset::release_changes`].
    pub(crate) fn release_changes(&self, name: &str) -> Result<bool> {
        let group = &self.shared.group;
        if group.release_log(&scoped(self.current.data, name))? {
            return Ok(true);
        }
        // Of an earlier version: with any name that it accepted.
        Ok(parts(name).is_none() && group.release_log(name)?)
    }

    /// See [`crate::Dataset::change_consumer`].
    pub(crate) fn change_consumer(&self, name: &str) -> Option<ChangeConsumer> {
        let mut all = self.shared.consumers();
        all.retain(|one| one.name == name);
        let own = |one: &&ChangeConsumer| one.dataset.as_deref() == Some(self.name());
        let found = all.iter().find(own);
        found
            .or_else(|| all.iter().find(|one| one.dataset.is_none()))
            .cloned()
    }
}
