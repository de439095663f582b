//! What DELI found, and what Esker is to reach on clusters, checked on the medians of a run.

use serde_json::Value as Json;

use super::task::SUITE;
use super::{lookups, memory, mixes, repairs, totals, writes};
use crate::measure::{Claim, Row};
use crate::report::scale::short;

const NOISE: &str = "servers, clients and other programs share two cores here";
const DISK: &str = "versions lie newest first, so that a get opens the newest file alone, and the disk is \
                    fast: the processor's time prevails in what a request costs";

/// The claims of a run, of those experiments that it has.
pub fn all(rows: &[Row]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (store, nodes) in [
        ("cassandra", 1),
        ("cassandra", 3),
        ("hbase", 1),
        ("hbase", 3),
    ] {
        let mut of = Of {
            rows,
            store,
            nodes,
            claims: &mut claims,
        };
        of.gets();
        of.writes();
        of.mixes();
        of.repairs();
        of.totals();
        of.lookups();
        of.loads();
    }
    claims
}

/// The rows of a cluster.
struct Of<'a> {
    rows: &'a [Row],
    store: &'a str,
    nodes: u32,
    claims: &'a mut Vec<Claim>,
}

enum Limit {
    Least(f64),
    Most(f64),
}
use Limit::{Least, Most};

/// Who says so.
const GOAL: &str = "goal";

impl<'a> Of<'a> {
    fn one(
        &self,
        experiment: &str,
        subject: &str,
        operation: &str,
        parameters: &[(&str, Json)],
    ) -> Option<&'a Row> {
        self.rows.iter().find(|row| {
            let is = |name: &str, value: &Json| row.parameters.get(name) == Some(value);
            row.suite == SUITE
                && row.experiment == experiment
                && row.subject == subject
                && row.operation == operation
                && is("store", &self.store.into())
                && is("nodes", &self.nodes.into())
                && parameters.iter().all(|(name, value)| is(name, value))
        })
    }

    fn figure(row: Option<&Row>, name: &str) -> Option<f64> {
        row?.figures.get(name).copied()
    }

    fn claim(
        &mut self,
        (experiment, source): (&str, &str),
        text: &str,
        measured: Option<f64>,
        limit: Limit,
        (unit, why): (&str, &str),
    ) {
        self.claim_beside(
            (experiment, source),
            text,
            (measured, None),
            limit,
            (unit, why),
        );
    }

    /// A claim, with the ratio of processor times beside that of wall times.
    fn claim_beside(
        &mut self,
        (experiment, source): (&str, &str),
        text: &str,
        (measured, cpu): (Option<f64>, Option<f64>),
        limit: Limit,
        (unit, why): (&str, &str),
    ) {
        let Some(measured) = measured else { return };
        let (held, expected) = match limit {
            Most(most) => (measured <= most, format!("at most {}", short(most))),
            Least(least) => (measured >= least, format!("at least {}", short(least))),
        };
        let nodes = match self.nodes {
            1 => "a node".to_string(),
            nodes => format!("{nodes} nodes"),
        };
        self.claims.push(Claim {
            suite: SUITE.to_string(),
            experiment: experiment.to_string(),
            text: format!("{text} ({}, {nodes})", self.store),
            source: match source {
                GOAL => GOAL.to_string(),
                figure => format!("DELI {figure}"),
            },
            expected: format!("{expected} {unit}").trim().to_string(),
            measured: match cpu {
                Some(cpu) => format!("{measured:.2} {unit}, {cpu:.2} by processor time"),
                None => format!("{measured:.2} {unit}").trim().to_string(),
            },
            held,
            why: match held {
                true => String::new(),
                false => why.to_string(),
            },
        });
    }

    fn gets(&mut self) {
        let mean = |row: Option<&Row>| Self::figure(row, "mean_ms");
        let at = |state: &str| {
            let subject = format!("{state} compaction");
            mean(self.one(mixes::COMPACTION, &subject, "get", &[]))
        };
        let gain = quotient(at("before"), at("after"));
        let place = (mixes::COMPACTION, "figure 1");
        let text = "gets are faster after a compaction, in the paper up to seven times";
        self.claim(place, text, gain, Least(1.5), ("times", DISK));
        let place = (mixes::PLAIN_MIX, "figure 6");
        let at = |operation: &str, reads: u32| {
            self.one(
                mixes::PLAIN_MIX,
                "no index",
                operation,
                &[("reads", reads.into())],
            )
        };
        let ratio = quotient(mean(at("read", 50)), mean(at("write", 50)));
        let falls = quotient(
            at("all", 0).map(Row::ops_per_second),
            at("all", 100).map(Row::ops_per_second),
        );
        let text = "a read takes several times as long as a write";
        self.claim(place, text, ratio, Least(2.0), ("times", DISK));
        let text = "throughput falls as reads prevail";
        self.claim(place, text, falls, Least(2.0), ("times", DISK));
    }

    fn writes(&mut self) {
        let found = [
            (
                writes::WRITES,
                GOAL,
                "writes from memory beside update-in-place",
                "in_place",
                1.7,
            ),
            (
                writes::COLD_WRITES,
                GOAL,
                "writes with cold caches and four files beside update-in-place",
                "in_place",
                2.5,
            ),
            (
                writes::COLD_WRITES,
                "figure 7",
                "writes beside update-in-place, in the paper three times as many",
                "in_place",
                3.0,
            ),
            (
                writes::WRITES,
                GOAL,
                "writes beside those to the server's own index",
                "sai",
                0.5,
            ),
            (
                writes::WRITES,
                "figure 7",
                "writes beside those without an index",
                "no_index",
                0.3,
            ),
        ];
        for (experiment, source, text, beside, least) in found {
            let row = self.one(experiment, "esker", "all", &[]);
            let times = Self::figure(row, &format!("times_{beside}"));
            let cpu = Self::figure(row, &format!("cpu_times_{beside}"));
            let why = if experiment == writes::WRITES {
                NOISE
            } else {
                DISK
            };
            let place = (experiment, source);
            self.claim_beside(place, text, (times, cpu), Least(least), ("times", why));
        }
    }

    fn mixes(&mut self) {
        let at = |subject: &str, operation: &str, reads: u32| {
            self.one(mixes::MIX, subject, operation, &[("reads", reads.into())])
        };
        let place = (mixes::MIX, "figure 8");
        let mean = |subject, operation| Self::figure(at(subject, operation, 50), "mean_ms");
        let row = at("esker", "all", 10);
        let ahead = Self::figure(row, "times_in_place");
        let cpu = Self::figure(row, "cpu_times_in_place");
        let write = quotient(mean("update-in-place", "write"), mean("esker", "write"));
        let read = quotient(mean("esker", "read"), mean("update-in-place", "read"));
        let text = "at 10 % reads by value ahead of update-in-place";
        self.claim_beside(place, text, (ahead, cpu), Least(2.5), ("times", DISK));
        let text = "at 50 % reads update-in-place has the slower writes";
        self.claim(place, text, write, Least(1.0), ("times", DISK));
        let text = "at 50 % reads update-in-place has the faster reads";
        let why = "a read removes what it finds to be obsolete, so that the next one does not meet it; both then read the records";
        self.claim(place, text, read, Least(1.0), ("times", why));
    }

    fn repairs(&mut self) {
        let of = |way: &str, versions: u32, name: &str| {
            let row = self.one(
                repairs::REPAIR,
                way,
                "compact",
                &[("versions", versions.into())],
            );
            Self::figure(row, name)
        };
        let ratio = |of_way: &str, to_way: &str, versions: u32, name: &str| {
            quotient(of(of_way, versions, name), of(to_way, versions, name))
        };
        let seconds = "total_seconds";
        let streaming = ratio("streaming", "no repair", 1, seconds);
        let deleting = ratio("streaming", "no repair", 3, seconds);
        let reads = ratio("streaming", "no repair", 1, "read_calls");
        let staged = ratio("staged", "streaming", 1, seconds);
        let before = [1, 3].map(|versions| ratio("before compaction", "staged", versions, seconds));
        let left = ["staged", "before compaction", "streaming"];
        let left = left
            .into_iter()
            .filter_map(|way| of(way, 3, "obsolete"))
            .reduce(f64::max);
        let (goal, figure) = ((repairs::REPAIR, GOAL), (repairs::REPAIR, "figure 9a"));
        let text = "a compaction with streaming repair, one version of each record";
        self.claim(goal, text, streaming, Most(1.2), ("times", NOISE));
        let text = "a compaction with streaming repair that deletes, in the paper 1.65 times (three versions)";
        let why = "each obsolete version is an entry to delete in another table, and a version to delete here";
        self.claim(figure, text, deleting, Most(1.65), ("times", why));
        let place = (repairs::REPAIR, "figure 9b");
        let text = "streaming repair reads as much as a plain compaction";
        self.claim(place, text, reads, Most(1.1), ("times", NOISE));
        let text = "a staged repair takes longer than a streaming one";
        self.claim(figure, text, staged, Least(1.0), ("times", NOISE));
        for (versions, ratio) in [1, 3].into_iter().zip(before) {
            let text = format!(
                "a repair before the compaction takes longer than one after it ({versions} versions)"
            );
            let why = "the pass asks the store for each version by the network, which costs more than the files that it reads";
            self.claim(figure, &text, ratio, Least(1.0), ("times", why));
        }
        let text = "obsolete entries after a repair";
        self.claim(goal, text, left, Most(0.0), ("", NOISE));
        for name in ["writes alone", "half reads"] {
            let row = self.one(repairs::OBSOLETE, name, "repair", &[]);
            let left = Self::figure(row, "obsolete");
            let text = format!("obsolete entries after a repair, {name}");
            self.claim(
                (repairs::OBSOLETE, GOAL),
                &text,
                left,
                Most(0.0),
                ("", NOISE),
            );
        }
    }

    fn totals(&mut self) {
        let of = |subject: &str, operation: &str, name: &str| {
            Self::figure(self.one(totals::TOTALS, subject, operation, &[]), name)
        };
        let ratio = |operation: &str| {
            let to = of("update-in-place", operation, "total_seconds");
            quotient(of("esker", operation, "total_seconds"), to)
        };
        let place = (totals::TOTALS, "table II");
        let (online, both) = (ratio("online"), ratio("both"));
        let disk = quotient(
            of("esker", "online", "disk_reads"),
            of("update-in-place", "online", "disk_reads"),
        );
        let text = "writes take a fraction of update-in-place's time, in the paper a quarter";
        self.claim(place, text, online, Most(0.4), ("times", DISK));
        let text = "writes, compaction and repair take a fraction of update-in-place's time, in the paper a third";
        self.claim(place, text, both, Most(0.5), ("times", DISK));
        let text = "disk reads of writes beside update-in-place, in the paper none";
        self.claim(place, text, disk, Most(0.05), ("times", DISK));
    }

    fn lookups(&mut self) {
        let of = |subject: &str, operation: &str, records: u32, name: &str| {
            let parameters = [("records", records.into())];
            Self::figure(
                self.one(lookups::LOOKUPS, subject, operation, &parameters),
                name,
            )
        };
        let mean = "mean_ms";
        let ten = quotient(
            of("esker", "lookup", 10, mean),
            of("esker", "gets", 10, mean),
        );
        let rare = quotient(of("esker", "lookup", 1, mean), of("SAI", "lookup", 1, mean));
        let none = quotient(of("esker", "none", 1, mean), of("SAI", "none", 1, mean));
        let asked = quotient(
            of("esker", "none", 1, "node_reads"),
            of("SAI", "none", 1, "node_reads"),
        );
        let place = (lookups::LOOKUPS, GOAL);
        let text = "a lookup of ten records beside a batch of ten gets";
        self.claim(place, text, ten, Most(2.0), ("times", NOISE));
        let text = "a lookup of one record beside the server's own index";
        let why = "a lookup asks twice, for the entry and then for the record; the server's own index has both in one place, on each node";
        self.claim(place, text, rare, Most(2.0), ("times", why));
        let text = "a lookup of no record beside the server's own index";
        self.claim(place, text, none, Most(1.2), ("times", NOISE));
        let text = "reads of nodes for a lookup of no record, beside the server's own index";
        self.claim(place, text, asked, Most(1.0), ("times", NOISE));
    }

    fn loads(&mut self) {
        let rate = |subject: &str| {
            Self::figure(self.one(writes::LOAD, subject, "load", &[]), "per_second")
        };
        let ratio = quotient(rate("esker load"), rate("prepared inserts"));
        let text = "`esker load` beside prepared inserts of the same rows and entries";
        let why = "the rate includes the start of a program and the making of a dataset";
        self.claim(
            (writes::LOAD, GOAL),
            text,
            ratio,
            Least(0.5),
            ("times", why),
        );
        let added = self.rows.iter().filter(|row| {
            row.experiment == memory::MEMORY
                && row.parameters.get("store") == Some(&self.store.into())
                && row.parameters.get("nodes") == Some(&self.nodes.into())
        });
        let added = added.filter_map(|row| row.figures.get("added_memory_bytes"));
        let most = added
            .copied()
            .reduce(f64::max)
            .map(|bytes| bytes / 1048576.0);
        let text = "memory that an answer of all records adds at most";
        self.claim(
            (memory::MEMORY, GOAL),
            text,
            most,
            Most(160.0),
            ("MiB", NOISE),
        );
    }
}

fn quotient(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    Some(of? / to?.max(1e-9))
}
