//! Areas compared with slow, simple computations for every box and every point.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

const S: Space = Space::Sphere;
const P: Space = Space::Plane;

fn at(x: f64, y: f64) -> Point {
    Point::new(S, x, y).unwrap()
}

fn ring(corners: &[(f64, f64)]) -> Vec<Point> {
    let mut points: Vec<Point> = corners.iter().map(|(x, y)| at(*x, *y)).collect();
    points.push(points[0]);
    points
}

fn polygon(space: Space, rings: &[&[(f64, f64)]]) -> Area {
    let rings = rings.iter().map(|corners| ring(corners)).collect();
    Area::polygon(Polygon::new(space, &[rings]).unwrap())
}

#[test]
fn a_point_has_possible_coordinates() {
    for (x, y) in [
        (180.1, 0.0),
        (0.0, 90.5),
        (f64::NAN, 0.0),
        (0.0, f64::INFINITY),
    ] {
        assert!(Point::new(S, x, y).is_err(), "{x} {y}");
    }
    assert!(Point::new(P, 1e300, -1e300).is_ok());
    assert!(Point::new(P, f64::NAN, 0.0).is_err());
    assert!(Point::new(S, -0.0, -0.0).unwrap().x().is_sign_positive());
    let reversed = Point::new(S, 48.8, 102.3).unwrap_err().to_string();
    assert!(reversed.contains("the longitude comes first"), "{reversed}");
}

#[test]
fn distances_are_those_of_great_circles() {
    // A quarter of the earth, to the antipode, across the meridian of 180 degrees, along a parallel
    // near the pole.
    let quarter = EARTH_RADIUS_M * std::f64::consts::FRAC_PI_2;
    assert!((distance(S, at(0.0, 0.0), at(90.0, 0.0)) - quarter).abs() < 1e-6);
    assert!((distance(S, at(20.0, 10.0), at(-160.0, -10.0)) - 2.0 * quarter).abs() < 1.0);
    let degree = EARTH_RADIUS_M.to_radians();
    assert!((distance(S, at(179.5, 0.0), at(-179.5, 0.0)) - degree).abs() < 1e-6);
    assert!((distance(S, at(0.0, 89.0), at(180.0, 89.0)) - 2.0 * degree).abs() < 1e-6);
    assert_eq!(
        distance(S, at(-180.0, 7.0), at(180.0, 7.0)),
        0.0_f64.max(distance(S, at(180.0, 7.0), at(-180.0, 7.0)))
    );
    assert_eq!(distance(P, at(0.0, 0.0), at(3.0, 4.0)), 5.0);
}

#[test]
fn rectangles_include_their_borders_and_both_names_of_a_meridian() {
    let west = Area::rect(S, -180.0, -10.0, -170.0, 10.0).unwrap();
    for (x, y, inside) in [
        (-180.0, 10.0, true),
        (180.0, -10.0, true),
        (179.9, 0.0, false),
        (-170.0, 0.0, true),
        (-175.0, 10.000001, false),
    ] {
        assert_eq!(west.contains(at(x, y)), inside, "{x} {y}");
    }
    let across = Area::rect(S, 176.0, -22.0, -178.0, -12.0).unwrap();
    assert!(across.contains(at(180.0, -15.0)) && across.contains(at(-178.0, -12.0)));
    assert!(!across.contains(at(-177.9, -15.0)) && !across.contains(at(175.0, -15.0)));
    // A pole is one point.
    let polar = Area::rect(S, 0.0, 80.0, 10.0, 90.0).unwrap();
    assert!(polar.contains(at(-75.0, 90.0)) && !polar.contains(at(-75.0, 89.9)));
    let point = Area::rect(S, 2.0, 3.0, 2.0, 3.0).unwrap();
    assert!(point.contains(at(2.0, 3.0)) && !point.contains(at(2.0, 3.0_f64.next_up())));
    assert!(Area::rect(S, 0.0, 10.0, 5.0, -10.0).is_err());
    assert!(Area::rect(P, 10.0, 0.0, 5.0, 1.0).is_err());
}

#[test]
fn circles_reach_over_poles_and_the_meridian_of_180_degrees() {
    let fiji = Area::circle(S, at(179.2, -17.8), 1e6).unwrap();
    assert!(fiji.contains(at(-179.0, -17.8)) && !fiji.contains(at(160.0, -17.8)));
    let arctic = Area::circle(S, at(10.0, 82.5), 1.5e6).unwrap();
    assert!(arctic.contains(at(-170.0, 85.0)) && arctic.contains(at(77.0, 90.0)));
    let all = Area::circle(S, at(10.0, 20.0), 2.1e7).unwrap();
    assert!(all.contains(at(-170.0, -20.0)));
    assert!(Area::circle(S, at(0.0, 0.0), -1.0).is_err());
    assert!(Area::circle(S, at(0.0, 0.0), f64::NAN).is_err());
    let point = Area::circle(S, at(5.0, 5.0), 0.0).unwrap();
    assert!(point.contains(at(5.0, 5.0)) && !point.contains(at(5.0, 5.0001)));
}

#[test]
fn polygons_have_holes_borders_and_parts() {
    let square: &[(f64, f64)] = &[(0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 10.0)];
    let hole: &[(f64, f64)] = &[(4.0, 4.0), (6.0, 4.0), (6.0, 6.0), (4.0, 6.0)];
    for space in [S, P] {
        let area = polygon(space, &[square, hole]);
        for (x, y, inside) in [
            (5.0, 5.0, false),
            (4.0, 5.0, true),
            (6.0, 6.0, true),
            (3.9, 5.0, true),
            (0.0, 0.0, true),
            (10.0, 10.0, true),
            (10.0, 5.0, true),
            (5.0, 0.0, true),
            (5.0, -1e-9, false),
            (10.0 + 1e-9, 5.0, false),
        ] {
            assert_eq!(area.contains(at(x, y)), inside, "{space:?} {x} {y}");
        }
    }
    // A point on a slanted edge, exactly: (1, 1/3) rounded is not on the line to (3, 1), (1.5, 0.5)
    // is.
    let slanted = polygon(P, &[&[(0.0, 0.0), (3.0, 1.0), (3.0, -5.0)]]);
    assert!(slanted.contains(at(1.5, 0.5)));
    assert!(!slanted.contains(at(1.5, 0.5_f64.next_up())));
    assert!(slanted.contains(at(1.5, 0.5_f64.next_down())));
}

#[test]
fn polygons_cross_the_meridian_of_180_degrees_and_go_around_poles() {
    let across = polygon(
        S,
        &[&[
            (170.0, -10.0),
            (-170.0, -10.0),
            (-170.0, 10.0),
            (170.0, 10.0),
        ]],
    );
    for (x, inside) in [
        (175.0, true),
        (180.0, true),
        (-180.0, true),
        (-170.0, true),
        (0.0, false),
        (-169.9, false),
    ] {
        assert_eq!(across.contains(at(x, 0.0)), inside, "{x}");
    }
    let antarctica: Vec<(f64, f64)> = (-18..18).map(|i| (f64::from(i) * 10.0, -70.0)).collect();
    let south = polygon(S, &[&antarctica]);
    for (x, y, inside) in [
        (0.0, -80.0, true),
        (-180.0, -75.0, true),
        (180.0, -75.0, true),
        (3.0, -90.0, true),
        (3.0, -69.9, false),
        (5.0, -70.0, true),
        (3.0, 90.0, false),
    ] {
        assert_eq!(south.contains(at(x, y)), inside, "{x} {y}");
    }
    // A ring around the north pole in the other direction, with a hole around the pole.
    let parallel = |y: f64| -> Vec<(f64, f64)> {
        (-17..=18).rev().map(|i| (f64::from(i) * 10.0, y)).collect()
    };
    let band = polygon(S, &[&parallel(50.0), &parallel(80.0)]);
    for (x, y, inside) in [
        (0.0, 60.0, true),
        (180.0, 60.0, true),
        (-180.0, 60.0, true),
        (10.0, 85.0, false),
        (-180.0, 85.0, false),
        (77.0, 90.0, false),
        (12.0, 80.0, true),
        (0.0, 40.0, false),
    ] {
        assert_eq!(band.contains(at(x, y)), inside, "{x} {y}");
    }
    let world = polygon(
        S,
        &[&[
            (-180.0, -90.0),
            (180.0, -90.0),
            (180.0, 90.0),
            (-180.0, 90.0),
        ]],
    );
    for (x, y) in [
        (0.0, 0.0),
        (180.0, 3.0),
        (-180.0, 3.0),
        (12.0, 90.0),
        (12.0, -90.0),
    ] {
        assert!(world.contains(at(x, y)), "{x} {y}");
    }
    assert!(
        Polygon::new(
            S,
            &[vec![ring(
                &(0..73)
                    .map(|i| (f64::from((i * 10) % 360) - 180.0 + 1e-3, 0.0))
                    .collect::<Vec<_>>()
            )]]
        )
        .is_err()
    );
}

#[test]
fn rings_are_closed_and_have_four_points() {
    let open = vec![at(0.0, 0.0), at(1.0, 0.0), at(1.0, 1.0), at(0.0, 1.0)];
    let error = Polygon::new(P, &[vec![open]]).unwrap_err().to_string();
    assert_eq!(
        error,
        "polygon 1, ring 1: it is not closed: it begins at 0,0 and ends at 0,1"
    );
    assert!(Polygon::new(P, &[]).is_err());
    assert!(Polygon::new(P, &[vec![]]).is_err());
    assert!(Polygon::new(P, &[vec![vec![at(0.0, 0.0); 5]]]).is_err());
    assert!(Polygon::new(P, &[vec![vec![at(0.0, 0.0); 2]]]).is_err());
}

#[test]
fn geojson_gives_its_polygons() {
    let square = "[[[0,0],[2,0],[2,2],[0,2],[0,0]]]";
    for text in [
        format!(r#"{{"type":"Polygon","coordinates":{square}}}"#),
        format!(r#"{{"type":"MultiPolygon","coordinates":[{square}]}}"#),
        format!(
            r#"{{"type":"FeatureCollection","features":[{{"type":"Feature","properties":{{}},"geometry":{{"type":"Polygon","coordinates":{square}}}}}]}}"#
        ),
        format!(
            r#"{{"type":"GeometryCollection","geometries":[{{"type":"Polygon","coordinates":{square}}}]}}"#
        ),
        r#"{"type":"Polygon","coordinates":[[[0,0,7],[2,0,7],[2,2,7],[0,2,7],[0,0,7]]]}"#
            .to_owned(),
    ] {
        let area = Area::from_geojson(S, &text).unwrap();
        assert!(
            area.contains(at(1.0, 1.0)) && !area.contains(at(3.0, 1.0)),
            "{text}"
        );
    }
    for (text, says) in [
        ("{", "not GeoJSON"),
        ("[]", "needs a type"),
        (
            r#"{"type":"Point","coordinates":[0,0]}"#,
            "a GeoJSON Point is not an area",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[[0,0],[2],[2,2],[0,0]]]}"#,
            "a position is a list of two numbers or more, not [2]",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[[0,0],[200,0],[2,2],[0,0]]]}"#,
            "longitude 200",
        ),
        (
            r#"{"type":"Polygon"}"#,
            "a GeoJSON Polygon needs a list of coordinates",
        ),
        (r#"{"type":"Feature","geometry":null}"#, "needs a type"),
        (
            r#"{"type":"FeatureCollection","features":[]}"#,
            "no polygon is given",
        ),
    ] {
        let error = Area::from_geojson(S, text).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

/// Random areas of all types, some at poles and at the meridian of 180 degrees.
fn any_area(random: &mut fastrand::Rng, space: Space) -> Area {
    let x = |random: &mut fastrand::Rng| edgy(random, 180.0);
    let y = |random: &mut fastrand::Rng| edgy(random, 90.0);
    match random.u8(0..3) {
        0 => {
            let (mut w, mut e, a, b) = (x(random), x(random), y(random), y(random));
            if space == P {
                (w, e) = (w.min(e), w.max(e));
            }
            Area::rect(space, w, a.min(b), e, a.max(b)).unwrap()
        }
        1 => {
            let centre = Point::new(space, x(random), y(random)).unwrap();
            let most = if space == S { 2.1e7 } else { 300.0 };
            Area::circle(space, centre, most * random.f64().powi(3)).unwrap()
        }
        _ => {
            // A star around a point, so that no edges cross.
            let (x, y) = (x(random), y(random) * 0.9);
            let corners = random.usize(3..40);
            let star = (0..corners).map(|i| {
                let angle = i as f64 / corners as f64 * std::f64::consts::TAU;
                let reach = 1.0 + random.f64() * 30.0;
                let mut lon = x + reach * angle.cos();
                if space == S && lon > 180.0 {
                    lon -= 360.0;
                } else if space == S && lon < -180.0 {
                    lon += 360.0;
                }
                Point::new(space, lon, (y + reach * angle.sin()).clamp(-90.0, 90.0)).unwrap()
            });
            let mut star: Vec<Point> = star.collect();
            star.push(star[0]);
            Area::polygon(Polygon::new(space, &[vec![star]]).unwrap())
        }
    }
}

/// A coordinate, often a whole number, sometimes the least or the greatest.
fn edgy(random: &mut fastrand::Rng, most: f64) -> f64 {
    match random.u8(0..8) {
        0 => most,
        1 => -most,
        2 | 3 => (random.f64() * 2.0 * most - most).round(),
        _ => random.f64() * 2.0 * most - most,
    }
}

#[test]
fn boxes_cover_areas_and_relations_are_sure() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut inside, mut outside, mut crosses, mut within) = (0, 0, 0, 0);
    for round in 0..3000 {
        let space = if round % 4 == 0 { P } else { S };
        let area = any_area(&mut random, space);
        let corner = (edgy(&mut random, 180.0), edgy(&mut random, 90.0));
        let size = 180.0 * random.f64().powi(4);
        let bounds = Bounds {
            min_x: corner.0,
            min_y: corner.1,
            max_x: (corner.0 + size).min(180.0),
            max_y: (corner.1 + size * random.f64()).min(90.0),
        };
        let relation = area.relation(&bounds);
        match relation {
            Relation::Inside => inside += 1,
            Relation::Outside => outside += 1,
            Relation::Crosses => crosses += 1,
        }
        for i in 0..30 {
            // Points of the box, including its corners, and points anywhere.
            let (x, y) = match i {
                0..4 => bounds.corners()[i],
                4..15 => (
                    bounds.min_x + random.f64() * (bounds.max_x - bounds.min_x),
                    bounds.min_y + random.f64() * (bounds.max_y - bounds.min_y),
                ),
                _ => (edgy(&mut random, 180.0), edgy(&mut random, 90.0)),
            };
            let point = Point::new(space, x, y).unwrap();
            let contains = area.contains(point);
            within += usize::from(contains);
            if i < 15 && bounds.contains(point) {
                match relation {
                    Relation::Inside => {
                        assert!(contains, "round {round}: {point} of {bounds:?} in {area:?}")
                    }
                    Relation::Outside => assert!(
                        !contains,
                        "round {round}: {point} of {bounds:?} in {area:?}"
                    ),
                    Relation::Crosses => {}
                }
            }
            if contains {
                assert!(
                    area.boxes().iter().any(|part| part.contains(point)),
                    "round {round}: {point} is in no box of {area:?}"
                );
            }
            if space == S {
                // The other coordinates of the same point give the same result.
                if x.abs() == 180.0 {
                    assert_eq!(
                        area.contains(at(-x, y)),
                        contains,
                        "round {round}: {point} in {area:?}"
                    );
                }
                if y.abs() == 90.0 && !matches!(area.boxes(), []) {
                    assert_eq!(
                        area.contains(at(random.f64() * 100.0, y)),
                        contains,
                        "round {round}: {point} in {area:?}"
                    );
                }
            }
        }
    }
    for (name, times) in [
        ("inside", inside),
        ("outside", outside),
        ("crosses", crosses),
        ("within", within),
    ] {
        assert!(times > 50, "{name}: {times}");
    }
}

#[test]
fn polygons_agree_with_counting_all_edges() {
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..400 {
        // Small whole coordinates, so that points are often on corners and edges.
        let corners: Vec<(i64, i64)> = (0..random.usize(3..60))
            .map(|_| (random.i64(-6..7), random.i64(-6..7)))
            .collect();
        let points: Vec<(f64, f64)> = corners
            .iter()
            .map(|(x, y)| (*x as f64, *y as f64))
            .collect();
        let rings = vec![ring(&points)];
        let (Ok(plane), Ok(sphere)) = (
            Polygon::new(P, std::slice::from_ref(&rings)),
            Polygon::new(S, std::slice::from_ref(&rings)),
        ) else {
            continue;
        };
        for x in -7..8 {
            for y in -7..8 {
                let expected = slow(&corners, (x, y));
                let point = at(x as f64, y as f64);
                assert_eq!(
                    plane.contains(point),
                    expected,
                    "round {round}: {x},{y} of {corners:?}"
                );
                assert_eq!(
                    sphere.contains(point),
                    expected,
                    "round {round}: {x},{y} of {corners:?}"
                );
            }
        }
    }
}

/// Computed in whole numbers: on an edge, or with an odd number of edges to the east.
fn slow(corners: &[(i64, i64)], (x, y): (i64, i64)) -> bool {
    let mut inside = false;
    for (at, a) in corners.iter().enumerate() {
        let b = corners[(at + 1) % corners.len()];
        let cross = (b.0 - a.0) * (y - a.1) - (b.1 - a.1) * (x - a.0);
        let between =
            a.0.min(b.0) <= x && x <= a.0.max(b.0) && a.1.min(b.1) <= y && y <= a.1.max(b.1);
        if cross == 0 && between {
            return true;
        }
        if (a.1 <= y) != (b.1 <= y) && ((b.1 > a.1) == (cross > 0)) {
            inside = !inside;
        }
    }
    inside
}

#[test]
fn bounds_of_distances_hold() {
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..5000 {
        let space = if round % 4 == 0 { P } else { S };
        let from = Point::new(space, edgy(&mut random, 180.0), edgy(&mut random, 90.0)).unwrap();
        let (x, y) = (edgy(&mut random, 180.0), edgy(&mut random, 90.0));
        let size = 360.0 * random.f64().powi(3);
        let bounds = Bounds {
            min_x: x,
            min_y: y,
            max_x: (x + size).min(180.0),
            max_y: (y + size * random.f64()).min(90.0),
        };
        let (least, most) = (
            nearest(space, from, &bounds),
            farthest(space, from, &bounds),
        );
        let mut close = f64::INFINITY;
        for i in 0..=16 {
            for j in 0..=16 {
                let x = bounds.min_x + (bounds.max_x - bounds.min_x) * f64::from(i) / 16.0;
                let y = bounds.min_y + (bounds.max_y - bounds.min_y) * f64::from(j) / 16.0;
                let to = distance(
                    space,
                    from,
                    Point::new(space, x.min(180.0), y.min(90.0)).unwrap(),
                );
                assert!(
                    least <= to && to <= most,
                    "round {round}: {least} {to} {most} from {from} to {bounds:?}"
                );
                close = close.min(to);
            }
        }
        // The bound must also be close: within a step of the grid.
        let step = (bounds.max_x - bounds.min_x).hypot(bounds.max_y - bounds.min_y) / 16.0;
        let step = if space == S {
            step.to_radians() * EARTH_RADIUS_M
        } else {
            step
        };
        assert!(
            close - least <= step + 0.5,
            "round {round}: {least} {close} from {from} to {bounds:?}"
        );
    }
}
