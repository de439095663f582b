//! What the page shows of an experiment: one question, and the charts that answer it. Suites say
//! theirs; an experiment without a sheet gets a plain one.

use serde_json::Value;

use crate::measure::Row;

/// How an experiment is shown.
pub struct Sheet {
    /// The suite that it belongs to.
    pub suite: &'static str,
    /// Its name in the rows.
    pub experiment: &'static str,
    /// The heading.
    pub title: &'static str,
    /// What it asks, in one sentence.
    pub asks: &'static str,
    /// The pictures.
    pub charts: Vec<Chart>,
    /// Whether every row goes into the page; the CSV file has them all in any case.
    pub table: bool,
    /// Whether the summary at the top shows its table of operations by subjects.
    pub headline: bool,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// CPU time of the whole process per operation.
    Cpu,
    /// 99.9th percentile of the wall time.
    P999,
    /// Operations per second of wall time.
    Rate,
    /// One of the row's figures: its name, and its unit. Names that end in `_bytes` are shown in MiB.
    Figure(&'static str, &'static str),
}

/// A picture, or one for each value of the parameters it is split by.
pub struct Chart {
    /// What is drawn, for the caption.
    pub title: &'static str,
    /// The operations whose rows are drawn; empty for all.
    pub operations: &'static [&'static str],
    /// Parameters (and `operation`) that make a picture of their own.
    pub split: &'static [&'static str],
    /// Parameters (and `operation`) that make a group within a picture.
    pub group: &'static [&'static str],
    /// What is compared.
    pub measure: Measure,
    /// Its form.
    pub form: Form,
}

/// The form of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A bar for each subject, or a dot where only a logarithmic scale shows all.
    Bars,
    /// A line for each subject over the parameter (or figure) of this name; with the axis's label.
    Lines(&'static str, &'static str),
}

impl Measure {
    /// The value in a row, in the unit of [`Measure::unit`]. `None` where it was not measured.
    pub fn of(self, row: &Row) -> Option<f64> {
        let value = match self {
            Measure::Cpu => row.cpu_us,
            Measure::P999 => row.p999_us,
            Measure::Rate => row.ops_per_second(),
            Measure::Figure(name, _) => {
                let value = row.figures.get(name).copied()?;
                return Some(if name.ends_with("_bytes") {
                    value / MIB
                } else {
                    value
                });
            }
        };
        (value > 0.0 && value.is_finite()).then_some(value)
    }

    /// The unit, for axes.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Cpu => "CPU µs per operation",
            Measure::P999 => "99.9th percentile, µs",
            Measure::Rate => "operations per second",
            Measure::Figure(_, unit) => unit,
        }
    }
}

/// Bytes in a MiB.
pub const MIB: f64 = 1024.0 * 1024.0;

impl Chart {
    /// Bars.
    pub fn bars(
        title: &'static str,
        operations: &'static [&'static str],
        split: &'static [&'static str],
        group: &'static [&'static str],
        measure: Measure,
    ) -> Chart {
        Chart {
            title,
            operations,
            split,
            group,
            measure,
            form: Form::Bars,
        }
    }

    /// Lines along a parameter (or figure); with the axis's label.
    pub fn lines(
        title: &'static str,
        operations: &'static [&'static str],
        split: &'static [&'static str],
        measure: Measure,
        along: (&'static str, &'static str),
    ) -> Chart {
        Chart {
            title,
            operations,
            split,
            group: &[],
            measure,
            form: Form::Lines(along.0, along.1),
        }
    }

    /// True when the row is drawn here.
    pub fn takes(&self, row: &Row) -> bool {
        (self.operations.is_empty() || self.operations.contains(&row.operation.as_str()))
            && self.measure.of(row).is_some()
    }
}

/// The pictures of an experiment that nobody described: the CPU time of each operation, and what the
/// load took.
pub fn plain() -> Vec<Chart> {
    let bars = |title, operations, split, measure| Chart {
        title,
        operations,
        split,
        group: &[],
        measure,
        form: Form::Bars,
    };
    vec![
        bars("", &[], &["operation"], Measure::Cpu),
        bars("slowest of a thousand puts", &["load"], &[], Measure::P999),
        bars(
            "on disk",
            &["load"],
            &[],
            Measure::Figure("disk_bytes", "MiB"),
        ),
        bars(
            "written",
            &["load"],
            &[],
            Measure::Figure("written_bytes", "MiB"),
        ),
        bars(
            "memory",
            &["load"],
            &[],
            Measure::Figure("peak_memory_bytes", "MiB at most"),
        ),
    ]
}

/// A parameter of a row (or its operation) as text; empty where it has none.
pub fn facet(row: &Row, name: &str) -> String {
    if name == "operation" {
        return row.operation.clone();
    }
    match row.parameters.get(name) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The facets of a row as a label: `lookup, K=10`.
pub fn label(row: &Row, names: &[&str]) -> String {
    let parts = names.iter().filter_map(|name| {
        let value = facet(row, name);
        let bare = *name == "operation" || value.parse::<f64>().is_err() && value != "all";
        match (value.is_empty(), bare) {
            (true, _) => None,
            (false, true) => Some(value),
            (false, false) => Some(format!("{name}={value}")),
        }
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// A number on an axis: a parameter or a figure of a row.
pub fn number(row: &Row, name: &str) -> Option<f64> {
    let parameter = row.parameters.get(name).and_then(Value::as_f64);
    parameter.or_else(|| row.figures.get(name).copied())
}

/// Names in order of first appearance, each once.
pub fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// The names of the parameters that occur in the rows.
pub fn parameters<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    distinct(
        rows.iter()
            .flat_map(|row| row.parameters.keys().map(String::as_str)),
    )
}

/// The names of the parameters by which the rows differ.
pub fn varying<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut names = parameters(rows);
    names.retain(|name| {
        rows.iter()
            .any(|row| facet(row, name) != facet(rows[0], name))
    });
    names
}
