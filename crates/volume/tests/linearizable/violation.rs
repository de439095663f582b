//! Why a history is not linearizable.

use super::Operation;

/// Why a history is not linearizable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A read returned what no operation writes.
    Unwritten,
    /// A read returned a value and ended before its write began.
    Future,
    /// Two values were each there, ended to be, and were there again: a stale read, a lost write, or
    /// two reads in opposite orders.
    Interleaved,
    /// An operation had to happen while, all the time, the block certainly had another value.
    Within,
    /// A read returned zeros after a write, and no discard can have come between.
    NoDiscard,
}

/// A block's operations that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// How.
    pub(crate) reason: Reason,
    /// Which, with their places in the history, by invocation.
    pub(crate) operations: Vec<(usize, Operation)>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.reason {
            Reason::Unwritten => "a read returned what was never written",
            Reason::Future => "a read returned what was written after its end",
            Reason::Interleaved => "two values were there in turn",
            Reason::Within => "an operation had to happen while another value was there",
            Reason::NoDiscard => "a read returned zeros without a discard after the write",
        };
        let block = self.operations.first().map_or(0, |(_, first)| first.block);
        write!(f, "block {block}: {what}")?;
        for (at, operation) in &self.operations {
            let Operation {
                action, invoked, ..
            } = operation;
            write!(f, "\n  #{at} {action:?} from {invoked} ")?;
            match operation.responded {
                Some(responded) => write!(f, "to {responded}")?,
                None => write!(f, "without a response")?,
            }
        }
        Ok(())
    }
}
