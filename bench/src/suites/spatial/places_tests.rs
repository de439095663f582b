use super::*;

fn points(count: usize) -> Vec<Place> {
    Source::Spread(None).read(3, count).unwrap()
}

#[test]
fn counts_what_a_look_at_every_point_counts() {
    let mut places = points(3000);
    places.extend(vec![places[7]; 40]);
    let halves = Halves::new(&places);
    let mut rng = Rng::with_seed(1);
    for half in [0, 10, 100_000, 20 * DEGREE, 400 * DEGREE] {
        let rect = Rect::about(places[rng.usize(0..places.len())], half);
        let inside = places.iter().filter(|at| rect.holds(**at));
        assert_eq!(halves.count(&rect), inside.count());
    }
}

#[test]
fn squares_hold_about_the_share_that_is_asked_for() {
    let places = points(20_000);
    let halves = Halves::new(&places);
    let mut rng = Rng::with_seed(1);
    for records in [1, 2, 20, 2000] {
        for _ in 0..20 {
            let count = halves.count(&halves.square(&mut rng, records));
            let most = records + records / 20 + 1;
            assert!((records..=most).contains(&count), "{count} of {records}");
        }
    }
}

#[test]
fn records_are_json_of_about_the_same_length_with_the_place_in_them() {
    let at = Place::of(-0.000_001, 51.5);
    let mut text = Vec::new();
    record(7, at, 2, &mut text);
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        (json["id"].as_u64(), json["moved"].as_u64()),
        (Some(7), Some(2))
    );
    let [lon, lat] = ["lon", "lat"].map(|name| json[name].as_f64().unwrap());
    assert_eq!((lon, lat), at.degrees());
    assert_eq!(text.len(), RECORD);
}

#[test]
fn cells_in_z_order_are_those_of_the_ranges_of_an_area() {
    let places = points(500);
    for at in places {
        let [west, south, east, north] = Rect::about(at, 2000).degrees();
        let sphere = esker_model::geometry::Space::Sphere;
        let area = esker_model::geometry::Area::rect(sphere, west, south, east, north).unwrap();
        let region = esker_model::region::Region::new(area);
        let z = at.z().to_be_bytes();
        let within = |(lo, hi): (Vec<u8>, Option<Vec<u8>>)| {
            lo[..] <= z[..] && hi.is_none_or(|hi| z[..] < hi[..])
        };
        assert!(region.key_ranges().any(within), "{at:?}");
    }
}

#[test]
fn objects_stay_near_where_they_were() {
    let moving = Moving::Objects(Source::Spread(None), 5);
    let moves = moving.read(1, 100).unwrap();
    assert_eq!((moves.start.len(), moves.steps.len()), (100, 500));
    let mut now = moves.start.clone();
    for (object, to) in moves.steps {
        let at = &mut now[object as usize];
        assert!((at.lat - to.lat).abs() <= DEGREE / 100);
        assert!(metres(*at, to) < 3000.0);
        *at = to;
    }
}
