//! Buckets of numbers and times.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::schema::decimal::Decimal;
use crate::schema::ordered::{Amount, Ordered, Scalar, decode, encode_time};
use crate::schema::time::{self, begin_of, parse_duration};
use crate::schema::{Path, Type, Value};

/// The period of buckets, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Period(String);

/// A period as it was understood.
enum Length {
    Number(Decimal),
    Micros(i64),
    Month,
    Year,
}

impl Period {
    fn length(&self) -> Option<Length> {
        let zero = Decimal::of_int(0);
        match self.0.as_str() {
            "month" => Some(Length::Month),
            "year" => Some(Length::Year),
            text => match Decimal::parse(text) {
                Some(number) => (number > zero).then_some(Length::Number(number)),
                None => {
                    let micros = parse_duration(text).filter(|micros| *micros > 0);
                    micros.map(Length::Micros)
                }
            },
        }
    }

    /// True if numbers are read as times.
    pub(super) fn is_of_time(&self) -> bool {
        !matches!(self.length(), Some(Length::Number(_)))
    }
}

impl FromStr for Period {
    type Err = Error;

    fn from_str(text: &str) -> Result<Period> {
        let period = Period(text.to_string());
        match period.length() {
            Some(_) => Ok(period),
            None => Err(Error::bad_input(format!(
                "`{text}` is not a period: use a number above 0, a length of time such as 1d or \
                 12h30m, month or year"
            ))),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The buckets of a field.
#[derive(Debug, Clone)]
pub(super) struct Buckets {
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    /// Of numbers, in units of the last of some decimal places; of times in text, in microseconds.
    Numbers {
        period: i128,
        start: i128,
        places: u32,
        times: Option<(i64, i64)>,
    },
    /// Of times, in microseconds.
    Times {
        period: i64,
        start: i64,
    },
    Months,
    Years,
}

/// The most decimal places of a period and a start.
const MOST_PLACES: u64 = 18;

impl Buckets {
    /// For a field of this declared type.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the period or the start does not fit the field.
    pub(super) fn new(
        path: &Path,
        ty: Option<Type>,
        period: &Period,
        start: Option<&str>,
    ) -> Result<Buckets> {
        let wrong = |what: String| Error::bad_input(format!("buckets of {path}: {what}"));
        let time_type = ty.filter(|ty| ty.is_time());
        let start_time = |unit: Type| -> Result<i64> {
            match start.map(|start| Value::parse(unit, start)).transpose() {
                Ok(Some(Value::Time(micros))) => Ok(micros),
                Ok(_) => Ok(0),
                Err(why) => Err(wrong(why)),
            }
        };
        let length = period
            .length()
            .ok_or_else(|| wrong("not a period".to_string()))?;
        let kind = match (length, time_type) {
            (Length::Month | Length::Year, _) if start.is_some() => {
                return Err(wrong("a month or a year has no other start".to_string()));
            }
            (Length::Month, _) => Kind::Months,
            (Length::Year, _) => Kind::Years,
            (Length::Micros(period), ty) => Kind::Times {
                period,
                start: start_time(ty.unwrap_or(Type::Time))?,
            },
            (Length::Number(number), Some(ty)) => Kind::Times {
                period: micros_of(&number, ty).ok_or_else(|| {
                    wrong(format!(
                        "{period} {} is no whole number of microseconds",
                        ty.unit_name()
                    ))
                })?,
                start: start_time(ty)?,
            },
            (Length::Number(number), None) => {
                let start = match start.map(|text| (text, Decimal::parse(text))) {
                    None => Decimal::of_int(0),
                    Some((_, Some(start))) => start,
                    Some((text, None)) => match time::parse(text) {
                        Some((micros, _)) => Decimal::of_scaled(i128::from(micros), 6),
                        None => return Err(wrong(format!("`{text}` is not a start"))),
                    },
                };
                numbers(&number, &start).ok_or_else(|| {
                    wrong("the period or the start has too many digits".to_string())
                })?
            }
        };
        Ok(Buckets { kind })
    }

    /// Appends the begin of the bucket of a value; false if no bucket can have it: it is of another
    /// type, or the begin cannot be represented.
    pub(super) fn begin(&self, value: Ordered<'_>, out: &mut Vec<u8>) -> bool {
        self.encode_begin(value, out).is_some()
    }

    fn encode_begin(&self, value: Ordered<'_>, out: &mut Vec<u8>) -> Option<()> {
        let Kind::Numbers {
            period,
            start,
            places,
            times,
        } = &self.kind
        else {
            let Some((Some(Scalar::Time(micros)), _)) = decode(value.bytes) else {
                return None;
            };
            let begin = match &self.kind {
                Kind::Months => begin_of(micros, false),
                Kind::Years => begin_of(micros, true),
                Kind::Times { period, start } => floor_time(micros, *period, *start),
                Kind::Numbers { .. } => None,
            };
            encode_time(begin?, out);
            return Some(());
        };
        let scaled = match (value.amount, places) {
            (Amount::Whole(v), 0) => v,
            _ => match decode(value.bytes)?.0? {
                Scalar::Number(decimal) => decimal.scaled(*places)?,
                Scalar::Text(text) => {
                    let ((micros, _), (period, start)) = time::parse(&text).zip(*times)?;
                    encode_time(floor_time(micros, period, start)?, out);
                    return Some(());
                }
                _ => return None,
            },
        };
        let behind = scaled.checked_sub(*start)?.rem_euclid(*period);
        let begin = scaled.checked_sub(behind)?;
        Decimal::of_scaled(begin, *places).encode(out);
        Some(())
    }
}

fn numbers(period: &Decimal, start: &Decimal) -> Option<Kind> {
    let places = period.places().max(start.places());
    let places = u32::try_from(places)
        .ok()
        .filter(|_| places <= MOST_PLACES)?;
    let micros = |number: &Decimal| {
        let micros = number.scaled(6)?;
        i64::try_from(micros).ok().filter(|_| number.places() <= 6)
    };
    Some(Kind::Numbers {
        period: period.scaled(places)?,
        start: start.scaled(places)?,
        places,
        times: micros(period).zip(micros(start)),
    })
}

/// A number in the unit of a time type in microseconds, if that is a whole number.
fn micros_of(number: &Decimal, ty: Type) -> Option<i64> {
    let per_second = ty.per_second()?;
    let scaled = number.scaled(MOST_PLACES as u32)?;
    let exact = number.places() <= MOST_PLACES;
    // In 10^-18 of the unit; a microsecond is 10^-6 seconds.
    let divisor = per_second.checked_mul(1_000_000_000_000)?;
    let micros = i64::try_from(scaled / divisor).ok()?;
    (exact && scaled % divisor == 0 && micros > 0).then_some(micros)
}

fn floor_time(micros: i64, period: i64, start: i64) -> Option<i64> {
    let (micros, start) = (i128::from(micros), i128::from(start));
    let behind = (micros - start).rem_euclid(i128::from(period));
    i64::try_from(micros - behind).ok()
}
