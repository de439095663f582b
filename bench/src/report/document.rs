//! The figures of a run as Markdown, for a repository to show: charts, then tables of one metric each.

use std::fmt::Write;

use super::figures::Section;
use super::scale::short;
use super::sheet::{MIB, Measure, distinct, label, varying};
use crate::failure::Result;
use crate::measure::{Results, Row};

/// What the tables show: a heading, and the value of a row.
type Metric = (&'static str, fn(&Row) -> Option<f64>);

const PER_OPERATION: [Metric; 8] = [
    ("CPU time of the whole process per operation, µs", |row| {
        Measure::Cpu.of(row)
    }),
    ("Mean of the wall time, µs", |row| {
        row.figures.get("mean_us").copied()
    }),
    ("Median of the wall time, µs", |row| positive(row.p50_us)),
    ("99th percentile of the wall time, µs", |row| {
        positive(row.p99_us)
    }),
    (
        "Data blocks an operation needs, from the cache or not",
        |row| row.figures.get("blocks").copied(),
    ),
    ("Memory at most, MiB", |row| {
        row.figures.get("memory_bytes").map(|bytes| bytes / MIB)
    }),
    ("Bytes of memory a subscription", |row| {
        row.figures.get("memory_per_subscription").copied()
    }),
    ("Operations a minute", |row| {
        row.figures.get("a_minute").copied()
    }),
];

/// Figures of a load, which are of the store and not of an operation.
const OF_THE_LOAD: [(&str, &str); 3] = [
    ("disk_bytes", "on disk, MiB"),
    ("written_bytes", "written, MiB"),
    ("peak_memory_bytes", "memory at most, MiB"),
];

fn positive(value: f64) -> Option<f64> {
    (value > 0.0 && value.is_finite()).then_some(value)
}

/// The text. `charts` names the file of each picture of each section.
pub fn markdown(
    results: &Results,
    sections: &[Section<'_>],
    charts: impl Fn(&Section<'_>, usize) -> String,
) -> Result<String> {
    let mut text = String::from(
        "# Figures\n\nMade by `bench report` of `results.jsonl` beside it; what was measured and how is in `bench/README.md`.\n\n",
    );
    for setting in &results.settings {
        writeln!(text, "- {}: {}", setting.name, setting.value)?;
    }
    for section in sections {
        writeln!(text, "\n## {}\n", section.title)?;
        if !section.asks.is_empty() {
            writeln!(text, "{}\n", section.asks)?;
        }
        for (at, picture) in section.pictures.iter().enumerate() {
            writeln!(text, "![{}]({})", picture.caption, charts(section, at))?;
        }
        let metrics = PER_OPERATION.iter().filter(|_| section.table);
        for &(name, of) in metrics {
            table(&mut text, name, &section.rows, of)?;
        }
        load(&mut text, &section.rows)?;
    }
    Ok(text)
}

/// Subjects by operations, of one metric.
fn table(text: &mut String, name: &str, rows: &[&Row], of: fn(&Row) -> Option<f64>) -> Result<()> {
    let mut facets = vec!["operation"];
    facets.extend(varying(rows));
    let operation = |row: &Row| label(row, &facets);
    let mut operations: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| of(row).is_some()) {
        if !operations.contains(&operation(row)) {
            operations.push(operation(row));
        }
    }
    if operations.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{name}:\n")?;
    writeln!(text, "| | {} |", operations.join(" | "))?;
    writeln!(text, "| --- |{}", " ---: |".repeat(operations.len()))?;
    for subject in distinct(rows.iter().map(|row| row.subject.as_str())) {
        write!(text, "| {subject} |")?;
        for name in &operations {
            let found = rows
                .iter()
                .find(|row| row.subject == subject && operation(row) == *name);
            match found.and_then(|row| of(row)) {
                Some(value) => write!(text, " {} |", short(value))?,
                None => write!(text, " |")?,
            }
        }
        text.push('\n');
    }
    Ok(())
}

fn load(text: &mut String, rows: &[&Row]) -> Result<()> {
    let loads: Vec<&&Row> = rows.iter().filter(|row| row.operation == "load").collect();
    let has = |name: &str| loads.iter().any(|row| row.figures.contains_key(name));
    let figures: Vec<_> = OF_THE_LOAD.iter().filter(|(name, _)| has(name)).collect();
    if figures.is_empty() {
        return Ok(());
    }
    let headings: Vec<&str> = figures.iter().map(|(_, heading)| *heading).collect();
    writeln!(text, "\nAfter the load, and the longest put:\n")?;
    writeln!(text, "| | {} | longest put, ms |", headings.join(" | "))?;
    writeln!(text, "| --- |{}", " ---: |".repeat(headings.len() + 1))?;
    for row in loads {
        write!(text, "| {} |", row.subject)?;
        for (name, _) in &figures {
            match Measure::Figure(name, "").of(row) {
                Some(value) => write!(text, " {value:.0} |")?,
                None => write!(text, " |")?,
            }
        }
        writeln!(text, " {} |", short(row.max_us / 1e3))?;
    }
    Ok(())
}
