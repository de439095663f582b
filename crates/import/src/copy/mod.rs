//! Copies of datasets between stores of any kind.
//!
//! | subject | module |
//! | --- | --- |
//! | a copy from its definition to its comparison | `run` |
//! | the definition at the target | `agree` |
//! | unique indexes, which are built behind the versions | `deferred` |
//! | readers by part, writers, progress | `transfer`, `tracker` |
//! | counts and checksums by range of keys | `sums` |
//! | the keys that differ, and their mending | `differences`, `sorted` |
//! | records with their versions | `items` |
//! | what is stored at the target | `stored` |
//!
//! The target stores how far a copy is as a note of the dataset, so a copy that was killed and is
//! run again continues there. Records are read by the parts that the source offers, in its own
//! order; several writers put them. At the end both sides are read and compared: the number of
//! records and the sum of their hashes in each of some hundred ranges of keys. The sum does not
//! depend on the order, so a store that has no order of keys is read once, too.

mod agree;
mod deferred;
mod differences;
mod items;
mod observer;
mod run;
mod sorted;
mod stored;
mod sums;
mod tracker;
mod transfer;
#[cfg(test)]
mod unordered;

pub use differences::{Differing, Unequal};
pub use observer::{CopyObserver, CopyStep};
pub use run::{Copied, CopyEnd, StoreCopy};

#[cfg(test)]
mod tests;
