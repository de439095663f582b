//! The ticket of an appended batch.

use std::time::Instant;

use crate::entry::Seq;

/// An appended batch that is not acknowledged yet.
#[derive(Clone, Copy)]
pub struct Ticket {
    pub(super) first: Seq,
    pub(super) last: Seq,
    /// The last write that must be durable before the batch is acknowledged.
    pub(super) durable: Seq,
    /// The batch itself requested a sync.
    pub(super) forces: bool,
    /// When it is to be durable.
    pub(super) due: Option<Instant>,
}

impl Ticket {
    /// The first sequence number of the batch. For a batch without writes, the last before it.
    pub fn first(&self) -> Seq {
        self.first
    }

    /// The last sequence number of the batch.
    pub fn last(&self) -> Seq {
        self.last
    }
}
