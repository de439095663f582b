//! A snapshot: a version of the tables, the memtables beside it, and a sequence number. A query
//! runs against one snapshot for all trees; a snapshot never changes, and writers do not wait for
//! it. It pins its files and memtables: hold it as long as a query takes, not longer.

use std::sync::Arc;

use crate::batch::TreeId;
use crate::cost::Cost;
use crate::entry::{Kind, Seq, TIMED_LEN, Time, Timed};
use crate::error::Result;
use crate::expiry::Horizon;
use crate::generation::View;
use crate::memtable::Memtable;
use crate::obsolete::Superseded;
use crate::read::SourceCursor;
use crate::read::component::{Component, Entries};
use crate::read::lens::{Lens, Shown};
use crate::read::tree_cursor::{EntryCursor, TreeCursor};
use crate::stop::Stop;
use crate::table::ReadOptions;
use crate::version::{TableFile, TreeVersion, Version};
use esker_coding::Slice;

/// A consistent view of a group.
#[derive(Clone)]
pub struct Snapshot {
    view: Arc<View>,
    seq: Seq,
    horizon: Horizon,
    stop: Option<Stop>,
}

/// A value returned by a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The sequence number of the write that set it.
    pub seq: Seq,
    /// Put, or operand in a tree of operands.
    pub kind: Kind,
    /// The value.
    pub value: Slice,
}

impl Snapshot {
    pub(crate) fn new(view: Arc<View>, seq: Seq, horizon: Horizon) -> Snapshot {
        Snapshot {
            view,
            seq,
            horizon,
            stop: None,
        }
    }

    /// The time by which expired entries are hidden; 0 in a store where none expires.
    pub fn time(&self) -> Time {
        self.horizon.now
    }

    /// True when what expires at that time has expired for this snapshot: for layers that keep
    /// times in their values. The time is written down before this returns, as for entries that
    /// expire: nothing comes back when the clock is set back.
    #[inline]
    pub fn has_expired(&self, expires: Time) -> bool {
        self.horizon.hides(expires)
    }

    /// The same snapshot, whose reads `stop` stops, if given: those of its cursors and walks, and
    /// those counted by [`Snapshot::cost`].
    pub fn with_stop(self, stop: Option<Stop>) -> Snapshot {
        Snapshot { stop, ..self }
    }

    /// A cost counter for reads of this snapshot, which carries its stop token.
    pub fn cost(&self) -> Cost {
        Cost::until(self.stop.as_ref())
    }

    /// Refuses reads after the group was closed: for operations that might answer without a lookup
    /// or a cursor.
    ///
    /// # Errors
    /// [`crate::Error::Closed`].
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.view.check_open()
    }

    /// The last visible sequence number.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The trees and their tables.
    pub fn version(&self) -> &Version {
        &self.view.version
    }

    fn tree(&self, tree: TreeId) -> Option<&Arc<TreeVersion>> {
        self.view.version.trees.get(&tree)
    }

    /// The newest value of `key`, `None` when it has none or was deleted. Searches the memtables,
    /// then probes one filter per run whose key range includes `key`; reads one data block for a
    /// hit.
    pub fn get(&self, tree: TreeId, key: &[u8], cost: &Cost) -> Result<Option<Found>> {
        self.view.check_open()?;
        for memtable in self.view.memtables(tree) {
            if let Some(entry) = memtable.get(key, self.seq) {
                let (seq, kind) = (entry.seq, entry.kind);
                if kind == Kind::Timed {
                    return self.get_timed(tree, key, seq, entry.value.into());
                }
                return Ok((kind != Kind::Delete).then(|| Found {
                    seq,
                    kind,
                    value: Slice::from(entry.value),
                }));
            }
        }
        let Some(version) = self.tree(tree) else {
            return Ok(None);
        };
        for run in &version.runs {
            let Some(table) = run.table_for(key) else {
                continue;
            };
            if let Some(found) = table.table()?.get(key, cost)? {
                let (seq, kind, value) = (found.seq, found.kind, found.value);
                if kind == Kind::Timed {
                    return self.get_timed(tree, key, seq, value);
                }
                return Ok((kind != Kind::Delete).then_some(Found { seq, kind, value }));
            }
        }
        Ok(None)
    }

    /// The visible value of a timed entry, the newest of its key.
    #[cold]
    fn get_timed(
        &self,
        tree: TreeId,
        key: &[u8],
        seq: Seq,
        stored: Slice,
    ) -> Result<Option<Found>> {
        match self.lens(Some(tree)).look(&stored) {
            Shown::Put => {
                let (kind, value) = (Kind::Put, stored.skip(TIMED_LEN));
                Ok(Some(Found { seq, kind, value }))
            }
            Shown::Deleted => Ok(None),
            // In a list: the newest operand left, without its expired elements.
            Shown::Operand | Shown::Nothing => {
                let mut entries = self.walk_from(tree, key, seq);
                let found = entries.next_entry()?;
                let found = found.filter(|entry| entry.kind != Kind::Delete);
                Ok(found.map(|entry| Found {
                    seq: entry.seq,
                    kind: entry.kind,
                    value: entry.value,
                }))
            }
        }
    }

    /// The expiry time of the snapshot, and the operator of a tree.
    pub(crate) fn lens(&self, tree: Option<TreeId>) -> Lens {
        let options = tree
            .and_then(|tree| self.tree(tree))
            .map(|tree| &tree.options);
        let operator = options.and_then(|options| options.operator.clone());
        Lens {
            horizon: self.horizon.clone(),
            operator: operator.filter(|operator| operator.times_elements()),
            closed: self.view.check_open().is_err(),
        }
    }

    /// The newest entry of `key` in the memtables alone, deletes included: without reading the
    /// disk.
    pub fn get_in_memory(&self, tree: TreeId, key: &[u8]) -> Option<Found> {
        self.view.memtables(tree).find_map(|memtable| {
            memtable.get(key, self.seq).map(|entry| {
                let seq = entry.seq;
                let (kind, value) = match Timed::of(entry.kind, entry.value) {
                    (_, Some(expires), _) if self.horizon.hides(expires) => (Kind::Delete, &[][..]),
                    (kind, _, value) => (kind, value),
                };
                let value = Slice::from(value);
                Found { seq, kind, value }
            })
        })
    }

    /// Entries above this sequence number are still in the memtables: [`Snapshot::get_in_memory`]
    /// finds them.
    pub fn flushed(&self) -> Seq {
        let oldest = self.view.full.last().unwrap_or(&self.view.active);
        oldest.component().min - 1
    }

    /// True when the tree has the same tables as in an earlier snapshot: nothing of it was flushed,
    /// compacted or dropped since.
    pub fn has_tables_of(&self, earlier: &Snapshot, tree: TreeId) -> bool {
        match (self.tree(tree), earlier.tree(tree)) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            _ => false,
        }
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// The set of the bitmap tree `tree`; `None` when there is no such tree.
    pub fn superseded(&self, tree: TreeId) -> Option<Superseded> {
        let version = self.tree(tree)?;
        let memtables = self.view.memtables(tree).filter(|m| !m.is_empty()).cloned();
        let bitmap = version.bitmap().clone();
        Some(Superseded::new(
            bitmap,
            memtables.collect(),
            self.seq,
            version.repair_watermark(),
            version.damage().is_none(),
        ))
    }

    /// The components of a tree, newest first, without empty memtables.
    pub fn components(&self, tree: TreeId) -> Vec<Component> {
        let memtables = self.view.memtables(tree).filter(|m| !m.is_empty()).cloned();
        let runs = self
            .tree(tree)
            .map(|tree| tree.runs.as_slice())
            .unwrap_or_default();
        memtables
            .map(Component::Memtable)
            .chain(runs.iter().cloned().map(Component::Run))
            .collect()
    }

    /// The keys of a tree that have a value. With `readahead` over 0 bytes it reads ahead and does
    /// not fill the block cache: for scans of much of a tree.
    pub fn cursor(&self, tree: TreeId, readahead: usize) -> TreeCursor {
        let sources = self.sources(&self.components(tree), readahead);
        TreeCursor::new(sources, self.seq, self.lens(Some(tree)))
    }

    /// The keys that have a value in these components alone, newest first as in
    /// [`Snapshot::components`] (a run may lack some of its tables): for callers that know that the
    /// others do not matter.
    pub fn cursor_over(&self, components: &[Component], readahead: usize) -> TreeCursor {
        TreeCursor::new(
            self.sources(components, readahead),
            self.seq,
            self.lens(None),
        )
    }

    /// Every entry of a tree, superseded ones included.
    pub fn entries(&self, tree: TreeId, readahead: usize) -> EntryCursor {
        let sources = self.sources(&self.components(tree), readahead);
        EntryCursor::new(sources, self.seq, self.lens(Some(tree)))
    }

    /// Every entry of some components, given newest first. Expired elements of operands are
    /// included.
    pub fn entries_in(&self, components: &[Component], readahead: usize) -> EntryCursor {
        EntryCursor::new(
            self.sources(components, readahead),
            self.seq,
            self.lens(None),
        )
    }

    fn sources(&self, components: &[Component], readahead: usize) -> Vec<SourceCursor> {
        let options = ReadOptions {
            fill_cache: readahead == 0,
            readahead,
        };
        let stop = self.stop.as_ref();
        let cursors = components
            .iter()
            .map(|component| component.cursor(options, stop));
        cursors.collect()
    }

    /// The entries of one key, newest first, from the newest component to the oldest.
    pub fn walk(&self, tree: TreeId, key: &[u8]) -> Entries {
        self.walk_from(tree, key, self.seq)
    }

    /// As [`Snapshot::walk`], starting with the newest entry whose sequence number is at most
    /// `seq`.
    pub fn walk_from(&self, tree: TreeId, key: &[u8], seq: Seq) -> Entries {
        let stop = self.stop.as_ref();
        let lens = self.lens(Some(tree));
        Entries::new(self.components(tree), key, seq.min(self.seq), lens, stop)
    }

    /// True when `seq` is the newest entry of `key`, given that it was found in `components[at]` of
    /// `tree`: LevelDB++'s GetLite (section 3), made exact by reading the key's block where a
    /// filter of a newer component answers "maybe".
    pub fn is_newest(
        &self,
        tree: TreeId,
        components: &[Component],
        at: usize,
        key: &[u8],
        seq: Seq,
        cost: &Cost,
    ) -> Result<bool> {
        let keeps_one = self.tree(tree).is_some_and(|tree| tree.options.keeps_one());
        for (index, component) in components.iter().take(at + 1).enumerate() {
            // In most trees compactions keep only one entry of a key that is put and deleted whole,
            // so a run has one; a memtable has all of them.
            if index == at && keeps_one && matches!(component, Component::Run(_)) {
                break;
            }
            if let Some(newest) = component.newest(key, self.seq, cost)? {
                return Ok(newest == seq);
            }
        }
        Ok(true)
    }

    /// About how many entries of a tree lie in `lo..hi` (unbounded above without `hi`): of tables
    /// from block indexes alone, of memtables by counting at most 1,000 entries.
    ///
    /// # Errors
    /// What reading block indexes fails with.
    pub fn approximate(
        &self,
        tree: TreeId,
        lo: &[u8],
        hi: Option<&[u8]>,
        cost: &Cost,
    ) -> Result<u64> {
        self.approximate_where(tree, &[(lo, hi)], &|_| true, cost)
    }

    /// About how many entries of a tree lie in some ranges, which are in order and do not overlap,
    /// and in tables for which `meets` is true. A block in which several ranges lie counts once.
    ///
    /// # Errors
    /// What reading block indexes fails with.
    pub fn approximate_where(
        &self,
        tree: TreeId,
        ranges: &[(&[u8], Option<&[u8]>)],
        meets: &dyn Fn(&TableFile) -> bool,
        cost: &Cost,
    ) -> Result<u64> {
        let mut entries = 0;
        for component in self.components(tree) {
            match component {
                Component::Memtable(memtable) => {
                    let mut counted = 0;
                    for (lo, hi) in ranges {
                        counted += in_memtable(&memtable, lo, *hi, 1000)?;
                        if counted >= 1000 {
                            break;
                        }
                    }
                    entries += counted;
                }
                Component::Run(run) => {
                    for table in run.tables.iter().filter(|table| meets(table)) {
                        entries += in_table(table, ranges, cost)?;
                    }
                }
            }
        }
        Ok(entries)
    }
}

/// How many entries of a memtable lie in a range, counted no further than to `most`.
fn in_memtable(memtable: &Memtable, lo: &[u8], hi: Option<&[u8]>, most: u64) -> Result<u64> {
    use crate::cursor::Cursor;
    let mut cursor = memtable.cursor();
    cursor.seek(lo, crate::entry::MAX_SEQ)?;
    let mut counted = 0;
    while cursor.valid() && hi.is_none_or(|hi| cursor.key() < hi) && counted < most {
        counted += 1;
        cursor.next()?;
    }
    Ok(counted)
}

/// How many entries the blocks of a table have in which ranges lie.
fn in_table(table: &TableFile, ranges: &[(&[u8], Option<&[u8]>)], cost: &Cost) -> Result<u64> {
    let meta = table.meta();
    let (mut entries, mut counted) = (0, 0);
    for (lo, hi) in ranges {
        if meta.largest.as_slice() < *lo || hi.is_some_and(|hi| meta.smallest.as_slice() >= hi) {
            continue;
        }
        let (from, to) = table.table()?.spanned(lo, *hi, cost)?;
        entries += to.saturating_sub(from.max(counted));
        counted = counted.max(to);
    }
    Ok(entries)
}
