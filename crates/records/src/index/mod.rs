//! The kinds of index. A kind knows how index entries (value, key, sequence number) are stored and found;
//! whether an index entry is still true is not its business: the query pipeline finds that out for all.

mod best;
pub(crate) mod build;
mod composite;
pub(crate) mod cost;
mod eager;
mod embedded;
pub(crate) mod every;
mod filter;
mod fingerprint;
mod lazy;
mod posting_merge;
mod purge;
mod recent;
mod seen;
mod walk;

use lsm::attributes::Summary;
use lsm::synopsis::ValueRange;
use lsm::{Batch, Cost, Cursor, Kind, MAX_SEQ, Savepoint, Seq, Snapshot, TreeId, TreeOptions};

pub use best::Order;
pub(crate) use best::{Best, Window};
pub(crate) use eager::{Heads, complete as complete_eager};
pub(crate) use filter::{Take, each_match};
pub(crate) use model::range::Range;

use crate::catalog::{Attribute, Layout};
use crate::error::Result;
pub(crate) use crate::maintenance::{CURRENT, Candidate};
use build::Build;
use cost::{AttributeProfile, Figures, Workload};
use model::definition::IndexKind;
use model::schema::Value;

/// "The record of `key` has `value`."
#[derive(Clone, Copy)]
pub(crate) struct IndexEntry<'a> {
    pub(crate) attribute: &'a Attribute,
    pub(crate) value: &'a [u8],
    pub(crate) key: &'a [u8],
}

/// What a batch of records writes.
#[derive(Default)]
pub(crate) struct Writes {
    pub(crate) batch: Batch,
    /// Changes to eager lists: they depend on what is there, and are worked out at the commit.
    pub(crate) eager: Vec<eager::Change>,
    pub(crate) scratch: Vec<u8>,
}

impl Writes {
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

/// What a lookup in an index works with.
pub(crate) struct Lookup<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) snapshot: &'a Snapshot,
    /// Cost of reads in the data tree, and in the index tree.
    pub(crate) data_cost: &'a Cost,
    pub(crate) index_cost: &'a Cost,
}

/// A kind of index. Writes share the sequence number of the record written just before.
pub(crate) trait Index: Sync {
    /// Adds an index entry.
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()>;
    /// Takes back an older index entry that is known to be obsolete.
    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()>;
    /// Offers candidates whose value lies in `range` to `best`: all of them, or at least the best
    /// that it asks for. May offer index entries that are obsolete, and the same record more than once.
    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut Best,
    ) -> Result<()>;
    /// About how many candidates `range` has, for planning: cheap, from metadata.
    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64>;

    /// The options of its tree, where it has one, that keeps the index entries of so many versions of a record; but for the
    /// policy.
    fn tree_options(&self, _versions: usize) -> Option<TreeOptions> {
        None
    }

    /// How tables summarise its attribute, where it is a part of the data.
    fn summary(&self) -> Option<Summary> {
        None
    }

    /// Shows the index entries of an entry of its tree.
    fn entries_of(
        &self,
        _attribute: &Attribute,
        _entry: Entry<'_>,
        _visit: &mut VisitPosting<'_>,
    ) -> Result<()> {
        Ok(())
    }

    /// Writes the oldest entries of its tree, where it has one, from index entries that are there already.
    fn builder(&self) -> Option<Box<dyn Build>> {
        None
    }

    /// True when a build wants the index entries of a value by key, not from the newest to the oldest.
    fn is_built_by_key(&self) -> bool {
        false
    }

    /// True when it goes through all records that its summaries let in, and so gives each once, in its newest version only:
    /// its index entries are the records themselves.
    fn is_filtered_scan(&self) -> bool {
        false
    }

    /// What a candidate costs the planner, in microseconds or so: fetched by key one at a time, or read in passing with the
    /// other records of its block.
    fn weight(&self) -> f64 {
        match self.summary() {
            Some(_) => 0.5,
            None => 2.0,
        }
    }

    /// What it costs, for the advisor.
    fn figures(&self) -> Figures;

    /// True when the advisor may recommend it.
    fn is_advised(&self) -> bool {
        true
    }

    /// Why it fits a workload best, in the words of the papers' diagram.
    fn why(&self, _work: &Workload, _profile: &AttributeProfile) -> String {
        String::new()
    }
}

/// An entry of an index's tree: the value that it is about, what its key has behind that, and the rest of it.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    value: &'a [u8],
    rest: &'a [u8],
    seq: Seq,
    stored: &'a [u8],
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
    }
}

/// [`Index::is_filtered_scan`] of a kind.
pub(crate) fn is_filtered_scan(kind: IndexKind) -> bool {
    of(kind).is_some_and(|index| index.is_filtered_scan())
}

/// The tree of a stand-alone attribute.
fn tree_of(attribute: &Attribute) -> Result<TreeId> {
    attribute.tree.ok_or_else(|| {
        crate::error::Error::damaged(format!(
            "attribute {}: its index tree is missing",
            attribute.path
        ))
    })
}

/// A range as the engine's synopses know it.
fn value_range(range: &Range) -> ValueRange {
    ValueRange {
        lo: range.lo.clone(),
        hi: range.hi.clone(),
    }
}

/// About how many entries of an index tree lie in `range`.
fn estimate_tree(lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
    let (lo, hi) = range.key_bounds();
    let tree = tree_of(attribute)?;
    Ok(lookup
        .snapshot
        .approximate(tree, &lo, hi.as_deref(), lookup.index_cost)?)
}

fn also(writes: &mut Writes, kind: Kind, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
    Ok(writes.batch.also(kind, tree, key, value)?)
}

/// Receives index entries: value, key, sequence number.
pub(crate) type FactVisitor<'v> = dyn FnMut(&[u8], &[u8], Seq) -> Result<()> + 'v;

/// Is given value, key and sequence number of an index entry.
pub(crate) type VisitFact<'v> = dyn FnMut(&[u8], &[u8], Seq) -> Result<()> + 'v;

/// Gives each index entry of a stand-alone index that lies between two keys of its tree (see
/// [`Range::key_bounds`]) to `visit`, in the order of the index: value, key, sequence number. Each
/// index entry comes once; those that were taken back may be among them or not.
pub(crate) fn each_fact(
    snapshot: &Snapshot,
    attribute: &Attribute,
    (lo, hi): (&[u8], Option<&[u8]>),
    readahead: usize,
    cost: &Cost,
    visit: &mut VisitFact<'_>,
) -> Result<()> {
    let mut cursor = snapshot.entries(tree_of(attribute)?, readahead);
    let mut last_key: Option<Vec<u8>> = None;
    cursor.seek(lo, MAX_SEQ)?;
    while cursor.valid() && hi.is_none_or(|hi| cursor.key() < hi) {
        let newest = last_key.as_deref() != Some(cursor.key());
        if newest {
            let last_key = last_key.get_or_insert_default();
            last_key.clear();
            last_key.extend_from_slice(cursor.key());
        }
        // Of puts only the newest of a key counts; operands are pieces of one list.
        if cursor.kind() == Kind::Operand || (newest && cursor.kind() == Kind::Put) {
            index_entries(attribute, cursor.key(), cursor.seq(), cursor.value(), visit)?;
        }
        cursor.next()?;
    }
    cost.absorb(&cursor.cost());
    Ok(())
}

/// Is given value, key and sequence number of an index entry, and whether it takes an older one back.
type VisitPosting<'v> = dyn FnMut(&[u8], &[u8], Seq, bool) -> Result<()> + 'v;

/// The index entries of one entry, without those that were taken back.
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

/// The index entries of one entry: value, key, sequence number, and whether it takes an older one back.
fn all_entries(
    attribute: &Attribute,
    entry_key: &[u8],
    seq: Seq,
    entry_value: &[u8],
    visit: &mut VisitPosting<'_>,
) -> Result<()> {
    let Some((value, rest)) = Value::split(attribute.ty, entry_key) else {
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
    match of(attribute.kind) {
        Some(index) => index.entries_of(attribute, entry, visit),
        None => Ok(()),
    }
}
