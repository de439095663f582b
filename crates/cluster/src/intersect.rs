//! Intersections: a candidate of the driving index that has no entry in another one, whose
//! condition every match satisfies, is dropped before its record is read.
//!
//! A write has entries of one timestamp in all indexes, and they are removed only when it does not
//! count any more. So a write that was acknowledged before the query began is in each list that is
//! read since then, or need not be found. An entry may be left of a write that does not count, in
//! one list or in both: what remains is judged by the records, as without an intersection.
//!
//! A page of another index is read only if it may save several reads of records: for some
//! candidates at most an eighth as many pages, or that index is not asked again.

use std::collections::HashSet;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bound::Bound;
use crate::error::Result;
use crate::shared::Shared;
use crate::sources::{Sought, Span, fill, sources};
use crate::verdict::Candidate;

/// The reads of records that a page of another index must be able to save.
const WORTH: usize = 8;
/// Pages that are read in any case.
const LEAST: usize = 4;

/// The other indexes of a query.
pub(crate) struct Filters {
    shared: Arc<Shared>,
    bound: Arc<Bound>,
    others: Vec<Other>,
    /// Entries that were read of them.
    pub(crate) read: u64,
    /// Candidates that were dropped.
    pub(crate) dropped: u64,
}

struct Other {
    sought: Sought,
    /// True if all ranges are single values: their entries are newest first, and those of some
    /// candidates lie together.
    is_point: bool,
    /// All writes with an entry, once they were read.
    all: Option<HashSet<u64>>,
}

/// A write of a key: two have the same number by chance alone, which drops nothing.
fn number(candidate: &Candidate) -> u64 {
    xxh3_64_with_seed(&candidate.key, candidate.at)
}

impl Filters {
    pub(crate) fn new(shared: Arc<Shared>, bound: Arc<Bound>, others: Vec<Sought>) -> Filters {
        let others = others.into_iter().map(|sought| Other {
            is_point: sought.ranges.iter().all(|range| range.point().is_some()),
            sought,
            all: None,
        });
        Filters {
            shared,
            bound,
            others: others.collect(),
            read: 0,
            dropped: 0,
        }
    }

    /// True if there is another index to ask.
    pub(crate) fn is_some(&self) -> bool {
        !self.others.is_empty()
    }

    /// The candidates that are in all other lists, as far as it pays to ask.
    pub(crate) fn apply(&mut self, mut found: Vec<Candidate>) -> Result<Vec<Candidate>> {
        let mut others = std::mem::take(&mut self.others);
        let mut failed = None;
        let before = found.len();
        others.retain_mut(|other| {
            if failed.is_some() || found.len() < self.shared.options.intersect_from {
                return true;
            }
            match self.known(other, &found) {
                Ok(Some(known)) => {
                    found.retain(|candidate| known.contains(&number(candidate)));
                    if !other.is_point {
                        other.all = Some(known);
                    }
                    true
                }
                Ok(None) => false,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            }
        });
        self.others = others;
        self.dropped += (before - found.len()) as u64;
        failed.map_or(Ok(found), Err)
    }

    /// The writes with an entry in another index, at least those of the candidates' span; `None` if
    /// it has too many.
    fn known(&mut self, other: &mut Other, found: &[Candidate]) -> Result<Option<HashSet<u64>>> {
        if let Some(all) = other.all.take() {
            return Ok(Some(all));
        }
        let timestamps = || found.iter().map(|candidate| candidate.at);
        let (Some(newest), Some(oldest)) = (timestamps().max(), timestamps().min()) else {
            return Ok(None);
        };
        let span = other.is_point.then_some(Span { newest, oldest });
        let mut reading = sources(&self.bound, std::slice::from_ref(&other.sought), span);
        let mut left = (found.len() / WORTH).max(LEAST);
        let mut known = HashSet::new();
        while !reading.is_empty() {
            if reading.len() > left {
                return Ok(None);
            }
            left -= reading.len();
            self.read += fill(&self.shared, reading.iter_mut().collect())?;
            for source in &mut reading {
                known.extend(source.held.drain(..).map(|candidate| number(&candidate)));
            }
            reading.retain(|source| source.next.is_some());
        }
        Ok(Some(known))
    }
}
