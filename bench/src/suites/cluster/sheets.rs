//! What the page shows of each experiment.

use super::task::SUITE;
use super::{lookups, memory, mixes, repairs, totals, writes};
use crate::report::sheet::{Chart, Measure, Sheet};

const RATE: Measure = Measure::Figure("per_second", "operations a second");
const MILLIS: Measure = Measure::Figure("mean_ms", "mean ms");
const SECONDS: Measure = Measure::Figure("total_seconds", "s");
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
    const CLUSTER: &[&str] = &["store", "nodes"];
    let reads = ("reads", "% reads");
    let mixed = || {
        vec![
            Chart::lines("all operations", &["all"], CLUSTER, RATE, reads),
            Chart::lines("read", &["read"], CLUSTER, MILLIS, reads),
            Chart::lines("write", &["write"], CLUSTER, MILLIS, reads),
        ]
    };
    let rates = || vec![Chart::bars("", &["all"], &[], CLUSTER, RATE)];
    vec![
        sheet(
            mixes::COMPACTION,
            "Gets before and after a compaction, on a cluster (figure 1)",
            "What does a get of a record cost before and after a compaction, with cold caches?",
            vec![
                Chart::bars("", &["get"], &[], CLUSTER, MILLIS),
                Chart::bars("read", &["get"], &[], CLUSTER, READS),
            ],
        ),
        sheet(
            mixes::PLAIN_MIX,
            "Reads and writes of a cluster without indexes (figure 6)",
            "How much slower than writes are reads by key, with cold caches, the more of them there are?",
            mixed(),
        ),
        sheet(
            writes::WRITES,
            "Writes to a cluster, from memory (figure 7)",
            "How many writes a second are there with Esker's index, with one that is right at once, with none, with the server's own?",
            rates(),
        ),
        sheet(
            writes::COLD_WRITES,
            "Writes to a cluster, with cold caches (figure 7)",
            "And when the old record has to be read from four files on the disk?",
            rates(),
        ),
        sheet(
            mixes::MIX,
            "Reads by value and writes on a cluster (figure 8)",
            "From which share of reads on does it pay to keep the index right at once?",
            mixed(),
        ),
        sheet(
            repairs::OBSOLETE,
            "Obsolete entries of a cluster over time",
            "How many index entries are obsolete after so many writes, with and without reads, which remove what they find?",
            vec![Chart::lines(
                "",
                &["write"],
                CLUSTER,
                Measure::Figure("obsolete_percent", "% of the entries"),
                ("writes", "writes"),
            )],
        ),
        sheet(
            repairs::REPAIR,
            "Repair with a compaction of a cluster (figure 9)",
            "What does it add to a compaction to find the obsolete index entries: inside it, by a pass after or before?",
            vec![
                Chart::bars("", &["compact"], CLUSTER, &["versions"], SECONDS),
                Chart::bars("read", &["compact"], CLUSTER, &["versions"], READS),
            ],
        ),
        sheet(
            totals::TOTALS,
            "Writes and one compaction of a cluster together (table II)",
            "Does it pay to defer the repair, all in all?",
            vec![
                Chart::bars("", &[], CLUSTER, &["operation"], SECONDS),
                Chart::bars("read", &[], CLUSTER, &["operation"], READS),
            ],
        ),
        sheet(
            lookups::LOOKUPS,
            "Lookups on a cluster",
            "What does a lookup of one record, ten or none cost beside the server's own index, and beside gets by key?",
            vec![
                Chart::bars("", &[], CLUSTER, &["operation", "records"], MILLIS),
                Chart::bars(
                    "asked",
                    &[],
                    CLUSTER,
                    &["operation", "records"],
                    Measure::Figure("node_reads", "reads of nodes"),
                ),
            ],
        ),
        sheet(
            writes::LOAD,
            "Loading a cluster",
            "How fast is `esker load` beside prepared inserts of the same rows and entries?",
            vec![Chart::bars("", &["load"], &[], CLUSTER, RATE)],
        ),
        sheet(
            memory::MEMORY,
            "Memory of a client",
            "What does an answer of all records add to the client's memory at most?",
            vec![Chart::lines(
                "",
                &[],
                &["operation", "store"],
                Measure::Figure("added_memory_bytes", "MiB"),
                ("records", "records"),
            )],
        ),
    ]
}
