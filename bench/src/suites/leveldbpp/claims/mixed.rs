//! Figures 12 to 15: mixed workloads over time, and what they access.

use super::{Found, LEVEL, Said, figure, least, listed, value};
use crate::measure::{Claim, Row};

const KINDS: [&str; 3] = ["embedded", "lazy", "composite"];
const MIXES: [(&str, &str, &str); 3] = [
    ("mixed-write", "write-heavy", "12a"),
    ("mixed-read", "read-heavy", "12b"),
    ("mixed-update", "update-heavy", "12c"),
];

pub(super) fn claims(found: &Found<'_>, out: &mut Vec<Claim>) {
    for (experiment, mix, source) in MIXES {
        out.extend(overall(found, experiment, mix, source));
        out.extend(accesses(found, experiment, mix));
    }
    out.extend(compaction(found));
}

fn last<'r>(
    found: &Found<'r>,
    experiment: &'r str,
    kind: &'r str,
    operation: &'r str,
) -> Option<&'r Row> {
    found.each(experiment, kind, operation).last()
}

/// The mean CPU time of all operations of the second half, when the store has grown.
fn mean(found: &Found<'_>, experiment: &'static str, kind: &'static str) -> Option<f64> {
    let windows: Vec<f64> = found
        .each(experiment, kind, "all")
        .map(|row| row.cpu_us)
        .collect();
    let half = &windows[windows.len() / 2..];
    (!half.is_empty()).then(|| half.iter().sum::<f64>() / half.len() as f64)
}

fn overall(found: &Found<'_>, experiment: &'static str, mix: &str, source: &str) -> Option<Claim> {
    let one = |kind: &'static str| Some((kind, mean(found, experiment, kind)?));
    let times: Vec<(&str, f64)> = KINDS.into_iter().map(one).collect::<Option<_>>()?;
    let [embedded, lazy, composite] = KINDS.map(|kind| value(&times, kind));
    let (text, expected, held) = match experiment {
        "mixed-write" => (
            "lazy is best overall",
            "lazy least, or level",
            least(&times, "lazy"),
        ),
        "mixed-read" => (
            "lazy is best overall, embedded worst",
            "lazy least, or level; embedded most",
            least(&times, "lazy") && embedded >= lazy.max(composite),
        ),
        _ => (
            "composite is slightly better than lazy as the store grows",
            "composite at most level with lazy",
            composite <= lazy * LEVEL,
        ),
    };
    let lookups =
        |kind| last(found, experiment, kind, "lookup").map_or(0.0, |row| figure(row, "mean_us"));
    let puts =
        |kind| last(found, experiment, kind, "put").map_or(0.0, |row| figure(row, "mean_us"));
    let parts = |of: &dyn Fn(&'static str) -> f64| listed(&KINDS.map(|kind| (kind, of(kind))));
    Some(found.claim(
        experiment,
        &format!("figure {source}"),
        &format!("{mix}: {text}"),
        Said {
            expected: expected.into(),
            measured: format!("CPU µs an operation in the second half: {}", listed(&times)),
            held,
            why: format!(
                "at the end a put takes ({}) and a lookup ({}) µs on average; merging lists parses no JSON here, \
                 and composite lookups fetch only what is wanted",
                parts(&puts),
                parts(&lookups)
            ),
        },
    ))
}

fn accesses(found: &Found<'_>, experiment: &'static str, mix: &str) -> Option<Claim> {
    let per_op = |kind: &'static str, operation: &'static str| {
        let rows: Vec<&Row> = found.each(experiment, kind, operation).collect();
        let ops: u64 = rows.iter().map(|row| row.ops).sum();
        Some((kind, figure(rows.last()?, "accesses") / ops.max(1) as f64))
    };
    let of = |operation| {
        KINDS
            .into_iter()
            .map(|kind| per_op(kind, operation))
            .collect::<Option<Vec<_>>>()
    };
    let (gets, lookups) = (of("get")?, of("lookup")?);
    let (low, high) = gets.iter().fold((f64::INFINITY, 0.0f64), |(l, h), g| {
        (l.min(g.1), h.max(g.1))
    });
    let source = match experiment {
        "mixed-write" => "figures 13b and 13c",
        "mixed-read" => "figures 14b and 14c",
        _ => "figures 15b and 15c",
    };
    Some(found.claim(
        experiment,
        source,
        &format!("{mix}: gets access the same with every kind, lookups the least with lazy"),
        Said {
            expected: "gets within 25 % (memtables hold a part); lazy's lookups least, or level".into(),
            measured: format!("blocks a get: {}; a lookup: {}", listed(&gets), listed(&lookups)),
            held: high <= low * 1.25 && least(&lookups, "lazy"),
            why: "a stand-alone lookup reads its index and then a block for each record; embedded reads the blocks of the \
                  records alone, and its sequence bounds stop it as soon as the newest are found".into(),
        },
    ))
}

fn compaction(found: &Found<'_>) -> Option<Claim> {
    let written = |experiment: &'static str| {
        let one = |kind: &'static str| {
            Some((
                kind,
                figure(last(found, experiment, kind, "all")?, "written_bytes") / 1048576.0,
            ))
        };
        KINDS.into_iter().map(one).collect::<Option<Vec<_>>>()
    };
    let (write, update) = (written("mixed-write")?, written("mixed-update")?);
    let held = least(&write, "embedded") && least(&update, "embedded");
    Some(
        found.claim(
            "mixed-update",
            "figures 13a and 15a",
            "embedded writes the least where there are no updates",
            Said {
                expected:
                    "embedded least in the write-heavy mix (the paper has it higher with updates)"
                        .into(),
                measured: format!(
                    "MiB written, write-heavy: {}; update-heavy: {}",
                    listed(&write),
                    listed(&update)
                ),
                held: least(&write, "embedded"),
                why: if held {
                    String::new()
                } else {
                    "bytes of log and merges together; index entries are a few per cent of them"
                        .into()
                },
            },
        ),
    )
}
