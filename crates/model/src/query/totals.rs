//! The results of groups from their sorted entries (see [`super::groups`]), one group at a time.

use std::sync::Arc;

use esker_coding::Own;

use super::group::{Cell, Group};
use super::group_state::{Slot, State};
use super::grouping::{ColumnOf, Grouping};
use super::sum::Total;
use crate::error::{Error, Result};
use crate::schema::Type;
use crate::schema::ordered::{ABSENT, decode};

/// Begins what is known of a group.
pub(super) const KNOWN: u8 = 0;
/// Begins a value of a slot.
pub(super) const VALUE: u8 = 1;

/// Merges the entries of groups. They must come in the order of their bytes.
pub struct Totals {
    grouping: Arc<Grouping>,
    open: Option<Open>,
    /// True after a group was returned.
    has_returned: bool,
}

/// The group of the last entries.
pub(super) struct Open {
    key: Vec<u8>,
    pub(super) state: State,
    /// For each slot, what its values have shown so far.
    pub(super) values: Vec<Values>,
}

/// The values of a slot, which come in order.
#[derive(Default, Clone)]
pub(super) struct Values {
    last: Vec<u8>,
    distinct: u64,
    /// How many values came, each as often as it occurred.
    seen: u64,
    /// The percentages that are wanted, with their values once these have come.
    picks: Vec<(u8, Option<Vec<u8>>)>,
}

impl Values {
    pub(super) fn add(&mut self, value: &[u8], count: u64, all: u64) {
        if self.distinct == 0 || self.last != value {
            self.distinct += 1;
            self.last.clear();
            self.last.extend_from_slice(value);
        }
        self.seen += count;
        for (percent, pick) in &mut self.picks {
            // The nearest rank: the least number of values that is not below the percentage.
            let rank = (u128::from(all) * u128::from(*percent)).div_ceil(100);
            if pick.is_none() && u128::from(self.seen) >= rank {
                *pick = Some(value.to_vec());
            }
        }
    }
}

impl Open {
    pub(super) fn new(grouping: &Grouping, key: &[u8]) -> Open {
        let mut values = vec![Values::default(); grouping.slots.len()];
        for column in &grouping.columns {
            if let ColumnOf::Percentile(slot, percent) = column {
                values.own_mut(*slot).picks.push((*percent, None));
            }
        }
        Open {
            key: key.to_vec(),
            state: State::new(grouping),
            values,
        }
    }
}

impl Totals {
    /// Before the first entry.
    pub fn new(grouping: Arc<Grouping>) -> Totals {
        Totals {
            grouping,
            open: None,
            has_returned: false,
        }
    }

    /// Takes the next entry; returns the group before, if this is the first entry of another one.
    ///
    /// # Errors
    /// [`Error::Overflow`] if a sum of that group cannot be represented; [`Error::Damaged`] if the
    /// entry is malformed.
    pub fn push(&mut self, entry: &[u8]) -> Result<Option<Group>> {
        let damaged = || Error::damaged("an entry of a group is malformed");
        let (rest, length) = entry.split_last_chunk::<4>().ok_or_else(damaged)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (key, rest) = rest.split_at_checked(length).ok_or_else(damaged)?;
        let is_new = self.open.as_ref().is_none_or(|open| open.key != key);
        let before = if is_new {
            let new = Open::new(&self.grouping, key);
            let before = self.open.replace(new);
            before.map(|before| self.close(before)).transpose()?
        } else {
            None
        };
        let Some(open) = &mut self.open else {
            return Err(damaged());
        };
        match rest.split_first() {
            Some((&KNOWN, known)) => {
                let known = State::decode(&self.grouping, known).ok_or_else(damaged)?;
                open.state.merge(&self.grouping, known);
            }
            Some((&VALUE, rest)) => {
                let (slot, rest) = rest.split_first().ok_or_else(damaged)?;
                let (value, count) = rest.split_last_chunk::<8>().ok_or_else(damaged)?;
                let slot = usize::from(*slot);
                let values = open.values.get_mut(slot).ok_or_else(damaged)?;
                let Slot::Values(all) = open.state.slot(slot) else {
                    return Err(damaged());
                };
                values.add(value, u64::from_be_bytes(*count), *all);
            }
            _ => return Err(damaged()),
        }
        Ok(before)
    }

    /// The last group. Without fields that form groups there is one group, also of no records.
    ///
    /// # Errors
    /// [`Error::Overflow`] if a sum cannot be represented.
    pub fn finish(mut self) -> Result<Option<Group>> {
        let empty = || Open::new(&self.grouping, &[]);
        let is_one = self.grouping.by.is_empty() && !self.has_returned;
        let last = self.open.take().or_else(|| is_one.then(empty));
        last.map(|last| self.close(last)).transpose()
    }

    pub(super) fn close(&mut self, open: Open) -> Result<Group> {
        self.has_returned = true;
        let grouping = &self.grouping;
        let mut cells = Vec::with_capacity(grouping.names.len());
        let mut key = open.key.as_slice();
        for (at, by) in grouping.by.iter().enumerate() {
            let damaged = || Error::damaged("the key of a group is malformed");
            let (_, rest) = decode(key).ok_or_else(damaged)?;
            let (part, _) = key
                .split_at_checked(key.len() - rest.len())
                .ok_or_else(damaged)?;
            key = rest;
            let unit = (open.state.numbers & 1 << at != 0).then(|| grouping.unit_of(by.field));
            cells.push(ordered(Some(part), unit));
        }
        for column in &grouping.columns {
            cells.push(self.cell(column, &open)?);
        }
        Ok(Group {
            names: grouping.names.clone(),
            cells,
        })
    }

    fn cell(&self, column: &ColumnOf, open: &Open) -> Result<Cell> {
        let grouping = &self.grouping;
        let overflow = |slot: usize| {
            let path = grouping.path_of(grouping.slots.own(slot).field);
            Error::Overflow(format!("the sum of {path} is too large"))
        };
        let unit = |slot: usize| {
            let field = grouping.slots.own(slot).field;
            open.state
                .has_number(grouping, slot)
                .then(|| grouping.unit_of(field))
        };
        let cell = match *column {
            ColumnOf::Count => Cell::Whole(i128::from(open.state.count)),
            ColumnOf::Sum(at) => match open.state.slot(at) {
                Slot::Sum(sum) if sum.count == 0 => Cell::Null,
                Slot::Sum(sum) => match sum.total().ok_or_else(|| overflow(at))? {
                    Total::Whole(v) => Cell::Whole(v),
                    Total::Float(v) => Cell::Float(v),
                },
                _ => Cell::Null,
            },
            ColumnOf::Average(at) => match open.state.slot(at) {
                Slot::Sum(sum) if sum.count == 0 => Cell::Null,
                Slot::Sum(sum) => Cell::Float(sum.mean().ok_or_else(|| overflow(at))?),
                _ => Cell::Null,
            },
            ColumnOf::Extreme(at) => match open.state.slot(at) {
                Slot::Extreme(value) => ordered(value.as_deref(), unit(at)),
                _ => Cell::Null,
            },
            ColumnOf::Sketch(at) => match open.state.slot(at) {
                Slot::Sketch(Some(sketch)) => Cell::Whole(i128::from(sketch.estimate())),
                _ => Cell::Whole(0),
            },
            ColumnOf::Distinct(at) => Cell::Whole(i128::from(open.values.own(at).distinct)),
            ColumnOf::Percentile(at, percent) => {
                let picks = open.values.own(at).picks.iter();
                let picked = picks.filter(|(wanted, _)| *wanted == percent);
                let value = picked.filter_map(|(_, value)| value.as_deref()).next();
                ordered(value, unit(at))
            }
        };
        Ok(cell)
    }
}

fn ordered(value: Option<&[u8]>, unit: Option<Type>) -> Cell {
    match value {
        None | Some([ABSENT]) => Cell::Null,
        Some(bytes) => Cell::Ordered(bytes.to_vec(), unit),
    }
}
