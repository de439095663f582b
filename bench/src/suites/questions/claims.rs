//! The goals of questions, checked on the medians of a run, and the comparison of answers.

use serde_json::Value as Json;

use super::asked::{ANSWER, Operation};
use super::task::{EXPERIMENT, SUITE, State};
use crate::measure::{Claim, Row};

/// The subject that the goals are about.
const OURS: &str = "esker composite mutable-bitmap";

struct Claims<'r> {
    rows: &'r [Row],
    all: Vec<Claim>,
}

/// The claims of a run, of those rows that it has.
pub(super) fn all(rows: &[Row]) -> Vec<Claim> {
    let mut claims = Claims {
        rows,
        all: Vec::new(),
    };
    claims.beside_sqlite(Operation::CountByValue, State::Fresh, 0.5);
    claims.beside_sqlite(Operation::CountByValue, State::Updated, 1.5);
    claims.beside_sqlite(Operation::TopTen, State::Fresh, 1.0);
    claims.beside_sqlite(Operation::TopTen, State::Updated, 1.0);
    claims.beside_sqlite(Operation::Groups, State::Fresh, 2.0);
    claims.beside_sqlite(Operation::Groups, State::Updated, 2.0);
    claims.records_read();
    claims.memory();
    claims.all
}

/// The subjects whose answers differ from those of another.
pub(super) fn differing(rows: &[Row]) -> Vec<String> {
    let digest = |row: &Row| row.figures.get(ANSWER).copied();
    let mut wrong = Vec::new();
    for row in rows.iter().filter(|row| digest(row).is_some()) {
        let same = |other: &&Row| {
            other.operation == row.operation
                && other.parameters == row.parameters
                && digest(other).is_some()
        };
        let first = rows.iter().find(same);
        if let Some(first) = first.filter(|first| digest(first) != digest(row)) {
            wrong.push(format!(
                "{} answers `{}` differently than {}",
                row.subject, row.operation, first.subject
            ));
        }
    }
    wrong
}

impl Claims<'_> {
    fn row(&self, subject: &str, operation: Operation, state: State) -> Option<&Row> {
        self.rows.iter().find(|row| {
            row.subject == subject
                && row.operation == operation.name()
                && row.parameters.get("state") == Some(&Json::from(state.name()))
        })
    }

    fn add(&mut self, text: String, expected: String, measured: String, held: bool) {
        self.all.push(Claim {
            suite: SUITE.to_string(),
            experiment: EXPERIMENT.to_string(),
            text,
            source: "goal".to_string(),
            expected,
            measured,
            held,
            why: String::new(),
        });
    }

    fn beside_sqlite(&mut self, operation: Operation, state: State, most: f64) {
        let rows = (
            self.row(OURS, operation, state),
            self.row("sqlite", operation, state),
        );
        let (Some(ours), Some(theirs)) = rows else {
            return;
        };
        let (ours, theirs) = (ours.p50_us / 1e3, theirs.p50_us / 1e3);
        let ratio = ours / theirs.max(1e-9);
        self.add(
            format!("{}, {}, beside SQLite", operation.name(), state.name()),
            format!("at most {most} times"),
            format!("{ratio:.2} times: {ours:.3} beside {theirs:.3} ms"),
            ratio <= most,
        );
    }

    fn records_read(&mut self) {
        let figure = |row: &Row, name: &str| row.figures.get(name).copied().unwrap_or_default();
        if let Some(row) = self.row(OURS, Operation::CountByValue, State::Fresh) {
            let read = figure(row, "records_read");
            self.add(
                "records read by a count by an indexed field".to_string(),
                "none".to_string(),
                format!("{read}"),
                read == 0.0,
            );
        }
        for state in [State::Fresh, State::Updated] {
            if let Some(row) = self.row(OURS, Operation::Both, state) {
                let ratio = figure(row, "records_read") / figure(row, "rows").max(1.0);
                self.add(
                    format!(
                        "records read by two conditions for each answer, {}",
                        state.name()
                    ),
                    "at most 1.2".to_string(),
                    format!("{ratio:.2}"),
                    ratio <= 1.2,
                );
            }
        }
    }

    /// What each kind of question adds to the memory of the process.
    fn memory(&mut self) {
        let of = |row: &&Row| row.subject == OURS;
        let peaks = self.rows.iter().filter(of).filter_map(|row| {
            let peak = row.figures.get("added_memory_bytes")?;
            Some((*peak, row.operation.clone()))
        });
        let Some((most, operation)) = peaks.max_by(|a, b| a.0.total_cmp(&b.0)) else {
            return;
        };
        let mib = most / f64::from(1 << 20);
        self.add(
            "memory that a question adds".to_string(),
            "at most 64 MiB".to_string(),
            format!("{mib:.1} MiB ({operation})"),
            mib <= 64.0,
        );
    }
}
