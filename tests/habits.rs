//! Finds functions that are too long, silent defaults, matches on flags and definitions in a
//! `mod.rs` in the sources of the crates.

use std::path::Path;

use super::source::{files, split};

/// The most lines of a function, its signature included.
const LINES: usize = 100;

/// The name under which long functions are found.
const LONG: &str = "a function over 100 lines";

/// The name under which silent defaults are found: an item that the program itself has placed is
/// read by `esker_coding::Own`, whose absence is an error; where absence is an answer, the code
/// says which (`unwrap_or(&[])`).
const SILENT: &str = "a silent default for a missing item";

/// The crates that hold the bookkeeping of stores.
const STORES: [&str; 4] = ["lsm", "model", "pubsub", "records"];

/// The name under which matches on flags are found: a flag is asked by `if`.
const FLAG: &str = "a match on a flag";

/// The name under which definitions in a `mod.rs` are found.
const DEFINED: &str = "a definition in a mod.rs";

/// The parser of conditions cuts a text at the characters that it has read.
const PARSER: &str = "condition/parse.rs";

/// The lines of `code` that begin a function of more than [`LINES`] lines.
fn long_functions(code: &str) -> Vec<usize> {
    let lines: Vec<&str> = code.lines().collect();
    let mut long = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        // `pub(crate)` has a parenthesis of its own.
        let text = text.strip_prefix("pub").map_or(text, |rest| {
            let scope = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
            scope.map_or(rest, |(_, rest)| rest).trim_start()
        });
        let words = text.split('(').next().unwrap_or_default();
        if !words.split_whitespace().any(|word| word == "fn") || text.starts_with("type ") {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        let length = lines[at..].iter().position(|line| **line == end);
        if length.is_some_and(|length| length >= LINES) && !text.trim_end().ends_with(';') {
            long.push(at + 1);
        }
    }
    long
}

/// What code skips without a word when an item is missing.
const SKIPS: [&str; 5] = [
    "return;",
    "return false;",
    "return 0;",
    "continue;",
    "break;",
];

/// The lines of `code` with `.get(..)` of a slice, followed by `.unwrap_or_default()`, or by an
/// `else` that skips what was to be done, and with the first or the last of a list, followed by an
/// empty slice. Keys of maps are passed by reference, so their absence is
/// not meant.
fn silent_defaults(code: &str) -> Vec<usize> {
    let mut silent = Vec::new();
    for (at, _) in code.match_indices(".get") {
        let rest = &code[at + ".get".len()..];
        let rest = rest.strip_prefix("_mut").unwrap_or(rest);
        let Some(arguments) = rest.strip_prefix('(') else {
            continue;
        };
        let mut open = 1;
        let end = arguments.find(|c| {
            open += i32::from(c == '(') - i32::from(c == ')');
            open == 0
        });
        let Some(end) = end.filter(|end| *end > 0 && !arguments.starts_with('&')) else {
            continue;
        };
        let rest = arguments[end + 1..].trim_start();
        let rest = rest.strip_prefix(".copied()").unwrap_or(rest).trim_start();
        let skips = rest.strip_prefix("else {").map(str::trim_start);
        let skips = skips.is_some_and(|rest| SKIPS.iter().any(|skip| rest.starts_with(skip)));
        let is_silent = skips || rest.starts_with(".unwrap_or_default()");
        if is_silent && !arguments[..end].contains('"') {
            silent.push(line_of(code, at));
        }
    }
    for end in [".first()", ".last()"] {
        let ends = code.match_indices(end).map(|(at, _)| at);
        silent.extend(
            ends.filter(|at| {
                let rest = code[at + end.len()..].trim_start();
                rest.starts_with(".map_or(&[]") || rest.starts_with(".map_or(&[][..]")
            })
            .map(|at| line_of(code, at)),
        );
    }
    silent
}

/// The line of a place in `code`.
fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// The lines of `code` that are an arm for a flag alone, with or without a condition behind it.
fn flag_arms(code: &str) -> Vec<usize> {
    let is_arm = |line: &str| {
        let text = line.trim_start();
        let behind = text.strip_prefix("true").or(text.strip_prefix("false"));
        behind.is_some_and(|behind| {
            behind.starts_with(" =>") || behind.starts_with(" if ") && behind.contains(" =>")
        })
    };
    let lines = code.lines().zip(1..);
    lines
        .filter_map(|(line, at)| is_arm(line).then_some(at))
        .collect()
}

/// The lines of the `code` of a `mod.rs` that define something: it declares modules, re-exports and
/// explains.
fn definitions(code: &str) -> Vec<usize> {
    let defines = |line: &str| {
        let text = line.strip_prefix("pub").map_or(line, |rest| {
            let scope = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
            scope.map_or(rest, |(_, rest)| rest).trim_start()
        });
        let word = text.split([' ', '<']).next().unwrap_or_default();
        [
            "async", "const", "enum", "fn", "impl", "static", "struct", "trait",
        ]
        .contains(&word)
    };
    let lines = code.lines().zip(1..);
    lines
        .filter_map(|(line, at)| defines(line).then_some(at))
        .collect()
}

/// The places in the sources of the crates in `root` that have one of the habits.
pub(crate) fn places(root: &Path) -> Vec<String> {
    let mut places = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let entry = entry.unwrap();
        let folder = entry.path().join("src");
        if !folder.is_dir() {
            continue;
        }
        let name = entry.file_name();
        let is_store = STORES.iter().any(|store| name == *store);
        for (file, text) in files(&folder) {
            let code = split(&text).code;
            let is_test = file.contains("tests") || file.contains("fuzzing");
            let mut found: Vec<(&str, usize)> = Vec::new();
            if !is_test {
                found.extend(long_functions(&code).into_iter().map(|line| (LONG, line)));
            }
            found.extend(flag_arms(&code).into_iter().map(|line| (FLAG, line)));
            if !is_test && file.ends_with("mod.rs") {
                found.extend(definitions(&code).into_iter().map(|line| (DEFINED, line)));
            }
            if is_store && !is_test && file != PARSER {
                found.extend(
                    silent_defaults(&code)
                        .into_iter()
                        .map(|line| (SILENT, line)),
                );
            }
            for (habit, line) in found {
                places.push(format!("{}/{file}:{line}: {habit}", folder.display()));
            }
        }
    }
    places.sort();
    places
}

#[test]
fn habits_are_found_in_code_alone() {
    let body = "    x();\n".repeat(LINES - 1);
    let long = format!("fn short() {{\n}}\n\nfn long() {{\n{body}}}\n");
    assert_eq!(long_functions(&long), [4]);
    let scoped = format!("    pub(crate) fn long(x: u8) {{\n{body}    }}\n");
    assert_eq!(long_functions(&scoped), [1]);
    let fits = format!("fn fits() {{\n{}}}\n", "    x();\n".repeat(LINES - 2));
    assert!(long_functions(&fits).is_empty());
    let silent = "a.get(1..).unwrap_or_default();\nb.get(f(2))\n    .copied()\n    .unwrap_or_default();\nc.get(&key).copied().unwrap_or_default();\nd.get(1..).unwrap_or(&[]);";
    assert_eq!(silent_defaults(silent), [1, 2]);
    let skipped = "let Some(x) = a.get(1) else {\n    return;\n};\nlet Some(y) = b.get(&key) else {\n    continue;\n};\nlet Some(z) = c.get(2) else { break };\nlet Some(u) = d.get(3) else {\n    return Ok(());\n};";
    assert_eq!(silent_defaults(skipped), [1]);
    let ends = "a.first().map_or(&[][..], key);\nb.last()\n    .map_or(&[], key);\nc.first().map_or(0, len);";
    assert_eq!(silent_defaults(ends), [1, 2]);
    let flags = "match is_new {\n    true => 1,\n    false if x => 2,\n    _ => 3,\n}\nlet truth = \n    true;\n(true, _) => 4,\n";
    assert_eq!(flag_arms(flags), [2, 3]);
    let module = "//! fn\nmod a;\npub(crate) use a::fn_of;\npub(crate) const fn f() {}\nimpl<T> A {\n    fn g() {}\n}\nstruct B;\n";
    assert_eq!(definitions(module), [4, 5, 8]);
}
