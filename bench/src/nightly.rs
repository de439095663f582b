//! Every night: the published experiments in small, beside lists of what is to come of them (`nightly/SUITE.tsv`). A row that is
//! not there was not measured, and a statement that held and does not any more is a regression: both fail the night, and are named.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::failure::{Failure, Result};
use crate::measure::{Results, Row};

/// The suites, each with its scale: a few minutes on two cores.
pub const SUITES: [(&str, &str); 6] = [
    ("leveldbpp", "0.1"),
    ("luo-carey", "0.05"),
    ("deli", "0.05"),
    ("spatial", "0.05"),
    ("pubsub", "0.05"),
    ("volume", "0.5"),
];
/// How often a suite is run in which a statement does not hold, before that counts: most are about time, and a machine
/// wanders.
const TRIES: usize = 3;

/// How a night is spent.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Only these suites, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "SUITE,...")]
    pub only: Vec<String>,

    /// Does without what is not on this machine: `events`, `real`, `aircraft` (data), `mosquitto`, `rocksdb`, `nbdkit` (subjects)
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub without: Vec<String>,

    /// Folder for the results, one below for each suite, and for the data while it runs
    #[arg(long, default_value = "out/nightly", value_name = "DIR")]
    pub out: PathBuf,
}

/// Rows that differ in nothing but parameters: experiment, subject, operation, and the data that they are of.
type Rows = [String; 4];
/// A statement: experiment and text.
type Statement = [String; 2];

/// What is to come of a suite.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Expected {
    /// How many there are.
    rows: BTreeMap<Rows, usize>,
    /// Whether it has to hold; it has to be looked at in any case.
    statements: BTreeMap<Statement, bool>,
}

/// What did not come of a suite, in words.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Missed {
    /// Rows that were not measured, statements that nobody looked at.
    unmeasured: BTreeSet<String>,
    /// Statements that did not hold: what was measured, by what was stated.
    fallen: BTreeMap<String, String>,
}

/// Runs the suites, each by `run` with the arguments of its command; what a suite could not measure comes back.
pub fn run(options: &Options, run: impl Fn(&[String]) -> Result<Vec<String>>) -> Result<()> {
    run_with(options, |suite| Expected::read(&list(suite)), run)
}

fn run_with(
    options: &Options,
    expected: impl Fn(&str) -> Result<Expected>,
    run: impl Fn(&[String]) -> Result<Vec<String>>,
) -> Result<()> {
    if let Some(name) = (options.only.iter()).find(|name| SUITES.iter().all(|s| s.0 != **name)) {
        let all: Vec<&str> = SUITES.iter().map(|suite| suite.0).collect();
        return Err(Failure::new(format!(
            "--only {name}: there are only {}",
            all.join(", ")
        )));
    }
    let mut wrong = Vec::new();
    for (suite, scale) in SUITES {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == suite) {
            continue;
        }
        let expected = expected(suite)?.without(&options.without);
        let mut missed: Option<Missed> = None;
        for again in 0..TRIES {
            let out = match again {
                0 => options.out.join(suite),
                _ => options.out.join(format!("{suite}-{}", again + 1)),
            };
            let path = out.display().to_string();
            let arguments = [suite, "--scale", scale, "--out", &path].map(String::from);
            let ended = run(&arguments).and_then(|failures| Ok((failures, Results::read(&out)?)));
            let found = match ended {
                Ok((failures, results)) => {
                    let mut found = expected.missed(&results);
                    found.unmeasured.extend(failures);
                    found
                }
                Err(error) => Missed {
                    unmeasured: BTreeSet::from([error.to_string()]),
                    ..Missed::default()
                },
            };
            let found = match missed {
                Some(before) => before.and(found),
                None => found,
            };
            let settled = found.fallen.is_empty() || !found.unmeasured.is_empty();
            missed = Some(found);
            if settled {
                break;
            }
        }
        wrong.extend(missed.iter().flat_map(|missed| missed.lines(suite)));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "the night missed\n  {}",
            wrong.join("\n  ")
        ))),
    }
}

/// Makes the lists of the suites whose runs lie in these folders: the rows of all runs of a suite, and of the statements those
/// that held in each as ones that have to hold.
pub fn write(runs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut lists: BTreeMap<String, Expected> = BTreeMap::new();
    for run in runs {
        let results = Results::read(run)?;
        let suite = results.rows.first().map(|row| row.suite.clone());
        let suite = suite.ok_or_else(|| Failure::new(format!("{}: no rows", run.display())))?;
        let found = Expected::of(&results);
        let all = match lists.remove(&suite) {
            Some(before) => before.and(found),
            None => found,
        };
        lists.insert(suite, all);
    }
    let mut written = Vec::new();
    for (suite, expected) in lists {
        let path = list(&suite);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(&path, expected.text())?;
        written.push(path);
    }
    Ok(written)
}

/// The list of a suite.
fn list(suite: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("nightly")
        .join(format!("{suite}.tsv"))
}

fn rows_of(row: &Row) -> Rows {
    let data = row.parameters.get("data").and_then(Json::as_str);
    [
        row.experiment.clone(),
        row.subject.clone(),
        row.operation.clone(),
        data.unwrap_or_default().to_string(),
    ]
}

impl Expected {
    /// What a run had.
    fn of(results: &Results) -> Expected {
        let mut expected = Expected::default();
        for row in &results.medians() {
            *expected.rows.entry(rows_of(row)).or_default() += 1;
        }
        for claim in &results.claims {
            let name = [claim.experiment.clone(), claim.text.clone()];
            *expected.statements.entry(name).or_insert(true) &= claim.held;
        }
        expected
    }

    /// What two runs had: of rows the fewer, of statements those that held in both.
    fn and(mut self, other: Expected) -> Expected {
        for (name, count) in other.rows {
            let known = self.rows.entry(name).or_insert(count);
            *known = count.min(*known);
        }
        for (name, held) in other.statements {
            *self.statements.entry(name).or_insert(held) &= held;
        }
        self
    }

    /// Without the rows of these data and subjects, and the statements about them.
    fn without(mut self, names: &[String]) -> Expected {
        let is_left_out = |text: &str| {
            let mut words = text.split(|c: char| !c.is_alphanumeric());
            words.any(|word| names.iter().any(|name| name == word))
        };
        self.rows
            .retain(|[_, subject, _, data], _| !is_left_out(subject) && !names.contains(data));
        self.statements.retain(|[_, text], _| !is_left_out(text));
        self
    }

    fn read(path: &Path) -> Result<Expected> {
        let refuse = |what: String| Failure::new(format!("{}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| refuse(e.to_string()))?;
        Expected::parse(&text).map_err(refuse)
    }

    /// Understands what [`Expected::text`] writes.
    fn parse(text: &str) -> std::result::Result<Expected, String> {
        let mut expected = Expected::default();
        for (at, line) in text.lines().enumerate() {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields.as_slice() {
                ["row", experiment, subject, operation, data, count] => {
                    let name = [experiment, subject, operation, data].map(|name| name.to_string());
                    let count = count.parse();
                    let count = count.map_err(|_| format!("line {}: no number", at + 1))?;
                    expected.rows.insert(name, count);
                }
                [held @ ("holds" | "varies"), experiment, text] => {
                    let name = [experiment.to_string(), text.to_string()];
                    expected.statements.insert(name, *held == "holds");
                }
                _ => return Err(format!("line {}: what is `{line}`?", at + 1)),
            }
        }
        Ok(expected)
    }

    /// A line for each, with tabs between.
    fn text(&self) -> String {
        let mut text = String::new();
        for (name, count) in &self.rows {
            // Writing to memory does not fail.
            let _ = writeln!(text, "row\t{}\t{count}", name.join("\t"));
        }
        for (name, held) in &self.statements {
            let held = if *held { "holds" } else { "varies" };
            let _ = writeln!(text, "{held}\t{}", name.join("\t"));
        }
        text
    }

    /// What a run does not have of this.
    fn missed(&self, results: &Results) -> Missed {
        let found = Expected::of(results);
        let mut missed = Missed::default();
        for (name, count) in &self.rows {
            let there = found.rows.get(name).copied().unwrap_or_default();
            if there < *count {
                let name: Vec<&str> = (name.iter().map(String::as_str))
                    .filter(|part| !part.is_empty())
                    .collect();
                let named = name.join(" · ");
                let what = format!("{named}: {there} of {count} rows");
                missed.unmeasured.insert(what);
            }
        }
        for (name, must_hold) in &self.statements {
            let named = name.join(": ");
            match found.statements.get(name) {
                None => {
                    missed.unmeasured.insert(format!("{named} (not looked at)"));
                }
                Some(false) if *must_hold => {
                    let claims = results.claims.iter();
                    let of = claims
                        .filter(|c| !c.held && [&c.experiment, &c.text] == [&name[0], &name[1]]);
                    let measured: Vec<&str> = of.map(|claim| claim.measured.as_str()).collect();
                    missed.fallen.insert(named, measured.join("; "));
                }
                Some(_) => {}
            }
        }
        missed
    }
}

impl Missed {
    /// What a run missed again; what it did not measure counts by itself.
    fn and(mut self, again: Missed) -> Missed {
        self.unmeasured.extend(again.unmeasured);
        self.fallen
            .retain(|name, _| again.fallen.contains_key(name));
        for (name, measured) in again.fallen {
            if let Some(before) = self.fallen.get_mut(&name) {
                *before = format!("{before}; again {measured}");
            }
        }
        self
    }

    fn lines(&self, suite: &str) -> Vec<String> {
        let unmeasured = self.unmeasured.iter();
        let unmeasured = unmeasured.map(|what| format!("not measured: {suite}: {what}"));
        let fallen = self.fallen.iter();
        let fallen = fallen.map(|(what, how)| format!("no longer holds: {suite}: {what}: {how}"));
        unmeasured.chain(fallen).collect()
    }
}

#[cfg(test)]
#[path = "nightly_tests.rs"]
mod tests;
