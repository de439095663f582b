//! The index types. A type defines how index entries (value, key, sequence number) are stored and
//! found. Whether an entry is current is decided by the query pipeline, in the same way for all
//! types.
//!
//! Other crates add types by implementing [`Index`] (`crate::extension::index`).

mod best;
pub(crate) mod build;
mod composite;
pub(crate) mod cost;
mod eager;
mod embedded;
mod estimate;
pub(crate) mod every;
mod filter;
mod fingerprint;
mod lazy;
mod passing;
mod posting_merge;
mod purge;
mod queue;
mod recent;
mod seen;
mod spatial;
mod walk;

use esker_lsm::attributes::Summary;
pub(crate) use esker_lsm::read::estimate::Looks;
use esker_lsm::read::estimate::Sought;
use esker_lsm::synopsis::ValueRange;
use esker_lsm::table::KeyRange;
use esker_lsm::version::TableFile;
use esker_lsm::{Batch, Cost, Cursor, Kind, Savepoint, Seq, Snapshot, TreeId, TreeOptions};

pub use best::Best;
pub(crate) use best::Window;
pub use build::Build;
pub use cost::{Access, AttributeProfile, Figures};
pub(crate) use eager::{Heads, complete as complete_eager};
pub use esker_model::query::Order;
pub use esker_model::range::Range;
pub(crate) use filter::{Take, each_match};
pub(crate) use spatial::stands_for_record;
pub use walk::{Tells, TreeEntry};

use crate::catalog::{Attribute, Layout};
use crate::error::Result;
pub(crate) use crate::maintenance::{APART, CURRENT, Candidate};
use cost::Workload;
use esker_model::definition::{ExternalKind, IndexKind, Merging};
use esker_model::geometry::Bounds;
use esker_model::schema::{Type, Value};

/// "The record of `key` has `value`."
#[derive(Clone, Copy)]
pub struct IndexEntry<'a> {
    /// The attribute that has the value.
    pub attribute: &'a Attribute,
    /// The encoded value ([`Value::split`] finds its end).
    pub value: &'a [u8],
    /// The encoded primary key of the record.
    pub key: &'a [u8],
    /// The stored record in two parts, if it is stored with this entry; else nothing.
    pub(crate) record: [&'a [u8]; 2],
}

impl IndexEntry<'_> {
    /// The record is not stored with the entry.
    pub(crate) const APART: [&'static [u8]; 2] = [&[], &[]];
}

/// The index writes of a batch of records.
#[derive(Default)]
pub struct Writes {
    pub(crate) batch: Batch,
    /// Changes to eager lists, which depend on the lists' current state and are computed at the
    /// commit.
    pub(crate) eager: Vec<eager::Change>,
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
        also(self, kind, attribute.index_tree()?, key, value)
    }

    pub(crate) fn savepoint(&self) -> (Savepoint, usize) {
        (self.batch.savepoint(), self.eager.len())
    }

    pub(crate) fn rewind(&mut self, savepoint: (Savepoint, usize)) {
        self.batch.rewind(savepoint.0);
        self.eager.truncate(savepoint.1);
    }

    pub(crate) fn clear(&mut self) {
        self.batch.clear();
        self.eager.clear();
    }
}

/// The context of a lookup in an index.
pub struct Lookup<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) snapshot: &'a Snapshot,
    /// Cost of reads in the data tree, and in the index tree.
    pub(crate) data_cost: &'a Cost,
    pub(crate) index_cost: &'a Cost,
    /// Data blocks that may be read for an estimate. None, unless the planner compares.
    pub(crate) looks: Looks,
}

impl Lookup<'_> {
    /// The snapshot that the lookup reads.
    pub fn snapshot(&self) -> &Snapshot {
        self.snapshot
    }

    /// Counts the reads of the index, and cancels them.
    pub fn cost(&self) -> &Cost {
        self.index_cost
    }

    /// Passes to `visit` the entries of the attribute's tree between two keys that may be relevant
    /// for `best`, the best first as far as tables and blocks show it. They include superseded
    /// entries and deletes.
    ///
    /// # Errors
    /// Any read error, and any error of `visit`.
    pub fn walk(
        &self,
        attribute: &Attribute,
        bounds: (&[u8], Option<&[u8]>),
        tells: Tells,
        best: &mut Best,
        visit: &mut dyn FnMut(TreeEntry<'_>, &mut Best) -> Result<()>,
    ) -> Result<()> {
        walk::walk(self, attribute.index_tree()?, bounds, tells, best, visit)
    }

    /// Estimates how many entries of the attribute's tree lie between two keys, without deletes.
    /// Reads metadata, and at most one data block if the metadata is not precise enough for the
    /// plan.
    ///
    /// # Errors
    /// Any read error.
    pub fn approximate(
        &self,
        attribute: &Attribute,
        (lo, hi): (&[u8], Option<&[u8]>),
    ) -> Result<u64> {
        let sought = Sought {
            lo,
            hi,
            key: None,
            part: None,
            is_one: false,
        };
        self.estimate_where(attribute, sought, &estimate::ENTRIES, &|_| true)
    }

    /// As [`Lookup::approximate`], for several ranges in order, in the tables for which `meets` is
    /// true.
    fn approximate_where<'r>(
        &self,
        attribute: &Attribute,
        ranges: impl Iterator<Item = &'r TreeRange>,
        meets: &dyn Fn(&TableFile) -> bool,
    ) -> Result<u64> {
        let (tree, cost) = (attribute.index_tree()?, self.index_cost);
        let ranges = ranges.map(|range| (range.lo.as_slice(), range.hi.as_deref()));
        let ranges: Vec<_> = ranges.collect();
        Ok(self
            .snapshot
            .approximate_where(tree, &ranges, meets, cost)?)
    }
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

/// A kind of index: how its entries are written, found and built. A kind from another crate has its
/// own tree. Its writes share the sequence number of the record written just before; an entry that
/// a compaction may drop once that write is obsolete must not stand for any other write. No method
/// may block, or call the store except through its arguments.
pub trait Index: Send + Sync {
    /// Adds an index entry.
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()>;
    /// Cancels an older index entry that is known to be obsolete.
    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()>;
    /// Offers to `best` the candidates whose value lies in `range`: all of them, or at least the
    /// best that it needs. May offer obsolete index entries, and the same record more than once.
    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut Best,
    ) -> Result<()>;
    /// Estimates how many candidates `range` has, for planning. Must be cheap: metadata and at most
    /// one data block.
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

    /// How its tree is compacted, given the policy of the dataset's other trees.
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
    /// in its newest version: the records themselves are the index entries.
    fn is_filtered_scan(&self) -> bool {
        false
    }

    /// The estimated cost of a candidate, in about microseconds: fetched by key one at a time, or
    /// read with the other records of its block.
    fn weight(&self) -> f64 {
        match self.summary() {
            Some(_) => 0.5,
            None => 2.0,
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
    /// The rest of the entry's key, after its head ([`Index::head`]).
    pub rest: &'a [u8],
    /// The sequence number of the write that created it.
    pub seq: Seq,
    /// The entry's value.
    pub stored: &'a [u8],
}

/// A registered index type of another crate.
type Registered = Box<dyn Index>;

/// Registers a kind from another crate for the rest of the process. Stores that have indexes of
/// this kind can be opened only after this.
///
/// # Errors
/// [`Error::BadInput`](crate::Error::BadInput) if the name is registered already, or is not 3 to 32
/// lower-case letters, digits and `-`, beginning with a letter, with a `-` inside. The name is
/// stored on disk, so it must never change.
pub fn register(name: &str, index: impl Index + 'static) -> Result<IndexKind> {
    let registered: Registered = Box::new(index);
    let kind = ExternalKind::register(name, Box::new(registered))?;
    Ok(IndexKind::External(kind))
}

/// The kind that is registered under this name.
pub fn registered(name: &str) -> Option<IndexKind> {
    ExternalKind::named(name).map(IndexKind::External)
}

/// The index of a kind; `None` for [`IndexKind::None`].
pub(crate) fn of(kind: IndexKind) -> Option<&'static dyn Index> {
    match kind {
        IndexKind::None => None,
        IndexKind::Embedded => Some(&embedded::Embedded),
        IndexKind::Fingerprint => Some(&fingerprint::Fingerprint),
        IndexKind::Filter => Some(&filter::Filter),
        IndexKind::Eager => Some(&eager::Eager),
        IndexKind::Lazy => Some(&lazy::Lazy),
        IndexKind::Composite => Some(&composite::Composite),
        IndexKind::Recent => Some(&recent::Recent),
        IndexKind::Spatial(layout) => Some(spatial::of(layout)),
        IndexKind::SpaceTime(layout) => Some(spatial::of_timed(layout)),
        IndexKind::External(kind) => {
            let registered = kind.implementation().downcast_ref::<Registered>()?;
            Some(registered.as_ref())
        }
    }
}

/// The bounding box of a table of a spatially partitioned tree.
pub(crate) fn box_of(file: &TableFile) -> Option<Bounds> {
    spatial::box_of(file).map(|(bounds, _)| bounds)
}

/// [`Index::brings_records`] of a kind.
pub(crate) fn brings_records(kind: IndexKind) -> bool {
    of(kind).is_some_and(|index| index.brings_records())
}

/// [`Index::is_filtered_scan`] of a kind.
pub(crate) fn is_filtered_scan(kind: IndexKind) -> bool {
    of(kind).is_some_and(|index| index.is_filtered_scan())
}

/// The tree of a stand-alone attribute.
fn tree_of(attribute: &Attribute) -> Result<TreeId> {
    attribute.index_tree()
}

/// The range in the form that the engine's synopses use.
fn value_range(range: &Range) -> ValueRange {
    ValueRange {
        lo: range.lo.clone(),
        hi: range.hi.clone(),
        boxes: None,
    }
}

fn also(writes: &mut Writes, kind: Kind, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
    Ok(writes.batch.also(kind, tree, key, value)?)
}

/// Receives index entries: value, key, sequence number.
pub(crate) type FactVisitor<'v> = dyn FnMut(&[u8], &[u8], Seq) -> Result<()> + 'v;

/// Receives value, key and sequence number of an index entry.
pub(crate) type VisitFact<'v> = dyn FnMut(&[u8], &[u8], Seq) -> Result<()> + 'v;

/// Visits each index entry of a stand-alone index once, or those whose values lie in `range`.
/// Obsolete entries may be included or not. The order is that of the index, except for points in an
/// area.
pub(crate) fn each_fact(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: Option<&Range>,
    readahead: usize,
    visit: &mut VisitFact<'_>,
) -> Result<()> {
    if let Some(range) = range
        && !range.regions.is_empty()
        && of(attribute.kind).is_some_and(|index| index.is_of_points())
    {
        return each_point(lookup, attribute, range, visit);
    }
    let all = TreeRange {
        lo: Vec::new(),
        hi: None,
        exact: true,
    };
    let bounds = range.and_then(|range| Some(of(attribute.kind)?.bounds(range)));
    let mut cursor = lookup.snapshot.entries(tree_of(attribute)?, readahead);
    for TreeRange { lo, hi, exact } in bounds.unwrap_or_else(|| vec![all]) {
        let filter = range.filter(|_| !exact);
        let mut inside = |value: &[u8], key: &[u8], seq| match filter {
            Some(range) if !range.contains(value) => Ok(()),
            _ => visit(value, key, seq),
        };
        let mut last_key: Option<Vec<u8>> = None;
        cursor.within(&lo, hi.as_deref());
        cursor.seek_first()?;
        while cursor.valid() {
            let newest = last_key.as_deref() != Some(cursor.key());
            if newest {
                let last_key = last_key.get_or_insert_default();
                last_key.clear();
                last_key.extend_from_slice(cursor.key());
            }
            // Only the newest put of a key counts; operands are pieces of one list.
            if cursor.kind() == Kind::Operand || (newest && cursor.kind() == Kind::Put) {
                let (key, seq, value) = (cursor.key(), cursor.seq(), cursor.value());
                index_entries(attribute, key, seq, value, &mut inside)?;
            }
            cursor.next()?;
        }
    }
    lookup.index_cost.absorb(&cursor.cost());
    Ok(())
}

/// Visits the puts in a tree of points whose points lie in `range`, superseded ones included, in no
/// order.
pub(crate) fn each_point(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    visit: &mut VisitFact<'_>,
) -> Result<()> {
    let mut all = Best::new(Window::all());
    each_put(
        lookup,
        attribute,
        range,
        &mut all,
        &mut |value, key, entry, _| visit(value, key, entry.seq),
    )
}

/// Receives key, sequence number and record of an entry in the tree of a clustered attribute.
pub(crate) type VisitPlaced<'v> = dyn FnMut(&[u8], Seq, &[u8]) -> Result<()> + 'v;

/// As [`each_point`], in the tree of a clustered attribute, with the records. A record with several
/// times in the range is visited once.
pub(crate) fn each_placed(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    visit: &mut VisitPlaced<'_>,
) -> Result<()> {
    let mut all = Best::new(Window::all());
    each_put(
        lookup,
        attribute,
        range,
        &mut all,
        &mut |value, key, entry, _| {
            let admits = |value: &[u8]| range.contains(value);
            match stands_for_record(attribute, (value, entry.value), admits)? {
                true => visit(key, entry.seq, entry.value),
                false => Ok(()),
            }
        },
    )
}

/// Receives value and key of an entry, the entry, and the candidates so far.
type VisitPut<'v> = dyn FnMut(&[u8], &[u8], &TreeEntry<'_>, &mut Best) -> Result<()> + 'v;

/// As [`each_point`], only for entries that `best` may need.
fn each_put(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    best: &mut Best,
    visit: &mut VisitPut<'_>,
) -> Result<()> {
    let Some(index) = of(attribute.kind) else {
        return Ok(());
    };
    let tree = tree_of(attribute)?;
    let keep = |file: &TableFile| spatial::meets(file, range);
    let bounds = spatial::bounds(lookup, attribute, range, index)?;
    let ranges: Vec<KeyRange<'_>> = bounds
        .iter()
        .map(|bounds| (bounds.lo.as_slice(), bounds.hi.as_deref()))
        .collect();
    let exact = bounds.iter().all(|bounds| bounds.exact);
    let visit =
        &mut |entry: TreeEntry<'_>, best: &mut Best| match index.split(attribute.ty, entry.key) {
            Some((value, key)) if entry.kind == Kind::Put && (exact || range.contains(value)) => {
                visit(value, key, &entry, best)
            }
            _ => Ok(()),
        };
    walk::walk_where(lookup, tree, &ranges, &keep, Tells::One, best, visit)
}

/// Receives value, key and sequence number of an index entry, and whether it cancels an older one.
pub type VisitPosting<'v> = dyn FnMut(&[u8], &[u8], Seq, bool) -> Result<()> + 'v;

/// The index entries in an entry of the tree, without cancellations.
fn index_entries(
    attribute: &Attribute,
    entry_key: &[u8],
    seq: Seq,
    entry_value: &[u8],
    visit: &mut FactVisitor<'_>,
) -> Result<()> {
    let mut put = |value: &[u8], key: &[u8], seq, cancel: bool| match cancel {
        true => Ok(()),
        false => visit(value, key, seq),
    };
    all_entries(attribute, entry_key, seq, entry_value, &mut put)
}

/// The index entries in an entry of the tree: value, key, sequence number, and whether it cancels
/// an older one.
fn all_entries(
    attribute: &Attribute,
    entry_key: &[u8],
    seq: Seq,
    entry_value: &[u8],
    visit: &mut VisitPosting<'_>,
) -> Result<()> {
    let Some(index) = of(attribute.kind) else {
        return Ok(());
    };
    let Some((value, rest)) = index.split(attribute.ty, entry_key) else {
        return Err(crate::error::Error::damaged(format!(
            "index of {}: malformed key",
            attribute.path
        )));
    };
    let entry = Entry {
        value,
        rest,
        seq,
        stored: entry_value,
    };
    index.entries_of(attribute, entry, visit)
}
