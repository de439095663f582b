//! The index types. A type defines how index entries (value, key, sequence number) are stored and
//! found. Whether an entry is current is decided by the query pipeline, in the same way for all
//! types. Index types know the engine and the model; nothing of datasets or queries.
//!
//! Other crates add types by implementing [`IndexType`] (`crate::extension::index`).

mod best;
mod build;
pub(crate) mod cost;
mod each;
mod estimate;
pub(crate) mod every;
mod in_order;
mod kind;
mod kinds;
mod lookup;
mod passing;
mod posting_merge;
mod purge;
mod queue;
mod ranked;
mod seen;
pub(crate) mod staging;
mod types;
mod walk;
mod walk_end;

pub use best::Best;
pub(crate) use best::{Among, Candidate, Origin, Window};
pub use build::Build;
pub use cost::{Access, AttributeProfile, Figures};
pub(crate) use each::each_entry;
pub use esker_model::query::Recency;
pub use esker_model::range::Range;
pub(crate) use in_order::{Bounds, InOrder};
pub use kind::Tells;
pub use kind::{
    Attribute, Completion, Deferred, Entry, IndexEntry, IndexType, TreeRange, VisitPosting, Writes,
};
pub(crate) use kind::{VisitEntry, WritesSavepoint};
pub(crate) use kinds::{
    Take, box_of, each_match, each_placed, each_point, is_filtered_scan, of as built_in,
    stands_for_record,
};
pub use lookup::Lookup;
pub(crate) use lookup::{FilterRule, Looks};
pub use types::IndexTypes;
pub use walk::TreeEntry;
pub(crate) use walk_end::{VisitEntryOr, VisitError, WalkEnd};
