//! Indexes of points: one file a layout. All of them find the points of a region; what differs is what lies beside what.

mod z;

use model::definition::Layout;

use super::Index;

/// The index of a layout.
pub(super) fn of(layout: Layout) -> &'static dyn Index {
    match layout {
        Layout::Z => &z::Z,
    }
}
