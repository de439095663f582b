//! The set, and its form on disk, compared with sets of the standard library.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::entry::{MAX_SEQ, Seq, seq_key};

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<Seq>),
    Range(Seq, Seq),
    AddAll(Vec<Seq>),
    RemoveAll(Seq, Seq),
    Truncate(Seq),
    Shrink,
    Pin,
    Store,
}

fn number() -> impl Strategy<Value = Seq> {
    prop_oneof![
        0..200u64,
        65_000..66_000u64,
        0..1u64 << 20,
        MAX_SEQ - 100..=MAX_SEQ,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let numbers = || prop::collection::vec(number(), 0..200);
    prop_oneof![
        3 => numbers().prop_map(Step::Insert),
        2 => (number(), 0..70_000u64).prop_map(|(first, len)| Step::Range(first, len)),
        2 => numbers().prop_map(Step::AddAll),
        2 => (number(), 0..70_000u64).prop_map(|(first, len)| Step::RemoveAll(first, len)),
        1 => number().prop_map(Step::Truncate),
        2 => Just(Step::Shrink),
        1 => Just(Step::Pin),
        1 => Just(Step::Store),
    ]
}

fn range(first: Seq, len: Seq) -> impl Iterator<Item = Seq> {
    first..(first + len).min(MAX_SEQ)
}

/// The set after a round trip through table entries.
fn stored(set: &SeqSet) -> SeqSet {
    let (mut again, mut count, mut last) = (SeqSet::new(), 0, None);
    let stored: Result<(), &str> = encode(set, &mut |key, value| {
        assert!(!value.is_empty() && last.as_deref() < Some(key));
        last = Some(key.to_vec());
        count += 1;
        decode(key, value, &mut again)
    });
    stored.unwrap();
    assert_eq!(count, entries(set));
    again
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(esker_sim::by_tier(32, 64)))]

    #[test]
    fn a_set_agrees_with_a_model_and_clones_stay_as_they_were(
        steps in prop::collection::vec(step(), 0..24),
        probes in prop::collection::vec((number(), number()), 40),
    ) {
        let (mut set, mut model) = (SeqSet::new(), BTreeSet::new());
        let mut pinned = Vec::new();
        for step in steps {
            match step {
                Step::Insert(numbers) => for seq in numbers {
                    assert_eq!(set.insert(seq), model.insert(seq));
                },
                Step::Range(first, len) => {
                    set.extend(range(first, len));
                    model.extend(range(first, len));
                }
                Step::AddAll(numbers) => {
                    set.add_all(&numbers.iter().copied().collect());
                    model.extend(numbers);
                }
                Step::RemoveAll(first, len) => {
                    set.remove_all(&range(first, len).collect());
                    model.retain(|seq| !range(first, len).contains_number(*seq));
                }
                Step::Truncate(last) => {
                    set.truncate(last);
                    model.retain(|seq| *seq <= last);
                }
                Step::Shrink => set.shrink(),
                Step::Pin => pinned.push((set.clone(), model.clone())),
                Step::Store => set = stored(&set),
            }
            assert_eq!(set.len(), model.len() as u64);
            assert_eq!(set.last(), model.last().copied());
        }
        pinned.push((stored(&set), model.clone()));
        pinned.push((set, model));
        for (set, model) in pinned {
            assert_eq!((set.len(), set.is_empty()), (model.len() as u64, model.is_empty()));
            assert!(set.iter().eq(model.iter().copied()));
            for (a, b) in &probes {
                assert_eq!(set.contains(*a), model.contains(a));
                let (a, b) = (*a.min(b), *a.max(b));
                assert_eq!(set.meets(a, b), model.range(a..=b).next().is_some(), "{a} to {b}");
            }
            assert_eq!(set, model.into_iter().collect());
        }
    }
}

trait ContainsNumber {
    fn contains_number(self, seq: Seq) -> bool;
}

impl<I: Iterator<Item = Seq>> ContainsNumber for I {
    fn contains_number(self, seq: Seq) -> bool {
        let (mut first, mut last) = (None, None);
        for number in self {
            first.get_or_insert(number);
            last = Some(number);
        }
        first <= Some(seq) && Some(seq) <= last && first.is_some()
    }
}

#[test]
fn a_wholly_obsolete_range_takes_next_to_nothing() {
    let mut set: SeqSet = (1..10_000_000).filter(|seq| seq % 500_000 != 0).collect();
    set.shrink();
    assert!(set.memory() < 32 << 10, "{}", set.memory());
    let mut bytes = 0;
    let sink = &mut |key: &[u8], value: &[u8]| {
        bytes += key.len() + value.len();
        Ok::<(), ()>(())
    };
    encode(&set, sink).unwrap();
    assert!(bytes < 8 << 10, "{bytes}");
}

#[test]
fn single_numbers_and_chunks_are_one_set_and_malformed_ones_are_refused() {
    let mut set = SeqSet::new();
    for seq in [0, 7, 1 << 16, 3 << 16] {
        decode(&seq_key(seq), &[], &mut set).unwrap();
    }
    let chunk: SeqSet = [1 << 16 | 5, 1 << 16 | 9].into_iter().collect();
    let mut encoded = Vec::new();
    let sink = &mut |key: &[u8], value: &[u8]| {
        encoded.push((key.to_vec(), value.to_vec()));
        decode(key, value, &mut set)
    };
    encode(&chunk, sink).unwrap();
    let numbers: Vec<Seq> = set.iter().collect();
    assert_eq!(numbers, [0, 7, 1 << 16, 1 << 16 | 5, 1 << 16 | 9, 3 << 16]);
    let (key, value) = encoded.pop().unwrap();
    let mut scratch = SeqSet::new();
    let mut refused = |key: &[u8], value: &[u8]| assert!(decode(key, value, &mut scratch).is_err());
    refused(&key[1..], &value);
    refused(&seq_key(1 << 16 | 1), &value);
    refused(&u64::MAX.to_be_bytes(), &[]);
    for cut in 1..value.len() {
        refused(&key, &value[..cut]);
    }
    refused(&key, &[&value[..], b"\0"].concat());
    refused(&key, &[0; 9000]);
    // Two containers.
    let two: roaring::RoaringBitmap = [1, 1 << 16].into_iter().collect();
    let mut bytes = Vec::new();
    two.serialize_into(&mut bytes).unwrap();
    refused(&key, &bytes);
    bytes.clear();
    roaring::RoaringBitmap::new()
        .serialize_into(&mut bytes)
        .unwrap();
    refused(&key, &bytes);
}
