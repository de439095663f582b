//! The partitioner of points: tables of a run never overlap, are of about the same size, and stay
//! so over many compactions.

use esker_model::geometry::{Point, Space};
use esker_model::schema::Value;
use fastrand::Rng;

use super::*;

const POINTS: Boxes<2> = Boxes;
const TIMED: Boxes<3> = Boxes;

fn key(x: f64, y: f64, id: u32) -> Vec<u8> {
    let point = Point::new(Space::Sphere, x, y).unwrap();
    let mut key = Value::Point(Space::Sphere, point).encoded();
    key.extend_from_slice(&id.to_be_bytes());
    key
}

#[test]
fn tables_take_turns_by_the_z_value_of_their_centre() {
    let bounds = |corners: [[f64; 2]; 2]| {
        let mut bounds = Vec::new();
        for [x, y] in corners {
            POINTS.cover(&mut bounds, &key(x, y, 0));
        }
        bounds
    };
    let turn = |corners| POINTS.turn(&bounds(corners)).unwrap();
    // By quarters of the world: the first coordinate has the higher weight. The smallest keys have
    // another order.
    let turns = [
        turn([[-20.0, -30.0], [-10.0, 5.0]]),
        turn([[-20.0, 10.0], [-10.0, 30.0]]),
        turn([[-1.0, -30.0], [50.0, -10.0]]),
        turn([[-1.0, -1.0], [50.0, 50.0]]),
    ];
    assert!(turns.is_sorted());
    assert!(turns.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(POINTS.turn(b"damaged").is_none());
    let one = interleaved([1_u64 << 63, 0]);
    assert_eq!((one.len(), one[0]), (16, 0b1000_0000));
    assert_eq!(interleaved([0, 1])[15], 1);
    assert_eq!(interleaved([0, 0, u64::MAX])[..3], [0x24, 0x92, 0x49]);
}

fn random_key(rng: &mut Rng, id: u32) -> Vec<u8> {
    match rng.usize(0..6) {
        // Many keys at one point, and on lines.
        0 => key(7.0, 7.0, id),
        1 => key(7.0, rng.f64() * 20.0, id),
        2 => key(f64::from(rng.i32(0..10)), f64::from(rng.i32(0..10)), id),
        _ => key(rng.f64() * 10.0, rng.f64() * 20.0, id),
    }
}

/// The keys of each table, and its bounds.
type Tables = Vec<(Vec<Vec<u8>>, Vec<u8>)>;

fn cut(
    keys: &[Vec<u8>],
    sample: &[Vec<u8>],
    tables: u64,
    within: &[&[u8]],
    beside: &[&[u8]],
) -> Tables {
    cut_by(&POINTS, keys, sample, tables, within, beside)
}

fn cut_by(
    boxes: &dyn Partitioner,
    keys: &[Vec<u8>],
    sample: &[Vec<u8>],
    tables: u64,
    within: &[&[u8]],
    beside: &[&[u8]],
) -> Tables {
    let mut cutter = boxes.cut(&Cutting {
        bytes: tables * 1000,
        table_size: 1000,
        sample,
        within,
        beside,
    });
    let mut cut: Tables = Vec::new();
    for key in keys {
        let part = cutter.part(key);
        assert!(
            part <= cut.len() && part < esker_lsm::MOST_PARTS,
            "{part} of {}",
            cut.len()
        );
        if part == cut.len() {
            cut.push(Default::default());
        }
        cut[part].0.push(key.clone());
        boxes.cover(&mut cut[part].1, key);
    }
    let mut all: Vec<&[u8]> = cut.iter().map(|table| table.1.as_slice()).collect();
    all.extend(beside);
    for (at, a) in all.iter().enumerate().take(cut.len()) {
        let overlapped = all.iter().skip(at + 1).find(|b| boxes.overlap(a, b));
        assert!(overlapped.is_none(), "{a:?} and {overlapped:?}");
    }
    for (keys, bounds) in &cut {
        assert!(keys.iter().all(|key| boxes.covers(bounds, key)));
    }
    cut
}

#[test]
fn tables_overlap_neither_each_other_nor_kept_tables() {
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
        let mut run = cut(&keys, &some, rng.u64(1..40), &[], &[]);
        // Compactions repeatedly replace a few neighbouring tables, with more points in their
        // boxes.
        for round in 0..6 {
            let centre = run[rng.usize(..run.len())].1.clone();
            let [[x0, x1], [y0, y1]] = rect(&centre).unwrap();
            let grown = [
                [x0 - (x1 - x0) / 4, x1 + (x1 - x0) / 4],
                [y0, y1 + (y1 - y0) / 8],
            ];
            let mut above: Vec<Vec<u8>> = (0..300)
                .map(|id| random_key(&mut rng, 10_000 * (round + 1) + id))
                .filter(|key| holds(grown, coordinates(key)))
                .collect();
            let mut bounds = Vec::new();
            above.iter().for_each(|key| POINTS.cover(&mut bounds, key));
            let inputs = |table: &(Vec<Vec<u8>>, Vec<u8>)| {
                !above.is_empty() && POINTS.overlap(&table.1, &bounds)
            };
            let (merged, stay): (Tables, Tables) =
                std::mem::take(&mut run).into_iter().partition(inputs);
            let mut within: Vec<Vec<u8>> = merged.iter().map(|table| table.1.clone()).collect();
            within.push(bounds);
            let mut within: Vec<&[u8]> = within.iter().map(Vec::as_slice).collect();
            // Without `within` the partitioner assumes the whole space.
            if round % 2 == 1 || above.is_empty() {
                within.clear();
            }
            above.extend(merged.into_iter().flat_map(|table| table.0));
            above.sort();
            let beside: Vec<&[u8]> = stay.iter().map(|table| table.1.as_slice()).collect();
            let some = sample(&mut rng, &above);
            let new = cut(
                &above,
                &some,
                (above.len() as u64 / 60).max(1),
                &within,
                &beside,
            );
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
    let tables = cut(&keys, &sample, 25, &[], &[]);
    assert_eq!(tables.len(), 25);
    for (keys, bounds) in &tables {
        assert!((600..1000).contains(&keys.len()), "{} keys", keys.len());
        let bounds = point_box(bounds).unwrap().area;
        let (wide, high) = (bounds.max_x - bounds.min_x, bounds.max_y - bounds.min_y);
        assert!(wide < 3.0 && high < 3.0, "{wide} x {high}");
    }
}

#[test]
fn one_point_is_one_table_and_damaged_bounds_do_no_harm() {
    let keys: Vec<Vec<u8>> = (0..1000).map(|id| key(3.0, 4.0, id)).collect();
    assert_eq!(cut(&keys, &keys, 50, &[], &[]).len(), 1);
    assert_eq!(cut(&[], &[], 1, &[], &[]).len(), 0);
    let mut rng = Rng::with_seed(9);
    for _ in 0..2000 {
        let bounds: Vec<u8> = (0..rng.usize(0..60)).map(|_| rng.u8(..)).collect();
        let short: Vec<u8> = (0..rng.usize(0..30)).map(|_| rng.u8(..)).collect();
        POINTS.covers(&bounds, &short);
        POINTS.overlap(&bounds, &keys[0]);
        point_box(&bounds);
        let mut wider = bounds.clone();
        POINTS.cover(&mut wider, &short);
        assert!(POINTS.covers(&wider, &short));
        POINTS
            .cut(&Cutting {
                bytes: u64::MAX,
                table_size: 0,
                sample: std::slice::from_ref(&short),
                within: &[&bounds],
                beside: &[&bounds],
            })
            .part(&short);
    }
}

/// A key with these encoded coordinates.
fn raw(x: u64, y: u64, id: u32) -> Vec<u8> {
    let mut key = vec![0; POINT_LEN - 16];
    key.extend_from_slice(&x.to_be_bytes());
    key.extend_from_slice(&y.to_be_bytes());
    key.extend_from_slice(&id.to_be_bytes());
    key
}

fn bounds([x0, x1, y0, y1]: [u64; 4]) -> Vec<u8> {
    let mut bounds = Vec::new();
    POINTS.cover(&mut bounds, &raw(x0, y0, 0));
    POINTS.cover(&mut bounds, &raw(x1, y1, 0));
    bounds
}

#[test]
fn thousands_of_kept_tables_are_cut_off_in_few_steps() {
    let stay: Vec<Vec<u8>> = (0..20_000u64)
        .map(|at| 1000 * at)
        .map(|low| bounds([low, low + 9, low, low + 9]))
        .collect();
    let beside: Vec<&[u8]> = stay.iter().map(Vec::as_slice).collect();
    let middle = 1000 * 10_000 + 100;
    let keys: Vec<Vec<u8>> = (0..400)
        .map(|id| raw(middle + u64::from(id), middle + u64::from(id), id))
        .collect();
    let own = bounds([middle, middle + 400, middle, middle + 400]);
    assert_eq!(cut(&keys, &keys, 4, &[&own], &beside).len(), 4);
    assert!(cut(&keys, &keys, 4, &[], &beside).len() < 20);
}

/// Kept tables lie between compacted tables, like the teeth of two combs.
#[test]
fn few_more_tables_are_written_than_kept_tables_separate() {
    for teeth in [10u64, 50, 100] {
        let mut rng = Rng::with_seed(teeth);
        let (mut keys, mut merged, mut stay) = (Vec::new(), Vec::new(), Vec::new());
        for tooth in 0..teeth {
            for low in [0, 11_000] {
                let left = 100 * tooth;
                for id in 0..30 {
                    let y = low + rng.u64(..10_000);
                    keys.push(raw(left + rng.u64(..40), y, id));
                }
                merged.push(bounds([left, left + 39, low, low + 9_999]));
                stay.push(bounds([left + 50, left + 90, low, low + 9_999]));
            }
        }
        for id in 0..300 {
            keys.push(raw(rng.u64(..100 * teeth), 10_000 + rng.u64(..1000), id));
        }
        merged.push(bounds([0, 100 * teeth, 10_000, 10_999]));
        keys.sort();
        keys.dedup();
        let within: Vec<&[u8]> = merged.iter().map(Vec::as_slice).collect();
        let beside: Vec<&[u8]> = stay.iter().map(Vec::as_slice).collect();
        let tables = cut(&keys, &keys, 10, &within, &beside).len() as u64;
        assert!(
            tables <= 2 * teeth + teeth / 2,
            "{teeth} teeth: {tables} tables"
        );
    }
}

type PlaceOf<'a> = &'a dyn Fn(&mut Rng) -> (f64, f64);

/// A level under many compactions, each of a table's worth of points from above: tables stay about
/// as full as they were cut.
#[test]
fn tables_stay_full_over_many_compactions() {
    const FULL: usize = 100;
    let lines = |rng: &mut Rng| {
        let at = rng.f64() * 10.0;
        (at, (at * 3.0).floor() + rng.f64() * 0.01)
    };
    let anywhere = |rng: &mut Rng| (rng.f64() * 10.0, rng.f64() * 10.0);
    let towns = |rng: &mut Rng| {
        let town = f64::from(rng.u32(0..40));
        let near = |rng: &mut Rng| rng.f64() * rng.f64() * 0.3;
        (town * 1.7 % 9.0 + near(rng), town * 2.3 % 7.0 + near(rng))
    };
    let places: [(&str, PlaceOf<'_>); 3] = [
        ("anywhere", &anywhere),
        ("lines", &lines),
        ("towns", &towns),
    ];
    for (name, place_of) in places {
        let mut rng = Rng::with_seed(5);
        let mut next = 0;
        let mut some_keys = |rng: &mut Rng, count: usize| -> Vec<Vec<u8>> {
            let mut keys: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    next += 1;
                    let (x, y) = place_of(rng);
                    key(x, y, next)
                })
                .collect();
            keys.sort();
            keys
        };
        let all = some_keys(&mut rng, 60 * FULL);
        let mut run = cut(&all, &all, 60, &[], &[]);
        let mut most = 0;
        for _ in 0..12 {
            // The level above: ten tables of points from the whole space, each of which is
            // compacted.
            let above = some_keys(&mut rng, 10 * FULL);
            for (mut keys, bounds) in cut(&above, &above, 10, &[], &[]) {
                let (merged, stay): (Tables, Tables) = std::mem::take(&mut run)
                    .into_iter()
                    .partition(|table| POINTS.overlap(&table.1, &bounds));
                let mut within: Vec<&[u8]> = merged.iter().map(|t| t.1.as_slice()).collect();
                within.push(&bounds);
                let beside: Vec<&[u8]> = stay.iter().map(|t| t.1.as_slice()).collect();
                keys.extend(merged.iter().flat_map(|table| table.0.iter().cloned()));
                keys.sort();
                let sample: Vec<Vec<u8>> = keys.iter().step_by(8).cloned().collect();
                let tables = keys.len().div_ceil(FULL) as u64;
                let new = cut(&keys, &sample, tables, &within, &beside);
                most = most.max(new.len());
                run = stay;
                run.extend(new);
            }
        }
        let points: usize = run.iter().map(|table| table.0.len()).sum();
        let fill = points as f64 / (run.len() * FULL) as f64;
        assert!(
            fill > 0.75,
            "{name}: {} tables are {fill:.2} full",
            run.len()
        );
        assert!(most <= 40, "{name}: a compaction wrote {most} tables");
    }
}

/// A key of a point with a time.
fn timed_key(rng: &mut Rng, id: u32) -> Vec<u8> {
    let (x, y) = match rng.usize(0..4) {
        0 => (7.0, 7.0),
        1 => (f64::from(rng.i32(0..10)), 3.0),
        _ => (rng.f64() * 10.0, rng.f64() * 20.0),
    };
    let point = Point::new(Space::Sphere, x, y).unwrap();
    let micros = match rng.usize(0..3) {
        0 => 5,
        _ => rng.i64(-1_000_000_000_000..1_000_000_000_000),
    };
    let mut key = Value::PointTime(Space::Sphere, point, micros).encoded();
    key.extend_from_slice(&id.to_be_bytes());
    key
}

#[test]
fn tables_of_points_at_a_time_never_overlap_and_are_cut_by_all_three() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let some_keys = |rng: &mut Rng, from: u32, count: u32| {
            let mut keys: Vec<Vec<u8>> =
                (from..from + count).map(|id| timed_key(rng, id)).collect();
            keys.sort();
            keys
        };
        let all = some_keys(&mut rng, 0, 3000);
        let mut run = cut_by(&TIMED, &all, &all, 27, &[], &[]);
        if seed == 0 {
            let wide = |(keys, bounds): &(Vec<Vec<u8>>, Vec<u8>)| {
                let times = point_box(bounds).unwrap().times;
                let (from, to) = times.unwrap();
                keys.len() > 30 && to - from > 1_200_000_000_000
            };
            assert!(run.len() > 15, "{} tables", run.len());
            assert!(run.iter().filter(|table| wide(table)).count() < run.len() / 3);
        }
        for round in 1..6 {
            let above = some_keys(&mut rng, round * 10_000, 40);
            let mut bounds = Vec::new();
            above.iter().for_each(|key| TIMED.cover(&mut bounds, key));
            let near = run[rng.usize(..run.len())].1.clone();
            let (merged, stay): (Tables, Tables) = std::mem::take(&mut run)
                .into_iter()
                .partition(|table| TIMED.overlap(&table.1, &near));
            let above = above.into_iter().filter(|key| TIMED.covers(&near, key));
            let mut keys: Vec<Vec<u8>> = merged.iter().flat_map(|t| t.0.iter().cloned()).collect();
            keys.extend(above);
            keys.sort();
            let within: Vec<&[u8]> = merged.iter().map(|t| t.1.as_slice()).collect();
            let beside: Vec<&[u8]> = stay.iter().map(|t| t.1.as_slice()).collect();
            let tables = merged.len() as u64;
            let new = cut_by(&TIMED, &keys, &keys, tables, &within, &beside);
            run = stay;
            run.extend(new);
        }
    }
}
