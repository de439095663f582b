//! `bench diff A B`: two runs of the same experiments compared, operation by operation, with how far
//! each run's own repeats lie apart.

use std::fmt::Write;
use std::path::Path;

use crate::failure::Result;
use crate::measure::{Results, Row, median};
use crate::report::scale::short;
use crate::report::sheet::{label, varying};

/// What one repeat differs from the next where there is only one: medians and CPU time per operation
/// wander by a tenth with the load of the machine.
const NOISE_OF_ONE: f64 = 0.10;
/// No difference is believed below this, however close the repeats lie.
const LEAST_NOISE: f64 = 0.03;

/// What was measured in both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Suite, experiment, subject, operation with its parameters.
    pub what: [String; 4],
    /// CPU time per operation and median: before, after.
    pub cpu: (f64, f64),
    /// Median wall time: before, after.
    pub p50: (f64, f64),
    /// How much of the ratio of CPU times, and of medians, may be chance.
    pub noise: (f64, f64),
}

/// How a figure changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Slower, beyond noise.
    Slower,
    /// Faster, beyond noise.
    Faster,
    /// Within noise, or not measured.
    Same,
}

impl Change {
    /// The ratio after : before of CPU time, and of medians; 1 where one was not measured.
    pub fn ratios(&self) -> (f64, f64) {
        let ratio = |(before, after): (f64, f64)| {
            if before > 0.0 && after > 0.0 {
                after / before
            } else {
                1.0
            }
        };
        (ratio(self.cpu), ratio(self.p50))
    }

    /// What CPU time and median say together: slower when either is.
    pub fn verdict(&self) -> Verdict {
        let (cpu, p50) = self.ratios();
        let beyond = |slower: bool| {
            let over = |ratio: f64, noise: f64| {
                if slower {
                    ratio > 1.0 + noise
                } else {
                    ratio < 1.0 / (1.0 + noise)
                }
            };
            over(cpu, self.noise.0) || over(p50, self.noise.1)
        };
        match (beyond(true), beyond(false)) {
            (true, _) => Verdict::Slower,
            (false, true) => Verdict::Faster,
            (false, false) => Verdict::Same,
        }
    }
}

/// What was measured in both `before` and `after`, in the order of `before`.
pub fn compare(before: &Results, after: &Results) -> Vec<Change> {
    let (olds, news) = (groups(&before.rows), groups(&after.rows));
    let change = |(key, old): &(String, Vec<&Row>)| {
        let (_, new) = news.iter().find(|(other, _)| other == key)?;
        let both = |of: fn(&Row) -> f64| {
            let (old, new) = (all(old, of), all(new, of));
            let noise = (spread(&old).powi(2) + spread(&new).powi(2)).sqrt();
            ((median(old), median(new)), noise.max(LEAST_NOISE))
        };
        let row = old.first()?;
        let same = |other: &&Row| other.suite == row.suite && other.experiment == row.experiment;
        let of_experiment: Vec<&Row> = before.rows.iter().filter(same).collect();
        let parameters = varying(&of_experiment);
        let operation = [row.operation.clone(), label(row, &parameters)];
        let operation = operation.into_iter().filter(|part| !part.is_empty());
        let ((cpu, cpu_noise), (p50, p50_noise)) = (both(|row| row.cpu_us), both(|row| row.p50_us));
        Some(Change {
            what: [
                row.suite.clone(),
                row.experiment.clone(),
                row.subject.clone(),
                operation.collect::<Vec<_>>().join(" "),
            ],
            cpu,
            p50,
            noise: (cpu_noise, p50_noise),
        })
    };
    olds.iter().filter_map(change).collect()
}

/// Rows that measure the same thing, which are repeats.
fn groups(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for row in rows {
        let parameters: Vec<String> = row
            .parameters
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        let fixed = [&row.suite, &row.experiment, &row.subject, &row.operation];
        let key = format!("{fixed:?}{parameters:?}");
        let place = *places.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(row);
    }
    groups
}

fn all(rows: &[&Row], of: fn(&Row) -> f64) -> Vec<f64> {
    rows.iter()
        .map(|row| of(row))
        .filter(|value| *value > 0.0)
        .collect()
}

/// How far repeats lie apart, as a share of their median: half the distance of the extremes.
fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let middle = median(values.to_vec());
    if values.len() < 2 || middle <= 0.0 {
        return NOISE_OF_ONE;
    }
    (most - least) / 2.0 / middle
}

/// Compares the runs in two folders. The text is a table; the number is the largest ratio of CPU time
/// or median that is beyond noise (1 when nothing is slower).
pub fn diff(before: &Path, after: &Path) -> Result<(String, f64)> {
    let (before, after) = (Results::read(before)?, Results::read(after)?);
    let changes = compare(&before, &after);
    let mut text = String::new();
    let mut heading = None;
    let mut worst = 1.0f64;
    for change in &changes {
        let [suite, experiment, subject, operation] = &change.what;
        if heading != Some((suite, experiment)) {
            heading = Some((suite, experiment));
            writeln!(text, "\n{suite}, {experiment}")?;
            writeln!(
                text,
                "  {:<22} {:<34} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7} {:>6}",
                "subject",
                "operation",
                "CPU µs",
                "then",
                "ratio",
                "p50 µs",
                "then",
                "ratio",
                "noise"
            )?;
        }
        let (cpu, p50) = change.ratios();
        let mark = match change.verdict() {
            Verdict::Slower => "  SLOWER",
            Verdict::Faster => "  faster",
            Verdict::Same => "",
        };
        if change.verdict() == Verdict::Slower {
            worst = worst.max(cpu).max(p50);
        }
        writeln!(
            text,
            "  {subject:<22} {operation:<34} {:>9} {:>9} {cpu:>7.2} {:>9} {:>9} {p50:>7.2} {:>5.0}%{mark}",
            short(change.cpu.0),
            short(change.cpu.1),
            short(change.p50.0),
            short(change.p50.1),
            change.noise.0.max(change.noise.1) * 100.0,
        )?;
    }
    let count = |verdict| {
        changes
            .iter()
            .filter(|change| change.verdict() == verdict)
            .count()
    };
    writeln!(
        text,
        "\n{} compared: {} slower and {} faster beyond noise, {} as before",
        changes.len(),
        count(Verdict::Slower),
        count(Verdict::Faster),
        count(Verdict::Same),
    )?;
    Ok((text, worst))
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
