//! A cursor over the records whose keys satisfy the conditions on the primary key.

use std::vec;

use esker_lsm::{Cost, Cursor, Seq, Slice, Snapshot, TreeCursor, TreeId};
use esker_model::query::{KeySpans, Span};

use crate::error::Result;

/// Bytes that a scan reads ahead.
pub(super) const READAHEAD: usize = 256 << 10;

/// A cursor over the newest entries of some keys in the tree of the records.
pub(super) struct KeyCursor {
    /// At an entry of the present span.
    cursor: TreeCursor,
    /// The spans after the present one, ascending and disjoint.
    next_spans: vec::IntoIter<Span>,
}

impl KeyCursor {
    /// A cursor at the first entry of the keys. Single keys are looked up without read-ahead.
    pub(super) fn new(keys: &KeySpans, snapshot: &Snapshot, tree: TreeId) -> Result<KeyCursor> {
        let readahead = if keys.are_points() { 0 } else { READAHEAD };
        let all = || vec![(Vec::new(), None)];
        let spans = keys.spans().map_or_else(all, <[Span]>::to_vec);
        let mut cursor = KeyCursor {
            cursor: snapshot.cursor(tree, readahead),
            next_spans: spans.into_iter(),
        };
        cursor.skip_empty_spans()?;
        Ok(cursor)
    }

    /// False at the end.
    pub(super) fn valid(&self) -> bool {
        self.cursor.valid()
    }

    /// The key of the present entry.
    pub(super) fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    /// Its write number.
    pub(super) fn seq(&self) -> Seq {
        self.cursor.seq()
    }

    /// Its stored record.
    pub(super) fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    /// As [`KeyCursor::value`], which outlives the next step.
    pub(super) fn value_slice(&self) -> Slice {
        self.cursor.value_slice()
    }

    /// The cost of the reads so far.
    pub(super) fn cost(&self) -> Cost {
        self.cursor.cost()
    }

    /// Moves to the next entry.
    pub(super) fn next(&mut self) -> Result<()> {
        self.cursor.next()?;
        self.skip_empty_spans()
    }

    /// At the end of a span, moves to the first entry of the next span that has one.
    fn skip_empty_spans(&mut self) -> Result<()> {
        while !self.cursor.valid()
            && let Some((lo, hi)) = self.next_spans.next()
        {
            self.cursor.within(&lo, hi.as_deref());
            self.cursor.seek_first()?;
        }
        Ok(())
    }
}
