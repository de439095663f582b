//! The index entries of a stand-alone index in the order of their values, from either end.
//!
//! Of the puts of one key of the tree only the newest counts. Going forward it comes first; going
//! backward it comes last, so a put is held back until the key changes. Operands of a key are
//! pieces of one list, and all count.

use std::ops::ControlFlow;

use esker_lsm::{Cursor, EntryCursor, Kind, Seq, Slice};
use esker_model::query::Direction;
use esker_model::range::after_prefix;
use esker_model::schema::stand_in;

use super::each::index_entries;
use super::kind::{Attribute, VisitEntry};
use super::lookup::Lookup;
use crate::error::Result;

/// Keys of an index tree from the first (inclusive) to the second (exclusive; `None` is the end).
pub(crate) type KeyBounds = (Vec<u8>, Option<Vec<u8>>);

/// A walk through an index whose tree is in the order of its values
/// ([`IndexType::is_in_value_order`](super::IndexType::is_in_value_order)).
pub(crate) struct InOrder<'a> {
    attribute: &'a Attribute,
    lookup: &'a Lookup<'a>,
    cursor: EntryCursor,
    direction: Direction,
    /// The newest put so far of the current key: going backward, a newer one may follow.
    put: Option<Put>,
    /// The current key of the tree; `None` before the first entry.
    key: Option<Vec<u8>>,
}

/// An entry of the tree that is a put or a deletion.
struct Put {
    key: Vec<u8>,
    seq: Seq,
    kind: Kind,
    value: Slice,
}

impl<'a> InOrder<'a> {
    /// A walk over all values, except for the stand-in for values that have no encoding
    /// ([`stand_in`]).
    pub(crate) fn new(
        lookup: &'a Lookup<'a>,
        attribute: &'a Attribute,
        direction: Direction,
        readahead: usize,
    ) -> Result<InOrder<'a>> {
        let hi = stand_in(attribute.ty).map(<[u8]>::to_vec);
        let bounds = (Vec::new(), hi);
        InOrder::within(lookup, attribute, direction, readahead, &bounds)
    }

    /// True if `counts` accepts one of the entries of the stand-in for values that have no
    /// encoding, by its key and number. True also for types without a stand-in.
    pub(crate) fn any_stand_in(
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        counts: &mut dyn FnMut(&[u8], Seq) -> Result<bool>,
    ) -> Result<bool> {
        let Some(stand_in) = stand_in(attribute.ty) else {
            return Ok(true);
        };
        InOrder::any_within(lookup, attribute, &(stand_in.to_vec(), None), counts)
    }

    /// True if `counts` accepts one of the entries with values in the bounds.
    pub(crate) fn any_within(
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        bounds: &KeyBounds,
        counts: &mut dyn FnMut(&[u8], Seq) -> Result<bool>,
    ) -> Result<bool> {
        let mut walk = InOrder::within(lookup, attribute, Direction::Ascending, 0, bounds)?;
        let mut has_any = false;
        while !has_any {
            let step = walk.step(&mut |_, key, seq| {
                has_any = has_any || counts(key, seq)?;
                Ok(())
            })?;
            if step.is_break() {
                break;
            }
        }
        Ok(has_any)
    }

    /// A walk over the entries whose values lie in the bounds, which begin and end between values.
    pub(crate) fn within(
        lookup: &'a Lookup<'a>,
        attribute: &'a Attribute,
        direction: Direction,
        readahead: usize,
        (lo, hi): &KeyBounds,
    ) -> Result<InOrder<'a>> {
        let tree = attribute.index_tree()?;
        let mut cursor = lookup.snapshot.entries(tree, readahead);
        cursor.within(lo, hi.as_deref());
        Ok(InOrder {
            attribute,
            lookup,
            cursor,
            direction,
            put: None,
            key: None,
        })
    }

    /// The bounds of the values from `value` on in this direction, without the stand-in.
    pub(crate) fn bounds_from(
        attribute: &Attribute,
        value: &[u8],
        direction: Direction,
    ) -> KeyBounds {
        let end = stand_in(attribute.ty).map(<[u8]>::to_vec);
        match direction {
            Direction::Ascending => (value.to_vec(), end),
            Direction::Descending => (Vec::new(), after_prefix(value).or(end)),
        }
    }

    /// Advances to the next entry of the tree, and visits index entries that are complete by then:
    /// those of this entry, or of the put held back. Skips cancellations. Breaks at the end.
    #[inline]
    pub(crate) fn step(&mut self, visit: &mut VisitEntry<'_>) -> Result<ControlFlow<()>> {
        self.advance()?;
        if !self.cursor.valid() {
            self.take_put(visit)?;
            return Ok(ControlFlow::Break(()));
        }
        let (key, seq, kind) = (self.cursor.key(), self.cursor.seq(), self.cursor.kind());
        let is_new = self.key.as_deref() != Some(key);
        // Operands are pieces of one list; of puts, only the newest one of a key counts.
        let is_complete = match self.direction {
            Direction::Ascending => is_new && kind == Kind::Put,
            Direction::Descending => false,
        };
        if is_new {
            self.take_put(visit)?;
            let key = self.key.get_or_insert_default();
            key.clear();
            key.extend_from_slice(self.cursor.key());
        }
        if kind == Kind::Operand || is_complete {
            let (key, value) = (self.cursor.key(), self.cursor.value());
            index_entries(self.attribute, key, seq, value, visit)?;
        } else if self.direction == Direction::Descending {
            self.put = Some(Put {
                key: self.cursor.key().to_vec(),
                seq,
                kind,
                value: self.cursor.value_slice(),
            });
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Moves the cursor in the walk's direction.
    fn advance(&mut self) -> Result<()> {
        match (self.direction, &self.key) {
            (Direction::Ascending, None) => self.cursor.seek_first()?,
            (Direction::Ascending, Some(_)) => self.cursor.next()?,
            (Direction::Descending, None) => self.cursor.seek_last()?,
            (Direction::Descending, Some(_)) => self.cursor.prev()?,
        }
        Ok(())
    }

    /// Visits the index entries of the put that was held back, unless it is a deletion.
    fn take_put(&mut self, visit: &mut VisitEntry<'_>) -> Result<()> {
        match self.put.take() {
            Some(put) if put.kind == Kind::Put => {
                index_entries(self.attribute, &put.key, put.seq, &put.value, visit)
            }
            _ => Ok(()),
        }
    }
}

impl Drop for InOrder<'_> {
    fn drop(&mut self) {
        self.lookup.index_cost.absorb(&self.cursor.cost());
    }
}
