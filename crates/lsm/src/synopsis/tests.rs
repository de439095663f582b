use std::ops::Bound;

use super::zone::*;
use super::*;
use crate::attributes::Summary;

fn random_value(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut value =
        vec![[0, b'a', 0xff][rng.usize(..3)]; [0, 1, 3, 63, 64, 65, 90][rng.usize(..7)]];
    for _ in 0..rng.usize(..3) {
        if !value.is_empty() {
            let at = rng.usize(..value.len());
            value[at] = rng.u8(..);
        }
    }
    value
}

#[test]
fn ranges() {
    let range = ValueRange {
        lo: Bound::Excluded(b"b".to_vec()),
        hi: Bound::Included(b"d".to_vec()),
        boxes: None,
    };
    assert!(!range.contains(b"b") && range.contains(b"ba") && range.contains(b"d"));
    assert!(!range.contains(b"da") && range.point().is_none());
    assert!(range.overlaps(b"a", None) && range.overlaps(b"d", Some(b"e")));
    assert!(!range.overlaps(b"a", Some(b"b")) && !range.overlaps(b"da", None));
    let all = ValueRange {
        lo: Bound::Unbounded,
        hi: Bound::Unbounded,
        boxes: None,
    };
    assert!(all.contains(b"") && all.overlaps(b"x", Some(b"x")));
    assert_eq!(ValueRange::only(b"x").point(), Some(&b"x"[..]));
}

#[test]
fn bounds_are_shortened_outwards() {
    let seed = 7;
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..20_000 {
        let (mut a, mut b) = (random_value(&mut rng), random_value(&mut rng));
        if a > b {
            std::mem::swap(&mut a, &mut b);
        }
        let (mut min, mut max) = (a.clone(), b.clone());
        shorten_least(&mut min);
        let max = shorten_greatest(&mut max).then_some(max);
        assert!(min <= a && min.len() <= MAX_BOUND_LEN, "seed {seed}");
        assert!(
            max.is_none_or(|max| max >= b && max.len() <= MAX_BOUND_LEN),
            "seed {seed}"
        );
    }
    assert!(!shorten_greatest(&mut vec![0xff; 65]));
    let mut whole = vec![b'a'; 64];
    assert!(shorten_greatest(&mut whole) && whole == [b'a'; 64]);
}

#[test]
fn a_block_synopsis_never_denies_what_is_there() {
    let seed = 11;
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..50 {
        let (slots, blocks) = (rng.usize(..4), rng.usize(1..20));
        let bits = [0, 1, BITS_PER_VALUE, 100][rng.usize(..4)];
        let mut builder = SynopsisBuilder::new(&vec![Summary::Filters; slots], 64, bits);
        let mut held = vec![vec![Vec::new(); blocks]; slots];
        let mut bounds = Vec::new();
        for block in 0..blocks {
            let seqs: Vec<u64> = (0..rng.usize(1..9)).map(|_| rng.u64(..1000)).collect();
            seqs.iter().for_each(|&seq| builder.add_seq(seq));
            bounds.push((*seqs.iter().min().unwrap(), *seqs.iter().max().unwrap()));
            for (slot, held) in held.iter_mut().enumerate() {
                for _ in 0..[0, 1, 2, 30][rng.usize(..4)] {
                    let value = random_value(&mut rng);
                    builder.add_value(slot, &value);
                    held[block].push(value);
                }
            }
            builder.end_block();
        }
        let size = builder.size();
        let (mut out, mut zones) = (Vec::new(), vec![None; slots]);
        let all = builder.finish(&mut out, |slot, zone| zones[slot] = zone);
        assert_eq!(out.len(), size);
        assert_eq!(all.0, bounds.iter().map(|b| b.0).min().unwrap());
        assert_eq!(all.1, bounds.iter().map(|b| b.1).max().unwrap());

        let synopsis = Synopsis::parse(&out).unwrap();
        assert_eq!(synopsis.bounds().collect::<Vec<_>>(), bounds, "seed {seed}");
        assert_eq!((synopsis.blocks(), synopsis.slots()), (blocks, slots));
        assert!(synopsis.slot(slots).is_none());
        for (slot, held) in held.iter().enumerate() {
            let mut records = synopsis.slot(slot).unwrap();
            assert_eq!(zones[slot].is_none(), held.iter().all(Vec::is_empty));
            for values in held {
                let record = records.next_block().unwrap();
                assert_eq!(record.zone.is_none(), values.is_empty(), "seed {seed}");
                for value in values {
                    let (min, max) = record.zone.unwrap();
                    assert!(ValueRange::only(value).overlaps(min, max), "seed {seed}");
                    let (min, max) = zones[slot].as_ref().unwrap();
                    assert!(ValueRange::only(value).overlaps(min, max.as_deref()));
                    assert!(record.may_hold(BlockSynopsis::hash(value)), "seed {seed}");
                }
            }
            assert!(records.next_block().is_none());
        }
    }
}

/// The number of false positives among 100,000 values that are not among the 1,000 of a filter.
fn false_positives(bits_per_value: usize) -> usize {
    let mut builder = SynopsisBuilder::new(&[Summary::Filters], 64, bits_per_value);
    for value in 0..1000u32 {
        builder.add_value(0, &value.to_be_bytes());
    }
    builder.end_block();
    let mut out = Vec::new();
    builder.finish(&mut out, |_, _| {});
    let record = Synopsis::parse(&out)
        .unwrap()
        .slot(0)
        .unwrap()
        .next_block()
        .unwrap();
    (1000..101_000u32)
        .filter(|value| record.may_hold(BlockSynopsis::hash(&value.to_be_bytes())))
        .count()
}

#[test]
fn value_filters_are_right_most_of_the_time() {
    let hits = false_positives(BITS_PER_VALUE);
    assert!(hits < 200, "{hits} false positives of 100,000");
    assert!(false_positives(BITS_PER_VALUE / 2) > hits * 4);
    assert_eq!(false_positives(0), 100_000);
}

#[test]
fn malformed_blocks_do_no_harm() {
    let seed = 3;
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..4)).collect();
        if let Some(synopsis) = Synopsis::parse(&bytes) {
            for slot in 0..synopsis.slots().min(100) {
                if let Some(mut records) = synopsis.slot(slot) {
                    while let Some(record) = records.next_block() {
                        record.may_hold(1);
                    }
                }
            }
        }
    }
}

/// Values whose last two numbers are coordinates: boxes never deny a value that is there, and tell
/// apart what is apart in one dimension, though the least and greatest value do not.
#[test]
fn boxes_tell_apart_what_is_apart_in_any_dimension() {
    let value = |x: u64, y: u64| [&[7][..], &x.to_be_bytes(), &y.to_be_bytes()].concat();
    let corner = |x: u64, y: u64| [x.to_be_bytes(), y.to_be_bytes()].concat();
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..200 {
        let mut builder = SynopsisBuilder::new(&[Summary::Boxes(1)], 64, BITS_PER_VALUE);
        let mut held = Vec::new();
        for _ in 0..rng.usize(1..6) {
            let (left, low) = (rng.u64(..50), rng.u64(..50));
            let mut block = Vec::new();
            for _ in 0..rng.usize(0..8) {
                let (x, y) = (left + rng.u64(..5), low + rng.u64(..5));
                builder.add_value(0, &value(x, y));
                block.push((x, y));
            }
            builder.end_block();
            held.push(block);
        }
        let (mut out, mut whole) = (Vec::new(), None);
        builder.finish(&mut out, |_, zone| whole = zone);
        let table = builder.take_zone(0);
        assert_eq!(table, whole);
        let synopsis = Synopsis::parse(&out).unwrap();
        let mut records = synopsis.slot(0).unwrap();
        let (x, y) = (rng.u64(..55), rng.u64(..55));
        let asked = ValueRange::in_boxes(vec![(corner(x, y), corner(x + 4, y + 4))]);
        let meets = |points: &[(u64, u64)]| {
            let span = |of: fn(&(u64, u64)) -> u64| {
                let all = points.iter().map(of);
                Some((all.clone().min()?, all.max()?))
            };
            let (Some(xs), Some(ys)) = (span(|p| p.0), span(|p| p.1)) else {
                return false;
            };
            xs.0 <= x + 4 && x <= xs.1 && ys.0 <= y + 4 && y <= ys.1
        };
        for block in &held {
            let zone = records.next_block().unwrap().zone;
            let found = zone.is_some_and(|(min, max)| asked.overlaps(min, max));
            assert_eq!(found, meets(block), "{block:?} {x} {y}");
        }
        let all: Vec<(u64, u64)> = held.concat();
        let found = table.is_some_and(|(min, max)| asked.overlaps(&min, max.as_deref()));
        assert_eq!(found, meets(&all));
    }
    // What is of other lengths is let in.
    let asked = ValueRange::in_boxes(vec![(corner(1, 1), corner(2, 2))]);
    assert!(asked.overlaps(b"", None) && asked.overlaps(b"a", Some(b"b")));
    assert!(!asked.overlaps(&corner(3, 0), Some(&corner(9, 9))));
    let mut builder = SynopsisBuilder::new(&[Summary::Boxes(1)], 64, BITS_PER_VALUE);
    for odd in [&b""[..], b"1234", &value(8, 8)] {
        builder.add_value(0, odd);
    }
    builder.end_block();
    builder.finish(&mut Vec::new(), |_, zone| {
        let (min, max) = zone.unwrap();
        assert!(asked.overlaps(&min, max.as_deref()));
    });
}
