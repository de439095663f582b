//! The search for versions by value (DELI section IV-B, algorithm 2). Each index returns its
//! candidates newest first; those that all indexes have are compared with the versions of their
//! keys. Obsolete candidates are noted for read repair. Without an index, all versions are scanned.
//!
//! **Invariant.** The records of a search come newest first, each version once, and a search that
//! continues below the last of them finds the versions that follow.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{
    Account, Cost, Cursor, Entries, Kind, Loan, LookupOptions, Seq, Slice, Snapshot, Superseded,
    WalkEntry,
};
use esker_model::Record;
use esker_model::query::Compiled;

use super::key_cursor::READAHEAD;
use super::stages::{Admission, AnswerContent, Decision, Needs, needs_bodies};
use crate::error::Result;
use crate::index::{
    Attribute, BestCandidates, Candidate, IndexType, Looks, Lookup, Origin, Range, Recency, Window,
};
use crate::maintenance;
use crate::record::parse;
use crate::store::{View, has_expired};

/// The largest number of candidates that are requested at a time.
const MAX_PAGE: usize = 64 << 10;

/// The smallest number of candidates that are requested at a time.
const MIN_PAGE: usize = 64;

/// The largest number of candidates that are confirmed together.
const MAX_CONFIRMED: usize = 256;

/// The entries of a key that the dataset keeps, newest first, deletions among them.
pub(super) struct KeptVersions {
    snapshot: Snapshot,
    pub(super) walk: Entries,
    /// The number of entries that the dataset keeps beyond those returned.
    left: u32,
}

impl KeptVersions {
    /// Begins at the newest entry of the key.
    pub(super) fn new(view: &View, key: &[u8]) -> KeptVersions {
        KeptVersions {
            snapshot: view.snapshot.clone(),
            walk: view.snapshot.walk(view.layout.data, key),
            left: view.layout.stored.settings.versions,
        }
    }

    /// The next entry; `None` if the dataset keeps no more. An expired version counts as a
    /// deletion.
    pub(super) fn next_entry(&mut self) -> Result<Option<WalkEntry>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut entry = self.walk.next_entry()?;
        if let Some(entry) = &mut entry
            && entry.kind == Kind::Put
            && has_expired(&self.snapshot, &entry.value)
        {
            entry.kind = Kind::Delete;
        }
        self.left -= u32::from(entry.is_some());
        Ok(entry)
    }
}

/// Decides which entries of one key, offered newest first, are among its latest versions at a
/// write.
struct VersionCounter {
    /// Versions as of this write.
    at: Seq,
    /// The number of latest versions that count.
    latest: usize,
    /// The number of entries up to `at` so far.
    rank: usize,
    /// True once a deletion ends the versions.
    has_ended: bool,
}

impl VersionCounter {
    /// True if the next entry of the key is a version that counts. `is_put` is called only for
    /// entries that a deletion has not hidden.
    fn admits(&mut self, seq: Seq, is_put: impl FnOnce() -> bool) -> bool {
        if self.has_ended || seq > self.at {
            return false;
        }
        self.has_ended = !is_put();
        self.rank += 1;
        !self.has_ended && self.rank <= self.latest
    }
}

/// A candidate of a key.
#[derive(Clone, Copy)]
struct KeyCandidate {
    /// Its place among the candidates that are confirmed together.
    at: usize,
    seq: Seq,
}

/// The result of a search.
pub(super) struct FoundVersions {
    /// The versions, newest first: up to the limit, or one more.
    pub(super) records: Vec<Record>,
    /// True if more than the limit exist.
    pub(super) has_more: bool,
}

/// A search for versions by value.
pub(super) struct VersionSearch<'a> {
    pub(super) view: &'a View,
    pub(super) compiled: &'a Compiled,
    /// Versions as of this write.
    pub(super) at: Seq,
    /// The number of latest versions of a key that count.
    pub(super) latest: usize,
    /// Writes that are known to be obsolete: the dataset no longer keeps their versions.
    pub(super) obsolete: Option<Arc<Superseded>>,
    pub(super) data_cost: Cost,
    pub(super) index_cost: Cost,
}

/// The candidates of one index, newest first, a page at a time.
pub(super) struct CandidateStream<'a> {
    index: &'a dyn IndexType,
    attribute: &'a Attribute,
    range: &'a Range,
    /// The candidates that were read and not taken yet.
    page: VecDeque<Candidate>,
    /// False if the page is the last one.
    has_more: bool,
    /// The number of candidates to request for the next page.
    want: usize,
}

impl<'a> VersionSearch<'a> {
    fn lookup(&self) -> Lookup<'_> {
        let View {
            layout, snapshot, ..
        } = &self.view;
        let (data, index) = (&self.data_cost, &self.index_cost);
        maintenance::lookup(layout, snapshot, data, index, Looks::default())
    }

    /// Borrows memory for candidates, unless `limit` is small.
    fn borrow(&self, limit: usize) -> Option<Loan> {
        let store = &self.view.dataset.store;
        (limit > MIN_PAGE).then(|| store.borrow(Account::Queries))
    }

    /// The bytes that candidates may use: half of the memory. Confirming them uses the other half.
    fn bytes(&self, loan: Option<&Loan>) -> usize {
        let small = || self.view.dataset.store.group.options().memory_budget / 8;
        loan.map_or_else(small, Loan::bytes) / 2
    }

    /// The candidates of the indexes that have entries of all versions, the one with the fewest
    /// expected candidates first, for a search that wants `limit` versions.
    ///
    /// # Errors
    /// Any read error.
    pub(super) fn streams(&self, limit: usize) -> Result<Vec<CandidateStream<'a>>> {
        let want = limit.saturating_add(limit / 4 + 1);
        let mut streams = Vec::new();
        for constraint in self.compiled.conjuncts() {
            let attribute = self.view.layout.attributes.item(constraint.attribute)?;
            // A range filter returns only the newest version of each key.
            let index = attribute.index().filter(|index| !index.is_filtered_scan());
            // A compound index that was built later lacks older versions with too many
            // combinations.
            let is_complete = !attribute.ty.is_compound() || attribute.since == 0;
            let Some(index) = index.filter(|_| is_complete) else {
                continue;
            };
            // A condition that no single range answers is confirmed on the records.
            let Some(range) = constraint.sought_range() else {
                continue;
            };
            streams.push(CandidateStream {
                index,
                attribute,
                range,
                page: VecDeque::new(),
                has_more: true,
                want: want.clamp(MIN_PAGE, MAX_PAGE),
            });
        }
        if streams.len() < 2 {
            return Ok(streams);
        }
        let mut estimated = Vec::with_capacity(streams.len());
        for stream in streams {
            let (lookup, attribute) = (self.lookup(), stream.attribute);
            let expected = stream.index.estimate(&lookup, attribute, stream.range)?;
            estimated.push((expected, stream));
        }
        estimated.sort_by_key(|(expected, _)| *expected);
        Ok(estimated.into_iter().map(|(_, stream)| stream).collect())
    }

    /// Reads the indexes for matching versions below `below`. There must be a stream.
    ///
    /// # Errors
    /// Any read error, and damage if a record is malformed.
    pub(super) fn by_index(
        &self,
        mut streams: Vec<CandidateStream<'a>>,
        mut below: Seq,
        limit: usize,
    ) -> Result<FoundVersions> {
        debug_assert!(!streams.is_empty(), "an index gives the candidates");
        let loan = self.borrow(limit);
        let bytes = self.bytes(loan.as_ref()) / streams.len();
        let mut records = Vec::new();
        loop {
            let mut chunk = Vec::new();
            // One more shows whether the search has more.
            let missing = (limit - records.len()).saturating_add(1);
            while chunk.len() < missing.min(MAX_CONFIRMED) {
                match self.next_common(&mut streams, below, bytes)? {
                    Some(candidate) => {
                        below = candidate.seq;
                        chunk.push(candidate);
                    }
                    None => break,
                }
            }
            if chunk.is_empty() {
                return Ok(FoundVersions {
                    records,
                    has_more: false,
                });
            }
            self.confirm(chunk, &mut records)?;
            if records.len() > limit {
                return Ok(FoundVersions {
                    records,
                    has_more: true,
                });
            }
        }
    }

    /// The newest candidate below `below` that all indexes have.
    fn next_common(
        &self,
        streams: &mut [CandidateStream<'a>],
        mut below: Seq,
        bytes: usize,
    ) -> Result<Option<Candidate>> {
        'again: loop {
            let mut common: Option<Candidate> = None;
            for stream in streams.iter_mut() {
                let Some(head) = self.head(stream, below, bytes)? else {
                    return Ok(None);
                };
                match &common {
                    None => {
                        // Candidates newer than this one are not in all indexes.
                        below = head.seq.saturating_add(1);
                        common = Some(head.clone());
                    }
                    Some(first) if first.seq == head.seq && first.key == head.key => {}
                    Some(first) => {
                        below = head.seq.saturating_add(1).min(first.seq);
                        continue 'again;
                    }
                }
            }
            return Ok(common);
        }
    }

    /// The newest candidate below `below` that one index has. A page takes up to `bytes` bytes.
    fn head<'s>(
        &self,
        stream: &'s mut CandidateStream<'a>,
        below: Seq,
        bytes: usize,
    ) -> Result<Option<&'s Candidate>> {
        loop {
            let newer = stream.page.iter().take_while(|c| c.seq >= below).count();
            stream.page.drain(..newer);
            if !stream.page.is_empty() || !stream.has_more {
                return Ok(stream.page.front());
            }
            let mut best = BestCandidates::new(Window {
                order: Recency::Newest,
                after: Some(below),
                want: stream.want,
                bytes,
            })
            .without(self.obsolete.clone());
            stream.want = (stream.want * 2).min(MAX_PAGE);
            let (lookup, attribute) = (self.lookup(), stream.attribute);
            stream
                .index
                .candidates(&lookup, attribute, stream.range, &mut best)?;
            let (mut candidates, more) = best.finish();
            // The memory is for candidates, not for records.
            candidates.iter_mut().for_each(|c| c.record = None);
            stream.has_more = more && !candidates.is_empty();
            stream.page = candidates.into();
        }
    }

    /// Adds the candidates (newest first) that match and are among the latest versions of their
    /// keys to `records`.
    fn confirm(&self, mut chunk: Vec<Candidate>, records: &mut Vec<Record>) -> Result<()> {
        self.view.drop_noted(&mut chunk);
        let mut values = self.latest_of(&chunk)?;
        let (snapshot, layout) = (&self.view.snapshot, &self.view.layout);
        let admission = Admission::of_all(self.view, self.compiled);
        // Datasets with separate bodies keep one version, so these are the newest of their keys.
        let needs = Needs::of(admission, AnswerContent::Records);
        let mut bodies = needs.bodies(layout, snapshot)?;
        for (at, (candidate, value)) in chunk.iter().zip(&values).enumerate() {
            if let Some(value) = value
                && needs.wants(value)?
            {
                bodies.add(at, &candidate.key, candidate.seq, value)?;
            }
        }
        let take = &mut |at: usize, record: Slice| {
            *values.own_mut(at) = Some(record.compact());
            Ok(())
        };
        bodies.read(LookupOptions::default(), &self.data_cost, take)?;
        for (candidate, value) in chunk.into_iter().zip(values) {
            // Other candidates are not among the latest versions.
            let Some(value) = value else { continue };
            if admission.decide(&value)? == Decision::Admitted {
                records.push(self.view.record(candidate.key, candidate.seq, value)?);
            }
        }
        Ok(())
    }

    /// For each candidate (newest first) its stored record, if that is among the latest versions of
    /// its key.
    fn latest_of(&self, chunk: &[Candidate]) -> Result<Vec<Option<Slice>>> {
        let snapshot = &self.view.snapshot;
        let key = |at: &usize| chunk.own(*at).key.as_slice();
        let seq = |at: &usize| chunk.own(*at).seq;
        let mut order: Vec<usize> = (0..chunk.len()).collect();
        // The sort is stable: the newest candidate of a key stays first.
        order.sort_by(|a, b| key(a).cmp(key(b)));
        let groups: Vec<&[usize]> = order.chunk_by(|a, b| key(a) == key(b)).collect();
        let keys: Vec<&[u8]> = groups.iter().map(|group| key(group.own(0))).collect();
        let mut values: Vec<Option<Slice>> = vec![None; chunk.len()];
        // One batch for all keys: most candidates are the newest version of their key.
        let mut is_open = vec![true; groups.len()];
        let (data, cost) = (self.view.layout.data, &self.data_cost);
        snapshot.visit_batch(data, &keys, cost, &mut |nth, found| {
            if let [only] = groups.own(nth)
                && seq(only) == found.seq
            {
                // An expired version hides the older ones, too, so the key is decided.
                *values.own_mut(*only) =
                    (!has_expired(snapshot, &found.value)).then(|| found.value.compact());
                *is_open.own_mut(nth) = false;
            }
        })?;
        for (group, _) in groups.iter().zip(is_open).filter(|(_, is_open)| *is_open) {
            let of_key = |at: &usize| KeyCandidate {
                at: *at,
                seq: seq(at),
            };
            let candidates: Vec<KeyCandidate> = group.iter().map(of_key).collect();
            self.decide(key(group.own(0)), &candidates, &mut |at, value| {
                *values.own_mut(at) = Some(value);
            })?;
        }
        Ok(values)
    }

    /// A counter of the versions of a key.
    fn counter(&self) -> VersionCounter {
        VersionCounter {
            at: self.at,
            latest: self.latest,
            rank: 0,
            has_ended: false,
        }
    }

    /// Passes the candidates of one key that are among its latest versions to `take`, each with its
    /// place and its stored record. `candidates` are newest first. Notes the candidates that are no
    /// versions any more.
    fn decide(
        &self,
        key: &[u8],
        candidates: &[KeyCandidate],
        take: &mut dyn FnMut(usize, Slice),
    ) -> Result<()> {
        debug_assert!(
            candidates.is_sorted_by(|a, b| a.seq > b.seq),
            "newest first"
        );
        let mut kept = KeptVersions::new(self.view, key);
        let mut left = candidates.iter().copied().peekable();
        let (mut counter, mut newest) = (self.counter(), None);
        while left.peek().is_some()
            && let Some(entry) = kept.next_entry()?
        {
            newest = newest.or(Some(entry.seq));
            // No entry of the key has the number of this candidate.
            while let Some(dangling) = left.next_if(|candidate| candidate.seq > entry.seq) {
                self.view.note_dangling(dangling.seq);
            }
            let counts = counter.admits(entry.seq, || entry.kind == Kind::Put);
            if let Some(found) = left.next_if(|candidate| candidate.seq == entry.seq)
                && counts
            {
                take(found.at, entry.value);
            }
        }
        self.data_cost.absorb(kept.walk.cost());
        let versions = self.view.layout.stored.settings.versions;
        // A dataset with one version drops a tombstone together with the entries that it deletes.
        let is_replaced = kept.left == 0 || (versions == 1 && newest.is_none());
        for KeyCandidate { seq, .. } in left {
            if is_replaced {
                // Without an entry nothing shows which write has deleted the key: the snapshot sees
                // it.
                let by = newest.unwrap_or(self.view.seq());
                self.view.note_obsolete(seq, by);
            } else {
                self.view.note_dangling(seq);
            }
        }
        Ok(())
    }

    /// The stored record with its body, at the search's cost.
    fn with_body(&self, key: &[u8], seq: Seq, stored: Slice) -> Result<Slice> {
        self.view.with_body(key, seq, stored, &self.data_cost)
    }

    /// As [`VersionSearch::by_index`], by a scan of all versions.
    pub(super) fn by_scan(&self, below: Seq, limit: usize) -> Result<FoundVersions> {
        let (snapshot, layout) = (&self.view.snapshot, &self.view.layout);
        let loan = self.borrow(limit);
        let needs_bodies = needs_bodies(layout, self.compiled);
        let mut best = BestCandidates::new(Window {
            order: Recency::Newest,
            after: Some(below),
            want: limit.saturating_add(1),
            bytes: self.bytes(loan.as_ref()),
        });
        let mut cursor = snapshot.entries(layout.data, READAHEAD);
        cursor.seek_first()?;
        let mut last: Option<Vec<u8>> = None;
        // The entries of the present key that the dataset keeps beyond those that were read.
        let mut left = 0;
        let mut counter = self.counter();
        while cursor.valid() {
            if last.as_deref() != Some(cursor.key()) {
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(cursor.key());
                left = layout.stored.settings.versions;
                counter = self.counter();
            }
            let is_kept = left > 0;
            left -= u32::from(is_kept);
            let is_put = || cursor.kind() == Kind::Put && !has_expired(snapshot, cursor.value());
            if is_kept && counter.admits(cursor.seq(), is_put) {
                let seq = cursor.seq();
                if !best.admits(Recency::Newest.rank(seq)) {
                    if best.is_beyond(Recency::Newest.rank(seq)) {
                        best.note_skipped();
                    }
                } else {
                    let record = if needs_bodies {
                        self.with_body(cursor.key(), seq, cursor.value_slice())?
                    } else {
                        cursor.value_slice()
                    };
                    if (self.compiled).confirm(&parse(&record)?, &layout.shape, None) {
                        let bring = || Some((Slice::from(&*record), Origin::Current));
                        best.offer_with(seq, cursor.key(), bring);
                    }
                }
            }
            cursor.next()?;
        }
        self.data_cost.absorb(&cursor.cost());
        let (candidates, has_older) = best.finish();
        let records = candidates
            .into_iter()
            .map(|version| self.record_of(version))
            .collect::<Result<Vec<_>>>()?;
        Ok(FoundVersions {
            has_more: has_older || records.len() > limit,
            records,
        })
    }

    /// The record of a version that a scan has found.
    fn record_of(&self, Candidate { key, seq, record }: Candidate) -> Result<Record> {
        let stored = match record {
            Some((stored, _)) => stored,
            None => self.read_again(&key, seq)?,
        };
        let whole = self.with_body(&key, seq, stored)?;
        self.view.record(key, seq, whole)
    }

    /// The stored form of a version that was too large to hold during the scan.
    fn read_again(&self, key: &[u8], seq: Seq) -> Result<Slice> {
        let (snapshot, layout) = (&self.view.snapshot, &self.view.layout);
        let mut walk = snapshot.walk_from(layout.data, key, seq);
        let entry = walk.next_entry()?.filter(|entry| entry.seq == seq);
        self.data_cost.absorb(walk.cost());
        Ok(entry.ok_or_else(|| Misplaced::here())?.value)
    }
}
