//! What the paper found and what Esker is to reach, checked on the medians of a run: with direct reads,
//! because the paper's data was on disks.

use serde_json::Value as Json;

use super::SUITE;
use crate::measure::{Claim, Row};
use crate::suites::upkeep::found::{BLOCKS, CPU, Found, Ratio, WALL};

/// The claims of a run, of those experiments that it has.
pub fn all(rows: &[Row]) -> Vec<Claim> {
    let found = Found {
        suite: SUITE,
        paper: "Luo & Carey",
        rows,
    };
    let mut claims = Vec::new();
    lookups(&found, &mut claims);
    inserts(&found, &mut claims);
    upserts(&found, &mut claims);
    indexes(&found, &mut claims);
    queries(&found, &mut claims);
    range_filters(&found, &mut claims);
    repairs(&found, &mut claims);
    claims
}

fn direct() -> (&'static str, Json) {
    ("cache", "direct".into())
}

fn lookups(found: &Found<'_>, out: &mut Vec<Claim>) {
    let at = |subject: &str, percent: f64| {
        let parameters = [direct(), ("percent", percent.into())];
        found.one("lookups", subject, "find", &parameters)
    };
    let (all, cost) = ("+ component IDs", WALL);
    out.extend(found.check(Ratio {
        experiment: "lookups",
        figure: "",
        text: "all optimizations together are three times as fast as naive lookups, at 10 % of the records".into(),
        cost,
        of: at(all, 10.0),
        to: at("naive", 10.0),
        most: 1.0 / 3.0,
        why: "",
    }));
    for percent in [1.0, 10.0] {
        out.extend(found.check(Ratio {
            experiment: "lookups",
            figure: "figure 10b",
            text: format!("at {percent} % of the records an index is faster than a scan"),
            cost,
            of: at(all, percent),
            to: at("scan", percent),
            most: 1.0,
            why: "",
        }));
    }
    // What each step is faster by than the one before; batches more than all that follow.
    out.extend(found.check(Ratio {
        experiment: "lookups",
        figure: "figure 10b",
        text: "batches are twice as fast as naive lookups, at 10 % of the records".into(),
        cost,
        of: at("+ batches", 10.0),
        to: at("naive", 10.0),
        most: 0.5,
        why: "",
    }));
    out.extend(found.check(Ratio {
        experiment: "lookups",
        figure: "figure 10b",
        text: "what follows on batches matters less: they are within twice of all together".into(),
        cost,
        of: at("+ batches", 10.0),
        to: at(all, 10.0),
        most: 2.0,
        why: "",
    }));
    out.extend(found.check(Ratio {
        experiment: "lookups",
        figure: "figure 10b",
        text: "component IDs save little, at 10 % of the records".into(),
        cost,
        of: at("+ blocked filters", 10.0),
        to: at(all, 10.0),
        most: 1.2,
        why: "",
    }));
    let sorted = |subject: &str| {
        let parameters = [direct(), ("percent", 10.0.into())];
        found.one("sorting", subject, "find", &parameters)
    };
    out.extend(found.check(Ratio {
        experiment: "sorting",
        figure: "figure 10d",
        text: "batches are faster even when the answer is then sorted by key, at 10 % of the records".into(),
        cost,
        of: sorted("batches, by key"),
        to: sorted("naive, by key"),
        most: 1.0,
        why: "",
    }));
    let batch = |kib: f64| {
        let parameters = [direct(), ("batch", kib.into())];
        found.one("batch-size", "10 %", "find", &parameters)
    };
    out.extend(found.check(Ratio {
        experiment: "batch-size",
        figure: "figure 10c",
        text: "a batch of 4 MiB is as good as one of 16, at 10 % of the records".into(),
        cost,
        of: batch(4096.0),
        to: batch(16384.0),
        most: 1.1,
        why: "",
    }));
}

fn inserts(found: &Found<'_>, out: &mut Vec<Claim>) {
    for duplicates in [0, 50] {
        let at = |subject: &str| {
            let parameters = [direct(), ("duplicates", duplicates.into())];
            found.one("inserts", subject, "ingest", &parameters)
        };
        out.extend(found.check(Ratio {
            experiment: "inserts",
            figure: "figure 11",
            text: format!("a primary-key index speeds up inserts, {duplicates} % of them duplicates"),
            cost: WALL,
            of: at("primary-key index"),
            to: at("records alone"),
            most: 1.0,
            why: "key filters are in memory and say at once that a new key is new: only known keys cost a read",
        }));
    }
}

fn upserts(found: &Found<'_>, out: &mut Vec<Claim>) {
    for updates in [10, 50] {
        let at = |strategy: &str| {
            let parameters = [
                direct(),
                ("updates", updates.into()),
                ("keys", "uniform".into()),
            ];
            found.one("upserts", strategy, "ingest", &parameters)
        };
        let old_record = "eager reads an old record per update, and the fewer updates there are the more is left that all pay: \
                          the log, flushes and merges";
        let bars = [
            (
                ("validation", "eager", 1.0 / 3.0),
                "validation is three times as fast as eager",
                WALL,
                old_record,
            ),
            (
                ("mutable-bitmap", "eager", 1.0 / 2.0),
                "mutable-bitmap is twice as fast as eager",
                WALL,
                old_record,
            ),
            // Neither waits for old records, so that CPU time tells, and wanders less.
            (
                ("validation + repair", "validation", 1.15),
                "repair at merges costs validation at most 15 %",
                CPU,
                "merges of the primary-key index note what they leave out, one bit a write",
            ),
        ];
        for ((of, to, most), text, cost, why) in bars {
            out.extend(found.check(Ratio {
                experiment: "upserts",
                figure: "",
                text: format!("{text} ({updates} % updates)"),
                cost,
                of: at(of),
                to: at(to),
                most,
                why,
            }));
        }
        for (fast, slow) in [
            ("validation", "mutable-bitmap"),
            ("mutable-bitmap", "eager"),
        ] {
            out.extend(found.check(Ratio {
                experiment: "upserts",
                figure: "figure 12",
                text: format!("{fast} is faster than {slow} ({updates} % updates)"),
                cost: WALL,
                of: at(fast),
                to: at(slow),
                most: 1.0,
                why: "",
            }));
        }
    }
    let skewed = |keys: &str| {
        let parameters = [direct(), ("updates", 50.into()), ("keys", keys.into())];
        found.one("upserts", "eager", "ingest", &parameters)
    };
    out.extend(found.check(Ratio {
        experiment: "upserts",
        figure: "figure 12",
        text: "eager profits from updates of recent keys".to_string(),
        cost: WALL,
        of: skewed("zipf"),
        to: skewed("uniform"),
        most: 1.0,
        why: "",
    }));
}

fn indexes(found: &Found<'_>, out: &mut Vec<Claim>) {
    let at = |strategy: &str, indexes: usize| {
        let parameters = [direct(), ("indexes", indexes.into())];
        found.one("indexes", strategy, "ingest", &parameters)
    };
    for (of, to, text) in [
        ("validation", "eager", "validation stays ahead of eager"),
        (
            "validation + repair",
            "deleted-key",
            "repair at merges is cheaper than trees of deleted keys",
        ),
    ] {
        out.extend(found.check(Ratio {
            experiment: "indexes",
            figure: "figure 13b",
            text: format!("with five indexes {text}"),
            cost: WALL,
            of: at(of, 5),
            to: at(to, 5),
            most: 1.0,
            why: "",
        }));
    }
}

fn queries(found: &Found<'_>, out: &mut Vec<Claim>) {
    let at = |experiment: &str, subject: &str, operation: &str, updates: u32, percent: f64| {
        let parameters = [
            direct(),
            ("percent", percent.into()),
            ("updates", updates.into()),
        ];
        found.one(experiment, subject, operation, &parameters)
    };
    for updates in [0, 50] {
        for percent in [0.001, 0.1, 10.0] {
            let what = format!("at {percent} % of the records, {updates} % updates");
            for way in ["direct", "timestamp"] {
                let subject = format!("validation + repair, {way}");
                out.extend(found.check(Ratio {
                    experiment: "queries",
                    figure: "",
                    text: format!(
                        "with repair at merges, validation ({way}) is close to eager {what}"
                    ),
                    cost: WALL,
                    of: at("queries", &subject, "find", updates, percent),
                    to: at("queries", "eager", "find", updates, percent),
                    most: 1.2,
                    why: "the primary-key index is asked of candidates that are nearly all current: their records are read in any case",
                }));
            }
            for operation in ["keys", "count"] {
                out.extend(found.check(Ratio {
                    experiment: "index-only",
                    figure: "",
                    text: format!(
                        "with repair at merges, {operation} are close to those of eager {what}"
                    ),
                    cost: WALL,
                    of: at(
                        "index-only",
                        "validation + repair",
                        operation,
                        updates,
                        percent,
                    ),
                    to: at("index-only", "eager", operation, updates, percent),
                    most: 1.5,
                    why: "an eager index is exact: its entries are counted; here each is asked whether its key was written since",
                }));
            }
        }
    }
    for percent in [0.001, 0.1] {
        out.extend(found.check(Ratio {
            experiment: "queries",
            figure: "",
            text: format!(
                "without repair, timestamps are twice as fast as direct validation at {percent} % of the records, 50 % updates"
            ),
            cost: WALL,
            of: at("queries", "validation, timestamp", "find", 50, percent),
            to: at("queries", "validation, direct", "find", 50, percent),
            most: 0.5,
            why: "the fewer candidates the more is a question a few reads whichever way, and half of the candidates are current: their records are read in any case",
        }));
    }
}

fn range_filters(found: &Found<'_>, out: &mut Vec<Claim>) {
    for percent in [1.0, 10.0] {
        let at = |strategy: &str, updates: u32, age: &str| {
            let parameters = [
                direct(),
                ("percent", percent.into()),
                ("updates", updates.into()),
                ("age", age.into()),
            ];
            found.one("range-filter", strategy, "find", &parameters)
        };
        for (figure, text, of, to, most) in [
            (
                "",
                "old data is passed over by mutable-bitmap as if there were no updates",
                at("mutable-bitmap", 50, "old"),
                at("mutable-bitmap", 0, "old"),
                1.2,
            ),
            (
                "figure 16",
                "mutable-bitmap reads half of what validation does of old data, 50 % updates",
                at("mutable-bitmap", 50, "old"),
                at("validation", 50, "old"),
                0.5,
            ),
            (
                "figure 16",
                "validation passes over old data when recent data is asked for, but not the other way round, 50 % updates",
                at("validation", 50, "recent"),
                at("validation", 50, "old"),
                0.5,
            ),
            (
                "figure 16",
                "eager passes over more of recent data without updates than with, when old data is asked for",
                at("eager", 0, "old"),
                at("eager", 50, "old"),
                0.75,
            ),
        ] {
            out.extend(found.check(Ratio {
                experiment: "range-filter",
                figure,
                text: format!("{text} ({percent} % of the time)"),
                cost: BLOCKS,
                of,
                to,
                most,
                why: "",
            }));
        }
    }
}

fn repairs(found: &Found<'_>, out: &mut Vec<Claim>) {
    // Of the last round, when there is most.
    let last = |experiment: &str, method: &str, updates: u32, indexes: usize| {
        let rows = found.rows.iter().filter(|row| {
            row.suite == SUITE
                && row.experiment == experiment
                && row.subject == method
                && row.parameters.get("cache") == Some(&"direct".into())
                && row.parameters.get("updates") == Some(&updates.into())
                && row.parameters.get("indexes") == Some(&indexes.into())
        });
        rows.max_by(|a, b| number(a, "records").total_cmp(&number(b, "records")))
    };
    for updates in [0, 50] {
        let at = |method| last("repair", method, updates, 1);
        for (of, to, most, figure, text) in [
            (
                "by key",
                "primary",
                0.2,
                "",
                "repair by key, which is what a repair does, is five times as fast as from the records",
            ),
            (
                "secondary",
                "primary",
                1.0,
                "figure 17",
                "repair by index is faster than from the records",
            ),
            (
                "primary",
                "primary + merge",
                1.0,
                "figure 17",
                "a full merge adds to a repair from the records",
            ),
            (
                "secondary + bloom",
                "secondary",
                1.0,
                "figure 17",
                "key filters save work",
            ),
        ] {
            out.extend(found.check(Ratio {
                experiment: "repair",
                figure,
                text: format!("{text} ({updates} % updates)"),
                cost: WALL,
                of: at(of),
                to: at(to),
                most,
                why: "a repair this small waits for the disk more than it sorts or reads: more records tell more",
            }));
        }
    }
    out.extend(found.check(Ratio {
        experiment: "repair-indexes",
        figure: "figure 18",
        text: "five indexes are repaired faster by the primary-key index than from the records".into(),
        cost: WALL,
        of: last("repair-indexes", "secondary", 10, 5),
        to: last("repair-indexes", "primary", 10, 5),
        most: 1.0,
        why: "a pass over the records is one for all indexes here: what is obsolete is noted once, not as tombstones in each",
    }));
}

/// A parameter as a number.
fn number(row: &Row, name: &str) -> f64 {
    crate::report::sheet::number(row, name).unwrap_or_default()
}
