//! Unique values: a batch must not leave two current records with the same value in an index that
//! is declared unique.
//!
//! What counts is the state after the batch, so a batch may move a value from one record to
//! another. The search follows the pattern of `pre_images.rs`: before the append, without a lock,
//! the index is searched for the values that the batch gives its records. Under the writer lock
//! only the memtables of the index are searched for newer entries of these values; if there is one,
//! or if the memtables were flushed, the search is repeated.
//!
//! **Invariant.** An index entry of a value is written with every record that has it, under the
//! number of the record. So if no entry of a value is newer than the search, no record that the
//! search did not see holds the value. While an index is built, it has the entries of later writes
//! only; those of earlier records are searched in the staging tree once that is complete, and
//! before that the build itself finds duplicates (`ddl/unique.rs`).
//!
//! A record that has expired holds no values. Here the time must be one that the store never takes
//! back ([`esker_lsm::Group::believed_time`]), unlike the time of reads.

use std::collections::HashMap;
use std::sync::Arc;

use esker_lsm::coding::{Misplaced, Own, Reader};
use esker_lsm::{Component, Cost, Cursor, Group, Kind, Seq, Snapshot, Time, TreeId};
use esker_model::Key;
use esker_model::range::{Range, after_prefix};
use esker_model::record::RecordRef;
use esker_model::schema::{Type, Value, compound_text};

use super::batch::DatasetWrites;
use super::pre_images::Conflict;
use crate::catalog::{Layout, UniqueIndex};
use crate::error::{Error, NotUnique, Result};
use crate::index::staging::each_staged;
use crate::index::{Attribute, BestCandidates, Looks, Window};
use crate::maintenance;
use crate::store::has_expired;

/// Searches one snapshot of a dataset for the records that hold a value.
pub(crate) struct Holders<'a> {
    /// The dataset's name.
    pub(crate) dataset: &'a str,
    layout: &'a Layout,
    snapshot: &'a Snapshot,
    /// Records that expire up to this time hold no values. `None` if no record of the dataset
    /// expires.
    time: Option<Time>,
}

/// A key that an index has for a value.
pub(crate) struct Holder {
    /// The index of the value among the searched ones.
    pub(crate) value_at: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
}

impl<'a> Holders<'a> {
    /// A search in `snapshot`, whose definition is `layout`.
    pub(crate) fn new(
        dataset: &'a str,
        layout: &'a Layout,
        snapshot: &'a Snapshot,
        group: &Group,
    ) -> Holders<'a> {
        Holders {
            dataset,
            layout,
            snapshot,
            time: layout.expiry.map(|_| group.believed_time()),
        }
    }

    /// True if a stored record has expired and cannot become current again.
    fn has_expired_for_good(&self, stored: &[u8]) -> bool {
        let Some(time) = self.time else {
            return false;
        };
        // Before the first record that expires, a snapshot has no time.
        RecordRef::expiry_of(stored).is_some_and(|expires| expires <= time)
            && (self.snapshot.time() == 0 || has_expired(self.snapshot, stored))
    }

    /// Adds the keys that an index and its staging tree have for `value`, also obsolete ones.
    /// `value_at` is the index of the value among the searched ones.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn search(
        &self,
        index: &UniqueIndex<'_>,
        value: &[u8],
        value_at: usize,
        holding: &mut Vec<Holder>,
    ) -> Result<()> {
        let (attribute, cost) = (index.attribute, Cost::default());
        let obsolete = (self.layout.superseded).and_then(|tree| self.snapshot.superseded(tree));
        let mut best = BestCandidates::new(Window::all()).without(obsolete.map(Arc::new));
        let looks = Looks::default();
        let lookup = maintenance::lookup(self.layout, self.snapshot, &cost, &cost, looks);
        let kind = attribute.index().ok_or_else(|| Misplaced::here())?;
        let range = Range::exactly(value.to_vec());
        kind.candidates(&lookup, attribute, &range, &mut best)?;
        let (candidates, _) = best.finish();
        holding.extend(candidates.into_iter().map(|candidate| Holder {
            value_at,
            key: candidate.key,
            seq: candidate.seq,
        }));
        let Some(staged) = index.staged else {
            return Ok(());
        };
        let mut add = |_: &[u8], key: &[u8], seq: Seq| -> Result<()> {
            let key = key.to_vec();
            holding.push(Holder { value_at, key, seq });
            Ok(())
        };
        each_staged(self.snapshot, staged, attribute, Some(value), 0, &mut add)
    }

    /// Keeps the keys whose records are current: the search found the entry of their last write.
    /// Sorts by key, then by the index of the value.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn retain_current(&self, holding: &mut Vec<Holder>) -> Result<()> {
        holding.sort_by(|a, b| (&a.key, a.value_at, a.seq).cmp(&(&b.key, b.value_at, b.seq)));
        let keys: Vec<&[u8]> = holding.iter().map(|holder| holder.key.as_slice()).collect();
        let mut is_current = vec![false; keys.len()];
        let mut note = |at: usize, record: esker_lsm::Found| {
            *is_current.own_mut(at) =
                record.seq == holding.own(at).seq && !self.has_expired_for_good(&record.value);
        };
        let cost = Cost::default();
        (self.snapshot).visit_batch(self.layout.data, &keys, &cost, &mut note)?;
        let mut at = 0;
        holding.retain(|_| {
            at += 1;
            *is_current.own(at - 1)
        });
        Ok(())
    }

    /// The error: the record of `key` has a value that the record of `holder` has.
    pub(crate) fn refusal(
        &self,
        attribute: &Attribute,
        value: &[u8],
        key: &[u8],
        holder: &[u8],
    ) -> Error {
        let ty = self.layout.stored.key_type;
        Error::NotUnique(Box::new(NotUnique {
            dataset: self.dataset.to_string(),
            path: attribute.path.clone(),
            value: display(attribute.ty, value),
            key: Key::from_encoded(ty, key.to_vec()),
            holder: Key::from_encoded(ty, holder.to_vec()),
        }))
    }
}

/// The text of an encoded value in an error message.
fn display(ty: Type, value: &[u8]) -> String {
    let text = if ty.is_compound() {
        compound_text(value)
    } else {
        Value::decode(ty, &mut Reader::new(value)).map(|value| value.to_string())
    };
    text.unwrap_or_else(|| format!("{value:02x?}"))
}

/// Passes to `show` the values of a record that no other record may have in an index.
pub(crate) fn each_unique(
    attribute: &Attribute,
    record: &RecordRef<'_>,
    show: &mut dyn FnMut(&[u8]),
) {
    attribute.any_value(record, |value| {
        if !attribute.may_be_shared(value) {
            show(value);
        }
        false
    });
}

/// A value that a record of the batch has.
struct Claim {
    /// The position of its index among the unique ones.
    index: usize,
    value: Vec<u8>,
    key: Vec<u8>,
    /// The ordinal of the record's write in the batch.
    ordinal: usize,
}

/// The values that the records of a batch must have alone.
pub(super) struct Claims {
    /// One per index.
    trees: Vec<SearchedTree>,
    /// The last write that the search saw.
    seq: Seq,
}

/// The tree of an index, and the beginnings of the keys that the claimed values have there
/// ([`IndexType::head`](crate::index::IndexType::head)), ascending.
struct SearchedTree {
    tree: TreeId,
    heads: Vec<Vec<u8>>,
}

impl SearchedTree {
    /// `claims` are values of one index, ascending.
    fn of(attribute: &Attribute, claims: &[Claim]) -> Result<SearchedTree> {
        let index = attribute.index().ok_or_else(|| Misplaced::here())?;
        let heads = claims.iter().map(|claim| {
            let mut head = Vec::new();
            index.head(&claim.value, &mut head);
            head
        });
        let heads: Vec<Vec<u8>> = heads.collect();
        debug_assert!(
            heads.is_sorted(),
            "heads of an index with unique values are in the order of the values"
        );
        Ok(SearchedTree {
            tree: attribute.index_tree()?,
            heads,
        })
    }
}

impl Claims {
    /// Searches the indexes for the values that the batch gives its records; `None` if it gives
    /// none that must be unique.
    ///
    /// # Errors
    /// [`Error::NotUnique`] if another current record has one of the values, or two records of the
    /// batch have the same.
    pub(super) fn look_up(part: &DatasetWrites, snapshot: &Snapshot) -> Result<Option<Claims>> {
        if !part.layout.has_unique() {
            return Ok(None);
        }
        let indexes = part.layout.unique_indexes();
        let name = part.dataset.name();
        let holders = Holders::new(&name, &part.layout, snapshot, &part.dataset.store.group);
        let written = StateAfterBatch::of(part, &indexes, &holders)?;
        let claims = written.claims;
        for pair in claims.windows(2) {
            if let [earlier, later] = pair
                && (earlier.index, &earlier.value) == (later.index, &later.value)
            {
                let attribute = indexes.own(later.index).attribute;
                let (value, key, holder) = (&later.value, &later.key, &earlier.key);
                return Err(holders.refusal(attribute, value, key, holder));
            }
        }
        let mut holding = Vec::new();
        for (at, claim) in claims.iter().enumerate() {
            holders.search(indexes.own(claim.index), &claim.value, at, &mut holding)?;
        }
        // The batch decides what its own records have.
        holding.retain(|holder| !written.last.contains_key(&holder.key));
        holders.retain_current(&mut holding)?;
        let first = holding
            .iter()
            .min_by_key(|holder| (claims.own(holder.value_at).ordinal, holder.value_at));
        if let Some(holder) = first {
            let claim = claims.own(holder.value_at);
            let attribute = indexes.own(claim.index).attribute;
            return Err(holders.refusal(attribute, &claim.value, &claim.key, &holder.key));
        }
        let mut trees = Vec::new();
        for of_index in claims.chunk_by(|a, b| a.index == b.index) {
            let first = of_index.first().ok_or_else(|| Misplaced::here())?;
            let attribute = indexes.own(first.index).attribute;
            trees.push(SearchedTree::of(attribute, of_index)?);
        }
        let seq = snapshot.seq();
        Ok((!trees.is_empty()).then_some(Claims { trees, seq }))
    }

    /// Checks that the result of the search is current. Called under the writer lock; `snapshot`
    /// has everything before the batch.
    ///
    /// # Errors
    /// [`Conflict::Changed`] if a later write than the search saw may have given a record one of
    /// the values; any read error.
    pub(super) fn check_current(&self, snapshot: &Snapshot) -> std::result::Result<(), Conflict> {
        // Entries of later writes are in the memtables, unless these were flushed.
        if snapshot.flushed() > self.seq {
            return Err(Conflict::Changed);
        }
        for SearchedTree { tree, heads } in &self.trees {
            let mut newer = snapshot.components(*tree);
            newer.retain(|component| match component {
                Component::Memtable(memtable) => {
                    memtable.seq_bounds().is_some_and(|(_, max)| max > self.seq)
                }
                Component::Run(_) => false,
            });
            if newer.is_empty() {
                continue;
            }
            let mut cursor = snapshot.entries_in(&newer, 0);
            for head in heads {
                cursor.within(head, after_prefix(head).as_deref());
                cursor.seek_first()?;
                while cursor.valid() {
                    if cursor.seq() > self.seq && cursor.kind() != Kind::Delete {
                        return Err(Conflict::Changed);
                    }
                    cursor.next()?;
                }
            }
        }
        Ok(())
    }
}

/// The state of the written keys after the batch.
struct StateAfterBatch {
    /// The ordinal of the last write of each key.
    last: HashMap<Vec<u8>, usize>,
    /// Ordered by index, value and ordinal.
    claims: Vec<Claim>,
}

impl StateAfterBatch {
    /// The state after the writes of `part`, with the claims on `indexes`.
    ///
    /// # Errors
    /// [`Misplaced`] if a put of the batch is not a record.
    fn of(
        part: &DatasetWrites,
        indexes: &[UniqueIndex<'_>],
        holders: &Holders<'_>,
    ) -> std::result::Result<StateAfterBatch, Misplaced> {
        let mut last: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut claims: Vec<Claim> = Vec::new();
        let mut next_ordinal = 0;
        let mut defect = None;
        part.writes.batch.each(&mut |tree, kind, key, stored| {
            if tree != part.layout.data {
                return;
            }
            let ordinal = next_ordinal;
            next_ordinal += 1;
            last.insert(key.to_vec(), ordinal);
            if kind != Kind::Put || holders.has_expired_for_good(stored) {
                return;
            }
            let Some(record) = RecordRef::parse(stored) else {
                defect = Some(Misplaced::here());
                return;
            };
            for (index, unique) in indexes.iter().enumerate() {
                each_unique(unique.attribute, &record, &mut |value| {
                    claims.push(Claim {
                        index,
                        value: value.to_vec(),
                        key: key.to_vec(),
                        ordinal,
                    });
                });
            }
        });
        if let Some(defect) = defect {
            return Err(defect);
        }
        // A later write of the same key replaces the record.
        claims.retain(|claim| last.get(&claim.key) == Some(&claim.ordinal));
        claims.sort_by(|a, b| (a.index, &a.value, a.ordinal).cmp(&(b.index, &b.value, b.ordinal)));
        claims.dedup_by(|b, a| (a.index, &a.value, a.ordinal) == (b.index, &b.value, b.ordinal));
        Ok(StateAfterBatch { last, claims })
    }
}
