//! Areas: rectangles, circles and polygons that contain points.

use super::bounds::Bounds;
use super::distance::{EARTH_RADIUS_M, distance, farthest, nearest};
use super::point::{Point, Space};
use super::polygon::Polygon;
use super::relation::{Relation, on_sphere};
use crate::error::{Error, Result};

/// An area of the sphere or of the plane, including its border. The cost of creating one is
/// proportional to the number of its corners.
#[derive(Debug, Clone, PartialEq)]
pub struct Area {
    space: Space,
    shape: Shape,
    /// Boxes that together cover the area.
    boxes: Vec<Bounds>,
}

#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// The boxes themselves.
    Rect,
    Circle {
        centre: Point,
        radius: f64,
    },
    Polygon(Polygon),
}

impl Area {
    /// All points with longitudes from `west` to `east` and latitudes from `south` to `north` (in
    /// the plane: first and second coordinates), all four included. On the sphere `west` may be
    /// greater than `east`: then the rectangle crosses the meridian of 180 degrees.
    ///
    /// # Errors
    ///
    /// If a corner is not a valid [point](Point::new), `south` is greater than `north`, or, in the
    /// plane, `west` is greater than `east`.
    pub fn rect(space: Space, west: f64, south: f64, east: f64, north: f64) -> Result<Area> {
        let (low, high) = (
            Point::new(space, west, south)?,
            Point::new(space, east, north)?,
        );
        if low.y() > high.y() {
            return Err(Error::bad_input(format!(
                "a rectangle is given as west, south, east, north: its south {south} is greater than its north {north}"
            )));
        }
        let boxes = match space {
            Space::Sphere => on_sphere(low.x(), high.x(), low.y(), high.y()),
            Space::Plane if low.x() > high.x() => {
                return Err(Error::bad_input(format!(
                    "a rectangle of the plane is given with its least coordinates first: {west} is greater than {east}"
                )));
            }
            Space::Plane => vec![Bounds::of(low).union(Bounds::of(high))],
        };
        Ok(Area {
            space,
            shape: Shape::Rect,
            boxes,
        })
    }

    /// The points of a box.
    pub(crate) fn of_bounds(space: Space, bounds: Bounds) -> Area {
        Area {
            space,
            shape: Shape::Rect,
            boxes: vec![bounds],
        }
    }

    /// All points at most `radius` away from `centre`: metres on the sphere, the unit of the
    /// coordinates in the plane.
    ///
    /// # Errors
    ///
    /// If the radius is negative or not a finite number.
    pub fn circle(space: Space, centre: Point, radius: f64) -> Result<Area> {
        if !(0.0..f64::INFINITY).contains(&radius) {
            return Err(Error::bad_input(format!(
                "the radius of a circle must be a finite number of 0 or more, not {radius}"
            )));
        }
        let boxes = match space {
            Space::Plane => vec![Bounds {
                min_x: (centre.x() - radius).next_down(),
                min_y: (centre.y() - radius).next_down(),
                max_x: (centre.x() + radius).next_up(),
                max_y: (centre.y() + radius).next_up(),
            }],
            Space::Sphere => around(centre, radius),
        };
        Ok(Area {
            space,
            shape: Shape::Circle { centre, radius },
            boxes,
        })
    }

    /// The area of a polygon.
    pub fn polygon(polygon: Polygon) -> Area {
        Area {
            space: polygon.space(),
            boxes: polygon.boxes(),
            shape: Shape::Polygon(polygon),
        }
    }

    /// The space of the area: sphere or plane.
    pub fn space(&self) -> Space {
        self.space
    }

    /// True for polygons, which may be much smaller than their boxes.
    pub(crate) fn is_polygon(&self) -> bool {
        matches!(self.shape, Shape::Polygon(_))
    }

    /// True if the point is in the area or on its border.
    pub fn contains(&self, point: Point) -> bool {
        let is_in_box = || self.boxes.iter().any(|part| part.contains(point));
        let contains = match &self.shape {
            Shape::Rect => is_in_box(),
            Shape::Circle { centre, radius } => {
                // Most points near a circle are also outside of its boxes, which is checked faster.
                is_in_box() && distance(self.space, *centre, point) <= *radius
            }
            Shape::Polygon(polygon) => polygon.contains(point),
        };
        // Indexes search only the boxes.
        debug_assert!(
            !contains || is_in_box(),
            "{point} is in the area, and in none of its boxes"
        );
        contains
    }

    /// Boxes that together cover at least the area.
    pub fn boxes(&self) -> &[Bounds] {
        &self.boxes
    }

    /// The relation of a box to the area. [`Relation::Crosses`] is approximate, the others are
    /// exact.
    pub fn relation(&self, bounds: &Bounds) -> Relation {
        if !self.boxes.iter().any(|part| part.meets(bounds)) {
            return Relation::Outside;
        }
        match &self.shape {
            Shape::Rect if self.boxes.iter().any(|part| part.holds(bounds)) => Relation::Inside,
            Shape::Rect => Relation::Crosses,
            Shape::Circle { centre, radius } if nearest(self.space, *centre, bounds) > *radius => {
                Relation::Outside
            }
            Shape::Circle { centre, radius }
                if farthest(self.space, *centre, bounds) <= *radius =>
            {
                Relation::Inside
            }
            Shape::Circle { .. } => Relation::Crosses,
            Shape::Polygon(polygon) => polygon.relation(bounds),
        }
    }
}

/// The boxes around a circle on the sphere.
fn around(centre: Point, radius: f64) -> Vec<Bounds> {
    // Larger than the rounding errors of the sine and its inverse.
    let wider = |degrees: f64| degrees * (1.0 + 1e-6) + 1e-9;
    let angle = radius / EARTH_RADIUS_M;
    let up = wider(angle.to_degrees());
    let (south, north) = (centre.y() - up, centre.y() + up);
    if south <= -90.0 || north >= 90.0 {
        return on_sphere(-180.0, 180.0, south.max(-90.0), north.min(90.0));
    }
    let across = wider(
        (angle.sin() / centre.y().to_radians().cos())
            .min(1.0)
            .asin()
            .to_degrees(),
    );
    let (mut west, mut east) = (centre.x() - across, centre.x() + across);
    if across >= 180.0 {
        (west, east) = (-180.0, 180.0);
    } else if west < -180.0 {
        west += 360.0;
    } else if east > 180.0 {
        east -= 360.0;
    }
    on_sphere(west, east, south, north)
}
