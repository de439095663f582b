//! Indexes of points, with or without a time: one file per spatial layout. All of them find the
//! points of a region; they differ in storage order.
//!
//! A point is an ordinary attribute value (`model/schema/point.rs`). Its encoding begins with its
//! cell in z-order, followed by the exact coordinates. So index entries, tombstones, builds and
//! repairs treat points like all other values.
//!
//! **Areas.** A condition `within` on a declared attribute becomes a range with a region
//! (`model/region.rs`): at most 24 ranges of cells that cover the area (at most four that cover
//! more), and the exact test of a value, which `Range::contains` applies. That test makes answers
//! exact; an index may only drop entries that are certainly outside of the area. On an undeclared
//! attribute the point is read from the JSON, in degrees.
//!
//! **Layouts.** `z` is a composite index; an area is one walk over its ranges, which reads each
//! block once (`index/walk.rs`): few ranges if metadata shows few entries in them, otherwise more.
//! `mbr` and `stacked` have the same keys and a partitioner (`partition.rs`), so the boxes of the
//! tables of a run do not overlap, and tables whose box is outside an area are skipped. The two
//! differ only in their compaction policy; in levels, tables take turns by the z-value of their
//! box's centre. `embedded` is the embedded index with boxes as zone maps. `clustered` is `z` with
//! the full records in its entries.
//!
//! **Place and time.** A point at a time is a value of an attribute whose path names both fields
//! (`model/schema/point_time.rs`). Its encoding begins with a period of time and a cell of three
//! dimensions; its region has a time window beside the area. Conditions still name the two fields:
//! `query/place_time.rs` finds an area and a bound on the time among the tests that every match
//! must meet, and combines them into one more predicate. That predicate can drive the query, and
//! answers both conditions if the time's type is exact. The partitioner has as many dimensions as
//! the value has coordinates.
//!
//! **Datasets stored by location** (`bodies/`). The records are in the tree of the clustered
//! attribute, under point and key, and their heads (without JSON) in `d/data`. Both are operations
//! of one write and share its number, so the tree is an index like the others for cancellation, the
//! obsolete set, repairs, named snapshots and backups. The clustered attribute has the greatest ID
//! of those declared at creation (`StoredDef::in_all_records`): each head has these attributes.
//! Candidates of the clustered index bring their records along.
//!
//! **The nearest** (`query/space.rs`) are searched in growing circles. The first circle has a few
//! times as many entries as requested, by the density of the smallest cell around the point that
//! has enough. Distances are in the keys, so candidates go through the pipeline in the order of
//! distance, and only possible answers are fetched. Without an index every record is read once.

mod clustered;
mod each;
mod embedded;
mod layouts;
mod packed;
mod partition;
mod point_type;
mod ranges;
mod z;

pub(crate) use each::{each_point, each_record_in_area, stands_for_record};
pub(crate) use layouts::of_layout;
pub(crate) use point_type::PointType;
pub(crate) use ranges::box_of;
