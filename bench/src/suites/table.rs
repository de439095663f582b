//! The figures as a table for the terminal.

use std::collections::BTreeMap;

use crate::measure::{Claim, Row, Setting};

/// Prints under what everything was measured.
pub fn print_settings(settings: &[Setting]) {
    println!();
    for Setting { name, value } in settings {
        println!("{name}: {value}");
    }
}

/// Prints the medians of a run: speed, then space.
pub fn print(rows: &[Row]) {
    let mut experiments: Vec<&str> = Vec::new();
    for row in rows {
        if !experiments.contains(&row.experiment.as_str()) {
            experiments.push(&row.experiment);
        }
    }
    for experiment in experiments {
        let rows: Vec<&Row> = rows
            .iter()
            .filter(|row| row.experiment == experiment)
            .collect();
        println!(
            "\n{experiment}: median and 99th percentile of wall time / CPU time per operation, in µs\n"
        );
        speed(&rows);
        if rows.iter().any(|row| row.operation == "load") {
            println!("\n{experiment}: space, and the slowest writes\n");
            space(&rows);
        }
    }
}

/// Prints what was claimed, and whether it held.
pub fn print_claims(claims: &[Claim]) {
    let held = claims.iter().filter(|claim| claim.held).count();
    println!("\nClaims: {held} of {} held\n", claims.len());
    for claim in claims {
        let sign = if claim.held { "yes" } else { "NO " };
        println!(
            "{sign}  {} ({}): {}",
            claim.text, claim.source, claim.measured
        );
    }
}

fn speed(rows: &[&Row]) {
    let mut operations: Vec<&str> = Vec::new();
    for row in rows {
        let known = operations.contains(&row.operation.as_str());
        if !known && !row.operation.starts_with("mixed ") {
            operations.push(&row.operation);
        }
    }
    let mut lines = vec![head(&operations)];
    for (subject, of) in by_subject(rows) {
        let mut line = vec![subject.to_string()];
        for operation in &operations {
            let row = of.iter().find(|row| row.operation == *operation);
            line.push(row.map_or_else(String::new, |row| {
                let [p50, p99, cpu] = [row.p50_us, row.p99_us, row.cpu_us].map(micros);
                format!("{p50} {p99} / {cpu}")
            }));
        }
        lines.push(line);
    }
    lay_out(&lines);
}

fn space(rows: &[&Row]) {
    let columns = [
        "ops/s load",
        "p99.9 ms",
        "max ms",
        "ops/s mixed",
        "p99.9 ms",
        "max ms",
        "disk MiB",
        "after mixed",
        "written MiB",
        "times",
        "peak MiB",
    ];
    let mut lines = vec![head(&columns)];
    for (subject, of) in by_subject(rows) {
        let mut line = vec![subject.to_string()];
        let phase = |name: &str| of.iter().find(|row| row.operation == name);
        for phase in [phase("load"), phase("mixed")] {
            line.push(phase.map_or_else(String::new, |row| {
                format!("{:.0}k", row.ops_per_second() / 1e3)
            }));
            line.push(phase.map_or_else(String::new, |row| format!("{:.2}", row.p999_us / 1e3)));
            line.push(phase.map_or_else(String::new, |row| format!("{:.1}", row.max_us / 1e3)));
        }
        let figure = |phase: Option<&&Row>, name: &str, unit: f64, digits: usize| {
            let figure = phase.and_then(|row| row.figures.get(name));
            figure.map_or_else(String::new, |n| format!("{:.digits$}", n / unit))
        };
        const MIB: f64 = 1048576.0;
        line.push(figure(phase("load"), "disk_bytes", MIB, 0));
        line.push(figure(phase("mixed"), "disk_bytes", MIB, 0));
        line.push(figure(phase("load"), "written_bytes", MIB, 0));
        line.push(figure(phase("load"), "write_amplification", 1.0, 2));
        line.push(figure(phase("load"), "peak_memory_bytes", MIB, 0));
        lines.push(line);
    }
    lay_out(&lines);
}

fn head(columns: &[&str]) -> Vec<String> {
    let names = columns.iter().map(|name| name.to_string());
    std::iter::once(String::new()).chain(names).collect()
}

/// The rows of each subject, in order of first appearance.
fn by_subject<'r>(rows: &[&'r Row]) -> Vec<(&'r str, Vec<&'r Row>)> {
    let mut order: Vec<&str> = Vec::new();
    let mut groups: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for &row in rows {
        if !order.contains(&row.subject.as_str()) {
            order.push(&row.subject);
        }
        groups.entry(&row.subject).or_default().push(row);
    }
    let rows_of = |subject| (subject, groups.remove(subject).unwrap_or_default());
    order.into_iter().map(rows_of).collect()
}

/// A time in µs, short.
fn micros(us: f64) -> String {
    match us {
        n if n < 9.95 => format!("{n:.1}"),
        n if n < 9_999.5 => format!("{n:.0}"),
        n => format!("{:.0}k", n / 1e3),
    }
}

/// Prints lines with their columns below each other.
fn lay_out(lines: &[Vec<String>]) {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |at: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(at))
            .map(|c| c.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    for line in lines {
        let mut text = String::new();
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            match at {
                0 => text.push_str(&format!("{cell:<width$}")),
                _ => text.push_str(&format!("  {cell:>width$}")),
            }
        }
        println!("{}", text.trim_end());
    }
}
