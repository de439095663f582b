//! What the paper found and what Esker is to reach, checked on the medians of a run.

use super::SUITE;
use crate::measure::{Claim, Row};
use crate::suites::upkeep::found::{Found, wall};

/// The claims of a run, of those experiments that it has.
pub fn all(rows: &[Row]) -> Vec<Claim> {
    let found = Found {
        suite: SUITE,
        paper: "DELI",
        rows,
    };
    let mut claims = Vec::new();
    compaction(&found, &mut claims);
    claims
}

fn compaction(found: &Found<'_>, out: &mut Vec<Claim>) {
    for cache in ["direct", "cached"] {
        let at = |when: &str| {
            let subject = format!("{when} compaction");
            found.one("compaction", &subject, "get", &[("cache", cache.into())])
        };
        out.extend(found.ratio(
            "compaction",
            "figure 1",
            format!("gets are faster after a compaction ({cache})"),
            (wall, "µs a get"),
            at("after"),
            at("before"),
            1.0,
            "",
        ));
    }
}
