//! The groups of an aggregate, from the values of an index in their order: neighbouring values of
//! one group are added up, and each group is passed on when all its entries are decided. The groups
//! that wait are bounded by their number and their bytes. The last one, of which entries may
//! follow, is not: it takes up to two bytes for each of its records, and eight for the last 65,536.

use std::ops::ControlFlow;

use esker_lsm::coding::Own;
use esker_lsm::{Cost, Seq};
use esker_model::Key;
use esker_model::query::{Group, ValueTotals};

use super::count::DistinctWrites;
use super::current_entries::TakeCurrentEntry;
use super::explain::Steps;
use super::value_counts::ValueCount;
use crate::error::Result;
use crate::store::View;

/// Receives the groups of an answer. A break ends the query.
pub(super) type VisitGroup<'g> = dyn FnMut(Group) -> Result<ControlFlow<()>> + 'g;

/// The most groups that wait for their entries to be decided.
const MAX_WAITING_GROUPS: usize = 16 << 10;

/// If a record of each group of times is read, at most one in this many entries is.
const ENTRIES_PER_SAMPLE: u64 = 16;

/// The number of groups of times whose records are read in any case.
const FIRST_SAMPLES: u64 = 64;

/// The values of current entries, as groups.
pub(super) struct ValueGroups<'a> {
    sampler: TimeSampler<'a>,
    pub(super) totals: ValueTotals,
    /// True if a record of each group shows whether its times are numbers.
    shows_times: bool,
    /// The number of records that were read for this.
    samples: u64,
    /// The number of current entries.
    taken: u64,
    /// The writes of the records that have a value; `None` if these are not counted.
    pub(super) all_writes: Option<DistinctWrites>,
    /// The value of the last entry.
    value: Vec<u8>,
    /// The groups whose entries are not all decided; entries of the last one may follow.
    waiting: Vec<WaitingGroup>,
    /// The bytes of these groups, and the most of them.
    waiting_bytes: usize,
    max_bytes: usize,
    /// False once the index does not show what a record has: the groups are not those of the
    /// records.
    is_shown: bool,
}

/// A group whose entries are not all decided; for aggregates without groups, a value.
struct WaitingGroup {
    key: Vec<u8>,
    /// The writes of its records.
    records: DistinctWrites,
    /// Records that were counted without their writes.
    counted: u64,
    /// The key of a record of the group, if a current entry was met.
    example: Option<Vec<u8>>,
}

impl WaitingGroup {
    /// Its bytes, but for those of [`DistinctWrites::gathered_bytes`].
    fn bytes(&self) -> usize {
        let example = self.example.as_ref().map_or(0, Vec::len);
        size_of::<WaitingGroup>() + self.key.len() + example
    }

    /// Sets its example if it has none. Returns the bytes that this adds.
    fn set_example(&mut self, key: &[u8]) -> usize {
        if self.example.is_some() {
            return 0;
        }
        self.example = Some(key.to_vec());
        key.len()
    }
}

impl<'a> ValueGroups<'a> {
    /// No groups yet. The writes of all groups are gathered in `all_writes`, if it is given. Groups
    /// that wait take up to `max_bytes`.
    pub(super) fn new(
        sampler: TimeSampler<'a>,
        totals: ValueTotals,
        all_writes: Option<DistinctWrites>,
        max_bytes: usize,
    ) -> ValueGroups<'a> {
        ValueGroups {
            all_writes,
            shows_times: totals.shows_times(),
            sampler,
            samples: 0,
            taken: 0,
            totals,
            value: Vec::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            max_bytes,
            is_shown: true,
        }
    }

    /// True if the index shows the groups of the records so far.
    pub(super) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Adds all current entries of a value, of one record each.
    pub(super) fn add_counted(&mut self, counted: ValueCount) {
        let ValueCount {
            value,
            entries,
            key,
        } = counted;
        let at = self.group_of(&value);
        self.taken += entries;
        let group = self.waiting.own_mut(at);
        group.counted += entries;
        self.waiting_bytes += group.set_example(&key);
    }

    /// The place of the group that entries with this value belong to: the last one, which begins
    /// here if the value is not in the one before.
    #[inline]
    pub(super) fn group_of(&mut self, value: &[u8]) -> usize {
        if self.value != value || self.waiting.is_empty() {
            self.value.clear();
            self.value.extend_from_slice(value);
            let mut key = Vec::new();
            self.is_shown &= self.totals.key(value, &mut key);
            if self.waiting.last().is_none_or(|last| last.key != key) {
                let group = WaitingGroup {
                    key,
                    records: DistinctWrites::default(),
                    counted: 0,
                    example: None,
                };
                self.waiting_bytes += group.bytes();
                self.waiting.push(group);
            }
        }
        self.waiting.len() - 1
    }

    /// True if the groups so far are to be decided and passed on.
    pub(super) fn is_full(&self) -> bool {
        // The first record that is read may show that the index is of no use.
        let is_first = self.shows_times && self.samples == 0;
        // The last group stays in any case.
        self.waiting.len() > 1
            && (is_first
                || self.waiting.len() >= MAX_WAITING_GROUPS
                || self.waiting_bytes >= self.max_bytes)
    }

    /// True if a record of the group, or without groups of all, has a number as a time. If the
    /// first record that is read has none, other records may: then the index does not show the
    /// groups.
    fn sample(&mut self, key: &[u8], record: &[u8], steps: &mut Steps) -> Result<bool> {
        let is_grouped = self.totals.is_grouped();
        if !self.shows_times || !is_grouped && self.samples > 0 {
            return Ok(self.shows_times);
        }
        self.samples += 1;
        let group = is_grouped.then_some(key);
        let sampler = self.sampler;
        let is_number = sampler.has_number(&mut self.totals, record, group, steps)?;
        let further = (self.samples - 1).saturating_sub(FIRST_SAMPLES);
        let is_affordable = further * ENTRIES_PER_SAMPLE <= self.taken;
        self.is_shown &= is_number && is_affordable;
        Ok(is_number)
    }

    /// Passes on the groups, except for the last one, of which entries may follow. All entries so
    /// far must be decided.
    ///
    /// # Errors
    /// Any read error, an overflow of a total, and any error of `visit`.
    pub(super) fn pass_on_closed(
        &mut self,
        steps: &mut Steps,
        visit: &mut VisitGroup<'_>,
    ) -> Result<ControlFlow<()>> {
        let open = self.waiting.pop();
        let flow = self.pass_on_all(steps, visit)?;
        let bytes = |open: &WaitingGroup| open.bytes() + open.records.gathered_bytes();
        self.waiting_bytes = open.as_ref().map_or(0, bytes);
        self.waiting.extend(open);
        Ok(flow)
    }

    /// Passes on all groups, whose entries must be decided.
    ///
    /// # Errors
    /// As [`ValueGroups::pass_on_closed`].
    pub(super) fn pass_on_all(
        &mut self,
        steps: &mut Steps,
        visit: &mut VisitGroup<'_>,
    ) -> Result<ControlFlow<()>> {
        self.waiting_bytes = 0;
        for group in std::mem::take(&mut self.waiting) {
            // A group without a current entry does not exist.
            let Some(record) = group.example else {
                continue;
            };
            let records = group.records.count() + group.counted;
            let is_number = self.sample(&group.key, &record, steps)?;
            if !self.is_shown {
                break;
            }
            if !self.totals.is_grouped() {
                self.totals.add(&group.key, is_number);
                continue;
            }
            let group = self.totals.group(&group.key, records, is_number)?;
            if visit(group)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl TakeCurrentEntry for ValueGroups<'_> {
    /// The place of a waiting group.
    type Group = usize;

    #[inline]
    fn take(&mut self, group: usize, key: &[u8], seq: Seq) {
        self.taken += 1;
        if let Some(all_writes) = &mut self.all_writes {
            all_writes.add(seq);
        }
        let group = self.waiting.own_mut(group);
        self.waiting_bytes += group.set_example(key);
        if self.totals.is_grouped() {
            group.records.add(seq);
            self.waiting_bytes += size_of::<Seq>();
        }
    }
}

/// Reads records to see whether they have numbers as times, which an index does not show.
#[derive(Clone, Copy)]
pub(super) struct TimeSampler<'a> {
    pub(super) view: &'a View,
    /// The cost of reading records.
    pub(super) cost: &'a Cost,
}

impl TimeSampler<'_> {
    /// True if the record of a key has a number as a time: in the group of `group`, or any.
    ///
    /// # Errors
    /// Any read error.
    pub(super) fn has_number(
        &self,
        totals: &mut ValueTotals,
        key: &[u8],
        group: Option<&[u8]>,
        steps: &mut Steps,
    ) -> Result<bool> {
        let key_type = self.view.layout.shape.key_type;
        steps.fetched += 1;
        let key = Key::from_encoded(key_type, key.to_vec());
        match self.view.read(key, self.cost)? {
            Some(record) => Ok(totals.has_number(record.json(), group)),
            // Then nothing shows the group, and the records decide.
            None => Ok(false),
        }
    }
}
