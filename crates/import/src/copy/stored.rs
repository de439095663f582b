//! What is stored at the target about a copy: a note of the dataset.

use std::collections::BTreeMap;

use esker::{Error, Result};
use esker_store::Dataset;
use serde_json::{Value as Json, json};

/// The name of the note.
const NOTE: &str = "copy";

/// How far a part is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Done {
    /// All records before this mark of the source.
    Before(Vec<u8>),
    /// All records.
    All,
}

/// How far a copy is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stored {
    /// The address of the source.
    pub(super) from: String,
    /// By part; those that are missing were not begun.
    pub(super) parts: BTreeMap<u32, Done>,
    /// Records that are copied.
    pub(super) records: u64,
    /// Both sides were compared and equal.
    pub(super) is_complete: bool,
}

impl Stored {
    /// The note of a dataset.
    pub(super) fn read(dataset: &dyn Dataset) -> Result<Option<Stored>> {
        let Some(note) = dataset.notes()?.remove(NOTE) else {
            return Ok(None);
        };
        let stored = Stored::parse(&note).ok_or_else(|| Error::Damaged {
            path: None,
            offset: None,
            what: format!("the note of a copy of dataset `{}`", dataset.name()),
        });
        stored.map(Some)
    }

    /// Stores it, after all records that were written before.
    pub(super) fn write(&self, dataset: &dyn Dataset) -> Result<()> {
        let mut batch = dataset.batch();
        batch.note(NOTE, Some(self.text().as_bytes()))?;
        batch.commit()
    }

    fn text(&self) -> String {
        let parts = self.parts.iter().map(|(part, done)| {
            let done = match done {
                Done::Before(mark) => json!(hex(mark)),
                Done::All => Json::Bool(true),
            };
            (part.to_string(), done)
        });
        let parts: serde_json::Map<String, Json> = parts.collect();
        json!({
            "from": self.from, "parts": parts, "records": self.records, "complete": self.is_complete,
        })
        .to_string()
    }

    fn parse(note: &[u8]) -> Option<Stored> {
        let json: Json = serde_json::from_slice(note).ok()?;
        let parts = json["parts"].as_object()?.iter().map(|(part, done)| {
            let done = match done {
                Json::Bool(true) => Done::All,
                mark => Done::Before(bytes(mark.as_str()?)?),
            };
            Some((part.parse().ok()?, done))
        });
        Some(Stored {
            from: json["from"].as_str()?.to_string(),
            parts: parts.collect::<Option<_>>()?,
            records: json["records"].as_u64()?,
            is_complete: json["complete"].as_bool()?,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_again() {
        let stored = Stored {
            from: "cassandra://a/k".to_string(),
            parts: BTreeMap::from([(0, Done::All), (7, Done::Before(vec![0, 255, 16]))]),
            records: 12,
            is_complete: false,
        };
        assert_eq!(Stored::parse(stored.text().as_bytes()), Some(stored));
        for bad in [
            "",
            "{}",
            r#"{"from":"a","parts":{"x":true},"records":1,"complete":true}"#,
        ] {
            assert_eq!(Stored::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
