//! Stage 3 for a page: the records of its candidates.

use esker_lsm::coding::Own;
use esker_lsm::{Seq, Slice};

use super::explain::Steps;
use super::run::Context;
use super::stages::{Admission, Fetch, Fetched, Needs};
use crate::error::Result;
use crate::index::{Candidate, Origin};

/// The number of records that were read, current or not, and their bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) read: usize,
    pub(super) bytes: usize,
}

impl Size {
    fn add(&mut self, record: &Slice) {
        self.read += 1;
        self.bytes += record.len();
    }
}

/// The records of a page.
pub(super) struct FetchedPage {
    /// For each candidate, its record; `None` if the candidate is obsolete.
    pub(super) records: Vec<Option<Slice>>,
    pub(super) size: Size,
}

/// Fetches the records of the candidates of a page.
pub(super) struct PageFetch<'a> {
    pub(super) context: &'a Context,
    pub(super) admission: Admission<'a>,
    /// True if all candidates are known to be current.
    pub(super) all_current: bool,
    /// Bytes of records that may be held at a time.
    pub(super) max_bytes: usize,
}

impl PageFetch<'_> {
    /// The records of the current candidates: those that came with the candidates, which are taken
    /// from them, and those that are looked up.
    ///
    /// # Errors
    /// Any read error, and damage if a record is malformed.
    pub(super) fn run(&self, chunk: &mut [Candidate], steps: &mut Steps) -> Result<FetchedPage> {
        let Context {
            view,
            components,
            costs,
            ..
        } = self.context;
        let (layout, snapshot) = (&view.layout, &view.snapshot);
        let needs = Needs::of(self.admission, self.context.content());
        let mut bodies = needs.bodies(layout, snapshot)?;
        let mut size = Size::default();
        let mut records: Vec<Option<Slice>> = vec![None; chunk.len()];
        let mut to_fetch: Vec<usize> = Vec::with_capacity(chunk.len());
        // Candidates that came with their records, and may be obsolete.
        let mut to_check: Vec<usize> = Vec::new();
        for (at, candidate) in chunk.iter_mut().enumerate() {
            let Some((record, origin)) = candidate.record.take() else {
                to_fetch.push(at);
                continue;
            };
            let (key, seq) = (&candidate.key, candidate.seq);
            size.add(&record);
            let is_replaced = match origin {
                Origin::Component(nth) => {
                    !snapshot.is_newest(layout.data, components, nth, key, seq, &costs.data)?
                }
                Origin::SomeComponents => {
                    let all = components.len();
                    !snapshot.is_newest(layout.data, components, all, key, seq, &costs.data)?
                }
                Origin::Current | Origin::IndexEntry => false,
            };
            if is_replaced {
                steps.obsolete += 1;
                steps.wasted += 1;
                continue;
            }
            if origin != Origin::IndexEntry {
                if needs.wants(&record)? {
                    bodies.add(at, key, seq, &record)?;
                }
            } else if !self.all_current {
                to_check.push(at);
            }
            *records.own_mut(at) = Some(record);
        }
        bodies.read(self.context.lookup, &costs.bodies, &mut |at, record| {
            size.bytes += record.len();
            *records.own_mut(at) = Some(record.compact());
            Ok(())
        })?;
        if !to_check.is_empty() {
            self.drop_obsolete(chunk, &mut to_check, &mut records)?
                .count_in(steps);
        }
        let fetched = self.look_up(chunk, &mut to_fetch, needs, &mut |at, record| {
            *records.own_mut(at) = Some(record.compact());
        })?;
        fetched.count_in(steps);
        size.read += fetched.read;
        size.bytes += fetched.bytes;
        Ok(FetchedPage { records, size })
    }

    /// Removes the records of obsolete candidates among those at these places, by looking them up.
    fn drop_obsolete(
        &self,
        chunk: &[Candidate],
        places: &mut [usize],
        records: &mut [Option<Slice>],
    ) -> Result<Fetched> {
        let mut is_current = vec![false; chunk.len()];
        let checked = self.look_up(chunk, places, Needs::None, &mut |at, _| {
            *is_current.own_mut(at) = true;
        })?;
        for at in places {
            if !*is_current.item(*at)? {
                *records.own_mut(*at) = None;
            }
        }
        Ok(checked)
    }

    /// Looks up the candidates at these places, which it sorts by key, and passes the records of
    /// the current ones to `take`, each with its place.
    fn look_up(
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
        options.batch_bytes = options.batch_bytes.min(2 * self.max_bytes);
        let fetch = Fetch {
            view,
            components,
            all_current: self.all_current,
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
