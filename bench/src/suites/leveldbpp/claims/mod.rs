//! What the paper found, and whether this run finds it too. Each statement is checked on the figures
//! of the run; where it does not hold, `why` says what in this engine is different, with the
//! figures that show it. CPU time per operation decides, because wall time wanders with the machine's load.

mod appendix;
mod mixed;
mod queries;
mod writes;

use serde_json::Value as Json;

use super::SUITE;
use crate::measure::{Claim, Row};

/// Two figures this close are level: CPU time per operation wanders by a tenth between runs.
const LEVEL: f64 = 1.10;

/// The claims of a run, of those experiments that it has. Medians go in.
pub fn all(rows: &[Row]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for set in ["tweets", "events"] {
        let found = Found { rows, set };
        writes::claims(&found, &mut claims);
        queries::claims(&found, &mut claims);
        mixed::claims(&found, &mut claims);
    }
    appendix::claims(
        &Found {
            rows,
            set: "tweets",
        },
        &mut claims,
    );
    claims
}

/// The rows of one data set.
#[derive(Clone, Copy)]
struct Found<'r> {
    rows: &'r [Row],
    set: &'r str,
}

impl<'r> Found<'r> {
    /// The rows of an operation of a subject, in the order in which they were measured.
    fn each(
        &self,
        experiment: &'r str,
        subject: &'r str,
        operation: &'r str,
    ) -> impl Iterator<Item = &'r Row> {
        let set = Json::from(self.set);
        self.rows.iter().filter(move |row| {
            row.suite == SUITE
                && row.experiment == experiment
                && row.subject == subject
                && row.operation == operation
                && row.parameters.get("data") == Some(&set)
        })
    }

    /// The row of an operation with these parameters.
    fn one(
        &self,
        experiment: &'r str,
        subject: &'r str,
        operation: &'r str,
        parameters: &[(&str, Json)],
    ) -> Option<&'r Row> {
        let fits = |row: &&Row| {
            parameters
                .iter()
                .all(|(name, value)| row.parameters.get(*name) == Some(value))
        };
        self.each(experiment, subject, operation).find(fits)
    }

    /// A claim about the rows of this set.
    fn claim(&self, experiment: &str, figure: &str, text: &str, said: Said) -> Claim {
        Claim {
            suite: SUITE.to_string(),
            experiment: experiment.to_string(),
            text: format!("{text} ({})", self.set),
            source: format!("LevelDB++ {figure}"),
            expected: said.expected,
            measured: said.measured,
            held: said.held,
            why: if said.held { String::new() } else { said.why },
        }
    }
}

/// What was expected, what was found, and what it means.
struct Said {
    expected: String,
    measured: String,
    held: bool,
    why: String,
}

/// A figure of a row.
fn figure(row: &Row, name: &str) -> f64 {
    row.figures.get(name).copied().unwrap_or_default()
}

/// `lazy 1.2, composite 3.4`, ascending.
fn listed(values: &[(&str, f64)]) -> String {
    let mut values = values.to_vec();
    values.sort_by(|a, b| a.1.total_cmp(&b.1));
    let text =
        |(name, value): &(&str, f64)| format!("{name} {}", crate::report::scale::short(*value));
    values.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// True when `name` has the least value, or is level with the least.
fn least(values: &[(&str, f64)], name: &str) -> bool {
    let lowest = values
        .iter()
        .map(|value| value.1)
        .fold(f64::INFINITY, f64::min);
    values
        .iter()
        .any(|value| value.0 == name && value.1 <= lowest * LEVEL)
}

/// The value of `name`; 0 where there is none.
fn value(values: &[(&str, f64)], name: &str) -> f64 {
    values
        .iter()
        .find(|value| value.0 == name)
        .map_or(0.0, |value| value.1)
}

#[cfg(test)]
mod tests;
