//! The goals of replicated volumes, checked on the medians of a run.

use serde_json::Value as Json;

use super::task::SUITE;
use super::{bytes, failures, speed};
use crate::measure::{Claim, Row};
use crate::report::scale::short;
use crate::suites::upkeep::found::Found;

/// A figure with the goal that it has.
struct Goal {
    experiment: &'static str,
    text: String,
    measured: f64,
    limit: Limit,
    unit: &'static str,
}

enum Limit {
    Most(f64),
    Least(f64),
}

impl Goal {
    fn claim(self) -> Claim {
        let (held, expected) = match self.limit {
            Limit::Most(most) => (self.measured <= most, format!("at most {}", short(most))),
            Limit::Least(least) => (self.measured >= least, format!("at least {}", short(least))),
        };
        Claim {
            suite: SUITE.to_string(),
            experiment: self.experiment.to_string(),
            text: self.text,
            source: "goal".to_string(),
            expected: format!("{expected} {}", self.unit).trim().to_string(),
            measured: format!("{} {}", precise(self.measured), self.unit)
                .trim()
                .to_string(),
            held,
            why: String::new(),
        }
    }
}

fn precise(value: f64) -> String {
    match value.abs() < 10.0 {
        true => format!("{value:.3}"),
        false => short(value),
    }
}

fn figure(row: Option<&Row>, name: &str) -> Option<f64> {
    row?.figures.get(name).copied()
}

/// The claims of a run, of those experiments that it has.
pub fn all(rows: &[Row]) -> Vec<Claim> {
    let found = Found {
        suite: SUITE,
        paper: "Hydra",
        rows,
    };
    let mut goals = Vec::new();
    written(&found, &mut goals);
    fast(&found, &mut goals);
    robust(&found, &mut goals);
    goals.into_iter().map(Goal::claim).collect()
}

fn written(found: &Found<'_>, goals: &mut Vec<Goal>) {
    for kib in bytes::SIZES {
        let parameters = [("kib", Json::from(kib))];
        let of = |subject| found.one(bytes::FILL, subject, "write", &parameters);
        let (own, naive) = (of("esker"), of("log and state"));
        let most = if kib < 64 { 1.15 } else { 1.05 };
        if let Some(measured) = figure(own, "written") {
            goals.push(Goal {
                experiment: bytes::FILL,
                text: format!("bytes written per replica and user byte, {kib} KiB"),
                measured,
                limit: Limit::Most(most),
                unit: "",
            });
        }
        if let (Some(own), Some(naive)) = (figure(own, "device"), figure(naive, "device")) {
            goals.push(Goal {
                experiment: bytes::FILL,
                text: format!("bytes on the device beside a log and a state, {kib} KiB"),
                measured: own / naive.max(1e-9),
                limit: Limit::Most(0.6),
                unit: "times",
            });
        }
    }
    for (live, most) in bytes::LIVE.into_iter().zip([1.6, 2.3]) {
        let parameters = [("live_percent", Json::from(live))];
        let row = found.one(bytes::OVERWRITES, "esker", "overwrite", &parameters);
        if let Some(measured) = figure(row, "written") {
            goals.push(Goal {
                experiment: bytes::OVERWRITES,
                text: format!("bytes written per replica and user byte, {live} % live"),
                measured,
                limit: Limit::Most(most),
                unit: "",
            });
        }
    }
}

fn fast(found: &Found<'_>, goals: &mut Vec<Goal>) {
    let at = |subject: &str, operation: &str, kib: u32, depth: usize| {
        let parameters = [("kib", Json::from(kib)), ("depth", Json::from(depth))];
        found.one(speed::SPEED, subject, operation, &parameters)
    };
    let rate = |row: Option<&Row>| row.map(Row::ops_per_second);
    let mut beside = |text: String, of: Option<&Row>, to: Option<&Row>, least: f64| {
        if let (Some(of), Some(to)) = (rate(of), rate(to)) {
            goals.push(Goal {
                experiment: speed::SPEED,
                text,
                measured: of / to.max(1e-9),
                limit: Limit::Least(least),
                unit: "times",
            });
        }
    };
    for kib in speed::SIZES.into_iter().filter(|kib| *kib >= 64) {
        let of = |subject| at(subject, "write", kib, 16);
        let text = format!("writes of {kib} KiB at depth 16 beside a log and a state");
        beside(text, of("esker"), of("log and state"), 1.7);
    }
    for kib in speed::SIZES {
        for depth in speed::DEPTHS {
            let of = |subject| at(subject, "global read", kib, depth);
            let text = format!("global reads of {kib} KiB at depth {depth} beside nbdkit");
            beside(text.clone(), of("esker"), of("nbdkit"), 0.6);
            let text = format!("forwarded {text}");
            beside(text, of("esker, forwarded"), of("nbdkit"), 0.3);
        }
    }
    let bare = |operation| found.one(speed::SPEED, "bare", operation, &[]);
    let sync = bare("fdatasync").map(|row| row.p50_us);
    let trip = bare("round trip").map(|row| row.p50_us);
    let write = at("esker", "write", 4, 1).map(|row| row.p50_us);
    if let (Some(sync), Some(trip), Some(write)) = (sync, trip, write) {
        goals.push(Goal {
            experiment: speed::SPEED,
            text: "a write of 4 KiB alone beside a sync and two round trips".to_string(),
            measured: write / (sync + 2.0 * trip).max(1e-9),
            limit: Limit::Most(1.5),
            unit: "times",
        });
    }
}

fn robust(found: &Found<'_>, goals: &mut Vec<Goal>) {
    let one = |experiment, subject, operation| found.one(experiment, subject, operation, &[]);
    if let Some(row) = one(failures::FAIL_OVER, "esker", "kill") {
        goals.push(Goal {
            experiment: failures::FAIL_OVER,
            text: "the worst time until writes to all groups are acknowledged".to_string(),
            measured: row.max_us / 1e6,
            limit: Limit::Most(1.5),
            unit: "s",
        });
    }
    if let Some(measured) = figure(one(failures::FAIL_OVER, "esker", "pause"), "elections") {
        goals.push(Goal {
            experiment: failures::FAIL_OVER,
            text: "elections while nodes stand still for 300 ms".to_string(),
            measured,
            limit: Limit::Most(0.0),
            unit: "",
        });
    }
    let unthrottled = [("unthrottled", Json::from(true))];
    let of = |subject| {
        let row = found.one(failures::REBUILD, subject, "rebuild", &unthrottled);
        figure(row, "mib_per_second")
    };
    if let (Some(own), Some(copy)) = (of("esker"), of("cp and sync")) {
        goals.push(Goal {
            experiment: failures::REBUILD,
            text: "the rate of rebuilding a node beside cp and sync".to_string(),
            measured: own / copy.max(1e-9),
            limit: Limit::Least(0.5),
            unit: "times",
        });
    }
    for kib in [4, 128] {
        let parameters = [("kib", Json::from(kib))];
        let row = found.one(failures::MEMORY, "esker", "write", &parameters);
        if let Some(peak) = figure(row, "peak_memory_bytes") {
            goals.push(Goal {
                experiment: failures::MEMORY,
                text: format!("memory of a node, a follower standing still, {kib} KiB at depth 64"),
                measured: peak / 1048576.0,
                limit: Limit::Most(256.0),
                unit: "MiB",
            });
        }
    }
}
