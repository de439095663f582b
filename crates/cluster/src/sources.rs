//! Entries of ranges of indexes' tokens, read from their partitions page by page.

use std::collections::VecDeque;

use esker_coding::Seq;
use esker_model::range::Range;

use crate::bound::Bound;
use crate::cells::{Cell, Read};
use crate::error::Result;
use crate::rows::{entry, newest_first};
use crate::shared::Shared;
use crate::verdict::Candidate;

/// Entries that are read of a partition at a time.
pub(crate) const PAGE: usize = 256;

/// Entries of some ranges of an index's tokens.
#[derive(Debug, Clone)]
pub(crate) struct Sought {
    /// The place of the index in [`Bound::indexes`].
    pub(crate) index: usize,
    pub(crate) ranges: Vec<Range>,
}

/// The entries of a range in a partition.
pub(crate) struct Source {
    index: usize,
    pub(crate) range: Range,
    /// The next page; `None` at the end.
    pub(crate) next: Option<Read>,
    pub(crate) held: VecDeque<Candidate>,
}

impl Source {
    fn take(&mut self, cells: Vec<Cell>) -> Result<()> {
        let full = match &self.next {
            Some(read) => cells.len() >= read.most,
            None => false,
        };
        let from = cells
            .last()
            .map(|last| [last.row.as_slice(), &[0]].concat());
        self.next = match (self.next.take(), from) {
            (Some(read), Some(from)) if full => Some(Read { from, ..read }),
            _ => None,
        };
        for cell in cells {
            let found = entry(&cell.row)?;
            if self.range.contains(found.token) {
                self.held.push_back(Candidate {
                    at: found.at,
                    key: found.key.to_vec(),
                    index: self.index,
                    token: found.token.to_vec(),
                });
            }
        }
        Ok(())
    }
}

/// Reads the next page of each source; returns the number of entries.
pub(crate) fn fill(shared: &Shared, mut sources: Vec<&mut Source>) -> Result<u64> {
    if sources.is_empty() {
        return Ok(0);
    }
    let reads = sources.iter().filter_map(|source| source.next.clone());
    let pages = shared.cells.read(reads.collect());
    let mut count = 0;
    for (source, page) in sources.iter_mut().zip(pages) {
        let page = page?;
        count += page.len() as u64;
        source.take(page)?;
    }
    Ok(count)
}

/// Timestamps of entries, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) newest: Seq,
    pub(crate) oldest: Seq,
}

/// The partitions with entries of the ranges; with a span, of single tokens in that span.
pub(crate) fn sources(bound: &Bound, sought: &[Sought], span: Option<Span>) -> Vec<Source> {
    let mut sources = Vec::new();
    for Sought { index: at, ranges } in sought {
        let Some(index) = bound.indexes.get(*at) else {
            continue;
        };
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let (mut from, mut to) = range.key_bounds();
            let buckets = index.layout.buckets(&from, to.as_deref());
            if let Some(Span { newest, oldest }) = span {
                // The entries before a timestamp come behind it.
                if let Some(before) = oldest.checked_sub(1) {
                    to = Some([from.as_slice(), &newest_first(before)].concat());
                }
                from.extend_from_slice(&newest_first(newest));
            }
            for partition in buckets.iter().flat_map(|bucket| bucket.partitions()) {
                let next = Read {
                    table: index.table.clone(),
                    partition,
                    from: from.clone(),
                    to: to.clone(),
                    most: PAGE,
                    reverse: false,
                    rows_only: true,
                };
                sources.push(Source {
                    index: *at,
                    range: range.clone(),
                    next: Some(next),
                    held: VecDeque::new(),
                });
            }
        }
    }
    sources
}
