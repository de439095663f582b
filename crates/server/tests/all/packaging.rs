//! The guide's files are those of the repository.

use std::fs;
use std::path::{Path, PathBuf};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The block of the guide with this language behind a line that names a file.
fn block(guide: &str, file: &str, language: &str) -> String {
    let (_, behind) = guide.split_once(&format!("[{file}]")).unwrap();
    let (_, behind) = behind.split_once(&format!("```{language}\n")).unwrap();
    let (block, _) = behind.split_once("```").unwrap();
    block.to_string()
}

#[test]
fn the_guide_has_the_unit_and_the_container_as_they_are() {
    let guide = fs::read_to_string(top().join("docs/server.md")).unwrap();
    for (name, file, language) in [
        ("packaging/esker.service", "packaging/esker.service", "ini"),
        ("Containerfile", "Containerfile", "dockerfile"),
    ] {
        let text = fs::read_to_string(top().join(file)).unwrap();
        assert_eq!(block(&guide, name, language), text, "{file}");
    }
}
