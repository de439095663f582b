//! Deletion by condition.
//!
//! One query finds the records as of its start. They are deleted in batches, each on condition that
//! its records are still those that the query found. A record that another writer has replaced
//! meanwhile is read again, and deleted if the new record meets the condition. So a record is
//! deleted only if its key met the condition at the start: records that others add, or that begin
//! to meet the condition later, stay.

use std::ops::ControlFlow;

use esker_lsm::Seq;
use esker_model::condition::Expr;
use esker_model::query::{Compiled, NoEstimates, Order, Request};
use esker_model::{Key, Record};

use super::batch::DatasetWrites;
use super::commit::commit;
use crate::error::{Error, Result};
use crate::query::ViewQuery;
use crate::record;
use crate::store::Handle;

/// The number of records that are deleted per batch.
const BATCH_RECORDS: usize = 1000;

/// The number of times in a row that other writers may replace records of a batch.
const MAX_ATTEMPTS: usize = 100;

/// Receives the number of records deleted so far. A break stops the deletion.
type Progress<'p> = dyn FnMut(u64) -> ControlFlow<()> + 'p;

impl Handle {
    /// See [`crate::Dataset::delete_where`].
    pub(crate) fn delete_where(&self, condition: Expr, progress: &mut Progress<'_>) -> Result<u64> {
        let mut request = Request::of(condition.clone());
        request.order = Order::Any;
        let mut deletion = ConditionalDeletion {
            dataset: self,
            condition,
            progress,
            waiting: Vec::new(),
            deleted: 0,
        };
        let mut is_stopped = false;
        ViewQuery::new(self.snapshot(), request).visit(&mut |record| {
            let flow = deletion.add(&record)?;
            is_stopped = flow.is_break();
            Ok(flow)
        })?;
        if !is_stopped && !deletion.waiting.is_empty() {
            // No record is left, so that nothing can be stopped.
            let _ = deletion.delete_waiting()?;
        }
        Ok(deletion.deleted)
    }
}

/// A deletion by condition in progress.
struct ConditionalDeletion<'a, 'p> {
    dataset: &'a Handle,
    condition: Expr,
    progress: &'a mut Progress<'p>,
    /// The records of the next batch.
    waiting: Vec<MatchedRecord>,
    /// The number of deleted records.
    deleted: u64,
}

/// A record that met the condition.
struct MatchedRecord {
    key: Key,
    /// The write that put it.
    seq: Seq,
}

impl MatchedRecord {
    fn of(record: &Record) -> MatchedRecord {
        MatchedRecord {
            key: record.key().clone(),
            seq: record.seq(),
        }
    }
}

impl ConditionalDeletion<'_, '_> {
    /// Takes a record that the query found. Deletes the waiting records once they fill a batch.
    /// Returns a break if `progress` stops the deletion.
    fn add(&mut self, record: &Record) -> Result<ControlFlow<()>> {
        self.waiting.push(MatchedRecord::of(record));
        if self.waiting.len() < BATCH_RECORDS {
            return Ok(ControlFlow::Continue(()));
        }
        self.delete_waiting()
    }

    /// Deletes the waiting records, except those that other writers delete, or replace by records
    /// that do not meet the condition. Returns what `progress` says.
    ///
    /// # Errors
    /// [`Error::Conflict`] if other writers replace records of the batch in every attempt.
    fn delete_waiting(&mut self) -> Result<ControlFlow<()>> {
        let mut matched = std::mem::take(&mut self.waiting);
        for _ in 0..MAX_ATTEMPTS {
            let overtaken = self.delete_unchanged(matched)?;
            matched = self.still_matching(overtaken)?;
            if matched.is_empty() {
                return Ok((self.progress)(self.deleted));
            }
        }
        Err(Error::overtaken(format!(
            "other writers changed the records to be deleted {MAX_ATTEMPTS} times in a row: try \
             again"
        )))
    }

    /// Deletes those of the records that no other writer has replaced or deleted. Returns the keys
    /// of the others.
    fn delete_unchanged(&mut self, mut matched: Vec<MatchedRecord>) -> Result<Vec<Key>> {
        let mut overtaken = Vec::new();
        let mut batch = DatasetWrites::new(self.dataset.clone());
        while !matched.is_empty() {
            for MatchedRecord { key, seq } in &matched {
                batch.delete(key)?;
                batch.expect(key, Some(*seq));
            }
            let durability = self.dataset.store.durability;
            let Err(error) = commit(std::slice::from_mut(&mut batch), durability) else {
                self.deleted += matched.len() as u64;
                break;
            };
            let Some(conflict) = error.conflict() else {
                return Err(error);
            };
            batch.clear();
            let mut unchanged = Vec::with_capacity(matched.len());
            for record in matched {
                let now = self.dataset.find(record.key.clone(), None)?;
                let is_unchanged = now.map(|now| now.seq()) == Some(record.seq);
                if is_unchanged && record.key != *conflict {
                    unchanged.push(record);
                } else {
                    overtaken.push(record.key);
                }
            }
            matched = unchanged;
        }
        Ok(overtaken)
    }

    /// The records that these keys have now, those that meet the condition.
    fn still_matching(&self, keys: Vec<Key>) -> Result<Vec<MatchedRecord>> {
        let mut matched = Vec::with_capacity(keys.len());
        if keys.is_empty() {
            return Ok(matched);
        }
        let view = self.dataset.now();
        let shape = &view.layout.shape;
        let compiled = Compiled::new(shape, Some(self.condition.clone()), &mut NoEstimates)?;
        for key in keys {
            if let Some(now) = view.get(key)?
                && compiled.confirm(&record::parse(now.stored())?, shape, None)
            {
                matched.push(MatchedRecord::of(&now));
            }
        }
        Ok(matched)
    }
}
