//! The type of the points of an index: with or without a time.

/// The points of an index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointType {
    Point,
    /// A point with a time, which keys and boxes then have, too.
    PointTime,
}

impl PointType {
    /// The number of coordinates: two, or three with time.
    pub(super) fn dimensions(self) -> usize {
        match self {
            PointType::Point => 2,
            PointType::PointTime => 3,
        }
    }
}
