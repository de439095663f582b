//! The index type of each built-in kind.

use std::sync::Arc;

use esker_model::definition::IndexKind;

use super::spatial::PointType;
use super::{composite, eager, embedded, filter, fingerprint, lazy, recent, spatial};
use crate::index::IndexType;

/// The index of a built-in kind; `None` for others, and for [`IndexKind::None`].
pub(crate) fn built_in(kind: IndexKind) -> Option<Arc<dyn IndexType>> {
    Some(match kind {
        IndexKind::None | IndexKind::External(_) => return None,
        IndexKind::Embedded => Arc::new(embedded::Embedded),
        IndexKind::Fingerprint => Arc::new(fingerprint::Fingerprint),
        IndexKind::Filter => Arc::new(filter::Filter),
        IndexKind::Eager => Arc::new(eager::Eager),
        IndexKind::Lazy => Arc::new(lazy::Lazy),
        IndexKind::Composite => Arc::new(composite::Composite),
        IndexKind::Recent => Arc::new(recent::Recent),
        IndexKind::Spatial(layout) => spatial::of_layout(layout, PointType::Point),
        IndexKind::SpaceTime(layout) => spatial::of_layout(layout, PointType::PointTime),
    })
}

/// [`IndexType::is_filtered_scan`] of a kind; false for types of other crates, which have trees.
pub(crate) fn is_filtered_scan(kind: IndexKind) -> bool {
    built_in(kind).is_some_and(|index| index.is_filtered_scan())
}
