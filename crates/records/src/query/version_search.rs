//! The search for versions by value (DELI section IV-B, algorithm 2). Each index returns its
//! candidates newest first. The search compares the candidates that all indexes have with the
//! versions of their keys, and notes obsolete ones.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{
    Account, Cost, Cursor, Entries, Kind, Loan, LookupOptions, Seq, Slice, Snapshot, Superseded,
    WalkEntry,
};

use super::key_cursor::READAHEAD;
use super::stages::{Admission, Needs, Verdict, needs_bodies};
use crate::index::Recency;
use esker_model::query::Compiled;

use crate::error::Result;
use crate::index::{
    Attribute, BestCandidates, Candidate, IndexType, Looks, Lookup, Origin, Range, Window,
};
use crate::maintenance;
use crate::record::parse;
use crate::store::{View, has_expired};
use esker_model::Record;

/// The largest number of candidates that are requested at a time.
const MOST: usize = 64 << 10;
/// The smallest number.
const LEAST: usize = 64;

/// The number of candidates that are confirmed together.
const TOGETHER: usize = 256;

/// The entries of a key that the dataset keeps, newest first.
pub(super) struct KeptVersions {
    snapshot: Snapshot,
    pub(super) walk: Entries,
    left: u32,
}

impl KeptVersions {
    pub(super) fn new(snapshot: &View, key: &[u8]) -> KeptVersions {
        KeptVersions {
            snapshot: snapshot.snapshot.clone(),
            walk: snapshot.snapshot.walk(snapshot.layout.data, key),
            left: snapshot.layout.stored.settings.versions,
        }
    }

    /// The next entry. An expired version counts as a deletion.
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

/// A search for versions by value.
pub(super) struct Search<'a> {
    pub(super) snapshot: &'a View,
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
pub(super) struct Stream<'a> {
    index: &'a dyn IndexType,
    attribute: &'a Attribute,
    range: &'a Range,
    expected: u64,
    page: VecDeque<Candidate>,
    /// False if the page is the last one.
    more: bool,
    want: usize,
}

impl<'a> Search<'a> {
    fn lookup(&self) -> Lookup<'_> {
        let View {
            layout, snapshot, ..
        } = &self.snapshot;
        let (data, index) = (&self.data_cost, &self.index_cost);
        maintenance::lookup(layout, snapshot, data, index, Looks::default())
    }

    /// Borrows memory for candidates, unless `limit` is small.
    fn borrow(&self, limit: usize) -> Option<Loan> {
        let shared = &self.snapshot.dataset.shared;
        (limit > LEAST).then(|| shared.borrow(Account::Queries))
    }

    /// The bytes that candidates may use: half of the memory. Confirming them uses the other half.
    fn bytes(&self, loan: Option<&Loan>) -> usize {
        let small = || self.snapshot.dataset.shared.group.options().memory_budget / 8;
        loan.map_or_else(small, Loan::bytes) / 2
    }

    /// The indexes that can be read, the one with the fewest expected candidates first.
    pub(super) fn streams(&self) -> Result<Vec<Stream<'a>>> {
        let mut streams = Vec::new();
        for constraint in self.compiled.conjuncts() {
            let attribute = self.snapshot.layout.attributes.get(constraint.attribute);
            // A range filter returns only the newest version of each key.
            // Versions with too many combinations, replaced before a compound index was built, have
            // no entries in it.
            let index = attribute
                .filter(|attribute| !attribute.ty.is_compound() || attribute.since == 0)
                .and_then(|attribute| attribute.index())
                .filter(|index| !index.is_filtered_scan());
            let (Some(attribute), Some(index)) = (attribute, index) else {
                continue;
            };
            let Some(range) = constraint.sought_range() else {
                continue;
            };
            streams.push(Stream {
                index,
                attribute,
                range,
                expected: 0,
                page: VecDeque::new(),
                more: true,
                want: LEAST,
            });
        }
        if let [_, _, ..] = streams.as_slice() {
            for stream in &mut streams {
                let lookup = self.lookup();
                let expected = stream
                    .index
                    .estimate(&lookup, stream.attribute, stream.range);
                stream.expected = expected?;
            }
            streams.sort_by_key(|stream| stream.expected);
        }
        Ok(streams)
    }

    /// Reads the indexes for up to `limit` + 1 matching versions below `below`. Returns true if
    /// more than `limit` exist.
    pub(super) fn by_index(
        &mut self,
        mut streams: Vec<Stream<'a>>,
        mut below: Seq,
        limit: usize,
    ) -> Result<(Vec<Record>, bool)> {
        let share = streams.len();
        let loan = self.borrow(limit);
        let bytes = self.bytes(loan.as_ref()) / share;
        for stream in &mut streams {
            stream.want = limit.saturating_add(limit / 4 + 1).clamp(LEAST, MOST);
        }
        let mut records = Vec::new();
        loop {
            let mut chunk = Vec::new();
            let missing = (limit - records.len().min(limit)).saturating_add(1);
            while chunk.len() < missing.min(TOGETHER) {
                match self.next(&mut streams, below, bytes)? {
                    Some(candidate) => {
                        below = candidate.seq;
                        chunk.push(candidate);
                    }
                    None => break,
                }
            }
            if chunk.is_empty() {
                return Ok((records, false));
            }
            self.confirm(chunk, &mut records)?;
            if records.len() > limit {
                return Ok((records, true));
            }
        }
    }

    /// The newest candidate below `below` that all indexes have.
    fn next(
        &self,
        streams: &mut [Stream<'a>],
        below: Seq,
        bytes: usize,
    ) -> Result<Option<Candidate>> {
        let mut below = below;
        'again: loop {
            let mut found: Option<Candidate> = None;
            for stream in streams.iter_mut() {
                let Some(head) = self.head(stream, below, bytes)? else {
                    return Ok(None);
                };
                match &found {
                    None => {
                        // Candidates newer than this one are not in all indexes.
                        below = head.seq.saturating_add(1);
                        found = Some(head.clone());
                    }
                    Some(first) if first.seq == head.seq && first.key == head.key => {}
                    Some(first) => {
                        below = head.seq.saturating_add(1).min(first.seq);
                        continue 'again;
                    }
                }
            }
            return Ok(found);
        }
    }

    /// The newest candidate below `below` that one index has.
    fn head<'s>(
        &self,
        stream: &'s mut Stream<'a>,
        below: Seq,
        bytes: usize,
    ) -> Result<Option<&'s Candidate>> {
        loop {
            let newer = stream.page.iter().take_while(|c| c.seq >= below).count();
            stream.page.drain(..newer);
            if !stream.page.is_empty() || !stream.more {
                return Ok(stream.page.front());
            }
            let mut best = BestCandidates::new(Window {
                order: Recency::Newest,
                after: Some(below),
                want: stream.want,
                bytes,
            })
            .without(self.obsolete.clone());
            stream.want = (stream.want * 2).min(MOST);
            let (lookup, attribute) = (self.lookup(), stream.attribute);
            stream
                .index
                .candidates(&lookup, attribute, stream.range, &mut best)?;
            let (mut candidates, more) = best.finish();
            // The memory is for candidates, not for records.
            candidates.iter_mut().for_each(|c| c.record = None);
            stream.more = more && !candidates.is_empty();
            stream.page = candidates.into();
        }
    }

    /// Adds the candidates (newest first) that match and are among the latest versions of their
    /// keys to `records`.
    fn confirm(&mut self, mut chunk: Vec<Candidate>, records: &mut Vec<Record>) -> Result<()> {
        let snapshot = &self.snapshot.snapshot;
        let layout = &self.snapshot.layout;
        self.snapshot.leave_out_noted(&mut chunk);
        let key = |at: &usize| chunk.own(*at).key.as_slice();
        let mut order: Vec<usize> = (0..chunk.len()).collect();
        // The sort is stable: the newest candidate of a key stays first.
        order.sort_by(|a, b| key(a).cmp(key(b)));
        let groups: Vec<&[usize]> = order.chunk_by(|a, b| key(a) == key(b)).collect();
        let keys: Vec<&[u8]> = groups.iter().map(|group| key(group.own(0))).collect();
        let mut values: Vec<Option<Slice>> = vec![None; chunk.len()];
        let seq = |at: &usize| chunk.own(*at).seq;
        // One batch for all keys: most candidates are the newest version of their key.
        let mut open = vec![true; groups.len()];
        snapshot.visit_batch(layout.data, &keys, &self.data_cost, &mut |nth, found| {
            if let [only] = groups.own(nth)
                && seq(only) == found.seq
            {
                // An expired version hides the older ones, too, so the key is decided.
                *values.own_mut(*only) =
                    (!has_expired(snapshot, &found.value)).then(|| found.value.compact());
                *open.own_mut(nth) = false;
            }
        })?;
        for (group, _) in groups.iter().zip(open).filter(|(_, open)| *open) {
            let group: Vec<(usize, Seq)> = group.iter().map(|at| (*at, seq(at))).collect();
            let (first, _) = group.own(0);
            let key = key(first);
            self.decide(key, &group, &mut |at, value| {
                *values.own_mut(at) = Some(value);
            })?;
        }
        let admission = Admission::of_all(self.snapshot, self.compiled);
        // Datasets with bodies apart keep one version, so these are the newest of their keys.
        let needs = Needs::of(admission, true);
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
            let Some(value) = value else { continue };
            if admission.decide(&value)? == Verdict::Admitted {
                records.push(self.snapshot.record(candidate.key, candidate.seq, value)?);
            }
        }
        Ok(())
    }

    /// Calls `fresh` for the candidates of one key that are among its latest versions. `candidates`
    /// has the index and the write number of each, newest first.
    fn decide(
        &self,
        key: &[u8],
        candidates: &[(usize, Seq)],
        fresh: &mut dyn FnMut(usize, Slice),
    ) -> Result<()> {
        debug_assert!(candidates.is_sorted_by(|a, b| a.1 > b.1), "newest first");
        let mut kept = KeptVersions::new(self.snapshot, key);
        let mut left = candidates.iter().copied().peekable();
        let (mut rank, mut ended, mut newest) = (0, false, None);
        while left.peek().is_some()
            && let Some(entry) = kept.next_entry()?
        {
            newest = newest.or(Some(entry.seq));
            // No entry of the key has the number of this candidate.
            while let Some((_, seq)) = left.next_if(|(_, seq)| *seq > entry.seq) {
                self.snapshot.note_dangling(seq);
            }
            let is_version = !ended && entry.seq <= self.at;
            ended |= is_version && entry.kind != Kind::Put;
            rank += usize::from(is_version);
            if let Some((at, _)) = left.next_if(|(_, seq)| *seq == entry.seq)
                && is_version
                && !ended
                && rank <= self.latest
            {
                fresh(at, entry.value);
            }
        }
        self.data_cost.absorb(kept.walk.cost());
        let versions = self.snapshot.layout.stored.settings.versions;
        // A dataset with one version drops a tombstone together with the entries that it deletes.
        let is_gone = kept.left == 0 || (versions == 1 && newest.is_none());
        for (_, seq) in left {
            if is_gone {
                let by = newest.unwrap_or(self.snapshot.seq());
                self.snapshot.note_obsolete(seq, by);
            } else {
                self.snapshot.note_dangling(seq)
            }
        }
        Ok(())
    }

    fn with_body(&self, key: &[u8], seq: Seq, stored: Slice) -> Result<Slice> {
        self.snapshot.with_body(key, seq, stored, &self.data_cost)
    }

    /// As [`Search::by_index`], by a scan of all records.
    pub(super) fn by_scan(&mut self, below: Seq, limit: usize) -> Result<(Vec<Record>, bool)> {
        let (snapshot, layout) = (&self.snapshot.snapshot, &self.snapshot.layout);
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
        let (mut left, mut rank, mut ended) = (0, 0, false);
        while cursor.valid() {
            if last.as_deref() != Some(cursor.key()) {
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(cursor.key());
                (left, rank, ended) = (layout.stored.settings.versions, 0, false);
            }
            let is_version = left > 0 && !ended && cursor.seq() <= self.at;
            left = left.saturating_sub(1);
            ended |=
                is_version && (cursor.kind() != Kind::Put || has_expired(snapshot, cursor.value()));
            rank += usize::from(is_version);
            if is_version && !ended && rank <= self.latest {
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
        let (candidates, more) = best.finish();
        let mut records = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            match candidate.record {
                Some((value, _)) => {
                    let (key, seq) = (candidate.key, candidate.seq);
                    let value = self.with_body(&key, seq, value)?;
                    records.push(self.snapshot.record(key, seq, value)?);
                }
                // The record was too large to hold during the scan.
                None => {
                    let (key, seq) = (candidate.key, candidate.seq);
                    let mut walk = snapshot.walk_from(layout.data, &key, seq);
                    let entry = walk.next_entry()?.filter(|entry| entry.seq == seq);
                    let entry = entry.ok_or_else(Misplaced::here)?;
                    let value = self.with_body(&key, seq, entry.value)?;
                    records.push(self.snapshot.record(key, seq, value)?);
                    self.data_cost.absorb(walk.cost());
                }
            }
        }
        Ok((records, more))
    }
}
