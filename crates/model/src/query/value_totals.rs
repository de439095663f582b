//! Aggregations that follow from which values the records have at one declared field, so that an
//! index of the field answers them without the records: counts by value or bucket, and of the whole
//! the least and the greatest value and how many there are.
//!
//! An index has each value of a record once, so what counts an element of an array as often as it
//! occurs (sums, means, percentiles) does not follow. Neither does any other aggregate of a group:
//! a record with several values is in several groups, with all its values in each.

use std::sync::Arc;

use super::group::Group;
use super::grouping::{ColumnOf, Grouping, SlotKind};
use super::totals::{Open, Totals};
use super::{Aggregate, Aggregation, Shape};
use crate::error::Result;
use crate::schema::ordered::{
    ABSENT, Amount, FieldValues, Ordered, Scalar, decode, encode_attribute,
};
use crate::schema::{Type, time};
use crate::tokens::Tokenizer;

/// Makes groups of the values of an index, which come in their order.
pub struct ValueTotals {
    grouping: Arc<Grouping>,
    /// The place of the attribute, and its type.
    place: usize,
    ty: Type,
    totals: Totals,
    /// What is known of all records, if they are one group.
    whole: Open,
    /// Buffers.
    value: Vec<u8>,
    values: FieldValues,
}

impl ValueTotals {
    /// `None` if the aggregation does not follow from the values of one declared field.
    pub fn new(
        shape: &Shape,
        aggregation: &Aggregation,
        grouping: &Arc<Grouping>,
    ) -> Option<ValueTotals> {
        let follows = |aggregate: &Aggregate| match aggregate {
            Aggregate::Count => true,
            Aggregate::Distinct(_)
            | Aggregate::ApproxDistinct(_)
            | Aggregate::Min(_)
            | Aggregate::Max(_) => aggregation.by.is_empty(),
            Aggregate::Sum(_) | Aggregate::Avg(_) | Aggregate::Percentile(..) => false,
        };
        if !aggregation.aggregates.iter().all(follows) {
            return None;
        }
        let of_groups = aggregation.by.iter().map(|by| &by.path);
        let of_values = aggregation.aggregates.iter().filter_map(Aggregate::path);
        let mut paths = of_groups.chain(of_values);
        let place = shape.place_of(paths.next()?)?;
        let attribute = shape.attribute(place)?;
        let (ty, read_as) = (attribute.ty, grouping.type_of_one()?);
        let is_one = paths.all(|path| *path == attribute.path);
        // Numbers are read as times if they are grouped by a period of time.
        let is_same = read_as == ty || ty == Type::Int && read_as == Type::Time;
        let has_buckets = grouping.by.iter().any(|by| by.buckets.is_some());
        let fits = !has_buckets || ty.is_time() || matches!(ty, Type::Int | Type::Float);
        let is_exact = attribute.tokenizer != Tokenizer::Prefix
            && !(ty == Type::Float && attribute.rounds)
            && !ty.has_place();
        (is_one && is_same && fits && is_exact).then(|| ValueTotals {
            grouping: grouping.clone(),
            place,
            ty,
            totals: Totals::new(grouping.clone()),
            whole: Open::new(grouping, &[]),
            value: Vec::new(),
            values: FieldValues::default(),
        })
    }

    /// The place of the field's attribute.
    pub fn place(&self) -> usize {
        self.place
    }

    /// True if each value or bucket is a group, false if all records are one.
    pub fn is_grouped(&self) -> bool {
        !self.grouping.by.is_empty()
    }

    /// True if the number of records is wanted: in groups also that of those without a value.
    pub fn wants_count(&self) -> bool {
        let is_count = |column: &ColumnOf| matches!(column, ColumnOf::Count);
        self.is_grouped() || self.grouping.columns.iter().any(is_count)
    }

    /// True if the least and the greatest value are enough.
    pub fn wants_ends(&self) -> bool {
        let is_end = |kind| matches!(kind, SlotKind::Least | SlotKind::Greatest);
        !self.wants_count() && self.grouping.slots.iter().all(|slot| is_end(slot.kind))
    }

    /// True if the least value is wanted.
    pub fn wants_least(&self) -> bool {
        let mut slots = self.grouping.slots.iter();
        slots.any(|slot| slot.kind == SlotKind::Least)
    }

    /// True if the greatest value is wanted.
    pub fn wants_greatest(&self) -> bool {
        let mut slots = self.grouping.slots.iter();
        slots.any(|slot| slot.kind == SlotKind::Greatest)
    }

    /// True if the result shows times, which are written as numbers if a record has a number there
    /// ([`ValueTotals::has_number`]): an index does not tell.
    pub fn shows_times(&self) -> bool {
        let is_shown = |kind| matches!(kind, SlotKind::Least | SlotKind::Greatest);
        let shows = self.is_grouped() || self.grouping.slots.iter().any(|slot| is_shown(slot.kind));
        self.ty.is_time() && shows
    }

    /// True if a record has a number, read as a time, at the field: one that is in the group of
    /// this key, or without a key any. `json` is the record.
    pub fn has_number(&mut self, json: &[u8], key: Option<&[u8]>) -> bool {
        self.grouping.reader.read(json, &mut self.values);
        let buckets = self.grouping.by.iter().find_map(|by| by.buckets.as_ref());
        for value in self.values.of(0).filter(|value| value.is_number) {
            let Some(key) = key else { return true };
            self.value.clear();
            match buckets {
                Some(buckets) => _ = buckets.begin(value, &mut self.value),
                None => self.value.extend_from_slice(value.bytes),
            }
            if self.value == key {
                return true;
            }
        }
        false
    }

    /// Replaces `key` by the key of the group that a record with this encoded value belongs to, or
    /// without groups by the value in the order of all values; false if the value does not show it,
    /// or the record is in the group null.
    pub fn key(&mut self, value: &[u8], key: &mut Vec<u8>) -> bool {
        key.clear();
        let is_read = self.read(value, key);
        let buckets = self.grouping.by.iter().find_map(|by| by.buckets.as_ref());
        let Some(buckets) = buckets.filter(|_| is_read) else {
            return is_read;
        };
        self.value.clear();
        self.value.append(key);
        let value = Ordered {
            bytes: &self.value,
            amount: Amount::None,
            is_number: false,
        };
        buckets.begin(value, key)
    }

    /// Appends a value as it is read of records; false if it does not show that.
    fn read(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        if !encode_attribute(self.ty, value, out) {
            return false;
        }
        if self.ty != Type::Int || self.grouping.type_of_one() == Some(Type::Int) {
            return true;
        }
        let Some((Some(Scalar::Number(number)), _)) = decode(out) else {
            return false;
        };
        let micros = number.scaled(0).and_then(|v| time::from_int(Type::Time, v));
        out.clear();
        micros.is_some_and(|micros| {
            crate::schema::ordered::encode_time(micros, out);
            true
        })
    }

    fn is_of_numbers(&self) -> bool {
        matches!(self.ty, Type::Int | Type::Float)
    }

    /// A group of this key. `is_number` is true if one of its records has a number as a time.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) if it is not a key of a group.
    pub fn group(&mut self, key: &[u8], records: u64, is_number: bool) -> Result<Group> {
        let mut open = Open::new(&self.grouping, key);
        open.state.count = records;
        open.state.numbers = u64::from(is_number || self.is_of_numbers());
        self.totals.close(open)
    }

    /// The group of the records without a value.
    ///
    /// # Errors
    /// None that a caller causes.
    pub fn group_without(&mut self, records: u64) -> Result<Group> {
        let mut open = Open::new(&self.grouping, &[ABSENT]);
        open.state.count = records;
        self.totals.close(open)
    }

    /// Adds a value that a record has, as [`ValueTotals::key`] returned it. Each comes once, in
    /// order.
    pub fn add(&mut self, value: &[u8], is_number: bool) {
        let value = Ordered {
            bytes: value,
            amount: Amount::None,
            is_number: is_number || self.is_of_numbers(),
        };
        let Open { state, values, .. } = &mut self.whole;
        for (at, of) in values.iter_mut().enumerate() {
            state.add_value(&self.grouping, at, &value, &mut |_, bytes| {
                of.add(bytes, 1, 0);
            });
        }
    }

    /// The group of all records.
    ///
    /// # Errors
    /// None that a caller causes.
    pub fn finish(mut self, records: u64) -> Result<Group> {
        self.whole.state.count = records;
        self.totals.close(self.whole)
    }
}
