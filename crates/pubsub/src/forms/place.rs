//! The place of a publication or subscription: none, a point, a cell or an area. [`Extent::is_for`]
//! decides whether a publication's place reaches a subscription.

use std::sync::Arc;

use esker::{Error, Result};
use esker_coding::Reader;
use esker_model::geometry::{Area, Bounds, Point, Relation, distance};

use crate::forms::cell::{self, Cell, SPACE};

/// An area.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Region {
    /// Longitudes from `west` to `east`, latitudes from `south` to `north`, in degrees, borders
    /// included. With `west` greater than `east` it crosses the meridian of 180 degrees.
    Rect {
        /// The western border.
        west: f64,
        /// The southern border.
        south: f64,
        /// The eastern border.
        east: f64,
        /// The northern border.
        north: f64,
    },
    /// All points at most `metres` away from a point, along the sphere.
    Circle {
        /// The longitude of the centre.
        longitude: f64,
        /// The latitude of the centre.
        latitude: f64,
        /// The radius.
        metres: f64,
    },
    /// The polygons of a GeoJSON text.
    Polygon(Arc<str>),
}

impl Region {
    /// The exact area.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the area is invalid; the text says why.
    pub fn area(&self) -> Result<Area> {
        let area = match self {
            Region::Rect {
                west,
                south,
                east,
                north,
            } => Area::rect(SPACE, *west, *south, *east, *north),
            Region::Circle {
                longitude,
                latitude,
                metres,
            } => Point::new(SPACE, *longitude, *latitude)
                .and_then(|centre| Area::circle(SPACE, centre, *metres)),
            Region::Polygon(text) => Area::from_geojson(SPACE, text),
        };
        Ok(area?)
    }
}

/// The place of a publication, or the place that a subscription covers.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum Place {
    /// No place. A subscription without a place receives publications at any place; a publication
    /// without a place reaches only such subscriptions.
    #[default]
    Anywhere,
    /// A point, in degrees.
    Point {
        /// Longitude.
        longitude: f64,
        /// Latitude.
        latitude: f64,
    },
    /// A cell of the quad-tree.
    Cell(Cell),
    /// An area.
    Region(Region),
}

/// A place, checked and prepared for comparisons.
#[derive(Debug, Clone)]
pub(crate) enum Extent {
    Anywhere,
    Point(Point),
    Cell(Cell),
    Area(RegionArea),
}

/// The exact area of a region, and its shape.
#[derive(Debug, Clone)]
pub(crate) struct RegionArea {
    shape: RegionShape,
    area: Area,
}

/// The shape of a region decides how it is compared with others.
#[derive(Debug, Clone, Copy)]
enum RegionShape {
    Rect,
    Circle { centre: Point, metres: f64 },
    Polygon,
}

impl RegionShape {
    /// The shape of a region.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the centre of a circle is invalid.
    fn of(region: &Region) -> Result<RegionShape> {
        Ok(match region {
            Region::Rect { .. } => RegionShape::Rect,
            Region::Circle {
                longitude,
                latitude,
                metres,
            } => RegionShape::Circle {
                centre: Point::new(SPACE, *longitude, *latitude)?,
                metres: *metres,
            },
            Region::Polygon(_) => RegionShape::Polygon,
        })
    }
}

impl Place {
    /// The extent of the place, for a broker whose cells have at most `depth` levels.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a coordinate or an area is invalid, or a cell is deeper than `depth`.
    pub(crate) fn extent(&self, depth: u8) -> Result<Extent> {
        Ok(match self {
            Place::Anywhere => Extent::Anywhere,
            Place::Point {
                longitude,
                latitude,
            } => Extent::Point(Point::new(SPACE, *longitude, *latitude)?),
            Place::Cell(cell) if cell.level() > depth => {
                return Err(Error::BadInput(format!(
                    "cell {cell} is {} levels deep, but this broker's cells have at most {depth} levels",
                    cell.level()
                )));
            }
            Place::Cell(cell) => Extent::Cell(cell.clone()),
            Place::Region(region) => Extent::Area(RegionArea {
                area: region.area()?,
                shape: RegionShape::of(region)?,
            }),
        })
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |tag: u8, numbers: &[f64]| {
            out.push(tag);
            for number in numbers {
                out.extend_from_slice(&number.to_le_bytes());
            }
        };
        match self {
            Place::Anywhere => put(0, &[]),
            Place::Point {
                longitude,
                latitude,
            } => put(1, &[*longitude, *latitude]),
            Place::Cell(cell) => {
                out.push(2);
                esker_coding::put_bytes(out, cell.quarters());
            }
            Place::Region(Region::Rect {
                west,
                south,
                east,
                north,
            }) => put(3, &[*west, *south, *east, *north]),
            Place::Region(Region::Circle {
                longitude,
                latitude,
                metres,
            }) => put(4, &[*longitude, *latitude, *metres]),
            Place::Region(Region::Polygon(text)) => {
                out.push(5);
                esker_coding::put_bytes(out, text.as_bytes());
            }
        }
    }

    /// Decodes a stored place; `None` if it is malformed.
    pub(crate) fn decode(input: &mut Reader<'_>) -> Option<Place> {
        fn number(input: &mut Reader<'_>) -> Option<f64> {
            Some(f64::from_bits(input.u64()?))
        }
        Some(match input.u8()? {
            0 => Place::Anywhere,
            1 => Place::Point {
                longitude: number(input)?,
                latitude: number(input)?,
            },
            2 => Place::Cell(Cell::new(input.bytes()?).ok()?),
            3 => Place::Region(Region::Rect {
                west: number(input)?,
                south: number(input)?,
                east: number(input)?,
                north: number(input)?,
            }),
            4 => Place::Region(Region::Circle {
                longitude: number(input)?,
                latitude: number(input)?,
                metres: number(input)?,
            }),
            5 => Place::Region(Region::Polygon(
                std::str::from_utf8(input.bytes()?).ok()?.into(),
            )),
            _ => return None,
        })
    }
}

impl Extent {
    /// The cells that hold it with variable granularity: at most `max_cells`, as small as possible.
    pub(crate) fn cells(&self, depth: u8, max_cells: usize) -> Vec<Cell> {
        match self {
            Extent::Anywhere => vec![Cell::root()],
            Extent::Point(point) => vec![Cell::of(*point, depth)],
            Extent::Cell(cell) => vec![cell.clone()],
            Extent::Area(region) => cell::cover(&region.area, depth, max_cells),
        }
    }

    /// The cells that hold it with fixed granularity: all cells of level `depth` that it overlaps;
    /// the root alone if it has no place, or if these are more than `max_cells`.
    pub(crate) fn leaves(&self, depth: u8, max_cells: usize) -> Vec<Cell> {
        let leaves = match self {
            Extent::Anywhere => None,
            Extent::Point(point) => Some(vec![Cell::of(*point, depth)]),
            Extent::Cell(cell) => {
                let count = 4_usize.checked_pow(u32::from(depth.saturating_sub(cell.level())));
                count
                    .filter(|count| *count <= max_cells)
                    .map(|_| cell.leaves(depth))
            }
            Extent::Area(region) => cell::leaves(&region.area, depth, max_cells),
        };
        leaves.unwrap_or_else(|| vec![Cell::root()])
    }

    /// True if a publication at this place reaches a subscription to `wanted`.
    pub(crate) fn is_for(&self, wanted: &Extent) -> bool {
        match (self, wanted) {
            (_, Extent::Anywhere) => true,
            (Extent::Anywhere, _) => false,
            (Extent::Point(a), Extent::Point(b)) => a == b,
            (Extent::Cell(a), Extent::Cell(b)) => a.meets(b),
            (Extent::Point(point), Extent::Cell(cell))
            | (Extent::Cell(cell), Extent::Point(point)) => *cell == Cell::of(*point, cell.level()),
            (Extent::Point(point), Extent::Area(region))
            | (Extent::Area(region), Extent::Point(point)) => region.area.contains(*point),
            (Extent::Cell(cell), Extent::Area(region))
            | (Extent::Area(region), Extent::Cell(cell)) => region.meets_box(&cell.bounds()),
            (Extent::Area(one), Extent::Area(other)) => one.meets(other),
        }
    }
}

impl RegionArea {
    /// True if two areas share a point. Exact for rectangles and circles. With a polygon,
    /// [`CommonPointSearch`] decides, and areas that it cannot separate count as overlapping.
    fn meets(&self, other: &RegionArea) -> bool {
        let (a, b) = (&self.area, &other.area);
        match (&self.shape, &other.shape) {
            (
                RegionShape::Circle { centre, metres },
                RegionShape::Circle {
                    centre: other_centre,
                    metres: other_metres,
                },
            ) => distance(SPACE, *centre, *other_centre) <= metres + other_metres,
            (RegionShape::Rect, _) => a.boxes().iter().any(|part| other.meets_box(part)),
            (_, RegionShape::Rect) => b.boxes().iter().any(|part| self.meets_box(part)),
            _ => CommonPointSearch::new(a, b).finds_in(&Cell::root()),
        }
    }

    /// True if the area shares a point with a box.
    fn meets_box(&self, bounds: &Bounds) -> bool {
        let relation = self.area.relation(bounds);
        match self.shape {
            RegionShape::Rect | RegionShape::Circle { .. } => relation != Relation::Outside,
            RegionShape::Polygon if relation == Relation::Crosses => {
                let Bounds {
                    min_x,
                    min_y,
                    max_x,
                    max_y,
                } = *bounds;
                let rect = Area::rect(SPACE, min_x, min_y, max_x, max_y);
                debug_assert!(rect.is_ok(), "a box of an area or cell is a rectangle");
                // What cannot be separated counts as overlapping.
                rect.map_or(true, |rect| {
                    CommonPointSearch::new(&self.area, &rect).finds_in(&Cell::root())
                })
            }
            RegionShape::Polygon => relation == Relation::Inside,
        }
    }
}

/// Searches for a common point of two areas: divides the sphere until a cell lies within both
/// areas, or two of its corners or its middle do. A cell that is undecided at the finest level, or
/// when no steps are left, counts as common.
struct CommonPointSearch<'a> {
    a: &'a Area,
    b: &'a Area,
    steps_left: u32,
}

impl CommonPointSearch<'_> {
    /// The maximum number of cells that are divided.
    const MAX_STEPS: u32 = 20_000;

    fn new<'a>(a: &'a Area, b: &'a Area) -> CommonPointSearch<'a> {
        CommonPointSearch {
            a,
            b,
            steps_left: CommonPointSearch::MAX_STEPS,
        }
    }

    /// True if the areas have a common point in a cell, as far as the search can tell.
    fn finds_in(&mut self, cell: &Cell) -> bool {
        /// Cells of this level are a tenth of a millimetre wide.
        const FINEST: usize = 38;
        let bounds = cell.bounds();
        match (self.a.relation(&bounds), self.b.relation(&bounds)) {
            (Relation::Outside, _) | (_, Relation::Outside) => return false,
            (Relation::Inside, Relation::Inside) => return true,
            _ if cell.quarters().len() >= FINEST || self.steps_left == 0 => return true,
            _ => self.steps_left -= 1,
        }
        let middle = (
            f64::midpoint(bounds.min_x, bounds.max_x),
            f64::midpoint(bounds.min_y, bounds.max_y),
        );
        let points = [
            (bounds.min_x, bounds.min_y),
            (bounds.max_x, bounds.max_y),
            middle,
        ];
        let is_common = |(x, y): &(f64, f64)| {
            let point = Point::new(SPACE, *x, *y);
            point.is_ok_and(|point| self.a.contains(point) && self.b.contains(point))
        };
        points.iter().any(is_common) || cell.divided().iter().any(|quarter| self.finds_in(quarter))
    }
}
