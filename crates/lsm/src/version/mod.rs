//! Versions: the immutable state of all trees of a group. Readers pin one, writers install the
//! next.
//!
//! A tree is a list of *runs*, newest first; a run is a list of tables that do not overlap: by key,
//! or in the order of the tree's partitioner. Any level may have several runs: level 0 has one per
//! flush (or, in a tiered tree, per compaction); each lower level of a leveled tree is one run. Of
//! one key, entries in an earlier run are newer than those in a later one.

mod apply;
mod bitmap;
mod choice;
mod component;
mod consumers;
mod current;
mod edit;
mod file;
mod kept;
mod known;
mod limits;
mod manifest;
mod names;
mod order;
mod partition;
mod paths;
mod provider;
mod reader;
mod run;
mod run_cursor;
mod superseded;
mod tree;
#[allow(clippy::module_inception, reason = "it is what the module is about")]
mod version;

pub(crate) use self::bitmap::add_table;
pub use self::choice::{Action, Choice};
pub use self::component::ComponentId;
pub(crate) use self::consumers::{ConsumerPlace, ConsumerPlaces};
pub(crate) use self::current::{Current, Seal};
pub(crate) use self::edit::{Edit, NewKept, Pictured, SweptSet, TableAt};
pub use self::file::TableFile;
pub(crate) use self::file::{NewTable, TableSource, table_number, table_path};
pub(crate) use self::limits::{MAX_FILE, MAX_SNAPSHOT_NAME, MAX_TREE};
pub(crate) use self::manifest::{Manifest, Recovered, is_written, manifest_has_trees, recover};
#[cfg(test)]
pub(crate) use self::order::Hold;
pub(crate) use self::order::{ClosedSegment, Order};
pub use self::partition::{Cutter, Cutting, MOST_PARTS, Partitioner};
pub(crate) use self::paths::{Place, log_path, manifest_path, own_number};
pub use self::provider::{PlainTrees, TreeProvider};
pub use self::run::Run;
pub(crate) use self::run::are_disjoint;
pub(crate) use self::run_cursor::RunCursor;
pub use self::superseded::{DropPolicy, SupersededBy};
#[cfg(test)]
pub(crate) use self::tree::Due;
pub use self::tree::{CompactionPolicy, TreeOptions, TreeVersion};
pub(crate) use self::version::Kept;
pub use self::version::Version;

#[cfg(test)]
mod tests;
