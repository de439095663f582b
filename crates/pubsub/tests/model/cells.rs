//! The cells of a place, by the documented rule: publications with a cell in common are compared
//! with each other, if a subscription asks for changes of a number.

use std::collections::VecDeque;

use esker_model::geometry::Relation;
use esker_pubsub::{Cell, Granularity, Place};

use crate::meaning::{DEPTH, point};

/// The most cells of an area with variable granularity.
const MOST: usize = 6;

fn quarters(cell: &Cell) -> impl Iterator<Item = Cell> {
    (1..=4).map(|n| Cell::new(&[cell.quarters(), &[n]].concat()).unwrap())
}

/// All cells of the deepest level.
fn deepest() -> Vec<Cell> {
    let mut cells = vec![Cell::root()];
    for _ in 0..DEPTH {
        cells = cells.iter().flat_map(quarters).collect();
    }
    cells
}

pub(crate) fn cells_of(place: &Place, granularity: Granularity) -> Vec<Cell> {
    let is_fixed = matches!(granularity, Granularity::Fixed);
    match place {
        Place::Anywhere => vec![Cell::root()],
        Place::Point {
            longitude,
            latitude,
        } => vec![Cell::of(point(*longitude, *latitude), DEPTH)],
        Place::Cell(cell) if is_fixed => {
            let mut cells = deepest();
            cells.retain(|deep| cell.holds(deep));
            cells
        }
        Place::Cell(cell) => vec![cell.clone()],
        Place::Region(region) => {
            let area = region.area().unwrap();
            let relation = |cell: &Cell| area.relation(&cell.bounds());
            let meets = |cell: &Cell| relation(cell) != Relation::Outside;
            if is_fixed {
                let mut cells = deepest();
                cells.retain(meets);
                return cells;
            }
            // The largest cells are divided first, as long as there are few.
            let (mut open, mut whole) = (VecDeque::from([Cell::root()]), Vec::new());
            while let Some(cell) = open.pop_front() {
                let parts: Vec<Cell> = quarters(&cell).filter(meets).collect();
                let is_smallest = cell.level() == DEPTH || relation(&cell) == Relation::Inside;
                let fits = open.len() + whole.len() + parts.len() <= MOST;
                if is_smallest || !fits {
                    whole.push(cell);
                } else {
                    open.extend(parts);
                }
            }
            whole
        }
        _ => unreachable!(),
    }
}
