//! Boxes beside areas.

use super::bounds::Bounds;

/// The relation of a box to an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// No point of the box is in the area.
    Outside,
    /// Some points of the box may be in the area.
    Crosses,
    /// All points of the box are in the area.
    Inside,
}

/// The boxes of a range of longitudes and latitudes: cut at the meridian of 180 degrees, with both
/// of its longitudes, and with all longitudes at a pole.
pub(super) fn on_sphere(west: f64, east: f64, south: f64, north: f64) -> Vec<Bounds> {
    let part = |min_x, max_x, min_y, max_y| Bounds {
        min_x,
        min_y,
        max_x,
        max_y,
    };
    let mut boxes = if west <= east {
        vec![part(west, east, south, north)]
    } else {
        vec![
            part(west, 180.0, south, north),
            part(-180.0, east, south, north),
        ]
    };
    if west <= east && (west == -180.0) != (east == 180.0) {
        let other = if west == -180.0 { 180.0 } else { -180.0 };
        boxes.push(part(other, other, south, north));
    }
    let all_around = west == -180.0 && east == 180.0;
    for pole in [-90.0, 90.0] {
        if !all_around && (south == pole || north == pole) {
            boxes.push(part(-180.0, 180.0, pole, pole));
        }
    }
    boxes
}
