//! The bodies of records. A stored record consists of a *head* (its attributes and expiry time) and
//! a *body* (its JSON). In most datasets the data tree has both. In a dataset stored by location it
//! has the heads, and the tree of the clustered attribute has the whole records, under point and
//! key (`index/kinds/spatial/clustered.rs`). Head and record belong to one write and share its
//! number. A record without a point is whole in the data tree, as in other datasets.
//!
//! Other modules do not distinguish the two: this module reads the bodies that records lack, one by
//! one (`one.rs`), or many in location order (`many.rs`, `read_ahead.rs`, `location_scan.rs`), so
//! that neighbours come from the same blocks. A head suffices for the record's existence, write
//! number and expiry, and for the attributes declared at the dataset's creation.
//!
//! A record with one point and several times is stored whole under each of them. A walk of the
//! location tree counts it once (`index::stands_for_record`); a head leads to the first copy.
//!
//! **Invariant.** If a head is the newest entry of its key in a snapshot, the same snapshot has its
//! record under its number; otherwise the store is damaged. The record of an older head may have
//! been dropped.

mod changes;
mod heads;
mod location_key;
mod location_scan;
mod many;
mod one;
mod read_ahead;
mod write;

pub(crate) use changes::refuse_change;
pub(crate) use heads::{are_separate, each_required_head};
pub(crate) use location_scan::scan_by_location;
pub(crate) use many::Bodies;
pub(crate) use one::{with_body, with_body_in_memory};
pub(crate) use read_ahead::{ReadAhead, StoredRecord};
pub(crate) use write::{CommitBodies, each_write, put};
