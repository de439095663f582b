//! Validation (Luo & Carey section 4): a write adds its entries and nothing else. A query probes
//! the primary-key index for a newer write of a candidate's key, or fetches the record. Repairs
//! bring the obsolete set up to date.

use super::strategy::Strategy;
use crate::telemetry::Measured;

/// The validation strategy.
pub(super) struct Validation;

impl Strategy for Validation {
    fn wasted(&self, measured: &Measured, update_ratio: f64) -> f64 {
        match measured.fetched {
            0 => update_ratio / 4.0,
            fetched => measured.wasted as f64 / fetched as f64,
        }
    }
}
