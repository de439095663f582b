//! The records of a page's candidates.

use esker_lsm::{Seq, Slice};

use super::answer::Answer;
use super::explain::Steps;
use super::stages::{Admission, Fetch, Fetched, Joins};
use crate::error::Result;
use crate::index::{APART, CURRENT, Candidate};
use crate::store::Stubs;

/// How many records were read, and their bytes.
#[derive(Default)]
pub(super) struct Size {
    pub(super) read: usize,
    pub(super) bytes: usize,
}

impl Answer {
    /// The records of those candidates that are current: what came with them, or what is looked up; and how many were read, and
    /// their bytes.
    pub(super) fn fetch(
        &self,
        chunk: &mut [Candidate],
        steps: &mut Steps,
    ) -> Result<(Vec<Option<Slice>>, Size)> {
        let mut records: Vec<Option<Slice>> = Vec::with_capacity(chunk.len());
        let mut to_fetch: Vec<usize> = Vec::with_capacity(chunk.len());
        let (data, snapshot) = (self.snapshot.layout.data, &self.snapshot.snapshot);
        // Of everything that was read, wanted or not: it decides how large the next ones may be.
        let mut size = Size::default();
        let known = self.knows_current();
        let joins = Joins::of(Admission::of(self), !self.keys_only);
        let mut stubs = match joins {
            Joins::None => None,
            _ => Stubs::new(&self.snapshot.layout, snapshot)?,
        };
        // Their records are here.
        let mut to_check: Vec<usize> = Vec::new();
        for (at, candidate) in chunk.iter_mut().enumerate() {
            let Some((record, component)) = candidate.record.take() else {
                to_fetch.push(at);
                records.push(None);
                continue;
            };
            if component == APART {
                if !known {
                    to_check.push(at);
                }
                size.read += 1;
                size.bytes += record.len();
                records.push(Some(record));
                continue;
            }
            let (key, seq, cost) = (&candidate.key, candidate.seq, &self.data_cost);
            let current = component == CURRENT
                || snapshot.is_newest(data, &self.components, component, key, seq, cost)?;
            if current {
                size.read += 1;
                size.bytes += record.len();
                if let Some(stubs) = &mut stubs
                    && joins.wants(&record)?
                {
                    stubs.add(at, (key, seq), &record)?;
                }
                records.push(Some(record));
            } else {
                steps.obsolete += 1;
                steps.wasted += 1;
                records.push(None);
            }
        }
        if let Some(stubs) = &mut stubs {
            stubs.read(self.lookup, &self.place_cost, &mut |at, record| {
                size.bytes += record.len();
                if let Some(slot) = records.get_mut(at) {
                    *slot = Some(record.compact());
                }
                Ok(())
            })?;
        }
        if !to_check.is_empty() {
            let mut current = vec![false; chunk.len()];
            let checked = self.fetch_those(chunk, &mut to_check, Joins::None, &mut |at, _| {
                if let Some(current) = current.get_mut(at) {
                    *current = true;
                }
            })?;
            for at in to_check {
                if !current.get(at).copied().unwrap_or_default()
                    && let Some(slot) = records.get_mut(at)
                {
                    *slot = None;
                }
            }
            checked.count_in(steps);
        }
        let fetched = self.fetch_those(chunk, &mut to_fetch, joins, &mut |at, record| {
            if let Some(slot) = records.get_mut(at) {
                *slot = Some(record.compact());
            }
        })?;
        fetched.count_in(steps);
        size.read += fetched.read;
        size.bytes += fetched.bytes;
        Ok((records, size))
    }

    /// Looks up those of the candidates that are at some places, and gives the records of those that are current, by their places.
    fn fetch_those(
        &self,
        chunk: &[Candidate],
        places: &mut [usize],
        joins: Joins<'_>,
        take: &mut impl FnMut(usize, Slice),
    ) -> Result<Fetched> {
        let key = |at: usize| chunk.get(at).map_or(&[][..], |c| c.key.as_slice());
        places.sort_by(|a, b| key(*a).cmp(key(*b)));
        let keys: Vec<&[u8]> = places.iter().map(|at| key(*at)).collect();
        let seqs: Vec<Seq> = places
            .iter()
            .filter_map(|at| Some(chunk.get(*at)?.seq))
            .collect();
        let mut options = self.lookup;
        options.batch_bytes = options.batch_bytes.min(2 * self.room);
        let fetch = Fetch {
            view: &self.snapshot,
            components: &self.components,
            known: self.knows_current(),
            options,
            cost: &self.data_cost,
            joins,
            place_cost: &self.place_cost,
        };
        fetch.run(&keys, &seqs, &mut |nth: usize, record: Slice| {
            if let Some(at) = places.get(nth) {
                take(*at, record);
            }
        })
    }
}
