//! Which maintenance strategy fits what is measured: a pure function.
//!
//! The cost model, in microseconds of one core per write, queries being divided among the writes that were counted
//! with them. All three strategies write the primary-key index; what differs is
//!
//! | | per write | per index entry of index-only queries | per record fetched | per record of filtered scans |
//! | --- | --- | --- | --- | --- |
//! | eager | the key is looked up; what it replaces is fetched, and taken out of each index | | | the share that updates widen filters by |
//! | mutable-bitmap | the key is looked up, a bit is set | entries that are over are passed by their bits | likewise | |
//! | validation | its share of repairs | as mutable-bitmap, and the primary-key index is asked | fetches of what is over | newer components are read as well |
//!
//! A lookup of a key that is not in the cache reads a block where the key is known, and only key filters where it is new.

use model::definition::Maintenance;

/// Looking a key up in the cache; fetching a record from it; reading a block that is not in it.
const KEY: f64 = 1.5;
const RECORD: f64 = 4.0;
const READ: f64 = 60.0;
/// Taking an entry back; setting a bit.
const CANCEL: f64 = 1.5;
const BIT: f64 = 0.7;
/// A write's share of repairs: it is gone through, and what it may have replaced is.
const REPAIR: f64 = 1.0;
/// Asking the primary-key index about an entry; testing its bit; passing by an entry that is over.
pub(super) const ASK: f64 = 0.4;
const TEST: f64 = 0.01;
const PASS: f64 = 0.1;
/// Fetching the record of an entry that is over.
pub(super) const FETCH: f64 = 5.0;
/// Going through a record in a scan.
const SCAN: f64 = 0.9;

/// The present strategy is kept unless another costs less by this factor: they must not alternate.
const WORTH: f64 = 1.5;

/// The strategies that are chosen from.
pub(super) const CANDIDATES: [Maintenance; 3] = [
    Maintenance::Validation,
    Maintenance::MutableBitmap,
    Maintenance::Eager,
];

/// What is measured, per write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Workload {
    /// The share of writes that replace a record.
    pub(crate) update_ratio: f64,
    /// Stand-alone indexes.
    pub(crate) indexes: f64,
    /// Index entries that index-only queries go through.
    pub(crate) entries: f64,
    /// Records that other queries of indexes fetch.
    pub(crate) fetched: f64,
    /// The share of these that are over, under validation.
    pub(crate) wasted: f64,
    /// Records that scans with range filters go through.
    pub(crate) scanned: f64,
    /// The shares of the primary-key index and of the data that the cache has room for.
    pub(crate) keys_cached: f64,
    pub(crate) data_cached: f64,
}

/// A choice and why.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) strategy: Maintenance,
    /// Microseconds per write of each candidate.
    pub(crate) costs: Vec<(Maintenance, f64)>,
    pub(crate) reason: String,
    /// The change that is nearest.
    pub(crate) change: String,
}

/// Chooses among the candidates; `present` is kept where it is not much worse.
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
            "{cheapest} would cost {:.2} us a write with its queries, {strategy} {:.2}: not {WORTH} times as much",
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
    best.first().map_or(Maintenance::Validation, |best| best.1)
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

/// Microseconds per write.
pub(crate) fn cost(strategy: Maintenance, work: &Workload) -> f64 {
    let updates = work.update_ratio;
    let miss = |cached: f64| (1.0 - cached) * READ;
    let lookup = KEY + updates * miss(work.keys_cached);
    let passed = (work.entries + work.fetched) * (TEST + PASS * updates / 2.0);
    match strategy {
        Maintenance::Eager => {
            let old = RECORD + miss(work.data_cached) + CANCEL * work.indexes;
            lookup + updates * old + work.scanned * SCAN * updates
        }
        Maintenance::MutableBitmap => lookup + updates * BIT + passed,
        _ => {
            let wasted = work.fetched * work.wasted * (FETCH + miss(work.data_cached));
            REPAIR + passed + work.entries * ASK + wasted + work.scanned * SCAN
        }
    }
}

/// The smallest change of one measured figure by which another strategy would be chosen.
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
    "nothing that is near".to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITES: Workload = Workload {
        update_ratio: 0.5,
        indexes: 1.0,
        entries: 0.0,
        fetched: 0.0,
        wasted: 0.0,
        scanned: 0.0,
        keys_cached: 1.0,
        data_cached: 1.0,
    };

    fn chosen(work: Workload) -> Maintenance {
        // Whatever was there before.
        let all = CANDIDATES.map(|present| choose(&work, present).strategy);
        assert!(all.iter().all(|strategy| *strategy == all[0]), "{all:?}");
        all[0]
    }

    #[test]
    fn writes_that_nobody_asks_about_are_validated_by_repairs() {
        assert_eq!(chosen(WRITES), Maintenance::Validation);
        let new = Workload {
            update_ratio: 0.0,
            keys_cached: 0.0,
            ..WRITES
        };
        // New keys cost nobody a lookup.
        assert_eq!(
            choose(&new, Maintenance::Validation).strategy,
            Maintenance::Validation
        );
    }

    #[test]
    fn index_only_queries_want_bits_where_keys_are_cached() {
        let work = Workload {
            entries: 20.0,
            ..WRITES
        };
        assert_eq!(chosen(work), Maintenance::MutableBitmap);
        let large = Workload {
            keys_cached: 0.0,
            data_cached: 0.0,
            ..work
        };
        assert_eq!(chosen(large), Maintenance::Validation);
    }

    #[test]
    fn many_queries_a_write_want_indexes_without_old_entries() {
        let work = Workload {
            entries: 5000.0,
            ..WRITES
        };
        assert_eq!(chosen(work), Maintenance::Eager);
    }

    #[test]
    fn fetches_of_what_is_over_want_bits() {
        let work = Workload {
            fetched: 10.0,
            wasted: 0.4,
            ..WRITES
        };
        assert_eq!(chosen(work), Maintenance::MutableBitmap);
        let none = Workload {
            wasted: 0.0,
            ..work
        };
        assert_eq!(chosen(none), Maintenance::Validation);
    }

    #[test]
    fn filters_want_bits() {
        let work = Workload {
            scanned: 100.0,
            ..WRITES
        };
        assert_eq!(chosen(work), Maintenance::MutableBitmap);
    }

    #[test]
    fn what_is_nearly_as_good_is_kept() {
        let work = Workload {
            entries: 2.0,
            ..WRITES
        };
        for present in [Maintenance::Validation, Maintenance::MutableBitmap] {
            let choice = choose(&work, present);
            assert_eq!(choice.strategy, present, "{choice:?}");
        }
        // Another strategy than the candidates is not kept.
        assert!(CANDIDATES.contains(&choose(&work, Maintenance::Deferred).strategy));
    }

    #[test]
    fn the_nearest_change_is_told() {
        let work = Workload {
            entries: 2.0,
            ..WRITES
        };
        let choice = choose(&work, Maintenance::Validation);
        assert!(
            choice.change.starts_with("mutable-bitmap, if queries were"),
            "{choice:?}"
        );
        assert_eq!(choice.costs.len(), CANDIDATES.len());
        let idle = Workload {
            update_ratio: 0.0,
            keys_cached: 0.0,
            data_cached: 0.0,
            ..WRITES
        };
        let choice = choose(&idle, Maintenance::Validation);
        assert_eq!(choice.change, "nothing that is near");
    }
}
