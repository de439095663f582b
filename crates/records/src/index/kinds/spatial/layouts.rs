//! The index of each layout.

use std::sync::Arc;

use esker_model::definition::Layout;

use super::{clustered, embedded, packed, z};
use crate::index::IndexType;

/// The index of a layout, of points or of points at a time: with times, keys and boxes have them,
/// too.
pub(crate) fn of(layout: Layout, is_timed: bool) -> Arc<dyn IndexType> {
    match layout {
        Layout::Z => Arc::new(z::Z),
        Layout::Clustered => Arc::new(clustered::Clustered),
        Layout::Mbr => Arc::new(packed::Packed {
            is_stacked: false,
            is_timed,
        }),
        Layout::Embedded => Arc::new(embedded::EmbeddedPoints {
            dimensions: if is_timed { 3 } else { 2 },
        }),
        Layout::Stacked => Arc::new(packed::Packed {
            is_stacked: true,
            is_timed,
        }),
    }
}
