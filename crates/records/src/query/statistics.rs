//! Counting of queries for the advisor.

use super::answer::Answer;
use super::plan::Driver;
use super::predicate::Predicate;
use crate::index;
use crate::telemetry::{Measured, QueryStats};
use esker_model::schema::Path;

impl Answer {
    /// What the query was, for background maintenance.
    pub(super) fn measured(&self) -> Measured {
        let Some(at) = self.plan.driver.single() else {
            return Measured::default();
        };
        let driver = self.predicates.declared.get(at);
        let attribute = driver.and_then(|p| self.snapshot.layout.attributes.get(p.attribute));
        let steps = &self.steps;
        if !attribute.is_some_and(|attribute| attribute.kind.is_standalone()) {
            return Measured {
                scanned: match attribute {
                    Some(attribute) if index::is_filtered_scan(attribute.kind) => steps.candidates,
                    _ => 0,
                },
                ..Measured::default()
            };
        }
        let bare = self.keys_only && self.predicates.is_answered_by(&self.plan.driver);
        Measured {
            bare: u64::from(bare),
            fetching: u64::from(!bare),
            entries: if bare { steps.candidates } else { 0 },
            probed: steps.probed,
            fetched: if bare { 0 } else { steps.fetched },
            wasted: steps.wasted,
            ..Measured::default()
        }
    }

    /// Counts the query, when it has ended, for the attribute whose index answered it; where a scan did, for each
    /// that it had a condition on. Of attributes that are not declared a query counts as a lookup.
    pub(super) fn count_use(&self) {
        let usage = &self.snapshot.dataset.current.usage;
        // Enough for sums that do not overflow.
        let limit = self
            .remaining
            .map(|left| (left as u64 + self.steps.answers).min(1 << 32));
        let stats = |point: bool, scan: bool| QueryStats {
            lookups: u64::from(point),
            ranges: u64::from(!point),
            limited: u64::from(limit.is_some()),
            limits: limit.unwrap_or(0),
            range_rows: match (point, limit) {
                (false, None) => self.steps.answers,
                _ => 0,
            },
            scans: u64::from(scan),
        };
        let count = |predicate: &Predicate, scan| {
            if let Some(attribute) = self.snapshot.layout.attributes.get(predicate.attribute) {
                let point = predicate.is_point();
                usage.queried_by(&attribute.path, stats(point, scan));
            }
        };
        match &self.plan.driver {
            Driver::Index(_) | Driver::Union(_) => {
                for at in self.plan.driver.predicates() {
                    if let Some(driver) = self.predicates.declared.get(*at) {
                        count(driver, false);
                    }
                }
            }
            Driver::Scan => {
                for predicate in &self.predicates.declared {
                    count(predicate, true);
                }
                // Of keys, which need no index.
                let keys = &self.predicates.keys;
                let is_key =
                    |path: &Path| !keys.is_all() && *path == self.snapshot.layout.stored.key;
                for path in &self.predicates.undeclared {
                    if !is_key(path) {
                        usage.queried_by(path, stats(true, true));
                    }
                }
            }
        }
    }
}
