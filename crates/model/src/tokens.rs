//! Tokenizers: they derive the tokens in an index from an attribute's values (DELI section III-A).
//! An index entry consists of a token and a key; in most indexes the tokens are the values.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use esker_coding::Own;

use crate::error::{Error, Result};
use crate::schema::Value;

/// The maximum length of a prefix token in characters. Longer prefixes are looked up by their first
/// characters, and checked on the record.
const PREFIX_CHARS: usize = 32;

/// Values are looked up in a list of up to this many by comparing all; longer lists are searched.
const MOST_COMPARED: usize = 16;

/// How the values of an attribute become tokens, the keys of its index (DELI section III-A).
/// Queries return the same answers with every tokenizer; tokenizers differ in the size of the index
/// and in the conditions that it can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Tokenizer {
    /// The value itself.
    #[default]
    Exact,
    /// Every prefix of a string, up to 32 characters: the index finds the newest records with a
    /// prefix as fast as those with a value. It has one entry per character of a value, and cannot
    /// answer ranges of strings.
    Prefix,
    /// The number (an int, a float or a time), ordered for ranges. These types always behave so.
    Number,
}

impl Tokenizer {
    const ALL: [Tokenizer; 3] = [Tokenizer::Exact, Tokenizer::Prefix, Tokenizer::Number];

    fn name(self) -> &'static str {
        match self {
            Tokenizer::Exact => "exact",
            Tokenizer::Prefix => "prefix",
            Tokenizer::Number => "number",
        }
    }

    /// Visits the tokens of the values of one record, each once.
    pub fn each<'v, E>(
        self,
        values: impl Iterator<Item = &'v [u8]>,
        mut show: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if self != Tokenizer::Prefix {
            let mut values = values;
            return values.try_for_each(show);
        }
        let mut tokens = BTreeSet::new();
        values.for_each(|value| prefixes(value, &mut tokens));
        tokens.iter().try_for_each(|token| show(token))
    }

    /// Visits the tokens that a record loses when its values change from `old` to `new`.
    pub fn each_lost<'v, E>(
        self,
        old: impl Iterator<Item = &'v [u8]>,
        new: impl Iterator<Item = &'v [u8]> + Clone,
        mut show: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if self != Tokenizer::Prefix {
            let mut old = old;
            if new.clone().nth(MOST_COMPARED).is_none() {
                let mut lost = old.filter(|old| !new.clone().any(|new| new == *old));
                return lost.try_for_each(show);
            }
            // Each with each would be quadratic for two long arrays.
            let mut new: Vec<&[u8]> = new.collect();
            if !new.is_sorted() {
                new.sort_unstable();
            }
            return old.try_for_each(|old| match new.binary_search(&old) {
                Ok(_) => Ok(()),
                Err(_) => show(old),
            });
        }
        let (mut had, mut has) = (BTreeSet::new(), BTreeSet::new());
        old.for_each(|value| prefixes(value, &mut had));
        new.for_each(|value| prefixes(value, &mut has));
        had.difference(&has).try_for_each(|token| show(token))
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tokenizer {
    type Err = Error;
    fn from_str(text: &str) -> Result<Tokenizer> {
        let known = Tokenizer::ALL.into_iter().find(|t| t.name() == text);
        known.ok_or_else(|| {
            Error::bad_input(format!(
                "unknown tokenizer `{text}`: use one of exact, prefix, number"
            ))
        })
    }
}

/// Adds the encoded prefixes of an encoded string; for the empty string, the string itself.
fn prefixes(value: &[u8], tokens: &mut BTreeSet<Vec<u8>>) {
    let Some((text, end)) = value.split_last_chunk::<2>() else {
        return;
    };
    if text.is_empty() {
        tokens.insert(value.to_vec());
    }
    // A character ends where the next one begins. In the encoding `ff` occurs only behind a `00`,
    // as a part of it.
    let begins = |byte: u8| byte & 0xc0 != 0x80 && byte != 0xff;
    let ends = (1..=text.len()).filter(|at| text.get(*at).is_none_or(|byte| begins(*byte)));
    for at in ends.take(PREFIX_CHARS) {
        let prefix = text.own(..at);
        tokens.insert([prefix, end.as_slice()].concat());
    }
}

/// The token that all strings with the prefix `text` share, and whether only these strings have it.
pub fn prefix_token(text: &str) -> (Vec<u8>, bool) {
    let (short, whole) = match text.char_indices().nth(PREFIX_CHARS) {
        Some((end, _)) => (text.get(..end).unwrap_or(text), false),
        None => (text, true),
    };
    (Value::String(short.to_string()).encoded(), whole)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::schema::Type;

    fn tokens(tokenizer: Tokenizer, values: &[&str]) -> Vec<String> {
        let values: Vec<Vec<u8>> = values
            .iter()
            .map(|text| Value::String((*text).to_string()).encoded())
            .collect();
        let mut out = Vec::new();
        let show = |token: &[u8]| {
            let mut input = esker_coding::Reader::new(token);
            out.push(Value::decode(Type::String, &mut input).unwrap().to_string());
            assert!(input.is_empty());
            Ok::<_, Error>(())
        };
        tokenizer
            .each(values.iter().map(Vec::as_slice), show)
            .unwrap();
        out
    }

    #[test]
    fn prefixes_are_cut_between_characters_and_come_once() {
        assert_eq!(tokens(Tokenizer::Exact, &["abc", "b"]), ["abc", "b"]);
        assert_eq!(
            tokens(Tokenizer::Prefix, &["abc", "ab", "ad"]),
            ["a", "ab", "abc", "ad"]
        );
        assert_eq!(tokens(Tokenizer::Prefix, &[""]), [""]);
        assert_eq!(
            tokens(Tokenizer::Prefix, &["\0é\0"]),
            ["\0", "\0é", "\0é\0"]
        );
        let long = "€".repeat(40);
        let all = tokens(Tokenizer::Prefix, &[&long]);
        assert_eq!(all.len(), PREFIX_CHARS);
        assert_eq!(all.last().unwrap().chars().count(), PREFIX_CHARS);
    }

    /// The values that get lost, and how many of the new ones were read for that.
    fn lost(old: &[Vec<u8>], new: &[Vec<u8>]) -> (Vec<Vec<u8>>, usize) {
        let (read, mut lost) = (Cell::new(0), Vec::new());
        let new = new.iter().map(Vec::as_slice);
        let new = new.inspect(|_| read.set(read.get() + 1));
        let show = |token: &[u8]| {
            lost.push(token.to_vec());
            Ok::<_, Error>(())
        };
        let old = old.iter().map(Vec::as_slice);
        Tokenizer::Number.each_lost(old, new, show).unwrap();
        (lost, read.get())
    }

    #[test]
    fn the_lost_tokens_of_long_lists_take_a_few_looks_at_each_value() {
        let even = |from: i128, many: i128| -> Vec<Vec<u8>> {
            let numbers = (from..from + many).map(|n| Value::Int(2 * n).encoded());
            numbers.collect()
        };
        let odd = |n: i128| Value::Int(2 * n + 1).encoded();
        for many in [0, 1, 15, 16, 17, 18, 3000] {
            let (old, mut new) = (even(0, many), even(many / 2, many));
            new.extend((0..5).map(odd));
            let expected = even(0, many / 2);
            // Whether the values are ascending or not.
            new.sort_unstable();
            assert_eq!(lost(&old, &new).0, expected, "{many}");
            new.reverse();
            assert_eq!(lost(&old, &new).0, expected, "{many}");
            assert_eq!(lost(&old, &[]).0, old, "{many}");
            assert_eq!(lost(&[], &new).0, even(0, 0), "{many}");
        }
        let (old, new) = (even(0, 3000), even(3000, 3000));
        let (all, read) = lost(&old, &new);
        assert_eq!(all, old);
        assert!(read <= 2 * new.len(), "{read}");
    }

    #[test]
    fn the_token_of_a_prefix_is_one_of_every_string_that_has_it() {
        for text in ["", "a", "\0", "é€", &"x".repeat(32), &"x".repeat(33)] {
            let (token, whole) = prefix_token(text);
            assert_eq!(whole, text.chars().count() <= PREFIX_CHARS);
            let value = Value::String(format!("{text}é")).encoded();
            let mut tokens = BTreeSet::new();
            prefixes(&value, &mut tokens);
            // The empty prefix is not a token of other strings.
            assert_eq!(tokens.contains(&token), !text.is_empty());
        }
    }
}
