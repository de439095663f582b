//! Polygons with holes. The side of an edge on which a point lies is decided without rounding errors (Shewchuk's
//! adaptive predicate).

use robust::{Coord, orient2d};

use super::area::{Relation, on_sphere};
use super::bounds::Bounds;
use super::point::{Point, Space};
use crate::error::{Error, Result};

/// One or more polygons, each with any number of holes. Borders are included, those of holes, too.
///
/// An edge is a straight line in the plane of the coordinates, on the sphere too, as in GeoJSON (RFC 7946, section
/// 3.1.1): between two points of one latitude it follows the parallel. An edge over more than 180 degrees of
/// longitude takes the short way, across the meridian of 180 degrees (one of exactly 360 degrees circles the earth).
/// A ring around the earth encloses the pole of the hemisphere of the mean of its corners.
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

/// About this number of edges share a slab, so that a point is compared with few of them.
const EDGES_PER_SLAB: usize = 8;
const MAX_SLABS: usize = 4096;

/// A closed line. Longitudes continue beyond 180 degrees where it crosses that meridian, so that its edges are
/// straight lines.
#[derive(Debug, Clone, PartialEq)]
struct Ring {
    space: Space,
    edges: Vec<Edge>,
    bounds: Bounds,
    /// The latitude of the pole that it encircles.
    pole: Option<f64>,
    /// For each slab of the range of x, the edges that reach into it.
    slabs: Vec<Vec<u32>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Edge {
    a: Coord<f64>,
    b: Coord<f64>,
}

impl Polygon {
    /// The polygons, each a list of rings: its outline, then its holes. A ring is a list of at least four points, the
    /// last of which equals the first. The direction of rings does not matter.
    ///
    /// # Errors
    ///
    /// There is no polygon, or one without a ring; a ring with fewer points, or that is not closed, or that encircles
    /// the earth more than once.
    pub fn new(space: Space, polygons: &[Vec<Vec<Point>>]) -> Result<Polygon> {
        if polygons.is_empty() {
            return Err(Error::bad_input("there is no polygon"));
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

    /// True when the point is in a polygon or on its border. Costs the edges above and below the point.
    pub fn contains(&self, point: Point) -> bool {
        self.parts.iter().any(|part| {
            part.outer.place(point) != Place::Outside
                && !part
                    .holes
                    .iter()
                    .any(|hole| hole.place(point) == Place::Inside)
        })
    }

    /// Boxes that together cover it.
    pub(super) fn boxes(&self) -> Vec<Bounds> {
        self.parts
            .iter()
            .flat_map(|part| part.outer.boxes())
            .collect()
    }

    /// The relation of a box to it.
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
        // No border in the box: all of its points are on the same side.
        match self.contains(Point::raw(bounds.min_x, bounds.min_y)) {
            true => Relation::Inside,
            false => Relation::Outside,
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
        let mut line = Vec::with_capacity(points.len());
        let (mut turns, mut before) = (0.0, first.x());
        for point in points {
            let step = point.x() - before;
            if space == Space::Sphere && step.abs() > 180.0 && step.abs() < 360.0 {
                turns -= step.signum();
            }
            before = point.x();
            if f64::abs(turns) > MOST_TURNS {
                return Err("it goes around the earth more than once".to_owned());
            }
            line.push(Coord {
                x: point.x() + 360.0 * turns,
                y: point.y(),
            });
        }
        let mean = points.iter().map(|p| p.y()).sum::<f64>();
        let pole = (turns != 0.0).then_some(if mean < 0.0 { -90.0 } else { 90.0 });
        if turns.abs() > 1.0 {
            return Err("it goes around the earth more than once".to_owned());
        }
        let edges: Vec<Edge> = line.windows(2).filter_map(Edge::of).collect();
        let boxes = edges.iter().map(Edge::bounds);
        let Some(bounds) = boxes.reduce(Bounds::union) else {
            return Err("it has no edge".to_owned());
        };
        let mut ring = Ring {
            space,
            bounds,
            pole,
            slabs: vec![Vec::new(); (edges.len() / EDGES_PER_SLAB).clamp(1, MAX_SLABS)],
            edges,
        };
        for (at, edge) in ring.edges.iter().enumerate() {
            let bounds = edge.bounds();
            let (from, to) = (ring.slab(bounds.min_x), ring.slab(bounds.max_x));
            for slab in ring.slabs.iter_mut().take(to + 1).skip(from) {
                slab.push(at as u32);
            }
        }
        Ok(ring)
    }

    /// The slab of a coordinate, ascending with it.
    fn slab(&self, x: f64) -> usize {
        let share = (x - self.bounds.min_x) / (self.bounds.max_x - self.bounds.min_x);
        // NaN where the ring has no width: the first.
        ((share * self.slabs.len() as f64) as usize).min(self.slabs.len() - 1)
    }

    fn near(&self, x: f64) -> impl Iterator<Item = &Edge> {
        let slab = self.slabs.get(self.slab(x)).map_or(&[][..], Vec::as_slice);
        slab.iter().filter_map(|at| self.edges.get(*at as usize))
    }

    /// All longitudes that a point may have in the ring.
    fn names(&self, x: f64) -> impl Iterator<Item = f64> + use<> {
        let turns = if self.space == Space::Sphere {
            MOST_TURNS as i32 + 1
        } else {
            0
        };
        (-turns..=turns).map(move |turn| x + 360.0 * f64::from(turn))
    }

    fn place(&self, point: Point) -> Place {
        if self.space == Space::Sphere && point.at_pole() {
            return match self.pole == Some(point.y()) {
                true => Place::Inside,
                false if self.bounds.min_y <= point.y() && point.y() <= self.bounds.max_y => {
                    Place::Border
                }
                false => Place::Outside,
            };
        }
        let beside = point.y() < self.bounds.min_y || point.y() > self.bounds.max_y;
        if beside && self.pole.is_none() {
            return Place::Outside;
        }
        // Going north from the point, each edge crossed changes the side.
        let mut crossed = false;
        for x in self.names(point.x()) {
            if x < self.bounds.min_x || x > self.bounds.max_x {
                continue;
            }
            let point = Coord { x, y: point.y() };
            for edge in self.near(x) {
                if edge.holds(point) {
                    return Place::Border;
                }
                crossed ^= edge.is_above(point);
            }
        }
        match crossed ^ (self.pole == Some(90.0)) {
            true => Place::Inside,
            false => Place::Outside,
        }
    }

    /// True when the line itself may share a point with the box.
    fn meets(&self, bounds: &Bounds) -> bool {
        self.names(0.0).any(|turn| {
            let moved = Bounds {
                min_x: bounds.min_x + turn,
                max_x: bounds.max_x + turn,
                ..*bounds
            };
            moved.meets(&self.bounds) && {
                let slabs = self.slab(moved.min_x)..=self.slab(moved.max_x);
                let edges = self.slabs.get(slabs).unwrap_or_default().iter().flatten();
                edges
                    .filter_map(|at| self.edges.get(*at as usize))
                    .any(|edge| edge.meets(&moved))
            }
        })
    }

    fn boxes(&self) -> Vec<Bounds> {
        let Bounds {
            min_x,
            min_y,
            max_x,
            max_y,
        } = self.bounds;
        if self.space == Space::Plane {
            return vec![self.bounds];
        }
        let (south, north) = match self.pole {
            Some(pole) => (min_y.min(pole), max_y.max(pole)),
            None => (min_y, max_y),
        };
        if max_x - min_x >= 360.0 || self.pole.is_some() {
            return on_sphere(-180.0, 180.0, south, north);
        }
        // Shifted by whole turns until the western longitude is in its usual range.
        let mut turn = 360.0 * ((min_x + 180.0) / 360.0).floor();
        if min_x - turn < -180.0 {
            // The sum was rounded up to a whole turn.
            turn -= 360.0;
        }
        let (west, east) = (min_x - turn, max_x - turn);
        match east > 180.0 {
            true => on_sphere(west, east - 360.0, south, north),
            false => on_sphere(west, east, south, north),
        }
    }
}

/// The most turns of a ring around the earth, in either direction, before it closes.
const MOST_TURNS: f64 = 2.0;

impl Edge {
    /// None where a point equals its predecessor.
    fn of(points: &[Coord<f64>]) -> Option<Edge> {
        match points {
            [a, b] if (a.x, a.y) != (b.x, b.y) => Some(Edge { a: *a, b: *b }),
            _ => None,
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds::of(Point::raw(self.a.x, self.a.y)).union(Bounds::of(Point::raw(self.b.x, self.b.y)))
    }

    /// True when the point is on the edge.
    fn holds(&self, point: Coord<f64>) -> bool {
        self.bounds().has(point.x, point.y) && orient2d(self.a, self.b, point) == 0.0
    }

    /// True when the ray north from the point crosses the edge. Of two edges that meet above the point exactly one is
    /// crossed, where the line continues.
    fn is_above(&self, point: Coord<f64>) -> bool {
        let (west, east) = if self.a.x <= self.b.x {
            (self.a, self.b)
        } else {
            (self.b, self.a)
        };
        west.x <= point.x && point.x < east.x && orient2d(west, east, point) < 0.0
    }

    /// True when a box may share a point with the edge: not where it lies on one side of its line.
    fn meets(&self, bounds: &Bounds) -> bool {
        if !self.bounds().meets(bounds) {
            return false;
        }
        let side = |(x, y)| orient2d(self.a, self.b, Coord { x, y });
        let sides = bounds.corners().map(side);
        !(sides.iter().all(|side| *side > 0.0) || sides.iter().all(|side| *side < 0.0))
    }
}
