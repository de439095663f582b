//! Distances between points, and bounds of the distances between a point and the points of a box.

use super::bounds::Bounds;
use super::point::{Point, Space};

/// The earth's mean radius in metres, (2a + b) / 3 of WGS 84.
pub const EARTH_RADIUS_M: f64 = 6_371_008.8;

/// The distance of two points: on the sphere along the great circle, in metres (by haversines); in
/// the plane the Euclidean distance.
///
/// Every comparison of distances in Esker uses this function, so every kind of index returns the
/// same order.
pub fn distance(space: Space, a: Point, b: Point) -> f64 {
    match space {
        Space::Plane => (a.x() - b.x()).hypot(a.y() - b.y()),
        Space::Sphere => {
            let (north, east) = ((a.y() - b.y()).to_radians(), (a.x() - b.x()).to_radians());
            let cosines = a.y().to_radians().cos() * b.y().to_radians().cos();
            let haversine = (north / 2.0).sin().powi(2) + cosines * (east / 2.0).sin().powi(2);
            2.0 * EARTH_RADIUS_M * haversine.min(1.0).sqrt().asin()
        }
    }
}

/// A lower bound of the distance from the point to any point of the box: close to the least
/// distance, never above it.
pub fn nearest(space: Space, point: Point, bounds: &Bounds) -> f64 {
    let exact = match space {
        Space::Plane => {
            let beyond = |value: f64, min: f64, max: f64| (min - value).max(value - max).max(0.0);
            beyond(point.x(), bounds.min_x, bounds.max_x).hypot(beyond(
                point.y(),
                bounds.min_y,
                bounds.max_y,
            ))
        }
        Space::Sphere => to_box(point, bounds),
    };
    (exact - slack(exact)).max(0.0)
}

/// An upper bound of the distance from the point to any point of the box: close to the greatest
/// distance, never below it.
pub fn farthest(space: Space, point: Point, bounds: &Bounds) -> f64 {
    match space {
        Space::Plane => {
            let across =
                |value: f64, min: f64, max: f64| (value - min).abs().max((value - max).abs());
            let exact = across(point.x(), bounds.min_x, bounds.max_x).hypot(across(
                point.y(),
                bounds.min_y,
                bounds.max_y,
            ));
            exact + slack(exact)
        }
        // The farthest point is the nearest to the antipode.
        Space::Sphere => {
            let x = if point.x() > 0.0 {
                point.x() - 180.0
            } else {
                point.x() + 180.0
            };
            let left = to_box(Point::raw(x, -point.y()), bounds);
            let exact = std::f64::consts::PI * EARTH_RADIUS_M - left;
            exact + slack(exact) + slack(left)
        }
    }
}

/// Larger than the rounding error of a distance: haversines lose half of their digits near the
/// antipode.
fn slack(distance: f64) -> f64 {
    1e-6 + 1e-8 * distance
}

/// The distance to the nearest point of a box on the sphere, with rounding errors.
fn to_box(point: Point, bounds: &Bounds) -> f64 {
    if bounds.min_x <= point.x() && point.x() <= bounds.max_x {
        // Along the meridian, since any other path to a parallel is longer.
        let beyond = (bounds.min_y - point.y())
            .max(point.y() - bounds.max_y)
            .max(0.0);
        return beyond.to_radians() * EARTH_RADIUS_M;
    }
    to_meridian(point, bounds.min_x, bounds).min(to_meridian(point, bounds.max_x, bounds))
}

/// The distance to the nearest point of a segment of a meridian, with rounding errors.
fn to_meridian(point: Point, x: f64, bounds: &Bounds) -> f64 {
    let (latitude, east) = (point.y().to_radians(), (x - point.x()).to_radians());
    // The foot of the perpendicular on the great circle of the meridian. It lies beyond a pole if
    // it is on the other side of the earth.
    let foot = latitude
        .sin()
        .atan2(latitude.cos() * east.cos())
        .to_degrees();
    if bounds.min_y <= foot && foot <= bounds.max_y {
        return distance(Space::Sphere, point, Point::raw(x, foot));
    }
    let to = |y: f64| distance(Space::Sphere, point, Point::raw(x, y));
    to(bounds.min_y).min(to(bounds.max_y))
}
