//! Appendix C: filter length (table 8), compression (figures 18, 19), threads (figure 20); and the write
//! amplification that table 5 expects.

use serde_json::Value as Json;

use super::{Found, Said, figure, listed, value};
use crate::measure::{Claim, Row};
use crate::report::scale::short;
use crate::report::sheet::number;

const KINDS: [&str; 3] = ["embedded", "lazy", "composite"];

pub(super) fn claims(found: &Found<'_>, out: &mut Vec<Claim>) {
    out.extend(filters(found));
    out.extend(compressed_order(found));
    out.extend(compressed_puts(found));
    out.extend(threads(found));
    out.extend(amplification(found));
}

fn filters(found: &Found<'_>) -> Option<Claim> {
    let bits = |row: &Row| number(row, "bits").unwrap_or_default();
    let mut absent: Vec<&Row> = found
        .each("filter-length", "embedded", "lookup of an absent value")
        .collect();
    absent.sort_by(|a, b| bits(a).total_cmp(&bits(b)));
    let lookup = |of: f64| {
        let rows = found.each("filter-length", "embedded", "lookup");
        rows.filter(|row| row.parameters.get("K") == Some(&10.into()))
            .find(|row| bits(row) == of)
            .map(|row| row.cpu_us)
    };
    let size = |of: f64| {
        let mut rows = found.each("filter-length", "embedded", "put");
        rows.find(|row| bits(row) == of)
            .map(|row| figure(row, "bytes_per_record"))
    };
    let rate = |row: &Row| figure(row, "false_positive_percent");
    let (first, last) = (absent.first()?, absent.last()?);
    let fewer = absent.windows(2).all(|pair| rate(pair[1]) <= rate(pair[0]));
    let times: Option<Vec<(&Row, f64)>> = absent
        .iter()
        .map(|row| Some((*row, lookup(bits(row))?)))
        .collect();
    let times = times?;
    let (shortest, longest) = (times.first()?.1, times.last()?.1);
    let best = times
        .iter()
        .map(|time| time.1)
        .fold(f64::INFINITY, f64::min);
    let enough = times.iter().find(|time| time.1 <= best * 1.25)?.0;
    let (small, large) = (size(bits(first))?, size(bits(last))?);
    let text = |row: &&Row| format!("{} bits {}", bits(row), short(rate(row)));
    let time = |(row, time): &(&Row, f64)| format!("{} bits {}", bits(row), short(*time));
    let join = |parts: Vec<String>| parts.join(", ");
    Some(found.claim(
        "filter-length",
        "table 8",
        "longer filters admit fewer blocks and speed lookups up, until it is no use; and take space",
        Said {
            expected: "false positives fall; lookups get faster at first and then hardly; the store grows".into(),
            measured: format!(
                "false positives in %: {}; lookup K=10 in CPU µs: {}; bytes a record: {} to {}; from {} bits on lookups \
                 are within a quarter of the best",
                join(absent.iter().map(text).collect()),
                join(times.iter().map(time).collect()),
                short(small),
                short(large),
                bits(enough),
            ),
            held: fewer && shortest > best * 1.25 && bits(enough) < bits(last) && large > small,
            why: format!(
                "lookups take {} µs with the shortest filters and {} with the longest; six bits are set by a value \
                 whatever the length, so that longer ones do not cost more time as in the paper",
                short(shortest),
                short(longest)
            ),
        },
    ))
}

fn compression<'r>(
    found: &Found<'r>,
    kind: &'static str,
    operation: &'static str,
    k: Json,
    how: &str,
) -> Option<&'r Row> {
    found.one(
        "compression",
        kind,
        operation,
        &[("compression", how.into()), ("K", k)],
    )
}

fn compressed_order(found: &Found<'_>) -> Option<Claim> {
    let order = |operation: &'static str, k: Json, how: &str| {
        let one = |kind: &'static str| {
            Some((
                kind,
                compression(found, kind, operation, k.clone(), how)?.cpu_us,
            ))
        };
        let mut times: Vec<(&str, f64)> = KINDS.into_iter().map(one).collect::<Option<_>>()?;
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        Some(times)
    };
    let (mut same, mut all, mut slower) = (0, 0, Vec::new());
    for operation in ["lookup", "range"] {
        for k in [Json::from(10), "all".into()] {
            let (with, without) = (
                order(operation, k.clone(), "LZ4")?,
                order(operation, k.clone(), "uncompressed")?,
            );
            all += 1;
            // The same order, but for those that are level.
            let agree = without
                .windows(2)
                .all(|pair| value(&with, pair[0].0) <= value(&with, pair[1].0) * 1.15);
            same += usize::from(agree);
            let ratios = with.iter().map(|(kind, time)| value(&without, kind) / time);
            slower.push(crate::measure::median(ratios.collect()));
        }
    }
    let mean = slower.iter().sum::<f64>() / slower.len().max(1) as f64;
    Some(found.claim(
        "compression",
        "figure 18",
        "kinds stand to each other the same without compression; queries are slightly slower",
        Said {
            expected: "the same order in all four questions; 1 to 1.5 times the time".into(),
            measured: format!("the same order in {same} of {all}; {mean:.2} times the CPU time"),
            held: same == all && (0.95..=1.5).contains(&mean),
            why: format!(
                "the paper's time is waiting for a disk, which smaller blocks shorten; here blocks come from memory, \
                 and without compression the work of expanding them is gone ({mean:.2} times)"
            ),
        },
    ))
}

fn compressed_puts(found: &Found<'_>) -> Option<Claim> {
    let put = |kind: &'static str, how: &str| {
        Some(
            found
                .one("compression", kind, "put", &[("compression", how.into())])?
                .cpu_us,
        )
    };
    let one = |kind: &'static str| Some((kind, put(kind, "uncompressed")? / put(kind, "LZ4")?));
    let ratios: Vec<(&str, f64)> = KINDS.into_iter().map(one).collect::<Option<_>>()?;
    Some(found.claim(
        "compression",
        "figure 19",
        "puts take the same with and without compression",
        Said {
            expected: "within 25 %".into(),
            measured: format!("without, times with: {}", listed(&ratios)),
            held: ratios.iter().all(|r| (0.75..=1.25).contains(&r.1)),
            why: "a put costs a few µs of CPU here, so that compressing its bytes at the flush and at each merge is a \
                  visible share; in the paper the disk hides it".into(),
        },
    ))
}

fn threads(found: &Found<'_>) -> Option<Claim> {
    let mut same = true;
    let mut parts = Vec::new();
    let mut gains = Vec::new();
    for operation in ["lookup", "range"] {
        let rate = |kind: &'static str, threads: u64| {
            let row = found.one("threads", kind, operation, &[("threads", threads.into())])?;
            Some(row.ops_per_second())
        };
        let order = |threads: u64| -> Option<Vec<(&str, f64)>> {
            let one = |kind: &'static str| Some((kind, rate(kind, threads)?));
            let mut rates: Vec<(&str, f64)> = KINDS.into_iter().map(one).collect::<Option<_>>()?;
            rates.sort_by(|a, b| b.1.total_cmp(&a.1));
            Some(rates)
        };
        let alone = order(1)?;
        for threads in [2, 4, 8] {
            let rates = order(threads)?;
            same &= alone
                .windows(2)
                .all(|pair| value(&rates, pair[0].0) * 1.3 >= value(&rates, pair[1].0));
            gains.push(value(&rates, alone[0].0) / alone[0].1);
        }
        parts.push(format!(
            "{operation}s a second alone: {}, with 8: {}",
            listed(&alone),
            listed(&order(8)?)
        ));
    }
    let most = gains.iter().copied().fold(0.0, f64::max);
    Some(found.claim(
        "threads",
        "figure 20",
        "kinds stand to each other the same with several threads; more threads than cores add little",
        Said {
            expected: "the same order at 1, 2, 4 and 8 threads".into(),
            measured: format!("{}; the fastest gains {most:.2} times at most", parts.join("; ")),
            held: same,
            why: "kinds whose throughput is close change places by chance between runs of a fraction of a second".into(),
        },
    ))
}

/// Bytes written to tables for the index, a put: what a kind writes beyond no index.
fn amplification(found: &Found<'_>) -> Option<Claim> {
    let bytes = |kind: &'static str| {
        let row = found.one("basics", kind, "put", &[("index", "user".into())])?;
        Some(figure(row, "table_bytes_written_per_put"))
    };
    let none = bytes("none")?;
    let one = |kind: &'static str| Some((kind, (bytes(kind)? - none).max(0.0)));
    let extra: Vec<(&str, f64)> = ["embedded", "eager", "lazy", "composite"]
        .into_iter()
        .map(one)
        .collect::<Option<_>>()?;
    let composite = value(&extra, "composite").max(0.1);
    let row = found.one("basics", "composite", "put", &[("index", "user".into())])?;
    let entry = figure(row, "index_bytes") / figure(row, "records").max(1.0);
    // The paper's 2 (N + 1) (L - 1), with levels ten times the one above.
    let formula = 22.0 * (figure(row, "index_runs") - 1.0).max(0.0);
    let times = value(&extra, "eager") / composite;
    Some(found.claim(
        super::super::cost::EXPERIMENT,
        "table 5",
        "indexes are written over and over: eager as often as its lists are long (30), lazy as composite, embedded hardly",
        Said {
            expected: "eager about 30 times composite's bytes; lazy at most composite's; embedded less".into(),
            measured: format!(
                "bytes to tables a put, beyond no index: {}; eager {} times composite, whose entries are written {} times \
                 (the formula's worst case: {})",
                listed(&extra),
                short(times),
                short(composite / entry.max(0.1)),
                short(formula)
            ),
            held: times >= 10.0 && value(&extra, "lazy") <= composite * 1.2 && value(&extra, "embedded") <= composite,
            why: format!(
                "eager ran on a tenth of the records, and versions of a list that meet in a memtable are written once, not each: \
                 {} times composite's bytes",
                short(times)
            ),
        },
    ))
}
