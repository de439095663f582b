//! Operands are combined, pruned and finished as the engine expects.

use esker::Seq;
use esker::extension::merge::MergeOperator;

use super::ValueLists;
use crate::forms::element::{Element, Elements, NEVER, StoredPublication};
use crate::forms::place::Place;

/// A tombstone of a form.
fn ended(form: Seq, (from, to): (i64, i64), seq: Seq, drop_time: u64) -> Vec<u8> {
    let mut encoded = Vec::new();
    Element::Ended { form, from, to }.encode(seq, drop_time, &mut encoded);
    encoded
}

/// A tombstone that can be dropped from `drop_time` on.
fn dropped_at(drop_time: u64) -> Vec<u8> {
    ended(drop_time, (0, 1), 9, drop_time)
}

#[test]
fn the_elements_that_have_expired_are_pruned() {
    let operand = [dropped_at(5), dropped_at(9), dropped_at(7)].concat();
    let prune = |now| ValueLists.prune(b"", &operand, now);
    assert_eq!(prune(4), None, "nothing has expired");
    assert_eq!(prune(5), Some([dropped_at(9), dropped_at(7)].concat()));
    assert_eq!(prune(8), Some(dropped_at(9)));
    assert_eq!(prune(9), Some(Vec::new()), "everything has expired");
    let damaged = &operand[..operand.len() - 1];
    assert_eq!(ValueLists.prune(b"", damaged, 5), None);
}

#[test]
fn an_element_is_dropped_only_if_those_that_void_it_cover_its_times() {
    let finish = |times: [(i64, i64); 3], drop_times: [u64; 3]| {
        let parts = std::iter::zip(times, drop_times);
        let operand = parts.map(|(times, drop_time)| ended(7, times, 9, drop_time));
        let mut operand = operand.collect::<Vec<_>>().concat();
        assert!(ValueLists.finish(b"", 9, &mut operand, false));
        Elements::of(&operand).count()
    };
    // A renewal, and what it replaced: the older one covers the last.
    assert_eq!(finish([(0, 10), (0, 30), (0, 20)], [3, 5, 4]), 2);
    assert_eq!(finish([(0, 30), (0, 10), (0, 20)], [5, 3, 4]), 1);
    assert_eq!(finish([(0, 10), (0, 20), (0, 30)], [3, 4, 5]), 3);
    assert_eq!(
        finish([(0, 10), (20, 30), (5, 25)], [5, 5, 5]),
        3,
        "none covers the times from 10 to 20"
    );
    assert_eq!(
        finish([(0, 30), (5, 10), (0, 20)], [3, 5, 4]),
        3,
        "what covers the last is dropped before it"
    );
}

/// A tombstone may have another time than its publication, if the program changed that of the
/// notification. Both leave the oldest operand together: without the tombstone the publication
/// would be received again.
#[test]
fn with_a_tombstone_its_target_leaves_the_oldest_operand() {
    let retracted_at = |time: i64| {
        let mut operand = Vec::new();
        let tombstone = Element::Retracted {
            publication: 3,
            time,
        };
        tombstone.encode(4, 20, &mut operand);
        let publication = Element::Publication(StoredPublication {
            time: 4,
            latest: 4,
            expires: NEVER,
            place: Place::Anywhere,
            tag: &[],
            body: b"{}",
        });
        publication.encode(3, 20, &mut operand);
        operand
    };
    for time in [4, 5] {
        let mut operand = retracted_at(time);
        assert!(!ValueLists.finish(b"", 4, &mut operand, true), "{time}");
        assert!(operand.is_empty());
    }
    // Elsewhere, a walk of the publication's time may skip the tombstone, which covers another one.
    for (time, left) in [(4, 1), (5, 2)] {
        let mut operand = retracted_at(time);
        assert!(ValueLists.finish(b"", 4, &mut operand, false));
        assert_eq!(Elements::of(&operand).count(), left);
    }
}

#[test]
fn operands_that_are_cut_off_stay_apart() {
    let whole = dropped_at(5);
    let combine = |newer: &[u8], older: &[u8]| {
        let mut combined = newer.to_vec();
        let is_combined = ValueLists.combine(b"", &mut combined, 9, older, 8);
        (is_combined, combined)
    };
    for cut in 1..whole.len() {
        let truncated = &whole[..cut];
        assert_eq!(combine(truncated, &whole), (false, truncated.to_vec()));
        assert_eq!(combine(&whole, truncated), (false, whole.clone()));
    }
    let both = [whole.clone(), whole.clone()].concat();
    assert_eq!(combine(&whole, &whole), (true, both));
}
