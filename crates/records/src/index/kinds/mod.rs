//! The built-in index types, one file each.

mod all;
mod composite;
mod eager;
mod embedded;
mod filter;
mod fingerprint;
mod lazy;
mod recent;
mod spatial;

pub(crate) use all::{built_in, is_filtered_scan};
pub(crate) use filter::{MatchVisitor, each_match};
pub(crate) use spatial::{box_of, each_point, each_record_in_area, stands_for_record};
