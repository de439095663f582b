//! Stage 3 for a page: the records of its candidates.

use esker_lsm::coding::Own;
use esker_lsm::{Seq, Slice};

use super::explain::Steps;
use super::run::Context;
use super::stages::{Admission, Fetch, Fetched, Needs};
use crate::error::Result;
use crate::index::{Candidate, Origin};

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
        let needs = Needs::of(self.admission, !self.context.request.keys_only);
        let mut bodies = needs.bodies(layout, snapshot)?;
        // Candidates whose records have come, and may be obsolete.
        let mut to_check: Vec<usize> = Vec::new();
        for (at, candidate) in chunk.iter_mut().enumerate() {
            let Some((record, origin)) = candidate.record.take() else {
                to_fetch.push(at);
                records.push(None);
                continue;
            };
            let (key, seq) = (&candidate.key, candidate.seq);
            let current = match origin {
                Origin::IndexEntry => {
                    if !self.known {
                        to_check.push(at);
                    }
                    size.read += 1;
                    size.bytes += record.len();
                    records.push(Some(record));
                    continue;
                }
                Origin::Current => true,
                Origin::Component(at) => {
                    snapshot.is_newest(layout.data, components, at, key, seq, &costs.data)?
                }
            };
            if current {
                size.read += 1;
                size.bytes += record.len();
                if needs.wants(&record)? {
                    bodies.add(at, key, seq, &record)?;
                }
                records.push(Some(record));
            } else {
                steps.obsolete += 1;
                steps.wasted += 1;
                records.push(None);
            }
        }
        bodies.read(self.context.lookup, &costs.bodies, &mut |at, record| {
            size.bytes += record.len();
            *records.own_mut(at) = Some(record.compact());
            Ok(())
        })?;
        if !to_check.is_empty() {
            let mut current = vec![false; chunk.len()];
            let checked = self.fetch_those(chunk, &mut to_check, Needs::None, &mut |at, _| {
                *current.own_mut(at) = true;
            })?;
            for at in to_check {
                if !*current.item(at)? {
                    *records.own_mut(at) = None;
                }
            }
            checked.count_in(steps);
        }
        let fetched = self.fetch_those(chunk, &mut to_fetch, needs, &mut |at, record| {
            *records.own_mut(at) = Some(record.compact());
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
        needs: Needs<'_>,
        take: &mut impl FnMut(usize, Slice),
    ) -> Result<Fetched> {
        let key = |at: usize| chunk.own(at).key.as_slice();
        places.sort_by(|a, b| key(*a).cmp(key(*b)));
        let keys: Vec<&[u8]> = places.iter().map(|at| key(*at)).collect();
        let seqs: Vec<Seq> = places.iter().map(|at| chunk.own(*at).seq).collect();
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
            needs,
            body_cost: &costs.bodies,
        };
        fetch.run(&keys, &seqs, &mut |nth: usize, record: Slice| {
            take(*places.own(nth), record);
        })
    }
}
