//! Polygons with holes. The side of an edge on which a point lies is computed without rounding
//! errors (Shewchuk's adaptive predicate).

use std::ops::RangeInclusive;

use esker_coding::Own;
use robust::{Coord, orient2d};

use super::bounds::Bounds;
use super::point::{Point, Space};
use super::relation::{Relation, on_sphere};
use crate::error::{Error, Result};

/// One or more polygons, each with any number of holes. All borders are included, also those of
/// holes.
///
/// An edge is a straight line in the plane of the coordinates, on the sphere too, as in GeoJSON
/// (RFC 7946, section 3.1.1): between two points of one latitude it follows the parallel. An edge
/// over more than 180 degrees of longitude takes the short way, across the meridian of 180 degrees
/// (one of exactly 360 degrees circles the earth). A ring around the earth encloses the pole of the
/// hemisphere of the mean of its corners.
#[derive(Debug, Clone, PartialEq)]
pub struct Polygon {
    space: Space,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
struct Part {
    outer: Ring,
    holes: Vec<Ring>,
}

/// The position of a point relative to a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    Border,
    Inside,
}

/// About this number of short edges share a slab, so that a point is compared with few of them.
/// Edges over many slabs are above or below most points; there are fewer slabs then.
const EDGES_PER_SLAB: usize = 8;
const MAX_SLABS: usize = 4096;
/// An edge is at most in so many slabs on average.
const ENTRIES_PER_EDGE: usize = 16;

/// A closed line. Its corners keep their coordinates: a longitude moved beyond 180 degrees would be
/// rounded, and points on a border would no longer lie on it.
#[derive(Debug, Clone, PartialEq)]
struct Ring {
    space: Space,
    edges: Vec<Edge>,
    /// The least and the greatest latitude, or second coordinate.
    min_y: f64,
    max_y: f64,
    /// The westernmost and the easternmost corner. `west > east` if the ring crosses the meridian
    /// of 180 degrees. A ring around the earth, or over all longitudes, extends from -180 to 180.
    west: f64,
    east: f64,
    /// The latitude of the pole that the ring encircles, if any.
    pole: Option<f64>,
    /// For each slab of the range of x, from the west: the edges that reach into it.
    slabs: Vec<Vec<u32>>,
}

/// A straight line from its western to its eastern end.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Edge {
    west: Coord<f64>,
    east: Coord<f64>,
    /// True if the edge crosses the meridian of 180 degrees. In the plane of its western end, the
    /// longitude of its eastern end is then greater by 360 degrees.
    over: bool,
}

impl Polygon {
    /// The polygons, each a list of rings: its outline, then its holes. A ring is a list of at
    /// least four points, the last of which equals the first. The direction of rings does not
    /// matter.
    ///
    /// # Errors
    ///
    /// If there is no polygon, or a polygon has no ring; or if a ring has fewer points, is not
    /// closed, or circles the earth more than once.
    pub fn new(space: Space, polygons: &[Vec<Vec<Point>>]) -> Result<Polygon> {
        if polygons.is_empty() {
            return Err(Error::bad_input("no polygon is given"));
        }
        let part = |(number, rings): (usize, &Vec<Vec<Point>>)| {
            let ring = |(at, points): (usize, &Vec<Point>)| {
                Ring::new(space, points).map_err(|why| {
                    Error::bad_input(format!("polygon {}, ring {}: {why}", number + 1, at + 1))
                })
            };
            let mut rings = rings.iter().enumerate().map(ring);
            let outer = rings
                .next()
                .ok_or_else(|| Error::bad_input(format!("polygon {} has no ring", number + 1)))??;
            Ok(Part {
                outer,
                holes: rings.collect::<Result<_>>()?,
            })
        };
        let parts = polygons.iter().enumerate().map(part);
        Ok(Polygon {
            space,
            parts: parts.collect::<Result<_>>()?,
        })
    }

    /// The space of the polygon: sphere or plane.
    pub fn space(&self) -> Space {
        self.space
    }

    /// True if the point is in a polygon or on its border. The cost is proportional to the number
    /// of edges above and below the point.
    pub fn contains(&self, point: Point) -> bool {
        self.parts.iter().any(|part| {
            part.outer.place(point) != Place::Outside
                && !part
                    .holes
                    .iter()
                    .any(|hole| hole.place(point) == Place::Inside)
        })
    }

    /// Boxes that together cover the polygon.
    pub(super) fn boxes(&self) -> Vec<Bounds> {
        self.parts
            .iter()
            .flat_map(|part| part.outer.boxes())
            .collect()
    }

    /// The relation of a box to the polygon.
    pub(super) fn relation(&self, bounds: &Bounds) -> Relation {
        if self.space == Space::Sphere && (bounds.max_y == 90.0 || bounds.min_y == -90.0) {
            return Relation::Crosses;
        }
        let mut rings = self
            .parts
            .iter()
            .flat_map(|p| std::iter::once(&p.outer).chain(&p.holes));
        if rings.any(|ring| ring.meets(bounds)) {
            return Relation::Crosses;
        }
        // Without a border in the box, all its points are on the same side.
        if self.contains(Point::raw(bounds.min_x, bounds.min_y)) {
            Relation::Inside
        } else {
            Relation::Outside
        }
    }
}

impl Ring {
    fn new(space: Space, points: &[Point]) -> std::result::Result<Ring, String> {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return Err("it has no point".to_owned());
        };
        if points.len() < 4 {
            return Err(format!("it has {} points, and needs four", points.len()));
        }
        if first != last {
            return Err(format!(
                "it is not closed: it begins at {first} and ends at {last}"
            ));
        }
        // Each corner with the number of turns around the earth before it.
        let mut line: Vec<Corner> = Vec::with_capacity(points.len());
        let (mut turn, mut before) = (0, first.x());
        for point in points {
            if space == Space::Sphere {
                turn -= short_way(before, point.x());
            }
            before = point.x();
            if turn.abs() > MOST_TURNS {
                return Err("it goes around the earth more than once".to_owned());
            }
            line.push(Corner {
                turn,
                at: Coord {
                    x: point.x(),
                    y: point.y(),
                },
            });
        }
        let mean = points.iter().map(|p| p.y()).sum::<f64>();
        let pole = (turn != 0).then_some(if mean < 0.0 { -90.0 } else { 90.0 });
        if turn.abs() > 1 {
            return Err("it goes around the earth more than once".to_owned());
        }
        let edges: Vec<Edge> = line.windows(2).filter_map(Edge::of).collect();
        if edges.is_empty() {
            return Err("it has no edges: all its points are equal".to_owned());
        }
        let (west, east) = extent(&line, pole.is_some());
        let ys = || points.iter().map(|point| point.y());
        let mut ring = Ring {
            space,
            min_y: ys().fold(f64::INFINITY, f64::min),
            max_y: ys().fold(f64::NEG_INFINITY, f64::max),
            west,
            east,
            pole,
            slabs: vec![Vec::new(); (edges.len() / EDGES_PER_SLAB).clamp(1, MAX_SLABS)],
            edges,
        };
        ring.fill_slabs();
        Ok(ring)
    }

    /// Distributes the edges over the slabs, of which as many are kept as bound the memory.
    fn fill_slabs(&mut self) {
        let entries = |ring: &Ring| -> usize {
            let each = ring.edges.iter().flat_map(|edge| ring.slabs_of(edge));
            each.map(|slabs| slabs.count()).sum()
        };
        // An edge has at most four ranges of slabs, so this ends with the last one.
        while self.slabs.len() > 1 && entries(self) > ENTRIES_PER_EDGE * self.edges.len() {
            self.slabs.truncate(self.slabs.len() / 2);
        }
        let mut slabs = vec![Vec::new(); self.slabs.len()];
        for (at, edge) in self.edges.iter().enumerate() {
            let at = at as u32;
            for slab in self.slabs_of(edge).flatten() {
                // Only once, because a crossing counts once.
                let slab = slabs.own_mut(slab);
                if slab.last() != Some(&at) {
                    slab.push(at);
                }
            }
        }
        self.slabs = slabs;
    }

    /// The slabs that an edge reaches into, some of them twice.
    fn slabs_of(&self, edge: &Edge) -> impl Iterator<Item = RangeInclusive<usize>> {
        let parts = if edge.over {
            [Some((edge.west.x, 180.0)), Some((-180.0, edge.east.x))]
        } else {
            [Some((edge.west.x, edge.east.x)), None]
        };
        let parts = parts.into_iter().flatten();
        let slabs = parts.map(|(from, to)| self.slabs_between(from, to));
        slabs.flatten().flatten()
    }

    /// The distance of a coordinate from the west of the ring, going east. It is rounded, but
    /// monotonic: both ends of a line are rounded alike.
    fn way_east(&self, x: f64) -> f64 {
        if self.space == Space::Sphere && x < self.west {
            (x + 360.0) - self.west
        } else {
            x - self.west
        }
    }

    /// The slab of a coordinate, numbered from the west.
    fn slab(&self, x: f64) -> usize {
        let share = self.way_east(x) / self.width();
        // NaN, if the ring has no width, becomes the first slab.
        ((share * self.slabs.len() as f64) as usize).min(self.slabs.len() - 1)
    }

    fn width(&self) -> f64 {
        self.way_east(self.east)
    }

    /// The slabs of a range of coordinates. If the range begins before the west of the ring and
    /// ends after it, these are the slabs up to its end and the slabs from its beginning on.
    fn slabs_between(&self, min_x: f64, max_x: f64) -> [Option<RangeInclusive<usize>>; 2] {
        let (from, to) = (self.slab(min_x), self.slab(max_x));
        let begins_before = min_x < self.west && self.west <= max_x;
        if !begins_before {
            [Some(from..=to), None]
        } else if self.space == Space::Plane {
            [Some(0..=to), None]
        } else {
            [Some(0..=to), Some(from..=self.slabs.len() - 1)]
        }
    }

    /// The edges that may lie above, below or at a coordinate.
    fn near(&self, x: f64) -> impl Iterator<Item = &Edge> {
        let share = self.way_east(x);
        let slab = if share < 0.0 || share > self.width() {
            None
        } else {
            self.slabs.get(self.slab(x))
        };
        let slab = slab.map_or(&[][..], Vec::as_slice);
        slab.iter().filter_map(|at| self.edges.get(*at as usize))
    }

    fn place(&self, point: Point) -> Place {
        if self.space == Space::Sphere && point.at_pole() {
            return if self.pole == Some(point.y()) {
                Place::Inside
            } else if self.min_y <= point.y() && point.y() <= self.max_y {
                Place::Border
            } else {
                Place::Outside
            };
        }
        let beside = point.y() < self.min_y || point.y() > self.max_y;
        if beside && self.pole.is_none() {
            return Place::Outside;
        }
        let mut point = Coord {
            x: point.x(),
            y: point.y(),
        };
        if self.space == Space::Sphere && point.x.abs() == 180.0 {
            // The meridian has two longitudes, and edges end at either. Crossings are counted at
            // -180.
            point.x = 180.0;
            if self.near(point.x).any(|edge| edge.holds(point)) {
                return Place::Border;
            }
            point.x = -180.0;
        }
        // On the way north from the point, each crossed edge changes the side.
        let mut crossed = false;
        for edge in self.near(point.x) {
            if edge.holds(point) {
                return Place::Border;
            }
            crossed ^= edge.is_above(point);
        }
        if crossed ^ (self.pole == Some(90.0)) {
            Place::Inside
        } else {
            Place::Outside
        }
    }

    /// True if the line itself may share a point with the box.
    fn meets(&self, bounds: &Bounds) -> bool {
        if bounds.max_y < self.min_y || bounds.min_y > self.max_y {
            return false;
        }
        // The meridian of 180 degrees has a second longitude, which edges may use.
        let side = |x: f64| Bounds {
            min_x: x,
            max_x: x,
            ..*bounds
        };
        let is_sphere = self.space == Space::Sphere;
        let names = [
            Some(*bounds),
            (is_sphere && bounds.max_x >= 180.0).then(|| side(-180.0)),
            (is_sphere && bounds.min_x <= -180.0).then(|| side(180.0)),
        ];
        names.into_iter().flatten().any(|bounds| {
            let slabs = self.slabs_between(bounds.min_x, bounds.max_x);
            let mut edges = (slabs.into_iter().flatten())
                .flat_map(|slabs| self.slabs.own(slabs))
                .flatten()
                .filter_map(|at| self.edges.get(*at as usize));
            edges.any(|edge| edge.meets(&bounds))
        })
    }

    /// Boxes that together cover the ring. Their sides are coordinates of corners.
    fn boxes(&self) -> Vec<Bounds> {
        let (min_y, max_y) = (self.min_y, self.max_y);
        if self.space == Space::Plane {
            return vec![Bounds {
                min_x: self.west,
                min_y,
                max_x: self.east,
                max_y,
            }];
        }
        let (south, north) = match self.pole {
            Some(pole) => (min_y.min(pole), max_y.max(pole)),
            None => (min_y, max_y),
        };
        on_sphere(self.west, self.east, south, north)
    }
}

/// The maximum number of turns around the earth, in either direction, before the ring closes.
const MOST_TURNS: i32 = 2;

/// A corner, and the number of turns around the earth before it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Corner {
    turn: i32,
    at: Coord<f64>,
}

/// -1 or 1 if the way from one longitude to another covers more than 180 degrees to the west or to
/// the east, and therefore goes the other way; 0 otherwise, and for a whole turn.
fn short_way(from: f64, to: f64) -> i32 {
    if from.abs() == 180.0 && to.abs() == 180.0 {
        return 0;
    }
    let (step, rounded) = difference(to, from);
    let is_over = |step: f64, rounded: f64| step > 180.0 || step == 180.0 && rounded > 0.0;
    i32::from(is_over(step, rounded)) - i32::from(is_over(-step, -rounded))
}

/// The westernmost and the easternmost longitude (or the least and the greatest coordinate) of a
/// line; turns count first. From -180 to 180 if the two are a turn or more apart.
fn extent(line: &[Corner], all_around: bool) -> (f64, f64) {
    let whole = (-180.0, 180.0);
    let order = |a: &&Corner, b: &&Corner| a.turn.cmp(&b.turn).then(a.at.x.total_cmp(&b.at.x));
    let ends = line.iter().min_by(order).zip(line.iter().max_by(order));
    match ends {
        _ if all_around => whole,
        Some((west, east)) => match east.turn - west.turn {
            0 => (west.at.x, east.at.x),
            1 if east.at.x < west.at.x => (west.at.x, east.at.x),
            _ => whole,
        },
        None => whole,
    }
}

impl Edge {
    /// `None` if both corners are equal.
    fn of(corners: &[Corner]) -> Option<Edge> {
        let [a, b] = corners else {
            return None;
        };
        if a == b {
            return None;
        }
        let (west, east) = if (a.turn, a.at.x) <= (b.turn, b.at.x) {
            (a, b)
        } else {
            (b, a)
        };
        Some(Edge {
            west: west.at,
            east: east.at,
            over: west.turn != east.turn,
        })
    }

    fn min_y(&self) -> f64 {
        self.west.y.min(self.east.y)
    }

    fn max_y(&self) -> f64 {
        self.west.y.max(self.east.y)
    }

    /// The number of degrees to add to a longitude so that it lies in the plane of the western end;
    /// `None` if the edge does not reach it.
    fn turn_to(&self, x: f64) -> Option<f64> {
        if !self.over {
            (self.west.x <= x && x <= self.east.x).then_some(0.0)
        } else if self.west.x <= x {
            Some(0.0)
        } else {
            (x <= self.east.x).then_some(360.0)
        }
    }

    /// The side of the line on which a point lies: positive in the north, zero on the line. Exact.
    fn side(&self, x: f64, y: f64, turn: f64) -> f64 {
        let point = Coord { x, y };
        if self.over {
            side_over(self.west, self.east, point, turn)
        } else {
            orient2d(self.west, self.east, point)
        }
    }

    /// True if the point is on the edge.
    fn holds(&self, point: Coord<f64>) -> bool {
        let between = self.min_y() <= point.y && point.y <= self.max_y();
        let turn = if between { self.turn_to(point.x) } else { None };
        turn.is_some_and(|turn| self.side(point.x, point.y, turn) == 0.0)
    }

    /// True if the ray north from the point crosses the edge. Where two edges meet above the point,
    /// exactly one of them is crossed if the line continues. The meridian of 180 degrees must be
    /// given as -180.
    fn is_above(&self, point: Coord<f64>) -> bool {
        // The eastern end belongs to the next edge. It is at 180 degrees, while the next edge has
        // it at -180.
        let ends = if self.over {
            point.x < self.west.x && point.x >= self.east.x
        } else {
            point.x >= self.east.x
        };
        if ends || point.y > self.max_y() {
            return false;
        }
        let turn = self.turn_to(point.x);
        turn.is_some_and(|turn| self.side(point.x, point.y, turn) < 0.0)
    }

    /// True if a box may share a point with the edge; false if it lies on one side of the edge's
    /// line.
    fn meets(&self, bounds: &Bounds) -> bool {
        if bounds.max_y < self.min_y() || bounds.min_y > self.max_y() {
            return false;
        }
        // In the plane of the western end, and in the plane of the eastern end.
        let (west, east) = if self.over {
            (bounds.max_x >= self.west.x, bounds.min_x <= self.east.x)
        } else {
            (
                bounds.max_x >= self.west.x && bounds.min_x <= self.east.x,
                false,
            )
        };
        let crosses = |turn: f64| {
            let sides = bounds.corners().map(|(x, y)| self.side(x, y, turn));
            !(sides.iter().all(|side| *side > 0.0) || sides.iter().all(|side| *side < 0.0))
        };
        west && crosses(0.0) || east && crosses(360.0)
    }
}

/// [`Edge::side`] of the line from `a` to `b` moved east by 360 degrees, for a point moved east by
/// `turn`. The sums are not rounded: if floats cannot decide, the sign is computed exactly.
fn side_over(a: Coord<f64>, b: Coord<f64>, point: Coord<f64>, turn: f64) -> f64 {
    let to_b = (b.x - point.x) + (360.0 - turn);
    let to_a = (a.x - point.x) - turn;
    let near = to_a * (b.y - point.y) - (a.y - point.y) * to_b;
    // Larger than the rounding errors of longitudes and latitudes, which are about 1e-11.
    if near.abs() > 1e-8 {
        return near;
    }
    let products = [
        (a.x, b.y),
        (-a.x, point.y),
        (-point.x, b.y),
        (-a.y, b.x),
        (a.y, point.x),
        (point.y, b.x),
        (turn, a.y),
        (-turn, b.y),
        (360.0, point.y),
        (-360.0, a.y),
    ];
    sign_of_sum(&products)
}

/// A number with the sign of a sum of products. Exact, unless a product underflows.
fn sign_of_sum(products: &[(f64, f64)]) -> f64 {
    // Non-overlapping parts, in ascending order of their size (Shewchuk's expansions).
    let mut parts: Vec<f64> = Vec::with_capacity(2 * products.len());
    for (a, b) in products {
        let high = a * b;
        for part in [a.mul_add(*b, -high), high] {
            let mut sum = part;
            for known in &mut parts {
                let (rounded, rest) = total(sum, *known);
                (sum, *known) = (rounded, rest);
            }
            parts.push(sum);
        }
    }
    let greatest = parts.into_iter().rev().find(|part| *part != 0.0);
    greatest.unwrap_or(0.0)
}

/// The rounded sum of two numbers, and the rounding error.
fn total(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}

/// The rounded difference of two numbers, and the rounding error.
fn difference(a: f64, b: f64) -> (f64, f64) {
    total(a, -b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_edges_take_memory_in_proportion_to_their_number() {
        const EDGES: usize = 33_000;
        // Back and forth between two sides, each time a little further north.
        let zigzag = |n: usize| Point::raw(f64::from(n as u32 % 2), n as f64 * 1e-4);
        let mut points: Vec<Point> = (0..EDGES).map(zigzag).collect();
        points.extend([Point::raw(-1.0, 4.0), Point::raw(-1.0, -1.0), points[0]]);
        for space in [Space::Plane, Space::Sphere] {
            let polygon = Polygon::new(space, &[vec![points.clone()]]).unwrap();
            let ring = &polygon.parts[0].outer;
            let entries: usize = ring.slabs.iter().map(Vec::len).sum();
            assert!(entries <= ENTRIES_PER_EDGE * ring.edges.len(), "{entries}");
            for (n, point) in points.iter().enumerate().take(100) {
                assert!(polygon.contains(*point));
                // The polygon has teeth on its right.
                let beside = if n % 2 == 0 { -1e-3 } else { 1e-3 };
                let beside = Point::raw(point.x() + beside, point.y());
                assert_eq!(polygon.contains(beside), n % 2 == 0, "{n}");
            }
        }
        // Edges that are short keep their slabs.
        let circle = |n: usize| {
            let turn = n as f64 / EDGES as f64 * std::f64::consts::TAU;
            Point::raw(turn.cos(), turn.sin())
        };
        let mut points: Vec<Point> = (0..EDGES).map(circle).collect();
        points.push(points[0]);
        let polygon = Polygon::new(Space::Plane, &[vec![points]]).unwrap();
        let longest = polygon.parts[0].outer.slabs.iter().map(Vec::len).max();
        assert!(longest < Some(EDGES / 20), "{longest:?}");
    }
}
