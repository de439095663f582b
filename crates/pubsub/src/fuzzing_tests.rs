//! Decoders accept what encoders write, and never panic on other bytes.

use fastrand::Rng;

use super::stored;

use crate::forms::config::Config;
use crate::forms::element::{
    Element, StoredChange, StoredPublication, StoredSubscription, Threshold,
};
use crate::forms::place::{Place, Region};
use crate::forms::topic::TopicFilter;
use crate::lists::directory::{SubscriptionEntry, encode_subscription};

/// Elements of every kind, with places of every kind.
fn operand(rng: &mut Rng) -> Vec<u8> {
    let mut operand = Vec::new();
    let places = [
        Place::Anywhere,
        Place::Point {
            longitude: 1.5,
            latitude: -2.5,
        },
        Place::Cell(crate::Cell::new(&[1, 4, 2]).unwrap()),
        Place::Region(Region::Rect {
            west: 1.0,
            south: 2.0,
            east: 3.0,
            north: 4.0,
        }),
        Place::Region(Region::Circle {
            longitude: 1.0,
            latitude: 2.0,
            metres: 3.0,
        }),
        Place::Region(Region::Polygon("{}".into())),
    ];
    for place in places {
        let element = Element::Publication(StoredPublication {
            time: rng.i64(..),
            latest: rng.i64(..),
            expires: rng.i64(..),
            place: place.clone(),
            tag: if rng.bool() { b"tag" } else { &[] },
            body: b"{}",
        });
        element.encode(rng.u64(..), rng.u64(..), &mut operand);
        let subscription = subscription(rng, place);
        Element::Subscription(subscription).encode(rng.u64(..), rng.u64(..), &mut operand);
    }
    let retracted = Element::Retracted {
        publication: 7,
        time: -5,
    };
    retracted.encode(8, 9, &mut operand);
    let ended = Element::Ended {
        form: 7,
        from: -5,
        to: 5,
    };
    ended.encode(8, 9, &mut operand);
    operand
}

fn subscription(rng: &mut Rng, place: Place) -> StoredSubscription<'static> {
    StoredSubscription {
        form: rng.u64(..),
        id: rng.u64(..),
        begins: 0,
        ended: Some(5),
        made_at: rng.i64(..),
        from: rng.i64(..),
        to: rng.i64(..),
        is_self_join: rng.bool(),
        is_filed: rng.bool(),
        user: b"ann",
        tag: b"tag",
        place,
        condition: Some("a = 1"),
        change: rng.bool().then(|| StoredChange {
            path: "p".into(),
            threshold: Threshold::Percent(0.5),
        }),
    }
}

#[test]
fn damaged_bytes_are_refused_and_never_panic() {
    let mut rng = Rng::with_seed(5);
    let mut decoded = 0;
    for _ in 0..300 {
        let whole = operand(&mut rng);
        assert_eq!(stored(&whole), 14);
        let topics: TopicFilter = "a/+/10/#".parse().unwrap();
        let entry = encode_subscription(&topics, &subscription(&mut rng, Place::Anywhere), &[]);
        let decoded_entry = SubscriptionEntry::decode(&entry).unwrap();
        assert_eq!(decoded_entry.forms().count(), 1);
        assert_eq!(decoded_entry.topics, topics);
        for source in [
            whole,
            entry,
            Config::new().encode(),
            vec![3, 97, 0, 1, 2, 0, 1],
        ] {
            let mut bytes = source;
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(0..bytes.len());
                match rng.u8(0..3) {
                    0 => bytes.truncate(at + 1),
                    _ => bytes[at] = rng.u8(..),
                }
            }
            decoded += stored(&bytes);
        }
    }
    assert!(decoded > 0);
}
