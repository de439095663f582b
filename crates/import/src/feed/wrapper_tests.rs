//! The first value of a source: a record, or an object around the records.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use super::{Event, Feed};
use crate::source::sources;

/// The records of a file with this text.
fn records(text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("in.json");
    std::fs::write(&path, text).unwrap();
    let mut feed = Feed::start(sources(&[path], None).unwrap());
    let mut records = Vec::new();
    while let Some(event) = feed.next() {
        match event {
            Event::Record { text, .. } => records.push(String::from_utf8_lossy(text).into_owned()),
            Event::Pause => {}
            other => records.push(format!("{other:?}")),
        }
    }
    records
}

/// The first of several records was taken apart if its only member was an array of objects.
#[test]
fn an_object_wraps_the_records_only_if_it_is_alone() {
    for (text, wanted) in [
        ("{\"a\":[{\"b\":1},{\"b\":2}]}", 2),
        ("{\"a\":[{\"b\":1},{\"b\":2}]}\n\n", 2),
        ("{\"a\":[\n{\"b\":1},\n{\"b\":2},\n{\"b\":3}]}\n", 3),
        (
            "{\"a\":[{\"b\":1},{\"b\":2},{\"b\":3}]}\n{\"a\":[{\"b\":3}]}\n",
            2,
        ),
        (
            "{\"a\":[{\"b\":1},{\"b\":2},{\"b\":3}]} {\"a\":[{\"b\":3}]}\n",
            2,
        ),
        (
            "{\"a\":[\n{\"b\":1},\n{\"b\":2},\n{\"b\":3}]\n}\n{\"a\":[\n{\"b\":3}]}\n",
            2,
        ),
    ] {
        assert_eq!(records(text).len(), wanted, "{text:?}: {:?}", records(text));
    }
}
