//! Reading: snapshots, single keys, batches of keys, scans, and the newest-to-oldest walk.

mod batched;
mod component;
pub mod estimate;
mod lens;
mod scattered;
mod shares;
mod snapshot;
mod source;
mod tree_cursor;

pub use batched::{Expected, Lookup, LookupOptions};
pub use component::{Component, Entries, Part, PartCursor, WalkEntry};
pub use scattered::Scattered;
pub use snapshot::{Found, Snapshot};
pub(crate) use source::SourceCursor;
pub use tree_cursor::{EntryCursor, TreeCursor};
