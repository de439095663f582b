//! Named consumers of changes, for which the store keeps the log. Each consumer belongs to a
//! dataset.
//!
//! The engine keeps the log for names. The name of a consumer in the engine is `\0` NUMBER `\0`
//! NAME: the number of its dataset's data tree, which never changes and is never reused, and the
//! consumer's own name. Earlier versions had only consumers of the whole store, and stored the own
//! name alone. An own name has no 0 byte, so the two forms differ. The first dataset that uses a
//! consumer of the whole store binds it.

use std::time::Duration;

use esker_lsm::{LogConsumer, Position, TreeId};
use esker_model::{Key, PrimaryKey};

use crate::error::{Error, Result};
use crate::feed::{Change, Changes, ChangesFrom};
use crate::store::{Handle, Store};

/// The longest name of a consumer in bytes.
const MAX_NAME: usize = 255;

/// A named consumer: the store keeps the changes of a dataset that it has not read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeConsumer {
    /// Its name.
    pub name: String,
    /// The dataset that it belongs to. `None` if an earlier version registered it for the whole
    /// store and no dataset has used it since.
    pub dataset: Option<String>,
    /// The store keeps the changes after this position.
    pub position: Position,
    /// The largest number of log bytes that the store keeps for it.
    pub keeps_bytes: u64,
    /// Bytes of log that it has not read, counted over all datasets: the sizes of the log files
    /// that contain a write after its position.
    pub lag_bytes: u64,
    /// Age, in whole seconds, of the oldest change of its dataset that it has not read. `None` if
    /// it has read everything, or if the age is unknown: the change is no longer kept, or was
    /// written while the store had no consumer.
    pub unread_for: Option<Duration>,
}

impl ChangeConsumer {
    /// A consumer that has read everything up to a position, for stores of other crates.
    pub fn new(name: String, position: Position) -> ChangeConsumer {
        ChangeConsumer {
            name,
            dataset: None,
            position,
            keeps_bytes: 0,
            lag_bytes: 0,
            unread_for: None,
        }
    }
}

/// The name in the engine of a consumer of the dataset with this data tree.
fn scoped(data: TreeId, name: &str) -> String {
    format!("\0{data}\0{name}")
}

/// Splits a name in the engine: the dataset's data tree and the consumer's own name; `None` for a
/// consumer of the whole store. No version wrote other names that begin with a 0 byte.
fn split_scoped(kept: &str) -> Option<(TreeId, &str)> {
    let (data, name) = kept.strip_prefix('\0')?.split_once('\0')?;
    Some((data.parse().ok()?, name))
}

/// Returns [`Error::BadInput`] if a consumer cannot have this name.
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

/// Converts an error of the engine; the one about a consumer in use gets the names of the consumer
/// and its dataset.
fn in_use(error: esker_lsm::Error, name: &str, dataset: &str) -> Error {
    match error {
        esker_lsm::Error::ConsumerInUse { .. } => Error::Busy(format!(
            "the consumer `{name}` of dataset `{dataset}` is in use already, by another process or another handle"
        )),
        other => other.into(),
    }
}

/// A named reader of a dataset's changes ([`crate::Dataset::consume`]). It continues where the
/// consumer of this name stopped; the store keeps each change until [`Consumer::done`] acknowledges
/// it. Only one handle at a time holds a consumer.
pub struct Consumer<K = Key> {
    changes: Changes<K>,
    dataset: Handle,
    name: String,
    log: LogConsumer,
    /// The most bytes of log that the store keeps for it.
    bytes: u64,
    /// The position of the consumer as the store has it.
    acknowledged: Position,
    is_new: bool,
}

impl<K: PrimaryKey> Consumer<K> {
    /// Takes the consumer `name`, which no other handle may hold. It continues where it stopped, or
    /// at `from`.
    pub(crate) fn new(
        dataset: Handle,
        name: &str,
        from: Option<ChangesFrom>,
        bytes: u64,
    ) -> Result<Consumer<K>> {
        let (log, known) = dataset.take_consumer(name)?;
        let begin = match (from, known) {
            (Some(from), _) => Changes::<K>::new(dataset.clone(), from)?.position(),
            (None, Some(known)) => known,
            (None, None) => dataset.store.group.position(),
        };
        dataset.keep(&log, name, begin, bytes)?;
        Ok(Consumer {
            changes: Changes::new(dataset.clone(), begin.into())?,
            dataset,
            name: name.to_string(),
            log,
            bytes,
            acknowledged: begin,
            is_new: known.is_none(),
        })
    }

    /// Makes each change carry the record that it replaced ([`Change::old`]).
    ///
    /// # Errors
    /// As [`Changes::with_old`].
    pub fn with_old(self) -> Result<Consumer<K>> {
        Ok(Consumer {
            changes: self.changes.with_old()?,
            ..self
        })
    }

    /// True if this call registered the consumer: the store kept nothing for it before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The next change, or `None` if there is none yet; later calls can return more.
    ///
    /// # Errors
    /// As [`Changes::next`].
    #[allow(
        clippy::should_implement_trait,
        reason = "it can be called again after `None`"
    )]
    pub fn next(&mut self) -> Result<Option<Change<K>>> {
        self.changes.next()
    }

    /// The next change; waits for it for at most `most`.
    ///
    /// # Errors
    /// As [`Changes::wait`].
    pub fn wait(&mut self, most: Duration) -> Result<Option<Change<K>>> {
        self.changes.wait(most)
    }

    /// This handle has returned every change before this position.
    pub fn position(&self) -> Position {
        self.changes.position()
    }

    /// Acknowledges all changes returned so far, durably: the next handle of this consumer begins
    /// after them. Costs nothing if no change was returned since the last call.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`] if the dataset was dropped; also any write error. After an error
    /// the same changes are returned again.
    pub fn done(&mut self) -> Result<()> {
        let here = self.changes.position();
        if here == self.acknowledged {
            return Ok(());
        }
        self.dataset.keep(&self.log, &self.name, here, self.bytes)?;
        self.acknowledged = here;
        Ok(())
    }
}

impl Store {
    /// See [`crate::Database::change_consumers`]. Omits consumers of dropped datasets.
    pub(crate) fn consumers(&self) -> Result<Vec<ChangeConsumer>> {
        let datasets = self.dataset_states();
        let mut consumers = Vec::new();
        for (kept, position, keeps_bytes) in self.group.log_consumers()? {
            let (name, dataset) = match split_scoped(&kept) {
                None => (kept.as_str(), None),
                Some((data, name)) => match datasets.iter().find(|dataset| dataset.data == data) {
                    Some(dataset) => (name, Some(dataset)),
                    None => continue,
                },
            };
            consumers.push(ChangeConsumer {
                name: name.to_string(),
                dataset: dataset.map(|dataset| dataset.name()),
                position,
                keeps_bytes,
                lag_bytes: self.group.log_bytes_behind(position),
                unread_for: self.unread_for(position, dataset.map(|dataset| dataset.data))?,
            });
        }
        Ok(consumers)
    }

    /// The age of the first change after `position` ([`Store::unread_since`]); `None` if there is
    /// none, or its age is unknown.
    fn unread_for(&self, position: Position, data: Option<TreeId>) -> Result<Option<Duration>> {
        match self.unread_since(position, data) {
            Ok(since) => Ok(since.map(|since| {
                let now = (self.group.options().clock)();
                // The clock may have been set back.
                Duration::from_millis(now.saturating_sub(since))
            })),
            Err(
                esker_lsm::Error::PositionExpired { .. } | esker_lsm::Error::OtherHistory { .. },
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The time at which the first change after `position` was written, in milliseconds since 1970:
    /// in the tree `data`, or in any tree. Reads the log up to this change.
    fn unread_since(
        &self,
        position: Position,
        data: Option<TreeId>,
    ) -> esker_lsm::Result<Option<u64>> {
        let mut tail = self.group.tail(position)?;
        while let Some(commit) = tail.next()? {
            let mut concerns_tree = false;
            commit.each(&mut |tree, _, _, _, _| {
                concerns_tree |= data.is_none_or(|data| data == tree);
            });
            if concerns_tree {
                return Ok(tail.time());
            }
        }
        Ok(None)
    }

    /// Releases the log that is kept for consumers of datasets that do not exist.
    pub(crate) fn release_orphans(&self) -> Result<()> {
        let snapshot = self.group.snapshot();
        let trees = &snapshot.version().trees;
        let is_orphan =
            |kept: &str| split_scoped(kept).is_some_and(|(data, _)| !trees.contains_key(&data));
        let kept = self.group.log_consumers()?;
        if kept.iter().any(|(kept, _, _)| is_orphan(kept)) {
            // A power cut could still undo a drop that this opening found, if its sync failed.
            self.group.sync()?;
            self.group.release_logs(&mut |kept| is_orphan(kept))?;
        }
        Ok(())
    }
}

impl Handle {
    /// The consumer `name` and its position, if it has one. The position may be that of a consumer
    /// of the whole store, which an earlier version registered.
    fn take_consumer(&self, name: &str) -> Result<(LogConsumer, Option<Position>)> {
        check_name(name)?;
        let group = &self.store.group;
        group.refresh()?;
        let log = group.consume_log(&scoped(self.state.data, name));
        let log = log.map_err(|error| in_use(error, name, &self.name()))?;
        let known = match log.place()? {
            Some((position, _)) => Some(position),
            None => {
                let mut all = group.log_consumers()?.into_iter();
                let of_store = all.find(|(other, ..)| other == name);
                of_store.map(|(_, position, _)| position)
            }
        };
        Ok((log, known))
    }

    /// Makes the store keep up to `bytes` bytes of log after the position `at` for the consumer
    /// `name`.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`] if the dataset was dropped; also any write error.
    fn keep(&self, log: &LogConsumer, name: &str, at: Position, bytes: u64) -> Result<()> {
        let check_exists = || {
            if self.now().is_dropped() {
                Err(Error::unknown_dataset(self.name()))
            } else {
                Ok(())
            }
        };
        let group = &self.store.group;
        if group.is_reader() {
            group.refresh()?;
            check_exists()?;
            log.keep(Some(name), at, bytes)?;
            // If the writer dropped the dataset in between, it may have released the dataset's
            // consumers before this one was registered.
            group.refresh()?;
            return check_exists().inspect_err(|_| {
                let own = scoped(self.state.data, name);
                let _ = group.release_logs(&mut |kept| kept == own);
            });
        }
        // A drop holds this reservation, too, until it has released the dataset's consumers.
        let mut dataset = self.name();
        let _reserved = loop {
            let reserved = self.store.names.reserve(&dataset);
            let now = self.name();
            if now == dataset {
                break reserved;
            }
            // The dataset was renamed before the reservation.
            drop(reserved);
            dataset = now;
        };
        check_exists()?;
        self.store.release_orphans()?;
        Ok(log.keep(Some(name), at, bytes)?)
    }

    /// See [`crate::Dataset::keep_changes_for`].
    pub(crate) fn keep_changes_for(&self, name: &str, at: Position, bytes: u64) -> Result<()> {
        let (log, _) = self.take_consumer(name)?;
        self.keep(&log, name, at, bytes)
    }

    /// See [`crate::Dataset::release_changes`].
    pub(crate) fn release_changes(&self, name: &str) -> Result<bool> {
        let group = &self.store.group;
        let released = group.release_log(&scoped(self.state.data, name));
        if released.map_err(|error| in_use(error, name, &self.name()))? {
            return Ok(true);
        }
        // A consumer of an earlier version, with any name that this version accepted.
        if split_scoped(name).is_some() {
            return Ok(false);
        }
        let released = group.release_log(name);
        released.map_err(|error| in_use(error, name, &self.name()))
    }

    /// See [`crate::Dataset::change_consumer`].
    pub(crate) fn change_consumer(&self, name: &str) -> Result<Option<ChangeConsumer>> {
        let own = Some(self.name());
        let mut consumers = self.store.consumers()?;
        consumers.retain(|consumer| {
            consumer.name == name && (consumer.dataset == own || consumer.dataset.is_none())
        });
        // That of the dataset before one of the whole store.
        consumers.sort_by_key(|consumer| consumer.dataset.is_none());
        Ok(consumers.into_iter().next())
    }
}
