//! The properties of each strategy, and the trees of its datasets.

use std::path::Path as FsPath;
use std::sync::Arc;

use esker_model::definition::{DatasetDef, Index, Maintenance};
use esker_model::schema::KeyType;

use super::cost::{CANDIDATES, DEFAULT, WorkPerWrite};
use super::{AtCommit, MissingEntry, cost_per_write, strategy_of};
use crate::api::{Database, Options};
use crate::catalog::Layout;
use crate::index::FilterRule;
use crate::telemetry::Measured;

fn layout(maintenance: Maintenance) -> Arc<Layout> {
    let options = Options::new()
        .fs(Arc::new(esker_sim::memory::Memory::new()))
        .background(false);
    let db = Database::create_or_open(FsPath::new("/store"), options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index("lazy", Index::lazy().string())
        .index("filter", Index::filter().time())
        .maintenance(maintenance);
    db.create_dataset::<u64>("d", def).unwrap().handle.layout()
}

#[test]
fn each_strategy_has_its_trees() {
    for maintenance in Maintenance::ALL {
        let (layout, strategy) = (layout(maintenance), strategy_of(maintenance));
        let [lazy, filter] = layout.attributes.as_slice() else {
            panic!("two attributes");
        };
        let keys = maintenance.uses_keys();
        assert_eq!(layout.keys_written.is_some(), keys, "{maintenance}");
        assert_eq!(lazy.deleted.is_some(), strategy.keeps_written_keys());
        assert!(
            filter.deleted.is_none(),
            "a filter has no entries of its own"
        );
        assert_eq!(filter.widened.is_some(), strategy.keeps_replaced_values());
        assert!(lazy.widened.is_none(), "lazy is not a range filter");
        // The key tree that queries probe is one of these trees.
        let probed = strategy.key_tree(&layout, lazy);
        let expected = match maintenance {
            Maintenance::DeletedKey => lazy.deleted,
            _ => layout.keys,
        };
        assert_eq!(probed, expected, "{maintenance}");
        assert_eq!(probed.is_none(), maintenance == Maintenance::Deferred);
    }
}

#[test]
fn strategies_that_look_at_writes_do_so_at_the_commit() {
    for maintenance in Maintenance::ALL {
        let at_commit = strategy_of(maintenance).at_commit();
        let looks = at_commit != AtCommit::Nothing;
        assert_eq!(looks, maintenance.looks_at_writes(), "{maintenance}");
        // Cancelling entries needs the replaced values, and then a range filter has them, too.
        let cancels = at_commit == AtCommit::CancelsEntries;
        assert_eq!(cancels, strategy_of(maintenance).keeps_replaced_values());
    }
}

#[test]
fn range_filters_read_less_under_strategies_that_know_more() {
    let rule = |maintenance| strategy_of(maintenance).filter_rule();
    assert_eq!(rule(Maintenance::MutableBitmap), FilterRule::ObsoleteSet);
    assert_eq!(rule(Maintenance::Eager), FilterRule::ReplacedValues);
    for blind in [
        Maintenance::Validation,
        Maintenance::Deferred,
        Maintenance::DeletedKey,
    ] {
        assert_eq!(rule(blind), FilterRule::NewerComponents, "{blind}");
    }
}

#[test]
fn only_deferred_repairs_from_the_records() {
    for maintenance in Maintenance::ALL {
        let (strategy, is_deferred) = (
            strategy_of(maintenance),
            maintenance == Maintenance::Deferred,
        );
        assert_eq!(strategy.data_reports(), is_deferred, "{maintenance}");
        assert_eq!(strategy.notes_what_queries_find(), is_deferred);
        // Under deleted-key, a missing entry in an index's tree has no meaning.
        let unknown = strategy.missing_entry() == MissingEntry::Unknown;
        assert_eq!(unknown, maintenance == Maintenance::DeletedKey);
    }
}

const WORK: WorkPerWrite = WorkPerWrite {
    update_ratio: 0.5,
    indexes: 2.0,
    entries: 1.0,
    fetched: 1.0,
    wasted: 0.1,
    scanned: 0.0,
    keys_cached: 1.0,
    data_cached: 1.0,
};

#[test]
fn cost_grows_with_what_a_strategy_pays_for() {
    let dearer: [(&str, WorkPerWrite, &[Maintenance]); 5] = [
        (
            "updates",
            WorkPerWrite {
                update_ratio: 0.9,
                ..WORK
            },
            &CANDIDATES,
        ),
        (
            "index entries",
            WorkPerWrite {
                entries: 9.0,
                ..WORK
            },
            &[Maintenance::Validation, Maintenance::MutableBitmap],
        ),
        (
            "indexes",
            WorkPerWrite {
                indexes: 9.0,
                ..WORK
            },
            &[Maintenance::Eager],
        ),
        (
            "obsolete candidates",
            WorkPerWrite {
                wasted: 0.9,
                ..WORK
            },
            &[Maintenance::Validation],
        ),
        (
            "keys on disk",
            WorkPerWrite {
                keys_cached: 0.0,
                ..WORK
            },
            &[Maintenance::MutableBitmap, Maintenance::Eager],
        ),
    ];
    for (what, work, pays) in dearer {
        for maintenance in CANDIDATES {
            let (before, after) = (
                cost_per_write(maintenance, &WORK),
                cost_per_write(maintenance, &work),
            );
            let more = after > before;
            assert!(after >= before, "{what}: {maintenance}");
            assert_eq!(more, pays.contains(&maintenance), "{what}: {maintenance}");
        }
    }
}

#[test]
fn without_queries_the_blind_strategy_is_cheapest() {
    let writes = WorkPerWrite {
        entries: 0.0,
        fetched: 0.0,
        wasted: 0.0,
        ..WORK
    };
    let cheapest = CANDIDATES
        .into_iter()
        .min_by(|a, b| cost_per_write(*a, &writes).total_cmp(&cost_per_write(*b, &writes)));
    assert_eq!(cheapest, Some(DEFAULT));
}

#[test]
fn validation_uses_measured_waste_and_others_the_update_ratio() {
    let measured = Measured {
        fetched: 10,
        wasted: 4,
        ..Measured::default()
    };
    let wasted = |maintenance, measured: &Measured| strategy_of(maintenance).wasted(measured, 0.8);
    assert_eq!(wasted(Maintenance::Validation, &measured), 0.4);
    assert_eq!(wasted(Maintenance::Validation, &Measured::default()), 0.2);
    for other in [Maintenance::MutableBitmap, Maintenance::Eager] {
        assert_eq!(wasted(other, &measured), 0.2, "{other}");
    }
}
