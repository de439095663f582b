//! Sweeping an obsolete set: finding the numbers that it can drop, because no tree that reads it
//! has an entry of them any more. The conditions and why they suffice are in `obsolete/mod.rs`;
//! `group/sweep.rs` runs the sweep.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::batch::TreeId;
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq, Timed};
use crate::error::Result;
use crate::generation::View;
use crate::merge::FilteredEntry;
use crate::obsolete::SeqSet;
use crate::read::Snapshot;
use crate::table::ReadOptions;
use crate::version::{RunCursor, TableFile, TreeVersion, Version};

/// Bytes that a sweep reads ahead.
const READAHEAD: usize = 256 << 10;

/// Bytes of the set allowed per entry of a holder.
const PER_ENTRY: usize = 2;

/// The holders of the set `set`: the trees that read it.
pub(crate) fn holders<'v>(
    version: &'v Version,
    set: &'v TreeVersion,
) -> impl Iterator<Item = &'v Arc<TreeVersion>> {
    version.holders(&set.name)
}

/// True when every holder is complete: no older entries will still be installed.
pub(crate) fn has_converged(version: &Version, set: &TreeVersion) -> bool {
    set.damage().is_none() && !holders(version, set).any(|tree| tree.options.incomplete)
}

/// Size in bytes at which a set is swept.
pub(crate) fn allowance(version: &Version, set: &TreeVersion, slack: usize) -> usize {
    let entries = |tree: &Arc<TreeVersion>| {
        let tables = tree.tables().map(|table| table.meta().entries);
        tables.sum::<u64>()
    };
    let most = holders(version, set).map(entries).max().unwrap_or(0);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    most.saturating_mul(PER_ENTRY).saturating_add(slack)
}

/// True when metadata proves that `table` of `holder` has no entry of the writes in `numbers`.
/// `changed` is the version that added the last of them.
pub(crate) fn is_clean(
    holder: &TreeVersion,
    table: &TableFile,
    numbers: &SeqSet,
    changed: u64,
) -> bool {
    let meta = table.meta();
    let spans = || holder.options.filter.is_some() || numbers.meets(meta.min_seq, meta.max_seq);
    table.saw() >= changed || !spans()
}

/// A running sweep.
pub(crate) struct Sweep {
    /// The numbers that may be dropped from the set.
    candidates: Arc<SeqSet>,
    /// The version that added the last candidate.
    changed: u64,
    /// Candidates that some holder still has.
    found: SeqSet,
    /// Tables read so far.
    read: BTreeSet<u64>,
}

impl Sweep {
    pub(crate) fn new(set: &TreeVersion) -> Sweep {
        Sweep {
            candidates: set.bitmap().clone(),
            changed: set.changed,
            found: SeqSet::new(),
            read: BTreeSet::new(),
        }
    }

    /// Reads tables that may have entries of candidates, up to about `bytes`. True when no more are
    /// left.
    pub(crate) fn read_tables(
        &mut self,
        version: &Version,
        set: &TreeVersion,
        mut bytes: u64,
        go_on: &dyn Fn() -> Result<()>,
    ) -> Result<bool> {
        for holder in holders(version, set) {
            for table in holder.tables() {
                let number = table.meta().number;
                let known = self.read.contains(&number)
                    || is_clean(holder, table, &self.candidates, self.changed);
                if known {
                    continue;
                }
                if bytes == 0 {
                    return Ok(false);
                }
                go_on()?;
                bytes = bytes.saturating_sub(table.meta().size);
                // The contents of a damaged table are unknown, so all candidates in its range stay.
                if !matches!(self.read_table(holder, table), Ok(true)) {
                    self.find_all(holder, table);
                }
                self.read.insert(number);
            }
        }
        Ok(true)
    }

    /// True when all of the table could be read and decoded.
    fn read_table(&mut self, holder: &TreeVersion, table: &Arc<TableFile>) -> Result<bool> {
        let options = ReadOptions {
            fill_cache: false,
            readahead: READAHEAD,
        };
        let mut entries = RunCursor::new(Arc::new(vec![table.clone()]), options);
        entries.seek_first()?;
        while entries.valid() {
            if !self.look(holder, &entries) {
                return Ok(false);
            }
            entries.next()?;
        }
        Ok(true)
    }

    fn find_all(&mut self, holder: &TreeVersion, table: &TableFile) {
        if holder.options.filter.is_some() {
            self.found.add_all(&self.candidates);
            return;
        }
        let (first, last) = (table.meta().min_seq, table.meta().max_seq);
        let spanned = self.candidates.iter();
        let spanned = spanned.filter(|seq| (first..=last).contains(seq));
        self.found.extend(spanned);
    }

    /// Records the candidates that an entry refers to; false when the entry cannot be decoded.
    fn look(&mut self, holder: &TreeVersion, entry: &impl Cursor) -> bool {
        let (candidates, found) = (&self.candidates, &mut self.found);
        show(holder, entry, &mut |seq| {
            if candidates.contains(seq) {
                found.insert(seq);
            }
        })
    }

    /// The candidates that no holder has, given a view in which all tables are clean or read;
    /// `None` when an entry cannot be decoded. No compaction of a holder may be running, and no
    /// writer may have read what it will add to the view's memtables.
    pub(crate) fn finish(mut self, view: &View, set: &TreeVersion) -> Result<Option<SeqSet>> {
        for holder in holders(&view.version, set).filter(|tree| tree.options.filter.is_some()) {
            for memtable in view.memtables(holder.id) {
                let mut entries = memtable.cursor();
                entries.seek_first()?;
                while entries.valid() {
                    if !self.look(holder, &entries) {
                        return Ok(None);
                    }
                    entries.next()?;
                }
            }
        }
        let oldest = view.full.last().unwrap_or(&view.active);
        let flushed = oldest.component().min.saturating_sub(1);
        let mut forgotten = SeqSet::clone(&self.candidates);
        forgotten.truncate(flushed.min(MAX_SEQ));
        forgotten.remove_all(&self.found);
        Ok(Some(forgotten))
    }
}

/// The numbers of all writes that the holders of the set `set` still have, as a snapshot sees them;
/// `None` where an entry cannot be decoded. Reads all of these trees.
pub fn held(snapshot: &Snapshot, set: TreeId) -> Result<Option<SeqSet>> {
    let mut held = SeqSet::new();
    let version = snapshot.version();
    let Some(set) = version.trees.get(&set) else {
        return Ok(Some(held));
    };
    for holder in holders(version, set) {
        let mut entries = snapshot.entries(holder.id, READAHEAD);
        entries.seek_first()?;
        while entries.valid() {
            if !show(holder, &entries, &mut |seq| {
                held.insert(seq);
            }) {
                return Ok(None);
            }
            entries.next()?;
        }
    }
    Ok(Some(held))
}

/// Shows the writes that an entry of a holder refers to; false when the entry cannot be decoded.
fn show(holder: &TreeVersion, entry: &impl Cursor, show: &mut dyn FnMut(Seq)) -> bool {
    if entry.kind() == Kind::Delete {
        return true;
    }
    let Some(filter) = &holder.options.filter else {
        show(entry.seq());
        return true;
    };
    let (kind, expires, value) = Timed::of(entry.kind(), entry.value());
    let judged = FilteredEntry {
        key: entry.key(),
        seq: entry.seq(),
        kind,
        value,
        expires,
    };
    filter.writes(judged, show)
}
