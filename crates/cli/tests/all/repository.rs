//! What concerns all crates: which of their files use which, their prose, and the documents about
//! them.

#[path = "../../../../tests/cycles.rs"]
mod cycles;
#[path = "../../../../tests/documents.rs"]
mod documents;
#[path = "../../../../tests/habits.rs"]
mod habits;
#[path = "../../../../tests/idioms.rs"]
mod idioms;
#[path = "../../../../tests/source.rs"]
mod source;

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    crates.parent().unwrap().to_path_buf()
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn files_use_each_other_in_no_cycle_that_is_not_listed() {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let mut folders: Vec<PathBuf> = crates.map(|entry| entry.unwrap().path()).collect();
    folders.push(root().join("bench"));
    let with_sources = folders.iter().filter(|folder| folder.join("src").is_dir());
    let wrong: Vec<String> = with_sources
        .flat_map(|folder| cycles::wrong_cycles(folder))
        .collect();
    assert_none(&wrong);
}

#[test]
fn no_private_phrase_and_no_wide_comment() {
    assert_none(&idioms::places(&root()));
}

#[test]
fn no_long_function_and_no_silent_default() {
    assert_none(&habits::places(&root()));
}

#[test]
fn links_lead_somewhere() {
    assert_none(&documents::wrong_links(&root()));
}

#[test]
fn documents_name_sources_that_are_there() {
    let mut wrong = documents::wrong_stations(&root(), "docs/tour.md");
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/tour.md"] {
        wrong.extend(documents::wrong_sources(&root(), document));
    }
    assert_none(&wrong);
}

#[test]
fn each_invariant_has_tests_that_are_there() {
    assert_none(&documents::wrong_tests(&root(), "docs/invariants.md"));
}

#[test]
fn the_architecture_stays_short() {
    assert_none(&documents::wrong_size(&root(), "ARCHITECTURE.md", 350, 120));
}
