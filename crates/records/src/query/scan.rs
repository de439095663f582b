//! Records in key order.

use std::ops::Bound;

use lsm::{Cost, Cursor, MAX_SEQ, TreeCursor};
use model::Key;

use super::explain::Explain;
use crate::error::{Error, Result};
use crate::record::Record;
use crate::store::View;

/// Bytes that a scan reads ahead.
pub(super) const READAHEAD: usize = 256 << 10;

/// An iterator over records by primary key.
pub(crate) struct Scan {
    snapshot: View,
    cursor: TreeCursor,
    from: Bound<Key>,
    to: Bound<Key>,
    reverse: bool,
    started: bool,
    done: bool,
    records: u64,
}

impl Scan {
    /// Of all records.
    pub(crate) fn all(snapshot: View) -> Result<Scan> {
        Scan::new(snapshot, (Bound::Unbounded, Bound::Unbounded))
    }

    pub(crate) fn new(snapshot: View, (from, to): (Bound<Key>, Bound<Key>)) -> Result<Scan> {
        if let (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) = (&from, &to)
            && from.as_bytes() > to.as_bytes()
        {
            return Err(Error::bad_input(format!(
                "the range of keys is upside down: {from} is above {to}"
            )));
        }
        let cursor = snapshot.snapshot.cursor(snapshot.layout.data, READAHEAD);
        Ok(Scan {
            snapshot,
            cursor,
            from,
            to,
            reverse: false,
            started: false,
            done: false,
            records: 0,
        })
    }

    /// The same, from the greatest key down; to be called before records are taken.
    pub(crate) fn rev(self) -> Scan {
        let reverse = !self.reverse;
        Scan { reverse, ..self }
    }

    /// What the scan did so far and what it cost.
    pub(crate) fn explain(&self) -> Explain {
        let order = match self.reverse {
            true => "descending",
            false => "ascending",
        };
        Explain::of_scan(order, self.records, &self.cursor.cost())
    }

    fn start(&mut self) -> Result<()> {
        self.started = true;
        if !self.reverse {
            match &self.from {
                Bound::Unbounded => self.cursor.seek_first()?,
                Bound::Included(from) => self.cursor.seek(from.as_bytes(), MAX_SEQ)?,
                Bound::Excluded(from) => {
                    self.cursor.seek(from.as_bytes(), MAX_SEQ)?;
                    if self.cursor.valid() && self.cursor.key() == from.as_bytes() {
                        self.cursor.next()?;
                    }
                }
            }
            return Ok(());
        }
        let (to, inclusive) = match &self.to {
            Bound::Unbounded => return Ok(self.cursor.seek_last()?),
            Bound::Included(to) => (to, true),
            Bound::Excluded(to) => (to, false),
        };
        self.cursor.seek(to.as_bytes(), MAX_SEQ)?;
        if !self.cursor.valid() {
            self.cursor.seek_last()?;
        } else if self.cursor.key() > to.as_bytes() || !inclusive {
            self.cursor.prev()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<Record>> {
        loop {
            self.advance()?;
            if !self.is_inside() {
                return Ok(None);
            }
            let value = self.cursor.value();
            if !self.snapshot.hides(value) {
                break;
            }
        }
        self.records += 1;
        let key = self.cursor.key().to_vec();
        let key = Key::from_encoded(self.snapshot.dataset.key_type(), key);
        Record::new(key, self.cursor.seq(), self.cursor.value_slice()).map(Some)
    }

    fn advance(&mut self) -> Result<()> {
        if !self.started {
            self.start()?;
        } else if self.reverse {
            self.cursor.prev()?;
        } else {
            self.cursor.next()?;
        }
        Ok(())
    }

    /// True when the cursor is at a record of the range.
    fn is_inside(&self) -> bool {
        if !self.cursor.valid() {
            return false;
        }
        let key = self.cursor.key();
        let past = match (self.reverse, &self.from, &self.to) {
            (false, _, Bound::Included(to)) => key > to.as_bytes(),
            (false, _, Bound::Excluded(to)) => key >= to.as_bytes(),
            (true, Bound::Included(from), _) => key < from.as_bytes(),
            (true, Bound::Excluded(from), _) => key <= from.as_bytes(),
            _ => false,
        };
        !past
    }
}

impl Iterator for Scan {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if self.done {
            return None;
        }
        let next = self.step().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.done = true;
            self.snapshot
                .dataset
                .shared
                .group
                .count(&self.cursor.cost());
        }
        next
    }
}

/// Counts the records of a dataset, at most `limit`.
pub(super) fn count_all(snapshot: &View, limit: u64) -> Result<(u64, Explain)> {
    let mut cursor = snapshot.snapshot.cursor(snapshot.layout.data, READAHEAD);
    cursor.seek_first()?;
    let mut count = 0;
    while cursor.valid() && count < limit {
        count += u64::from(!snapshot.hides(cursor.value()));
        cursor.next()?;
    }
    let cost: Cost = cursor.cost();
    snapshot.dataset.shared.group.count(&cost);
    Ok((count, Explain::of_scan("ascending", count, &cost)))
}
