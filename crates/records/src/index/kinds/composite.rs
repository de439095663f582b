//! The composite index (LevelDB++ section 4.2): a tree whose keys are value and primary key
//! together, without values. The type's encoding delimits the value, so a key is never found under
//! another value that it begins with.

use esker_lsm::read::estimate::Entries;
use esker_lsm::{Kind, RunSink, Seq, TreeOptions};

use crate::error::Result;
use crate::index::build::Build;
use crate::index::cost::{Access, AttributeProfile, Figures, Workload, percent};
use crate::index::estimate::ValuePosition;
use crate::index::kind::EntryWrites;
use crate::index::walk::walk;
use crate::index::{
    Attribute, BestCandidates, Entry, IndexEntry, IndexType, Lookup, Range, VisitPosting, Writes,
};

/// The composite index.
pub(super) struct Composite;

impl IndexType for Composite {
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        write(writes, Kind::Put, index_entry)
    }

    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        write(writes, Kind::Delete, index_entry)
    }

    /// Superseded entries are offered, too, because the query pipeline validates every candidate.
    /// Entries older than the K best are skipped by sequence bounds.
    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()> {
        let (lo, hi) = range.key_bounds();
        let bounds = (lo.as_slice(), hi.as_deref());
        let tree = attribute.index_tree()?;
        walk(
            lookup,
            tree,
            bounds,
            EntryWrites::One,
            best,
            &mut |entry, best| {
                if entry.kind == Kind::Put {
                    let (_, key) = attribute.split_key(self, entry.key)?;
                    best.offer(entry.seq, key);
                }
                Ok(())
            },
        )
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        lookup.estimate(attribute, range, ValuePosition::BeforeRecordKey, &Entries)
    }

    /// Keys are only searched by prefix, so there is no key filter. A key is an index entry, and
    /// has as many versions as the record.
    fn tree_options(&self, versions: usize) -> Option<TreeOptions> {
        Some(TreeOptions {
            filter_bits_per_key: 0,
            versions,
            ..TreeOptions::default()
        })
    }

    fn is_in_value_order(&self) -> bool {
        true
    }

    fn counts_by_component(&self) -> Option<EntryWrites> {
        Some(EntryWrites::One)
    }

    fn entries_of(
        &self,
        _attribute: &Attribute,
        entry: Entry<'_>,
        visit: &mut VisitPosting<'_>,
    ) -> Result<()> {
        visit(entry.value, entry.rest, entry.seq, false)
    }

    fn builder(&self) -> Option<Box<dyn Build>> {
        Some(Box::new(Builder::default()))
    }

    fn is_built_by_key(&self) -> bool {
        true
    }

    fn figures(&self) -> Figures {
        Figures {
            access: Access::Entries,
            write: 1.1,
            lookup: 45.0,
            row: 5.0,
            entry: 0.05,
            bytes: 6.0,
        }
    }

    fn why(&self, work: &Workload, _profile: &AttributeProfile) -> String {
        let (writes, queries) = (percent(work.writes), percent(work.queries()));
        if work.limited > 0.5 {
            format!(
                "{writes} of the operations are writes, {queries} query it: of the kinds with a tree of their own, the cheapest to write"
            )
        } else {
            format!(
                "{queries} of the operations query it, {} of them for all matches: entries in the order of the records' keys are cheapest to read whole",
                percent(1.0 - work.limited)
            )
        }
    }
}

/// Writes each index entry as it arrives.
#[derive(Default)]
pub(super) struct Builder {
    key: Vec<u8>,
}

impl Build for Builder {
    fn add(
        &mut self,
        value: &[u8],
        key: &[u8],
        seq: Seq,
        sink: &mut RunSink<'_>,
    ) -> esker_lsm::Result<()> {
        self.key.clear();
        self.key.extend_from_slice(value);
        self.key.extend_from_slice(key);
        sink(&self.key, seq, Kind::Put, &[])
    }
}

/// Adds an entry of this kind to the tree: value and key together.
fn write(writes: &mut Writes, kind: Kind, index_entry: IndexEntry<'_>) -> Result<()> {
    let mut key = std::mem::take(&mut writes.scratch);
    key.clear();
    key.extend_from_slice(index_entry.value);
    key.extend_from_slice(index_entry.key);
    let result = writes.also(kind, index_entry.attribute.index_tree()?, &key, &[]);
    writes.scratch = key;
    result
}
