//! The query path. A query in execution is a [`run::Run`]. [`esker_model::query`] compiles its
//! conditions and its plan.
//!
//! One index gives the candidates, or several indexes whose entries rule each other out
//! (`combine.rs`). The same stages follow for all kinds of index and all executors (`stages.rs`):
//! they drop obsolete candidates, fetch the records, and confirm the other conditions. Without a
//! useful index, scans take the place of the first stages (`scan.rs`, `scan_matching.rs`).
//!
//! The executors:
//! - pages in order of recency (`answer.rs`), answers in bulk (`bulk.rs`), counts (`count.rs`) and
//!   versions (`versions.rs`);
//! - answers in an order of fields or keys (`sorted.rs`) and aggregates (`aggregate.rs`), which
//!   take their records from an answer in bulk, unless an index alone gives the result
//!   (`sorted_from_index.rs`, `aggregate_from_index.rs`).
//!
//! Offsets and projections apply to the rows of any executor (`rows.rs`).

mod aggregate;
mod aggregate_from_index;
mod answer;
mod bulk;
mod bulk_from_index;
mod combine;
mod count;
mod current_entries;
mod estimates;
mod execute;
mod explain;
mod fetch;
mod group_records;
mod input;
mod key_cursor;
mod parallel;
#[cfg(test)]
mod plan_tests;
mod row_sorter;
mod rows;
mod run;
mod scan;
mod scan_heads;
mod scan_matching;
mod seq_filter;
mod sorted;
mod sorted_from_index;
mod space;
mod stages;
#[cfg(test)]
mod stages_tests;
mod statistics;
#[cfg(test)]
mod statistics_tests;
mod table_boxes;
mod value_counts;
mod value_groups;
mod version_search;
mod versions;

pub use esker_model::query::{CellCount, Latest, Neighbour, Order, PageToken, Request, ValueToken};
pub use explain::{
    Alternative, Compared, Explain, ExplainedCombination, ExplainedCost, ExplainedIndex,
    ExplainedPlan, Note, Outcome, ReadCost, Steps,
};
pub use input::Combining;
pub(crate) use input::ViewQuery;
pub(crate) use rows::Rows;
pub(crate) use scan::{Scan, count_all, count_unindexed};
pub use table_boxes::TableBox;
pub(crate) use versions::PageRequest;
pub use versions::ValuePage;
