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
fn wall(row: &Row) -> f64 {
    row.seconds * 1e6 / row.ops.max(1) as f64
}

fn blocks(row: &Row) -> f64 {
    row.figures.get("blocks").copied().unwrap_or_default()
}

/// Data blocks, from a cache or not.
pub const BLOCKS: (Cost, &str) = (blocks, "data blocks");
fn disk_reads(row: &Row) -> f64 {
    row.figures.get("disk_reads").copied().unwrap_or_default()
}

/// Reads of 4 KiB from the disk.
pub const DISK_READS: (Cost, &str) = (disk_reads, "reads of 4 KiB");
/// CPU time of the whole process, with its unit.
pub const CPU: (Cost, &str) = (|row| row.cpu_us, "CPU µs");
/// Wall time, with its unit.
pub const WALL: (Cost, &str) = (wall, "µs");

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

    /// The claim, checked; `None` where one of its rows is missing.
    pub fn check(&self, ratio: Ratio<'_>) -> Option<Claim> {
        let (cost, unit) = ratio.cost;
        let (of, to) = (cost(ratio.of?), cost(ratio.to?));
        let found = of / to.max(1e-9);
        let held = found <= ratio.most;
        let factor = |ratio: f64| match ratio < 1.0 {
            true => format!("{:.2} times less", 1.0 / ratio.max(1e-9)),
            false => format!("{ratio:.2} times as much"),
        };
        Some(Claim {
            suite: self.suite.to_string(),
            experiment: ratio.experiment.to_string(),
            text: ratio.text,
            source: match ratio.figure {
                "" => "goal".to_string(),
                figure => format!("{} {figure}", self.paper),
            },
            expected: match ratio.most < 1.0 {
                true => format!("at least {:.2} times less", 1.0 / ratio.most),
                false => format!("at most {:.2} times as much", ratio.most),
            },
            measured: format!(
                "{}: {} beside {} {unit}",
                factor(found),
                short(of),
                short(to)
            ),
            held,
            why: match held {
                true => String::new(),
                false => ratio.why.to_string(),
            },
        })
    }
}

/// A claim that one row costs at most so many times what another does.
pub struct Ratio<'a> {
    /// The experiment that it is about.
    pub experiment: &'a str,
    /// The figure of the paper that shows it; empty where it is a goal of ours.
    pub figure: &'a str,
    /// The claim, in plain English.
    pub text: String,
    /// What is compared, and its unit.
    pub cost: (Cost, &'a str),
    /// The row that is to cost less.
    pub of: Option<&'a Row>,
    /// The one beside it.
    pub to: Option<&'a Row>,
    /// How many times as much it may cost.
    pub most: f64,
    /// Why it does not hold, if it does not.
    pub why: &'a str,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn row(subject: &str, seconds: f64) -> Row {
        Row {
            suite: "deli".into(),
            experiment: "writes".into(),
            subject: subject.into(),
            operation: "ingest".into(),
            parameters: BTreeMap::from([("cache".to_string(), "direct".into())]),
            repeat: 1,
            ops: 1_000_000,
            seconds,
            cpu_us: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
            p999_us: 1.0,
            max_us: 1.0,
            figures: BTreeMap::new(),
        }
    }

    #[test]
    fn a_ratio_decides_says_what_it_found_and_is_not_claimed_of_rows_that_are_missing() {
        let rows = [row("deferred", 2.0), row("eager", 8.0)];
        let found = Found {
            suite: "deli",
            paper: "DELI",
            rows: &rows,
        };
        let at = |subject: &str| {
            let parameters = [("cache", Json::from("direct"))];
            found.one("writes", subject, "ingest", &parameters)
        };
        let check = |of: &str, most: f64| {
            found.check(Ratio {
                experiment: "writes",
                figure: "figure 7",
                text: "faster".into(),
                cost: WALL,
                of: at(of),
                to: at("eager"),
                most,
                why: "because",
            })
        };
        let held = check("deferred", 1.0 / 3.0).unwrap();
        assert!(held.held && held.why.is_empty());
        assert_eq!(held.source, "DELI figure 7");
        assert!(
            held.measured.starts_with("4.00 times less: 2"),
            "{}",
            held.measured
        );
        let missed = check("deferred", 1.0 / 5.0).unwrap();
        assert!(!missed.held && missed.why == "because");
        assert!(check("staged", 1.0).is_none());
    }
}
