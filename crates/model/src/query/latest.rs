//! The latest record of each thing: of each value at a path, the newest record.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use esker_coding::Seq;
use serde::{Deserialize, Serialize};

use super::{Compiled, NoEstimates, Request, Setting, Shape};
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

    /// Only records from this time on. Only with [`Latest::by_time`].
    pub fn from(mut self, time: impl Into<String>) -> Latest {
        self.from = Some(time.into());
        self
    }

    /// Only records up to this time. Only with [`Latest::by_time`].
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
    fn bounds(&self, path: &Path, clock: Clock) -> Result<(Option<i128>, Option<i128>)> {
        let read = |text: &String| {
            let time = clock.parse(text);
            time.map_err(|why| Error::bad_input(format!("{path}: {why}")))
        };
        let from = self.from.as_ref().map(read).transpose()?;
        let until = self.until.as_ref().map(read).transpose()?;
        let oldest = match (self.max_age, until) {
            (None, _) => None,
            (Some(age), Some(until)) => {
                let age = i128::try_from(age.as_micros()).unwrap_or(i128::MAX);
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

/// How the values of a field are read as times, in microseconds.
#[derive(Clone, Copy)]
struct Clock {
    /// The declared type of times; without one, numbers are seconds, also beyond the times that a
    /// declared type can have.
    declared: Option<Type>,
}

impl Clock {
    fn ty(self) -> Type {
        self.declared.unwrap_or(Type::Time)
    }

    /// Reads a time that is given as text.
    fn parse(self, text: &str) -> std::result::Result<i128, String> {
        match Value::parse(self.ty(), text) {
            Ok(Value::Time(micros)) => Ok(i128::from(micros)),
            Ok(other) => Err(format!("{other} is not a time")),
            Err(why) => match text.parse::<i128>() {
                Ok(seconds) if self.declared.is_none() => Ok(seconds.saturating_mul(MICROS)),
                _ => Err(why.to_string()),
            },
        }
    }

    /// Reads a value in its ordered encoding; `None` for values that are not times.
    fn read(self, value: &[u8]) -> Option<i128> {
        match decode(value)?.0? {
            Scalar::Time(micros) => Some(i128::from(micros)),
            Scalar::Number(seconds) if self.declared.is_none() => seconds.scaled(PLACES),
            Scalar::Text(text) if self.declared.is_none() => self.parse(&text).ok(),
            _ => None,
        }
    }
}

/// Microseconds in a second, and their decimal places.
const MICROS: i128 = 1_000_000;
const PLACES: u32 = 6;

/// The fields that are read of a record.
const OF: u32 = 0;
const TIME: u32 = 1;

/// Finds the newest record of each value at a path, and keeps those that satisfy a condition.
pub struct LatestPer<'s> {
    shape: &'s Shape,
    conditions: Compiled,
    reader: FieldReader,
    values: FieldValues,
    /// How times are read, the first and the last, if records are ordered by time.
    times: Option<Times>,
    offset: usize,
    limit: Option<usize>,
    /// By value, in its ordered encoding.
    latest: HashMap<Vec<u8>, Newest>,
}

/// The times of the records that are considered, in microseconds.
#[derive(Clone, Copy)]
struct Times {
    clock: Clock,
    from: i128,
    until: i128,
}

/// The newest record of a value.
struct Newest {
    /// Its time and sequence number.
    rank: (i128, Seq),
    /// `None` if it does not satisfy the condition.
    record: Option<Arc<Record>>,
}

impl LatestPer<'_> {
    /// For a request: what is kept, and the request for the records that are considered. Values
    /// are distinguished as in groups; each element of an array is one.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the condition or a bound of the time is invalid, the path is one of
    /// points, the request has settings other than a limit and an offset, or `latest` has bounds
    /// of the time but no path of it.
    pub fn new<'s>(
        shape: &'s Shape,
        mut request: Request,
        path: &Path,
        latest: &Latest,
    ) -> Result<(LatestPer<'s>, Request)> {
        request.check_settings("latest_per", &[Setting::Limit, Setting::Offset])?;
        let is_bounded =
            latest.from.is_some() || latest.until.is_some() || latest.max_age.is_some();
        if is_bounded && latest.time.is_none() {
            return Err(Error::bad_input(
                "`Latest::from`, `until` and `max_age` bound a time: name its path, by \
                 `Latest::by_time`",
            ));
        }
        let condition = request.condition.take();
        let conditions = Compiled::new(shape, condition, &mut NoEstimates)?;
        let mut fields = vec![(path.clone(), shape.ordered_type(path)?)];
        let mut times = None;
        if let Some(time) = &latest.time {
            let declared = shape.ordered_type(time)?;
            let clock = Clock {
                declared: declared.filter(|ty| ty.is_time()),
            };
            fields.push((time.clone(), Some(clock.ty())));
            let (from, until) = latest.bounds(time, clock)?;
            narrow(&mut request, shape, time, from, until);
            times = Some(Times {
                clock,
                from: from.unwrap_or(i128::MIN),
                until: until.unwrap_or(i128::MAX),
            });
        }
        let per = LatestPer {
            shape,
            conditions,
            reader: FieldReader::new(&fields),
            values: FieldValues::default(),
            times,
            offset: request.offset,
            limit: request.limit,
            latest: HashMap::new(),
        };
        Ok((per, request.all()))
    }

    /// Considers a record.
    pub fn add(&mut self, record: Record) {
        self.reader.read(record.json(), &mut self.values);
        let time = match self.times {
            None => Some(i128::MIN),
            Some(Times { clock, from, until }) => {
                let values = self.values.of(TIME);
                let times = values.filter_map(|value| clock.read(value.bytes));
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

    /// The records that satisfy the condition, by primary key, each once, also if it is the newest
    /// of several values: those after the offset, at most the limit.
    pub fn finish(self) -> Vec<Record> {
        let found = self.latest.into_values().filter_map(|newest| newest.record);
        let by_key: BTreeMap<_, _> = found.map(|r| (r.key().as_bytes().to_vec(), r)).collect();
        let limit = self.limit.unwrap_or(usize::MAX);
        let records = by_key.into_values().skip(self.offset).take(limit);
        records.map(Arc::unwrap_or_clone).collect()
    }
}

/// Adds conditions on the bounds of the time, in microseconds, where an index can serve them: in a
/// declared time as they are, in declared numbers in whole seconds.
fn narrow(
    request: &mut Request,
    shape: &Shape,
    time: &Path,
    from: Option<i128>,
    until: Option<i128>,
) {
    let Some(attribute) = shape.declared(time) else {
        return;
    };
    let value = |micros: i128, rounded: i128| match attribute.ty {
        ty if ty.is_time() => i64::try_from(micros).ok().map(Value::Time),
        // A lenient field may have times as text.
        Type::Int | Type::Float if !attribute.lenient => Some(Value::Int(rounded)),
        _ => None,
    };
    let floor = |micros: i128| micros.div_euclid(MICROS);
    if let Some(until) = until.and_then(|v| value(v, floor(v).saturating_add(1))) {
        request.filter(field(time).le(until));
    }
    if let Some(from) = from.and_then(|v| value(v, floor(v))) {
        request.filter(field(time).ge(from));
    }
}
