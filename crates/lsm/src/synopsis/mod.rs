//! Synopses: summaries of the entries of a block, a partition or a table.
//!
//! Per attribute a *zone map* (least and greatest value) and a *value filter* (a small Bloom filter
//! over the distinct values), as in LevelDB++ section 3, or instead of the filters of all blocks
//! one *fingerprint map* of the table (`fingerprints.rs`); a sample of the values (`sample.rs`),
//! for estimates; and the bounds of the sequence numbers, with which a top-K search skips data that
//! holds nothing newer than its K-th result (our replacement of the paper's "levels are ordered by
//! time").
//!
//! All but samples have one-sided errors: a synopsis may answer "maybe" for an absent value, never
//! "no" for a present one.

mod bits;
mod block;
mod fingerprints;
mod range;
mod sample;
#[cfg(test)]
mod tests;
mod zone;

pub(crate) use block::{BITS_PER_VALUE, BlockSynopsis, Synopsis, SynopsisBuilder};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fingerprints::MapBuilder;
pub(crate) use fingerprints::{MapPage, map_hash};
pub use range::{Corners, ValueRange};
pub(crate) use sample::{SampleBuilder, count as count_sample};
pub use sample::{SampleShare, Sampled};
pub(crate) use zone::{ANYTHING, ZoneRef, put_zone, read_zone, zone_owned, zone_ref};
pub use zone::{MAX_BOUND_LEN, Zone};
