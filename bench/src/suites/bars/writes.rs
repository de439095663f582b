//! The bars of writes by several threads, and to many datasets.

use super::{Claim, Figures, GOAL, Row};
use crate::suites::{many, synced};

const PEERS: [&str; 2] = ["fjall none", "rocksdb none"];

/// Threads, the peer of the bar, and the least share of what it gets.
const SYNCED: [(usize, &str, f64); 4] = [
    (1, PEERS[0], 0.95),
    (4, PEERS[1], 1.0),
    (16, PEERS[1], 1.0),
    (64, PEERS[1], 1.0),
];

/// Checks the bars for which there are figures.
pub(super) fn claims(rows: &[Row], claims: &mut Vec<Claim>) {
    let of = |experiment| Figures { rows, experiment };
    durable(&of(synced::EXPERIMENT), claims);
    behind(&of(synced::EXPERIMENT), claims);
    datasets(&of(many::EXPERIMENT), claims);
}

fn figure(row: &Row, name: &str) -> f64 {
    row.figures.get(name).copied().unwrap_or_default()
}

/// Writers that wait for the disk share its syncs.
fn durable(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    let per_second = |row: &Row| figure(row, "per_second");
    let bare = synced::BARE.map(|name| {
        let row = figures.row(name, &synced::synced(1));
        row.map_or_else(String::new, |row| {
            format!("; a bare {name}: {:.0}", per_second(row))
        })
    });
    for (threads, name, least) in SYNCED {
        let operation = synced::synced(threads);
        let esker = figures.row("esker none", &operation);
        let Some((esker, peer)) = esker.zip(figures.row(name, &operation)) else {
            continue;
        };
        let (mine, theirs) = (per_second(esker), per_second(peer));
        let text = format!("{operation}: esker does at least {least}x of what {name} does");
        let bare = if threads == 1 {
            bare.concat()
        } else {
            String::new()
        };
        let times = mine / theirs;
        let measured = format!("{times:.2}x ({mine:.0} a second against {theirs:.0}{bare})");
        let short = match times >= least {
            true => Vec::new(),
            false => vec!["it does too few".to_string()],
        };
        claims.push(figures.claim(text, GOAL, format!("{least}x"), measured, short));
    }
}

/// A put that need not be on disk waits for those before it that must: what that costs is said.
fn behind(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    let [alone, beside] = synced::BESIDE.map(synced::beside);
    let alone = figures.row("esker none", &alone);
    let Some((alone, beside)) = alone.zip(figures.row("esker none", &beside)) else {
        return;
    };
    let sync = figures.row("esker none", &synced::synced(synced::THREADS[0]));
    let times = |row: &Row| [row.p50_us, row.p99_us, row.p999_us].map(super::micros);
    let [[p50, p99, p999], with] = [times(alone), times(beside)];
    let text = "an unsynced put beside three synced writers waits for about one sync".to_string();
    let measured = format!(
        "median {}, 99th {}, 99.9th percentile {} µs against {p50}, {p99}, {p999} alone",
        with[0], with[1], with[2]
    );
    // Of one that has just begun it may have to await the end, and then its own.
    let limit = sync.map_or(f64::MAX, |sync| 2.5 * sync.p50_us);
    let short = match beside.p50_us <= limit {
        true => Vec::new(),
        false => vec!["it waits for more".to_string()],
    };
    let expected = "a median of at most 2.5 synced puts".to_string();
    claims.push(figures.claim(text, GOAL, expected, measured, short));
}

/// A thousand datasets are written to about as fast as ten.
fn datasets(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    let [few, many] =
        many::DATASETS.map(|datasets| figures.row(many::SUBJECT, &many::puts(datasets)));
    let Some((few, many)) = few.zip(many) else {
        return;
    };
    let [theirs, mine] = [few, many].map(|row| figure(row, "per_second"));
    let [tail, open] = [figure(many, "p9999_us") / 1e3, figure(many, "open_ms")];
    let bars = [
        (
            "puts into 1,000 datasets: at least half as many as into ten",
            "0.5x",
            format!(
                "{:.2}x ({mine:.0} a second against {theirs:.0})",
                mine / theirs
            ),
            mine >= theirs / 2.0,
        ),
        (
            "puts into 1,000 datasets: none in ten thousand takes 100 ms",
            "under 100 ms",
            format!("{tail:.1} ms, the longest {:.1} ms", many.max_us / 1e3),
            tail < 100.0,
        ),
        (
            "a store of 1,000 datasets opens in 200 ms",
            "under 200 ms",
            format!("{open:.0} ms (ten: {:.1} ms)", figure(few, "open_ms")),
            open < 200.0,
        ),
    ];
    for (text, expected, measured, held) in bars {
        let short = if held {
            Vec::new()
        } else {
            vec!["it takes longer".to_string()]
        };
        claims.push(figures.claim(
            text.to_string(),
            GOAL,
            expected.to_string(),
            measured,
            short,
        ));
    }
}
