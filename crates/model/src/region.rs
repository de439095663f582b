//! The encoded points of an area: the ranges of cells that cover it, and the exact test.

use crate::geometry::{Area, Bounds, Point, Relation, Space};
use crate::schema::{CELL_BITS, POINT_LEN, cell_bounds, cell_of, decode_point, interleave};

/// The most ranges of cells for an area: each is a seek in every run of an index, and fewer of them cover more that is
/// not in the area.
const MOST_RANGES: usize = 24;
/// The most of a coarse cover: an area is never in fewer than four cells that are not much larger, where it lies on their
/// corner.
const FEW_RANGES: usize = 4;
/// The most cells that are looked at, and at one level.
const MOST_CELLS: usize = 160;

/// An area as indexes of points search it: a bounded number of ranges in z-order, which together cover it, and the
/// exact test of a value.
#[derive(Debug, Clone)]
pub struct Region {
    area: Area,
    /// First and last cell of each range, in order; they do not touch.
    ranges: Cells,
    /// The same, of fewer and larger ranges.
    coarse: Cells,
}

impl PartialEq for Region {
    fn eq(&self, other: &Region) -> bool {
        self.ranges == other.ranges && self.area == other.area
    }
}

impl Eq for Region {}

/// A cell of some level, and whether all of it is in the area.
#[derive(Clone, Copy)]
struct Cell {
    x: u32,
    y: u32,
    inside: bool,
}

impl Region {
    /// The region of an area: of points of its space. Costs time in proportion to the ranges, of which there are at
    /// most a few dozen.
    pub fn new(area: Area) -> Region {
        let (coarse, ranges) = cover(&area);
        Region {
            area,
            ranges,
            coarse,
        }
    }

    /// Levels of cells, from the whole space (0) down.
    pub const LEVELS: u32 = CELL_BITS;

    /// The cell of a level that a point lies in, as a region that covers it, and its bounds.
    pub fn of_cell(space: Space, point: Point, level: u32) -> (Region, Bounds) {
        let (x, y) = cell_of(space, point);
        let level = level.min(CELL_BITS);
        let up = CELL_BITS - level;
        let at = |v: u32| v.checked_shr(up).unwrap_or(0);
        let bounds = cell_bounds(space, level, at(x), at(y));
        let cell = Cell {
            x: at(x),
            y: at(y),
            inside: true,
        };
        let area = Area::of_bounds(space, bounds);
        let ranges = joined(level, &[cell]);
        let region = Region {
            area,
            coarse: ranges.clone(),
            ranges,
        };
        (region, bounds)
    }

    /// The area.
    pub fn area(&self) -> &Area {
        &self.area
    }

    /// True when an encoded point lies in the area. What is no point does not.
    pub fn contains(&self, value: &[u8]) -> bool {
        decode_point(self.area.space(), value).is_some_and(|point| self.area.contains(point))
    }

    /// The encoded points among which are all those of the area: ranges from the first (inclusive) to the second
    /// (exclusive; `None` is the end), in order, without overlap.
    pub fn key_ranges(&self) -> impl ExactSizeIterator<Item = KeyRange> {
        self.ranges.iter().map(bytes)
    }

    /// As [`Region::key_ranges`], at most four, which cover more: for areas with few points in and about them.
    pub fn coarse_ranges(&self) -> impl ExactSizeIterator<Item = KeyRange> {
        self.coarse.iter().map(bytes)
    }

    /// The least and the greatest encoding that a point of the area can have; `None` for an area without points.
    pub fn hull(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (first, last) = (self.ranges.first()?.0, self.ranges.last()?.1);
        let mut high = last.to_be_bytes().to_vec();
        high.resize(POINT_LEN, u8::MAX);
        Some((first.to_be_bytes().to_vec(), high))
    }
}

/// First and last cell of ranges, in order.
type Cells = Vec<(u64, u64)>;

/// Encodings from the first (inclusive) to the second (exclusive; `None` is the end).
type KeyRange = (Vec<u8>, Option<Vec<u8>>);

fn bytes((first, last): &(u64, u64)) -> KeyRange {
    let end = last.checked_add(1).map(|end| end.to_be_bytes().to_vec());
    (first.to_be_bytes().to_vec(), end)
}

/// The ranges of cells that cover an area: few, and more. From the whole space down, cells that cross its border are quartered while
/// they make few ranges.
fn cover(area: &Area) -> (Cells, Cells) {
    let (mut level, mut coarse, mut best) = (0, Vec::new(), Vec::new());
    let mut cells = vec![Cell {
        x: 0,
        y: 0,
        inside: false,
    }];
    loop {
        let ranges = joined(level, &cells);
        if level > 0 && ranges.len() > MOST_RANGES {
            return (coarse, best);
        }
        if level == 0 || ranges.len() <= FEW_RANGES && cells.len() <= 2 * FEW_RANGES {
            coarse.clone_from(&ranges);
        }
        best = ranges;
        let quartered = level < CELL_BITS && cells.iter().any(|cell| !cell.inside);
        if !quartered || cells.len() > MOST_CELLS {
            return (coarse, best);
        }
        level += 1;
        let mut next = Vec::with_capacity(cells.len() * 2);
        for cell in &cells {
            for (right, up) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let (x, y) = (cell.x << 1 | right, cell.y << 1 | up);
                let relation = match cell.inside {
                    true => Relation::Inside,
                    false => relation(area, level, x, y),
                };
                if relation != Relation::Outside {
                    let inside = relation == Relation::Inside;
                    next.push(Cell { x, y, inside });
                }
            }
        }
        cells = next;
    }
}

fn relation(area: &Area, level: u32, x: u32, y: u32) -> Relation {
    let bounds = cell_bounds(area.space(), level, x, y);
    match area.space() {
        Space::Sphere if area.is_polygon() => area.relation(&bounds),
        // Boxes are quick to compare, and little larger than rectangles and circles; cells of the plane are as large as
        // numbers are.
        _ => {
            let mut relation = Relation::Outside;
            for part in area.boxes() {
                if part.holds(&bounds) {
                    return Relation::Inside;
                }
                if part.meets(&bounds) {
                    relation = Relation::Crosses;
                }
            }
            relation
        }
    }
}

/// The ranges of the smallest cells in some cells of a level, neighbours joined.
fn joined(level: u32, cells: &[Cell]) -> Cells {
    let below = 2 * (CELL_BITS - level);
    let mut ranges: Cells = cells
        .iter()
        .map(|cell| {
            let first = interleave(cell.x, cell.y).checked_shl(below).unwrap_or(0);
            let size = 1_u64.checked_shl(below).unwrap_or(0);
            (first, first.wrapping_add(size).wrapping_sub(1))
        })
        .collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let joins = before.1.checked_add(1) == Some(next.0);
        if joins {
            before.1 = next.1;
        }
        joins
    });
    ranges
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
