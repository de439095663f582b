//! Value lists (the paper's section 4): how flushes and compactions combine operands, and which
//! elements they drop.
//!
//! An element is dropped when its time has passed, or when a newer element of the same operand
//! voids it, lives as long and covers its times. So no walk meets an element without the one that
//! voids it.

use std::collections::HashMap;

use esker::extension::Time;
use esker::extension::merge::MergeOperator;
use esker::{Result, Seq};

use crate::element::{Elements, Raw, Target, Times};

/// Operands are combined up to this many bytes. So a walk that stops early reads hardly more than
/// it needs, and a long list is never in memory as a whole.
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
                // A damaged operand is kept, so that a read reports it.
                Err(_) => return Some(operand.to_vec()),
            }
        }
        (!left.is_empty()).then_some(left)
    }

    /// Drops elements that newer ones of the operand void, unless they live longer or have times
    /// that the newer ones do not cover: a walk of these times would skip the newer ones. In the
    /// oldest operand of a list, also drops tombstones.
    fn finish(&self, _: &[u8], _: Seq, operand: &mut Vec<u8>, oldest: bool) -> bool {
        let mut elements = Elements::of(operand);
        let voids =
            |element: Result<(Raw<'_>, &[u8])>| element.is_ok_and(|(raw, _)| raw.voids().is_some());
        if !elements.any(voids) {
            return !operand.is_empty();
        }
        let mut voided: HashMap<Target, (Time, Option<Times>)> = HashMap::new();
        let mut left = Vec::new();
        let mut is_changed = false;
        for element in Elements::of(operand) {
            let Ok((raw, bytes)) = element else {
                return true;
            };
            let by = raw.target().and_then(|target| voided.get(&target));
            let is_void = by
                .is_some_and(|(until, times)| *until >= raw.useless && covers(*times, raw.times()));
            if let Some(target) = raw.voids() {
                let (until, times) = voided.entry(target).or_default();
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

/// True if every walk that skips the times `by` skips `these`, too.
fn covers(by: Option<Times>, these: Option<Times>) -> bool {
    match (by, these) {
        (Some(Times::Publication(a)), Some(Times::Publication(b))) => a == b,
        (Some(Times::Subscription(from, to)), Some(Times::Subscription(of, until))) => {
            from <= of && to >= until
        }
        _ => false,
    }
}

/// The least times that cover both.
fn both(one: Option<Times>, other: Option<Times>) -> Option<Times> {
    match (one, other) {
        (Some(Times::Subscription(from, to)), Some(Times::Subscription(of, until))) => {
            Some(Times::Subscription(from.min(of), to.max(until)))
        }
        (one, other) => one.or(other),
    }
}
