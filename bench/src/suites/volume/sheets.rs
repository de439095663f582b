//! What the page shows of each experiment.

use super::task::SUITE;
use super::{bytes, failures, speed};
use crate::report::sheet::{Chart, Measure, Sheet};

const RATE: Measure = Measure::Figure("mib_per_second", "MiB a second");
const WRITTEN: Measure = Measure::Figure("written", "bytes written per user byte");

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

/// The sheets of the suite.
pub fn all() -> Vec<Sheet> {
    let device = Measure::Figure("device", "bytes on the device per user byte");
    vec![
        sheet(
            bytes::FILL,
            "Bytes written by a first fill",
            "How many bytes does a replica write for each byte of a user, where the log is the volume, and where there is a log and a state?",
            vec![
                Chart::bars("written", &[], &[], &["kib"], WRITTEN),
                Chart::bars("device", &[], &[], &["kib"], device),
            ],
        ),
        sheet(
            bytes::OVERWRITES,
            "Bytes written by random overwrites",
            "What does vacuum add, when blocks of 4 KiB of a full volume were overwritten three times over?",
            vec![Chart::bars("", &[], &[], &["live_percent"], WRITTEN)],
        ),
        sheet(
            speed::SPEED,
            "Latency and throughput of a volume",
            "How fast are writes, reads and deletes by requests in flight, at the node that leads and forwarded by another?",
            vec![
                Chart::bars("write", &["write"], &["kib"], &["depth"], RATE),
                Chart::bars("global read", &["global read"], &["kib"], &["depth"], RATE),
            ],
        ),
        sheet(
            speed::GROUPS,
            "Groups",
            "What do several groups bring, whose leaders are spread?",
            vec![Chart::bars(
                "",
                &[],
                &["operation"],
                &["groups", "kib"],
                RATE,
            )],
        ),
        sheet(
            failures::FAIL_OVER,
            "Fail-over",
            "How long until each group takes writes again, after a node was killed?",
            vec![Chart::bars("slowest", &["kill"], &[], &[], Measure::P999)],
        ),
        sheet(
            failures::REBUILD,
            "Rebuilding a node",
            "How fast does a node with an empty disk get its data, beside a copy?",
            vec![Chart::bars("", &[], &[], &["unthrottled"], RATE)],
        ),
        sheet(
            failures::MEMORY,
            "Memory",
            "How much memory does a node have at most, while a follower stands still and 64 writes are in flight?",
            vec![Chart::bars(
                "",
                &[],
                &[],
                &["kib"],
                Measure::Figure("peak_memory_bytes", "MiB at most"),
            )],
        ),
    ]
}
