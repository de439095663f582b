//! Value lists (the paper's section 4): how operands are combined, and what a merge drops.

use std::collections::HashMap;

use esker::extension::Time;
use esker::extension::merge::MergeOperator;
use esker::{Result, Seq};

use crate::element::{Elements, Raw, Subject, Times};

/// The bytes from which two operands stay apart. A walk that stops early reads no more of a list than that, and a
/// list of any length is never in memory as a whole.
const PIECE: usize = 16 << 10;

/// Combines the operands of value lists.
pub(crate) struct ValueLists;

impl MergeOperator for ValueLists {
    fn combine(&self, _: &[u8], newer: &mut Vec<u8>, _: Seq, older: &[u8], _: Seq) -> bool {
        let fits = newer.len() + older.len() <= PIECE;
        if fits {
            newer.extend_from_slice(older);
        }
        fits
    }

    fn times_elements(&self) -> bool {
        true
    }

    fn prune(&self, _: &[u8], operand: &[u8], now: Time) -> Option<Vec<u8>> {
        let mut left = Vec::with_capacity(operand.len());
        for element in Elements::of(operand) {
            match element {
                Ok((raw, bytes)) if raw.useless > now => left.extend_from_slice(bytes),
                Ok(_) => {}
                // Kept as it is, for a read to report.
                Err(_) => return Some(operand.to_vec()),
            }
        }
        (!left.is_empty()).then_some(left)
    }

    /// Drops what newer elements of the same piece have made void, unless it outlives them, or is about times that they are not
    /// about (what they leave is skipped by its times); at the bottom, also what only makes others void.
    fn finish(&self, _: &[u8], _: Seq, operand: &mut Vec<u8>, oldest: bool) -> bool {
        let mut elements = Elements::of(operand);
        let voids =
            |element: Result<(Raw<'_>, &[u8])>| element.is_ok_and(|(raw, _)| raw.voids().is_some());
        if !elements.any(voids) {
            return !operand.is_empty();
        }
        let mut voided: HashMap<Subject, (Time, Option<Times>)> = HashMap::new();
        let mut left = Vec::new();
        let mut is_changed = false;
        for element in Elements::of(operand) {
            let Ok((raw, bytes)) = element else {
                return true;
            };
            let by = raw.subject().and_then(|subject| voided.get(&subject));
            let is_void = by
                .is_some_and(|(until, times)| *until >= raw.useless && covers(*times, raw.times()));
            if let Some(subject) = raw.voids() {
                let (until, times) = voided.entry(subject).or_default();
                *until = raw.useless.max(*until);
                *times = both(*times, raw.times());
            }
            if is_void || oldest && raw.is_tombstone() {
                is_changed = true;
            } else {
                left.extend_from_slice(bytes);
            }
        }
        if is_changed {
            *operand = left;
        }
        !operand.is_empty()
    }
}

/// True when elements of some times are skipped wherever those of other times are.
fn covers(by: Option<Times>, these: Option<Times>) -> bool {
    match (by, these) {
        (Some(Times::Publication(a)), Some(Times::Publication(b))) => a == b,
        (Some(Times::Subscription(from, to)), Some(Times::Subscription(of, until))) => {
            from <= of && to >= until
        }
        _ => false,
    }
}

/// The times of both.
fn both(one: Option<Times>, other: Option<Times>) -> Option<Times> {
    match (one, other) {
        (Some(Times::Subscription(from, to)), Some(Times::Subscription(of, until))) => {
            Some(Times::Subscription(from.min(of), to.max(until)))
        }
        (one, other) => one.or(other),
    }
}
