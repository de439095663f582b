//! What the paper found and what Esker is to reach, checked on the medians of a run: with direct reads,
//! because the paper's data was on disks.

use serde_json::Value as Json;

use super::SUITE;
use crate::measure::{Claim, Row};
use crate::suites::upkeep::found::{DISK_READS, Found, Ratio, WALL};

/// The claims of a run, of those experiments that it has.
pub fn all(rows: &[Row]) -> Vec<Claim> {
    let found = Found {
        suite: SUITE,
        paper: "DELI",
        rows,
    };
    let mut claims = Vec::new();
    gets(&found, &mut claims);
    writes(&found, &mut claims);
    mixes(&found, &mut claims);
    repairs(&found, &mut claims);
    totals(&found, &mut claims);
    claims
}

fn direct() -> (&'static str, Json) {
    ("cache", "direct".into())
}

fn gets(found: &Found<'_>, out: &mut Vec<Claim>) {
    let at = |when: &str| {
        let subject = format!("{when} compaction");
        found.one("compaction", &subject, "get", &[direct()])
    };
    out.extend(found.check(Ratio {
        experiment: "compaction",
        figure: "figure 1",
        text: "gets are faster after a compaction".to_string(),
        cost: WALL,
        of: at("after"),
        to: at("before"),
        most: 1.0,
        why: "key filters are in memory: a get reads one block, however many components there are",
    }));
    let mixed = |operation: &str, reads: u32| {
        let parameters = [direct(), ("reads", reads.into())];
        found.one("plain-mix", "no index", operation, &parameters)
    };
    out.extend(found.check(Ratio {
        experiment: "plain-mix",
        figure: "figure 6",
        text: "a write takes a fraction of the time of a read".to_string(),
        cost: WALL,
        of: mixed("write", 50),
        to: mixed("read", 50),
        most: 0.5,
        why: "",
    }));
    out.extend(found.check(Ratio {
        experiment: "plain-mix",
        figure: "figure 6",
        text: "throughput falls as reads prevail".to_string(),
        cost: WALL,
        of: mixed("all", 0),
        to: mixed("all", 100),
        most: 0.5,
        why: "keys by Zipf's law: with nothing but reads the cache holds those that are asked for, and there is nothing to flush",
    }));
}

fn writes(found: &Found<'_>, out: &mut Vec<Claim>) {
    let at = |subject: &str| found.one("writes", subject, "ingest", &[direct()]);
    out.extend(found.check(Ratio {
        experiment: "writes",
        figure: "figure 7",
        text: "deferred indexing writes three times as fast as update-in-place".to_string(),
        cost: WALL,
        of: at("deferred"),
        to: at("update-in-place"),
        most: 1.0 / 3.0,
        why: "by Zipf's law most updates are of keys that are in memory, so that few old records are read from the disk",
    }));
    out.extend(found.check(Ratio {
        experiment: "writes",
        figure: "figure 7",
        text: "a deferred index costs writers little".to_string(),
        cost: WALL,
        of: at("deferred"),
        to: at("no index"),
        most: 1.5,
        why: "an index entry is a second entry to log, flush and merge, and with direct reads merges wait for the disk",
    }));
}

fn mixes(found: &Found<'_>, out: &mut Vec<Claim>) {
    let at = |cache: &str, subject: &str, operation: &str, reads: u32| {
        let parameters = [("cache", cache.into()), ("reads", reads.into())];
        found.one("mix", subject, operation, &parameters)
    };
    // SQLite cannot read round the page cache, so it is beside Esker where that has it, too.
    for (cache, to, most, text) in [
        (
            "direct",
            "update-in-place",
            1.0 / 2.5,
            "update-in-place by 2.5 times",
        ),
        ("cached", "sqlite", 1.0, "a B-tree database"),
    ] {
        out.extend(found.check(Ratio {
            experiment: "mix",
            figure: "figure 8",
            text: format!("at 10 % reads deferred indexing is ahead of {text}"),
            cost: WALL,
            of: at(cache, "deferred", "all", 10),
            to: at(cache, to, "all", 10),
            most,
            why: "reads take most of the time of a mix with few of them, whichever way the index is kept",
        }));
    }
    for (fast, slow, operation, text) in [
        (
            "deferred",
            "update-in-place",
            "write",
            "deferred indexing has the faster writes",
        ),
        (
            "update-in-place",
            "deferred",
            "read",
            "update-in-place has the faster reads",
        ),
    ] {
        out.extend(found.check(Ratio {
            experiment: "mix",
            figure: "figure 8",
            text: format!("at 50 % reads {text}"),
            cost: WALL,
            of: at("direct", fast, operation, 50),
            to: at("direct", slow, operation, 50),
            most: 1.0,
            why: "what a deferred read finds to be over it notes, so that the next pays nothing for it; both then read the records",
        }));
    }
}

fn repairs(found: &Found<'_>, out: &mut Vec<Claim>) {
    for versions in [1, 3] {
        let at = |how: &str| {
            let parameters = [direct(), ("versions", versions.into())];
            found.one("repair", how, "compact", &parameters)
        };
        for (figure, text, cost, of, to, most) in [
            (
                "",
                "streaming repair is close to a plain compaction",
                WALL,
                "streaming",
                "no repair",
                1.2,
            ),
            (
                "figure 9b",
                "streaming repair reads as much as a plain compaction",
                DISK_READS,
                "streaming",
                "no repair",
                1.1,
            ),
            (
                "figure 9a",
                "streaming is faster than staged repair",
                WALL,
                "streaming",
                "staged",
                1.0,
            ),
            (
                "figure 9a",
                "staged repair is faster than a pass before the compaction",
                WALL,
                "staged",
                "before compaction",
                1.0,
            ),
        ] {
            out.extend(found.check(Ratio {
                experiment: "repair",
                figure,
                text: format!("{text} ({versions} versions)"),
                cost,
                of: at(of),
                to: at(to),
                most,
                why: "both read the records twice; the small components are read as neighbours in any case",
            }));
        }
    }
}

fn totals(found: &Found<'_>, out: &mut Vec<Claim>) {
    for (operation, most, text) in [
        ("online", 1.0 / 3.0, "writes take a third of the time"),
        (
            "both",
            0.5,
            "writes and compaction together take half of the time",
        ),
    ] {
        let at = |subject: &str| found.one("totals", subject, operation, &[direct()]);
        out.extend(found.check(Ratio {
            experiment: "totals",
            figure: "table II",
            text: format!("deferred beside update-in-place: {text}"),
            cost: WALL,
            of: at("deferred"),
            to: at("update-in-place"),
            most,
            why: "by Zipf's law most updates are of keys that are in memory, so that few old records are read from the disk",
        }));
    }
}
