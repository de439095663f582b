//! The index of each layout.

use std::sync::Arc;

use esker_model::definition::Layout;

use super::{clustered, embedded, packed, z};
use crate::index::IndexType;

/// The points of an index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointType {
    Point,
    /// A point with a time, which keys and boxes then have, too.
    PointTime,
}

impl PointType {
    /// The number of coordinates: two, or three with time.
    fn dimensions(self) -> usize {
        match self {
            PointType::Point => 2,
            PointType::PointTime => 3,
        }
    }
}

/// The index of a layout for points of this type.
pub(crate) fn of(layout: Layout, points: PointType) -> Arc<dyn IndexType> {
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
