//! How a snapshot sees entries that expire: as what they stand for at its time.

use std::sync::Arc;

use crate::entry::{Kind, Timed};
use crate::expiry::Horizon;
use crate::merge::MergeOperator;

/// What a timed entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// A put.
    Put,
    /// An operand, of which some elements may have expired.
    Operand,
    /// A put that has expired: the key was deleted.
    Deleted,
    /// An operand that has expired: there is none.
    Nothing,
}

/// The time of a snapshot, and the operator of a tree whose operands have elements with times of their own.
#[derive(Clone, Default)]
pub(crate) struct Lens {
    pub(super) horizon: Horizon,
    pub(super) operator: Option<Arc<dyn MergeOperator>>,
}

impl Lens {
    /// What a stored timed entry stands for.
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

    /// What is left of a stored timed operand, where that is not all of it.
    pub(super) fn prune(&self, key: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
        let (operator, timed) = self.operator.as_ref().zip(Timed::parse(stored))?;
        let left = operator.prune(key, timed.value, self.horizon.now)?;
        // Some of it has expired, who knows when: by now.
        self.horizon.hides(self.horizon.now);
        Some(left)
    }
}
