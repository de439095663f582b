//! All rows as CSV.

use std::collections::BTreeSet;

use super::sheet::facet;
use crate::failure::Result;
use crate::measure::Row;

/// A line for each row; parameters and figures that occur anywhere have a column each.
pub fn csv(rows: &[Row]) -> Result<Vec<u8>> {
    let parameters: BTreeSet<&String> = rows.iter().flat_map(|row| row.parameters.keys()).collect();
    let figures: BTreeSet<&String> = rows.iter().flat_map(|row| row.figures.keys()).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let fixed = ["suite", "experiment", "subject", "operation"];
    let measured = [
        "repeat",
        "ops",
        "seconds",
        "ops_per_second",
        "cpu_us",
        "p50_us",
        "p99_us",
        "p999_us",
        "max_us",
    ];
    let mut header: Vec<&str> = fixed.to_vec();
    header.extend(parameters.iter().map(|name| name.as_str()));
    header.extend(measured);
    header.extend(figures.iter().map(|name| name.as_str()));
    writer.write_record(&header)?;
    for row in rows {
        let mut cells = vec![
            row.suite.clone(),
            row.experiment.clone(),
            row.subject.clone(),
            row.operation.clone(),
        ];
        cells.extend(parameters.iter().map(|name| facet(row, name)));
        cells.extend([row.repeat.to_string(), row.ops.to_string()]);
        let measured = [
            row.seconds,
            row.ops_per_second(),
            row.cpu_us,
            row.p50_us,
            row.p99_us,
            row.p999_us,
            row.max_us,
        ];
        cells.extend(measured.map(|value| format!("{value:.4}")));
        let figure = |name: &&String| row.figures.get(*name).map_or(String::new(), f64::to_string);
        cells.extend(figures.iter().map(figure));
        writer.write_record(&cells)?;
    }
    writer.flush()?;
    writer
        .into_inner()
        .map_err(|e| crate::failure::Failure::new(e.to_string()))
}
