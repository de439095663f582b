//! Checks what the documents of the repository name: links, source files, functions and tests are
//! there.

use std::path::{Path, PathBuf};

/// The documents, with their texts.
fn documents(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = ["", "bench", "bench/notebook", "docs"]
        .map(|folder| root.join(folder))
        .to_vec();
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    folders.extend(crates.map(|entry| entry.unwrap().path()));
    for folder in folders {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}

/// The lines of a document outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// What stands in backquotes in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// The links of all documents that lead nowhere.
pub(crate) fn wrong_links(root: &Path) -> Vec<String> {
    let documents = documents(root);
    let mut wrong = Vec::new();
    for (path, text) in &documents {
        let targets = prose(text).flat_map(|line| line.split("](").skip(1));
        for target in targets.filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let other = match file {
                "" => path.clone(),
                _ => path.parent().unwrap().join(file),
            };
            let is_there = match std::fs::read_to_string(&other) {
                Ok(text) => anchor.is_empty() || anchors(&text).iter().any(|its| its == anchor),
                Err(_) => other.is_dir() && anchor.is_empty(),
            };
            if !is_there {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    wrong
}

/// Where the documents' name of a source is: `lsm/wal/mod.rs` is `crates/lsm/src/wal/mod.rs`,
/// `lsm/tests/all/stop.rs` and `lsm/src/slice.rs` are in `crates`.
fn place(root: &Path, name: &str) -> Option<PathBuf> {
    let (first, rest) = name.split_once('/')?;
    let places = [
        root.join("crates").join(first).join("src").join(rest),
        root.join("crates").join(name),
        root.join(name),
    ];
    places.into_iter().find(|place| place.exists())
}

/// Whether something in backquotes is the name of a source file.
fn is_source(name: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/_.-".contains(c);
    name.ends_with(".rs") && name.contains('/') && name.chars().all(is_path)
}

/// The source files that `document` names and that are not there.
pub(crate) fn wrong_sources(root: &Path, document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root.join(document)).unwrap();
    let named = prose(&text).flat_map(quoted).filter(|name| is_source(name));
    let gone = named.filter(|name| place(root, name).is_none());
    gone.map(|name| format!("{document}: {name}")).collect()
}

/// Whether a source defines `name`, the last part of a path such as `Type::function`.
fn defines(source: &str, name: &str) -> bool {
    let name = name.rsplit("::").next().unwrap();
    let words = ["fn", "struct", "enum", "trait", "type", "const", "static"];
    words.iter().any(|word| {
        let definition = format!("{word} {name}");
        let mut at = source.match_indices(&definition);
        at.any(|(at, _)| {
            let next = source[at + definition.len()..].chars().next();
            next.is_none_or(|c| !c.is_alphanumeric() && c != '_')
        })
    })
}

/// The headings of `document` name a file, and behind it what is to be read in it: what of this is
/// not there.
pub(crate) fn wrong_stations(root: &Path, document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root.join(document)).unwrap();
    let mut wrong = Vec::new();
    for line in prose(&text).filter(|line| line.starts_with("##")) {
        let mut source = None;
        for name in quoted(line) {
            if is_source(name) {
                source = place(root, name).map(|path| std::fs::read_to_string(path).unwrap());
            } else if source.as_ref().is_some_and(|source| !defines(source, name)) {
                wrong.push(format!("{document}: {line}: {name}"));
            }
        }
    }
    wrong
}

/// Rows of `document` that name no test, or one that is not there: the last column has files or
/// folders of tests, and behind a file the names of tests in it.
pub(crate) fn wrong_tests(root: &Path, document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root.join(document)).unwrap();
    let mut wrong = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
        let [what, tests] = cells[..] else {
            wrong.push(format!("not two cells: {line}"));
            continue;
        };
        if what.starts_with("---") || what == "what must hold" {
            continue;
        }
        let mut source = None;
        for name in quoted(tests) {
            if !name.contains('/') {
                let is_there = source
                    .as_ref()
                    .is_some_and(|source: &String| source.contains(&format!("fn {name}(")));
                if !is_there {
                    wrong.push(format!("no test `{name}`: {what}"));
                }
                continue;
            }
            match place(root, name) {
                None => wrong.push(format!("no `{name}`: {what}")),
                Some(path) if path.is_dir() => source = None,
                Some(path) => source = Some(std::fs::read_to_string(path).unwrap()),
            }
        }
        if quoted(tests).next().is_none() {
            wrong.push(format!("no test: {what}"));
        }
    }
    wrong
}

/// Lines of `document` that are wider than `columns`, and whether it has more than `lines`.
pub(crate) fn wrong_size(root: &Path, document: &str, lines: usize, columns: usize) -> Vec<String> {
    let text = std::fs::read_to_string(root.join(document)).unwrap();
    let wide = text.lines().filter(|line| line.chars().count() > columns);
    let mut wrong: Vec<String> = wide
        .map(|line| format!("{document}: over {columns} columns: {line:.60}..."))
        .collect();
    if text.lines().count() > lines {
        wrong.push(format!("{document}: over {lines} lines"));
    }
    wrong
}

#[test]
fn definitions_and_anchors_are_found() {
    let source = "pub(crate) struct Part;\nimpl Part { pub fn put_all(&self) {} }";
    assert!(defines(source, "Part") && defines(source, "Part::put_all"));
    assert!(!defines(source, "Part::put"));
    let text = "# A `b`, c: 10 %\n```\n# no\n```\n## D-e";
    assert_eq!(anchors(text), ["a-b-c-10-", "d-e"]);
    assert_eq!(
        quoted("a `b/c.rs` d `e`").collect::<Vec<_>>(),
        ["b/c.rs", "e"]
    );
}
