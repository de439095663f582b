//! What the page shows of each experiment.

use super::SUITE;
use crate::report::sheet::{Chart, Measure, Sheet};

const MICROS: Measure = Measure::Figure("mean_us", "mean µs");
const BLOCKS: Measure = Measure::Figure("index_blocks", "data blocks of the index");
const ALL_BLOCKS: Measure = Measure::Figure("blocks", "data blocks of all trees");
const MEMORY: Measure = Measure::Figure("peak_memory_bytes", "MiB at most");

fn sheet(
    experiment: &'static str,
    title: &'static str,
    asks: &'static str,
    charts: Vec<Chart>,
) -> Sheet {
    Sheet {
        suite: SUITE,
        experiment,
        title,
        asks,
        charts,
        table: true,
        headline: false,
    }
}

/// The sheets of the suite, in the order of the paper.
pub fn all() -> Vec<Sheet> {
    let by_share = |title, operation, measure| {
        Chart::bars(
            title,
            operation,
            &["data", "points"],
            &["selectivity"],
            measure,
        )
    };
    let of_size = |title, operation, measure| {
        Chart::bars(title, operation, &["data", "points"], &[], measure)
    };
    vec![
        sheet(
            "write-amplification",
            "Write amplification over time (figure 5.3)",
            "How many bytes does each layout write for a byte that a flush wrote, as points are added?",
            vec![
                Chart::lines(
                    "the index",
                    &["ingest"],
                    &["data"],
                    Measure::Figure(
                        "index_table_amplification",
                        "bytes written by bytes flushed",
                    ),
                    ("records", "points"),
                ),
                Chart::lines(
                    "all trees",
                    &["ingest"],
                    &["data"],
                    Measure::Figure("table_amplification", "bytes written by bytes flushed"),
                    ("records", "points"),
                ),
                of_size("inserts", &["insert"], Measure::Rate),
            ],
        ),
        sheet(
            "query-time",
            "Query time by selectivity (figure 5.4)",
            "What does it take to count and to read what lies in a rectangle, by the share of the points that it holds?",
            vec![
                by_share("blocks of a count", &["count"], BLOCKS),
                by_share("count", &["count"], MICROS),
                by_share("blocks of the records", &["find"], ALL_BLOCKS),
                by_share("records", &["find"], MICROS),
                of_size("ten nearest", &["nearest"], MICROS),
                of_size("memory", &["nearest"], MEMORY),
            ],
        ),
        sheet(
            "points",
            "Points beside other stores",
            "How do inserts and questions compare with an R*-tree, on a disk and in memory, and with a table in z-order?",
            vec![
                of_size("inserts", &["insert"], Measure::Rate),
                by_share("records", &["find"], MICROS),
                by_share("count", &["count"], MICROS),
                of_size("ten nearest", &["nearest"], MICROS),
                of_size("on disk", &["insert"], Measure::Figure("disk_bytes", "MiB")),
                of_size("memory", &["insert"], MEMORY),
            ],
        ),
        sheet(
            "moves",
            "Objects that move",
            "How many positions a second does an index take, and what do questions cost meanwhile and afterwards?",
            vec![
                of_size("moves", &["move"], Measure::Rate),
                of_size("records among moves", &["find among moves"], MICROS),
                by_share("records afterwards", &["find"], MICROS),
                of_size("on disk", &["move"], Measure::Figure("disk_bytes", "MiB")),
                of_size("memory", &["move"], MEMORY),
            ],
        ),
    ]
}
