//! Merging: the k-way merge of sorted entries, and the rules by which merged entries are combined,
//! dropped, rewritten and observed.

mod cursor;
mod hooks;
mod operator;
mod stream;

pub use crate::obsolete::Over;
pub(crate) use cursor::MergeCursor;
pub use hooks::{Dropped, Judge, Judged, MergeFilter, MergeObserver, Verdict};
pub use operator::MergeOperator;
pub(crate) use stream::{MergeStream, Rules};

#[cfg(test)]
mod tests;
