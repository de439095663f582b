//! The choice of the maintenance strategy from measurements: a pure function.
//!
//! The cost model counts microseconds of one core per write; the cost of queries is divided among
//! the writes counted in the same period. All three strategies write the primary-key index. They
//! differ in:
//!
//! - *eager*: a write looks up the key, fetches the replaced record and cancels its entry in each
//!   index. A filtered scan reads more records, by the share by which updates widen filters.
//! - *mutable-bitmap*: a write looks up the key and sets a bit. Index-only queries and fetches skip
//!   obsolete entries by their bits.
//! - *validation*: a write pays its share of repairs. An index-only query skips by bits, too, and
//!   probes the primary-key index per entry; obsolete records are fetched; a filtered scan reads
//!   newer components as well.
//!
//! A lookup of an uncached key reads a block if the key exists, and only key filters if it is new.

use crate::maintenance::cost;
use crate::maintenance::cost::{CANDIDATES, FIRST, Workload};
use esker_model::definition::Maintenance;

/// The present strategy is kept unless another one is cheaper by this factor, so that they do not
/// alternate.
const WORTH: f64 = 1.5;

/// A choice and its reason.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) strategy: Maintenance,
    /// Microseconds per write of each candidate.
    pub(crate) costs: Vec<(Maintenance, f64)>,
    pub(crate) reason: String,
    /// The smallest change of the workload that would change the choice.
    pub(crate) change: String,
}

/// Chooses among the candidates; keeps `present` unless it is much more expensive.
pub(crate) fn choose(work: &Workload, present: Maintenance) -> Choice {
    let strategy = best(work, present);
    let costs: Vec<_> = CANDIDATES.map(|s| (s, cost(s, work))).to_vec();
    let of = |wanted| cost(wanted, work);
    let reason = match cheapest(work) {
        cheapest if cheapest == strategy => format!(
            "{strategy} costs least: {:.2} us a write with its queries{}",
            of(strategy),
            if strategy == present {
                String::new()
            } else {
                format!(", {present} {:.2}", of(present))
            }
        ),
        cheapest => format!(
            "{cheapest} would cost {:.2} us a write with its queries, {strategy} costs {:.2}: less than {WORTH} times as much",
            of(cheapest),
            of(strategy)
        ),
    };
    Choice {
        strategy,
        costs,
        reason,
        change: nearest_change(work, strategy),
    }
}

fn cheapest(work: &Workload) -> Maintenance {
    let mut best = CANDIDATES.map(|s| (cost(s, work), s));
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    best.first().map_or(FIRST, |best| best.1)
}

fn best(work: &Workload, present: Maintenance) -> Maintenance {
    let cheapest = cheapest(work);
    let worth = cost(cheapest, work) * WORTH < cost(present, work);
    if worth || !CANDIDATES.contains(&present) {
        cheapest
    } else {
        present
    }
}

/// The smallest change of one measured figure that makes another strategy the choice.
fn nearest_change(work: &Workload, present: Maintenance) -> String {
    type Scaled = fn(&Workload, f64) -> Workload;
    let figures: [(&str, Scaled); 3] = [
        ("queries were", |work, by| Workload {
            entries: work.entries * by,
            fetched: work.fetched * by,
            scanned: work.scanned * by,
            ..*work
        }),
        ("updates were", |work, by| Workload {
            update_ratio: (work.update_ratio * by).min(1.0),
            ..*work
        }),
        ("the cache was", |work, by| Workload {
            keys_cached: (work.keys_cached * by).min(1.0),
            data_cached: (work.data_cached * by).min(1.0),
            ..*work
        }),
    ];
    for power in 1..=12 {
        for (what, scaled) in figures {
            let times = f64::from(1_u32 << power);
            let (more, fewer) = match what {
                "the cache was" => ("times larger", "times smaller"),
                _ => ("times as frequent", "times rarer"),
            };
            for (by, word) in [(times, more), (1.0 / times, fewer)] {
                let then = best(&scaled(work, by), present);
                if then != present {
                    return format!("{then}, if {what} {times} {word}");
                }
            }
        }
    }
    "no change of up to 4096 times".to_string()
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
