//! Value lists (the paper's section 4): how flushes and compactions combine operands, and which
//! elements they drop.
//!
//! An element is dropped when its time has passed, or when a newer element of the same operand
//! voids it, lives as long and covers its times. So no walk meets an element without the one that
//! voids it.

use std::collections::HashMap;

use esker::extension::merge::MergeOperator;
use esker::{Result, Seq};

use crate::forms::element::{ElementTimes, Elements, RawElement, Target, Tick};

/// The maximum bytes of combined operands. So a walk that stops early reads hardly more than it
/// needs, and a long list is never in memory as a whole.
const MAX_COMBINED: usize = 16 << 10;

/// Combines the operands of value lists.
pub(crate) struct ValueLists;

impl MergeOperator for ValueLists {
    fn combine(&self, _: &[u8], newer: &mut Vec<u8>, _: Seq, older: &[u8], _: Seq) -> bool {
        let fits = newer.len() + older.len() <= MAX_COMBINED;
        if fits {
            newer.extend_from_slice(older);
        }
        fits
    }

    fn times_elements(&self) -> bool {
        true
    }

    fn prune(&self, _: &[u8], operand: &[u8], now: Tick) -> Option<Vec<u8>> {
        // Reads prune, too, and mostly nothing has expired: then nothing is copied.
        let mut has_expired = false;
        for element in Elements::of(operand) {
            // A damaged operand is kept, so that a read reports it.
            has_expired |= element.ok()?.drop_time <= now;
        }
        has_expired.then(|| {
            let mut left = Vec::with_capacity(operand.len());
            for raw in Elements::of(operand).flatten() {
                if raw.drop_time > now {
                    left.extend_from_slice(raw.encoded);
                }
            }
            left
        })
    }

    /// Drops elements that newer ones of the operand void, unless they live longer or have times
    /// that the newer ones do not cover: a walk of these times would skip the newer ones. In the
    /// oldest operand of a list, also drops tombstones.
    fn finish(&self, _: &[u8], _: Seq, operand: &mut Vec<u8>, oldest: bool) -> bool {
        let mut elements = Elements::of(operand);
        let voids =
            |element: Result<RawElement<'_>>| element.is_ok_and(|raw| raw.voids().is_some());
        if !elements.any(voids) {
            return !operand.is_empty();
        }
        let mut voided: HashMap<Target, VoidedBy> = HashMap::new();
        let mut left = Vec::new();
        let mut is_changed = false;
        for element in Elements::of(operand) {
            // A damaged operand is kept, so that a read reports it.
            let Ok(raw) = element else {
                return true;
            };
            let by = raw.target().and_then(|target| voided.get(&target));
            let is_void =
                by.is_some_and(|by| by.drop_time >= raw.drop_time && covers(by.times, raw.times()));
            if let Some(target) = raw.voids() {
                let by = voided.entry(target).or_default();
                by.drop_time = raw.drop_time.max(by.drop_time);
                by.times = hull(by.times, raw.times());
            }
            if is_void || oldest && raw.is_tombstone() {
                is_changed = true;
            } else {
                left.extend_from_slice(raw.encoded);
            }
        }
        if is_changed {
            *operand = left;
        }
        !operand.is_empty()
    }
}

/// The newer elements of an operand that void a target.
#[derive(Default)]
struct VoidedBy {
    /// The latest of their times of the store's clock from which they can be dropped.
    drop_time: Tick,
    /// The times that they cover together.
    times: Option<ElementTimes>,
}

/// True if every walk that skips elements with the times `outer` also skips an element with the
/// times `inner`.
fn covers(outer: Option<ElementTimes>, inner: Option<ElementTimes>) -> bool {
    match (outer, inner) {
        (Some(ElementTimes::Publication(outer)), Some(ElementTimes::Publication(inner))) => {
            outer == inner
        }
        (
            Some(ElementTimes::Subscription { from, to }),
            Some(ElementTimes::Subscription {
                from: inner_from,
                to: inner_to,
            }),
        ) => from <= inner_from && to >= inner_to,
        _ => false,
    }
}

/// The smallest times that cover both. Elements that void one target are of one sort, and those of
/// a publication have the same time.
fn hull(one: Option<ElementTimes>, other: Option<ElementTimes>) -> Option<ElementTimes> {
    match (one, other) {
        (
            Some(ElementTimes::Subscription { from, to }),
            Some(ElementTimes::Subscription {
                from: other_from,
                to: other_to,
            }),
        ) => Some(ElementTimes::Subscription {
            from: from.min(other_from),
            to: to.max(other_to),
        }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
#[path = "merging_tests.rs"]
mod tests;
