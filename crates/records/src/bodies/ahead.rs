//! Reading ahead in a scan by key.

use std::collections::VecDeque;

use esker_lsm::{Cost, LookupOptions, Seq, Slice, Snapshot};

use super::many::Bodies;
use crate::catalog::Layout;
use crate::error::Result;

/// A key and its stored record.
pub(crate) struct Item {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
    pub(crate) stored: Slice,
}

impl Item {
    pub(crate) fn new(key: &[u8], seq: Seq, stored: Slice) -> Item {
        let key = key.to_vec();
        Item { key, seq, stored }
    }
}

/// A buffer of a scan by key, whose records get their bodies together. Its capacity adapts to the
/// size of the records read before: about a mebibyte.
pub(crate) struct Ahead {
    items: VecDeque<Item>,
    most: usize,
}

/// The approximate size of the records that are read ahead.
const AHEAD_BYTES: usize = 1 << 20;

/// The first and the largest capacity.
const FIRST_AHEAD: usize = 64;
const MOST_AHEAD: usize = 4096;

impl Ahead {
    pub(crate) fn new() -> Ahead {
        Ahead {
            items: VecDeque::new(),
            most: FIRST_AHEAD,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.items.len() >= self.most
    }

    pub(crate) fn push(&mut self, key: &[u8], seq: Seq, stored: Slice) {
        self.items.push_back(Item::new(key, seq, stored.compact()));
    }

    /// The next item, in insertion order.
    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.items.pop_front()
    }

    /// Reads the missing bodies of the records in the buffer.
    pub(crate) fn fill(&mut self, layout: &Layout, snapshot: &Snapshot, cost: &Cost) -> Result<()> {
        let mut bodies = Bodies::new(layout, snapshot)?;
        for (at, item) in self.items.iter().enumerate() {
            if bodies.lacks(&item.stored) {
                bodies.add(at, &item.key, item.seq, &item.stored)?;
            }
        }
        let (read, mut bytes) = (bodies.len(), 0);
        bodies.read(LookupOptions::default(), cost, &mut |at, record| {
            bytes += record.len();
            self.items[at].stored = record.compact();
            Ok(())
        })?;
        if let Some(each) = bytes.checked_div(read) {
            let fits = AHEAD_BYTES / (each + 1);
            self.most = fits.clamp(1, MOST_AHEAD.min(self.most * 4));
        }
        Ok(())
    }
}
