//! Records in key order.

use std::ops::Bound;

use esker_lsm::{Cost, Cursor, TreeCursor};
use esker_model::Key;

use super::explain::Explain;
use super::key_cursor::READAHEAD;
use crate::bodies::{self, ReadAhead};
use crate::error::{Error, Result};
use crate::record::{self, parse};
use crate::store::View;
use esker_model::Record;

/// An iterator over records by primary key.
pub(crate) struct Scan {
    snapshot: View,
    cursor: TreeCursor,
    reverse: bool,
    started: bool,
    done: bool,
    records: u64,
    /// The records read ahead, if bodies are stored apart.
    ahead: Option<ReadAhead>,
    /// The cost of reading these bodies.
    body_cost: Cost,
}

impl Scan {
    /// A scan of all records.
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
                "the bounds of the range of keys are reversed: {from} is above {to}"
            )));
        }
        let mut cursor = snapshot.snapshot.cursor(snapshot.layout.data, READAHEAD);
        let behind = |key: &Key| [key.as_bytes(), &[0]].concat();
        let lo = match from {
            Bound::Unbounded => Vec::new(),
            Bound::Included(from) => from.as_bytes().to_vec(),
            Bound::Excluded(from) => behind(&from),
        };
        let hi = match to {
            Bound::Unbounded => None,
            Bound::Included(to) => Some(behind(&to)),
            Bound::Excluded(to) => Some(to.as_bytes().to_vec()),
        };
        cursor.within(&lo, hi.as_deref());
        Ok(Scan {
            ahead: bodies::are_apart(&snapshot.layout).then(ReadAhead::new),
            body_cost: snapshot.snapshot.cost(),
            snapshot,
            cursor,
            reverse: false,
            started: false,
            done: false,
            records: 0,
        })
    }

    /// Reverses the order. Must be called before the first record is taken.
    pub(crate) fn rev(self) -> Scan {
        let reverse = !self.reverse;
        Scan { reverse, ..self }
    }

    /// The steps of the scan so far and their cost.
    pub(crate) fn explain(&self) -> Explain {
        let order = if self.reverse {
            "descending"
        } else {
            "ascending"
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
            if !self.snapshot.has_expired(self.cursor.value()) {
                return Ok(true);
            }
        }
    }

    fn step(&mut self) -> Result<Option<Record>> {
        if self.ahead.is_some() {
            return self.step_ahead();
        }
        if !self.find_next()? {
            return Ok(None);
        }
        self.records += 1;
        let key = self.cursor.key().to_vec();
        let key = Key::from_encoded(self.snapshot.dataset.key_type(), key);
        record::returned(key, self.cursor.seq(), self.cursor.value_slice()).map(Some)
    }

    /// As `step`, for bodies that are stored apart.
    fn step_ahead(&mut self) -> Result<Option<Record>> {
        let Some(mut ahead) = self.ahead.take() else {
            return Ok(None);
        };
        let mut next = ahead.pop();
        if next.is_none() {
            while !ahead.is_full() && !self.at_end() && self.find_next()? {
                ahead.push(
                    self.cursor.key(),
                    self.cursor.seq(),
                    self.cursor.value_slice(),
                );
            }
            let (layout, snapshot) = (&self.snapshot.layout, &self.snapshot.snapshot);
            ahead.fill(layout, snapshot, &self.body_cost)?;
            next = ahead.pop();
        }
        self.ahead = Some(ahead);
        let Some(item) = next else {
            return Ok(None);
        };
        self.records += 1;
        self.snapshot
            .record(item.key, item.seq, item.stored)
            .map(Some)
    }

    fn at_end(&self) -> bool {
        self.started && !self.cursor.valid()
    }

    fn advance(&mut self) -> Result<()> {
        match (self.started, self.reverse) {
            (false, false) => self.cursor.seek_first()?,
            (false, true) => self.cursor.seek_last()?,
            (true, false) => self.cursor.next()?,
            (true, true) => self.cursor.prev()?,
        }
        self.started = true;
        Ok(())
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
            self.snapshot.dataset.shared.group.count(&self.body_cost);
        }
        next
    }
}

/// For each attribute of the layout, the number of records with a value at its path that is not
/// indexed. Reads every record.
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
    if bodies::are_apart(&layout) {
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
    view.dataset.shared.group.count(&cursor.cost());
    Ok(counts)
}

/// Counts the records of a dataset, at most `limit`.
pub(crate) fn count_all(snapshot: &View, limit: u64) -> Result<(u64, Explain)> {
    let mut cursor = snapshot.snapshot.cursor(snapshot.layout.data, READAHEAD);
    cursor.seek_first()?;
    let mut count = 0;
    while cursor.valid() && count < limit {
        count += u64::from(!snapshot.has_expired(cursor.value()));
        cursor.next()?;
    }
    let cost: Cost = cursor.cost();
    snapshot.dataset.shared.group.count(&cost);
    Ok((count, Explain::of_scan("ascending", count, &cost, None)))
}
