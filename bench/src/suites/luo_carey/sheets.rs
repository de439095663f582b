//! What the page shows of each experiment.

use super::SUITE;
use crate::report::sheet::{Chart, Measure, Sheet};

const MILLIS: Measure = Measure::Figure("mean_ms", "ms");

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
    let selectivity = ("percent", "% of the records");
    let ingest = &["ingest"];
    vec![
        sheet(
            "lookups",
            "Records through an index, or by a scan (figures 10a, 10b)",
            "How much does each of the optimizations of lookups save, and up to which share of the records is an index faster than a scan?",
            vec![Chart::lines("", &["find"], &["cache"], MILLIS, selectivity)],
        ),
        sheet(
            "batch-size",
            "The size of a batch (figure 10c)",
            "How much memory does a batch of lookups need?",
            vec![Chart::lines(
                "",
                &["find"],
                &["cache"],
                MILLIS,
                ("batch", "KiB a batch"),
            )],
        ),
        sheet(
            "sorting",
            "Answers in order (figure 10d)",
            "Batches lose the order of keys: what does it cost to sort the answer, beside lookups that keep it?",
            vec![Chart::lines("", &["find"], &["cache"], MILLIS, selectivity)],
        ),
        sheet(
            "inserts",
            "Inserts that must be new (figure 11)",
            "What does it cost to refuse keys that are there, with and without an index of the keys alone?",
            vec![Chart::lines(
                "",
                ingest,
                &["cache"],
                Measure::Rate,
                ("duplicates", "% duplicates"),
            )],
        ),
        sheet(
            "upserts",
            "Upserts by strategy (figure 12)",
            "How many upserts a second does each way to maintain indexes get through, merges included?",
            vec![Chart::lines(
                "",
                ingest,
                &["cache", "keys"],
                Measure::Rate,
                ("updates", "% updates"),
            )],
        ),
        sheet(
            "merge-size",
            "Upserts by the size of components that are still merged (figure 13a)",
            "Does it change the picture when fewer or more components are left (10 % updates)?",
            vec![Chart::lines(
                "",
                ingest,
                &["cache"],
                Measure::Rate,
                ("largest", "largest component merged, % of all JSON"),
            )],
        ),
        sheet(
            "indexes",
            "Upserts by number of indexes (figure 13b)",
            "And with more indexes (10 % updates)?",
            vec![Chart::lines(
                "",
                ingest,
                &["cache"],
                Measure::Rate,
                ("indexes", "indexes"),
            )],
        ),
        sheet(
            "queries",
            "Questions that want records, after upserts (figure 14)",
            "What do index entries of replaced records cost those who ask?",
            vec![Chart::bars(
                "",
                &["find"],
                &["cache", "updates"],
                &["percent"],
                MILLIS,
            )],
        ),
        sheet(
            "index-only",
            "Questions that the index could answer alone (figure 15)",
            "And where only keys or their number are wanted?",
            vec![Chart::bars(
                "",
                &[],
                &["cache", "updates", "operation"],
                &["percent"],
                MILLIS,
            )],
        ),
        sheet(
            "range-filter",
            "Ranges of time, with range filters (figure 16)",
            "Components have the least and the greatest time of their records. How much of the data can a question pass over?",
            vec![
                Chart::bars(
                    "",
                    &["find"],
                    &["cache", "updates"],
                    &["age", "percent"],
                    MILLIS,
                ),
                Chart::bars(
                    "blocks",
                    &["find"],
                    &["cache", "updates"],
                    &["age", "percent"],
                    Measure::Figure("blocks", "data blocks a question"),
                ),
            ],
        ),
        sheet(
            "repair",
            "Repair as data accumulates (figure 17)",
            "After each tenth of the writes: how long does it take to find everything that is obsolete?",
            vec![Chart::lines(
                "",
                &["repair"],
                &["cache", "updates"],
                MILLIS,
                ("records", "records so far"),
            )],
        ),
        sheet(
            "repair-indexes",
            "Repair of one and of five indexes (figure 18)",
            "And with more indexes (10 % updates)?",
            vec![Chart::lines(
                "",
                &["repair"],
                &["cache", "indexes"],
                MILLIS,
                ("records", "records so far"),
            )],
        ),
    ]
}
