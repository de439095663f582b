//! The trait that each index type implements, and the types of its methods: an attribute with its
//! index, index entries, the writes of a batch, changes that are left to the commit, and ranges and
//! entries of an index's tree.

use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;

use esker_lsm::attributes::Summary;
use esker_lsm::coding::Misplaced;
use esker_lsm::table::KeyRange;
use esker_lsm::{Batch, Kind, Savepoint, Seq, Snapshot, TreeId, TreeOptions};
use esker_model::definition::Merging;
use esker_model::query::Attribute as Declared;
use esker_model::range::Range;
use esker_model::schema::{Type, Value};

use super::best_candidates::BestCandidates;
use super::build::Build;
use super::cost::{AttributeProfile, Figures, Workload};
use super::lookup::Lookup;
use crate::error::{Error, Result};

/// The writes that an entry of a tree represents.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EntryWrites {
    /// The write with the sequence number of the entry.
    One,
    /// That write and older ones: the entry is a list.
    OneAndOlder,
}

/// An attribute of a dataset with its index, according to one definition.
pub struct Attribute {
    /// The attribute itself, which is also in the layout's shape.
    pub(crate) declared: Arc<Declared>,
    /// The type of its index; `None` if it is not indexed.
    pub(crate) index: Option<Arc<dyn IndexType>>,
    /// The number of versions of a record that the index keeps entries of.
    pub(crate) versions: u32,
    /// The tree of a stand-alone index.
    pub(crate) tree: Option<TreeId>,
    /// The tree of the keys written since the index began, under deleted-key maintenance.
    pub(crate) deleted: Option<TreeId>,
    /// The tree of the values that writes replaced, of a range filter under eager maintenance.
    pub(crate) widened: Option<TreeId>,
    /// The index has the entries of all later writes.
    pub(crate) since: Seq,
    /// True while entries of earlier writes are missing in the index.
    pub(crate) incomplete: bool,
}

impl Deref for Attribute {
    type Target = Declared;

    #[inline]
    fn deref(&self) -> &Declared {
        &self.declared
    }
}

impl Attribute {
    /// The tree of its index.
    ///
    /// # Errors
    /// If the kind of the index has no tree.
    pub fn index_tree(&self) -> Result<TreeId> {
        self.tree.ok_or_else(|| {
            Error::damaged(format!(
                "attribute {}: its index tree is missing",
                self.path
            ))
        })
    }

    /// The type of its index; `None` if it is not indexed.
    #[inline]
    pub(crate) fn index(&self) -> Option<&dyn IndexType> {
        self.index.as_deref()
    }

    /// The type of its index.
    ///
    /// # Errors
    /// [`Misplaced`] if it is not indexed.
    #[inline]
    pub(crate) fn required_index(&self) -> Result<&dyn IndexType> {
        Ok(self.index().ok_or_else(|| Misplaced::here())?)
    }

    /// Splits a key of the tree of its `index` into the value and the rest ([`IndexType::split`]).
    ///
    /// # Errors
    /// Damage if the key is malformed.
    #[inline]
    pub(super) fn split_key<'k>(
        &self,
        index: &dyn IndexType,
        key: &'k [u8],
    ) -> Result<(&'k [u8], &'k [u8])> {
        let parts = index.split(self.ty, key);
        parts.ok_or_else(|| self.malformed("key"))
    }

    /// The error for something malformed in the tree of its index.
    #[cold]
    pub(super) fn malformed(&self, part: &str) -> Error {
        Error::damaged(format!("index of {}: malformed {part}", self.path))
    }

    /// The builder of the oldest tables of its index.
    pub(crate) fn builder(&self) -> Result<Box<dyn Build>> {
        let builder = self.index().and_then(IndexType::builder);
        builder.ok_or_else(|| Error::damaged(format!("an index of kind {} has no tree", self.kind)))
    }

    /// [`IndexType::brings_records`] of its index.
    pub(crate) fn brings_records(&self) -> bool {
        self.index().is_some_and(IndexType::brings_records)
    }

    /// [`IndexType::is_filtered_scan`] of its index.
    pub(crate) fn is_filtered_scan(&self) -> bool {
        self.index().is_some_and(IndexType::is_filtered_scan)
    }
}

/// An index entry: it states that the record of `key` has `value`.
#[derive(Clone, Copy)]
pub struct IndexEntry<'a> {
    /// The attribute that has the value.
    pub attribute: &'a Attribute,
    /// The encoded value ([`Value::split`] finds its end).
    pub value: &'a [u8],
    /// The encoded primary key of the record.
    pub key: &'a [u8],
    /// The stored record in two parts, if it is stored with this entry.
    pub(crate) record: Option<[&'a [u8]; 2]>,
}

/// The index writes of a batch of records.
#[derive(Default)]
pub struct Writes {
    /// The batch of the engine.
    pub(crate) batch: Batch,
    /// Changes that depend on the state of an index, and are computed at the commit.
    pub(crate) deferred: Vec<DeferredChange>,
    /// A buffer for the key or the value of an entry.
    pub(crate) scratch: Vec<u8>,
}

impl Writes {
    /// Adds an entry to the tree of an index, under the sequence number of the record written just
    /// before: a put or an operand with a value, or a delete.
    ///
    /// # Errors
    /// If the entry exceeds the maximum size of entries.
    pub fn write(
        &mut self,
        attribute: &Attribute,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.also(kind, attribute.index_tree()?, key, value)
    }

    /// Adds an entry to a tree, under the sequence number of the record written just before.
    pub(crate) fn also(
        &mut self,
        kind: Kind,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        Ok(self.batch.also(kind, tree, key, value)?)
    }

    /// Leaves the addition of an index entry to the commit, where the index computes what to write
    /// ([`IndexType::prepare`]).
    ///
    /// # Errors
    /// If the index has no tree.
    pub fn defer_add(&mut self, index_entry: IndexEntry<'_>) -> Result<()> {
        self.defer(index_entry, false)
    }

    /// As [`Writes::defer_add`], for the cancellation of an index entry.
    ///
    /// # Errors
    /// If the index has no tree.
    pub fn defer_cancel(&mut self, index_entry: IndexEntry<'_>) -> Result<()> {
        self.defer(index_entry, true)
    }

    /// Leaves the addition or the cancellation of an index entry to the commit.
    fn defer(&mut self, index_entry: IndexEntry<'_>, cancels: bool) -> Result<()> {
        let attribute = index_entry.attribute;
        let tree = attribute.index_tree()?;
        let index = (attribute.index.as_ref()).ok_or_else(|| Misplaced::here())?;
        // An entry follows the write of its record.
        let writes = self.batch.sequences();
        let ordinal = writes.checked_sub(1).ok_or_else(|| Misplaced::here())?;
        self.deferred.push(DeferredChange {
            index: index.clone(),
            tree,
            is_being_built: attribute.incomplete,
            versions: attribute.versions,
            value: index_entry.value.to_vec(),
            key: index_entry.key.to_vec(),
            cancels,
            ordinal,
        });
        Ok(())
    }

    /// Lets the indexes read the state that their deferred changes depend on.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn prepare(&self, snapshot: &Snapshot) -> Result<Vec<Box<dyn Completion>>> {
        let of_trees = by_tree(&self.deferred);
        let mut prepared = Vec::with_capacity(of_trees.len());
        for changes in of_trees {
            let first = changes.first().ok_or_else(|| Misplaced::here())?;
            prepared.push(first.index.prepare(&changes, snapshot)?);
        }
        Ok(prepared)
    }

    /// Adds to `batch` the entries of the deferred changes. `prepared` is the result of
    /// [`Writes::prepare`]; `seqs` are the sequence numbers from the first write to the last one of
    /// the batch. Called under the writer lock.
    pub(crate) fn complete(
        &self,
        prepared: &[Box<dyn Completion>],
        batch: &mut Batch,
        seqs: &RangeInclusive<Seq>,
        snapshot: &Snapshot,
    ) -> esker_lsm::Result<()> {
        let of_trees = by_tree(&self.deferred);
        if of_trees.len() != prepared.len() {
            return Err(Misplaced::here().into());
        }
        for (changes, completion) in of_trees.iter().zip(prepared) {
            completion.complete(changes, batch, seqs.clone(), snapshot)?;
        }
        Ok(())
    }

    /// The state to which [`Writes::rewind`] returns.
    pub(crate) fn savepoint(&self) -> WritesSavepoint {
        WritesSavepoint {
            batch: self.batch.savepoint(),
            deferred: self.deferred.len(),
        }
    }

    /// Removes the writes that were added since the savepoint.
    pub(crate) fn rewind(&mut self, savepoint: WritesSavepoint) {
        self.batch.rewind(savepoint.batch);
        self.deferred.truncate(savepoint.deferred);
    }

    /// Removes all writes.
    pub(crate) fn clear(&mut self) {
        self.batch.clear();
        self.deferred.clear();
    }
}

/// A state of [`Writes`] to return to.
#[derive(Clone, Copy)]
pub(crate) struct WritesSavepoint {
    batch: Savepoint,
    deferred: usize,
}

/// The changes of each tree, in the order in which they were made.
fn by_tree(changes: &[DeferredChange]) -> Vec<Vec<&DeferredChange>> {
    let mut trees: Vec<Vec<&DeferredChange>> = Vec::new();
    for change in changes {
        let same = |of_tree: &&mut Vec<&DeferredChange>| {
            of_tree
                .first()
                .is_some_and(|first| first.tree == change.tree)
        };
        match trees.iter_mut().find(same) {
            Some(of_tree) => of_tree.push(change),
            None => trees.push(vec![change]),
        }
    }
    trees
}

/// A change to an index that depends on the state of the index at the commit.
pub struct DeferredChange {
    index: Arc<dyn IndexType>,
    /// The tree of the index.
    pub tree: TreeId,
    /// True while the index is built.
    pub is_being_built: bool,
    /// The number of versions of a record that the index keeps entries of.
    pub versions: u32,
    /// The encoded value.
    pub value: Vec<u8>,
    /// The encoded primary key.
    pub key: Vec<u8>,
    /// True if the index entry is cancelled, false if it is added.
    pub cancels: bool,
    /// The index of its sequence number within the batch.
    pub ordinal: u32,
}

/// The state that an index has read for its deferred changes ([`IndexType::prepare`]).
pub trait Completion {
    /// Adds to `batch` the entries that the changes write to their tree. `seqs` are the sequence
    /// numbers from that of ordinal 0 to the last one of the batch. Called under the writer lock:
    /// it must read only memory.
    ///
    /// # Errors
    /// [`EngineError::Conflict`](esker_lsm::Error::Conflict) if the state of the index has changed
    /// since [`IndexType::prepare`], which is then repeated.
    fn complete(
        &self,
        changes: &[&DeferredChange],
        batch: &mut Batch,
        seqs: RangeInclusive<Seq>,
        snapshot: &Snapshot,
    ) -> esker_lsm::Result<()>;
}

/// Keys of an index's tree from `lo` (inclusive) to `hi` (exclusive; `None` is the end).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeRange {
    /// The first key.
    pub lo: Vec<u8>,
    /// The key after the last one; `None` is the end.
    pub hi: Option<Vec<u8>>,
    /// True if all index entries in it have values of the range that it was made for.
    pub exact: bool,
}

impl TreeRange {
    /// The keys as the engine takes them.
    pub(super) fn keys(&self) -> KeyRange<'_> {
        (&self.lo, self.hi.as_deref())
    }
}

impl From<(Vec<u8>, Option<Vec<u8>>)> for TreeRange {
    /// For exact bounds: [`Range::key_bounds`] of encoded heads.
    fn from((lo, hi): (Vec<u8>, Option<Vec<u8>>)) -> TreeRange {
        TreeRange {
            lo,
            hi,
            exact: true,
        }
    }
}

/// Receives value, key and sequence number of an index entry.
pub(crate) type VisitEntry<'v> = dyn FnMut(&[u8], &[u8], Seq) -> Result<()> + 'v;

/// Receives value, key and sequence number of an index entry, and whether it cancels an older one.
pub type VisitPosting<'v> = dyn FnMut(&[u8], &[u8], Seq, bool) -> Result<()> + 'v;

/// A kind of index: how its entries are written, found and built. A kind from another crate has its
/// own tree. Its writes share the sequence number of the record written just before; an entry that
/// a compaction may drop once that write is obsolete must not stand for any other write. No method
/// may block, or call the store except through its arguments.
pub trait IndexType: Send + Sync {
    /// Adds an index entry.
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()>;
    /// Cancels an older index entry that is known to be obsolete.
    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()>;
    /// Reads the state that the deferred changes of one of its trees ([`Writes::defer_add`]) depend
    /// on, for their completion at the commit. Only for types that defer.
    fn prepare(
        &self,
        _changes: &[&DeferredChange],
        _snapshot: &Snapshot,
    ) -> Result<Box<dyn Completion>> {
        Err(Error::Unsupported(
            "this index type has no changes that are completed at the commit".to_string(),
        ))
    }

    /// Offers to `best` the candidates whose value lies in `range`: all of them, or at least the
    /// best that it needs. May offer obsolete index entries, and the same record more than once.
    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()>;
    /// Estimates how many candidates `range` has, for planning. Must be cheap: metadata and at most
    /// three data blocks.
    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64>;

    /// The estimated cost of reading `expected` candidates of `range`, in about microseconds.
    /// Called after `estimate`.
    fn work(
        &self,
        _lookup: &Lookup<'_>,
        _attribute: &Attribute,
        _range: &Range,
        expected: u64,
    ) -> Result<f64> {
        Ok(expected as f64 * self.weight())
    }

    /// The beginning (head) of its tree's keys for a value: by default the value itself. Index
    /// entries are built in this order. A head must depend on the value only, differ for different
    /// values, and never be a prefix of another head.
    fn head(&self, value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(value);
    }

    /// The value that a key of its tree belongs to, and the rest of the key after its head; `None`
    /// for a malformed key.
    fn split<'k>(&self, ty: Type, key: &'k [u8]) -> Option<(&'k [u8], &'k [u8])> {
        Value::split(ty, key)
    }

    /// Ranges of keys that cover all keys of its tree with values in `range`, in order, without
    /// overlap.
    fn bounds(&self, range: &Range) -> Vec<TreeRange> {
        let Some(region) = range.regions.first() else {
            return vec![range.key_bounds().into()];
        };
        let of_cells = |(lo, hi)| TreeRange {
            lo,
            hi,
            exact: false,
        };
        region.key_ranges().map(of_cells).collect()
    }

    /// True if the keys of its tree are in the order of the encoded values, and each entry of the
    /// tree has index entries of one value.
    fn is_in_value_order(&self) -> bool {
        false
    }

    /// What an entry of its tree represents, if each posting is in one component of the tree only
    /// and the tree's keys begin with the encoded value. Then the entries of a value can be
    /// counted component by component.
    fn counts_by_component(&self) -> Option<EntryWrites> {
        None
    }

    /// True for a tree of points: each put is one index entry, and areas are ranges of its keys.
    fn is_of_points(&self) -> bool {
        false
    }

    /// True if the entries of its tree contain the records, so that a query reads nothing else for
    /// current entries.
    fn brings_records(&self) -> bool {
        false
    }

    /// The options of its tree, except the compaction policy, to keep the index entries of this
    /// many versions of a record. `None` if the kind has no tree.
    fn tree_options(&self, _versions: usize) -> Option<TreeOptions> {
        None
    }

    /// The compaction policy of its tree, given the policy of the dataset's other trees.
    fn merging(&self, of_dataset: Merging) -> Merging {
        of_dataset
    }

    /// How the tables of records summarise its attribute, if the index is part of them.
    fn summary(&self) -> Option<Summary> {
        None
    }

    /// Passes to the visitor the index entries in an entry of its tree, a put or an operand: value,
    /// key, sequence number, and whether it cancels an older one.
    fn entries_of(
        &self,
        _attribute: &Attribute,
        _entry: Entry<'_>,
        _visit: &mut VisitPosting<'_>,
    ) -> Result<()> {
        Ok(())
    }

    /// A builder that writes the first tables of its tree from existing index entries; `None` if
    /// the kind has no tree.
    fn builder(&self) -> Option<Box<dyn Build>> {
        None
    }

    /// True if a build needs the index entries of a value ordered by key instead of newest first.
    fn is_built_by_key(&self) -> bool {
        false
    }

    /// True if a query scans all records that the summaries admit, and so returns each record once,
    /// in its newest version. The records themselves are then the index entries.
    fn is_filtered_scan(&self) -> bool {
        false
    }

    /// The estimated cost of a candidate, in about microseconds: fetched by key one at a time, or
    /// read with the other records of its block.
    fn weight(&self) -> f64 {
        match self.summary() {
            Some(_) => 1.0,
            None => 4.0,
        }
    }

    /// Its costs, for the advisor.
    fn figures(&self) -> Figures;

    /// True if the advisor may recommend it.
    fn is_advised(&self) -> bool {
        true
    }

    /// Why it fits a workload best, as a sentence for people.
    fn why(&self, _work: &Workload, _profile: &AttributeProfile) -> String {
        String::new()
    }
}

/// An entry of an index's tree, split into its parts.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The encoded value.
    pub value: &'a [u8],
    /// The rest of the entry's key, after its head ([`IndexType::head`]).
    pub rest: &'a [u8],
    /// The sequence number of the write that created it.
    pub seq: Seq,
    /// The entry's value.
    pub stored: &'a [u8],
}
