//! What the page shows of each experiment.

use super::SUITE;
use super::cost::EXPERIMENT;
use crate::report::sheet::{Chart, Measure, Sheet};

fn mixed(experiment: &'static str, title: &'static str, asks: &'static str) -> Sheet {
    let along = ("operations", "operations so far");
    let mean = Measure::Figure("mean_us", "mean µs");
    let accesses = Measure::Figure("accesses", "data blocks accessed so far");
    Sheet {
        suite: SUITE,
        experiment,
        title,
        asks,
        charts: vec![
            Chart::lines("all operations", &["all"], &["data"], Measure::Cpu, along),
            Chart::lines("put", &["put"], &["data"], mean, along),
            Chart::lines(
                "written",
                &["all"],
                &["data"],
                Measure::Figure("written_bytes", "MiB written so far"),
                along,
            ),
            Chart::lines("gets", &["get"], &["data"], accesses, along),
            Chart::lines("lookups", &["lookup"], &["data"], accesses, along),
        ],
        table: false,
        headline: false,
    }
}

/// The sheets of the suite, in the order of the paper.
pub fn all() -> Vec<Sheet> {
    let sheet = |experiment, title, asks, charts, table| Sheet {
        suite: SUITE,
        experiment,
        title,
        asks,
        charts,
        table,
        headline: matches!(experiment, "basics" | "by-user"),
    };
    let along = ("records", "records so far");
    vec![
        sheet(
            "basics",
            "Space, puts and gets by kind of index (figure 8)",
            "What does an index on the user, or on the time, add to the size of the store and to puts and gets? (Eager on users has a tenth of the records, everywhere on this page: its cost grows with its lists.)",
            vec![
                Chart::bars(
                    "size",
                    &["put"],
                    &["data"],
                    &["index"],
                    Measure::Figure("bytes_per_record", "bytes on disk a record"),
                ),
                Chart::bars("put", &["put"], &["data"], &["index"], Measure::Cpu),
                Chart::bars("get", &["get"], &["data"], &["index"], Measure::Cpu),
            ],
            true,
        ),
        sheet(
            "put-over-time",
            "Puts as the store grows (figure 9)",
            "Does a put cost more the more records there are?",
            vec![Chart::lines(
                "put",
                &["put"],
                &["data", "index"],
                Measure::Cpu,
                along,
            )],
            false,
        ),
        sheet(
            "by-user",
            "Lookups and ranges of users (figure 10)",
            "Which kind finds the newest K records of a user, or of some users, fastest, where values are scattered over the store?",
            vec![Chart::bars(
                "",
                &[],
                &["data", "operation", "selectivity"],
                &["K"],
                Measure::Cpu,
            )],
            true,
        ),
        sheet(
            "by-time",
            "Lookups and ranges of time (figure 11)",
            "And where values grow with time, so that zone maps can prune?",
            vec![Chart::bars(
                "",
                &[],
                &["data", "operation", "selectivity"],
                &["K"],
                Measure::Cpu,
            )],
            true,
        ),
        mixed(
            "mixed-write",
            "Write-heavy: 80 % puts, 15 % gets, 5 % lookups (figures 12a, 13)",
            "What does an operation cost over time when most are puts, and what do they access?",
        ),
        mixed(
            "mixed-read",
            "Read-heavy: 20 % puts, 70 % gets, 10 % lookups (figures 12b, 14)",
            "And when most are reads?",
        ),
        mixed(
            "mixed-update",
            "Update-heavy: 40 % puts, 40 % updates, 15 % gets, 5 % lookups (figures 12c, 15)",
            "And when half of the writes replace a record, so that index entries go stale?",
        ),
        sheet(
            "filter-length",
            "The length of value filters (table 8)",
            "How many bits should the filters of the embedded index spend on a value? (Esker: 10.)",
            vec![
                Chart::lines(
                    "lookup of an absent value",
                    &["lookup of an absent value"],
                    &[],
                    Measure::Figure("false_positive_percent", "% of filters wrong"),
                    ("bits", "bits a value"),
                ),
                Chart::lines(
                    "lookup",
                    &["lookup"],
                    &["K"],
                    Measure::Cpu,
                    ("bits", "bits a value"),
                ),
                Chart::lines(
                    "size",
                    &["put"],
                    &[],
                    Measure::Figure("bytes_per_record", "bytes on disk a record"),
                    ("bits", "bits a value"),
                ),
            ],
            true,
        ),
        sheet(
            "compression",
            "With and without compression (figures 18, 19)",
            "Does compression change which kind is best?",
            vec![
                Chart::bars("put", &["put"], &[], &["compression"], Measure::Cpu),
                Chart::bars(
                    "",
                    &["lookup", "range"],
                    &["operation", "K"],
                    &["compression"],
                    Measure::Cpu,
                ),
            ],
            true,
        ),
        sheet(
            "threads",
            "Several threads (figure 20)",
            "How many lookups and ranges of ten users (K = 10) a second do threads get through together?",
            vec![Chart::lines(
                "",
                &["lookup", "range"],
                &["operation"],
                Measure::Rate,
                ("threads", "threads"),
            )],
            true,
        ),
        sheet(
            EXPERIMENT,
            "The cost model (tables 3 and 5)",
            "How many data blocks should a question access by the paper's formulas, with this run's own levels and blocks, and how many does it?",
            vec![Chart::bars(
                "",
                &[],
                &["index", "operation", "selectivity"],
                &["K"],
                Measure::Figure("blocks", "data blocks a question"),
            )],
            true,
        ),
    ]
}
