//! Points, and areas that contain them: rectangles, circles and polygons, on the sphere and in the
//! plane.
//!
//! On the [sphere](Space::Sphere) a point is a longitude and a latitude in degrees, and distances
//! are great-circle distances in metres on a sphere of the earth's mean radius. In the
//! [plane](Space::Plane) coordinates are any finite numbers, and distances are Euclidean.
//!
//! Areas are closed: points on the border are inside. On the sphere the meridians -180 and 180 are
//! one, and so are all points of a pole, whatever longitude they are written with.
//!
//! An index uses three functions of an area. [`Area::boxes`] returns the boxes to search, which
//! together cover it. [`Area::relation`] determines whether the area contains all or none of the
//! points in a box (of a block or a file). [`Area::contains`] tests one point, and is exact: the
//! result does not depend on the boxes.
//!
//! ```
//! use esker_model::geometry::{Area, Point, Space};
//!
//! let fiji = Area::rect(Space::Sphere, 176.0, -22.0, -178.0, -12.0)?;
//! assert!(fiji.contains(Point::new(Space::Sphere, 179.2, -17.8)?));
//! assert!(!fiji.contains(Point::new(Space::Sphere, 0.0, -17.8)?));
//! // The meridian of 180 degrees cuts it into two boxes.
//! assert_eq!(fiji.boxes().len(), 2);
//!
//! let paris = Point::new(Space::Sphere, 2.3488, 48.85341)?;
//! let near = Area::circle(Space::Sphere, paris, 50_000.0)?;
//! assert!(near.contains(Point::new(Space::Sphere, 2.5479, 49.0097)?));
//! # Ok::<(), esker_model::Error>(())
//! ```

mod area;
#[cfg(test)]
mod border_tests;
mod bounds;
mod distance;
mod point;
mod polygon;
mod relation;
#[cfg(test)]
mod tests;

pub use area::Area;
pub use bounds::Bounds;
pub use distance::{EARTH_RADIUS_M, distance, farthest, nearest};
pub use point::{Point, Space};
pub use polygon::Polygon;
pub use relation::Relation;
