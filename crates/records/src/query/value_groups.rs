//! The groups of an aggregate, from the values of an index in their order: neighbouring values of
//! one group are added up, and each group is passed on when all its entries are decided. Memory is
//! bounded by the number of groups that wait, and of the writes in them.

use std::ops::ControlFlow;

use esker_lsm::Seq;
use esker_lsm::coding::Own;
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

/// The most writes in such groups.
const MAX_WAITING_WRITES: usize = 256 << 10;

/// If a record of each group of times is read, at most one in this many entries is.
const ENTRIES_PER_SAMPLE: u64 = 16;

/// The number of groups of times whose records are read in any case.
const FIRST_SAMPLES: u64 = 64;

/// The values of current entries, as groups.
pub(super) struct ValueGroups<'a> {
    view: &'a View,
    pub(super) totals: ValueTotals,
    /// True if a record of each group shows whether its times are numbers.
    shows_times: bool,
    /// The number of records that were read for this.
    samples: u64,
    /// The number of current entries.
    taken: u64,
    /// The writes of the records that have a value, if they are counted.
    pub(super) all_writes: Option<DistinctWrites>,
    /// The value of the last entry.
    value: Vec<u8>,
    /// The groups whose entries are not all decided; entries of the last one may follow.
    waiting: Vec<WaitingGroup>,
    /// Writes that were added to these groups.
    waiting_writes: usize,
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

impl<'a> ValueGroups<'a> {
    /// No groups yet.
    pub(super) fn new(view: &'a View, totals: ValueTotals) -> ValueGroups<'a> {
        ValueGroups {
            all_writes: None,
            shows_times: totals.shows_times(),
            view,
            samples: 0,
            taken: 0,
            totals,
            value: Vec::new(),
            waiting: Vec::new(),
            waiting_writes: 0,
            is_shown: true,
        }
    }

    /// True if the index shows the groups of the records so far.
    pub(super) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Adds all current entries of a value, of one record each.
    pub(super) fn add_counted(&mut self, counted: ValueCount) -> Result<()> {
        let ValueCount {
            value,
            entries,
            key,
        } = counted;
        let at = self.group_of(&value)?;
        self.taken += entries;
        let group = self.waiting.own_mut(at as usize);
        group.example.get_or_insert(key);
        group.counted += entries;
        Ok(())
    }

    /// True if the groups so far are to be decided and passed on.
    pub(super) fn is_full(&self) -> bool {
        // The first record that is read may show that the index is of no use.
        let is_first = self.shows_times && self.samples == 0 && self.waiting.len() > 1;
        is_first
            || self.waiting.len() >= MAX_WAITING_GROUPS
            || self.waiting_writes >= MAX_WAITING_WRITES
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
        let is_number = has_number(self.view, &mut self.totals, record, group, steps)?;
        let further = (self.samples - 1).saturating_sub(FIRST_SAMPLES);
        let is_affordable = further * ENTRIES_PER_SAMPLE <= self.taken;
        self.is_shown &= is_number && is_affordable;
        Ok(is_number)
    }

    /// Passes on the groups, whose entries so far are decided; the last one only at the end of the
    /// index, as entries of it may follow.
    ///
    /// # Errors
    /// Any read error, an overflow of a total, and any error of `visit`.
    pub(super) fn pass_on(
        &mut self,
        is_end: bool,
        steps: &mut Steps,
        visit: &mut VisitGroup<'_>,
    ) -> Result<ControlFlow<()>> {
        self.waiting_writes = 0;
        let mut decided = std::mem::take(&mut self.waiting);
        if !is_end {
            self.waiting.extend(decided.pop());
        }
        for group in decided {
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
    #[inline]
    fn group_of(&mut self, value: &[u8]) -> Result<u32> {
        if self.value != value || self.waiting.is_empty() {
            self.value.clear();
            self.value.extend_from_slice(value);
            let mut key = Vec::new();
            // A bucket that cannot be represented is an error of the records, if one has it.
            self.is_shown &= matches!(self.totals.key(value, &mut key), Ok(true));
            if self.waiting.last().is_none_or(|last| last.key != key) {
                self.waiting.push(WaitingGroup {
                    key,
                    records: DistinctWrites::default(),
                    counted: 0,
                    example: None,
                });
            }
        }
        Ok((self.waiting.len() as u32).saturating_sub(1))
    }

    #[inline]
    fn take(&mut self, group: u32, key: &[u8], seq: Seq) {
        self.taken += 1;
        if let Some(all_writes) = &mut self.all_writes {
            all_writes.add(seq);
        }
        let group = self.waiting.own_mut(group as usize);
        group.example.get_or_insert_with(|| key.to_vec());
        if self.totals.is_grouped() {
            group.records.add(seq);
            self.waiting_writes += 1;
        }
    }
}

/// True if the record of a key has a number as a time: in the group of `group`, or any.
///
/// # Errors
/// Any read error.
pub(super) fn has_number(
    view: &View,
    totals: &mut ValueTotals,
    key: &[u8],
    group: Option<&[u8]>,
    steps: &mut Steps,
) -> Result<bool> {
    let key_type = view.layout.shape.key_type;
    steps.fetched += 1;
    match view.get(Key::from_encoded(key_type, key.to_vec()))? {
        Some(record) => Ok(totals.has_number(record.json(), group)?),
        // Then nothing shows the group, and the records decide.
        None => Ok(false),
    }
}
