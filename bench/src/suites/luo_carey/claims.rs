//! What the paper found and what Esker is to reach, checked on the medians of a run.

use serde_json::Value as Json;

use super::SUITE;
use crate::measure::{Claim, Row};
use crate::suites::upkeep::found::{Found, wall};

/// The claims of a run, of those experiments that it has.
pub fn all(rows: &[Row]) -> Vec<Claim> {
    let found = Found {
        suite: SUITE,
        paper: "Luo & Carey",
        rows,
    };
    let mut claims = Vec::new();
    lookups(&found, &mut claims);
    claims
}

fn cold() -> (&'static str, Json) {
    ("cache", "direct".into())
}

fn lookups(found: &Found<'_>, out: &mut Vec<Claim>) {
    let at = |subject: &str, percent: f64| {
        found.one(
            "lookups",
            subject,
            "find",
            &[cold(), ("percent", percent.into())],
        )
    };
    for percent in [1.0, 10.0] {
        out.extend(found.ratio(
            "lookups",
            "figure 10b",
            format!("at {percent} % of the records an index is faster than a scan"),
            (wall, "µs a question"),
            at("index", percent),
            at("scan", percent),
            1.0,
            "",
        ));
    }
}
