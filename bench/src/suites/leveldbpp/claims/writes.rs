//! Figures 8 and 9: space, puts, gets; puts as the store grows.

use serde_json::Value as Json;

use super::{Found, LEVEL, Said, figure, least, listed, value};
use crate::measure::{Claim, Row};
use crate::report::scale::short;

const KINDS: [&str; 3] = ["embedded", "lazy", "composite"];

pub(super) fn claims(found: &Found<'_>, out: &mut Vec<Claim>) {
    for index in ["user", "time"] {
        out.extend(space(found, index));
        out.extend(puts(found, index));
        out.extend(over_time(found, index));
    }
    out.extend(composite_smallest(found));
    out.extend(eager_collapses(found));
    out.extend(gets(found));
}

fn basic<'r>(found: &Found<'r>, kind: &'r str, operation: &'r str, index: &str) -> Option<&'r Row> {
    found.one("basics", kind, operation, &[("index", Json::from(index))])
}

/// A figure of several kinds; `None` unless all were measured.
fn of<'k>(
    found: &Found<'k>,
    kinds: &[&'k str],
    operation: &'k str,
    index: &str,
    figure: impl Fn(&Row) -> f64,
) -> Option<Vec<(&'k str, f64)>> {
    let one = |kind: &&'k str| Some((*kind, figure(basic(found, kind, operation, index)?)));
    kinds.iter().map(one).collect()
}

fn space(found: &Found<'_>, index: &str) -> Option<Claim> {
    let kinds = ["none", "embedded", "lazy", "composite"];
    let sizes = of(found, &kinds, "put", index, |row| {
        figure(row, "bytes_per_record")
    })?;
    let over = (value(&sizes, "embedded") / value(&sizes, "none") - 1.0) * 100.0;
    Some(found.claim(
        "basics",
        "figure 8a",
        &format!("embedded on {index} is the smallest index, close to none at all"),
        Said {
            expected: "embedded below lazy and composite, within 5 % of none".into(),
            measured: format!("bytes a record: {}; embedded {over:+.1} %", listed(&sizes)),
            held: least(&sizes[1..], "embedded") && over <= 5.0,
            why: format!(
                "zone maps and filters of a block cost {:.1} bytes a record, of {:.0}; an index entry of the \
                 others, shared prefixes cut and compressed, {:.1}",
                value(&sizes, "embedded") - value(&sizes, "none"),
                value(&sizes, "none"),
                value(&sizes, "lazy").min(value(&sizes, "composite")) - value(&sizes, "none"),
            ),
        },
    ))
}

fn composite_smallest(found: &Found<'_>) -> Option<Claim> {
    let sizes = of(found, &["lazy", "composite"], "put", "user", |row| {
        figure(row, "index_bytes")
    })?;
    let records = figure(basic(found, "lazy", "put", "user")?, "records").max(1.0);
    let each = |kind| value(&sizes, kind) / records;
    Some(found.claim(
        "basics",
        "figure 8a",
        "composite takes less space than lazy",
        Said {
            expected: "composite below lazy".into(),
            measured: format!("bytes an index entry: lazy {:.1}, composite {:.1}", each("lazy"), each("composite")),
            held: each("composite") <= each("lazy") * LEVEL,
            why: format!(
                "the paper's lists are JSON text and repeat whole keys; these are binary, each key written \
                 as its difference to the one before: {:.1} bytes an entry",
                each("lazy")
            ),
        },
    ))
}

fn puts(found: &Found<'_>, index: &str) -> Option<Claim> {
    let times = of(
        found,
        &["none", "embedded", "lazy", "composite"],
        "put",
        index,
        |row| row.cpu_us,
    )?;
    let alone = ["lazy", "composite"].map(|kind| value(&times, kind));
    let over = (value(&times, "embedded") / value(&times, "none") - 1.0) * 100.0;
    Some(found.claim(
        "basics",
        "figure 8b",
        &format!("embedded on {index} is the fastest to write, composite next"),
        Said {
            expected: "embedded, then composite, then lazy".into(),
            measured: format!("CPU µs a put: {}; embedded {over:+.0} % over none", listed(&times)),
            held: least(&times[1..], "embedded") && alone[1] <= alone[0] * LEVEL,
            why: format!(
                "lists are merged without parsing here, so lazy ({}) writes fewer and smaller entries than \
                 composite ({}); in the paper it parses JSON at each merge",
                short(alone[0]),
                short(alone[1]),
            ),
        },
    ))
}

fn eager_collapses(found: &Found<'_>) -> Option<Claim> {
    let (eager, lazy) = (
        basic(found, "eager", "put", "user")?,
        basic(found, "lazy", "put", "user")?,
    );
    let time = basic(found, "eager", "put", "time").map(|row| row.cpu_us);
    let times = eager.cpu_us / lazy.cpu_us;
    Some(found.claim(
        "basics",
        "figures 8b and 9c",
        "eager collapses on users: it writes a whole list at each put",
        Said {
            expected: "several times the cost of lazy, growing with the lists".into(),
            measured: format!(
                "{times:.1} times lazy's CPU a put, at {} records against {}; {} times the bytes written to tables{}",
                short(figure(eager, "records")),
                short(figure(lazy, "records")),
                short(figure(eager, "table_bytes_written_per_put") / figure(lazy, "table_bytes_written_per_put")),
                time.map_or(String::new(), |time| format!("; on time {} µs", short(time))),
            ),
            held: times >= 3.0,
            why: format!(
                "lists are short at this size: {} records over all users; their cost grows with them",
                short(figure(eager, "records"))
            ),
        },
    ))
}

fn gets(found: &Found<'_>) -> Option<Claim> {
    let kinds = ["none", "embedded", "lazy", "composite"];
    let blocks = of(found, &kinds, "get", "user", |row| figure(row, "blocks"))?;
    let times = of(found, &kinds, "get", "user", |row| row.p50_us)?;
    let least = times.iter().map(|t| t.1).fold(f64::INFINITY, f64::min);
    let most = times.iter().map(|t| t.1).fold(0.0, f64::max);
    let spread = (most / least - 1.0) * 100.0;
    let same = blocks.iter().all(|b| (b.1 - 1.0).abs() < 0.1);
    Some(found.claim(
        "basics",
        "figure 8c, table 3",
        "a get costs the same with every kind: one data block",
        Said {
            expected: "1 block each, medians within 30 %".into(),
            measured: format!("blocks: {}; median µs: {}", listed(&blocks), listed(&times)),
            held: same && spread <= 30.0,
            why: format!(
                "blocks are what the kinds could change; the medians differ by {spread:.0} %, with the number of runs \
                 that the last merges left"
            ),
        },
    ))
}

/// Growth of a kind's put: the last quarter of the windows against the second (the first fills empty
/// levels), or of eager, whose lists grow from the start, against the first.
fn growth(found: &Found<'_>, kind: &str, index: &str) -> Option<f64> {
    let index = Json::from(index);
    let windows: Vec<f64> = found
        .rows
        .iter()
        .filter(|row| row.experiment == "put-over-time" && row.subject == kind)
        .filter(|row| row.parameters.get("data") == Some(&Json::from(found.set)))
        .filter(|row| row.parameters.get("index") == Some(&index))
        .map(|row| row.cpu_us)
        .collect();
    let quarter = windows.len() / 4;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let from = if kind == "eager" { 0 } else { quarter };
    (quarter > 0)
        .then(|| mean(&windows[windows.len() - quarter..]) / mean(&windows[from..from + quarter]))
}

fn over_time(found: &Found<'_>, index: &str) -> Option<Claim> {
    let growths: Option<Vec<(&str, f64)>> = KINDS
        .into_iter()
        .map(|kind| Some((kind, growth(found, kind, index)?)))
        .collect();
    let growths = growths?;
    let eager = growth(found, "eager", index)?;
    let flat = growths.iter().all(|g| g.1 <= 1.5);
    let (expected, held) = match index {
        "user" => ("the others flat; eager rising", flat && eager > 1.2),
        _ => (
            "all flat, eager too: its lists of a second are short",
            flat && eager <= 1.5,
        ),
    };
    Some(found.claim(
        "put-over-time",
        if index == "user" { "figure 9b" } else { "figure 9a" },
        &format!("puts with an index on {index} cost the same as the store grows"),
        Said {
            expected: expected.into(),
            measured: format!("last quarter to second: {}; eager, last to first {eager:.2}", listed(&growths)),
            held,
            why: if flat {
                format!("the others are flat; eager's cost changed by {eager:.2} over its load")
            } else {
                "a merge of a lower level falls into one quarter and not into another: at this size there are few"
                    .into()
            },
        },
    ))
}
