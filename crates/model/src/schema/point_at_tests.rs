//! A scan and an index find the same points, whatever is at the path.

use super::*;
use crate::geometry::Space;

fn json(rng: &mut fastrand::Rng, depth: usize) -> String {
    match rng.u32(..if depth == 0 { 6 } else { 13 }) {
        0..=3 => ["1", "2.5", "-0", "1e1"][rng.usize(..4)].to_owned(),
        4 => ["null", "\"1\"", "true", "200"][rng.usize(..4)].to_owned(),
        5 => ["[]", "{}"][rng.usize(..2)].to_owned(),
        6..=9 => {
            let each = (0..rng.usize(1..4)).map(|_| json(rng, depth - 1));
            format!("[{}]", each.collect::<Vec<_>>().join(","))
        }
        _ => {
            let names = ["coordinates", "coordinates", "x", "y"];
            let mut member = || format!("\"{}\":{}", names[rng.usize(..4)], json(rng, depth - 1));
            let each = (0..2).map(|_| member()).collect::<Vec<_>>();
            format!("{{{}}}", each.join(","))
        }
    }
}

#[test]
fn a_scan_sees_the_points_that_an_index_has() {
    let mut rng = fastrand::Rng::with_seed(0x5eed_0010);
    let mut found = 0;
    for path in ["p", "p.x,p.y", "p.x"] {
        let path = Path::parse(path).unwrap();
        let attributes = vec![(path.clone(), Type::Point)];
        let extraction = Extraction::new((Path::parse("id").unwrap(), KeyType::Int), attributes);
        let at = PointAt::new(&path).unwrap();
        for _ in 0..40_000 {
            let body = format!("{{\"id\":1,\"p\":{}}}", json(&mut rng, 4));
            let mut out = Extracted::default();
            let indexed = match extraction.extract(body.as_bytes(), &mut out) {
                Ok(()) => out.values(0).next(),
                Err(_) => None,
            };
            let indexed = indexed.map(|value| decode_point(Space::Sphere, value).unwrap());
            let scanned = at.find(Space::Sphere, body.as_bytes());
            assert_eq!(scanned, indexed, "{path} {body}");
            found += usize::from(scanned.is_some());
        }
    }
    assert!(found > 1000, "{found}");
}
