//! What a run leaves behind: rows (measurements), claims (what was expected of them) and settings,
//! one JSON object a line in `OUT/results.jsonl`. Suites write it, the report and `bench diff` read it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Failure, Result};

/// The file in the folder of a run that everything is written to.
pub const RESULTS: &str = "results.jsonl";

/// One operation of one subject in one experiment, in one repeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The command that measured it: `peers`, `leveldbpp`.
    pub suite: String,
    /// What was tried, e.g. `1M cached` or `figure 10a`.
    pub experiment: String,
    /// What was measured, e.g. `esker lazy` or `rocksdb blind`.
    pub subject: String,
    /// What it did, e.g. `load`, `get` or `lookup K=10`.
    pub operation: String,
    /// Whatever else the figures depend on; rows of a series (put over time) differ only here.
    pub parameters: BTreeMap<String, Value>,
    /// The repeat of the experiment, from 0.
    pub repeat: u32,
    /// Operations done.
    pub ops: u64,
    /// Wall time of them all; what the harness did between operations is not counted.
    pub seconds: f64,
    /// CPU time of the whole process per operation, background work included, in µs.
    pub cpu_us: f64,
    /// Median wall time of an operation, in µs.
    pub p50_us: f64,
    /// 99 of 100 operations took at most this long, in µs.
    pub p99_us: f64,
    /// 999 of 1000 operations took at most this long, in µs.
    pub p999_us: f64,
    /// The slowest operation, in µs.
    pub max_us: f64,
    /// Further figures by name: `disk_bytes`, `written_bytes`, `write_amplification`,
    /// `peak_memory_bytes`, `blocks_read_per_op`, `rows_per_op`, ... (the README explains each).
    pub figures: BTreeMap<String, f64>,
}

impl Row {
    /// Operations per second of wall time.
    pub fn ops_per_second(&self) -> f64 {
        self.ops as f64 / self.seconds.max(1e-9)
    }
}

/// A statement of a paper or of our goals, and whether it held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The suite that checked it.
    pub suite: String,
    /// The experiment whose rows it is about.
    pub experiment: String,
    /// The statement, in plain English.
    pub text: String,
    /// Who says so: `LevelDB++ figure 10a`, or `goal`.
    pub source: String,
    /// What should be measured.
    pub expected: String,
    /// What was measured.
    pub measured: String,
    /// Whether the statement held.
    pub held: bool,
    /// Why not, when it did not hold; else empty.
    pub why: String,
}

/// A setting under which everything was measured: machine, version, cache, durability, seed, scale.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// What is set.
    pub name: String,
    /// To what.
    pub value: String,
}

/// A line of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
enum Line {
    Row(Row),
    Claim(Claim),
    Setting(Setting),
}

/// Everything that a run wrote, in the order in which it was written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    /// Measurements.
    pub rows: Vec<Row>,
    /// Statements and whether they held.
    pub claims: Vec<Claim>,
    /// Settings.
    pub settings: Vec<Setting>,
}

impl Results {
    /// Reads the results in a run's folder.
    pub fn read(out: &Path) -> Result<Results> {
        let path = out.join(RESULTS);
        let text = std::fs::read_to_string(&path)
            .map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        let mut results = Results::default();
        for (at, line) in text.lines().enumerate() {
            let line = serde_json::from_str(line)
                .map_err(|e| Failure::new(format!("{}:{}: {e}", path.display(), at + 1)))?;
            match line {
                Line::Row(row) => results.rows.push(row),
                Line::Claim(claim) => results.claims.push(claim),
                Line::Setting(setting) => results.settings.push(setting),
            }
        }
        Ok(results)
    }

    /// The rows with medians over repeats in place of the repeats: of each figure for itself. A
    /// row's `repeat` then says how many there were. In order of first appearance.
    pub fn medians(&self) -> Vec<Row> {
        let mut groups: Vec<Vec<&Row>> = Vec::new();
        for row in &self.rows {
            match groups.iter_mut().find(|group| same(group, row)) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        groups.iter().filter_map(|group| middle(group)).collect()
    }
}

fn same(group: &[&Row], row: &Row) -> bool {
    group.first().is_some_and(|first| {
        (&first.suite, &first.experiment, &first.subject)
            == (&row.suite, &row.experiment, &row.subject)
            && first.operation == row.operation
            && first.parameters == row.parameters
    })
}

fn middle(group: &[&Row]) -> Option<Row> {
    let of = |figure: &dyn Fn(&Row) -> f64| median(group.iter().map(|row| figure(row)).collect());
    let first = *group.first()?;
    let per_op = of(&|row| row.seconds / row.ops.max(1) as f64);
    let mut figures = BTreeMap::new();
    for name in first.figures.keys() {
        let known = group
            .iter()
            .filter_map(|row| row.figures.get(name).copied());
        figures.insert(name.clone(), median(known.collect()));
    }
    Some(Row {
        repeat: group.len() as u32,
        seconds: per_op * first.ops as f64,
        cpu_us: of(&|row| row.cpu_us),
        p50_us: of(&|row| row.p50_us),
        p99_us: of(&|row| row.p99_us),
        p999_us: of(&|row| row.p999_us),
        max_us: of(&|row| row.max_us),
        figures,
        ..first.clone()
    })
}

/// The median; of an even number the mean of the two in the middle, of none 0.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = values.get(half).copied().unwrap_or(0.0);
    if values.len() % 2 == 1 {
        return upper;
    }
    let lower = half.checked_sub(1).and_then(|at| values.get(at));
    lower.map_or(0.0, |lower| (lower + upper) / 2.0)
}

/// Writes the results of a run, line by line, so that a run that is interrupted leaves what it has.
#[derive(Debug)]
pub struct Writer {
    file: File,
}

impl Writer {
    /// Begins the file in `out` (made if it is missing) anew.
    pub fn create(out: &Path) -> Result<Writer> {
        std::fs::create_dir_all(out)?;
        let file = File::create(out.join(RESULTS))?;
        Ok(Writer { file })
    }

    /// Writes a row.
    pub fn row(&mut self, row: &Row) -> Result<()> {
        self.line(&Line::Row(row.clone()))
    }

    /// Writes a claim.
    pub fn claim(&mut self, claim: &Claim) -> Result<()> {
        self.line(&Line::Claim(claim.clone()))
    }

    /// Writes a setting.
    pub fn setting(&mut self, name: &str, value: impl ToString) -> Result<()> {
        self.line(&Line::Setting(Setting {
            name: name.to_string(),
            value: value.to_string(),
        }))
    }

    fn line(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        Ok(self.file.write_all(&text)?)
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
