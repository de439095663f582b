//! What concerns all crates: which of their files use which, and their prose.

#[path = "../../../../tests/cycles.rs"]
mod cycles;
#[path = "../../../../tests/idioms.rs"]
mod idioms;
#[path = "../../../../tests/source.rs"]
mod source;

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
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
fn private_phrases_become_fewer() {
    assert_none(&idioms::wrong_counts(&root()));
}
