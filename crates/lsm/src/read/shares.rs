//! What one run has of a range: its blocks that lie in the range, and those in which it begins or
//! ends, by the indexes of its tables.

use std::sync::Arc;

use crate::cost::Cost;
use crate::entry::{MAX_SEQ, Seq};
use crate::error::Result;
use crate::table::{Amount, BlockHint, Edge, Table, TableMeta, part_before};
use crate::version::{Run, TableFile};

/// Tells what share of something lies before a key.
pub type PartBefore<'a> = dyn Fn(&[u8]) -> Result<f64> + 'a;

/// What is sought.
#[derive(Clone, Copy)]
pub struct Sought<'a> {
    /// The first key.
    pub lo: &'a [u8],
    /// The key behind the last one.
    pub hi: Option<&'a [u8]>,
    /// The only key, where it is one: key filters are asked for it.
    pub key: Option<&'a [u8]>,
    /// What share of it lies before a key, where that is known better than from how keys lie
    /// between the ends.
    pub part: Option<&'a PartBefore<'a>>,
    /// True when what is sought has one value: then how keys lie around it tells nothing.
    pub is_one: bool,
}

/// What a run has of the range.
pub(super) struct Share {
    pub(super) whole: Amount,
    pub(super) edges: Vec<(Arc<Table>, Edge)>,
    pub(super) first: Option<(Arc<Table>, BlockHint)>,
    pub(super) split: Option<f64>,
    /// Bytes of the run's files.
    pub(super) mass: f64,
    /// The share of its entries that are not deletes.
    pub(super) puts: f64,
    pub(super) since: Seq,
    /// The writes that made it, less those that older runs have.
    pub(super) writes: f64,
    /// The share of units that count, where the run was not looked into.
    pub(super) counted: f64,
}

impl Share {
    /// True if all that the run may have of the range is in one entry.
    pub(super) fn is_one_entry(&self) -> bool {
        matches!(self.edges.as_slice(), [(_, edge)] if edge.amount.entries == 1)
    }
}

/// What share of a range lies before a key and sequence number in it, which two blocks of a table
/// have between them.
fn split(sought: Sought<'_>, meta: &TableMeta, key: &[u8], seq: Seq) -> Result<Option<f64>> {
    if key == sought.lo {
        if seq == 0 {
            // Behind all that this key has: everything, or else nothing.
            return Ok(Some(if sought.key.is_some() { 1.0 } else { 0.0 }));
        }
        // Of one key: newest first.
        let newer = meta.max_seq.saturating_sub(seq) as f64;
        let all = meta.max_seq.saturating_sub(meta.min_seq).max(1) as f64;
        return Ok(Some((newer / all).min(1.0)));
    }
    match (sought.part, sought.hi) {
        (Some(part), _) => Ok(Some(part(key)?.clamp(0.0, 1.0))),
        (None, Some(hi)) => Ok(Some(part_before(sought.lo, hi, key))),
        (None, None) => Ok(None),
    }
}

/// What a run has of the range; `None` when it has nothing.
pub(super) fn share_of(
    run: &Run,
    sought: Sought<'_>,
    since: Seq,
    meets: &dyn Fn(&TableFile) -> bool,
    cost: &Cost,
) -> Result<Option<Share>> {
    let (mut entries, mut deletes) = (0, 0);
    let (mut min, mut max) = (MAX_SEQ, 0);
    let mut before: Option<&Arc<TableFile>> = None;
    let mut share = Share {
        whole: Amount::default(),
        edges: Vec::new(),
        first: None,
        split: None,
        mass: run.size() as f64,
        puts: 1.0,
        since,
        writes: 0.0,
        counted: 1.0,
    };
    for file in run.tables.iter() {
        let meta = file.meta();
        (min, max) = (min.min(meta.min_seq), max.max(meta.max_seq));
        let apart = sought.hi.is_some_and(|hi| meta.smallest.as_slice() >= hi);
        if apart || meta.largest.as_slice() < sought.lo || !meets(file) {
            continue;
        }
        let table = file.table()?;
        if let Some(key) = sought.key
            && !table.may_contain(key, cost)?
        {
            continue;
        }
        let extent = table.extent(sought.lo, sought.hi, cost)?;
        if extent.is_empty() {
            continue;
        }
        entries += meta.entries;
        deletes += meta.deletes;
        share.whole.add(extent.whole);
        let middle = match (&before, share.edges.len(), extent.edges.len()) {
            (None, ..) => extent.middle,
            (Some(before), 1, 1) => Some((before.meta().largest.clone(), 0)),
            _ => None,
        };
        share.split = match middle.filter(|_| share.whole.entries == 0) {
            Some((key, seq)) => split(sought, meta, &key, seq)?,
            None => None,
        };
        before = Some(file);
        for edge in extent.edges {
            // The filter says that the key is there, and there is no other.
            if sought.key.is_some() && edge.amount.entries == 1 {
                share.whole.add(edge.amount)
            } else {
                share.edges.push((table.clone(), edge));
            }
        }
        if share.first.is_none() {
            share.first = extent.first.map(|first| (table.clone(), first));
        }
    }
    if share.first.is_none() {
        return Ok(None);
    }
    share.puts = 1.0 - deletes as f64 / entries.max(1) as f64;
    share.writes = (max.saturating_sub(min.max(since)) + 1) as f64;
    Ok(Some(share))
}
