//! What the page shows of the suite.

use super::task::{EXPERIMENT, SUITE};
use crate::report::sheet::{Chart, Measure, Sheet};

/// The sheets of the suite.
pub fn all() -> Vec<Sheet> {
    vec![Sheet {
        suite: SUITE,
        experiment: EXPERIMENT,
        title: "Questions",
        asks: "How long do counts, orders, groups and two conditions take over a million records, beside SQLite with the same indexes and DuckDB over the records as text?",
        charts: vec![Chart::bars(
            "",
            &[],
            &["operation"],
            &["state"],
            Measure::Rate,
        )],
        table: true,
        headline: false,
    }]
}
