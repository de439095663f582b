//! Points in time: microseconds since 1970-01-01T00:00:00Z, and their text (RFC 3339).
//!
//! Years outside 0000 to 9999 are written with a sign and six digits (ISO 8601 expanded years), so
//! every `i64` of microseconds has a text that parses back to it.

use std::fmt;

use super::types::Type;

const MICROS: i64 = 1_000_000;
const DAY_SECONDS: i64 = 86_400;

/// The offset of a time in text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offset {
    /// The text has an offset, or is only a date.
    Said,
    /// The text has no offset; UTC is assumed.
    Assumed,
}

impl Type {
    /// The year of a number in the unit of this type, or the nearest year that a time can have.
    pub fn year_of(self, number: i128) -> i64 {
        let micros = from_int(self, number);
        year_of(micros.unwrap_or(if number < 0 { i64::MIN } else { i64::MAX }))
    }

    /// True if a number in the unit of this type is a time in the years 1900 to 2500, the usual
    /// years of records.
    pub fn is_usual_year(self, number: i128) -> bool {
        from_int(self, number).is_some_and(|micros| (1900..=2500).contains(&year_of(micros)))
    }
}

/// Parses a time: RFC 3339, a date (its midnight, UTC), and similar forms. Digits beyond
/// microseconds are truncated; second 60 is the first of the next minute.
///
/// | form | as in |
/// | --- | --- |
/// | a blank or nothing between date and offset | `2024-05-01 12:30:00 +02:00` |
/// | no offset: UTC | `2024-05-01 12:30:00` |
/// | no seconds; a comma before their fraction | `2024-05-01T12:30Z`, `2024-05-01 12:30:00,250` |
/// | offsets without colon or minutes; the name of UTC | `+0200`, `+02`, ` UTC`, ` GMT` |
/// | the name of a zone behind an offset | `+0200 CEST`, `+02:00[Europe/Paris]` |
/// | slashes; nothing between the parts | `2024/05/01 12:30:00`, `20240501T123000Z` |
pub(crate) fn parse(text: &str) -> Option<(i64, Offset)> {
    let mut s = Scan {
        rest: text.trim_ascii().as_bytes(),
    };
    let year = s.year()?;
    let between = s.byte(b"-/");
    let month = s.two(1, 12)?;
    if let Some(between) = between {
        s.byte(&[between])?;
    }
    let day = s.two(1, days_in_month(year, month))?;
    let mut seconds = days_from_civil(year, month, day).checked_mul(DAY_SECONDS)?;
    let mut micros = 0;
    let mut said = Offset::Said;
    if s.rest.is_empty() {
        // Digits alone are a number.
        between?;
    } else {
        let is_apart = s.byte(b"Tt ")? == b' ';
        if between.is_none() && is_apart {
            return None;
        }
        let hour = s.two(0, 23)?;
        let colon = s.byte(b":");
        let minute = s.two(0, 59)?;
        let mut second = 0;
        let has_seconds = match colon {
            Some(_) => s.byte(b":").is_some(),
            None => s.rest.first().is_some_and(u8::is_ascii_digit),
        };
        if has_seconds {
            second = s.two(0, 60)?;
            if s.byte(b".,").is_some() {
                micros = s.fraction()?;
            }
        }
        if colon.is_some() == between.is_none() {
            return None;
        }
        let offset = s.offset()?;
        said = match offset {
            Some(_) => Offset::Said,
            None => Offset::Assumed,
        };
        seconds += hour * 3600 + minute * 60 + second - offset.unwrap_or(0);
    }
    if !s.rest.is_empty() {
        return None;
    }
    let time = i64::try_from(i128::from(seconds) * i128::from(MICROS) + i128::from(micros));
    Some((time.ok()?, said))
}

/// The year of a time.
pub(crate) fn year_of(micros: i64) -> i64 {
    civil_from_days(micros.div_euclid(MICROS * DAY_SECONDS)).0
}

/// Parses a length of time, as in `1d12h`, in microseconds; `None` for other texts.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 6] = [
        ("ms", 1_000),
        ("w", 7 * DAY_SECONDS * MICROS),
        ("d", DAY_SECONDS * MICROS),
        ("h", 3_600 * MICROS),
        ("m", 60 * MICROS),
        ("s", MICROS),
    ];
    let (mut rest, mut micros) = (text, 0_i64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, behind) = rest.split_at_checked(digits)?;
        let (unit, factor) = UNITS.iter().find(|(unit, _)| behind.starts_with(unit))?;
        let number = number.parse::<i64>().ok()?.checked_mul(*factor)?;
        micros = micros.checked_add(number)?;
        rest = behind.strip_prefix(unit)?;
    }
    Some(micros).filter(|_| !text.is_empty())
}

/// The begin of the year of a time, or of its month, in UTC; `None` if it is out of range.
pub(crate) fn begin_of(micros: i64, of_year: bool) -> Option<i64> {
    let (year, month, _) = civil_from_days(micros.div_euclid(MICROS * DAY_SECONDS));
    let month = if of_year { 1 } else { month };
    days_from_civil(year, month, 1).checked_mul(DAY_SECONDS * MICROS)
}

/// The time of a number in the unit of a time type, rounded down to the microsecond; `None` if it
/// is out of range.
pub(crate) fn from_int(t: Type, number: i128) -> Option<i64> {
    let per_second = t.per_second()?;
    let scaled = number.checked_mul(i128::from(MICROS))?;
    i64::try_from(scaled.div_euclid(per_second)).ok()
}

/// The time of a decimal in the unit of a time type, rounded to the nearest microsecond.
pub(crate) fn from_decimal(t: Type, number: f64) -> Option<i64> {
    let (per_second, micros) = (t.per_second()? as f64, MICROS as f64);
    // Both factors are whole numbers, so only the result is rounded.
    let micros = if per_second <= micros {
        number * (micros / per_second)
    } else {
        number / (per_second / micros)
    };
    let micros = micros.round();
    // i64::MAX is not a float; the float above it is the first that does not fit.
    (micros >= i64::MIN as f64 && micros < i64::MAX as f64).then_some(micros as i64)
}

/// Writes `micros` as RFC 3339 in UTC, with no, three or six digits after the second.
pub(crate) fn write_rfc3339(f: &mut fmt::Formatter<'_>, micros: i64) -> fmt::Result {
    let (seconds, fraction) = (micros.div_euclid(MICROS), micros.rem_euclid(MICROS));
    let (days, second) = (
        seconds.div_euclid(DAY_SECONDS),
        seconds.rem_euclid(DAY_SECONDS),
    );
    let (year, month, day) = civil_from_days(days);
    if (0..=9999).contains(&year) {
        write!(f, "{year:04}")?;
    } else {
        write!(f, "{year:+07}")?;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    write!(f, "-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
    if fraction % 1000 != 0 {
        write!(f, ".{fraction:06}")?;
    } else if fraction != 0 {
        write!(f, ".{:03}", fraction / 1000)?;
    }
    f.write_str("Z")
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar. Years are counted from
/// March, so that the leap day is the last of its year, in eras of 400 years (146,097 days).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    (era * 400 + year + i64::from(month <= 2), month, day)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

struct Scan<'a> {
    rest: &'a [u8],
}

impl Scan<'_> {
    /// Takes the next byte, if it is one of `any`.
    fn byte(&mut self, any: &[u8]) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        if !any.contains(first) {
            return None;
        }
        self.rest = rest;
        Some(*first)
    }

    fn digit(&mut self) -> Option<i64> {
        self.byte(b"0123456789")
            .map(|digit| i64::from(digit - b'0'))
    }

    fn two(&mut self, min: i64, max: i64) -> Option<i64> {
        let n = self.digit()? * 10 + self.digit()?;
        (min..=max).contains(&n).then_some(n)
    }

    /// Four digits; with a sign, four to six.
    fn year(&mut self) -> Option<i64> {
        let sign = self.byte(b"+-");
        let mut year = self.two(0, 99)? * 100 + self.two(0, 99)?;
        if sign.is_some() {
            for _ in 0..2 {
                year = self.digit().map_or(year, |digit| year * 10 + digit);
            }
        }
        Some(if sign == Some(b'-') { -year } else { year })
    }

    /// The offset from UTC in seconds, with an optional name of a zone behind it. `Some(None)` at
    /// the end; `None` for anything else.
    fn offset(&mut self) -> Option<Option<i64>> {
        let at_end = self.rest.is_empty();
        while self.byte(b" ").is_some() {}
        if at_end {
            return Some(None);
        }
        let is_name = |name: &[u8]| self.rest.eq_ignore_ascii_case(name);
        if is_name(b"UTC") || is_name(b"GMT") {
            self.rest = &[];
            return Some(Some(0));
        }
        let east = match self.byte(b"Zz+-")? {
            sign @ (b'+' | b'-') => {
                let hours = self.two(0, 23)?;
                let minutes = match (self.byte(b":"), self.rest.first()) {
                    (None, first) if !first.is_some_and(u8::is_ascii_digit) => 0,
                    _ => self.two(0, 59)?,
                };
                let east = hours * 3600 + minutes * 60;
                if sign == b'-' { -east } else { east }
            }
            _ => 0,
        };
        self.zone()?;
        Some(Some(east))
    }

    /// Skips the name of a zone behind an offset: ` CEST`, `[Europe/Paris]`.
    fn zone(&mut self) -> Option<()> {
        let name = match self.rest {
            [] => return Some(()),
            [b' ', name @ ..] if name.iter().all(u8::is_ascii_alphabetic) => name,
            [b'[', name @ .., b']'] => name,
            _ => return None,
        };
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"/_-+".contains(byte);
        if name.is_empty() || !name.iter().all(is_part) {
            return None;
        }
        self.rest = &[];
        Some(())
    }

    /// The digits behind the point, at least one, as microseconds.
    fn fraction(&mut self) -> Option<i64> {
        let mut unit = MICROS / 10;
        let mut micros = self.digit()? * unit;
        while let Some(digit) = self.digit() {
            unit /= 10;
            micros += digit * unit;
        }
        Some(micros)
    }
}
