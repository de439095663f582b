//! Parsers of command-line values.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use esker::DatasetDef;
use esker::advise::Mix;
use esker::maintain::Validation;
use esker::schema::{Maintenance, Merging, Repair};
use esker::units;

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

/// Reads a size in bytes such as `4096`, `64K` or `1.5G`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    units::parse_size(text)
}

/// Reads a duration such as `7d`, `1h30m` or `500ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text)
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
        match self.0 {
            Some(ttl) => f.write_str(&units::duration_text(ttl)),
            None => f.write_str("none"),
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
                    "expected sync, os, or how often to sync: {}, or milliseconds above 0",
                    units::DURATION
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
pub(super) fn columns(text: &str) -> Result<Columns, String> {
    let quoted = text
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''));
    Ok(Columns(esker::Path::parse_list(quoted.unwrap_or(text))?))
}
