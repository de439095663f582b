//! The candidates of a query: entries of indexes, in the order of their timestamps.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;

use esker_coding::Seq;
use esker_model::query::Recency;

use crate::bound::Bound;
use crate::error::Result;
use crate::shared::Shared;
use crate::sources::{Sought, Source, Span, fill, sources};
use crate::verdict::Candidate;

/// Partitions that are read at a time.
const TOGETHER: usize = 64;
/// Entries that are held to sort them.
const MOST_HELD: usize = 1 << 16;

/// Entries in an order of their timestamps, each timestamp once.
pub(crate) struct Candidates {
    shared: Arc<Shared>,
    bound: Arc<Bound>,
    order: Recency,
    /// Entries that are not newer.
    until: Seq,
    /// Entries behind this one in the order.
    after: Option<Seq>,
    how: How,
    /// Entries that were read.
    pub(crate) read: u64,
}

enum How {
    /// Each source is in the order: they are merged.
    Merged(Vec<Source>),
    /// All sources are read, and the first entries are kept; and again behind these.
    Sorted {
        sought: Vec<Sought>,
        held: VecDeque<Candidate>,
        is_end: bool,
    },
}

impl Candidates {
    pub(crate) fn new(
        shared: Arc<Shared>,
        bound: Arc<Bound>,
        sought: Vec<Sought>,
        order: Recency,
        until: Seq,
        after: Option<Seq>,
    ) -> Candidates {
        let mut ranges = sought.iter().flat_map(|sought| &sought.ranges);
        let is_newest = order == Recency::Newest;
        // Entries of one token are newest first.
        let how = if is_newest && ranges.all(|range| range.point().is_some()) {
            let newest = after.map_or(until, |after| until.min(after.saturating_sub(1)));
            let span = Span { newest, oldest: 0 };
            let sources = sources(&bound, &sought, Some(span));
            How::Merged(sources)
        } else {
            How::Sorted {
                sought,
                held: VecDeque::new(),
                is_end: false,
            }
        };
        Candidates {
            shared,
            bound,
            order,
            until,
            after,
            how,
            read: 0,
        }
    }

    /// The next entries: at most `most`, none at the end.
    pub(crate) fn next(&mut self, most: usize) -> Result<Vec<Candidate>> {
        let mut found = Vec::new();
        while found.len() < most {
            let next = match &mut self.how {
                How::Merged(_) => self.merged()?,
                How::Sorted { .. } => self.sorted()?,
            };
            let Some(next) = next else { break };
            self.after = Some(next.at);
            found.push(next);
        }
        Ok(found)
    }

    fn merged(&mut self) -> Result<Option<Candidate>> {
        let How::Merged(sources) = &mut self.how else {
            return Ok(None);
        };
        loop {
            let empty = sources
                .iter_mut()
                .filter(|source| source.held.is_empty() && source.next.is_some());
            self.read += fill(&self.shared, empty.collect())?;
            let newest = sources
                .iter_mut()
                .filter(|source| !source.held.is_empty())
                .max_by_key(|source| source.held.front().map(|candidate| candidate.at));
            let Some(next) = newest.and_then(|source| source.held.pop_front()) else {
                let is_end = sources.iter().all(|source| source.next.is_none());
                if is_end { return Ok(None) } else { continue }
            };
            // A record with several of the tokens has several entries of one timestamp.
            let is_known = self.after.is_some_and(|after| next.at >= after);
            if next.at <= self.until && !is_known {
                return Ok(Some(next));
            }
        }
    }

    fn sorted(&mut self) -> Result<Option<Candidate>> {
        let How::Sorted {
            sought,
            held,
            is_end,
        } = &mut self.how
        else {
            return Ok(None);
        };
        if let Some(next) = held.pop_front() {
            return Ok(Some(next));
        }
        if *is_end {
            return Ok(None);
        }
        let behind = self.after.map(|after| self.order.rank(after));
        let mut kept: BTreeMap<u64, Candidate> = BTreeMap::new();
        let mut overflowed = false;
        let mut waiting = sources(&self.bound, sought, None);
        let mut reading: Vec<Source> = Vec::new();
        while !waiting.is_empty() || !reading.is_empty() {
            let more = TOGETHER.saturating_sub(reading.len()).min(waiting.len());
            reading.extend(waiting.drain(waiting.len() - more..));
            self.read += fill(&self.shared, reading.iter_mut().collect())?;
            for candidate in reading.iter_mut().flat_map(|source| source.held.drain(..)) {
                let rank = self.order.rank(candidate.at);
                if candidate.at > self.until || behind.is_some_and(|behind| rank <= behind) {
                    continue;
                }
                kept.insert(rank, candidate);
                if kept.len() > MOST_HELD {
                    kept.pop_last();
                    overflowed = true;
                }
            }
            reading.retain(|source| source.next.is_some());
        }
        *held = kept.into_values().collect();
        *is_end = !overflowed;
        Ok(held.pop_front())
    }
}
