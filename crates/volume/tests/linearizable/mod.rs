//! Checks that a history of blocks is linearizable: that each operation can be taken to happen at
//! one moment between its invocation and its response, so that each read returns what was written
//! last. Linearizability is local (Herlihy and Wing), so each block is checked by itself.
//!
//! The check is exact and takes O(n log n): `clusters` for what was written (no value twice),
//! `zeros` for discards, which all write the same value. A test program uses it by
//! `#[path = "../linearizable/mod.rs"] mod linearizable;`.

mod clusters;
mod violation;
mod zeros;

use std::collections::BTreeMap;

pub(crate) use violation::{Reason, Violation};

/// The value of a block that was never written, or was discarded last.
pub(crate) const ZEROS: u64 = 0;

/// What an operation does to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Writes a value that no other write of the block has, and that is not `ZEROS`.
    Write(u64),
    /// Writes `ZEROS`.
    Discard,
    /// Returned this value.
    Read(u64),
}

/// An operation on one block. Operations that certainly have no effect (refused ones) are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    /// The block.
    pub(crate) block: u64,
    /// What it does.
    pub(crate) action: Action,
    /// When it was invoked, by any clock that all operations share.
    pub(crate) invoked: u64,
    /// When its response came, not before the invocation. An operation is before another one if its
    /// response comes at an earlier time than the other's invocation. `None`: the outcome is
    /// unknown; it may happen at any moment after its invocation, or never.
    pub(crate) responded: Option<u64>,
}

/// Checks a history, in any order, of blocks that are zeros at first. Panics where a block has a
/// value twice, a write of `ZEROS`, or a response before its invocation: then the history is wrong.
pub(crate) fn check(history: &[Operation]) -> Result<(), Violation> {
    let mut blocks: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, operation) in history.iter().enumerate() {
        let ordered = operation.responded.is_none_or(|at| at >= operation.invoked);
        assert!(ordered, "{operation:?} ends before it begins");
        blocks.entry(operation.block).or_default().push(at);
    }
    for operations in blocks.values() {
        check_block(history, operations).map_err(|(reason, mut involved)| {
            involved.sort_by_key(|at| (history[*at].invoked, *at));
            involved.dedup();
            let involved = involved.into_iter().map(|at| (at, history[at]));
            Violation {
                reason,
                operations: involved.collect(),
            }
        })?;
    }
    Ok(())
}

/// Why a history is not linearizable, and the operations by their places in it.
type Found = (Reason, Vec<usize>);

fn check_block(history: &[Operation], operations: &[usize]) -> Result<(), Found> {
    let clusters = clusters::clusters(history, operations)?;
    let zones = clusters::zones(&clusters)?;
    zeros::check(history, operations, &clusters, &zones)
}
