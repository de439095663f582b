//! Points and areas with coordinates in whole tenths of a degree, so that points lie on borders,
//! and an oracle in integers.

use std::f64::consts::PI;

use esker::schema::Layout;
use esker::{AreaExpr, Expr, field};
use fastrand::Rng;
use serde_json::json;

/// The path of points. A dataset may have a spatial index there.
pub(crate) const POINT: &str = "p";

/// The paths of times, and of points with their times.
pub(crate) const TIME: &str = "t";
pub(crate) const TIMED: &str = "p@t";

/// Used instead of a path's number: [`POINT`] and [`TIMED`].
pub(crate) const POINT_NUMBER: u8 = 200;
pub(crate) const TIMED_NUMBER: u8 = 201;

/// The bit of a write's `style` that gives the record a point, and mostly times.
pub(crate) const STYLE: u8 = 4;

pub(crate) const LAYOUTS: [Layout; 4] = [Layout::Z, Layout::Mbr, Layout::Stacked, Layout::Embedded];

/// Some of these change when a full turn is added and subtracted.
const LONGITUDES: [i64; 18] = [
    -1800, 1800, -1799, 1799, -1797, 1797, -1701, 1701, 0, 1, 3, 23, 900, -900, 1001, 1003, -1278,
    -1273,
];
const LATITUDES: [i64; 9] = [-900, 900, 0, 1, -1, 101, 450, -450, 899];
const WIDTHS: [i64; 8] = [1, 2, 3, 5, 7, 99, 900, 1700];

/// In metres.
const RADII: [f64; 4] = [20_000.0, 1.5e6, 9.9e6, 1.97e7];
/// In seconds since 1970.
const TIMES: [i64; 7] = [-1, 0, 1, 59, 60, 86_400, 1_700_000_000];

/// A point in tenths of a degree.
pub(crate) type Tenths = (i64, i64);

/// The point of the record with this number.
pub(crate) fn point(number: u64) -> Tenths {
    let rng = &mut Rng::with_seed(number ^ 0x7074);
    (one(rng, &LONGITUDES), one(rng, &LATITUDES))
}

/// The times of the record with this number: mostly one.
pub(crate) fn times(number: u64) -> Vec<i64> {
    let rng = &mut Rng::with_seed(number ^ 0x7469);
    let count = [0, 1, 1, 1, 1, 2, 3][rng.usize(0..7)];
    (0..count).map(|_| one(rng, &TIMES)).collect()
}

/// The first and the last time.
pub(crate) fn window(rng: &mut Rng) -> (i64, i64) {
    let (a, b) = (one(rng, &TIMES), one(rng, &TIMES));
    (a.min(b), a.max(b))
}

pub(crate) fn radius(rng: &mut Rng) -> f64 {
    RADII[rng.usize(0..RADII.len())]
}

pub(crate) fn degrees(tenths: i64) -> f64 {
    tenths as f64 / 10.0
}

fn one(rng: &mut Rng, items: &[i64]) -> i64 {
    items[rng.usize(0..items.len())]
}

#[derive(Debug)]
pub(crate) enum Area {
    Rect([i64; 4]),
    /// Around a point, in metres.
    Circle(Tenths, f64),
    Polygon(Vec<Tenths>),
}

impl Area {
    pub(crate) fn random(rng: &mut Rng) -> Area {
        let (mut south, mut north) = (one(rng, &LATITUDES), one(rng, &LATITUDES));
        if south > north {
            std::mem::swap(&mut south, &mut north);
        }
        let west = one(rng, &LONGITUDES);
        match rng.usize(0..4) {
            0 => Area::Rect([west, south, one(rng, &LONGITUDES), north]),
            1 => Area::Circle((west, south), radius(rng)),
            _ => {
                let mut east = west + one(rng, &WIDTHS);
                // Mostly near points.
                let width = (one(rng, &LONGITUDES) - west).rem_euclid(3600);
                if rng.usize(0..3) > 0 && (1..1800).contains(&width) {
                    east = west + width;
                }
                if south == north {
                    (south, north) = (south.min(890), south.min(890) + 9);
                }
                let mut ring = vec![(west, south), (east, south), (east, north), (west, north)];
                if rng.usize(0..3) == 0 {
                    ring.remove(rng.usize(0..4));
                }
                let corners = ring.len();
                ring.rotate_left(rng.usize(0..corners));
                if rng.bool() {
                    ring.reverse();
                }
                ring.push(ring[0]);
                for corner in &mut ring {
                    if corner.0 > 1800 {
                        corner.0 -= 3600;
                    }
                }
                Area::Polygon(ring)
            }
        }
    }

    pub(crate) fn condition(&self) -> Expr {
        let pair = |(x, y): &Tenths| [degrees(*x), degrees(*y)];
        let area = match self {
            Area::Rect([west, south, east, north]) => AreaExpr::rect(
                degrees(*west),
                degrees(*south),
                degrees(*east),
                degrees(*north),
            ),
            Area::Circle((x, y), radius) => AreaExpr::circle(degrees(*x), degrees(*y), *radius),
            Area::Polygon(ring) => {
                let ring: Vec<[f64; 2]> = ring.iter().map(pair).collect();
                AreaExpr::geojson(json!({"type": "Polygon", "coordinates": [ring]}).to_string())
            }
        };
        field(POINT).within(area)
    }

    /// True if a point is in the area; `None` if the rounding of coordinates decides.
    pub(crate) fn has(&self, point: Tenths) -> Option<bool> {
        match self {
            Area::Rect([west, south, east, north]) => {
                if !(south..=north).contains(&&point.1) {
                    return Some(false);
                }
                let east = east + if west > east { 3600 } else { 0 };
                let is_pole = point.1.abs() == 900;
                let mut names = names(point.0);
                Some(is_pole || names.any(|x| *west <= x && x <= east))
            }
            Area::Circle(middle, radius) => {
                let away = distance(*middle, point) - radius;
                (away.abs() > 1.0).then_some(away < 0.0)
            }
            Area::Polygon(ring) => polygon(ring, point),
        }
    }
}

/// The equivalent longitudes.
fn names(x: i64) -> impl Iterator<Item = i64> {
    (-2..=2).map(move |turn| x + 3600 * turn)
}

/// In metres.
pub(crate) fn distance(a: Tenths, b: Tenths) -> f64 {
    let radians = |tenths: i64| degrees(tenths) * PI / 180.0;
    let half = |a: i64, b: i64| (radians(b - a) / 2.0).sin().powi(2);
    let across = half(a.1, b.1) + radians(a.1).cos() * radians(b.1).cos() * half(a.0, b.0);
    2.0 * 6_371_008.8 * across.min(1.0).sqrt().asin()
}

fn polygon(ring: &[Tenths], point: Tenths) -> Option<bool> {
    // Edges take the shorter way round.
    let (mut line, mut turn) = (Vec::new(), 0);
    for (at, (x, y)) in ring.iter().enumerate() {
        let step = x - ring[at.saturating_sub(1)].0;
        if step.abs() > 1800 {
            turn -= 3600 * step.signum();
        }
        line.push((x + turn, *y));
    }
    if point.1.abs() == 900 {
        // A pole has every longitude.
        return Some(line.iter().any(|corner| corner.1 == point.1));
    }
    let mut crossed = false;
    for x in names(point.0) {
        for edge in line.windows(2) {
            let (a, b) = (edge[0].min(edge[1]), edge[0].max(edge[1]));
            let cross = (b.0 - a.0) * (point.1 - a.1) - (b.1 - a.1) * (x - a.0);
            let beside =
                (a.0..=b.0).contains(&x) && (a.1.min(b.1)..=a.1.max(b.1)).contains(&point.1);
            if cross == 0 && beside {
                let is_corner = (x, point.1) == a || (x, point.1) == b;
                // The point is on a slanted edge in tenths; in floating point it may lie beside it.
                return (is_corner || a.0 == b.0 || a.1 == b.1).then_some(true);
            }
            crossed ^= a.0 <= x && x < b.0 && cross < 0;
        }
    }
    Some(crossed)
}
