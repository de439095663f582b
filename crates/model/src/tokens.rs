//! Tokenizers: what of an attribute's values its index holds (DELI section III-A). An index entry of an index is
//! made of a token; most tokens are the values themselves.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::schema::Value;

/// The longest prefix that is a token, in characters. Longer ones are looked up by their first
/// characters, and confirmed on the record.
const PREFIX_CHARS: usize = 32;

/// How values of an attribute become the tokens of its index (DELI section III-A). All give the same
/// answers; they differ in what the index holds and which conditions it can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Tokenizer {
    /// The value.
    #[default]
    Exact,
    /// Every prefix of a string, of up to 32 characters: the newest records of a prefix are found as those of a
    /// value are. An index has as many index entries of a value as that has characters. Ranges of strings
    /// are not answered by it.
    Prefix,
    /// The number: an int, a float or a time, in an order that ranges follow. What these types have anyway.
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

    /// Shows the tokens of the values of one record, each once.
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

    /// Shows the tokens that a record has no more when it had the values `old` and has `new` now.
    pub fn each_lost<'v, E>(
        self,
        old: impl Iterator<Item = &'v [u8]>,
        new: impl Iterator<Item = &'v [u8]> + Clone,
        mut show: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if self != Tokenizer::Prefix {
            let mut lost = old.filter(|old| !new.clone().any(|new| new == *old));
            return lost.try_for_each(show);
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
                "unknown tokenizer `{text}`: it is one of exact, prefix, number"
            ))
        })
    }
}

/// Adds the prefixes of an encoded string, encoded; of the empty string itself.
fn prefixes(value: &[u8], tokens: &mut BTreeSet<Vec<u8>>) {
    let Some((text, end)) = value.split_last_chunk::<2>() else {
        return;
    };
    if text.is_empty() {
        tokens.insert(value.to_vec());
    }
    // A character ends where the next begins. In the encoding `ff` only follows a `00`, as a part of it.
    let begins = |byte: u8| byte & 0xc0 != 0x80 && byte != 0xff;
    let ends = (1..=text.len()).filter(|at| text.get(*at).is_none_or(|byte| begins(*byte)));
    for at in ends.take(PREFIX_CHARS) {
        let prefix = text.get(..at).unwrap_or_default();
        tokens.insert([prefix, end.as_slice()].concat());
    }
}

/// The token that all strings with the prefix `text` have, and whether no others have it.
pub fn prefix_token(text: &str) -> (Vec<u8>, bool) {
    let (short, whole) = match text.char_indices().nth(PREFIX_CHARS) {
        Some((end, _)) => (text.get(..end).unwrap_or(text), false),
        None => (text, true),
    };
    (Value::String(short.to_string()).encoded(), whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Type;

    fn tokens(tokenizer: Tokenizer, values: &[&str]) -> Vec<String> {
        let values: Vec<Vec<u8>> = values
            .iter()
            .map(|text| Value::String((*text).to_string()).encoded())
            .collect();
        let mut out = Vec::new();
        let show = |token: &[u8]| {
            let mut input = coding::Reader::new(token);
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

    #[test]
    fn the_token_of_a_prefix_is_one_of_every_string_that_has_it() {
        for text in ["", "a", "\0", "é€", &"x".repeat(32), &"x".repeat(33)] {
            let (token, whole) = prefix_token(text);
            assert_eq!(whole, text.chars().count() <= PREFIX_CHARS);
            let value = Value::String(format!("{text}é")).encoded();
            let mut tokens = BTreeSet::new();
            prefixes(&value, &mut tokens);
            // The empty prefix is no token of other strings.
            assert_eq!(tokens.contains(&token), !text.is_empty());
        }
    }
}
