//! The words of the text of conditions, as written and as read.

use std::fmt::{self, Write};

use super::operand::Operand;
use crate::schema::Value;
use crate::schema::time::parse_duration;

/// True for the keywords of conditions.
pub(super) fn is_keyword(word: &str) -> bool {
    const WORDS: [&str; 8] = ["and", "or", "not", "in", "contains", "exists", "is", "null"];
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// The type name in `int(5)`, if the text begins like that.
pub(super) fn typed_name(text: &str) -> Option<&'static str> {
    const NAMES: [&str; 8] = [
        "int", "float", "string", "bool", "time", "point", "plane", "text",
    ];
    let begins = |name: &&str| {
        text.strip_prefix(*name)
            .is_some_and(|rest| rest.starts_with('('))
    };
    NAMES.into_iter().find(begins)
}

/// The time of `now`, or of so much before or after it, as in `now-1h` or `now-1d12h`.
pub(super) fn relative_time(text: &str) -> Option<Operand> {
    let rest = text.strip_prefix("now")?;
    let (sign, rest) = match rest.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, rest.strip_prefix('+').unwrap_or(rest)),
    };
    let micros = match text {
        "now" => 0,
        _ => parse_duration(rest)?,
    };
    let now = match Operand::from(std::time::SystemTime::now()) {
        Operand::Value(Value::Time(now)) => now,
        _ => return None,
    };
    Some(Operand::Value(Value::Time(
        now.saturating_add(sign * micros),
    )))
}

/// Writes text in quotes.
pub(super) fn quoted(f: &mut impl Write, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            f.write_char('\\')?;
        }
        f.write_char(c)?;
    }
    f.write_char('"')
}
