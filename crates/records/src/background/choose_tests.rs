//! The strategies chosen for some workloads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

const WRITES: WorkPerWrite = WorkPerWrite {
    update_ratio: 0.5,
    indexes: 1.0,
    entries: 0.0,
    fetched: 0.0,
    wasted: 0.0,
    scanned: 0.0,
    keys_cached: 1.0,
    data_cached: 1.0,
};

fn chosen(work: WorkPerWrite) -> Maintenance {
    // The present strategy makes no difference.
    let all = CANDIDATES.map(|present| choose(&work, present).strategy);
    assert!(all.iter().all(|strategy| *strategy == all[0]), "{all:?}");
    all[0]
}

#[test]
fn without_queries_repairs_validate() {
    assert_eq!(chosen(WRITES), Maintenance::Validation);
    let new = WorkPerWrite {
        update_ratio: 0.0,
        keys_cached: 0.0,
        ..WRITES
    };
    // New keys cost no lookup.
    assert_eq!(
        choose(&new, Maintenance::Validation).strategy,
        Maintenance::Validation
    );
}

#[test]
fn index_only_queries_favour_bits_if_keys_are_cached() {
    let work = WorkPerWrite {
        entries: 20.0,
        ..WRITES
    };
    assert_eq!(chosen(work), Maintenance::MutableBitmap);
    let large = WorkPerWrite {
        keys_cached: 0.0,
        data_cached: 0.0,
        ..work
    };
    assert_eq!(chosen(large), Maintenance::Validation);
}

#[test]
fn many_queries_per_write_favour_exact_indexes() {
    let work = WorkPerWrite {
        entries: 5000.0,
        ..WRITES
    };
    assert_eq!(chosen(work), Maintenance::Eager);
}

#[test]
fn fetches_of_obsolete_records_favour_bits() {
    let work = WorkPerWrite {
        fetched: 10.0,
        wasted: 0.4,
        ..WRITES
    };
    assert_eq!(chosen(work), Maintenance::MutableBitmap);
    let none = WorkPerWrite {
        wasted: 0.0,
        ..work
    };
    assert_eq!(chosen(none), Maintenance::Validation);
}

#[test]
fn filters_favour_bits() {
    let work = WorkPerWrite {
        scanned: 100.0,
        ..WRITES
    };
    assert_eq!(chosen(work), Maintenance::MutableBitmap);
}

#[test]
fn a_strategy_that_costs_little_more_is_kept() {
    let work = WorkPerWrite {
        entries: 2.0,
        ..WRITES
    };
    for present in [Maintenance::Validation, Maintenance::MutableBitmap] {
        let choice = choose(&work, present);
        assert_eq!(choice.strategy, present, "{choice:?}");
    }
    // A strategy that is not a candidate is not kept.
    assert!(CANDIDATES.contains(&choose(&work, Maintenance::Deferred).strategy));
}

#[test]
fn the_nearest_change_is_reported() {
    let work = WorkPerWrite {
        entries: 2.0,
        ..WRITES
    };
    let choice = choose(&work, Maintenance::Validation);
    assert!(
        choice.change.starts_with("mutable-bitmap, if queries were"),
        "{choice:?}"
    );
    assert_eq!(choice.costs.len(), CANDIDATES.len());
    let idle = WorkPerWrite {
        update_ratio: 0.0,
        keys_cached: 0.0,
        data_cached: 0.0,
        ..WRITES
    };
    let choice = choose(&idle, Maintenance::Validation);
    assert_eq!(choice.change, "no change of up to 4096 times");
}
