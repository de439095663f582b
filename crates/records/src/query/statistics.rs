//! The statistics of a query, when it has ended: for background maintenance, which weighs the costs
//! of strategies, and for the advisor, which weighs indexes.

use std::collections::BTreeMap;

use esker_lsm::coding::Own;

use super::run::{Run, is_key_of_scan};
use crate::telemetry::{Measured, QueryStats};
use esker_model::query::Driver;
use esker_model::schema::Path;

/// What a query sought in an attribute. A range asks more of an index than single values do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sought {
    Value,
    Range,
}

/// What answered a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnsweredBy {
    Index,
    Scan,
}

impl Run {
    /// True if the entries of indexes decide which keys the answer has.
    fn is_index_only(&self) -> bool {
        let context = &self.context;
        let has_index = context.plan.driver != Driver::Scan;
        has_index && context.request.keys_only && context.entries_suffice()
    }

    /// The number of candidates that were validated.
    pub(super) fn validated(&self) -> u64 {
        let steps = &self.steps;
        if self.is_index_only() {
            // A filter or the obsolete set decides most of them without a probe.
            return steps.candidates;
        }
        // A candidate that passes its probe is fetched, too: the larger count has all of them.
        steps.probed.max(steps.fetched)
    }

    /// The costs of the query, for background maintenance.
    pub(super) fn measured(&self) -> Measured {
        let steps = &self.steps;
        let attributes = self.context.driving_attributes();
        if attributes.is_empty() {
            return Measured::default();
        }
        if attributes.iter().all(|a| a.is_filtered_scan()) {
            return Measured {
                filter_scanned: steps.candidates,
                ..Measured::default()
            };
        }
        if !attributes.iter().all(|a| a.kind.is_standalone()) {
            return Measured::default();
        }
        debug_assert!(
            steps.wasted <= steps.fetched,
            "only records that were fetched are wasted"
        );
        let is_index_only = self.is_index_only();
        Measured {
            index_only: u64::from(is_index_only),
            fetching: u64::from(!is_index_only),
            entries: if is_index_only { steps.candidates } else { 0 },
            probed: steps.probed,
            fetched: steps.fetched,
            wasted: steps.wasted,
            ..Measured::default()
        }
    }

    /// Counts the query once for each attribute whose index answered it; if a scan answered it,
    /// for each attribute in its condition. For undeclared attributes it counts as a lookup.
    pub(super) fn count_attribute_queries(&self) {
        let answered_by = match self.context.plan.driver {
            Driver::Scan => AnsweredBy::Scan,
            Driver::Index(_) | Driver::Union(_) | Driver::Combined(_) => AnsweredBy::Index,
        };
        let usage = &self.context.view.dataset.state.usage;
        for (path, sought) in self.sought() {
            usage.count_attribute_query(path, self.attribute_query(sought, answered_by));
        }
    }

    /// The attributes for which the query counts.
    fn sought(&self) -> BTreeMap<&Path, Sought> {
        let context = &self.context;
        let (layout, compiled) = (&context.view.layout, &context.compiled);
        let mut all = BTreeMap::new();
        let mut add = |path, sought: Sought| {
            let most = all.entry(path).or_insert(sought);
            *most = sought.max(*most);
        };
        let constraints: Vec<usize> = match &context.plan.driver {
            Driver::Index(at) => vec![*at],
            Driver::Union(all) => all.clone(),
            Driver::Combined(combined) => combined.lists.constraints(),
            Driver::Scan => {
                for path in &compiled.undeclared {
                    add(path, Sought::Value);
                }
                compiled.of_tests().map(|(at, _)| at).collect()
            }
        };
        for at in constraints {
            let constraint = compiled.constraints.own(at);
            let sought = if constraint.is_point() {
                Sought::Value
            } else {
                Sought::Range
            };
            add(&layout.attributes.own(constraint.attribute).path, sought);
        }
        if context.plan.driver == Driver::Scan {
            all.retain(|path, _| !is_key_of_scan(layout, compiled, path));
        }
        all
    }

    /// The counts of the query for one attribute.
    fn attribute_query(&self, sought: Sought, answered_by: AnsweredBy) -> QueryStats {
        let answers = self.steps.answers;
        // Clamped, so that sums do not overflow.
        let limit = self
            .remaining
            .map(|left| (left as u64 + answers).min(1 << 32));
        let range_rows = match (sought, limit) {
            (Sought::Range, None) => answers,
            (Sought::Range, Some(_)) | (Sought::Value, _) => 0,
        };
        QueryStats {
            lookups: u64::from(sought == Sought::Value),
            ranges: u64::from(sought == Sought::Range),
            limited: u64::from(limit.is_some()),
            // A query without a limit adds nothing to the sum of limits.
            limits: limit.unwrap_or(0),
            range_rows,
            scans: u64::from(answered_by == AnsweredBy::Scan),
        }
    }
}
