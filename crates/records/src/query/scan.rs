//! Scans of a dataset by primary key, and counts that read every record.

use std::ops::Bound;

use esker_lsm::{Cost, Cursor, TreeCursor};
use esker_model::Key;
use esker_model::query::Direction;

use super::explain::Explain;
use super::key_cursor::READAHEAD;
use crate::bodies::{self, ReadAhead, StoredRecord};
use crate::error::{Error, Result};
use crate::record::{self, parse};
use crate::store::View;
use esker_model::Record;

/// An iterator over records by primary key.
pub(crate) struct Scan {
    view: View,
    cursor: TreeCursor,
    direction: Direction,
    /// True once the cursor was moved to the first record.
    has_started: bool,
    /// True after the last record, and after an error.
    has_ended: bool,
    /// The number of records returned.
    records: u64,
    /// The records read ahead, if bodies are stored separately.
    ahead: Option<ReadAhead>,
    /// The cost of reading these bodies.
    body_cost: Cost,
}

impl Scan {
    /// An ascending scan of all records.
    pub(crate) fn all(view: View) -> Result<Scan> {
        Scan::new(view, (Bound::Unbounded, Bound::Unbounded))
    }

    /// An ascending scan of the records with keys from `from` to `to`.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the bounds are reversed.
    pub(crate) fn new(view: View, (from, to): (Bound<Key>, Bound<Key>)) -> Result<Scan> {
        if let (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) = (&from, &to)
            && from.as_bytes() > to.as_bytes()
        {
            return Err(Error::bad_input(format!(
                "the bounds of the range of keys are reversed: {from} is above {to}"
            )));
        }
        let mut cursor = view.snapshot.cursor(view.layout.data, READAHEAD);
        // The least key above `key`.
        let above = |key: &Key| [key.as_bytes(), &[0]].concat();
        let lo = match from {
            Bound::Unbounded => Vec::new(),
            Bound::Included(from) => from.as_bytes().to_vec(),
            Bound::Excluded(from) => above(&from),
        };
        let hi = match to {
            Bound::Unbounded => None,
            Bound::Included(to) => Some(above(&to)),
            Bound::Excluded(to) => Some(to.as_bytes().to_vec()),
        };
        cursor.within(&lo, hi.as_deref());
        Ok(Scan {
            ahead: bodies::are_separate(&view.layout).then(ReadAhead::new),
            body_cost: view.snapshot.cost(),
            view,
            cursor,
            direction: Direction::Ascending,
            has_started: false,
            has_ended: false,
            records: 0,
        })
    }

    /// Reverses the order.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a record was taken already.
    pub(crate) fn rev(mut self) -> Result<Scan> {
        if self.has_started {
            return Err(Error::bad_input(
                "the order of a scan cannot be reversed after its first record",
            ));
        }
        self.direction = match self.direction {
            Direction::Ascending => Direction::Descending,
            Direction::Descending => Direction::Ascending,
        };
        Ok(self)
    }

    /// The steps of the scan so far and their cost.
    pub(crate) fn explain(&self) -> Explain {
        let order = match self.direction {
            Direction::Ascending => "ascending",
            Direction::Descending => "descending",
        };
        let place = self.ahead.as_ref().map(|_| &self.body_cost);
        Explain::of_scan(order, self.records, &self.cursor.cost(), place)
    }

    /// Moves to the next record that has not expired; false at the end.
    fn find_next(&mut self) -> Result<bool> {
        loop {
            self.advance()?;
            if !self.cursor.valid() {
                return Ok(false);
            }
            if !self.view.has_expired(self.cursor.value()) {
                return Ok(true);
            }
        }
    }

    /// The next record; `None` at the end.
    fn step(&mut self) -> Result<Option<Record>> {
        if let Some(mut ahead) = self.ahead.take() {
            let next = self.step_ahead(&mut ahead);
            self.ahead = Some(ahead);
            return next;
        }
        if !self.find_next()? {
            return Ok(None);
        }
        self.records += 1;
        let key = self.cursor.key().to_vec();
        let key = Key::from_encoded(self.view.dataset.key_type(), key);
        record::returned(key, self.cursor.seq(), self.cursor.value_slice()).map(Some)
    }

    /// As [`Scan::step`], for bodies that are stored separately: fills the buffer when it is empty.
    fn step_ahead(&mut self, ahead: &mut ReadAhead) -> Result<Option<Record>> {
        let next = match ahead.pop() {
            Some(buffered) => Some(buffered),
            None => {
                self.fill(ahead)?;
                ahead.pop()
            }
        };
        let Some(StoredRecord { key, seq, stored }) = next else {
            return Ok(None);
        };
        self.records += 1;
        self.view.record(key, seq, stored).map(Some)
    }

    /// Reads the next records ahead, with their bodies.
    fn fill(&mut self, ahead: &mut ReadAhead) -> Result<()> {
        while !ahead.is_full() && !self.at_end() && self.find_next()? {
            ahead.push(
                self.cursor.key(),
                self.cursor.seq(),
                self.cursor.value_slice(),
            );
        }
        ahead.fill(&self.view.layout, &self.view.snapshot, &self.body_cost)
    }

    /// True if the cursor has passed the last entry.
    fn at_end(&self) -> bool {
        self.has_started && !self.cursor.valid()
    }

    /// Moves the cursor to the first entry, or to the next one.
    fn advance(&mut self) -> Result<()> {
        let has_started = std::mem::replace(&mut self.has_started, true);
        let moved = match self.direction {
            Direction::Ascending if has_started => self.cursor.next(),
            Direction::Ascending => self.cursor.seek_first(),
            Direction::Descending if has_started => self.cursor.prev(),
            Direction::Descending => self.cursor.seek_last(),
        };
        Ok(moved?)
    }
}

impl Iterator for Scan {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if self.has_ended {
            return None;
        }
        let next = self.step().transpose();
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Hands the reads to the store's statistics, also those of a scan that its caller did not finish.
impl Drop for Scan {
    fn drop(&mut self) {
        let group = &self.view.dataset.store.group;
        group.count(&self.cursor.cost());
        group.count(&self.body_cost);
    }
}

/// For each attribute of the layout, the number of records with a value at its path that is not
/// indexed. Reads every record.
///
/// # Errors
/// Any read error, and damage if a record is malformed.
pub(crate) fn count_unindexed(view: View) -> Result<Vec<u64>> {
    let layout = view.layout.clone();
    let mut counts = vec![0; layout.attributes.len()];
    let mut count = |stored: &[u8]| -> Result<()> {
        let record = parse(stored)?;
        for (count, attribute) in counts.iter_mut().zip(&layout.attributes) {
            *count += u64::from(attribute.is_unindexed(&record));
        }
        Ok(())
    };
    if bodies::are_separate(&layout) {
        for record in Scan::all(view)? {
            count(record?.stored())?;
        }
        return Ok(counts);
    }
    let mut cursor = view.snapshot.cursor(layout.data, READAHEAD);
    cursor.seek_first()?;
    while cursor.valid() {
        if !view.has_expired(cursor.value()) {
            count(cursor.value())?;
        }
        cursor.next()?;
    }
    view.dataset.store.group.count(&cursor.cost());
    Ok(counts)
}

/// Counts the records of a dataset, at most `limit` if there is one, by reading them; returns the
/// number and the explanation.
///
/// # Errors
/// Any read error.
pub(crate) fn count_all(view: &View, limit: Option<u64>) -> Result<(u64, Explain)> {
    let cost = view.snapshot.cost();
    let count = count_at_cost(view, limit, &cost)?;
    view.dataset.store.group.count(&cost);
    Ok((count, Explain::of_scan("ascending", count, &cost, None)))
}

/// As [`count_all`], as a part of another read, at its cost.
pub(super) fn count_at_cost(view: &View, limit: Option<u64>, cost: &Cost) -> Result<u64> {
    let mut cursor = view.snapshot.cursor(view.layout.data, READAHEAD);
    cursor.seek_first()?;
    let mut count = 0;
    while cursor.valid() && limit.is_none_or(|limit| count < limit) {
        count += u64::from(!view.has_expired(cursor.value()));
        cursor.next()?;
    }
    cost.absorb(&cursor.cost());
    Ok(count)
}
