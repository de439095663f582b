//! Writes: index entries first, then the record, under one timestamp.

use std::sync::Arc;

use esker_coding::Seq;
use esker_model::Key;
use esker_model::record::RecordRef;

use crate::bound::{Bound, NewRecord};
use crate::catalog::Edition;
use crate::cells::Write;
use crate::error::{Error, Result};
use crate::rows::Entry;
use crate::shared::Shared;
use crate::split;
use crate::time::DEADLINE;
use crate::writer::Lease;

/// The records that are written under one deadline.
const GROUP: usize = 512;

/// A record that is put, or deleted.
pub(crate) struct Change {
    pub(crate) key: Vec<u8>,
    /// The stored form; `None` for a deletion.
    pub(crate) record: Option<Vec<u8>>,
    /// Places in [`Bound::indexes`] of `of`, and tokens.
    pub(crate) tokens: Vec<(usize, Vec<u8>)>,
    /// What the tokens were made by.
    pub(crate) of: Arc<Bound>,
}

impl Change {
    pub(crate) fn put(record: NewRecord, of: &Arc<Bound>) -> Change {
        Change {
            key: record.key,
            record: Some(record.stored),
            tokens: record.tokens,
            of: of.clone(),
        }
    }

    pub(crate) fn delete(key: &Key, of: &Arc<Bound>) -> Change {
        Change {
            key: key.as_bytes().to_vec(),
            record: None,
            tokens: Vec::new(),
            of: of.clone(),
        }
    }

    /// The same change by another definition.
    ///
    /// # Errors
    /// As [`Change::bind`].
    pub(crate) fn bound_to(&self, bound: &Arc<Bound>) -> Result<Change> {
        let mut change = Change {
            key: self.key.clone(),
            record: self.record.clone(),
            tokens: self.tokens.clone(),
            of: self.of.clone(),
        };
        change.bind(bound)?;
        Ok(change)
    }

    /// Makes the tokens again for a later definition.
    ///
    /// # Errors
    /// [`Error::Busy`] where that is another dataset: what is stored fits the former one.
    fn bind(&mut self, bound: &Arc<Bound>) -> Result<()> {
        if Arc::ptr_eq(bound, &self.of) {
            return Ok(());
        }
        if bound.state.id != self.of.state.id {
            let name = &bound.name;
            return Err(Error::Busy(format!(
                "`{name}` was dropped and made again since the batch began"
            )));
        }
        let record = self.record.as_deref().and_then(RecordRef::parse);
        self.tokens = record.map_or_else(Vec::new, |record| bound.tokens(&record));
        self.of = bound.clone();
        Ok(())
    }

    /// The puts of the index entries.
    pub(crate) fn entries(&self, at: Seq) -> impl Iterator<Item = Write> {
        let is_written = move |place: &usize| {
            let index = self.of.indexes.get(*place);
            index.is_some_and(|index| index.since <= at)
        };
        let tokens = self
            .tokens
            .iter()
            .filter(move |(place, _)| is_written(place));
        tokens.filter_map(move |(place, token)| {
            let key = &self.key;
            self.of.entry(*place, Entry { token, at, key }, true)
        })
    }

    pub(crate) fn version(&self, at: Seq) -> Write {
        self.of.version(&self.key, at, self.record.as_deref())
    }
}

/// An operation of a writer: it is acknowledged only before its deadline, and while the lease and
/// the catalog that it began with are valid.
pub(crate) struct Operation<'s> {
    shared: &'s Shared,
    pub(crate) lease: Arc<Lease>,
    edition: Edition,
    /// By the steady clock, and by the wall clock.
    begun: u64,
    begun_wall: u64,
}

impl<'s> Operation<'s> {
    pub(crate) fn begin(shared: &'s Shared, bound: &Bound) -> Result<Operation<'s>> {
        shared.check_writes()?;
        let lease = shared.writers.lease(bound.edition.keyspace)?;
        let clocks = shared.clocks();
        Ok(Operation {
            shared,
            lease,
            edition: bound.edition,
            begun: clocks.steady(),
            begun_wall: clocks.wall(),
        })
    }

    /// A new timestamp, later than `after`, by a clock that is compared with the cluster's.
    pub(crate) fn stamp(&self, after: Seq) -> Result<Seq> {
        self.lease.stamps.next(self.shared.checked_wall()?, after)
    }

    /// Fails if the operation must not be acknowledged, or go on.
    pub(crate) fn check(&self) -> Result<()> {
        let shared = self.shared;
        let clocks = shared.clocks();
        let elapsed = clocks.steady().saturating_sub(self.begun);
        // Not every system's steady clock counts the time that the machine was suspended.
        let elapsed = elapsed.max(clocks.wall().saturating_sub(self.begun_wall));
        let is_in_time = elapsed < DEADLINE;
        if is_in_time
            && shared.writers.is_valid(&self.lease)
            && shared.catalogs.is_recent(self.edition)
        {
            return Ok(());
        }
        Err(Error::Unavailable(format!(
            "a write took {elapsed} ms: it is not known whether it has happened; write again"
        )))
    }

    /// Writes all, or fails with the first error.
    pub(crate) fn write(&self, writes: Vec<Write>) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        self.shared.cells.write(writes).into_iter().collect()
    }

    /// Writes versions whose entries are written, or fails with the first error.
    pub(crate) fn write_versions(&self, versions: Vec<(Write, Vec<Write>)>) -> Result<()> {
        let written = self.shared.cells.write_versions(versions);
        written.into_iter().collect()
    }
}

/// Writes changes, each by itself: an error leaves some of them written.
pub(crate) fn write(shared: &Arc<Shared>, name: &str, changes: &mut [Change]) -> Result<()> {
    for group in changes.chunks_mut(GROUP) {
        let mut tried = write_group(shared, name, group);
        if let Err(Error::Busy(_)) = tried {
            // An index was dropped since the catalog was read.
            shared.bound_now(name)?;
            tried = write_group(shared, name, group);
        }
        tried?;
    }
    Ok(())
}

fn write_group(shared: &Arc<Shared>, name: &str, group: &mut [Change]) -> Result<()> {
    let bound = shared.bound(name)?;
    let operation = Operation::begin(shared, &bound)?;
    let (mut entries, mut versions) = (Vec::new(), Vec::new());
    let is_noted = shared.cells.has_compaction_hook(&bound.data);
    for change in group.iter_mut() {
        change.bind(&bound)?;
        let at = operation.stamp(0)?;
        let own = entries.len();
        entries.extend(change.entries(at));
        let noted = entries.get(own..).filter(|_| is_noted);
        versions.push((change.version(at), noted.unwrap_or_default().to_vec()));
    }
    let written: Vec<(Arc<str>, Vec<u8>)> = entries
        .iter()
        .map(|write| (write.table.clone(), write.row.clone()))
        .collect();
    operation.write(entries)?;
    operation.check()?;
    operation.write_versions(versions)?;
    operation.check()?;
    split::count(shared, &bound, &written);
    Ok(())
}
