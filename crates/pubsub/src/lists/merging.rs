//! Value lists (the paper's section 4): how flushes and compactions combine operands, and which
//! elements they drop.
//!
//! An element is dropped
//! - when its drop time has passed;
//! - when a newer element of the same operand voids it, can be dropped no earlier, and covers its
//!   times;
//! - in the oldest operand of its list: when it is a tombstone, or when a newer element of the
//!   operand voids it; nothing older is left to be hidden.
//!
//! **Invariant.** As long as a voided element is stored, so is an element that voids it: in a newer
//! operand, or before it in the same one. Every walk that reads the times of the voided element
//! reads that element, too.

use std::collections::HashMap;

use esker::extension::merge::MergeOperator;
use esker::{Result, Seq};
use esker_coding::Reader;

use crate::forms::element::{ElementTimes, Elements, RawElement, Target, Tick};

/// The maximum bytes of combined operands. So a walk that stops early reads hardly more than it
/// needs, and a long list is never in memory as a whole.
const MAX_COMBINED: usize = 16 << 10;

/// Combines the operands of value lists.
pub(crate) struct ValueLists;

impl MergeOperator for ValueLists {
    fn combine(&self, _: &[u8], newer: &mut Vec<u8>, _: Seq, older: &[u8], _: Seq) -> bool {
        // Behind an element that is cut off, the bytes of the older operand would be taken for the
        // rest of it.
        let combines =
            newer.len() + older.len() <= MAX_COMBINED && is_whole(newer) && is_whole(older);
        if combines {
            newer.extend_from_slice(older);
        }
        combines
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
    /// oldest operand of a list, drops all elements that newer ones of it void, and tombstones.
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
            let is_void = by.zip(raw.times()).is_some_and(|(by, times)| {
                oldest || by.drop_time >= raw.drop_time && covers(by.times, times)
            });
            if let Some((target, times)) = raw.voids().zip(raw.times()) {
                let drop_time = raw.drop_time;
                let new = VoidedBy { drop_time, times };
                voided
                    .entry(target)
                    .and_modify(|by| by.join(new))
                    .or_insert(new);
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

/// True if the last element ends where the operand ends. Reads the lengths alone: a piece is read
/// again for each operand that is added to it.
fn is_whole(operand: &[u8]) -> bool {
    let mut elements = Reader::new(operand);
    while !elements.is_empty() {
        if elements.bytes().is_none() {
            return false;
        }
    }
    true
}

/// The newer elements of an operand that void a target.
#[derive(Clone, Copy)]
struct VoidedBy {
    /// The latest of their drop times ([`RawElement::drop_time`]).
    drop_time: Tick,
    /// The times that they cover together.
    times: ElementTimes,
}

impl VoidedBy {
    /// Adds an older element that voids the same target.
    ///
    /// Elements that void one target are of one sort. Those of a publication have its time, and the
    /// intervals of a form begin together: a renewal moves only the end, and with it the drop time.
    /// So there is no gap between the times that they cover, and what covers most of them is
    /// dropped last. An element for which this does not hold is not counted.
    fn join(&mut self, older: VoidedBy) {
        let times = match (self.times, older.times) {
            (ElementTimes::Publication(time), ElementTimes::Publication(other))
                if time == other =>
            {
                self.times
            }
            (
                ElementTimes::Subscription { from, to },
                ElementTimes::Subscription {
                    from: other_from,
                    to: other_to,
                },
            ) if from == other_from => ElementTimes::Subscription {
                from,
                to: to.max(other_to),
            },
            _ => return,
        };
        self.times = times;
        self.drop_time = self.drop_time.max(older.drop_time);
    }
}

/// True if every walk that skips elements with the times `outer` also skips an element with the
/// times `inner`.
fn covers(outer: ElementTimes, inner: ElementTimes) -> bool {
    match (outer, inner) {
        (ElementTimes::Publication(outer), ElementTimes::Publication(inner)) => outer == inner,
        (
            ElementTimes::Subscription { from, to },
            ElementTimes::Subscription {
                from: inner_from,
                to: inner_to,
            },
        ) => from <= inner_from && to >= inner_to,
        _ => false,
    }
}

#[cfg(test)]
#[path = "merging_tests.rs"]
mod tests;
