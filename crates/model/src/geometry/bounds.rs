//! Axis-parallel boxes: the bounds of blocks, files and areas.

use super::point::Point;

/// A box: all points with `min_x <= x <= max_x` and `min_y <= y <= max_y`. On the sphere it never
/// crosses the meridian of 180 degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Least longitude, or first coordinate.
    pub min_x: f64,
    /// Least latitude, or second coordinate.
    pub min_y: f64,
    /// Greatest longitude, or first coordinate.
    pub max_x: f64,
    /// Greatest latitude, or second coordinate.
    pub max_y: f64,
}

impl Bounds {
    /// The box of one point.
    pub fn of(point: Point) -> Bounds {
        Bounds {
            min_x: point.x(),
            min_y: point.y(),
            max_x: point.x(),
            max_y: point.y(),
        }
    }

    /// The smallest box that contains both.
    pub fn union(self, other: Bounds) -> Bounds {
        Bounds {
            min_x: self.min_x.min(other.min_x),
            min_y: self.min_y.min(other.min_y),
            max_x: self.max_x.max(other.max_x),
            max_y: self.max_y.max(other.max_y),
        }
    }

    /// True if the point is in the box, borders included.
    pub fn contains(&self, point: Point) -> bool {
        self.has(point.x(), point.y())
    }

    /// True if the boxes share a point.
    pub fn meets(&self, other: &Bounds) -> bool {
        self.min_x <= other.max_x
            && other.min_x <= self.max_x
            && self.min_y <= other.max_y
            && other.min_y <= self.max_y
    }

    /// True if all of `other` is in this box.
    pub fn holds(&self, other: &Bounds) -> bool {
        self.has(other.min_x, other.min_y) && self.has(other.max_x, other.max_y)
    }

    pub(super) fn has(&self, x: f64, y: f64) -> bool {
        self.min_x <= x && x <= self.max_x && self.min_y <= y && y <= self.max_y
    }

    /// The corners, in order around the box.
    pub(super) fn corners(&self) -> [(f64, f64); 4] {
        [
            (self.min_x, self.min_y),
            (self.max_x, self.min_y),
            (self.max_x, self.max_y),
            (self.min_x, self.max_y),
        ]
    }
}
