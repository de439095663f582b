//! Tests of each branch of the recommendation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

/// A million records, 25 of each value, in no order.
const RANDOM: AttributeProfile = AttributeProfile {
    records: 1e6,
    pruned: Some(0.0),
    distinct: 40_000.0,
    top_share: 0.001,
};

/// As above, for an attribute that grows with time.
const RISING: AttributeProfile = AttributeProfile {
    pruned: Some(1.0),
    ..RANDOM
};

fn workload(writes: f64, lookups: f64, ranges: f64) -> Workload {
    Workload {
        writes,
        gets: 1.0 - writes - lookups - ranges,
        lookups,
        ranges,
        limited: 1.0,
        limit: 10.0,
        range_rows: 1000.0,
    }
}

fn advised(now: Option<IndexKind>, work: Workload, profile: &AttributeProfile) -> AttributeAdvice {
    advise(
        &IndexTypes::new(),
        "a".parse().unwrap(),
        PresentIndex {
            kind: now,
            is_point: false,
            is_compound: false,
            is_unique: false,
            is_in_tables: true,
        },
        QueryStats::default(),
        work,
        profile,
    )
}

fn kind(work: Workload, profile: &AttributeProfile) -> IndexKind {
    advised(None, work, profile).kind
}

#[test]
fn small_limits_want_lazy() {
    assert_eq!(kind(workload(0.5, 0.1, 0.0), &RANDOM), IndexKind::Lazy);
}

#[test]
fn attributes_that_grow_with_time_want_embedded() {
    for work in [
        workload(0.5, 0.1, 0.0),
        workload(0.5, 0.0, 0.1),
        workload(0.8, 0.1, 0.1),
    ] {
        assert_eq!(kind(work, &RISING), IndexKind::Embedded, "{work:?}");
    }
    let advice = advised(None, workload(0.5, 0.0, 0.1), &RISING);
    assert!(advice.why.contains("grows with time"), "{}", advice.why);
}

#[test]
fn few_lookups_beside_many_writes_want_fingerprints() {
    assert_eq!(
        kind(workload(0.95, 0.01, 0.0), &RANDOM),
        IndexKind::Fingerprint
    );
}

#[test]
fn an_index_that_costs_more_than_a_scan_is_not_called_better() {
    let tiny = AttributeProfile {
        records: 5.0,
        distinct: 5.0,
        ..RANDOM
    };
    let advice = advised(None, workload(0.5, 0.1, 0.0), &tiny);
    assert_eq!(advice.kind, IndexKind::None);
    assert_eq!(advice.why, "no index that could replace it costs less");
}

#[test]
fn few_blocks_may_be_searched() {
    let few = AttributeProfile {
        records: 5000.0,
        distinct: 200.0,
        ..RANDOM
    };
    assert_eq!(kind(workload(0.9, 0.01, 0.0), &few), IndexKind::Embedded);
}

#[test]
fn no_limit_wants_composite() {
    let frequent = AttributeProfile {
        distinct: 100.0,
        ..RANDOM
    };
    let all = Workload {
        limited: 0.0,
        ..workload(0.5, 0.2, 0.0)
    };
    assert_eq!(kind(all, &frequent), IndexKind::Composite);
    // Ranges of an attribute in no order: a zone map rules nothing out.
    let ranges = Workload {
        limited: 0.0,
        ..workload(0.5, 0.0, 0.2)
    };
    assert_eq!(kind(ranges, &RANDOM), IndexKind::Composite);
}

#[test]
fn lookups_with_and_without_limit_want_recent() {
    let frequent = AttributeProfile {
        distinct: 1000.0,
        ..RANDOM
    };
    let both = Workload {
        limited: 0.8,
        ..workload(0.2, 0.5, 0.0)
    };
    let advice = advised(None, both, &frequent);
    assert_eq!(advice.kind, IndexKind::Recent, "{:?}", advice.costs);
}

#[test]
fn an_index_without_queries_is_dropped() {
    let never = workload(0.9, 0.0, 0.0);
    let advice = advised(Some(IndexKind::Lazy), never, &RANDOM);
    assert_eq!(
        (advice.kind, advice.change),
        (IndexKind::None, AdvisedChange::Drop)
    );
    for now in [None, Some(IndexKind::None)] {
        assert_eq!(advised(now, never, &RANDOM).change, AdvisedChange::Keep);
    }
}

#[test]
fn eager_is_left_and_never_advised() {
    let advice = advised(Some(IndexKind::Eager), workload(0.5, 0.1, 0.0), &RANDOM);
    assert_eq!(
        (advice.kind, advice.change),
        (IndexKind::Lazy, AdvisedChange::Switch)
    );
    let reads = advised(None, workload(0.0, 1.0, 0.0), &RANDOM);
    assert_eq!(
        (reads.kind, reads.change),
        (IndexKind::Lazy, AdvisedChange::Add)
    );
}

#[test]
fn a_change_must_be_worth_it() {
    let advice = advised(Some(IndexKind::Recent), workload(0.5, 0.1, 0.0), &RANDOM);
    assert_eq!(
        (advice.kind, advice.change),
        (IndexKind::Recent, AdvisedChange::Keep)
    );
    assert!(advice.why.contains("within the error"), "{}", advice.why);
}

#[test]
fn without_records_nothing_changes() {
    let none = AttributeProfile::default();
    for now in [IndexKind::Lazy, IndexKind::Eager, IndexKind::None] {
        let advice = advised(Some(now), workload(0.5, 0.1, 0.0), &none);
        assert_eq!((advice.kind, advice.change), (now, AdvisedChange::Keep));
    }
}
