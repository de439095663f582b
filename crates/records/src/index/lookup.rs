//! The context of a lookup in an index: the snapshot, the trees beside that of the index, the rule
//! of range filters, and the costs.

pub(crate) use esker_lsm::read::estimate::Looks;
use esker_lsm::synopsis::ValueRange;
use esker_lsm::table::TableMeta;
use esker_lsm::{Cost, Snapshot, TreeId};
use esker_model::definition::MaintenanceSettings;
use esker_model::range::Range;

/// How a range filter determines which of the versions that it finds are current. It follows from
/// the maintenance strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterRule {
    /// Those that are not in the obsolete set, which is complete: each table is read by itself.
    ObsoleteSet,
    /// Those whose key no newer component has; only newer components that replaced a value of the
    /// range are read.
    ReplacedValues,
    /// Those whose key no newer component has; all newer components are read.
    NewerComponents,
}

/// The context of a lookup in an index.
pub struct Lookup<'a> {
    /// The tree of records.
    pub(crate) data: TreeId,
    /// The tree of the obsolete set, if the dataset has one.
    pub(crate) superseded: Option<TreeId>,
    pub(crate) settings: &'a MaintenanceSettings,
    /// How a range filter determines which versions are current.
    pub(crate) filter_rule: FilterRule,
    pub(crate) snapshot: &'a Snapshot,
    /// Cost of reads in the data tree.
    pub(crate) data_cost: &'a Cost,
    /// Cost of reads in the index tree.
    pub(crate) index_cost: &'a Cost,
    /// The data blocks that may be read for an estimate: zero, unless the planner compares.
    pub(crate) looks: Looks,
}

impl Lookup<'_> {
    /// The snapshot that the lookup reads.
    pub fn snapshot(&self) -> &Snapshot {
        self.snapshot
    }

    /// Counts the reads of the index. [`Cost::check`](esker_lsm::Cost::check) fails when they must
    /// stop.
    pub fn cost(&self) -> &Cost {
        self.index_cost
    }
}

/// True if the zone map of a table admits a value of the attribute with this ID in the range;
/// `None` if the table is older than the index and has no zone map of it.
pub(super) fn zone_admits(meta: &TableMeta, id: u32, values: &ValueRange) -> Option<bool> {
    let (_, zone) = meta.zones.iter().find(|(known, _)| *known == id)?;
    // Without a zone, no record of the table has a value.
    let zone = zone.as_ref();
    Some(zone.is_some_and(|(min, max)| values.overlaps(min, max.as_deref())))
}

/// The range in the form that the engine's synopses use.
pub(super) fn value_range(range: &Range) -> ValueRange {
    ValueRange {
        lo: range.lo.clone(),
        hi: range.hi.clone(),
        boxes: None,
    }
}
