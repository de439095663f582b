//! Finds private turns of phrase, and comments that are too wide, in the sources of the crates.

use std::path::Path;

use super::source::{files, split};

/// Phrases that leave the subject of a sentence unnamed. Say who or what it is.
const PHRASES: [&str; 11] = [
    "whoever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "gives way",
    "brings along",
    "what is there",
    "who wants",
    "of then",
    "is told",
];

/// The widest that a line with a comment may be, in columns.
const COLUMNS: usize = 100;

/// The name under which wide lines are found.
const WIDE: &str = "over 100 columns";

/// Whether `phrase` is in `text` as whole words.
fn has(text: &str, phrase: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(phrase).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !is_word(before) && !is_word(text[at + phrase.len()..].chars().next())
    })
}

/// Where each phrase is in a source: (phrase, line).
fn found(text: &str) -> Vec<(&'static str, usize)> {
    let mut found = Vec::new();
    for prose in split(text).prose {
        let lower = prose.text.to_lowercase();
        let phrases = PHRASES.iter().filter(|phrase| has(&lower, phrase));
        found.extend(phrases.map(|phrase| (*phrase, prose.line)));
    }
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("//") && line.chars().count() > COLUMNS {
            found.push((WIDE, at + 1));
        }
    }
    found
}

/// The places in the sources of the crates in `root` that have a phrase or are too wide.
pub(crate) fn places(root: &Path) -> Vec<String> {
    let mut places = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let folder = entry.unwrap().path().join("src");
        if !folder.is_dir() {
            continue;
        }
        for (file, text) in files(&folder) {
            for (phrase, line) in found(&text) {
                places.push(format!("{}/{file}:{line}: {phrase}", folder.display()));
            }
        }
    }
    places.sort();
    places
}

#[test]
fn phrases_are_found_in_prose_alone() {
    let wide = format!("// {}", "x".repeat(98));
    let text = format!(
        "//! Whoever reads. Nobody's, somebodyish.\nlet nobody = \"it is told\";\n{wide}\nlet {};",
        "x".repeat(200)
    );
    assert_eq!(
        found(&text),
        [("whoever", 1), ("nobody", 1), ("is told", 2), (WIDE, 3)]
    );
}
