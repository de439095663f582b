//! Parsers of command-line values.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use esker::DatasetDef;
use esker::advise::Mix;
use esker::maintain::Validation;
use esker::schema::{Maintenance, Merging, Repair};

/// A parser of these names. The error for another name suggests the nearest one. Baselines are
/// accepted, but not listed.
fn named<T>(
    names: &[&'static str],
    baselines: &[&'static str],
) -> impl TypedValueParser<Value = T> + use<T>
where
    T: FromStr + Clone + Send + Sync + 'static,
    T::Err: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listed = names.iter().map(|name| PossibleValue::new(*name));
    let others = baselines
        .iter()
        .map(|name| PossibleValue::new(*name).hide(true));
    PossibleValuesParser::new(listed.chain(others)).try_map(|name| name.parse::<T>())
}

/// Reads a maintenance strategy.
pub(super) fn strategy() -> impl TypedValueParser<Value = Strategy> {
    let names = ["auto", "deferred", "validation", "mutable-bitmap", "eager"];
    named(&names, &["deleted-key"])
}

/// Reads when obsolete index entries are recorded.
pub(super) fn repair() -> impl TypedValueParser<Value = Repair> {
    named(&["merge", "none"], &["staged"])
}

/// Reads a compaction policy.
pub(super) fn merging() -> impl TypedValueParser<Value = Merging> {
    named(&["lazy-leveled", "leveled", "tiered"], &["correlated"])
}

/// Reads how index entries are checked.
pub(super) fn validation() -> impl TypedValueParser<Value = Validation> {
    named(&["auto", "direct", "timestamp"], &[])
}

/// Reads a number of versions.
pub(super) fn versions(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("the number of versions must be at least 1".to_string()),
        Ok(versions) => Ok(versions),
        Err(_) => Err("not a whole number".to_string()),
    }
}

/// The product of a decimal number and a unit, rounded down.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let unit = u128::from(unit);
    let parts = fraction.parse::<u128>().ok()? * unit / 10_u128.pow(fraction.len() as u32);
    let whole = whole.parse::<u128>().ok()?.checked_mul(unit)?;
    u64::try_from(whole.checked_add(parts)?).ok()
}

/// The number at the beginning of a text, its unit, and the rest.
fn number_and_unit(text: &str) -> (&str, &str, &str) {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let unit_at = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, rest) = text.split_at(unit_at);
    let rest = rest.trim_start();
    let next_at = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(next_at);
    (number, unit, rest.trim_start())
}

/// Reads a size in bytes such as `4096`, `64K`, `64MiB`, `1.5G` or `1GB`: units are powers of 1024.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let (number, unit, rest) = number_and_unit(text.trim());
    let factor: u64 = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        "T" | "TB" | "TIB" => 1 << 40,
        _ => {
            return Err(format!(
                "unknown unit `{unit}`: a size is bytes, or a number and K, M, G or T, as in 64M or 64MiB"
            ));
        }
    };
    if !rest.is_empty() || number.is_empty() || !number.bytes().any(|c| c.is_ascii_digit()) {
        return Err(
            "a size is bytes, or a number and K, M, G or T, as in 64M or 64MiB".to_string(),
        );
    }
    let bytes = scaled(number, factor).and_then(|bytes| usize::try_from(bytes).ok());
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "out of range".to_string())
}

/// The units of durations, in milliseconds, longest first.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// The syntax of a duration, for error texts.
const DURATION: &str =
    "a duration is a number and its unit (w, d, h, m, s or ms), as in 10s, 1.5h or 1h30m";

/// Reads a duration such as `7d`, `12h`, `1h30m`, `1.5s` or `500ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let mut millis = 0_u64;
    let mut left = text.trim();
    while !left.is_empty() {
        let (number, unit, rest) = number_and_unit(left);
        if unit.is_empty() && rest.is_empty() && scaled(number, 1).is_some() {
            return Err(format!("`{text}` has no unit: {DURATION}"));
        }
        let unit = match unit {
            "week" | "weeks" => "w",
            "day" | "days" => "d",
            "hour" | "hours" => "h",
            "min" | "minute" | "minutes" => "m",
            "sec" | "second" | "seconds" => "s",
            unit => unit,
        };
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, unit) = unit.filter(|_| !number.is_empty()).ok_or(DURATION)?;
        if scaled(number, 0).is_none() {
            return Err(DURATION.to_string());
        }
        let part = scaled(number, *unit).and_then(|part| millis.checked_add(part));
        millis = part.ok_or("out of range")?;
        left = rest;
    }
    match (text.trim().is_empty(), millis) {
        (true, _) => Err(DURATION.to_string()),
        (false, 0) => Err("out of range: at least 1ms".to_string()),
        (false, millis) => Ok(Duration::from_millis(millis)),
    }
}

/// Reads an age: a plain number of seconds, or a duration.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    match text.trim().parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|why| why.to_string()),
        Err(_) => duration(text),
    }
}

/// Reads a time to live, or `none`.
pub(super) fn new_ttl(text: &str) -> Result<Ttl, String> {
    match text {
        "none" => Ok(Ttl(None)),
        _ => Ok(Ttl(Some(duration(text)?))),
    }
}

/// A time to live; `None` if records do not expire by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ttl(pub(crate) Option<Duration>);

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ttl) = self.0 else {
            return f.write_str("none");
        };
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let fits = |(_, unit): &&(&str, u64)| millis.is_multiple_of(*unit);
        match UNITS.iter().find(fits) {
            Some((name, unit)) => write!(f, "{}{name}", millis / unit),
            None => write!(f, "{millis}ms"),
        }
    }
}

/// Reads a durability level: `sync`, `os`, or the interval between syncs (a plain number is
/// milliseconds).
pub(crate) fn durability(text: &str) -> Result<esker::Durability, String> {
    match text {
        "sync" => Ok(esker::Durability::Sync),
        "os" => Ok(esker::Durability::Os),
        _ => {
            let wrong = || {
                format!(
                    "expected sync, os, or how often to sync: {DURATION}, or milliseconds above 0"
                )
            };
            let every = match text.parse::<u64>() {
                Ok(0) => return Err(wrong()),
                Ok(millis) => Duration::from_millis(millis),
                Err(_) => duration(text).map_err(|_| wrong())?,
            };
            Ok(esker::Durability::Periodic(every))
        }
    }
}

/// Reads a limit. Zero is refused, because it is most likely a mistake.
pub(super) fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("the limit must be at least 1; leave it out to get all".to_string()),
        Ok(limit) => Ok(limit),
        Err(_) => Err("not a whole number".to_string()),
    }
}

/// Reads the columns of a line.
pub(super) fn width(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(columns) if columns >= 10 => Ok(columns),
        Ok::<usize, _>(_) => Err("a line must have at least 10 columns".to_string()),
        Err(_) => Err("not a whole number".to_string()),
    }
}

/// Reads a mix such as `puts=80,gets=15,lookups=5`.
pub(super) fn parse_mix(text: &str) -> Result<Mix, String> {
    let mut mix = Mix {
        puts: 0.0,
        gets: 0.0,
        lookups: 0.0,
        ranges: 0.0,
        ..Mix::default()
    };
    for part in text.split(',') {
        let (name, share) = part
            .split_once('=')
            .ok_or_else(|| format!("`{part}` is not NAME=SHARE"))?;
        let field = match name.trim() {
            "puts" => &mut mix.puts,
            "gets" => &mut mix.gets,
            "lookups" => &mut mix.lookups,
            "ranges" => &mut mix.ranges,
            _ => {
                return Err(format!(
                    "unknown operation `{name}`: use puts, gets, lookups or ranges"
                ));
            }
        };
        *field = share
            .trim()
            .parse()
            .map_err(|_| format!("`{share}` is not a number"))?;
    }
    Ok(mix)
}

/// Reads a limit; `all` is no limit.
pub(super) fn parse_k(text: &str) -> Result<Limit, String> {
    match text.parse() {
        Ok(0) => Err("the limit must be at least 1".to_string()),
        Ok(k) => Ok(Some(k)),
        Err(_) if text == "all" => Ok(None),
        Err(_) => Err("expected a whole number or `all`".to_string()),
    }
}

/// A limit of queries; `None` is no limit.
pub(crate) type Limit = Option<u64>;

/// A maintenance strategy, or `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Auto,
    Fixed(Maintenance),
}

impl Strategy {
    /// The strategy of a definition.
    pub(crate) fn of(def: &DatasetDef) -> Self {
        if def.auto {
            Self::Auto
        } else {
            Self::Fixed(def.maintenance)
        }
    }

    /// The definition with this strategy.
    pub(crate) fn apply(self, def: DatasetDef) -> DatasetDef {
        match self {
            Self::Auto => def.auto(),
            Self::Fixed(maintenance) => def.maintenance(maintenance),
        }
    }
}

impl FromStr for Strategy {
    type Err = esker::Error;

    fn from_str(text: &str) -> Result<Self, esker::Error> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => Ok(Self::Fixed(text.parse()?)),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(maintenance) => maintenance.fmt(f),
        }
    }
}

/// The separator of CSV columns: one ASCII character, or its name.
pub(crate) fn delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(b'\t'),
        ("comma", _) => Ok(b','),
        ("semicolon", _) => Ok(b';'),
        (_, [b'"' | b'\n' | b'\r']) => {
            Err("a quote or a line break cannot separate columns".to_string())
        }
        (_, [byte]) if byte.is_ascii() => Ok(*byte),
        _ => Err("expected one ASCII character, or tab".to_string()),
    }
}

/// A list of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns(pub(crate) Vec<esker::Path>);

/// Reads paths separated by commas. A comma behind a backslash is part of a name. Quotes around the
/// whole text are removed, since notes propose the argument in quotes.
pub(super) fn columns(text: &str) -> Result<Columns, esker::Error> {
    let quoted = text
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''));
    let mut paths = Vec::new();
    let mut path = String::new();
    let mut escaped = false;
    for c in quoted.unwrap_or(text).chars() {
        if c == ',' && !escaped {
            paths.push(std::mem::take(&mut path).parse()?);
            continue;
        }
        escaped = c == '\\' && !escaped;
        path.push(c);
    }
    paths.push(path.parse()?);
    Ok(Columns(paths))
}
