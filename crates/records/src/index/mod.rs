//! The index types. A type defines how index entries (value, key, sequence number) are stored and
//! found. The query pipeline decides whether an entry is current, in the same way for all types.
//! Index types depend on the engine and the model, not on datasets or queries.
//!
//! Other crates add types by implementing [`IndexType`] (`crate::extension::index`).

pub(crate) mod all_entries;
mod best_candidates;
mod bounded_set;
mod build;
pub(crate) mod cost;
mod each;
mod estimate;
mod in_order;
mod kind;
mod kinds;
mod lookup;
#[cfg(test)]
mod malformed_tests;
mod posting_filter;
mod posting_merge;
mod queue;
mod ranked;
pub(crate) mod staging;
mod summary_estimate;
mod types;
mod walk;
mod walk_end;

pub use best_candidates::BestCandidates;
pub(crate) use best_candidates::{Candidate, Origin, SoughtWrites, Window};
pub use build::Build;
pub use cost::{Access, AttributeProfile, Figures};
pub(crate) use each::each_entry;
pub use esker_model::query::Recency;
pub use esker_model::range::Range;
pub(crate) use in_order::{InOrder, KeyBounds};
pub use kind::EntryWrites;
pub use kind::{
    Attribute, Completion, DeferredChange, Entry, IndexEntry, IndexType, TreeRange, VisitPosting,
    Writes,
};
pub(crate) use kind::{VisitEntry, WritesSavepoint};
pub(crate) use kinds::{
    MatchVisitor, box_of, built_in, each_match, each_point, each_record_in_area, is_filtered_scan,
    stands_for_record,
};
pub use lookup::Lookup;
pub(crate) use lookup::{FilterRule, Looks};
pub use types::IndexTypes;
pub use walk::TreeEntry;
pub(crate) use walk_end::{VisitEntryOr, VisitError, WalkEnd};
