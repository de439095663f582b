//! The latest record of each thing: of each value at a path, the newest record.

use std::collections::{BTreeMap, HashMap};

use esker_coding::Seq;
use serde::{Deserialize, Serialize};

use super::{Compiled, NoEstimates, Request, Setting, Shape};
use crate::condition::{Operand, field};
use crate::error::{Error, Result};
use crate::record::{Record, RecordRef};
use crate::schema::{Path, Scalar, Type, Value, Values};

/// The records that are considered for the latest of each thing, and their order in time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latest {
    /// The path of the time; without one, records are ordered by their writes.
    time: Option<Path>,
    /// The first and the last time, as texts of the field's type.
    from: Option<String>,
    until: Option<String>,
}

impl Latest {
    /// All records, ordered by write.
    pub fn written() -> Latest {
        Latest::default()
    }

    /// Ordered by the time at a path (seconds since 1970, or RFC 3339; equal times by order of
    /// writes). Skips records without a time.
    pub fn by_time(path: impl Into<Path>) -> Latest {
        Latest {
            time: Some(path.into()),
            ..Latest::default()
        }
    }

    /// Only records from this time on, given as text of the field's type. Only with
    /// [`Latest::by_time`].
    pub fn from(mut self, time: impl Into<String>) -> Latest {
        self.from = Some(time.into());
        self
    }

    /// Only records up to this time, given as text of the field's type. Only with
    /// [`Latest::by_time`].
    pub fn until(mut self, time: impl Into<String>) -> Latest {
        self.until = Some(time.into());
        self
    }
}

/// Finds the newest record of each value at a path, and keeps those that satisfy a condition.
pub struct LatestPer<'s> {
    shape: &'s Shape,
    conditions: Compiled,
    values: Values,
    time: Option<Type>,
    offset: usize,
    limit: Option<usize>,
    /// By value: the rank of its newest record, and the record if it satisfies the condition.
    latest: HashMap<String, ((i128, Seq), Option<Record>)>,
}

impl LatestPer<'_> {
    /// For a request: what is kept, and the request for the records that are considered.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the condition is invalid, the request has settings other than a limit
    /// and an offset, or `latest` has bounds of the time but no path of it.
    pub fn new<'s>(
        shape: &'s Shape,
        mut request: Request,
        path: &Path,
        latest: &Latest,
    ) -> Result<(LatestPer<'s>, Request)> {
        request.check_settings("latest_per", &[Setting::Limit, Setting::Offset])?;
        let is_bounded = latest.from.is_some() || latest.until.is_some();
        if is_bounded && latest.time.is_none() {
            return Err(Error::bad_input(
                "`Latest::from` and `Latest::until` bound a time: name its path, by \
                 `Latest::by_time`",
            ));
        }
        let condition = request.condition.take();
        let conditions = Compiled::new(shape, condition, &mut NoEstimates)?;
        let mut paths = vec![path.clone()];
        if let Some(time) = &latest.time {
            paths.push(time.clone());
            if let Some(until) = &latest.until {
                request.filter(field(time).le(Operand::text(until.clone())));
            }
            if let Some(from) = &latest.from {
                request.filter(field(time).ge(Operand::text(from.clone())));
            }
        }
        let type_of = |time: &Path| {
            let declared = shape.attributes.iter().find(|a| a.path == *time);
            let ty = declared.map_or(Type::Time, |attribute| attribute.ty);
            if ty.is_time() { ty } else { Type::Time }
        };
        let per = LatestPer {
            shape,
            conditions,
            values: Values::new(&paths),
            time: latest.time.as_ref().map(type_of),
            offset: request.offset,
            limit: request.limit,
            latest: HashMap::new(),
        };
        Ok((per, request.all()))
    }

    /// Considers a record.
    pub fn add(&mut self, record: Record) {
        let ty = self.time.unwrap_or(Type::Time);
        let (mut of, mut time) = (None, i128::MIN);
        self.values
            .visit(record.json(), &mut |path, scalar| match path {
                0 => of = of.take().or_else(|| Some(format!("{scalar:?}"))),
                _ => time = time.max(micros(ty, scalar).unwrap_or(i128::MIN)),
            });
        let is_timed = self.time.is_none() || time > i128::MIN;
        let Some(of) = of.filter(|_| is_timed) else {
            return;
        };
        let rank = (time, record.seq());
        let known = self.latest.get(&of);
        if known.is_none_or(|(known, _)| *known < rank) {
            let meets = RecordRef::parse(record.stored())
                .is_some_and(|record| self.conditions.confirm(&record, self.shape, None));
            self.latest.insert(of, (rank, meets.then_some(record)));
        }
    }

    /// The records that satisfy the condition, by primary key: those after the offset, at most the
    /// limit.
    pub fn finish(self) -> Vec<Record> {
        let found = self.latest.into_values().filter_map(|(_, record)| record);
        let by_key: BTreeMap<_, _> = found.map(|r| (r.key().as_bytes().to_vec(), r)).collect();
        let limit = self.limit.unwrap_or(usize::MAX);
        by_key.into_values().skip(self.offset).take(limit).collect()
    }
}

/// A time of a type in microseconds: a number in its unit, or text.
fn micros(ty: Type, scalar: Scalar<'_>) -> Option<i128> {
    let per_second = match ty {
        Type::TimeMs => 1_000,
        Type::TimeUs => 1_000_000,
        Type::TimeNs => 1_000_000_000,
        _ => 1,
    };
    match scalar {
        Scalar::Int(v) => Some(v.checked_mul(1_000_000)?.div_euclid(per_second)),
        Scalar::Float(v) => Some((v * 1e6 / per_second as f64) as i128),
        Scalar::Str(text) => match Value::parse(ty, text).ok()? {
            Value::Time(micros) => Some(i128::from(micros)),
            _ => None,
        },
        Scalar::Bool(_) => None,
    }
}
