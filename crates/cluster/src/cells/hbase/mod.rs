//! Apache HBase 2.6, through its Thrift gateway.
//!
//! # The protocol
//!
//! Programs that are not written in Java reach HBase through a gateway that runs beside its
//! servers. It is asked by its second interface (`THBaseService`, of
//! `org.apache.hadoop.hbase.thrift2.ThriftServer`). The first one can neither delete a single
//! version nor define what a table keeps, and has no filters in binary form. A dozen calls are
//! used, so their messages are written by hand on Thrift's binary protocol (`wire`, `messages`):
//! the generated code of the whole interface has 30,000 lines, and its reader trusts the lengths
//! that it reads.
//!
//! # Rows
//!
//! A partition is a row of HBase, and a row of a partition is a column (qualifier) of the family
//! `d`. So the versions of a key are in one region, whatever is split, a read of them is of one
//! moment, and many reads of different partitions are one request, which the gateway divides by
//! server. Entries of an index could be rows of their own; then each page of each bucket would be a
//! scanner, and HBase has no request with several of those. Buckets are split by this crate, so
//! that no row grows without bound.
//!
//! The name of an HBase row begins with a byte of the partition's hash: keys and times that ascend
//! are spread over all regions, and the parts of [`Cells::scan`](super::Cells::scan) are ranges of
//! rows.
//!
//! # Timestamps, versions, deletions
//!
//! A write has our timestamp as the cell's. Each version is a column, so HBase's own versions are
//! not used, and nothing that counts is dropped by their number. A deletion is a marker of all of
//! the column up to its timestamp. Those of records are kept by
//! `hbase.hstore.time.to.purge.deletes`, so that a put that arrives late stays dead: our timestamps
//! are ahead of the servers' milliseconds, so HBase never drops them by itself. The coprocessor of
//! this crate (`java/`) drops them once no put can arrive any more.
//!
//! Rows that are changed by compare-and-set are never deleted, but set to a value that stands for
//! none: HBase would hide a put of the same millisecond behind the marker.

mod connection;
mod errors;
mod filters;
mod gateway;
mod messages;
mod names;
mod notes;
mod reads;
mod requests;
mod swaps;
mod tables;
mod values;
mod wire;
mod writes;

pub use gateway::{Coprocessor, HBase, HBaseSettings};
