//! What the page shows of each experiment.

use super::SUITE;
use super::turns::TABLE_3;
use super::{memory, mqtt, sustained};
use crate::report::sheet::{Chart, Measure, Sheet};

const MEAN: Measure = Measure::Figure("mean_us", "mean µs");
const BLOCKS: Measure = Measure::Figure("blocks", "data blocks an operation, before the cache");

fn sheet(
    experiment: &'static str,
    title: &'static str,
    asks: &'static str,
    charts: Vec<Chart>,
    table: bool,
) -> Sheet {
    Sheet {
        suite: SUITE,
        experiment,
        title,
        asks,
        charts,
        table,
        headline: false,
    }
}

fn totals(read: bool) -> Vec<Chart> {
    let split = &["workload", "cache"];
    let mut charts = vec![Chart::bars("", &[], split, &["operation"], MEAN)];
    if read {
        charts.push(Chart::bars("blocks", &[], split, &["operation"], BLOCKS));
    }
    charts
}

fn over_time() -> Vec<Chart> {
    let along = ("operations", "operations so far");
    let lines =
        |title, operations| Chart::lines(title, operations, &["workload", "cache"], MEAN, along);
    vec![
        lines("all operations", &["operation"]),
        lines("subscribe", &["subscribe"]),
        lines("publish", &["publish"]),
    ]
}

fn by(parameter: &'static [&'static str]) -> Vec<Chart> {
    let chart = |title, operations| Chart::bars(title, operations, &["cache"], parameter, MEAN);
    vec![
        chart("subscribe", &["subscribe"]),
        chart("publish", &["publish"]),
    ]
}

/// The sheets of the suite, in the order of the paper.
pub fn all() -> Vec<Sheet> {
    vec![
        sheet(
            "simple",
            "Simple subscriptions (figures 10, 11)",
            "What do a subscription and a publication cost, with one tree, with two, with repeated queries, and in memory?",
            totals(true),
            true,
        ),
        sheet(
            "simple over time",
            "Simple subscriptions over time (figures 10, 11)",
            "Does an operation cost more the longer it goes on?",
            over_time(),
            false,
        ),
        sheet(
            "self-join",
            "Self-joining subscriptions (figures 12, 13)",
            "And where each operation looks at both lists of its topic?",
            totals(true),
            true,
        ),
        sheet(
            "self-join over time",
            "Self-joining subscriptions over time (figures 12, 13)",
            "Does an operation cost more the longer it goes on?",
            over_time(),
            false,
        ),
        sheet(
            "levels",
            "A hierarchy: variable and fixed granularity (figure 14)",
            "Cells of a quad-tree of depth 5, of any level: one entry each, or one for each of the smallest cells?",
            totals(true),
            true,
        ),
        sheet(
            "levels over time",
            "A hierarchy over time (figure 14)",
            "Does an operation cost more the longer it goes on?",
            over_time(),
            false,
        ),
        sheet(
            "levels by level",
            "A hierarchy, level by level (figure 16)",
            "At which levels does variable granularity pay?",
            by(&["level"]),
            true,
        ),
        sheet(
            "circles",
            "Circles: variable and fixed granularity (figure 15)",
            "The same of circles with a quarter to four times the smallest cell's length as their radius.",
            totals(true),
            true,
        ),
        sheet(
            "circles over time",
            "Circles over time (figure 15)",
            "Does an operation cost more the longer it goes on?",
            over_time(),
            false,
        ),
        sheet(
            "circles by radius",
            "Circles, radius by radius (figure 17)",
            "From which radius on does variable granularity pay?",
            by(&["radius"]),
            true,
        ),
        sheet(
            TABLE_3,
            "The cost model (table 3)",
            "How many blocks should an operation read by the paper's formula, with the sorted runs that this store had, and how many does it, before the cache? (With what it adds to the log; the formula counts one block for that.)",
            vec![Chart::bars(
                "",
                &[],
                &["kind", "workload", "cache"],
                &["operation"],
                BLOCKS,
            )],
            true,
        ),
        sheet(
            memory::EXPERIMENT,
            "Where memory ends",
            "What does a broker need that keeps everything in memory, the longer subscriptions and publications live, and what does DualDB need with a budget?",
            vec![
                Chart::lines(
                    "memory",
                    &["operation"],
                    &[],
                    Measure::Figure("memory_bytes", "MiB at most"),
                    ("alive", "subscriptions and publications alive"),
                ),
                Chart::lines(
                    "time",
                    &["operation"],
                    &[],
                    MEAN,
                    ("alive", "subscriptions and publications alive"),
                ),
            ],
            true,
        ),
        sheet(
            mqtt::EXPERIMENT,
            "A real broker's part",
            "Subscriptions to single topics from now on, four to each, and publications: what does Mosquitto cost (over the loopback), what DualDB and lists in memory (in the process)?",
            vec![
                Chart::bars(
                    "CPU time",
                    &[],
                    &["operation"],
                    &["subscriptions"],
                    Measure::Cpu,
                ),
                Chart::bars(
                    "memory",
                    &["subscribe"],
                    &[],
                    &["subscriptions"],
                    Measure::Figure("memory_per_subscription", "bytes of memory a subscription"),
                ),
            ],
            true,
        ),
        sheet(
            sustained::EXPERIMENT,
            "A million of each a minute",
            "Four publishers and one that subscribes, each a million operations a minute, with four matches a publication, in 256 MiB: how long do calls and notifications take?",
            vec![Chart::bars("", &[], &[], &["operation"], Measure::P999)],
            true,
        ),
    ]
}
