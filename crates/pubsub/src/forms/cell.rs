//! Cells: the quad-tree over longitude and latitude (the paper's section 6.2.2, figure 9).
//!
//! The root is the whole sphere. Each cell has four quarters: 1 and 2 in the north, 3 and 4 in the
//! south, odd numbers in the west. A point lies in exactly one cell of each level: a border belongs
//! to the cell in the east or north of it, the outermost borders to the cells inside.

use std::collections::VecDeque;
use std::fmt;

use esker::{Error, Result};
use esker_model::geometry::{Area, Bounds, Point, Relation, Space};

/// The maximum level of a cell. Cells of this level measure 2.4 by 1.2 metres at the equator.
pub const MAX_DEPTH: u8 = 24;

/// The bounds of the root.
const WHOLE: Bounds = Bounds {
    min_x: -180.0,
    max_x: 180.0,
    min_y: -90.0,
    max_y: 90.0,
};

/// The corner that the four quarters of a cell share.
struct Middle {
    x: f64,
    y: f64,
}

fn middle_of(bounds: &Bounds) -> Middle {
    Middle {
        x: f64::midpoint(bounds.min_x, bounds.max_x),
        y: f64::midpoint(bounds.min_y, bounds.max_y),
    }
}

/// The bounds of a quarter of a cell with these bounds.
fn quarter_of(mut bounds: Bounds, quarter: u8) -> Bounds {
    let Middle { x, y } = middle_of(&bounds);
    let (is_east, is_north) = (quarter.is_multiple_of(2), quarter <= 2);
    if is_east {
        bounds.min_x = x;
    } else {
        bounds.max_x = x;
    }
    if is_north {
        bounds.min_y = y;
    } else {
        bounds.max_y = y;
    }
    bounds
}

/// A cell of the quad-tree, as the quarters (1 to 4) on the path from the root.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Cell(Vec<u8>);

impl Cell {
    /// The whole sphere.
    pub fn root() -> Cell {
        Cell::default()
    }

    /// The cell at the end of this path of quarters.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a number is not 1 to 4, or there are more than [`MAX_DEPTH`].
    pub fn new(quarters: &[u8]) -> Result<Cell> {
        let fits = |quarter: &u8| (1..=4).contains(quarter);
        if quarters.len() <= usize::from(MAX_DEPTH) && quarters.iter().all(fits) {
            Ok(Cell(quarters.to_vec()))
        } else {
            Err(Error::BadInput(format!(
                "{quarters:?} is not a cell: a cell is a list of at most {MAX_DEPTH} quarters, each 1 to 4"
            )))
        }
    }

    /// The cell of level `depth` in which a point lies.
    pub fn of(point: Point, depth: u8) -> Cell {
        let mut bounds = WHOLE;
        let mut path = Vec::with_capacity(usize::from(depth));
        for _ in 0..depth {
            let middle = middle_of(&bounds);
            let (is_east, is_north) = (point.x() >= middle.x, point.y() >= middle.y);
            let quarter = 1 + u8::from(is_east) + 2 * u8::from(!is_north);
            bounds = quarter_of(bounds, quarter);
            path.push(quarter);
        }
        Cell(path)
    }

    /// Its level: 0 for the root.
    pub fn level(&self) -> u8 {
        self.0.len() as u8
    }

    /// The quarters on the path from the root to it.
    pub fn quarters(&self) -> &[u8] {
        &self.0
    }

    /// True if `other` is this cell or lies within it.
    pub fn holds(&self, other: &Cell) -> bool {
        other.0.starts_with(&self.0)
    }

    /// True if one of the two holds the other.
    pub fn meets(&self, other: &Cell) -> bool {
        self.holds(other) || other.holds(self)
    }

    /// Its bounds.
    pub fn bounds(&self) -> Bounds {
        let quarters = self.0.iter();
        quarters.fold(WHOLE, |bounds, quarter| quarter_of(bounds, *quarter))
    }

    /// Its quarter with this number, 1 to 4.
    fn quarter(&self, number: u8) -> Cell {
        debug_assert!((1..=4).contains(&number));
        let mut path = self.0.clone();
        path.push(number);
        Cell(path)
    }

    /// All cells of level `depth` in this cell, 4 to the power of the level difference; the cell
    /// itself if it is that deep.
    pub(crate) fn leaves(&self, depth: u8) -> Vec<Cell> {
        let mut cells = vec![self.clone()];
        for _ in self.level()..depth {
            cells = cells
                .iter()
                .flat_map(|cell| (1..=4).map(|number| cell.quarter(number)))
                .collect();
        }
        cells
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, quarter) in self.0.iter().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            write!(f, "{dot}{quarter}")?;
        }
        Ok(())
    }
}

/// Covers an area with at most `max_cells` cells, none deeper than `depth` or within another, each
/// as small as that allows. Divides the largest cells first, as long as the result is small enough.
pub(crate) fn cover(area: &Area, depth: u8, max_cells: usize) -> Vec<Cell> {
    // Cells that could be divided, the largest first.
    let mut open = VecDeque::from([Cell::root()]);
    // Cells of the result.
    let mut done = Vec::new();
    while let Some(cell) = open.pop_front() {
        let is_inside = area.relation(&cell.bounds()) == Relation::Inside;
        if cell.level() >= depth || is_inside {
            done.push(cell);
            continue;
        }
        let quarters = (1..=4).map(|number| cell.quarter(number));
        let within: Vec<Cell> = quarters
            .filter(|quarter| area.relation(&quarter.bounds()) != Relation::Outside)
            .collect();
        if within.is_empty() {
            // The area's relation to a large box is conservative: quarters outside prove that the
            // cell is outside, too.
            continue;
        }
        if open.len() + done.len() + within.len() <= max_cells {
            open.extend(within);
        } else {
            done.push(cell);
        }
    }
    done.sort_unstable();
    done
}

/// All cells of level `depth` that overlap an area; `None` if these are more than `max_cells`.
pub(crate) fn leaves(area: &Area, depth: u8, max_cells: usize) -> Option<Vec<Cell>> {
    let mut cells = vec![Cell::root()];
    for _ in 0..depth {
        let quarters = cells
            .iter()
            .flat_map(|cell| (1..=4).map(|n| cell.quarter(n)));
        cells = quarters
            .filter(|cell| area.relation(&cell.bounds()) != Relation::Outside)
            .collect();
        if cells.len() > max_cells {
            return None;
        }
    }
    Some(cells)
}

/// The space of all coordinates.
pub(crate) const SPACE: Space = Space::Sphere;

impl Cell {
    /// Its quarters, even below [`MAX_DEPTH`], for the comparison of areas.
    pub(crate) fn divided(&self) -> [Cell; 4] {
        [1, 2, 3, 4].map(|number| self.quarter(number))
    }
}
