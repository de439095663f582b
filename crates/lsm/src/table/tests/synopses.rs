use super::*;
use crate::attributes::{Extractor, Summary};
use crate::synopsis::ValueRange;
use std::ops::Bound;

/// Values of the form `slot byte, length byte, value bytes, ...`; slot 2 is never emitted, slot 3
/// equals slot 0, without synopses of blocks.
struct Tagged;

const IDS: [u32; 4] = [10, 700, 3, 5];

fn attributes(value: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let (mut rest, mut found) = (value, Vec::new());
    while let [slot @ 0..2, len, tail @ ..] = rest {
        let Some((value, tail)) = tail.split_at_checked(usize::from(*len)) else {
            break;
        };
        found.push((usize::from(*slot), value.to_vec()));
        rest = tail;
    }
    found
}

impl Extractor for Tagged {
    fn ids(&self) -> &[u32] {
        &IDS
    }
    fn summary(&self, slot: usize) -> Summary {
        [
            Summary::Filters,
            Summary::Fingerprints,
            Summary::Filters,
            Summary::Zones,
        ][slot]
    }
    fn extract(&self, _: &[u8], value: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        for (slot, value) in attributes(value) {
            emit(slot, &value);
            if slot == 0 {
                emit(3, &value);
            }
        }
    }
}

fn random_attribute(rng: &mut fastrand::Rng, at: usize) -> Vec<u8> {
    match rng.u8(..8) {
        0 => vec![0xff; rng.usize(60..90)],
        1 => vec![b'v'; rng.usize(..90)],
        2 => Vec::new(),
        _ => format!("{:05}", at + rng.usize(..40)).into_bytes(),
    }
}

fn random_range(rng: &mut fastrand::Rng, count: usize) -> ValueRange {
    let at = rng.usize(..count);
    let a = random_attribute(rng, at);
    if rng.bool() {
        return ValueRange::only(&a);
    }
    let near = at + rng.usize(..20);
    let b = random_attribute(rng, near);
    let (a, b) = if a <= b { (a, b) } else { (b, a) };
    let mut bound = |value| match rng.u8(..5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Excluded(value),
        _ => Bound::Included(value),
    };
    ValueRange {
        lo: bound(a),
        hi: bound(b),
        boxes: None,
    }
}

#[test]
fn no_block_with_a_match_is_missed() {
    for seed in 0..30 {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = rng.usize(1..600);
        let entries: Vec<Entry> = (0..count)
            .map(|i| {
                let mut value = Vec::new();
                for _ in 0..[0, 1, 1, 2, 9][rng.usize(..5)] {
                    let attribute = random_attribute(&mut rng, i);
                    value.extend_from_slice(&[rng.u8(..2), attribute.len() as u8]);
                    value.extend_from_slice(&attribute);
                }
                value.push(9);
                let kind = if rng.u8(..4) > 0 {
                    Kind::Put
                } else {
                    Kind::Operand
                };
                entry(format!("{i:05}").as_bytes(), rng.u64(..9999), kind, &value)
            })
            .collect();
        let options = TableOptions {
            extractor: Some(Arc::new(Tagged)),
            ..random_options(&mut rng)
        };
        let files = Files::default();
        let meta = build(&files, &options, &entries);
        let table = open(&files, &meta, 1 << 24).unwrap();
        assert_eq!(
            table.verify_with(Some(&Tagged), &mut |e| panic!("{e}")),
            count as u64
        );
        check_zones(&table, &entries);
        for _ in 0..100 {
            let (slot, range) = (rng.usize(..2), random_range(&mut rng, count));
            check_range(&table, slot, &range);
            check_sample(&table, &entries, slot, &range);
        }
    }
}

fn check_zones(table: &Table, entries: &[Entry]) {
    assert_eq!(table.slot_of(700), Some(1));
    assert_eq!(table.slot_of(1), None);
    assert_eq!(table.meta().zones[2], (3, None));
    assert_eq!(table.meta().zones[3].1, table.meta().zones[0].1);
    let mut any = [false; 2];
    for entry in entries.iter().filter(|e| e.kind != Kind::Delete) {
        for (slot, value) in attributes(&entry.value) {
            any[slot] = true;
            let (min, max) = table.meta().zones[slot].1.as_ref().unwrap();
            assert!(ValueRange::only(&value).overlaps(min, max.as_deref()));
        }
    }
    // Values of operands and deletes are not in synopses.
    assert_eq!([0, 1].map(|slot| table.meta().zones[slot].1.is_some()), any);
}

fn check_range(table: &Table, slot: usize, range: &ValueRange) {
    let cost = Cost::default();
    let mut mapped = Vec::new();
    let has_map = table
        .mapped_blocks(slot, range, &cost, &mut mapped)
        .unwrap();
    assert_eq!(has_map, slot == 1 && range.point().is_some());
    for p in 0..table.partitions() {
        let (mut all, mut matching) = (Vec::new(), Vec::new());
        table.all_blocks(p, &cost, &mut all).unwrap();
        table
            .matching_blocks(p, slot, range, &cost, &mut matching)
            .unwrap();
        assert!(matching.iter().all(|hint| all.contains(hint)));
        if slot == 0 {
            let mut coarse = Vec::new();
            table
                .matching_blocks(p, 3, range, &cost, &mut coarse)
                .unwrap();
            assert!(matching.iter().all(|hint| coarse.contains(hint)));
            assert!(coarse.is_empty() || table.partition_may_match(p, 3, range));
        }
        for hint in &all {
            let mut block = table.block_entries(hint, &cost).unwrap();
            while block.advance().unwrap() {
                let holds = block.kind() != Kind::Delete
                    && attributes(block.value())
                        .iter()
                        .any(|(s, value)| *s == slot && range.contains(value));
                assert!(
                    !holds || matching.contains(hint),
                    "{range:?} is in {hint:?}"
                );
                assert!(!holds || table.partition_may_match(p, slot, range));
                let bounds = table.partition_bounds(p);
                let like = |m: &BlockHint| (m.partition, m.block) == (p, hint.block);
                let known = mapped.iter().find(|m| like(m));
                assert!(!holds || !has_map || known.is_some());
                assert!(known.is_none_or(|m| (m.min_seq, m.max_seq) == bounds));
            }
        }
        let mut none = Vec::new();
        table
            .matching_blocks(p, 2, range, &cost, &mut none)
            .unwrap();
        assert!(none.is_empty() && !table.partition_may_match(p, 2, range));
    }
}

/// The sample has exactly the entries whose key's hash ends in three zero bits, with their first
/// values.
fn check_sample(table: &Table, entries: &[Entry], slot: usize, range: &ValueRange) {
    let sampled = entries
        .iter()
        .filter(|entry| entry.kind != Kind::Delete && filter::hash(&entry.key).is_multiple_of(8));
    let (mut all, mut matches) = (0, 0);
    for entry in sampled {
        let mut values = Vec::new();
        Tagged.extract(&entry.key, &entry.value, &mut |of, value: &[u8]| {
            if of == slot {
                values.push(value[..value.len().min(64)].to_vec());
            }
        });
        values.truncate(16);
        all += 1;
        matches += u64::from(values.iter().any(|value| range.contains(value)));
    }
    let found = table
        .sampled(slot, &Cost::default(), &|value| range.contains(value))
        .unwrap()
        .map(|found| (found.entries, found.matches));
    assert_eq!(found, (all > 0).then_some((all, matches)));
}

#[test]
fn a_table_of_an_earlier_version_has_no_sample() {
    let files = Files::default();
    let meta = build(&files, &TableOptions::default(), &numbered(500));
    let table = open(&files, &meta, 1 << 20).unwrap();
    let sampled = table.sampled(0, &Cost::default(), &|_| true).unwrap();
    assert_eq!(sampled, None);
}

#[test]
fn lookups_of_absent_values_read_few_blocks() {
    let entries: Vec<Entry> = (0..5000u32)
        .map(|i| {
            let attribute = i.wrapping_mul(2_654_435_761).to_be_bytes();
            let value = [&[0, 4][..], &attribute, &[9; 200]].concat();
            entry(&i.to_be_bytes(), 1, Kind::Put, &value)
        })
        .collect();
    let files = Files::default();
    let options = TableOptions {
        extractor: Some(Arc::new(Tagged)),
        ..TableOptions::default()
    };
    let meta = build(&files, &options, &entries);
    let table = open(&files, &meta, 1 << 24).unwrap();
    let (cost, mut hints) = (Cost::default(), Vec::new());
    for i in 0..100u32 {
        let range = ValueRange::only(&(i * 40_000_003 + 1).to_be_bytes());
        for p in 0..table.partitions() {
            table
                .matching_blocks(p, 0, &range, &cost, &mut hints)
                .unwrap();
        }
    }
    let (asked, denied) = (cost.synopses_probed.get(), cost.synopses_negative.get());
    assert_eq!(asked, denied + hints.len() as u64);
    assert!(
        hints.len() as u64 * 40 < asked,
        "{} of {asked} blocks",
        hints.len()
    );
}
