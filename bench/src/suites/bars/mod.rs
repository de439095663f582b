//! The bars that Esker is to clear beside its peers, checked on the figures of the same run.

mod writes;

use std::cmp::Ordering;

use super::peers::{GET_BY_TWO, LOOKUP_BY_TWO, SUITE};
use crate::measure::{Claim, Row};

/// How much better Esker is to be than a peer: its figure, times the factor, is at most the peer's.
struct Bar {
    operation: &'static str,
    /// Which of Esker's subjects may be chosen for it; the best is.
    esker: Choice,
    /// Peers, each with the factor to reach.
    peers: &'static [(&'static str, f64)],
    source: &'static str,
}

/// Subjects of Esker that a bar is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// Without indexes.
    Plain,
    /// With two indexes, of whichever kind.
    Indexed,
    /// With the kinds that are made for the newest few.
    Newest,
}

const GOAL: &str = "goal";
const FURTHER: &str = "further goal";

const CACHED: &[Bar] = &[
    Bar {
        operation: "load",
        esker: Choice::Plain,
        source: GOAL,
        peers: &[("rocksdb none", 1.0), ("fjall none", 1.0)],
    },
    Bar {
        operation: "load",
        esker: Choice::Plain,
        source: FURTHER,
        peers: &[("fjall none", 1.3)],
    },
    Bar {
        operation: "load",
        esker: Choice::Indexed,
        source: GOAL,
        peers: &[
            ("rocksdb blind", 1.5),
            ("fjall blind", 2.0),
            ("sqlite off", 4.0),
            ("lmdb eager", 4.0),
            ("redb eager", 4.0),
        ],
    },
    Bar {
        operation: "mixed",
        esker: Choice::Indexed,
        source: GOAL,
        peers: &[("rocksdb blind", 1.5), ("fjall blind", 2.0)],
    },
    Bar {
        operation: "mixed",
        esker: Choice::Indexed,
        source: FURTHER,
        peers: &[("rocksdb blind", 2.0)],
    },
    Bar {
        operation: "get",
        esker: Choice::Newest,
        source: GOAL,
        peers: &[
            ("rocksdb blind", 1.3),
            ("fjall blind", 1.3),
            ("redb eager", 1.0),
        ],
    },
    Bar {
        operation: "get",
        esker: Choice::Newest,
        source: FURTHER,
        peers: &[("lmdb eager", 1.0 / 1.5)],
    },
    Bar {
        operation: "lookup K=10",
        esker: Choice::Newest,
        source: GOAL,
        peers: &[
            ("rocksdb blind", 2.5),
            ("fjall blind", 2.5),
            ("sqlite off", 1.0),
            ("redb eager", 1.0),
        ],
    },
    Bar {
        operation: "lookup K=10",
        esker: Choice::Newest,
        source: FURTHER,
        peers: &[("lmdb eager", 1.0 / 1.5)],
    },
    Bar {
        operation: "lookup",
        esker: Choice::Indexed,
        source: GOAL,
        peers: &[("sqlite off", 1.0)],
    },
    Bar {
        operation: "lookup",
        esker: Choice::Indexed,
        source: FURTHER,
        peers: &[("lmdb eager", 1.0)],
    },
    Bar {
        operation: "range 60 s",
        esker: Choice::Indexed,
        source: GOAL,
        peers: &[("sqlite off", 1.0), ("rocksdb blind", 3.4)],
    },
    Bar {
        operation: "range 60 s",
        esker: Choice::Indexed,
        source: FURTHER,
        peers: &[("lmdb eager", 1.0)],
    },
    Bar {
        operation: "range 10 users K=10",
        esker: Choice::Indexed,
        source: GOAL,
        peers: &[("sqlite off", 1.0)],
    },
    Bar {
        operation: "range 10 users K=10",
        esker: Choice::Indexed,
        source: FURTHER,
        peers: &[("lmdb eager", 1.0)],
    },
];

/// Past memory, by wall time: waiting for the disk is what costs there.
const PAST: &[(&str, f64)] = &[
    ("get", 1.2),
    ("lookup", 3.0),
    ("range 60 s", 10.0),
    ("mixed", 1.5),
];

/// CPU time in µs of LevelDB++'s own code (LevelDB 1.14, one index, a million of these records,
/// background work not counted), measured once on such a machine: kind, put, lookup K=10, and how
/// many times faster the lookup is to be.
const LEVELDBPP: &[(&str, f64, f64, f64)] = &[
    ("embedded", 7.1, 4554.0, 50.0),
    ("composite", 6.9, 16080.0, 100.0),
    ("lazy", 17.9, 115.0, 5.0),
];

/// The experiments that the bars are about, by name.
pub struct Names<'n> {
    /// Everything in the page cache.
    pub cached: &'n str,
    /// The same with a fifth of the records.
    pub fifth: &'n str,
    /// More data than memory.
    pub past: &'n str,
    /// Records of the first.
    pub records: usize,
}

/// Checks every bar for which there are figures.
pub fn claims(rows: &[Row], names: &Names<'_>) -> Vec<Claim> {
    let mut claims = Vec::new();
    cached(
        &Figures {
            rows,
            experiment: names.cached,
        },
        &mut claims,
    );
    if names.records == 1_000_000 {
        leveldbpp(
            &Figures {
                rows,
                experiment: names.cached,
            },
            &mut claims,
        );
    }
    growth(rows, names, &mut claims);
    writes::claims(rows, &mut claims);
    past(
        &Figures {
            rows,
            experiment: names.past,
        },
        &mut claims,
    );
    claims
}

struct Figures<'r> {
    rows: &'r [Row],
    experiment: &'r str,
}

impl<'r> Figures<'r> {
    fn of(&self, operation: &str) -> impl Iterator<Item = &'r Row> {
        let experiment = self.experiment;
        self.rows
            .iter()
            .filter(move |row| row.experiment == experiment && row.operation == operation)
    }

    fn row(&self, subject: &str, operation: &str) -> Option<&'r Row> {
        self.of(operation).find(|row| row.subject == subject)
    }

    /// Esker's subject that is best at an operation, by CPU time.
    fn best(&self, choice: Choice, operation: &str) -> Option<&'r Row> {
        self.of(operation)
            .filter(|row| choice.has(&row.subject))
            .min_by(|a, b| a.cpu_us.partial_cmp(&b.cpu_us).unwrap_or(Ordering::Equal))
    }

    fn claim(
        &self,
        text: String,
        source: &str,
        expected: String,
        measured: String,
        short: Vec<String>,
    ) -> Claim {
        Claim {
            suite: SUITE.to_string(),
            experiment: self.experiment.to_string(),
            text,
            source: source.to_string(),
            expected,
            measured,
            held: short.is_empty(),
            why: short.join(", "),
        }
    }
}

impl Choice {
    fn has(self, subject: &str) -> bool {
        let Some(kind) = subject.strip_prefix("esker ") else {
            return false;
        };
        match self {
            Choice::Plain => kind == "none",
            Choice::Indexed => kind != "none" && kind != "eager",
            Choice::Newest => kind.starts_with("recent") || kind.starts_with("lazy"),
        }
    }
}

fn cached(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    for bar in CACHED {
        let Some(esker) = figures.best(bar.esker, bar.operation) else {
            continue;
        };
        for (peer, factor) in bar.peers {
            let Some(row) = figures.row(peer, bar.operation) else {
                continue;
            };
            let p50 = row.p50_us / esker.p50_us;
            let cpu = row.cpu_us / esker.cpu_us;
            let mut short = Vec::new();
            if p50 < *factor {
                short.push(format!(
                    "the median is {} µs against {}",
                    micros(esker.p50_us),
                    micros(row.p50_us)
                ));
            }
            if cpu < *factor {
                short.push(format!(
                    "CPU time is {} µs against {}",
                    micros(esker.cpu_us),
                    micros(row.cpu_us)
                ));
            }
            let text = format!(
                "{}: {} is {factor:.2} times as fast as {peer}",
                bar.operation, esker.subject
            );
            let measured = format!("{p50:.2}x in the median, {cpu:.2}x in CPU time");
            claims.push(figures.claim(text, bar.source, format!("{factor:.2}x"), measured, short));
        }
    }
    space(figures, claims);
    stalls(figures, claims);
    light(figures, claims);
    scaling(figures, claims);
}

/// Two threads that read do nearly twice as much as one.
fn scaling(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    const LEAST: f64 = 1.85;
    const PEER: &str = "rocksdb blind";
    let speedup = |row: &Row| row.figures.get("speedup").copied();
    for operation in [GET_BY_TWO, LOOKUP_BY_TWO] {
        let Some(esker) = figures.best(Choice::Newest, operation) else {
            continue;
        };
        let Some(mine) = speedup(esker) else { continue };
        let text = format!(
            "{operation}: two of {} do what one does, {LEAST} times",
            esker.subject
        );
        let peer = figures.row(PEER, operation).and_then(speedup);
        let measured = match peer {
            Some(peer) => format!("{mine:.2}x ({PEER}: {peer:.2}x)"),
            None => format!("{mine:.2}x"),
        };
        let short = match mine >= LEAST {
            true => Vec::new(),
            false => vec!["they get in each other's way".to_string()],
        };
        claims.push(figures.claim(text, GOAL, format!("{LEAST}x"), measured, short));
    }
}

/// Disk, bytes written and peak memory of the load are at most RocksDB's.
fn space(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    let Some(best) = figures.best(Choice::Newest, "lookup K=10") else {
        return;
    };
    for (figure, what, peer) in [
        ("disk_bytes", "disk", "rocksdb none"),
        (
            "written_bytes",
            "bytes written by the load",
            "rocksdb blind",
        ),
        ("peak_memory_bytes", "peak memory", "rocksdb blind"),
    ] {
        let of = |subject: &str| figures.row(subject, "load")?.figures.get(figure).copied();
        if let (Some(esker), Some(peer_has)) = (of(&best.subject), of(peer)) {
            let [mine, theirs] = [esker, peer_has].map(|bytes| bytes / (1 << 20) as f64);
            let text = format!("{what}: {} takes no more than {peer}", best.subject);
            let short = match mine <= theirs {
                true => Vec::new(),
                false => vec![format!("{:.0} % more", (mine / theirs - 1.0) * 100.0)],
            };
            let (expected, measured) = (format!("{theirs:.0} MiB"), format!("{mine:.0} MiB"));
            claims.push(figures.claim(text, GOAL, expected, measured, short));
        }
    }
}

/// A saturating load stalls nobody.
fn stalls(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    for row in figures
        .of("load")
        .filter(|row| Choice::Newest.has(&row.subject))
    {
        let (tail, max) = (row.p999_us / 1e3, row.max_us / 1e3);
        let mut short = Vec::new();
        if tail >= 5.0 {
            short.push("one put in a thousand takes longer".to_string());
        }
        if max >= 100.0 {
            short.push("a put stalled".to_string());
        }
        let text = format!(
            "load: of a saturating load of {}, no put stalls",
            row.subject
        );
        let expected = "99.9th percentile under 5 ms, none over 100 ms".to_string();
        let measured = format!("99.9th percentile {tail:.2} ms, slowest {max:.1} ms");
        claims.push(figures.claim(text, GOAL, expected, measured, short));
    }
}

/// Indexes inside the tables cost next to nothing to write.
fn light(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    let Some(none) = figures.row("esker none", "load") else {
        return;
    };
    for subject in ["esker embedded", "esker fingerprint"] {
        if let Some(row) = figures.row(subject, "load") {
            let more = row.cpu_us / none.cpu_us;
            let text = format!("load: {subject} costs within 10 % of no index");
            let short = match more <= 1.1 {
                true => Vec::new(),
                false => vec![format!(
                    "{} µs of CPU time against {}",
                    micros(row.cpu_us),
                    micros(none.cpu_us)
                )],
            };
            let measured = format!("{more:.2}x in CPU time");
            claims.push(figures.claim(text, GOAL, "at most 1.10x".to_string(), measured, short));
        }
    }
}

/// LevelDB++'s own code. It was measured with one index, we have two.
fn leveldbpp(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    for (kind, put, lookup, factor) in LEVELDBPP {
        for (operation, theirs, factor) in [("load", put, 1.0), ("lookup K=10", lookup, *factor)] {
            let Some(row) = figures.row(&format!("esker {kind}"), operation) else {
                continue;
            };
            let times = theirs / row.cpu_us;
            let text =
                format!("{operation}: {kind} is {factor:.0} times as fast as LevelDB++'s own code");
            let measured = format!(
                "{times:.1}x in CPU time ({} µs against {theirs})",
                micros(row.cpu_us)
            );
            let short = match times >= factor {
                true => Vec::new(),
                false => vec!["it takes too much CPU time".to_string()],
            };
            claims.push(figures.claim(
                text,
                "goal, against LevelDB++'s own code",
                format!("{factor:.0}x"),
                measured,
                short,
            ));
        }
    }
}

/// From a fifth of the records to all of them, an operation hardly becomes dearer.
fn growth(rows: &[Row], names: &Names<'_>, claims: &mut Vec<Claim>) {
    let (small, large) = (
        Figures {
            rows,
            experiment: names.fifth,
        },
        Figures {
            rows,
            experiment: names.cached,
        },
    );
    for operation in ["get", "lookup K=10"] {
        let Some(after) = large.best(Choice::Newest, operation) else {
            continue;
        };
        let Some(before) = small.row(&after.subject, operation) else {
            continue;
        };
        let (p50, cpu) = (after.p50_us / before.p50_us, after.cpu_us / before.cpu_us);
        let text = format!(
            "{operation}: {} is at most 1.1 times as dear with five times the records and memory",
            after.subject
        );
        let short = match p50.max(cpu) <= 1.1 {
            true => Vec::new(),
            false => vec![format!(
                "the median was {} µs and is {}",
                micros(before.p50_us),
                micros(after.p50_us)
            )],
        };
        let measured = format!("{p50:.2}x in the median, {cpu:.2}x in CPU time");
        claims.push(large.claim(text, GOAL, "at most 1.1x".to_string(), measured, short));
    }
}

fn past(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    const PEER: &str = "rocksdb blind";
    let mean = |row: &Row| row.seconds / row.ops.max(1) as f64;
    for (operation, factor) in PAST {
        let best = figures
            .of(operation)
            .filter(|row| Choice::Indexed.has(&row.subject))
            .min_by(|a, b| mean(a).partial_cmp(&mean(b)).unwrap_or(Ordering::Equal));
        let (Some(esker), Some(peer)) = (best, figures.row(PEER, operation)) else {
            continue;
        };
        let times = mean(peer) / mean(esker);
        let text = format!(
            "{operation}: {} is {factor:.1} times as fast as {PEER}",
            esker.subject
        );
        let measured = format!("{times:.2}x in mean wall time");
        let short = match times >= *factor {
            true => Vec::new(),
            false => vec![format!(
                "{} µs against {}",
                micros(mean(esker) * 1e6),
                micros(mean(peer) * 1e6)
            )],
        };
        claims.push(figures.claim(text, GOAL, format!("{factor:.1}x"), measured, short));
    }
    for operation in [
        "get",
        "lookup K=10",
        "lookup",
        "range 60 s",
        "range 10 users K=10",
    ] {
        let blocks = |row: &Row| row.figures.get("blocks_read_per_op").copied();
        let best = figures
            .of(operation)
            .filter(|row| Choice::Newest.has(&row.subject))
            .min_by(|a, b| blocks(a).partial_cmp(&blocks(b)).unwrap_or(Ordering::Equal));
        let Some((esker, peer)) = best.zip(figures.row(PEER, operation)) else {
            continue;
        };
        let Some((mine, theirs)) = blocks(esker).zip(blocks(peer)) else {
            continue;
        };
        let text = format!(
            "{operation}: {} reads no more blocks than {PEER}",
            esker.subject
        );
        let short = match mine <= theirs {
            true => Vec::new(),
            false => vec![format!("{:.2} blocks more", mine - theirs)],
        };
        let (expected, measured) = (
            format!("at most {theirs:.2} a time"),
            format!("{mine:.2} a time"),
        );
        claims.push(figures.claim(text, GOAL, expected, measured, short));
    }
    fingerprint(figures, claims);
}

fn fingerprint(figures: &Figures<'_>, claims: &mut Vec<Claim>) {
    let operation = "lookup K=10";
    let wall = |subject: &str| {
        figures
            .row(subject, operation)
            .map(|row| row.seconds / row.ops as f64)
    };
    let Some(fingerprint) = wall("esker fingerprint") else {
        return;
    };
    if let Some(embedded) = wall("esker embedded") {
        let times = embedded / fingerprint;
        let text = format!("{operation}: fingerprint is 5 times as fast as embedded");
        let short = match times >= 5.0 {
            true => Vec::new(),
            false => vec!["it reads too much".to_string()],
        };
        claims.push(figures.claim(text, GOAL, "5x".to_string(), format!("{times:.1}x"), short));
    }
    let alone = figures.of(operation).filter(|row| {
        ["esker lazy", "esker composite", "esker recent"].contains(&row.subject.as_str())
    });
    let best = alone
        .map(|row| row.seconds / row.ops as f64)
        .min_by(f64::total_cmp);
    if let Some(best) = best {
        let times = fingerprint / best;
        let text =
            format!("{operation}: fingerprint is within 3 times of the best stand-alone kind");
        let short = match times <= 3.0 {
            true => Vec::new(),
            false => vec!["it reads too much".to_string()],
        };
        claims.push(figures.claim(
            text,
            GOAL,
            "at most 3x".to_string(),
            format!("{times:.1}x"),
            short,
        ));
    }
}

fn micros(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 100.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}
