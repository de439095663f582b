use fastrand::Rng;

use super::*;
use crate::geometry::{Point, Polygon};
use crate::schema::Value;

fn encoded(space: Space, point: Point) -> Vec<u8> {
    Value::Point(space, point).encoded()
}

fn random_point(rng: &mut Rng, space: Space) -> Point {
    let (x, y) = match (space, rng.usize(0..8)) {
        (Space::Sphere, 0) => (180.0 * f64::from(rng.i8(-1..2)), rng.f64() * 180.0 - 90.0),
        (Space::Sphere, 1) => (rng.f64() * 360.0 - 180.0, 90.0 * f64::from(rng.i8(-1..2))),
        // Many points at few places.
        (Space::Sphere, 2..5) => (
            f64::from(rng.i32(-18..19)) * 10.0,
            f64::from(rng.i32(-9..10)) * 10.0,
        ),
        (Space::Sphere, _) => (rng.f64() * 360.0 - 180.0, rng.f64() * 180.0 - 90.0),
        (Space::Plane, 0) => (f64::from_bits(rng.u64(..)), f64::from_bits(rng.u64(..))),
        (Space::Plane, 1) => (0.0, f64::MAX),
        (Space::Plane, _) => (rng.f64() * 2e3 - 1e3, rng.f64() * 2e3 - 1e3),
    };
    Point::new(space, x, y).unwrap_or_else(|_| Point::new(space, 0.0, 0.0).unwrap())
}

fn random_area(rng: &mut Rng, space: Space) -> Area {
    let (a, b) = (random_point(rng, space), random_point(rng, space));
    let shrink = 10.0_f64.powi(-rng.i32(0..6));
    match rng.usize(0..4) {
        0 | 1 => {
            let (low, high) = (a.y().min(b.y()), a.y().max(b.y()));
            let high = low + (high - low) * shrink;
            let (west, east) = match space {
                Space::Sphere if rng.bool() => (a.x(), b.x()),
                _ => (a.x().min(b.x()), a.x().max(b.x())),
            };
            Area::rect(space, west, low, east, high.max(low)).unwrap()
        }
        2 => {
            let most = if space == Space::Sphere { 2e7 } else { 2e3 };
            Area::circle(space, a, rng.f64() * most * shrink).unwrap()
        }
        _ => {
            let corner = |rng: &mut Rng| {
                let near = |v: f64, limit: f64| (v + (rng.f64() - 0.5) * 40.0).clamp(-limit, limit);
                let mut near = near;
                let (x, y) = (
                    near(a.x().clamp(-1e3, 1e3), 170.0),
                    near(a.y().clamp(-1e3, 1e3), 80.0),
                );
                Point::new(space, x, y).unwrap()
            };
            let first = corner(rng);
            let ring = vec![first, corner(rng), corner(rng), first];
            Polygon::new(space, &[vec![ring]])
                .map_or_else(|_| Area::circle(space, a, 1.0).unwrap(), Area::polygon)
        }
    }
}

#[test]
fn every_point_of_an_area_is_in_its_ranges_and_the_test_is_exact() {
    for seed in 0..400 {
        let mut rng = Rng::with_seed(seed);
        let space = if seed % 3 == 0 {
            Space::Plane
        } else {
            Space::Sphere
        };
        let area = random_area(&mut rng, space);
        let region = Region::new(area.clone());
        let ranges: Vec<_> = region.key_ranges().collect();
        assert!(ranges.len() <= MOST_RANGES, "seed {seed}: {}", ranges.len());
        for pair in ranges.windows(2) {
            assert!(
                pair[0].1.as_ref().is_some_and(|end| *end < pair[1].0),
                "seed {seed}"
            );
        }
        for _ in 0..300 {
            let mut point = random_point(&mut rng, space);
            // Also points near the area.
            if let (true, Some(part)) = (rng.bool(), area.boxes().first()) {
                let between =
                    |low: f64, high: f64, at: f64| (low + (high - low) * at).clamp(low, high);
                let (x, y) = (
                    between(part.min_x, part.max_x, rng.f64()),
                    between(part.min_y, part.max_y, rng.f64()),
                );
                point = Point::new(space, x, y).unwrap_or(point);
            }
            let value = encoded(space, point);
            assert_eq!(
                region.contains(&value),
                area.contains(point),
                "seed {seed}: {point}"
            );
            let covered = ranges
                .iter()
                .any(|(lo, hi)| value >= *lo && hi.as_ref().is_none_or(|hi| value < *hi));
            assert!(
                covered || !area.contains(point),
                "seed {seed}: {point} is in no range of {area:?}"
            );
            let (low, high) = region.hull().unwrap_or_default();
            assert!(!covered || (value >= low && value <= high), "seed {seed}");
        }
    }
}

#[test]
fn the_ranges_of_a_small_rectangle_cover_little_else() {
    let mut rng = Rng::with_seed(7);
    let (mut area, mut covered) = (0.0, 0.0);
    for _ in 0..200 {
        let (x, y) = (rng.f64() * 350.0 - 180.0, rng.f64() * 170.0 - 90.0);
        let rect = Area::rect(Space::Sphere, x, y, x + 0.5, y + 0.25).unwrap();
        area += 0.5 * 0.25 / (360.0 * 180.0);
        let region = Region::new(rect);
        covered += region
            .fine()
            .iter()
            .map(|(first, last)| (last - first + 1) as f64 / 2.0_f64.powi(64))
            .sum::<f64>();
    }
    assert!(covered < 2.5 * area, "{covered} of {area}");
}

#[test]
fn every_point_of_an_area_at_its_times_is_in_its_ranges() {
    const PERIOD: i64 = 1 << PERIOD_BITS;
    for seed in 0..400 {
        let mut rng = Rng::with_seed(seed);
        let space = if seed % 3 == 0 {
            Space::Plane
        } else {
            Space::Sphere
        };
        let area = random_area(&mut rng, space);
        let start = match rng.usize(0..4) {
            0 => i64::MIN + rng.i64(0..PERIOD),
            1 => -rng.i64(0..3 * PERIOD),
            2 => i64::MAX - rng.i64(0..PERIOD),
            _ => 1_700_000_000_000_000 + rng.i64(0..PERIOD),
        };
        let length = match rng.usize(0..5) {
            0 => 0,
            1 => 3_600_000_000,
            2 => PERIOD * 3,
            3 => PERIOD * 2000,
            _ => rng.i64(0..PERIOD),
        };
        let (from, to) = (start, start.saturating_add(length));
        let region = Region::at_times(area.clone(), from, to);
        let fine: Vec<_> = region.key_ranges().collect();
        let coarse: Vec<_> = region.coarse_ranges().collect();
        assert!(fine.len() <= 2 * MOST_TIMED_RANGES.max(2 * MOST_PERIODS as usize));
        for pair in fine.windows(2) {
            let end = pair[0].1.as_ref();
            assert!(end.is_some_and(|end| *end <= pair[1].0), "seed {seed}");
        }
        for _ in 0..200 {
            let mut point = random_point(&mut rng, space);
            if let (true, Some(part)) = (rng.bool(), area.boxes().first()) {
                let between =
                    |low: f64, high: f64, at: f64| (low + (high - low) * at).clamp(low, high);
                let (x, y) = (
                    between(part.min_x, part.max_x, rng.f64()),
                    between(part.min_y, part.max_y, rng.f64()),
                );
                point = Point::new(space, x, y).unwrap_or(point);
            }
            let micros = match rng.usize(0..4) {
                0 => from,
                1 => to,
                2 => rng.i64(..),
                _ => rng.i64(from..=to),
            };
            let value = Value::PointTime(space, point, micros).encoded();
            let inside = area.contains(point) && (from..=to).contains(&micros);
            assert_eq!(region.contains(&value), inside, "seed {seed}: {point}");
            for ranges in [&fine, &coarse] {
                let covered = ranges
                    .iter()
                    .any(|(lo, hi)| value >= *lo && hi.as_ref().is_none_or(|hi| value < *hi));
                assert!(covered || !inside, "seed {seed}: {point} at {micros}");
            }
            let (low, high) = region.hull().unwrap_or_default();
            assert!(!inside || (value >= low && value <= high), "seed {seed}");
        }
    }
}

#[test]
fn a_small_area_at_a_short_time_covers_little_else() {
    let mut rng = Rng::with_seed(11);
    let (mut exact, mut covered) = (0.0, 0.0);
    const HOUR: i64 = 3_600_000_000;
    for _ in 0..200 {
        let (x, y) = (rng.f64() * 340.0 - 180.0, rng.f64() * 160.0 - 90.0);
        let rect = Area::rect(Space::Sphere, x, y, x + 11.0, y + 5.5).unwrap();
        let from = rng.i64(0..2_000_000_000_000_000);
        exact += 11.0 * 5.5 / (360.0 * 180.0) * (4 * HOUR) as f64 / 2.0_f64.powi(39);
        let region = Region::at_times(rect, from, from + 4 * HOUR);
        let cells = region.fine().iter();
        covered += cells
            .map(|(first, last)| (last - first + 1) as f64 / 2.0_f64.powi(63))
            .sum::<f64>();
    }
    assert!(covered < 8.0 * exact, "{covered} of {exact}");
}

#[test]
fn a_cover_from_the_smallest_cell_is_that_from_the_whole_space() {
    let mut rng = Rng::with_seed(5);
    let mut deep = 0;
    for round in 0..4000 {
        let space = if round % 4 == 0 {
            Space::Plane
        } else {
            Space::Sphere
        };
        let area = random_area(&mut rng, space);
        for fineness in [&COARSE, &FINE] {
            let whole = cover(&area, (0, Cell::WHOLE), fineness);
            let found = cover(&area, smallest_around(&area), fineness);
            assert_eq!(found, whole, "{area:?}");
        }
        deep += u32::from(smallest_around(&area).0 > 4);
    }
    assert!(deep > 400, "{deep}");
}

#[test]
fn a_polygon_that_begins_just_before_180_degrees_is_in_its_boxes() {
    let near = 180.0_f64.next_down();
    for east in [180.0, -179.0] {
        let corners = [
            (near, 0.0),
            (near, 1.0),
            (east, 1.0),
            (east, 0.0),
            (near, 0.0),
        ];
        let ring = corners.map(|(x, y)| Point::new(Space::Sphere, x, y).unwrap());
        let area = Area::polygon(Polygon::new(Space::Sphere, &[vec![ring.to_vec()]]).unwrap());
        let ranges: Vec<_> = Region::new(area.clone()).key_ranges().collect();
        for x in [near, 180.0, -180.0] {
            let point = Point::new(Space::Sphere, x, 0.5).unwrap();
            let value = encoded(Space::Sphere, point);
            assert!(area.contains(point), "{point}");
            assert!(
                area.boxes().iter().any(|part| part.contains(point)),
                "{point} of {:?}",
                area.boxes()
            );
            let holds =
                |(lo, hi): &KeyRange| value >= *lo && hi.as_ref().is_none_or(|hi| value < *hi);
            assert!(ranges.iter().any(holds), "{point}");
        }
    }
}
