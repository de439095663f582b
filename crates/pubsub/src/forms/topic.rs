//! Topics are paths in a hierarchy; a topic filter selects the topics that a subscription receives.
//!
//! A topic is stored as the concatenation of its encoded levels (the paper's Dewey numbers, section
//! 6.2.2), so that a topic and its subtopics are neighbours:
//!
//! - a number: `2`, its length, its bytes, most significant first. So 10 sorts after 2, and any
//!   fan-out fits.
//! - a name: `3`, its bytes, `0`.
//! - the wildcard `+` of a filter: `4`.
//!
//! No encoded level is a prefix of another, so one topic lies below another exactly if its encoding
//! begins with the other's.

use std::fmt;
use std::str::FromStr;

use esker::{Error, Result};
use esker_coding::Own;

const NUMBER: u8 = 2;
const NAME: u8 = 3;
const ANY: u8 = 4;

/// The maximum number of levels of a topic.
pub const MAX_LEVELS: usize = 64;

/// A topic in a hierarchy, such as `politics/us` or `1/4/2`. The root (the empty text) is above all
/// others.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Topic {
    encoded: Vec<u8>,
}

impl Topic {
    /// The root, which is above all other topics.
    pub fn root() -> Topic {
        Topic::default()
    }

    /// A topic whose levels are numbers, such as the paper's `1.4.2`.
    ///
    /// # Errors
    /// If it has more than [`MAX_LEVELS`] levels.
    pub fn dewey(numbers: &[u64]) -> Result<Topic> {
        check_levels(numbers.len())?;
        let mut encoded = Vec::new();
        for number in numbers {
            put_number(&mut encoded, *number);
        }
        Ok(Topic { encoded })
    }

    /// A topic with one level of this name. The name can contain any character except NUL.
    ///
    /// # Errors
    /// If the name contains a NUL.
    pub fn named(name: &str) -> Result<Topic> {
        let mut encoded = Vec::new();
        put_level(&mut encoded, name)?;
        Ok(Topic { encoded })
    }

    /// The number of its levels.
    pub fn levels(&self) -> usize {
        level_ends(&self.encoded).len()
    }

    /// True if `other` is this topic or below it.
    pub fn holds(&self, other: &Topic) -> bool {
        other.encoded.starts_with(&self.encoded)
    }

    /// The encoded levels.
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// Decodes a topic. `None` if the bytes are malformed or contain a wildcard.
    pub(crate) fn decode(encoded: &[u8]) -> Option<Topic> {
        let mut rest = encoded;
        let mut levels = 0;
        while !rest.is_empty() {
            let (level, tail) = split_level(rest)?;
            levels += 1;
            if level.first() == Some(&ANY) || levels > MAX_LEVELS {
                return None;
            }
            rest = tail;
        }
        let encoded = encoded.to_vec();
        Some(Topic { encoded })
    }
}

impl FromStr for Topic {
    type Err = Error;

    /// Parses levels separated by `/`. A level of digits only, without leading zeros, is a number.
    fn from_str(text: &str) -> Result<Topic> {
        if text.is_empty() {
            return Ok(Topic::root());
        }
        if let Some(wild) = text.split('/').find(|level| level.contains(['+', '#'])) {
            return Err(Error::BadInput(format!(
                "topic `{text}`: `{wild}` has a wildcard, which only subscriptions can have"
            )));
        }
        let mut encoded = Vec::new();
        check_levels(text.split('/').count())?;
        for level in text.split('/') {
            put_level(&mut encoded, level)?;
        }
        Ok(Topic { encoded })
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_levels(&self.encoded, f)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({self})")
    }
}

/// The topics that a filter matches, relative to its pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// The topic, those above it and those below it.
    Overlap,
    /// This topic only.
    Exact,
    /// This topic and those below it (MQTT's `#`).
    Below,
}

impl Reach {
    /// The stored form.
    pub(crate) fn byte(self) -> u8 {
        match self {
            Reach::Overlap => 0,
            Reach::Exact => 1,
            Reach::Below => 2,
        }
    }

    /// The reach with this stored form; `None` if there is none.
    pub(crate) fn from_byte(byte: u8) -> Option<Reach> {
        [Reach::Overlap, Reach::Exact, Reach::Below]
            .into_iter()
            .find(|reach| reach.byte() == byte)
    }
}

/// The levels of a filter's pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PatternLevels {
    /// At most [`MAX_LEVELS`].
    pub(crate) count: u8,
    /// A bit for each level that is `+`; the first level is the lowest bit.
    pub(crate) wild: u64,
}

impl PatternLevels {
    /// Levels as stored; `None` if there are too many, or a wildcard is behind the last one.
    pub(crate) fn decode(count: u8, wild: u64) -> Option<PatternLevels> {
        let is_among_levels = wild.checked_shr(count.into()).unwrap_or(0) == 0;
        let is_valid = usize::from(count) <= MAX_LEVELS && is_among_levels;
        is_valid.then_some(PatternLevels { count, wild })
    }
}

/// The topics that a subscription receives.
///
/// - Without wildcards, `politics/us` receives publications to itself, its subtopics
///   (`politics/us/senate`) and its parent topics (`politics`, and the root).
/// - Wildcards work as in MQTT 5 (section 4.7): `+` stands for one level, `#` at the end for any
///   number of levels. A wildcard at the first level does not match topics that begin with `$`.
/// - [`TopicFilter::exact`] receives publications to one topic only, as a filter without wildcards
///   does in MQTT.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TopicFilter {
    pattern: Vec<u8>,
    reach: Reach,
}

impl TopicFilter {
    /// All topics.
    pub fn everything() -> TopicFilter {
        TopicFilter::from(Topic::root())
    }

    /// One topic only, without its parents and subtopics.
    pub fn exact(topic: Topic) -> TopicFilter {
        TopicFilter {
            pattern: topic.encoded,
            reach: Reach::Exact,
        }
    }

    /// As [`TopicFilter::from`] for an encoded topic.
    pub(crate) fn of_topic(encoded: &[u8]) -> TopicFilter {
        TopicFilter::of(encoded, Reach::Overlap)
    }

    /// A filter with this encoded pattern.
    pub(crate) fn of(pattern: &[u8], reach: Reach) -> TopicFilter {
        TopicFilter {
            pattern: pattern.to_vec(),
            reach,
        }
    }

    /// True if the filter matches the topic.
    pub fn matches(&self, topic: &Topic) -> bool {
        if self.reach == Reach::Overlap {
            let (a, b) = (&self.pattern, &topic.encoded);
            return a.starts_with(b) || b.starts_with(a);
        }
        let (mut pattern, mut rest) = (self.pattern.as_slice(), topic.encoded.as_slice());
        if is_reserved(rest) && (pattern.first() == Some(&ANY) || pattern.is_empty()) {
            return false;
        }
        loop {
            match (split_level(pattern), split_level(rest)) {
                (None, None) => return true,
                (None, Some(_)) => return self.reach == Reach::Below,
                (Some((wanted, after)), Some((level, below))) => {
                    if wanted.first() != Some(&ANY) && wanted != level {
                        return false;
                    }
                    (pattern, rest) = (after, below);
                }
                (Some(_), None) => return false,
            }
        }
    }

    /// The encoded pattern.
    pub(crate) fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// The topics that it matches, relative to its pattern.
    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    /// The levels of its pattern.
    pub(crate) fn levels(&self) -> PatternLevels {
        debug_assert!(level_ends(&self.pattern).len() <= MAX_LEVELS);
        let mut levels = PatternLevels { count: 0, wild: 0 };
        let mut rest = self.pattern.as_slice();
        while let Some((level, tail)) = split_level(rest) {
            if level.first() == Some(&ANY) {
                levels.wild |= 1 << levels.count;
            }
            levels.count += 1;
            rest = tail;
        }
        levels
    }

    /// The levels before its first `+`.
    pub(crate) fn fixed(&self) -> &[u8] {
        let mut rest = self.pattern.as_slice();
        while let Some((level, tail)) = split_level(rest) {
            if level.first() == Some(&ANY) {
                break;
            }
            rest = tail;
        }
        let fixed = self.pattern.len() - rest.len();
        self.pattern.own(..fixed)
    }

    /// The stored form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.reach.byte()];
        out.extend_from_slice(&self.pattern);
        out
    }

    /// Decodes a stored filter; `None` if it is malformed.
    pub(crate) fn decode(stored: &[u8]) -> Option<TopicFilter> {
        let (reach, pattern) = stored.split_first()?;
        let reach = Reach::from_byte(*reach)?;
        let mut rest = pattern;
        let mut levels = 0;
        while !rest.is_empty() {
            rest = split_level(rest)?.1;
            levels += 1;
        }
        let pattern = pattern.to_vec();
        (levels <= MAX_LEVELS).then_some(TopicFilter { pattern, reach })
    }
}

impl From<Topic> for TopicFilter {
    /// The topic, its subtopics and its parent topics.
    fn from(topic: Topic) -> TopicFilter {
        TopicFilter {
            pattern: topic.encoded,
            reach: Reach::Overlap,
        }
    }
}

impl FromStr for TopicFilter {
    type Err = Error;

    /// Parses levels separated by `/`, with the wildcards `+` and `#`.
    fn from_str(text: &str) -> Result<TopicFilter> {
        if !text.contains(['+', '#']) {
            return Ok(TopicFilter::from(Topic::from_str(text)?));
        }
        let wrong = |what: &str| Err(Error::BadInput(format!("topic filter `{text}`: {what}")));
        let mut levels: Vec<&str> = text.split('/').collect();
        let reach = match levels.last() {
            Some(&"#") => Reach::Below,
            _ => Reach::Exact,
        };
        if reach == Reach::Below {
            levels.pop();
        }
        check_levels(levels.len())?;
        let mut pattern = Vec::new();
        for level in levels {
            match level {
                "+" => pattern.push(ANY),
                "#" => return wrong("`#` is only allowed as the last level"),
                _ if level.contains(['+', '#']) => {
                    return wrong("a wildcard is a whole level: `+`, or `#` at the end");
                }
                _ => put_level(&mut pattern, level)?,
            }
        }
        Ok(TopicFilter { pattern, reach })
    }
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_levels(&self.pattern, f)?;
        match self.reach {
            Reach::Below if self.pattern.is_empty() => f.write_str("#"),
            Reach::Below => f.write_str("/#"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicFilter({:?} {self})", self.reach)
    }
}

/// True for topics that begin with `$`. MQTT reserves these for the broker: a wildcard at the first
/// level does not match them.
pub(crate) fn is_reserved(encoded: &[u8]) -> bool {
    encoded.starts_with(&[NAME, b'$'])
}

fn check_levels(levels: usize) -> Result<()> {
    if levels <= MAX_LEVELS {
        Ok(())
    } else {
        Err(Error::BadInput(format!(
            "a topic has at most {MAX_LEVELS} levels, but this one has {levels}"
        )))
    }
}

/// Appends the encoding of a level: of a number if the text is one, otherwise of a name.
fn put_level(out: &mut Vec<u8>, level: &str) -> Result<()> {
    let is_plain = level == "0" || !level.starts_with('0');
    match level.parse::<u64>() {
        Ok(number) if is_plain && level.bytes().all(|b| b.is_ascii_digit()) => {
            put_number(out, number);
        }
        _ if level.contains('\0') => {
            return Err(Error::BadInput(
                "a topic cannot contain a NUL character".to_owned(),
            ));
        }
        _ => {
            out.push(NAME);
            out.extend_from_slice(level.as_bytes());
            out.push(0);
        }
    }
    Ok(())
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    let bytes = number.to_be_bytes();
    let digits = bytes.own(number.leading_zeros() as usize / 8..);
    out.extend([NUMBER, digits.len() as u8]);
    out.extend_from_slice(digits);
}

/// Splits an encoding into its first level and the rest. `None` if the encoding is empty or
/// malformed.
pub(crate) fn split_level(encoded: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = match *encoded.first()? {
        NUMBER => 2 + usize::from(*encoded.get(1).filter(|len| **len <= 8)?),
        NAME => encoded.iter().position(|b| *b == 0)? + 1,
        ANY => 1,
        _ => return None,
    };
    encoded.split_at_checked(len)
}

/// The end offset of each level.
pub(crate) fn level_ends(encoded: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut rest = encoded;
    while let Some((_, tail)) = split_level(rest) {
        ends.push(encoded.len() - tail.len());
        rest = tail;
    }
    ends
}

/// The first levels of an encoded topic whose levels end at `ends`, with `+` for those that are
/// wild.
pub(crate) fn with_wildcards(encoded: &[u8], ends: &[usize], levels: PatternLevels) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(encoded.len());
    let mut start = 0;
    for (at, end) in ends.own(..usize::from(levels.count)).iter().enumerate() {
        if levels.wild >> at & 1 == 1 {
            pattern.push(ANY);
        } else {
            pattern.extend_from_slice(encoded.own(start..*end));
        }
        start = *end;
    }
    pattern
}

fn write_levels(encoded: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rest = encoded;
    while let Some((level, tail)) = split_level(rest) {
        if rest.len() < encoded.len() {
            f.write_str("/")?;
        }
        match level {
            [NUMBER, _, digits @ ..] => {
                let number = digits.iter().fold(0, |n: u64, b| n << 8 | u64::from(*b));
                write!(f, "{number}")?;
            }
            [NAME, name @ .., _] => f.write_str(&String::from_utf8_lossy(name))?,
            _ => f.write_str("+")?,
        }
        rest = tail;
    }
    Ok(())
}
