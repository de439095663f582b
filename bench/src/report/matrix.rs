//! The table of operations by subjects: CPU time and median of each, and how it stands to the peer
//! that everything is compared with.

use std::fmt::Write;

use super::page::escape;
use super::scale::short;
use super::sheet::{distinct, label, varying};
use crate::failure::Result;
use crate::measure::Row;

/// A subject whose name begins so is what others are compared with: the first of these that did the
/// same operation.
const REFERENCES: [&str; 2] = ["rocksdb blind", "rocksdb"];

/// The table; `None` for rows of a single subject or operation.
pub fn of(rows: &[&Row]) -> Result<Option<String>> {
    let mut names = vec!["operation"];
    names.extend(varying(rows));
    let subjects = distinct(rows.iter().map(|row| row.subject.as_str()));
    let operation = |row: &Row| label(row, &names);
    let mut operations: Vec<String> = Vec::new();
    // Parts of a mix have no CPU time of their own.
    for row in rows.iter().filter(|row| row.cpu_us > 0.0) {
        if !operations.contains(&operation(row)) {
            operations.push(operation(row));
        }
    }
    if subjects.len() < 2 || operations.len() < 2 {
        return Ok(None);
    }
    let cell = |name: &str, subject: &str| {
        rows.iter()
            .find(|row| row.subject == subject && operation(row) == name)
            .filter(|row| row.cpu_us > 0.0)
    };
    let mut table = String::from(
        "<div class=\"wide\"><table class=\"matrix\"><thead><tr><th>CPU µs (median µs)",
    );
    for subject in &subjects {
        write!(table, "<th>{}", escape(subject))?;
    }
    table.push_str("</thead><tbody>\n");
    for name in &operations {
        let reference = REFERENCES.iter().find_map(|begin| {
            let subject = subjects
                .iter()
                .filter(|s| s.to_lowercase().starts_with(begin));
            subject.filter_map(|subject| cell(name, subject)).next()
        });
        write!(table, "<tr><th>{}", escape(name))?;
        let row_of = |subject: &&str| cell(name, subject).map(|row| row.cpu_us);
        let best = subjects
            .iter()
            .filter_map(row_of)
            .fold(f64::INFINITY, f64::min);
        for subject in &subjects {
            let Some(row) = cell(name, subject) else {
                table.push_str("<td class=\"empty\">–");
                continue;
            };
            let class = if row.cpu_us == best {
                " class=\"best\""
            } else {
                ""
            };
            let (cpu, median) = (short(row.cpu_us), short(row.p50_us));
            write!(table, "<td{class}>{cpu} <small>({median})</small>")?;
            if let Some(reference) = reference.filter(|r| r.subject != row.subject) {
                let times = reference.cpu_us / row.cpu_us;
                let class = match times {
                    _ if times >= 1.05 => "ahead",
                    _ if times <= 0.95 => "behind",
                    _ => "level",
                };
                write!(
                    table,
                    "<br><span class=\"{class}\">{}×</span>",
                    short(times)
                )?;
            }
        }
        table.push('\n');
    }
    table.push_str("</tbody></table></div>\n<p class=\"note\">");
    table.push_str("CPU time of the process per operation, and the median of the wall time; the least CPU time of a row in bold. ");
    if subjects
        .iter()
        .any(|s| s.to_lowercase().starts_with("rocksdb"))
    {
        table.push_str("× says how many times faster than RocksDB by CPU time (blind indexes where it has any).");
    }
    table.push_str("</p>\n");
    Ok(Some(table))
}
