//! The latest record of each thing: of each value at a path, the newest record.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use esker_coding::Seq;
use serde::{Deserialize, Serialize};

use super::{Compiled, NoEstimates, Request, Shape};
use crate::condition::field;
use crate::error::{Error, Result};
use crate::record::{Record, RecordRef};
use crate::schema::ordered::{FieldReader, FieldValues, Scalar, decode};
use crate::schema::{Path, Type, Value};

/// The records that are considered for the latest of each thing, and their order in time.
///
/// The bounds are times as text: RFC 3339, or a number in the unit of the field's declared type. A
/// field without one, or with a type that is not one of times, has seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latest {
    /// The path of the time; without one, records are ordered by their writes.
    time: Option<Path>,
    /// The first and the last time, as texts.
    from: Option<String>,
    until: Option<String>,
    /// By how much a time may be before the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_age: Option<Duration>,
}

impl Latest {
    /// All records, ordered by write.
    pub fn written() -> Latest {
        Latest::default()
    }

    /// Ordered by the time at a path (equal times by order of writes). Skips records without a
    /// time. Of several times in an array the latest counts, of those within the bounds.
    pub fn by_time(path: impl Into<Path>) -> Latest {
        Latest {
            time: Some(path.into()),
            ..Latest::default()
        }
    }

    /// Only records from this time on.
    pub fn from(mut self, time: impl Into<String>) -> Latest {
        self.from = Some(time.into());
        self
    }

    /// Only records up to this time.
    pub fn until(mut self, time: impl Into<String>) -> Latest {
        self.until = Some(time.into());
        self
    }

    /// Only records at most this much older than the time that [`Latest::until`] gives; cut off
    /// below the microsecond.
    pub fn max_age(mut self, age: Duration) -> Latest {
        self.max_age = Some(age);
        self
    }

    /// The first and the last time, in microseconds; `None` for one that is not bounded.
    fn bounds(&self, path: &Path, ty: Type) -> Result<(Option<i64>, Option<i64>)> {
        let read = |text: &String| match Value::parse(ty, text) {
            Ok(Value::Time(micros)) => Ok(micros),
            Ok(other) => Err(Error::bad_input(format!("{path}: {other} is not a time"))),
            Err(why) => Err(Error::bad_input(format!("{path}: {why}"))),
        };
        let from = self.from.as_ref().map(read).transpose()?;
        let until = self.until.as_ref().map(read).transpose()?;
        let oldest = match (self.max_age, until) {
            (None, _) => None,
            (Some(age), Some(until)) => {
                let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
                Some(until.saturating_sub(age))
            }
            (Some(_), None) => {
                return Err(Error::bad_input(
                    "`Latest::max_age` is an age at a time: give that, by `Latest::until`",
                ));
            }
        };
        Ok((from.max(oldest), until))
    }
}

/// The fields that are read of a record.
const OF: u32 = 0;
const TIME: u32 = 1;

/// Finds the newest record of each value at a path, and keeps those that satisfy a condition.
pub struct LatestPer<'s> {
    shape: &'s Shape,
    conditions: Compiled,
    reader: FieldReader,
    values: FieldValues,
    /// The first and the last time, if records are ordered by time.
    times: Option<(i64, i64)>,
    limit: usize,
    /// By value, in its ordered encoding.
    latest: HashMap<Vec<u8>, Newest>,
}

/// The newest record of a value.
struct Newest {
    /// Its time, and its write.
    rank: (i64, Seq),
    /// The record, if it satisfies the condition.
    record: Option<Arc<Record>>,
}

impl LatestPer<'_> {
    /// For a request: what is kept, and the request for the records that are considered. Values
    /// are told apart as in groups; each element of an array is one.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the condition or a bound of the time is invalid, or the path is one
    /// of points.
    pub fn new<'s>(
        shape: &'s Shape,
        mut request: Request,
        key: &Path,
        latest: &Latest,
    ) -> Result<(LatestPer<'s>, Request)> {
        let condition = request.condition.take();
        let conditions = Compiled::new(shape, condition, &mut NoEstimates)?;
        let mut fields = vec![(key.clone(), shape.ordered_type(key)?)];
        let mut times = None;
        if let Some(time) = &latest.time {
            let declared = shape.ordered_type(time)?.filter(|ty| ty.is_time());
            let ty = declared.unwrap_or(Type::Time);
            fields.push((time.clone(), Some(ty)));
            let (from, until) = latest.bounds(time, ty)?;
            times = Some((from.unwrap_or(i64::MIN), until.unwrap_or(i64::MAX)));
            // A condition compares times only if the field is declared as one.
            if declared.is_some() {
                if let Some(until) = until {
                    request.filter(field(time).le(Value::Time(until)));
                }
                if let Some(from) = from {
                    request.filter(field(time).ge(Value::Time(from)));
                }
            }
        }
        let per = LatestPer {
            shape,
            conditions,
            reader: FieldReader::new(&fields),
            values: FieldValues::default(),
            times,
            limit: request.limit.take().unwrap_or(usize::MAX),
            latest: HashMap::new(),
        };
        Ok((per, request.all()))
    }

    /// Considers a record.
    pub fn add(&mut self, record: Record) {
        self.reader.read(record.json(), &mut self.values);
        let time = match self.times {
            None => Some(i64::MIN),
            Some((from, until)) => {
                let times = self
                    .values
                    .of(TIME)
                    .filter_map(|value| time_of(value.bytes));
                times.filter(|time| (from..=until).contains(time)).max()
            }
        };
        let Some(time) = time else {
            return;
        };
        let rank = (time, record.seq());
        let record = Arc::new(record);
        let mut meets = None;
        for value in self.values.of(OF) {
            let known = self.latest.get(value.bytes);
            if known.is_none_or(|known| known.rank < rank) {
                let meets = *meets.get_or_insert_with(|| {
                    RecordRef::parse(record.stored())
                        .is_some_and(|record| self.conditions.confirm(&record, self.shape, None))
                });
                let record = meets.then(|| record.clone());
                let newest = Newest { rank, record };
                self.latest.insert(value.bytes.to_vec(), newest);
            }
        }
    }

    /// The records that satisfy the condition, by primary key: each once, also if it is the newest
    /// of several values.
    pub fn finish(self) -> Vec<Record> {
        let found = self.latest.into_values().filter_map(|newest| newest.record);
        let by_key: BTreeMap<_, _> = found.map(|r| (r.key().as_bytes().to_vec(), r)).collect();
        let records = by_key.into_values().take(self.limit);
        records.map(Arc::unwrap_or_clone).collect()
    }
}

/// A time in its ordered encoding, in microseconds; `None` for values that are not times.
fn time_of(value: &[u8]) -> Option<i64> {
    match decode(value)?.0? {
        Scalar::Time(micros) => Some(micros),
        _ => None,
    }
}
