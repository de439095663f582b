//! What the page shows of each experiment.

use super::SUITE;
use crate::report::sheet::{Chart, Measure, Sheet};

const MILLIS: Measure = Measure::Figure("mean_ms", "mean ms");
const READS: Measure = Measure::Figure("disk_reads", "reads of 4 KiB from the disk");

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
        vec![
            Chart::lines("all operations", &["all"], &["cache"], Measure::Rate, reads),
            Chart::lines("read", &["read"], &["cache"], MILLIS, reads),
            Chart::lines("write", &["write"], &["cache"], MILLIS, reads),
        ]
    };
    vec![
        sheet(
            "compaction",
            "Gets before and after a compaction (figure 1)",
            "Why repair indexes just when data is compacted: what does a get cost before and after?",
            vec![
                Chart::bars("", &["get"], &["cache"], &[], MILLIS),
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
        sheet(
            "repair",
            "Repair with a compaction (figure 9)",
            "What does it add to a compaction to find the obsolete index entries: as records are merged, by a pass after or before?",
            vec![
                Chart::bars("", &["compact"], &["cache"], &["versions"], MILLIS),
                Chart::bars("read", &["compact"], &["cache"], &["versions"], READS),
            ],
        ),
        sheet(
            "totals",
            "Writes and one compaction together (table II)",
            "Does it pay to defer the repair, all in all?",
            vec![
                Chart::bars(
                    "",
                    &[],
                    &["cache"],
                    &["operation"],
                    Measure::Figure("total_seconds", "s"),
                ),
                Chart::bars("read", &[], &["cache"], &["operation"], READS),
            ],
        ),
    ]
}
