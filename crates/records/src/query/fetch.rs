//! Stage 3 for a page: the records of its candidates.

use esker_lsm::{Seq, Slice};

use super::explain::Steps;
use super::run::Context;
use super::stages::{Admission, Fetch, Fetched, Joins};
use crate::error::Result;
use crate::index::{APART, CURRENT, Candidate};
use crate::store::Stubs;

/// The number of records that were read, and their bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) read: usize,
    pub(super) bytes: usize,
}

/// Fetches the records of the candidates of a page.
pub(super) struct PageFetch<'a> {
    pub(super) context: &'a Context,
    pub(super) admission: Admission<'a>,
    /// True if the candidates are current.
    pub(super) known: bool,
    /// Bytes of records that may be held at a time.
    pub(super) room: usize,
}

impl PageFetch<'_> {
    /// The records of the current candidates: those that came with the candidates, and those that
    /// are looked up; and the size of all that was read, current or not.
    pub(super) fn run(
        &self,
        chunk: &mut [Candidate],
        steps: &mut Steps,
    ) -> Result<(Vec<Option<Slice>>, Size)> {
        let mut records: Vec<Option<Slice>> = Vec::with_capacity(chunk.len());
        let mut to_fetch: Vec<usize> = Vec::with_capacity(chunk.len());
        let Context {
            view,
            components,
            costs,
            ..
        } = self.context;
        let (layout, snapshot) = (&view.layout, &view.snapshot);
        let mut size = Size::default();
        let joins = Joins::of(self.admission, !self.context.request.keys_only);
        let mut stubs = match joins {
            Joins::None => None,
            _ => Stubs::new(layout, snapshot)?,
        };
        // Candidates whose records have come, and may be obsolete.
        let mut to_check: Vec<usize> = Vec::new();
        for (at, candidate) in chunk.iter_mut().enumerate() {
            let Some((record, component)) = candidate.record.take() else {
                to_fetch.push(at);
                records.push(None);
                continue;
            };
            if component == APART {
                if !self.known {
                    to_check.push(at);
                }
                size.read += 1;
                size.bytes += record.len();
                records.push(Some(record));
                continue;
            }
            let (key, seq) = (&candidate.key, candidate.seq);
            let current = component == CURRENT
                || snapshot.is_newest(layout.data, components, component, key, seq, &costs.data)?;
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
            stubs.read(self.context.lookup, &costs.place, &mut |at, record| {
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

    /// Looks up the candidates at some places, and passes the records of the current ones to
    /// `take`, by their places.
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
        let Context {
            view,
            components,
            costs,
            lookup,
            ..
        } = self.context;
        let mut options = *lookup;
        options.batch_bytes = options.batch_bytes.min(2 * self.room);
        let fetch = Fetch {
            view,
            components,
            known: self.known,
            options,
            cost: &costs.data,
            joins,
            place_cost: &costs.place,
        };
        fetch.run(&keys, &seqs, &mut |nth: usize, record: Slice| {
            if let Some(at) = places.get(nth) {
                take(*at, record);
            }
        })
    }
}
