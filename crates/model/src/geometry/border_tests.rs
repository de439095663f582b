//! Polygons compared with an evaluator without rounding, which computes coordinates as whole
//! numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::error::Result;

const S: Space = Space::Sphere;

fn area(corners: &[(f64, f64)]) -> Result<Area> {
    let points = corners.iter().map(|(x, y)| Point::new(S, *x, *y));
    let mut ring: Vec<Point> = points.collect::<Result<_>>()?;
    ring.push(ring[0]);
    Ok(Area::polygon(Polygon::new(S, &[vec![ring]])?))
}

/// The number of bits of a degree's fraction: the tests' coordinates are multiples of 2^-52, so
/// that 360 degrees and products fit.
const UNIT: i32 = 52;

fn exact(v: f64) -> i128 {
    let scaled = v * f64::from(UNIT).exp2();
    assert_eq!(scaled, scaled.trunc(), "{v} is too fine for the test");
    scaled as i128
}

/// The sign of a * b - c * d; the numbers have at most 62 bits, so that the products fit.
fn sign(a: i128, b: i128, c: i128, d: i128) -> i32 {
    (a * b - c * d).signum() as i32
}

/// True if the point is in the ring or on its border: tests every edge with every longitude of the
/// point.
fn slow(corners: &[(f64, f64)], point: (f64, f64)) -> bool {
    let turn = exact(360.0);
    let mut line: Vec<(i128, i128)> = Vec::new();
    let mut turns = 0;
    let mut before = exact(corners[0].0);
    for (x, y) in corners.iter().chain([&corners[0]]) {
        let (x, y) = (exact(*x), exact(*y));
        let step = x - before;
        if 2 * step.abs() > turn && step.abs() < turn {
            turns -= step.signum();
        }
        before = x;
        line.push((x + turn * turns, y));
    }
    let mean: f64 = corners.iter().chain([&corners[0]]).map(|c| c.1).sum();
    let north = turns != 0 && mean >= 0.0;
    let (x, y) = (exact(point.0), exact(point.1));
    if point.1.abs() == 90.0 {
        let pole = if north { 90.0 } else { -90.0 };
        let (low, high) = (
            line.iter().map(|c| c.1).min(),
            line.iter().map(|c| c.1).max(),
        );
        return turns != 0 && point.1 == pole || low <= Some(y) && Some(y) <= high;
    }
    let mut crossed = north;
    for name in -3..=3 {
        let x = x + turn * name;
        for edge in line.windows(2) {
            let (a, b) = (edge[0].min(edge[1]), edge[0].max(edge[1]));
            if a.0 > x || x > b.0 {
                continue;
            }
            let side = sign(b.0 - a.0, y - a.1, b.1 - a.1, x - a.0);
            if side == 0 && a.1.min(b.1) <= y && y <= a.1.max(b.1) {
                return true;
            }
            crossed ^= x < b.0 && side < 0;
        }
    }
    crossed
}

fn agrees(corners: &[(f64, f64)], points: &[(f64, f64)]) -> usize {
    let Ok(area) = area(corners) else {
        return 0;
    };
    let mut within = 0;
    for (x, y) in points {
        let point = Point::new(S, *x, *y).unwrap();
        let expected = slow(corners, (*x, *y));
        assert_eq!(area.contains(point), expected, "{point} in {corners:?}");
        within += usize::from(expected);
        // The box of the point, and larger boxes around it, like those of blocks and tables.
        for bounds in [
            Bounds::of(point),
            Bounds::of(point).union(Bounds::of(Point::raw(x.clamp(-170.0, 170.0), *y))),
            Bounds::of(point).union(Bounds::of(Point::raw(*x, y / 2.0))),
        ] {
            match area.relation(&bounds) {
                Relation::Outside => assert!(!expected, "{point}, {bounds:?}, {corners:?}"),
                Relation::Inside => assert!(expected, "{point}, {bounds:?}, {corners:?}"),
                Relation::Crosses => {}
            }
        }
    }
    within
}

#[test]
fn borders_across_the_meridian_of_180_degrees_belong_to_the_area() {
    let tenth = |i: i32| f64::from(i) / 10.0;
    for i in 1..1790 {
        // The eastern border, then the western one; the ring begins at each corner.
        let (east, west) = (tenth(i - 1800), tenth(1800 - i));
        for (west, east) in [(179.5, east), (west, -179.5)] {
            if west - east <= 180.0 {
                continue;
            }
            let mut corners = vec![(west, -20.0), (east, -20.0), (east, -10.0), (west, -10.0)];
            for _ in 0..4 {
                let on = [(west, -15.0), (east, -15.0), (west, -20.0), (east, -10.0)];
                assert_eq!(agrees(&corners, &on), 4);
                agrees(
                    &corners,
                    &[(west.next_down(), -15.0), (east.next_up(), -15.0)],
                );
                corners.rotate_left(1);
            }
        }
    }
}

#[test]
fn the_seam_of_a_ring_around_a_pole_is_counted_once() {
    let whole = [(180.0, 6.0), (-80.0, 10.0), (34.0, 3.0)];
    agrees(
        &whole,
        &[(180_f64.next_down(), -50.0), (180.0, -50.0), (-180.0, 7.0)],
    );
    // Noise like that of a computed sine: about 1e-14 instead of 0.
    let noise = exact_noise();
    let antarctic = [
        (noise, -70.0),
        (90.0, -70.0),
        (180.0, -70.0),
        (-90.0, -70.0),
    ];
    let points: Vec<(f64, f64)> = (-89..-70).map(|y| (0.0, f64::from(y))).collect();
    assert_eq!(agrees(&antarctic, &points), points.len());
    // A step of slightly less than 180 degrees.
    for x in [noise, -noise] {
        let over = [(x, 10.0), (180.0, 20.0), (180.0, -20.0), (x, -10.0)];
        agrees(
            &over,
            &[(90.0, 5.0), (-90.0, 5.0), (0.0, 0.0), (180.0, 0.0)],
        );
    }
}

/// About 1e-14.
fn exact_noise() -> f64 {
    45.0 * (-f64::from(UNIT)).exp2()
}

#[test]
fn polygons_agree_with_whole_numbers() {
    let mut random = fastrand::Rng::with_seed(13);
    let (mut tested, mut within) = (0, 0);
    for _ in 0..3000 {
        let noisy = random.u8(0..3) == 0;
        let one = |random: &mut fastrand::Rng, most: i32| -> f64 {
            let most = f64::from(most);
            let v = match random.u8(0..8) {
                0 => most,
                1 => -most,
                2 => 0.0,
                3 => f64::from(random.i32(-6..=6)) * most / 6.0,
                _ => f64::from(random.i32(-10 * most as i32..=10 * most as i32)) / 10.0,
            };
            let noise = f64::from(random.i8(-2..=2)) * exact_noise();
            let v = if noisy { v + noise } else { v };
            v.clamp(-most, most)
        };
        let corners: Vec<(f64, f64)> = (0..random.usize(3..9))
            .map(|_| {
                (
                    on_grid(one(&mut random, 180)),
                    on_grid(one(&mut random, 90)),
                )
            })
            .collect();
        let mut points = corners.clone();
        for (at, a) in corners.iter().enumerate() {
            let b = corners[(at + 1) % corners.len()];
            // Points on borders that follow a meridian or a parallel, and points close to the other
            // borders.
            let middle = on_grid((a.1 + b.1) / 2.0);
            points.extend([(a.0, middle), (b.0, middle), (-a.0, a.1), (a.0, b.1)]);
            points.push((on_grid((a.0 + b.0) / 2.0), middle));
            points.extend([(on_grid(one(&mut random, 180)), a.1), (180.0, middle)]);
            points.push((on_grid(a.0.next_up().clamp(-180.0, 180.0)), middle));
            points.push((
                on_grid(one(&mut random, 180)),
                on_grid(one(&mut random, 90)),
            ));
        }
        tested += points.len();
        within += agrees(&corners, &points);
    }
    assert!(tested > 100_000 && within > 20_000, "{tested}, {within}");
}

/// The nearest number that [`exact`] accepts.
fn on_grid(v: f64) -> f64 {
    let scale = f64::from(UNIT).exp2();
    (v * scale).trunc() / scale
}
