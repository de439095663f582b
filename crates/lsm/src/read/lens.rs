//! The visible form of entries that expire, at the time of a snapshot.
//!
//! Memtables, tables and the log store such an entry as one of its own kind, with its expiry time
//! in front of the value (`Timed` in `entry.rs`). Every read (gets, lookups, cursors, walks)
//! translates it at the snapshot's time: an expired put is a delete, an expired operand is absent.
//! Flushes and compactions apply the same rule (`merge/decide.rs`): an expired put becomes a
//! tombstone, so what it replaced never reappears. A store without such entries reads no clock,
//! writes no time, and pays one comparison of the kind for each entry that is read.

use std::sync::Arc;

use crate::entry::{Kind, Timed};
use crate::error::{Error, Result};
use crate::expiry::Horizon;
use crate::merge::MergeOperator;

/// The visible form of a timed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// A put.
    Put,
    /// An operand, some of whose elements may have expired.
    Operand,
    /// A put that has expired: the key reads as deleted.
    Deleted,
    /// An operand that has expired: it is hidden.
    Nothing,
}

/// The time of a snapshot, and the operator of a tree whose operands have elements with their own
/// expiry times.
#[derive(Clone, Default)]
pub(crate) struct Lens {
    pub(super) horizon: Horizon,
    pub(super) operator: Option<Arc<dyn MergeOperator>>,
    /// The group was closed when the read began.
    pub(super) closed: bool,
}

impl Lens {
    /// Refuses the read if the group was closed before it began.
    #[inline]
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    /// The visible form of a stored timed entry.
    pub(super) fn look(&self, stored: &[u8]) -> Shown {
        match Timed::parse(stored) {
            None => Shown::Deleted,
            Some(timed) => match (timed.kind, self.horizon.hides(timed.expires)) {
                (Kind::Operand, false) => Shown::Operand,
                (Kind::Operand, true) => Shown::Nothing,
                (_, false) => Shown::Put,
                (_, true) => Shown::Deleted,
            },
        }
    }

    /// The rest of a stored timed operand, if some of its elements have expired.
    pub(super) fn prune(&self, key: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
        let (operator, timed) = self.operator.as_ref().zip(Timed::parse(stored))?;
        let left = operator.prune(key, timed.value, self.horizon.now)?;
        // Some elements have expired at an unknown time: by now.
        self.horizon.hides(self.horizon.now);
        Some(left)
    }
}
