//! An aggregation compiled for a dataset.

use std::sync::Arc;

use esker_coding::Own;

use super::bucket::Buckets;
use super::group::Group;
use super::{Aggregate, Aggregation, Direction, Shape};
use crate::error::{Error, Result};
use crate::schema::ordered::FieldReader;
use crate::schema::{Path, Type};

/// The most fields and values of an aggregation.
const MOST: usize = 64;

/// What is kept of a group for some of its aggregates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotKind {
    /// The sum of the numbers, and how many there are.
    Sum,
    Least,
    Greatest,
    /// An estimate of the number of different values.
    Sketch,
    /// How often each value occurs.
    Values,
}

/// A slot: its kind, and the values that it is computed of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotOf {
    pub(super) kind: SlotKind,
    /// The place of the field among those that are read.
    pub(super) field: u32,
}

/// A column of an aggregate, by the slot from which it is computed.
#[derive(Debug, Clone, Copy)]
pub(super) enum ColumnOf {
    Count,
    Sum(usize),
    Average(usize),
    Extreme(usize),
    Sketch(usize),
    Distinct(usize),
    Percentile(usize, u8),
}

/// A field that forms groups.
#[derive(Debug, Clone)]
pub(super) struct ByField {
    pub(super) field: u32,
    pub(super) buckets: Option<Buckets>,
}

/// An aggregation compiled for a dataset of one shape.
#[derive(Debug)]
pub struct Grouping {
    pub(super) reader: FieldReader,
    fields: Vec<(Path, Option<Type>)>,
    pub(super) by: Vec<ByField>,
    pub(super) slots: Vec<SlotOf>,
    pub(super) columns: Vec<ColumnOf>,
    pub(super) names: Arc<[String]>,
    /// The places of columns, and their directions.
    order: Vec<(usize, Direction)>,
    limit: Option<usize>,
}

impl Grouping {
    /// Compiles an aggregation, without its condition.
    ///
    /// # Errors
    /// [`Error::BadInput`] if it has no aggregate, two columns of one name, a field of points, a
    /// period that does not fit its field, or an order by something else than its columns.
    pub fn new(shape: &Shape, aggregation: &Aggregation) -> Result<Arc<Grouping>> {
        if aggregation.aggregates.is_empty() {
            return Err(Error::bad_input("an aggregation needs an aggregate"));
        }
        let mut made = Grouping {
            reader: FieldReader::new(&[]),
            fields: Vec::new(),
            by: Vec::new(),
            slots: Vec::new(),
            columns: Vec::new(),
            names: Arc::new([]),
            order: Vec::new(),
            limit: aggregation.limit,
        };
        let mut names = Vec::new();
        for by in &aggregation.by {
            let ty = shape.ordered_type(&by.path)?;
            let buckets = by.period.as_ref().map(|period| {
                let buckets = Buckets::new(&by.path, ty, period, by.start.as_deref())?;
                Ok::<_, Error>((buckets, period.is_of_time()))
            });
            let buckets = buckets.transpose()?;
            let is_of_time = buckets.as_ref().is_some_and(|(_, is_of_time)| *is_of_time);
            let is_time = ty.is_some_and(Type::is_time);
            let ty = if is_of_time && !is_time {
                Some(Type::Time)
            } else {
                ty
            };
            let field = made.field(&by.path, ty);
            let buckets = buckets.map(|(buckets, _)| buckets);
            made.by.push(ByField { field, buckets });
            names.push(by.path.to_string());
        }
        for aggregate in &aggregation.aggregates {
            let column = made.column(shape, aggregate)?;
            made.columns.push(column);
            names.push(aggregate.column());
        }
        if made.fields.len() > MOST || made.by.len() + made.slots.len() > MOST {
            return Err(Error::bad_input(format!(
                "an aggregation has at most {MOST} fields and values"
            )));
        }
        for (at, name) in names.iter().enumerate() {
            if names.iter().take(at).any(|before| before == name) {
                return Err(Error::bad_input(format!("two columns are named `{name}`")));
            }
        }
        for by in &aggregation.order {
            let name = by.path.to_string();
            let known = names.iter().position(|known| *known == name);
            let at = known.ok_or_else(|| {
                let all = names.join(", ");
                Error::bad_input(format!(
                    "an order by `{name}`, which is no column: use {all}"
                ))
            })?;
            made.order.push((at, by.direction));
        }
        made.reader = FieldReader::new(&made.fields);
        made.names = names.into();
        Ok(Arc::new(made))
    }

    /// The place of a field that is read as a type.
    fn field(&mut self, path: &Path, ty: Option<Type>) -> u32 {
        let known = (self.fields.iter()).position(|(known, as_ty)| known == path && *as_ty == ty);
        let at = known.unwrap_or_else(|| {
            self.fields.push((path.clone(), ty));
            self.fields.len() - 1
        });
        at as u32
    }

    fn column(&mut self, shape: &Shape, aggregate: &Aggregate) -> Result<ColumnOf> {
        let Some(path) = aggregate.path() else {
            return Ok(ColumnOf::Count);
        };
        let field = self.field(path, shape.ordered_type(path)?);
        let kind = match aggregate {
            Aggregate::Count | Aggregate::Sum(_) | Aggregate::Avg(_) => SlotKind::Sum,
            Aggregate::Min(_) => SlotKind::Least,
            Aggregate::Max(_) => SlotKind::Greatest,
            Aggregate::ApproxDistinct(_) => SlotKind::Sketch,
            Aggregate::Distinct(_) | Aggregate::Percentile(..) => SlotKind::Values,
        };
        let slot = SlotOf { kind, field };
        let known = self.slots.iter().position(|known| *known == slot);
        let at = known.unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() - 1
        });
        Ok(match aggregate {
            Aggregate::Count => ColumnOf::Count,
            Aggregate::Sum(_) => ColumnOf::Sum(at),
            Aggregate::Avg(_) => ColumnOf::Average(at),
            Aggregate::Min(_) | Aggregate::Max(_) => ColumnOf::Extreme(at),
            Aggregate::ApproxDistinct(_) => ColumnOf::Sketch(at),
            Aggregate::Distinct(_) => ColumnOf::Distinct(at),
            Aggregate::Percentile(percent, _) => ColumnOf::Percentile(at, *percent),
        })
    }

    /// The type as which a field is read, if it is the only one.
    pub(super) fn type_of_one(&self) -> Option<Type> {
        match self.fields.as_slice() {
            [(_, ty)] => *ty,
            _ => None,
        }
    }

    /// The type by whose unit the times of a field are written as numbers.
    pub(super) fn unit_of(&self, field: u32) -> Type {
        let (_, ty) = self.fields.own(field as usize);
        ty.filter(|ty| ty.is_time()).unwrap_or(Type::Time)
    }

    /// The text of a field.
    pub(super) fn path_of(&self, field: u32) -> &Path {
        let (path, _) = self.fields.own(field as usize);
        path
    }

    /// True if the groups have an order of their own, by [`Grouping::rank`]; otherwise they are in
    /// the order in which [`Totals`](super::Totals) returns them.
    pub fn is_ordered(&self) -> bool {
        !self.order.is_empty()
    }

    /// At most this many groups are wanted.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Replaces `rank` by the place of a group in the order: unique by group, compared as bytes.
    pub fn rank(&self, group: &Group, rank: &mut Vec<u8>) {
        rank.clear();
        for (at, direction) in &self.order {
            let begin = rank.len();
            let cell = group.cells.own(*at);
            cell.rank(rank);
            if *direction == Direction::Descending && !cell.is_null() {
                rank.own_mut(begin..)
                    .iter_mut()
                    .for_each(|byte| *byte = !*byte);
            }
        }
        for cell in group.cells.iter().take(self.by.len()) {
            cell.rank(rank);
        }
    }

    /// A group from its bytes ([`Group::encode`]); `None` if they are malformed.
    pub fn decode(&self, bytes: &[u8]) -> Option<Group> {
        Group::decode(&self.names, bytes)
    }
}
