use std::collections::HashSet;

use serde_json::Value;

use super::*;

fn body(upserts: &Upserts, write: usize) -> Vec<u8> {
    let mut body = Vec::new();
    upserts.record(write, &mut body);
    body
}

#[test]
fn a_seed_always_gives_the_same_records_and_another_seed_others() {
    let make = |seed| {
        let upserts = Upserts::new(seed, 500, 0.5, Skew::Zipf);
        (0..500)
            .map(|write| body(&upserts, write))
            .collect::<Vec<_>>()
    };
    assert_eq!(make(7), make(7));
    assert_ne!(make(7), make(8));
}

#[test]
fn records_are_json_of_the_size_with_the_attributes_that_they_are_said_to_have() {
    let upserts = Upserts::new(7, 3000, 0.5, Skew::Uniform);
    for write in 0..upserts.len() {
        let body = body(&upserts, write);
        assert!((450..=550).contains(&body.len()), "{} bytes", body.len());
        let json: Value = serde_json::from_slice(&body).unwrap();
        let key = upserts.key(upserts.number(write));
        assert!(i64::try_from(key).is_ok());
        assert_eq!(json["id"].as_u64(), Some(key));
        assert_eq!(json[TIME].as_u64(), Some(upserts.time(write)));
        for (at, name) in ATTRIBUTES.iter().enumerate() {
            let value = upserts.value(write, at);
            assert!(value < VALUES);
            assert_eq!(json[*name].as_u64(), Some(value), "{name}");
        }
    }
}

#[test]
fn keys_are_random_and_each_number_has_its_own() {
    let upserts = Upserts::new(7, 50_000, 0.0, Skew::Uniform);
    let keys: Vec<u64> = (0..50_000).map(|number| upserts.key(number)).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    let rising = keys.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((24_000..26_000).contains(&rising), "{rising}");
    let low = keys.iter().filter(|&&key| key < 1 << 60).count();
    assert!((5700..6800).contains(&low), "{low} in the lowest eighth");
}

#[test]
fn updates_have_the_share_and_the_skew_that_was_asked_for() {
    let writes = 100_000;
    for skew in [Skew::Uniform, Skew::Zipf] {
        let upserts = Upserts::new(7, writes, 0.5, skew);
        let (mut known, mut updates, mut recent) = (0, 0, 0);
        for write in 0..writes {
            let number = upserts.number(write);
            assert!(number <= known, "keys are numbered as they come");
            if number < known {
                updates += 1;
                recent += usize::from(number >= known - known / 100);
            } else {
                known += 1;
            }
        }
        assert!((49_000..51_000).contains(&updates), "{updates}");
        let share = recent as f64 / updates as f64;
        // The newest hundredth of tens of thousands of keys has half and more of a Zipf distribution.
        match skew {
            Skew::Uniform => assert!((0.005..0.015).contains(&share), "{share}"),
            Skew::Zipf => assert!((0.45..0.75).contains(&share), "{share}"),
        }
    }
    let inserts = Upserts::new(7, 1000, 0.0, Skew::Zipf);
    assert_eq!(inserts.number(999), 999);
}

#[test]
fn text_compresses_about_as_well_as_that_of_the_tweets() {
    let upserts = Upserts::new(7, 400, 0.0, Skew::Uniform);
    let mut all = Vec::new();
    (0..400).for_each(|write| all.extend(body(&upserts, write)));
    let packed = zstd::encode_all(all.as_slice(), 1).unwrap();
    let ratio = all.len() as f64 / packed.len() as f64;
    assert!((1.5..3.5).contains(&ratio), "{ratio}");
}
