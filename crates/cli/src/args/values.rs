//! How values on the command line are read.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use esker::experimental::Validation;
use esker::{DatasetDef, Maintenance, Merging, Mix, Repair};

/// Reads one of these names. A name that is none of them is answered with the nearest; baselines are taken, but not listed.
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

/// Reads when obsolete entries are noted for good.
pub(super) fn repair() -> impl TypedValueParser<Value = Repair> {
    named(&["merge", "none"], &["staged"])
}

/// Reads a compaction policy.
pub(super) fn merging() -> impl TypedValueParser<Value = Merging> {
    named(&["lazy-leveled", "leveled", "tiered"], &["correlated"])
}

/// Reads how candidates are validated.
pub(super) fn validation() -> impl TypedValueParser<Value = Validation> {
    named(&["auto", "direct", "timestamp"], &[])
}

/// Reads a number of versions.
pub(super) fn versions(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("the latest 0 versions are none; at least 1".to_string()),
        Ok(versions) => Ok(versions),
        Err(_) => Err("not a whole number".to_string()),
    }
}

/// Reads a size in bytes such as `4096`, `64K`, `128M`, `1G` or `1GiB`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let factor: usize = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        _ => return Err(format!("unknown unit `{unit}` (K, M and G are understood)")),
    };
    let number: usize = digits
        .parse()
        .map_err(|_| "not a number of bytes".to_string())?;
    match number.checked_mul(factor) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("out of range".to_string()),
    }
}

/// The units of times to live, in milliseconds, longest first.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Reads a time to live such as `7d`, `12h`, `30m`, `10s` or `500ms`.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let unit = UNITS.iter().find(|(name, _)| *name == unit);
    let (_, millis) = unit.ok_or("a number and its unit: w, d, h, m, s or ms")?;
    let number: u64 = digits.parse().map_err(|_| "not a whole number")?;
    match number.checked_mul(*millis) {
        Some(millis) if millis > 0 => Ok(Duration::from_millis(millis)),
        _ => Err("out of range".to_string()),
    }
}

/// Reads a time to live, or `none`.
pub(super) fn new_ttl(text: &str) -> Result<Ttl, String> {
    match text {
        "none" => Ok(Ttl(None)),
        _ => Ok(Ttl(Some(ttl(text)?))),
    }
}

/// A time to live; none where records do not expire by their age.
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

/// Reads a durability level: `sync`, `os`, or a number of milliseconds.
pub(crate) fn durability(text: &str) -> Result<esker::Durability, String> {
    match text {
        "sync" => Ok(esker::Durability::Sync),
        "os" => Ok(esker::Durability::Os),
        _ => match text.parse() {
            Ok(ms) if ms > 0 => Ok(esker::Durability::Periodic(
                std::time::Duration::from_millis(ms),
            )),
            _ => Err("expected sync, os, or a number of milliseconds above 0".to_string()),
        },
    }
}

/// Reads a limit: a question for no records is taken for a slip.
pub(super) fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a limit of 0 asks for nothing; leave it out for all".to_string()),
        Ok(limit) => Ok(limit),
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
            _ => return Err(format!("`{name}` is none of puts, gets, lookups, ranges")),
        };
        *field = share
            .trim()
            .parse()
            .map_err(|_| format!("`{share}` is not a number"))?;
    }
    Ok(mix)
}

/// Reads a limit, or `all` for none.
pub(super) fn parse_k(text: &str) -> Result<Limit, String> {
    match text.parse() {
        Ok(0) => Err("a limit of 0 asks for nothing".to_string()),
        Ok(k) => Ok(Some(k)),
        Err(_) if text == "all" => Ok(None),
        Err(_) => Err("expected a whole number, or all".to_string()),
    }
}

/// A limit of queries; `None` is no limit.
pub(crate) type Limit = Option<u64>;

/// A strategy, or that one is to be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Auto,
    Fixed(Maintenance),
}

impl Strategy {
    /// What a definition says.
    pub(crate) fn of(def: &DatasetDef) -> Self {
        match def.auto {
            true => Self::Auto,
            false => Self::Fixed(def.maintenance),
        }
    }

    /// The definition with it.
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

/// Paths with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns(pub(crate) Vec<esker::Path>);

/// Reads paths with commas between them; one with a backslash before it is a part of a name. Quotes around all of it are those of a
/// note that proposed it.
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
