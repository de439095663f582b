//! Counts private turns of phrase, and comments that are too wide, in the sources of each crate.
//!
//! The counts are in `tests/idioms.txt`, a line for each crate and phrase, and may only fall: a count that is higher
//! than its line fails, and so does one that is lower, so that the line is lowered. `ESKER_BLESS=1` writes the file anew.

use std::collections::BTreeMap;
use std::path::Path;

use super::source::{files, split};

/// Phrases that leave the subject of a sentence unnamed. Say who or what it is.
const PHRASES: [&str; 7] = [
    "whoever",
    "nobody",
    "somebody",
    "what is there",
    "who wants",
    "of then",
    "is told",
];

/// The widest that a line with a comment may be, in columns.
const COLUMNS: usize = 100;

/// The name under which wide lines are counted.
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

/// The counts that differ from `tests/idioms.txt` of the repository in `root`, with the places of those that are higher.
pub(crate) fn wrong_counts(root: &Path) -> Vec<String> {
    let mut places: BTreeMap<(String, &str), Vec<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_string();
        if !folder.join("src").is_dir() {
            continue;
        }
        for (file, text) in files(&folder.join("src")) {
            for (phrase, line) in found(&text) {
                let places = places.entry((name.clone(), phrase)).or_default();
                places.push(format!("crates/{name}/src/{file}:{line}"));
            }
        }
    }
    let list = root.join("tests/idioms.txt");
    if std::env::var_os("ESKER_BLESS").is_some() {
        let line = |((name, phrase), places): (&(String, &str), &Vec<String>)| {
            format!("{name}: {phrase}: {}\n", places.len())
        };
        std::fs::write(&list, places.iter().map(line).collect::<String>()).unwrap();
    }
    let text = std::fs::read_to_string(&list).unwrap();
    let mut listed = BTreeMap::new();
    for line in text.lines() {
        let parts: Vec<&str> = line.split(": ").collect();
        let [name, phrase, count] = parts[..] else {
            panic!("{}: {line:?} is not `crate: phrase: count`", list.display());
        };
        listed.insert((name, phrase), count.parse::<usize>().unwrap());
    }
    let mut wrong = Vec::new();
    for ((name, phrase), places) in &places {
        let listed = listed.remove(&(name.as_str(), *phrase)).unwrap_or_default();
        let count = places.len();
        if count > listed {
            let places = places.join("\n  ");
            wrong.push(format!(
                "{name}: {phrase}: {count} instead of {listed}\n  {places}"
            ));
        } else if count < listed {
            wrong.push(format!("{name}: {phrase}: lower {listed} to {count}"));
        }
    }
    let gone = listed
        .keys()
        .map(|(name, phrase)| format!("{name}: {phrase}: take the line out"));
    wrong.extend(gone);
    wrong
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
