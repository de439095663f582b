//! Counting of queries for the advisor.

use esker_lsm::coding::Own;

use super::run::Run;
use crate::telemetry::{Measured, QueryStats};
use esker_model::query::{Constraint, Driver};
use esker_model::schema::Path;

impl Run {
    /// The costs of the query, for background maintenance.
    pub(super) fn measured(&self) -> Measured {
        let (context, steps) = (&self.context, &self.steps);
        let Some(at) = context.plan.driver.single() else {
            return Measured::default();
        };
        let driver = context.compiled.constraints.get(at);
        let attribute = driver.and_then(|c| context.view.layout.attributes.get(c.attribute));
        if !attribute.is_some_and(|attribute| attribute.kind.is_standalone()) {
            return Measured {
                scanned: match attribute {
                    Some(attribute) if attribute.is_filtered_scan() => steps.candidates,
                    _ => 0,
                },
                ..Measured::default()
            };
        }
        let bare = context.request.keys_only && context.all_answered;
        Measured {
            index_only: u64::from(bare),
            fetching: u64::from(!bare),
            entries: if bare { steps.candidates } else { 0 },
            probed: steps.probed,
            fetched: if bare { 0 } else { steps.fetched },
            wasted: steps.wasted,
            ..Measured::default()
        }
    }

    /// Counts the query, when it has ended, for the attribute whose index answered it; if a scan
    /// answered it, for each attribute in its condition. For undeclared attributes it counts as a
    /// lookup.
    pub(super) fn count_use(&self) {
        let context = &self.context;
        let usage = &context.view.dataset.current.usage;
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
        let count = |constraint: &Constraint, scan| {
            let attribute = context.view.layout.attributes.own(constraint.attribute);
            let point = constraint.is_point();
            usage.count_attribute_query(&attribute.path, stats(point, scan));
        };
        match &context.plan.driver {
            Driver::Index(_) | Driver::Union(_) => {
                for at in context.plan.driver.constraints() {
                    count(context.compiled.constraints.own(*at), false);
                }
            }
            Driver::Combined(combined) => {
                for at in combined.lists.constraints() {
                    count(context.compiled.constraints.own(at), false);
                }
            }
            Driver::Scan => {
                for constraint in &context.compiled.constraints {
                    count(constraint, true);
                }
                // Conditions on keys need no index.
                let keys = &context.compiled.keys;
                let is_key = |path: &Path| !keys.is_all() && *path == context.view.layout.shape.key;
                for path in &context.compiled.undeclared {
                    if !is_key(path) {
                        usage.count_attribute_query(path, stats(true, true));
                    }
                }
            }
        }
    }
}
