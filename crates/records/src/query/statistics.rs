//! The statistics of a query, when it has ended: for background maintenance, which weighs the costs
//! of strategies, and for the advisor, which weighs indexes.

use esker_lsm::coding::Own;

use super::run::Run;
use crate::telemetry::{Measured, QueryStats};
use esker_model::query::{Constraint, Driver};
use esker_model::schema::Path;

impl Run {
    /// The number of candidates that were validated.
    pub(super) fn validated(&self) -> u64 {
        let Run { context, steps, .. } = self;
        let has_index = context.plan.driver != Driver::Scan;
        if has_index && context.request.keys_only && context.entries_suffice() {
            // Most of them without a probe: a filter or the obsolete set decides.
            return steps.candidates;
        }
        steps.probed.max(steps.fetched)
    }

    /// The costs of the query, for background maintenance.
    pub(super) fn measured(&self) -> Measured {
        let (context, steps) = (&self.context, &self.steps);
        let Some(at) = context.plan.driver.single() else {
            return Measured::default();
        };
        let constraint = context.compiled.constraints.own(at);
        let attribute = context.view.layout.attributes.own(constraint.attribute);
        if !attribute.kind.is_standalone() {
            return Measured {
                scanned: if attribute.is_filtered_scan() {
                    steps.candidates
                } else {
                    0
                },
                ..Measured::default()
            };
        }
        // Such a query reads no records.
        let is_bare = context.request.keys_only && context.all_answered;
        Measured {
            index_only: u64::from(is_bare),
            fetching: u64::from(!is_bare),
            entries: if is_bare { steps.candidates } else { 0 },
            probed: steps.probed,
            fetched: if is_bare { 0 } else { steps.fetched },
            wasted: steps.wasted,
            ..Measured::default()
        }
    }

    /// Counts the query for the attributes whose indexes answered it; if a scan answered it, for
    /// each attribute in its condition. For undeclared attributes it counts as a lookup.
    pub(super) fn count_use(&self) {
        let context = &self.context;
        let usage = &context.view.dataset.current.usage;
        // Clamped, so that sums do not overflow.
        let limit = self
            .remaining
            .map(|left| (left as u64 + self.steps.answers).min(1 << 32));
        let stats = |is_point: bool| QueryStats {
            lookups: u64::from(is_point),
            ranges: u64::from(!is_point),
            limited: u64::from(limit.is_some()),
            // A query without a limit adds nothing to the sum of limits.
            limits: limit.unwrap_or(0),
            range_rows: if is_point || limit.is_some() {
                0
            } else {
                self.steps.answers
            },
            scans: 0,
        };
        let count = |constraint: &Constraint, scans: u64| {
            let attribute = context.view.layout.attributes.own(constraint.attribute);
            let stats = stats(constraint.is_point());
            usage.count_attribute_query(&attribute.path, QueryStats { scans, ..stats });
        };
        let constraints = &context.compiled.constraints;
        match &context.plan.driver {
            Driver::Index(at) => count(constraints.own(*at), 0),
            Driver::Union(all) => all.iter().for_each(|at| count(constraints.own(*at), 0)),
            Driver::Combined(combined) => {
                for at in combined.lists.constraints() {
                    count(constraints.own(at), 0);
                }
            }
            Driver::Scan => {
                for constraint in constraints {
                    count(constraint, 1);
                }
                // Conditions on keys need no index.
                let keys = &context.compiled.keys;
                let is_key = |path: &Path| !keys.is_all() && *path == context.view.layout.shape.key;
                for path in &context.compiled.undeclared {
                    if !is_key(path) {
                        let lookup = stats(true);
                        usage.count_attribute_query(path, QueryStats { scans: 1, ..lookup });
                    }
                }
            }
        }
    }
}
