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

use esker_model::definition::Maintenance;

use crate::maintenance::cost::{CANDIDATES, WorkPerWrite};
use crate::maintenance::cost_per_write;

/// The present strategy is kept unless another one is cheaper by this factor, so that they do not
/// alternate.
const MIN_GAIN: f64 = 1.5;

/// A choice and its reason.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) strategy: Maintenance,
    /// Of each candidate.
    pub(crate) costs: Vec<StrategyCost>,
    pub(crate) reason: String,
    /// The smallest change of the workload that would change the choice.
    pub(crate) change: String,
}

/// The expected cost of a strategy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StrategyCost {
    pub(crate) strategy: Maintenance,
    pub(crate) micros_per_write: f64,
}

/// Chooses among the candidates; keeps `present` unless it is much more expensive.
pub(crate) fn choose(work: &WorkPerWrite, present: Maintenance) -> Choice {
    let strategy = best(work, present);
    let costs = CANDIDATES.map(|strategy| StrategyCost {
        strategy,
        micros_per_write: cost_per_write(strategy, work),
    });
    let cost_of = |strategy| cost_per_write(strategy, work);
    let reason = match cheapest(work) {
        cheapest if cheapest == strategy => format!(
            "{strategy} costs least: {:.2} us a write with its queries{}",
            cost_of(strategy),
            if strategy == present {
                String::new()
            } else {
                format!(", {present} {:.2}", cost_of(present))
            }
        ),
        cheapest => format!(
            "{cheapest} would cost {:.2} us a write with its queries, {strategy} costs {:.2}: less than {MIN_GAIN} times as much",
            cost_of(cheapest),
            cost_of(strategy)
        ),
    };
    Choice {
        strategy,
        costs: costs.to_vec(),
        reason,
        change: nearest_change(work, strategy),
    }
}

/// The candidate that costs least.
fn cheapest(work: &WorkPerWrite) -> Maintenance {
    let cheaper = |best: Maintenance, other: Maintenance| {
        if cost_per_write(other, work) < cost_per_write(best, work) {
            other
        } else {
            best
        }
    };
    let [first, others @ ..] = CANDIDATES;
    others.into_iter().fold(first, cheaper)
}

/// The candidate to use: the cheapest one, or the present one if that is not much more expensive.
fn best(work: &WorkPerWrite, present: Maintenance) -> Maintenance {
    let cheapest = cheapest(work);
    let is_worth_it = cost_per_write(cheapest, work) * MIN_GAIN < cost_per_write(present, work);
    if is_worth_it || !CANDIDATES.contains(&present) {
        cheapest
    } else {
        present
    }
}

/// The smallest change of one measured figure that makes another strategy the choice.
fn nearest_change(work: &WorkPerWrite, present: Maintenance) -> String {
    for power in 1..=12 {
        let times = f64::from(1_u32 << power);
        for figure in &FIGURES {
            for (by, word) in [(times, figure.more), (1.0 / times, figure.less)] {
                let other = best(&(figure.scaled)(work, by), present);
                if other != present {
                    return format!("{other}, if {} {times} {word}", figure.subject);
                }
            }
        }
    }
    "no change of up to 4096 times".to_string()
}

/// A measured figure that may change.
struct Figure {
    /// The words of a sentence about it.
    subject: &'static str,
    more: &'static str,
    less: &'static str,
    /// The workload with this figure multiplied by a factor.
    scaled: fn(&WorkPerWrite, f64) -> WorkPerWrite,
}

const FIGURES: [Figure; 3] = [
    Figure {
        subject: "queries were",
        more: "times as frequent",
        less: "times rarer",
        scaled: |work, by| WorkPerWrite {
            entries: work.entries * by,
            fetched: work.fetched * by,
            scanned: work.scanned * by,
            ..*work
        },
    },
    Figure {
        subject: "updates were",
        more: "times as frequent",
        less: "times rarer",
        scaled: |work, by| WorkPerWrite {
            update_ratio: (work.update_ratio * by).min(1.0),
            ..*work
        },
    },
    Figure {
        subject: "the cache was",
        more: "times larger",
        less: "times smaller",
        scaled: |work, by| WorkPerWrite {
            keys_cached: (work.keys_cached * by).min(1.0),
            data_cached: (work.data_cached * by).min(1.0),
            ..*work
        },
    },
];

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
