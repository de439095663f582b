//! Batches that were read from the log: those that wait until they are known to be acknowledged,
//! and their application.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::batch::{TreeId, decode};
use crate::entry::Seq;
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::version::{Recovered, TableSource, log_path};
use crate::wal::Record;

/// The location of a record: its segment, and the offset in that. The log is in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogPlace {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

impl LogPlace {
    fn damage(self, source: &TableSource, what: impl Into<String>) -> Error {
        Error::corruption(&log_path(&source.dir, self.segment), self.offset, what)
    }
}

/// Batches that are in the log and may not be acknowledged yet.
#[derive(Default)]
pub(super) struct PendingBatches(VecDeque<PendingBatch>);

struct PendingBatch {
    generation: Arc<Generation>,
    at: LogPlace,
    last: Seq,
    /// Its writer waits for a sync.
    demanded: bool,
    payload: Vec<u8>,
}

impl PendingBatches {
    /// True when a waiting batch belongs to this generation.
    pub(super) fn has(&self, generation: &Arc<Generation>) -> bool {
        let mut waiting = self.0.iter();
        waiting.any(|waits| Arc::ptr_eq(&waits.generation, generation))
    }

    /// The segment of the first one.
    pub(super) fn first_segment(&self) -> Option<u64> {
        self.0.front().map(|waits| waits.at.segment)
    }

    /// Adds the record at `at`, whose writes go to `generation`, and passes the
    /// batches to `apply` that are known to be acknowledged with it. Writes up to `durable` are
    /// durable. Returns the record's last write.
    pub(super) fn take(
        &mut self,
        source: &TableSource,
        at: LogPlace,
        record: Record<'_>,
        durable: Seq,
        generation: &Arc<Generation>,
        apply: &mut Apply<'_>,
    ) -> Result<Option<Seq>> {
        match record {
            Record::Data { payload, demanded } => {
                let last =
                    decode(payload, |_| ()).ok_or_else(|| at.damage(source, "malformed batch"))?;
                let demanded = demanded && last > durable;
                if demanded || !self.0.is_empty() {
                    self.0.push_back(PendingBatch {
                        generation: generation.clone(),
                        at,
                        last,
                        demanded,
                        payload: payload.to_vec(),
                    })
                } else {
                    apply(generation, payload, at)?;
                }
                Ok(Some(last))
            }
            Record::Mark { durable } => {
                let end = LogPlace {
                    offset: durable,
                    ..at
                };
                let covers = |waits: &PendingBatch| waits.at < end;
                self.release(covers, apply)?;
                Ok(None)
            }
            Record::Next { .. } | Record::Time { .. } => Ok(None),
        }
    }

    /// Passes the batches at the front to `apply` whose last write is not behind `durable`, and
    /// those between that only wait for others.
    pub(super) fn release_upto(&mut self, durable: Seq, apply: &mut Apply<'_>) -> Result<()> {
        self.release(|waits| waits.last <= durable, apply)
    }

    /// Passes the batches at the front to `apply` that `is_durable` confirms, and those between
    /// that only wait for others.
    fn release(
        &mut self,
        is_durable: impl Fn(&PendingBatch) -> bool,
        apply: &mut Apply<'_>,
    ) -> Result<()> {
        while let Some(first) = self.0.front()
            && (!first.demanded || is_durable(first))
        {
            apply(&first.generation, &first.payload, first.at)?;
            self.0.pop_front();
        }
        Ok(())
    }

    /// Discards the batches of a segment that is not part of the log.
    pub(super) fn forget(&mut self, segment: u64) {
        self.0.retain(|waits| waits.at.segment != segment);
    }
}

/// Applies a batch to its generation, given its location in the log; returns its last sequence
/// number.
pub(super) type Apply<'a> = dyn FnMut(&Arc<Generation>, &[u8], LogPlace) -> Result<Seq> + 'a;

/// Applies a batch of the log, given its location. Returns its last sequence
/// number.
pub(super) fn apply_batch(
    source: &TableSource,
    recovered: &Recovered,
    generation: &Generation,
    payload: &[u8],
    at: LogPlace,
) -> Result<Seq> {
    let damage = |what: String| Err(at.damage(source, what));
    let mut unknown: Option<TreeId> = None;
    let last = decode(payload, |operation| {
        let inserted = generation.insert(&recovered.version, &operation);
        if !inserted && operation.tree >= recovered.next_tree {
            unknown = Some(operation.tree);
        }
    });
    match (last, unknown) {
        (None, _) => damage("malformed batch".to_string()),
        (_, Some(tree)) => damage(format!("tree {tree} is unknown")),
        (Some(last), None) => {
            generation.applied(payload.len(), last);
            Ok(last)
        }
    }
}
