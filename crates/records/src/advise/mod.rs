//! The advisor: which index type fits each attribute, from measurements and usage counts.
//!
//! LevelDB++ ends in a decision diagram: embedded if the attribute grows with time, if space is
//! short, or if more than half of the operations are writes and less than a twentieth lookups;
//! otherwise lazy for a small K, composite without one. The advisor measures the same figures
//! (`sample.rs`: selectivity of zone maps, number of values; `usage.rs`: query statistics), and
//! replaces the thresholds by a cost model (`index/cost.rs`).

mod advisor;
mod sample;

pub use crate::index::cost::Workload;
pub use advisor::{Advice, AdvisedChange, AttributeAdvice, KindCost, Mix, MixSource};
