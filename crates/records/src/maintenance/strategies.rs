//! The strategy of each setting.

use esker_lsm::{Cost, Snapshot};
use esker_model::definition::Maintenance;

use super::cost::WorkPerWrite;
use super::strategy::Strategy;
use super::{deferred, deleted_key, eager, mutable_bitmap, validation};
use crate::catalog::Layout;
use crate::index::{Looks, Lookup};

/// The implementation of a strategy.
pub(crate) fn strategy_of(strategy: Maintenance) -> &'static dyn Strategy {
    match strategy {
        Maintenance::Eager => &eager::Eager,
        Maintenance::Validation => &validation::Validation,
        Maintenance::MutableBitmap => &mutable_bitmap::MutableBitmap,
        Maintenance::Deferred => &deferred::Deferred,
        Maintenance::DeletedKey => &deleted_key::DeletedKey,
    }
}

/// The context of a lookup in an index of a dataset: `data_cost` counts the reads of the data tree,
/// `index_cost` those of the index tree.
pub(crate) fn lookup<'a>(
    layout: &'a Layout,
    snapshot: &'a Snapshot,
    data_cost: &'a Cost,
    index_cost: &'a Cost,
    looks: Looks,
) -> Lookup<'a> {
    let settings = &layout.stored.settings;
    Lookup {
        data: layout.data,
        superseded: layout.superseded,
        settings,
        filter_rule: strategy_of(settings.maintenance).filter_rule(),
        snapshot,
        data_cost,
        index_cost,
        looks,
    }
}

/// The cost of a strategy for a workload, in microseconds per write.
pub(crate) fn cost_per_write(strategy: Maintenance, work: &WorkPerWrite) -> f64 {
    strategy_of(strategy).cost(work)
}
