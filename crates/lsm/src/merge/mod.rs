//! Merging: the k-way merge of sorted entries, and the rules by which merged entries are combined,
//! dropped and rewritten.

mod cursor;
mod decide;
mod hooks;
mod operator;
mod stream;

pub use crate::obsolete::ObsoleteWrites;
pub(crate) use cursor::MergeCursor;
pub use hooks::{CompactionFilter, CompactionFilterFactory, Decision, FilteredEntry, Filters};
pub use operator::MergeOperator;
pub(crate) use stream::{MergeStream, Rules};

#[cfg(test)]
mod tests;
