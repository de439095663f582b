//! What the paper found and what Esker is to reach, checked on the medians of a run.

use serde_json::Value as Json;

use super::SUITE;
use crate::measure::{Claim, Row};
use crate::report::scale::short;
use crate::suites::upkeep::found::{CPU, Cost, Found, Ratio, WALL};

/// The shares of the records for which blocks are compared.
const SHARES: [&str; 4] = ["1e-6", "1e-5", "1e-4", "1e-3"];

fn index_blocks(row: &Row) -> f64 {
    figure(row, "index_blocks")
}

fn amplification(row: &Row) -> f64 {
    figure(row, "index_table_amplification")
}

fn p50(row: &Row) -> f64 {
    row.p50_us
}

fn peak(row: &Row) -> f64 {
    figure(row, "peak_memory_bytes")
}

fn figure(row: &Row, name: &str) -> f64 {
    row.figures.get(name).copied().unwrap_or_default()
}

const INDEX_BLOCKS: (Cost, &str) = (index_blocks, "blocks of the index");
const AMPLIFICATION: (Cost, &str) = (amplification, "bytes written for each that a flush wrote");
const P50: (Cost, &str) = (p50, "µs in the median");

/// The claims of a run, of those experiments that it has.
pub fn all(rows: &[Row]) -> Vec<Claim> {
    let found = Found {
        suite: SUITE,
        paper: "Spatial-LSM",
        rows,
    };
    let mut claims = Vec::new();
    layouts(&found, &mut claims);
    beside_sqlite(&found, &mut claims);
    inserts(&found, &mut claims);
    nearest(&found, &mut claims);
    memory(&found, &mut claims);
    claims
}

fn spread() -> (&'static str, Json) {
    ("data", "spread".into())
}

fn selectivity(share: &str) -> (&'static str, Json) {
    ("selectivity", share.into())
}

/// The row of the most points of an experiment: there may be fewer, to see how questions grow.
fn largest<'r>(
    found: &Found<'r>,
    (experiment, subject, operation): (&str, &str, &str),
    parameters: &[(&str, Json)],
) -> Option<&'r Row> {
    of_points(found, (experiment, subject, operation), parameters).pop()
}

/// The rows by the number of points, fewest first.
fn of_points<'r>(
    found: &Found<'r>,
    (experiment, subject, operation): (&str, &str, &str),
    parameters: &[(&str, Json)],
) -> Vec<&'r Row> {
    let fits = |row: &&Row| {
        row.suite == SUITE
            && (row.experiment.as_str(), row.subject.as_str()) == (experiment, subject)
            && row.operation == operation
            && (parameters.iter()).all(|(name, value)| row.parameters.get(*name) == Some(value))
    };
    let mut rows: Vec<&Row> = found.rows.iter().filter(fits).collect();
    rows.sort_by_key(|row| points(row));
    rows
}

fn points(row: &Row) -> u64 {
    let points = row.parameters.get("points").and_then(Json::as_u64);
    points.unwrap_or_default()
}

/// Figures 5.3 and 5.4.
fn layouts(found: &Found<'_>, out: &mut Vec<Claim>) {
    let count = |subject: &str, share: &str| {
        let parameters = [spread(), selectivity(share)];
        found.one("query-time", subject, "count", &parameters)
    };
    for layout in ["z", "mbr"] {
        for baseline in ["stacked", "stacked unbounded"] {
            for share in SHARES {
                out.extend(found.check(Ratio {
                    experiment: "query-time",
                    figure: "",
                    text: format!(
                        "a rectangle with {share} of the records takes `{layout}` a fifth of the blocks of `{baseline}`"
                    ),
                    cost: INDEX_BLOCKS,
                    of: count(layout, share),
                    to: count(baseline, share),
                    most: 0.2,
                    why: "there are too few runs for a fifth, or the answer itself fills more blocks than runs add",
                }));
            }
        }
        for share in ["point", "1e-6", "1e-3", "1e-1"] {
            out.extend(found.check(Ratio {
                experiment: "query-time",
                figure: "figure 5.4",
                text: format!("`{layout}` answers quicker than `stacked` ({share})"),
                cost: WALL,
                of: count(layout, share),
                to: count("stacked", share),
                most: 1.0,
                why: "most of the time goes to the entries that are found, which are the same",
            }));
        }
        let insert = |subject: &str| {
            let parameters = [spread()];
            found.one("write-amplification", subject, "insert", &parameters)
        };
        out.extend(found.check(Ratio {
            experiment: "write-amplification",
            figure: "",
            text: format!("`{layout}` writes at most 1.3 times as much as levels by key"),
            cost: AMPLIFICATION,
            of: insert(layout),
            to: insert("by key"),
            most: 1.3,
            why: "boxes that are cut along the edges of others overlap more of them than ranges of keys do",
        }));
        out.extend(found.check(Ratio {
            experiment: "write-amplification",
            figure: "figure 5.3",
            text: format!("`{layout}` writes less than `stacked` as long as there is little data"),
            cost: AMPLIFICATION,
            of: early(found, layout),
            to: early(found, "stacked"),
            most: 1.0,
            why: "tiers write a record once for each tier, levels several times a level; with two levels that is about the same",
        }));
    }
}

/// The row of a line over time when a quarter of the records is there.
fn early<'r>(found: &Found<'r>, subject: &str) -> Option<&'r Row> {
    let line = ("write-amplification", subject, "ingest");
    let mut rows = of_points(found, line, &[spread()]);
    rows.sort_by_key(|row| row.parameters.get("records").and_then(Json::as_u64));
    rows.get(rows.len() / 4).copied()
}

fn beside_sqlite(found: &Found<'_>, out: &mut Vec<Claim>) {
    const SQLITE: &str = "sqlite r*tree";
    for layout in ["z", "mbr"] {
        let insert = |subject| largest(found, ("points", subject, "insert"), &[spread()]);
        out.extend(found.check(Ratio {
            experiment: "points",
            figure: "",
            text: format!("`{layout}` inserts 5 times as fast as SQLite"),
            cost: WALL,
            of: insert(layout),
            to: insert(SQLITE),
            most: 0.2,
            why: "",
        }));
        for data in ["aircraft", "objects"] {
            let moved =
                |subject| largest(found, ("moves", subject, "move"), &[("data", data.into())]);
            out.extend(found.check(Ratio {
                experiment: "moves",
                figure: "",
                text: format!("`{layout}` moves objects 5 times as fast as SQLite ({data})"),
                cost: WALL,
                of: moved(layout),
                to: moved(SQLITE),
                most: 0.2,
                why: "",
            }));
        }
        let find = |subject| {
            let parameters = [spread(), selectivity("1e-6")];
            largest(found, ("points", subject, "find"), &parameters)
        };
        out.extend(found.check(Ratio {
            experiment: "points",
            figure: "",
            text: format!("records in a rectangle with 1e-6 of them: `{layout}` level with SQLite"),
            cost: P50,
            of: find(layout),
            to: find(SQLITE),
            most: 1.0,
            why: "a query is planned and its ranges are cut before it reads; SQLite's statement is prepared",
        }));
    }
}

/// What a point adds to an insert, beside an entry of a number.
fn inserts(found: &Found<'_>, out: &mut Vec<Claim>) {
    let insert = |subject: &str| largest(found, ("points", subject, "insert"), &[spread()]);
    let adds = |subject: &str| {
        let (with, without) = (insert(subject)?, insert("no index")?);
        Some(Row {
            cpu_us: (with.cpu_us - without.cpu_us).max(0.0),
            ..with.clone()
        })
    };
    for layout in ["z", "mbr"] {
        let (of, to) = (adds(layout), adds("composite"));
        out.extend(found.check(Ratio {
            experiment: "points",
            figure: "",
            text: format!("a point in `{layout}` adds at most 1.5 times what a composite entry does to an insert"),
            cost: CPU,
            of: of.as_ref(),
            to: to.as_ref(),
            most: 1.5,
            why: "an entry has the point itself, 24 bytes, where a number has 8",
        }));
    }
}

/// The ten nearest: an absolute goal at a million points, and how they grow.
fn nearest(found: &Found<'_>, out: &mut Vec<Claim>) {
    const MOST: f64 = 150.0;
    for layout in ["z", "mbr"] {
        let rows = of_points(found, ("points", layout, "nearest"), &[spread()]);
        if let Some(row) = rows.iter().rfind(|row| points(row) <= 1_000_000) {
            let held = row.p50_us <= MOST;
            out.push(Claim {
                suite: SUITE.to_string(),
                experiment: "points".to_string(),
                text: format!("the ten nearest of a million points in 150 µs (`{layout}`)"),
                source: "goal".to_string(),
                expected: format!("at most {} µs in the median", short(MOST)),
                measured: format!("{} µs at {} points", short(row.p50_us), points(row)),
                held,
                why: match held {
                    true => String::new(),
                    false => "every record of the answer is read, most from blocks of their own"
                        .to_string(),
                },
            });
        }
        if let [fewer, .., most] = rows[..] {
            out.extend(found.check(Ratio {
                experiment: "points",
                figure: "",
                text: format!("the ten nearest of ten times as many points take twice as long at most (`{layout}`)"),
                cost: P50,
                of: Some(most),
                to: Some(fewer),
                most: 2.0,
                why: "",
            }));
        }
    }
}

/// Peak memory beside the budget.
fn memory(found: &Found<'_>, out: &mut Vec<Claim>) {
    let rows = |subject| of_points(found, ("query-time", subject, "nearest"), &[spread()]);
    for layout in ["z", "mbr", "stacked", "embedded"] {
        for row in rows(layout) {
            let (peak, budget) = (peak(row), figure(row, "budget_bytes"));
            let mib = |bytes: f64| short(bytes / 1_048_576.0);
            out.push(Claim {
                suite: SUITE.to_string(),
                experiment: "query-time".to_string(),
                text: format!("memory stays within the budget (`{layout}`)"),
                source: "goal".to_string(),
                expected: format!("at most {} MiB", mib(budget)),
                measured: format!("{} MiB of {}", mib(peak), mib(budget)),
                held: peak <= budget,
                why: match peak <= budget {
                    true => String::new(),
                    false => "the process has more than the store lends: code, stacks, what the allocator holds on to".to_string(),
                },
            });
        }
    }
}
