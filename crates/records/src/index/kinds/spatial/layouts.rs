//! The index of each layout.

use std::sync::Arc;

use esker_model::definition::Layout;

use super::point_type::PointType;
use super::{clustered, embedded, packed, z};
use crate::index::IndexType;

/// The index of a layout for points of this type.
pub(crate) fn of_layout(layout: Layout, points: PointType) -> Arc<dyn IndexType> {
    match layout {
        Layout::Z => Arc::new(z::Z),
        Layout::Clustered => Arc::new(clustered::Clustered),
        Layout::Mbr => Arc::new(packed::Packed {
            is_stacked: false,
            points,
        }),
        Layout::Embedded => Arc::new(embedded::EmbeddedPoints {
            dimensions: points.dimensions(),
        }),
        Layout::Stacked => Arc::new(packed::Packed {
            is_stacked: true,
            points,
        }),
    }
}
