//! The table of MQTT 5's statements (`docs/mqtt-conformance.md`) names tests that exist.

use std::collections::BTreeMap;
use std::path::Path;

/// The rows of a table whose first cell is a statement's number: the number, the tests.
fn rows(document: &str) -> Vec<(Vec<u32>, String)> {
    let rows = document.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let number = cells.next()?;
        let number: Result<Vec<u32>, _> = number.split(['.', '-']).map(str::parse).collect();
        Some((
            number.ok()?,
            cells.nth(1)?.trim_end_matches(" |").to_string(),
        ))
    });
    rows.collect()
}

/// Why a named test does not show anything; `None` if it exists.
fn wrong(folder: &Path, test: &str) -> Option<String> {
    let Some((file, name)) = test.split_once("::") else {
        return Some(format!("`{test}` is not a FILE::TEST"));
    };
    let source = std::fs::read_to_string(folder.join(format!("{file}.rs"))).unwrap_or_default();
    let is_there = source.contains(&format!("#[test]\nfn {name}() {{"));
    (!is_there).then(|| format!("there is no test `{test}`"))
}

#[test]
fn each_statement_has_a_test_that_is_there_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("../../docs/mqtt-conformance.md")).unwrap();
    let rows = rows(&document);
    let mut last = BTreeMap::new();
    for (number, tests) in &rows {
        let (n, section) = number.split_last().unwrap();
        // 2.2.1-1 does not exist.
        let first = if section == [2, 2, 1] { 1 } else { 0 };
        let before = last.insert(section, *n).unwrap_or(first);
        assert_eq!(*n, before + 1, "{section:?}");
        let mut named = tests.split('`').skip(1).step_by(2).peekable();
        if named.peek().is_none() {
            let reasons = ["client", "not offered", "not sent", "cannot be"];
            assert!(
                reasons.iter().any(|reason| tests.contains(reason)),
                "{number:?}"
            );
        }
        let folder = root.join("tests/all/mqtt");
        let wrong: Vec<String> = named.filter_map(|test| wrong(&folder, test)).collect();
        assert!(wrong.is_empty(), "{number:?}: {}", wrong.join("; "));
    }
    assert_eq!(rows.len(), 254);
    assert_eq!(rows.iter().map(|row| &row.0).max(), Some(&vec![7, 1, 2, 1]));
}

#[test]
fn rows_and_tests_are_read() {
    let document = "| number | asks | shown |\n| --- | --- | --- |\n| 1.5.4-1 | a | `b::c` |\n";
    assert_eq!(rows(document), [(vec![1, 5, 4, 1], "`b::c`".to_string())]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/mqtt");
    assert_eq!(wrong(&folder, "conformance::rows_and_tests_are_read"), None);
    assert!(wrong(&folder, "conformance::other").is_some());
    assert!(wrong(&folder, "conformance").is_some());
}
