//! What the page shows of each experiment.

use super::SUITE;
use crate::report::sheet::{Chart, Measure, Sheet};

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
    let reads = ("reads", "% reads");
    let mixed = || {
        let millis = Measure::Figure("mean_ms", "mean ms");
        vec![
            Chart::lines("all operations", &["all"], &["cache"], Measure::Rate, reads),
            Chart::lines("read", &["read"], &["cache"], millis, reads),
            Chart::lines("write", &["write"], &["cache"], millis, reads),
        ]
    };
    vec![
        sheet(
            "compaction",
            "Gets before and after a compaction (figure 1)",
            "Why repair indexes just when data is compacted: what does a get cost before and after?",
            vec![
                Chart::bars(
                    "",
                    &["get"],
                    &["cache"],
                    &[],
                    Measure::Figure("mean_ms", "mean ms"),
                ),
                Chart::bars(
                    "blocks",
                    &["get"],
                    &["cache"],
                    &[],
                    Measure::Figure("blocks", "data blocks a get"),
                ),
            ],
        ),
        sheet(
            "plain-mix",
            "Reads and writes of a store without indexes (figure 6)",
            "How much slower than writes are reads by key, the more of them there are?",
            mixed(),
        ),
        sheet(
            "writes",
            "Writes (figure 7)",
            "How many writes a second are there without an index, with one that is repaired later, with one that is right at once?",
            vec![Chart::bars("", &["ingest"], &["cache"], &[], Measure::Rate)],
        ),
        sheet(
            "mix",
            "Reads by value and writes (figure 8)",
            "From which share of reads on does it pay to keep the index right at once? And beside a B-tree?",
            mixed(),
        ),
    ]
}
