//! Looking up what a run measured, to check claims on it.

use serde_json::Value as Json;

use crate::measure::{Claim, Row};
use crate::report::scale::short;

/// Medians of a suite.
#[derive(Clone, Copy)]
pub struct Found<'r> {
    /// The suite.
    pub suite: &'r str,
    /// The paper, as sources name it.
    pub paper: &'r str,
    /// All rows.
    pub rows: &'r [Row],
}

/// What is compared: lower is better.
pub type Cost = fn(&Row) -> f64;

/// Wall time of an operation in µs, settling included where there was any. Direct reads wait for the
/// disk, so that CPU time would not tell.
pub fn wall(row: &Row) -> f64 {
    row.seconds * 1e6 / row.ops.max(1) as f64
}

/// Data blocks of an operation.
pub fn blocks(row: &Row) -> f64 {
    row.figures.get("blocks").copied().unwrap_or_default()
}

impl<'r> Found<'r> {
    /// The row of an operation with these parameters.
    pub fn one(
        &self,
        experiment: &str,
        subject: &str,
        operation: &str,
        parameters: &[(&str, Json)],
    ) -> Option<&'r Row> {
        self.rows.iter().find(|row| {
            row.suite == self.suite
                && row.experiment == experiment
                && row.subject == subject
                && row.operation == operation
                && parameters
                    .iter()
                    .all(|(name, value)| row.parameters.get(*name) == Some(value))
        })
    }

    /// A claim that the first row costs at most `most` times the second; `None` where one is missing.
    #[allow(clippy::too_many_arguments)]
    pub fn ratio(
        &self,
        experiment: &str,
        figure: &str,
        text: String,
        (cost, unit): (Cost, &str),
        of: Option<&Row>,
        to: Option<&Row>,
        most: f64,
        why: &str,
    ) -> Option<Claim> {
        let (of, to) = (cost(of?), cost(to?));
        let ratio = of / to.max(1e-9);
        let held = ratio <= most;
        let factor = |ratio: f64| match ratio < 1.0 {
            true => format!("{:.2} times less", 1.0 / ratio.max(1e-9)),
            false => format!("{ratio:.2} times as much"),
        };
        Some(Claim {
            suite: self.suite.to_string(),
            experiment: experiment.to_string(),
            text,
            source: format!("{} {figure}", self.paper),
            expected: match most < 1.0 {
                true => format!("at least {:.2} times less", 1.0 / most),
                false => format!("at most {most:.2} times as much"),
            },
            measured: format!(
                "{}: {} beside {} {unit}",
                factor(ratio),
                short(of),
                short(to)
            ),
            held,
            why: if held { String::new() } else { why.to_string() },
        })
    }
}
