//! The index entries of a stand-alone index in the order of their values, from either end.
//!
//! Of the puts of one key of the tree only the newest counts. Going forward it comes first; going
//! backward it comes last, so a put is held back until the key changes. Operands of a key are
//! pieces of one list, and all count.

use std::ops::ControlFlow;

use esker_lsm::{Cursor, EntryCursor, Kind, Seq, Slice};
use esker_model::range::after_prefix;
use esker_model::schema::other;

use super::each::index_entries;
use super::kind::{Attribute, VisitEntry};
use super::lookup::Lookup;
use crate::error::Result;

/// Keys of an index tree from the first (inclusive) to the second (exclusive; `None` is the end).
pub(crate) type Bounds = (Vec<u8>, Option<Vec<u8>>);

/// A walk through an index whose tree is in the order of its values
/// ([`IndexType::is_in_value_order`](super::IndexType::is_in_value_order)).
pub(crate) struct InOrder<'a> {
    attribute: &'a Attribute,
    lookup: &'a Lookup<'a>,
    cursor: EntryCursor,
    is_backward: bool,
    has_begun: bool,
    /// The newest put so far of the current key: going backward, a newer one may follow.
    put: Option<Put>,
    /// The current key of the tree; empty at the beginning.
    key: Vec<u8>,
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
    /// ([`other`]).
    pub(crate) fn new(
        lookup: &'a Lookup<'a>,
        attribute: &'a Attribute,
        is_backward: bool,
        readahead: usize,
    ) -> Result<InOrder<'a>> {
        let hi = other(attribute.ty).map(<[u8]>::to_vec);
        let bounds = (Vec::new(), hi);
        InOrder::within(lookup, attribute, is_backward, readahead, &bounds)
    }

    /// True if `counts` accepts one of the entries of the stand-in for values that have no
    /// encoding, by its key and number. True also for types without a stand-in.
    pub(crate) fn any_other(
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        counts: &mut dyn FnMut(&[u8], Seq) -> Result<bool>,
    ) -> Result<bool> {
        let Some(stand_in) = other(attribute.ty) else {
            return Ok(true);
        };
        InOrder::any_within(lookup, attribute, &(stand_in.to_vec(), None), counts)
    }

    /// True if `counts` accepts one of the entries with values in the bounds.
    pub(crate) fn any_within(
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        bounds: &Bounds,
        counts: &mut dyn FnMut(&[u8], Seq) -> Result<bool>,
    ) -> Result<bool> {
        let mut walk = InOrder::within(lookup, attribute, false, 0, bounds)?;
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
        is_backward: bool,
        readahead: usize,
        (lo, hi): &Bounds,
    ) -> Result<InOrder<'a>> {
        let tree = attribute.index_tree()?;
        let mut cursor = lookup.snapshot.entries(tree, readahead);
        cursor.within(lo, hi.as_deref());
        Ok(InOrder {
            attribute,
            lookup,
            cursor,
            is_backward,
            has_begun: false,
            put: None,
            key: Vec::new(),
        })
    }

    /// The bounds of the values from `value` on, in the walk's direction, without the stand-in.
    pub(crate) fn bounds_from(attribute: &Attribute, value: &[u8], is_backward: bool) -> Bounds {
        let end = other(attribute.ty).map(<[u8]>::to_vec);
        if is_backward {
            (Vec::new(), after_prefix(value).or(end))
        } else {
            (value.to_vec(), end)
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
        let is_new = !self.has_key() || self.cursor.key() != self.key.as_slice();
        if is_new {
            self.take_put(visit)?;
            self.key.clear();
            self.key.extend_from_slice(self.cursor.key());
        }
        let (seq, kind) = (self.cursor.seq(), self.cursor.kind());
        if kind == Kind::Operand {
            // Operands are pieces of one list.
            index_entries(self.attribute, &self.key, seq, self.cursor.value(), visit)?;
        } else if self.is_backward {
            self.put = Some(Put {
                key: self.key.clone(),
                seq,
                kind,
                value: self.cursor.value_slice(),
            });
        } else if is_new && kind == Kind::Put {
            // Only the newest put of a key counts.
            index_entries(self.attribute, &self.key, seq, self.cursor.value(), visit)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Keys of index trees are never empty.
    fn has_key(&self) -> bool {
        !self.key.is_empty()
    }

    /// Moves the cursor in the walk's direction.
    fn advance(&mut self) -> Result<()> {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        if !has_begun && self.is_backward {
            self.cursor.seek_last()?;
        } else if !has_begun {
            self.cursor.seek_first()?;
        } else if self.is_backward {
            self.cursor.prev()?;
        } else {
            self.cursor.next()?;
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
