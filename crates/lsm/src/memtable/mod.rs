//! The memtable: the newest entries of a tree, in memory, ordered by [`crate::entry::compare`].
//!
//! An arena-backed skip list. Writers take turns; readers never wait, and never see half an entry.
//! For trees with an extractor the memtable also keeps an ordered map per attribute (LevelDB++
//! section 3: the in-memory B-tree on the attribute that replaces the tables' embedded filters), as
//! further skip lists in the same arena. Writers only pay a pointer per entry for these maps: the
//! first reader of a map brings it up to date.

#[allow(unsafe_code)]
mod arena;
mod filter;
#[allow(clippy::module_inception, reason = "it is what the module is about")]
mod memtable;
#[allow(unsafe_code)]
mod node;
#[allow(unsafe_code)]
mod skiplist;
#[cfg(test)]
mod tests;

pub use memtable::{MemEntry, Memtable};
pub use skiplist::MemCursor;
