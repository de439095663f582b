//! Answers about points that any store can give: the records by their distance, and the number of
//! records in each cell of a grid. Both take the records that satisfy a request, in any order.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::Shape;
use crate::error::{Error, Result};
use crate::geometry::{Point, Space, distance};
use crate::key::Key;
use crate::record::Record;
use crate::schema::{Path, PointAt};
use crate::typed::PrimaryKey;

/// A record and its distance from a point. Ordered by distance, then by key.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbour<K = Key> {
    /// The record.
    pub record: Record<K>,
    /// The distance in metres along the great circle; in the plane, in the unit of the coordinates.
    pub distance: f64,
}

impl Neighbour {
    /// The neighbour with its key as a type of the program.
    ///
    /// # Errors
    /// If the key is not of that type.
    pub fn typed<K: PrimaryKey>(self) -> Result<Neighbour<K>> {
        Ok(Neighbour {
            record: self.record.typed()?,
            distance: self.distance,
        })
    }
}

impl Eq for Neighbour {}

impl PartialOrd for Neighbour {
    fn partial_cmp(&self, other: &Neighbour) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Neighbour {
    fn cmp(&self, other: &Neighbour) -> Ordering {
        let by_key = || {
            let (mine, other) = (self.record.key(), other.record.key());
            mine.as_bytes().cmp(other.as_bytes())
        };
        self.distance.total_cmp(&other.distance).then_with(by_key)
    }
}

impl Shape {
    /// The space of the points at `path`: the declared one, or degrees.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the path is declared and holds no points.
    pub fn space_of(&self, path: &Path) -> Result<Space> {
        let Some(attribute) = self.declared(path) else {
            return Ok(Space::Sphere);
        };
        attribute.ty.space().ok_or_else(|| {
            let ty = attribute.ty;
            Error::bad_input(format!(
                "field `{path}` is of type {ty}, which is not a point"
            ))
        })
    }
}

/// Keeps the records nearest to a point, ties by key. Records without a point are left out.
pub struct Nearest {
    space: Space,
    from: Point,
    at: PointAt,
    /// The number of records kept; `None` for all.
    most: Option<usize>,
    best: BinaryHeap<Neighbour>,
}

impl Nearest {
    /// The `most` records whose points at `path` are nearest to the point `(x, y)`, on the earth
    /// longitude and latitude; without a number, all records with a point.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the field holds no points, or the point is invalid.
    pub fn new(
        shape: &Shape,
        path: &Path,
        (x, y): (f64, f64),
        most: Option<usize>,
    ) -> Result<Nearest> {
        let space = shape.space_of(path)?;
        Ok(Nearest {
            space,
            from: Point::new(space, x, y)?,
            at: PointAt::new(path)?,
            most,
            best: BinaryHeap::new(),
        })
    }

    /// Considers a record.
    pub fn add(&mut self, record: Record) {
        let Some(point) = self.at.find(self.space, record.json()) else {
            return;
        };
        let distance = distance(self.space, self.from, point);
        let is_near = (self.best.peek()).is_some_and(|last| distance <= last.distance);
        let most = self.most.unwrap_or(usize::MAX);
        if self.best.len() < most || is_near {
            self.best.push(Neighbour { record, distance });
            if self.best.len() > most {
                self.best.pop();
            }
        }
    }

    /// The nearest records, nearest first.
    pub fn finish(self) -> Vec<Neighbour> {
        self.best.into_sorted_vec()
    }
}

/// The number of records in a cell of a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CellCount {
    /// The row, counted from the south pole: latitude plus 90, divided by the cell's size, rounded
    /// down. The north pole belongs to the last row.
    pub row: i64,
    /// The column, counted from the meridian of -180 degrees: longitude plus 180, divided by the
    /// cell's size, rounded down.
    pub column: i64,
    /// The number of records.
    pub count: u64,
}

/// Counts records by the cells of a grid.
pub struct CellCounts {
    space: Space,
    at: PointAt,
    degrees: f64,
    counts: HashMap<(i64, i64), u64>,
}

impl CellCounts {
    /// A grid over the points at `path`, with cells of so many degrees.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the size is invalid, or the field holds no points.
    pub fn new(shape: &Shape, path: &Path, degrees: f64) -> Result<CellCounts> {
        if !(degrees > 0.0 && degrees <= 360.0) {
            return Err(Error::bad_input(format!(
                "cells of {degrees} degrees: the size must be more than 0 and at most 360"
            )));
        }
        Ok(CellCounts {
            space: shape.space_of(path)?,
            at: PointAt::new(path)?,
            degrees,
            counts: HashMap::new(),
        })
    }

    /// Counts a record, if it has a point.
    pub fn add(&mut self, record: &Record) {
        let Some(point) = self.at.find(self.space, record.json()) else {
            return;
        };
        let is_sphere = self.space == Space::Sphere;
        let row = cell_of(point.y(), 90.0, self.degrees, is_sphere);
        let column = cell_of(point.x(), 180.0, self.degrees, is_sphere);
        *self.counts.entry((row, column)).or_default() += 1;
    }

    /// The cells with records: fullest first, then by row and column.
    pub fn finish(self) -> Vec<CellCount> {
        let cell = |((row, column), count)| CellCount { row, column, count };
        let mut cells: Vec<CellCount> = self.counts.into_iter().map(cell).collect();
        cells.sort_unstable_by_key(|cell| (u64::MAX - cell.count, cell.row, cell.column));
        cells
    }
}

/// The row or column of a coordinate, in cells of so many degrees from `-most` on. On the sphere
/// `most` itself belongs to the last cell.
fn cell_of(coordinate: f64, most: f64, degrees: f64, is_sphere: bool) -> i64 {
    let cell = ((coordinate + most) / degrees).floor() as i64;
    if !is_sphere {
        return cell;
    }
    // A quotient that is whole but for rounding adds no cell.
    let cells = 2.0 * most / degrees;
    let whole = cells.round();
    let all = if (cells - whole).abs() < 1e-9 * cells {
        whole
    } else {
        cells.ceil()
    };
    cell.min(all as i64 - 1).max(0)
}
