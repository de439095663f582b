//! Operands are pruned as the engine expects.

use esker::Seq;
use esker::extension::merge::MergeOperator;

use super::ValueLists;
use crate::forms::element::Element;

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
