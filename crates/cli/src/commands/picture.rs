//! Statistics for people: tables, and a small picture of the levels.

use std::fmt::Write;

use esker::stats::DatasetStats;
use serde_json::{Map, Value};

use crate::output;

/// Any statistics as text: nested objects indented, lists of objects as tables.
pub(crate) fn table(stats: &Value) -> String {
    let mut text = String::new();
    match stats {
        Value::Object(fields) => object(fields, 0, &mut text),
        other => {
            let _ = writeln!(text, "{}", scalar("", other));
        }
    }
    text
}

fn object(fields: &Map<String, Value>, indent: usize, text: &mut String) {
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    for (name, value) in fields {
        match value {
            Value::Object(inner) => {
                let _ = writeln!(text, "{:indent$}{name}", "");
                object(inner, indent + 2, text);
            }
            Value::Array(rows) if rows.iter().any(Value::is_object) => {
                let _ = writeln!(text, "{:indent$}{name}", "");
                list(rows, indent + 2, text);
            }
            other => {
                let value = scalar(name, other);
                let _ = writeln!(text, "{:indent$}{name:width$}  {value}", "");
            }
        }
    }
}

/// A list of objects: a table if all are flat, else one below the other.
fn list(rows: &[Value], indent: usize, text: &mut String) {
    let flat = |value: &Value| !matches!(value, Value::Object(_) | Value::Array(_));
    let objects: Vec<&Map<String, Value>> = rows.iter().filter_map(Value::as_object).collect();
    if !objects.iter().all(|row| row.values().all(flat)) {
        for row in objects {
            object(row, indent, text);
            text.push('\n');
        }
        return;
    }
    let mut names: Vec<&String> = Vec::new();
    for name in objects.iter().flat_map(|row| row.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut lines = vec![names.iter().map(ToString::to_string).collect::<Vec<_>>()];
    for row in &objects {
        let cell = |name: &&String| row.get(*name).map_or(String::new(), |v| scalar(name, v));
        lines.push(names.iter().map(cell).collect());
    }
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|l| l.get(column))
            .map(String::len)
            .max()
    };
    let widths: Vec<usize> = (0..names.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    for line in &lines {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"));
        let _ = writeln!(
            text,
            "{:indent$}{}",
            "",
            cells.collect::<Vec<_>>().join("  ")
        );
    }
}

fn scalar(name: &str, value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_u64() {
            Some(bytes) if name.contains("bytes") => output::bytes(bytes),
            Some(count) => output::thousands(count),
            None => number.to_string(),
        },
        Value::String(text) => text.clone(),
        Value::Null => "-".to_string(),
        other => other.to_string(),
    }
}

/// The levels of a dataset's trees, newest first; the bar grows with the level's size:
///
/// ```text
/// data                             entries      bytes  files
///   memory  ##                       5,000    2.6 MiB
///   level 0 ####                    20,000    6.0 MiB      2
/// ```
pub(crate) fn layers(stats: &DatasetStats) -> String {
    const BAR: f64 = 28.0;
    let levels = stats.trees.iter().flat_map(|tree| &tree.levels);
    let largest = levels.map(|level| level.bytes).max().unwrap_or(0).max(1);
    let mut text = String::new();
    let layer = |text: &mut String, name: &str, entries: u64, bytes: u64, files: String| {
        // The square root keeps small levels visible beside large ones.
        let length = ((bytes as f64 / largest as f64).sqrt().min(1.0) * BAR).ceil() as usize;
        let (entries, bar) = (output::thousands(entries), "#".repeat(length));
        let bytes = output::bytes(bytes);
        let _ = writeln!(
            text,
            "  {name:8} {bar:28} {entries:>12} {bytes:>12} {files:>6}"
        );
    };
    for tree in &stats.trees {
        // As wide as name and bar of a level; a longer name takes the place of blanks.
        let _ = writeln!(
            text,
            "{:39} {:>12} {:>12} {:>6}",
            tree.name, "entries", "bytes", "files"
        );
        let memory = &tree.memtable;
        let bytes = memory.bytes as u64;
        layer(&mut text, "memory", memory.entries, bytes, String::new());
        for level in tree.levels.iter().filter(|level| level.files > 0) {
            let name = format!("level {}", level.level);
            let files = output::thousands(level.files as u64);
            layer(&mut text, &name, level.entries, level.bytes, files);
        }
    }
    text
}
