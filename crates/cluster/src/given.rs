//! Keys that an answer has given. A record that is updated while its answer is read may be met
//! again, at its later place: writes that were under way when the query began, or that began soon
//! after it, belong to its view. An answer gives no record twice.

use std::collections::BTreeSet;

use crate::shared::Shared;
use crate::time::{CLOCK_BOUND, DEADLINE, STAMP_LEAD};

/// The bytes of the keys that are held.
const MOST_BYTES: usize = 16 << 20;

/// What a key takes beside its bytes.
const KEY_BYTES: usize = 48;

/// Keys that were given while writes of the view could still come.
pub(crate) struct Given {
    keys: BTreeSet<Vec<u8>>,
    bytes: usize,
    /// By the steady clock: no writer acknowledges a write of the view later.
    end: u64,
}

impl Given {
    /// None, of a query that begins now.
    pub(crate) fn new(shared: &Shared) -> Given {
        let begin = shared.clocks().steady();
        Given {
            keys: BTreeSet::new(),
            bytes: 0,
            end: begin.saturating_add(DEADLINE + STAMP_LEAD + 2 * CLOCK_BOUND),
        }
    }

    /// True if the key was given.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    /// Notes a key that is given. Beyond a bound of memory none is noted any more: of millions of
    /// records that are given within half a minute, the last ones may come twice.
    pub(crate) fn note(&mut self, shared: &Shared, key: &[u8]) {
        let is_open = shared.clocks().steady() < self.end;
        if is_open && self.bytes < MOST_BYTES && self.keys.insert(key.to_vec()) {
            self.bytes += key.len() + KEY_BYTES;
        }
    }
}
