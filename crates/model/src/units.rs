//! Sizes and durations as people write them: `64M`, `1h30m`.

use std::time::Duration;

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
///
/// ```
/// assert_eq!(esker_model::units::parse_size("1.5K"), Ok(1536));
/// ```
///
/// # Errors
/// A sentence, if the text is no size above 0.
pub fn parse_size(text: &str) -> Result<usize, String> {
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
pub const DURATION: &str =
    "a duration is a number and its unit (w, d, h, m, s or ms), as in 10s, 1.5h or 1h30m";

/// Reads a duration such as `7d`, `12h`, `1h30m`, `1.5s` or `500ms`.
///
/// ```
/// use std::time::Duration;
///
/// let read = esker_model::units::parse_duration("1h30m");
/// assert_eq!(read, Ok(Duration::from_secs(90 * 60)));
/// ```
///
/// # Errors
/// A sentence, if the text is no duration of at least a millisecond.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
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

/// The text of a duration in whole milliseconds, in the largest unit of which it is a multiple.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(esker_model::units::duration_text(Duration::from_secs(7200)), "2h");
/// ```
pub fn duration_text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |(_, unit): &&(&str, u64)| millis.is_multiple_of(*unit);
    match UNITS.iter().find(fits) {
        Some((name, unit)) => format!("{}{name}", millis / unit),
        None => format!("{millis}ms"),
    }
}
