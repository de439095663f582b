//! Validation (Luo & Carey section 4): a write writes, and no more; a query probes the primary-key index for a newer write of a
//! candidate's key, or fetches the record and looks. Repairs bring the obsolete set up to date.

use super::Strategy;
use crate::telemetry::Measured;

pub(super) struct Validation;

impl Strategy for Validation {
    fn wasted(&self, measured: &Measured, update_ratio: f64) -> f64 {
        match measured.fetched {
            0 => update_ratio / 4.0,
            fetched => measured.wasted as f64 / fetched as f64,
        }
    }
}
