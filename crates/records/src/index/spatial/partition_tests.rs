use fastrand::Rng;
use model::geometry::{Point, Space};
use model::schema::Value;

use super::*;

fn key(x: f64, y: f64, id: u32) -> Vec<u8> {
    let point = Point::new(Space::Sphere, x, y).unwrap();
    let mut key = Value::Point(Space::Sphere, point).encoded();
    key.extend_from_slice(&id.to_be_bytes());
    key
}

fn random_key(rng: &mut Rng, id: u32) -> Vec<u8> {
    match rng.usize(0..6) {
        // Many at one point, and on lines.
        0 => key(7.0, 7.0, id),
        1 => key(7.0, rng.f64() * 20.0, id),
        2 => key(f64::from(rng.i32(0..10)), f64::from(rng.i32(0..10)), id),
        _ => key(rng.f64() * 10.0, rng.f64() * 20.0, id),
    }
}

/// The keys of each table, and their bounds.
type Tables = Vec<(Vec<Vec<u8>>, Vec<u8>)>;

fn cut(keys: &[Vec<u8>], sample: &[Vec<u8>], tables: u64, beside: &[&[u8]]) -> Tables {
    let mut cutter = Boxes.cut(&Cutting {
        bytes: tables * 1000,
        table_size: 1000,
        sample,
        beside,
    });
    let mut cut: Tables = Vec::new();
    for key in keys {
        let part = cutter.part(key);
        assert!(
            part <= cut.len() && part < lsm::MOST_PARTS,
            "{part} of {}",
            cut.len()
        );
        if part == cut.len() {
            cut.push(Default::default());
        }
        cut[part].0.push(key.clone());
        Boxes.cover(&mut cut[part].1, key);
    }
    let mut all: Vec<&[u8]> = cut.iter().map(|table| table.1.as_slice()).collect();
    all.extend(beside);
    for (at, a) in all.iter().enumerate().take(cut.len()) {
        let overlapped = all.iter().skip(at + 1).find(|b| Boxes.overlap(a, b));
        assert!(
            overlapped.is_none(),
            "{:?} and {:?}",
            rect(a),
            overlapped.map(|b| rect(b))
        );
    }
    for (keys, bounds) in &cut {
        assert!(keys.iter().all(|key| Boxes.covers(bounds, key)));
    }
    cut
}

#[test]
fn tables_never_overlap_whatever_stays_beside_them() {
    for seed in 0..150 {
        let mut rng = Rng::with_seed(seed);
        let mut keys: Vec<Vec<u8>> = (0..2000).map(|id| random_key(&mut rng, id)).collect();
        keys.sort();
        let sample = |rng: &mut Rng, keys: &[Vec<u8>]| -> Vec<Vec<u8>> {
            keys.iter()
                .filter(|_| rng.usize(0..8) == 0)
                .cloned()
                .collect()
        };
        let some = sample(&mut rng, &keys);
        let mut run = cut(&keys, &some, rng.u64(1..40), &[]);
        // Compactions replace a few neighbouring tables, with more points in their boxes, again and again.
        for round in 0..6 {
            let centre = run[rng.usize(..run.len())].1.clone();
            let [x0, x1, y0, y1] = rect(&centre).unwrap();
            let grown = [
                x0 - (x1 - x0) / 4,
                x1 + (x1 - x0) / 4,
                y0,
                y1 + (y1 - y0) / 8,
            ];
            let mut above: Vec<Vec<u8>> = (0..300)
                .map(|id| random_key(&mut rng, 10_000 * (round + 1) + id))
                .filter(|key| holds(grown, place(key)))
                .collect();
            let mut bounds = Vec::new();
            above.iter().for_each(|key| Boxes.cover(&mut bounds, key));
            let inputs = |table: &(Vec<Vec<u8>>, Vec<u8>)| {
                !above.is_empty() && Boxes.overlap(&table.1, &bounds)
            };
            let (merged, stay): (Tables, Tables) =
                std::mem::take(&mut run).into_iter().partition(inputs);
            above.extend(merged.into_iter().flat_map(|table| table.0));
            above.sort();
            let beside: Vec<&[u8]> = stay.iter().map(|table| table.1.as_slice()).collect();
            let some = sample(&mut rng, &above);
            let new = cut(&above, &some, (above.len() as u64 / 60).max(1), &beside);
            run = stay;
            run.extend(new);
        }
    }
}

#[test]
fn tables_are_of_about_the_same_size_and_compact() {
    let mut rng = Rng::with_seed(3);
    let mut keys: Vec<Vec<u8>> = (0..20_000)
        .map(|id| key(rng.f64() * 10.0, rng.f64() * 10.0, id))
        .collect();
    keys.sort();
    let sample: Vec<Vec<u8>> = keys.iter().step_by(16).cloned().collect();
    let tables = cut(&keys, &sample, 25, &[]);
    assert_eq!(tables.len(), 25);
    for (keys, bounds) in &tables {
        assert!((600..1000).contains(&keys.len()), "{} keys", keys.len());
        let bounds = bounds_of(bounds).unwrap();
        let (wide, high) = (bounds.max_x - bounds.min_x, bounds.max_y - bounds.min_y);
        assert!(wide < 3.0 && high < 3.0, "{wide} x {high}");
    }
}

#[test]
fn one_point_is_one_table_and_damaged_bounds_do_no_harm() {
    let keys: Vec<Vec<u8>> = (0..1000).map(|id| key(3.0, 4.0, id)).collect();
    assert_eq!(cut(&keys, &keys, 50, &[]).len(), 1);
    assert_eq!(cut(&[], &[], 1, &[]).len(), 0);
    let mut rng = Rng::with_seed(9);
    for _ in 0..2000 {
        let bounds: Vec<u8> = (0..rng.usize(0..40)).map(|_| rng.u8(..)).collect();
        let short: Vec<u8> = (0..rng.usize(0..30)).map(|_| rng.u8(..)).collect();
        Boxes.covers(&bounds, &short);
        Boxes.overlap(&bounds, &keys[0]);
        bounds_of(&bounds);
        let mut wider = bounds.clone();
        Boxes.cover(&mut wider, &short);
        assert!(Boxes.covers(&wider, &short));
        Boxes
            .cut(&Cutting {
                bytes: u64::MAX,
                table_size: 0,
                sample: std::slice::from_ref(&short),
                beside: &[&bounds],
            })
            .part(&short);
    }
}
