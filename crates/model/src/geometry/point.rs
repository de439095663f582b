//! Points, and the spaces of their coordinates.

use std::fmt;

use crate::error::{Error, Result};

/// The meaning of coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// Longitude and latitude in degrees on a sphere with the earth's mean radius; distances in
    /// metres.
    Sphere,
    /// Any two numbers; distances in their unit.
    Plane,
}

/// A point. `x` is the longitude on the sphere, `y` the latitude. Neither is ever NaN, infinite or
/// a negative zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    x: f64,
    y: f64,
}

impl Point {
    /// Creates a point with valid coordinates.
    ///
    /// # Errors
    ///
    /// If a coordinate is not a finite number, or, on the sphere, a longitude lies outside -180 to
    /// 180 or a latitude outside -90 to 90.
    pub fn new(space: Space, x: f64, y: f64) -> Result<Point> {
        let fits = |name: &str, value: f64, limit: f64| {
            if value.abs() <= limit {
                Ok(())
            } else {
                Err(Error::bad_input(format!(
                    "{name} {value} is not between -{limit} and {limit}"
                )))
            }
        };
        match space {
            Space::Sphere => {
                fits("longitude", x, 180.0)?;
                fits("latitude", y, 90.0).map_err(|error| {
                    if y.abs() <= 180.0 && x.abs() <= 90.0 {
                        Error::bad_input(format!("{error}: the longitude comes first"))
                    } else {
                        error
                    }
                })?;
            }
            Space::Plane if x.is_finite() && y.is_finite() => {}
            Space::Plane => {
                return Err(Error::bad_input(format!(
                    "({x}, {y}) is not a point: coordinates must be finite numbers"
                )));
            }
        }
        // A negative zero would have a separate encoding.
        Ok(Point {
            x: x + 0.0,
            y: y + 0.0,
        })
    }

    /// The longitude, or the first coordinate of the plane.
    pub fn x(self) -> f64 {
        self.x
    }

    /// The latitude, or the second coordinate of the plane.
    pub fn y(self) -> f64 {
        self.y
    }

    /// True at a pole of the sphere, where all longitudes are the same point.
    pub(super) fn at_pole(self) -> bool {
        self.y.abs() == 90.0
    }

    pub(super) fn raw(x: f64, y: f64) -> Point {
        Point { x, y }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.x, self.y)
    }
}
