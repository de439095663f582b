//! The areas of conditions, as they are written.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::geometry::{Area, Bounds, Point, Space};

/// An area in a condition: `within(PATH, AREA)`. The field's declaration says whether its
/// coordinates are degrees or numbers of the plane; without a declaration they are degrees.
///
/// ```
/// use esker_model::condition::{AreaExpr, field};
///
/// let paris = field("at").within(AreaExpr::circle(2.3488, 48.8534, 5_000.0));
/// assert_eq!(paris.to_string(), "within(at, circle(2.3488,48.8534,5000))");
/// let flats = "within(lon,lat, rect(-180,-90,180,0)) and rooms > 2";
/// assert_eq!(flats.parse::<esker_model::condition::Expr>()?.to_string(), flats);
/// # Ok::<(), esker_model::condition::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AreaExpr {
    /// West, south, east, north, all four included ([`Area::rect`]).
    Rect([f64; 4]),
    /// The centre's longitude and latitude, and the radius in metres ([`Area::circle`]).
    Circle([f64; 3]),
    /// The polygons of a GeoJSON text ([`Area::from_geojson`]).
    Polygon(Arc<str>),
}

impl AreaExpr {
    /// A rectangle.
    pub fn rect(west: f64, south: f64, east: f64, north: f64) -> AreaExpr {
        AreaExpr::Rect([west, south, east, north])
    }

    /// A circle: its centre, and its radius in metres (in the plane: in the unit of the
    /// coordinates).
    pub fn circle(x: f64, y: f64, radius: f64) -> AreaExpr {
        AreaExpr::Circle([x, y, radius])
    }

    /// The polygons of a GeoJSON text.
    pub fn geojson(text: impl Into<Arc<str>>) -> AreaExpr {
        AreaExpr::Polygon(text.into())
    }

    /// The area in a space.
    ///
    /// # Errors
    /// If it is not a valid area in that space: see [`Area`].
    pub fn area(&self, space: Space) -> Result<Area> {
        match self {
            AreaExpr::Rect([west, south, east, north]) => {
                Area::rect(space, *west, *south, *east, *north)
            }
            AreaExpr::Circle([x, y, radius]) => {
                Area::circle(space, Point::new(space, *x, *y)?, *radius)
            }
            AreaExpr::Polygon(text) => Area::from_geojson(space, text),
        }
    }

    /// The middle: the centre of a circle, or the centre of the box around a rectangle or polygons.
    ///
    /// # Errors
    /// If it is not a valid area, neither in degrees nor in the plane.
    pub fn middle(&self) -> Result<(f64, f64)> {
        match self {
            AreaExpr::Circle([x, y, _]) => Ok((*x, *y)),
            AreaExpr::Rect([west, south, east, north]) => {
                let x = if west <= east {
                    (west + east) / 2.0
                } else {
                    // Across the meridian of 180 degrees.
                    (west + east + 360.0) / 2.0
                };
                let x = if west > east && x > 180.0 {
                    x - 360.0
                } else {
                    x
                };
                Ok((x, (south + north) / 2.0))
            }
            AreaExpr::Polygon(_) => {
                let area = self
                    .area(Space::Sphere)
                    .or_else(|_| self.area(Space::Plane))?;
                let boxes = area.boxes().iter().copied();
                let around = boxes.reduce(|a, b| a.union(b));
                let around = around.ok_or_else(|| Error::bad_input("no polygon is given"))?;
                let x = match area.space() {
                    Space::Sphere => middle_longitude(area.boxes()),
                    Space::Plane => (around.min_x + around.max_x) / 2.0,
                };
                Ok((x, (around.min_y + around.max_y) / 2.0))
            }
        }
    }

    /// What can be seen without knowing the space.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        let plane = self.area(Space::Plane).map(|_| ());
        plane
            .or_else(|_| self.area(Space::Sphere).map(|_| ()))
            .map_err(|error| error.to_string())
    }

    /// Reads what stands in the brackets of `rect(...)`, `circle(...)` and `polygon(...)`.
    pub(super) fn parse(name: &str, text: &str) -> Result<AreaExpr> {
        let numbers = || -> Result<Vec<f64>> {
            let number = |part: &str| {
                let number = part.trim().parse::<f64>().ok().filter(|v| v.is_finite());
                number.ok_or_else(|| Error::bad_input(format!("`{}` is not a number", part.trim())))
            };
            text.split(',').map(number).collect()
        };
        match name {
            "rect" => match numbers()?.as_slice() {
                [west, south, east, north] => Ok(AreaExpr::rect(*west, *south, *east, *north)),
                _ => Err(Error::bad_input(
                    "a rectangle is written rect(WEST,SOUTH,EAST,NORTH)",
                )),
            },
            "circle" => match numbers()?.as_slice() {
                [x, y, radius] => Ok(AreaExpr::circle(*x, *y, *radius)),
                _ => Err(Error::bad_input(
                    "a circle is written circle(LON,LAT,METRES)",
                )),
            },
            _ if text.trim_start().starts_with('{') => Ok(AreaExpr::geojson(text.trim())),
            _ => {
                // The corners of a ring, or rings.
                let text = text.trim();
                let rings = if text.replace(char::is_whitespace, "").starts_with("[[[") {
                    text.to_owned()
                } else {
                    format!("[{text}]")
                };
                let object = format!("{{\"type\":\"Polygon\",\"coordinates\":{rings}}}");
                Ok(AreaExpr::geojson(object))
            }
        }
    }
}

/// The middle of the longitudes of boxes: opposite of the widest gap between them, which may be
/// anywhere on the earth.
fn middle_longitude(boxes: &[Bounds]) -> f64 {
    // At a pole there are all longitudes, whatever the area.
    let is_pole = |part: &Bounds| part.min_y == part.max_y && part.min_y.abs() == 90.0;
    let mut parts: Vec<(f64, f64)> = (boxes.iter().filter(|part| !is_pole(part)))
        .map(|part| (part.min_x, part.max_x))
        .collect();
    parts.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(first), last) = (parts.first(), parts.iter().map(|part| part.1)) else {
        return 0.0;
    };
    let last = last.fold(f64::NEG_INFINITY, f64::max);
    // That across the meridian of 180 degrees, then those between two parts.
    let mut widest = (first.0 + 360.0 - last, first.0, last);
    let mut reached = first.1;
    for (min_x, max_x) in &parts {
        if min_x - reached > widest.0 {
            widest = (min_x - reached, *min_x, reached + 360.0);
        }
        reached = reached.max(*max_x);
    }
    let middle = (widest.1 + widest.2) / 2.0;
    if middle > 180.0 {
        middle - 360.0
    } else {
        middle
    }
}

impl fmt::Display for AreaExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AreaExpr::Rect([west, south, east, north]) => {
                write!(f, "rect({west},{south},{east},{north})")
            }
            AreaExpr::Circle([x, y, radius]) => write!(f, "circle({x},{y},{radius})"),
            AreaExpr::Polygon(text) => write!(f, "polygon({text})"),
        }
    }
}
