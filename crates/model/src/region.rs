//! The encoded points of an area, or of an area at a time: ranges of cells that cover it, and an
//! exact test.

use std::sync::OnceLock;

use esker_coding::Own;

use crate::geometry::{Area, Bounds, Point, Relation, Space};
use crate::schema::{
    CELL_BITS, PERIOD_BITS, POINT_LEN, POINT_TIME_LEN, TIMED_BITS, cell_bounds, cell_of, cell_side,
    decode_point, decode_point_time, interleave, interleave3, time_coordinate,
};

/// The maximum number of ranges for an area. Each range costs a seek in every run of an index;
/// fewer ranges cover more outside of the area.
const MOST_RANGES: usize = 24;
/// The maximum number of ranges of a coarse cover. An area around a corner of cells needs four
/// cells if they should not be much larger than the area.
const FEW_RANGES: usize = 4;
/// Subdivision stops at this number of cells.
const MOST_CELLS: usize = 160;
/// The approximate number of ranges of an area at a time, over all periods; each period may have at
/// least two.
const MOST_TIMED_RANGES: usize = 192;
/// More periods than this are covered by one range.
const MOST_PERIODS: u64 = 1024;

/// An area in the form in which spatial indexes search it: a bounded number of ranges in z-order
/// that together cover it, and an exact test for values.
#[derive(Debug, Clone)]
pub struct Region {
    area: Area,
    /// For points at a time: the first and the last time, both included, in microseconds.
    times: Option<(i64, i64)>,
    /// The first and the last cell of each range, ascending; ranges do not touch.
    coarse: Cells,
    /// More and smaller ranges. Computed on first use, because small areas with few points in and
    /// around them do not need them.
    fine: OnceLock<Cells>,
}

impl PartialEq for Region {
    fn eq(&self, other: &Region) -> bool {
        self.times == other.times && self.coarse == other.coarse && self.area == other.area
    }
}

impl Eq for Region {}

/// A cell of some level, its number in z-order, and whether it lies completely in the area.
#[derive(Clone, Copy)]
struct Cell {
    x: u32,
    y: u32,
    number: u64,
    inside: bool,
}

impl Cell {
    /// The whole space.
    const WHOLE: Cell = Cell::new(0, 0, false);

    const fn new(x: u32, y: u32, inside: bool) -> Cell {
        Cell {
            x,
            y,
            number: interleave(x, y),
            inside,
        }
    }
}

impl Region {
    /// The region of an area, for points of its space. The cost is proportional to the number of
    /// ranges, at most a few dozen.
    pub fn new(area: Area) -> Region {
        Region {
            coarse: cover(&area, smallest_around(&area), &COARSE),
            area,
            times: None,
            fine: OnceLock::new(),
        }
    }

    /// The region of an area from one time to another, both included, in microseconds, for points
    /// at a time. It has some dozens of ranges for each period (about six days) of the time.
    pub fn at_times(area: Area, from: i64, to: i64) -> Region {
        let (coarse, fine) = cover_times(&area, time_coordinate(from), time_coordinate(to));
        Region {
            area,
            times: Some((from, to)),
            coarse,
            fine: OnceLock::from(fine),
        }
    }

    /// Levels of cells, from the whole space (0) down.
    pub const LEVELS: u32 = CELL_BITS;

    /// The cell of a level that contains a point, as a region, and its bounds.
    pub fn of_cell(space: Space, point: Point, level: u32) -> (Region, Bounds) {
        let (x, y) = cell_of(space, point);
        let level = level.min(CELL_BITS);
        let up = CELL_BITS - level;
        let at = |v: u32| v.checked_shr(up).unwrap_or(0);
        let bounds = cell_bounds(space, level, at(x), at(y));
        let cell = Cell::new(at(x), at(y), true);
        let area = Area::of_bounds(space, bounds);
        let ranges = joined(level, &[cell]);
        let region = Region {
            area,
            times: None,
            coarse: ranges.clone(),
            fine: OnceLock::from(ranges),
        };
        (region, bounds)
    }

    /// The area.
    pub fn area(&self) -> &Area {
        &self.area
    }

    /// The first and the last time, both included, in microseconds, if the region is for points at
    /// a time.
    pub fn times(&self) -> Option<(i64, i64)> {
        self.times
    }

    /// True if an encoded point (at a time, if the region has times) lies in the area. False for
    /// bytes that are not a point.
    pub fn contains(&self, value: &[u8]) -> bool {
        let space = self.area.space();
        let point = match self.times {
            None => decode_point(space, value),
            Some((from, to)) => decode_point_time(space, value)
                .filter(|(_, at)| (from..=to).contains(at))
                .map(|(point, _)| point),
        };
        point.is_some_and(|point| self.area.contains(point))
    }

    /// The lengths of an encoded cell and of an encoded value.
    fn lengths(&self) -> (usize, usize) {
        match self.times {
            None => (8, POINT_LEN),
            Some(_) => (12, POINT_TIME_LEN),
        }
    }

    /// Ranges that contain all encoded points of the area: from the first (inclusive) to the second
    /// (exclusive; `None` is the end), in order, without overlap.
    pub fn key_ranges(&self) -> impl ExactSizeIterator<Item = KeyRange> {
        self.bytes(self.fine())
    }

    /// As [`Region::key_ranges`], but at most four ranges, which cover more: for areas with few
    /// points in and around them.
    pub fn coarse_ranges(&self) -> impl ExactSizeIterator<Item = KeyRange> {
        self.bytes(&self.coarse)
    }

    fn fine(&self) -> &Cells {
        let cover = || cover(&self.area, smallest_around(&self.area), &FINE);
        self.fine.get_or_init(cover)
    }

    /// Bounds of the encodings of the area's points: the least and the greatest; `None` for an area
    /// without points.
    pub fn hull(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (first, last) = (self.coarse.first()?.0, self.coarse.last()?.1);
        let (length, of_value) = self.lengths();
        let mut high = cell_bytes(length, last);
        high.resize(of_value, u8::MAX);
        Some((cell_bytes(length, first), high))
    }

    fn bytes<'a>(&self, cells: &'a Cells) -> impl ExactSizeIterator<Item = KeyRange> + use<'a> {
        let (length, _) = self.lengths();
        cells.iter().map(move |(first, last)| {
            let end = last.checked_add(1).filter(|end| end >> (8 * length) == 0);
            let end = end.map(|end| cell_bytes(length, end));
            (cell_bytes(length, *first), end)
        })
    }
}

/// The last `length` bytes of a cell, big-endian.
fn cell_bytes(length: usize, cell: u128) -> Vec<u8> {
    let bytes = cell.to_be_bytes();
    bytes.own(16 - length..).to_vec()
}

/// The first and the last cell of ranges, in order. For points at a time, a cell is preceded by its
/// period.
type Cells = Vec<(u128, u128)>;

/// Encodings from the first (inclusive) to the second (exclusive; `None` is the end).
type KeyRange = (Vec<u8>, Option<Vec<u8>>);

/// The limits of a cover.
struct Fineness {
    /// The maximum number of ranges and of cells.
    ranges: usize,
    cells: usize,
    /// Subdivision stops at more cells than this.
    enough: usize,
}

const COARSE: Fineness = Fineness {
    ranges: FEW_RANGES,
    cells: 2 * FEW_RANGES,
    enough: 2 * FEW_RANGES,
};

const FINE: Fineness = Fineness {
    ranges: MOST_RANGES,
    cells: usize::MAX,
    enough: MOST_CELLS,
};

/// The ranges of cells that cover an area. Begins with a cell that contains the area, and quarters
/// the cells on its border while the number of ranges stays small.
fn cover(area: &Area, (mut level, cell): (u32, Cell), fineness: &Fineness) -> Cells {
    let mut cells = Vec::with_capacity(4 * FEW_RANGES);
    let mut next = Vec::with_capacity(4 * FEW_RANGES);
    cells.push(cell);
    while level < CELL_BITS && cells.len() <= fineness.enough {
        if cells.iter().all(|cell| cell.inside) {
            break;
        }
        next.clear();
        for cell in &cells {
            quarter(area, level, cell, &mut next);
        }
        if count_ranges(&next) > fineness.ranges || next.len() > fineness.cells {
            break;
        }
        level += 1;
        std::mem::swap(&mut cells, &mut next);
    }
    joined(level, &cells)
}

/// Adds the quarters of a cell that meet the area, in z-order.
fn quarter(area: &Area, level: u32, cell: &Cell, out: &mut Vec<Cell>) {
    let (x, y) = (cell.x << 1, cell.y << 1);
    let side = |is_first, at| cell_side(area.space(), is_first, level + 1, at);
    let columns = [side(true, x), side(true, x | 1)];
    let rows = [side(false, y), side(false, y | 1)];
    for ((min_x, max_x), right) in columns.into_iter().zip(0..) {
        for ((min_y, max_y), up) in rows.into_iter().zip(0..) {
            let bounds = Bounds {
                min_x,
                min_y,
                max_x,
                max_y,
            };
            let relation = if cell.inside {
                Relation::Inside
            } else {
                relation(area, &bounds)
            };
            if relation != Relation::Outside {
                out.push(Cell {
                    x: x | right,
                    y: y | up,
                    number: cell.number << 2 | u64::from(right << 1 | up),
                    inside: relation == Relation::Inside,
                });
            }
        }
    }
}

/// The number of ranges of cells in z-order.
fn count_ranges(cells: &[Cell]) -> usize {
    let apart = |pair: &[Cell]| match pair {
        [a, b] => b.number != a.number + 1,
        _ => false,
    };
    usize::from(!cells.is_empty()) + cells.windows(2).filter(|pair| apart(pair)).count()
}

/// The smallest cell, and its level, that contains an area and does not touch it with its border;
/// the whole space if the area has several boxes.
fn smallest_around(area: &Area) -> (u32, Cell) {
    let whole = Cell::WHOLE;
    let [bounds] = area.boxes() else {
        return (0, whole);
    };
    let corner = |x, y| Some(cell_of(area.space(), Point::new(area.space(), x, y).ok()?));
    let corners = corner(bounds.min_x, bounds.min_y).zip(corner(bounds.max_x, bounds.max_y));
    let Some(((left, bottom), (right, top))) = corners else {
        return (0, whole);
    };
    // One smallest cell more on each side, so that points on a border also lie in the cell beside
    // it.
    let common =
        |low: u32, high: u32| (low.saturating_sub(1) ^ high.saturating_add(1)).leading_zeros();
    let level = common(left, right).min(common(bottom, top));
    let at = |v: u32| v.checked_shr(CELL_BITS - level).unwrap_or(0);
    let (x, y) = (at(left), at(bottom));
    (level, Cell::new(x, y, false))
}

fn relation(area: &Area, bounds: &Bounds) -> Relation {
    match area.space() {
        Space::Sphere if area.is_polygon() => area.relation(bounds),
        // Boxes are compared quickly, and are little larger than rectangles and circles. Cells of
        // the plane are as large as numbers are.
        _ => {
            let mut relation = Relation::Outside;
            for part in area.boxes() {
                if part.holds(bounds) {
                    return Relation::Inside;
                }
                if part.meets(bounds) {
                    relation = Relation::Crosses;
                }
            }
            relation
        }
    }
}

/// The ranges of the smallest cells in the given cells of a level, with neighbours joined.
fn joined(level: u32, cells: &[Cell]) -> Cells {
    let below = 2 * (CELL_BITS - level);
    let span = |cell: &Cell| within_cell(cell.number, below);
    merged(cells.iter().map(span).collect())
}

/// The first and the last number that differ from this cell only in the `below` lower bits.
fn within_cell(cell: u64, below: u32) -> (u128, u128) {
    let first = u128::from(cell) << below;
    (first, first | ((1 << below) - 1))
}

/// Sorts ranges and joins neighbours.
fn merged(mut ranges: Cells) -> Cells {
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

/// The ranges of cells that cover an area from one time to another, in the order of times: coarse
/// and fine.
fn cover_times(area: &Area, from: u64, to: u64) -> (Cells, Cells) {
    if from > to || area.boxes().is_empty() {
        return Default::default();
    }
    let (first, last) = (from >> PERIOD_BITS, to >> PERIOD_BITS);
    let periods = last - first + 1;
    let whole = |period: u64| u128::from(period) << 64;
    if periods > MOST_PERIODS {
        let all = vec![(whole(first), whole(last + 1) - 1)];
        return (all.clone(), all);
    }
    let most = (MOST_TIMED_RANGES / periods as usize).clamp(2, 2 * MOST_RANGES);
    let (mut coarse, mut fine) = (Vec::new(), Vec::new());
    let in_period = (1 << PERIOD_BITS) - 1;
    // Complete periods all have the same ranges.
    let mut full: Option<(Cells, Cells)> = None;
    for period in first..=last {
        let start = if period == first { from & in_period } else { 0 };
        let end = if period == last {
            to & in_period
        } else {
            in_period
        };
        let (few, more) = match &full {
            Some(full) if (start, end) == (0, in_period) => full.clone(),
            _ => cover_period(area, (start, end), most),
        };
        if (start, end) == (0, in_period) {
            full = Some((few.clone(), more.clone()));
        }
        let placed = |cells: Cells| {
            let place = move |(a, b)| (a + whole(period), b + whole(period));
            cells.into_iter().map(place)
        };
        coarse.extend(placed(few));
        fine.extend(placed(more));
    }
    (coarse, fine)
}

/// A cell of some level in a period.
#[derive(Clone, Copy)]
struct TimedCell {
    x: u32,
    y: u32,
    t: u32,
    inside: bool,
}

/// The ranges of cells of a period that cover an area between two times in it: coarse, and fine
/// with at most `most` ranges.
fn cover_period(area: &Area, (from, to): (u64, u64), most: usize) -> (Cells, Cells) {
    let ranges = |level: u32, cells: &[TimedCell]| {
        let below = 3 * (TIMED_BITS - level);
        let span = |cell: &TimedCell| within_cell(interleave3(cell.x, cell.y, cell.t), below);
        merged(cells.iter().map(span).collect())
    };
    let mut cells = vec![TimedCell {
        x: 0,
        y: 0,
        t: 0,
        inside: false,
    }];
    let mut best = ranges(0, &cells);
    let mut coarse = best.clone();
    for level in 1..=TIMED_BITS {
        if cells.len() > MOST_CELLS || cells.iter().all(|cell| cell.inside) {
            break;
        }
        let bits = PERIOD_BITS - level;
        let mut next = Vec::with_capacity(cells.len() * 4);
        for cell in &cells {
            for part in 0..8 {
                let (x, y, t) = (
                    cell.x << 1 | part >> 2,
                    cell.y << 1 | (part >> 1 & 1),
                    cell.t << 1 | (part & 1),
                );
                let start = u64::from(t) << bits;
                let end = start | ((1 << bits) - 1);
                if end < from || start > to {
                    continue;
                }
                let relation = if cell.inside {
                    Relation::Inside
                } else {
                    relation(area, &cell_bounds(area.space(), level, x, y))
                };
                if relation != Relation::Outside {
                    let inside = relation == Relation::Inside && from <= start && end <= to;
                    next.push(TimedCell { x, y, t, inside });
                }
            }
        }
        cells = next;
        let found = ranges(level, &cells);
        if found.len() > most {
            break;
        }
        if found.len() <= FEW_RANGES {
            coarse.clone_from(&found);
        }
        best = found;
    }
    (coarse, best)
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
