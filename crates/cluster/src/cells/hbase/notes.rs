//! A note of the index entries of a version, for the coprocessor: it removes them with the version,
//! and knows neither the fields of a record nor the layout of an index.
//!
//! ```text
//! note   for each entry: what its table's name adds to that of the versions, the HBase row of its
//!        partition, and its row without the end that follows from the version; each a varint of
//!        the length, then the bytes
//! ```

use esker_coding::put_varint;

use super::super::types::Write;
use super::names;

/// The bytes of the timestamp at the begin of a version's row.
const TIMESTAMP: usize = 8;

/// The note, or `None` if an entry is not as expected: a repair that reads the record finds it.
pub(super) fn note(version: &Write, entries: &[Write]) -> Option<Vec<u8>> {
    let (timestamp, _) = version.row.split_at_checked(TIMESTAMP)?;
    let length = u32::try_from(version.partition.len()).ok()?.to_be_bytes();
    let end = [timestamp, &version.partition, &length].concat();
    let mut note = Vec::new();
    for entry in entries {
        let table = entry.table.strip_prefix(&*version.table)?;
        let token = entry.row.strip_suffix(end.as_slice())?;
        let row = names::row(&entry.partition).ok()?;
        for part in [table.as_bytes(), &row, token] {
            put_varint(&mut note, part.len() as u64);
            note.extend_from_slice(part);
        }
    }
    Some(note)
}

/// Divides what is behind the first byte of a cell with a note into value and note.
pub(super) fn split(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, length) = rest.split_last_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    rest.split_at_checked(rest.len().checked_sub(length)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Version, entry_row};

    fn write(table: &str, partition: &[u8], row: Vec<u8>) -> Write {
        Write {
            table: table.into(),
            partition: partition.to_vec(),
            row,
            value: Some(Vec::new()),
            at: 7,
        }
    }

    #[test]
    fn a_note_has_what_does_not_follow_from_the_version() {
        let version = write("esker_1", b"key", Version::record(7).row());
        let entry = write(
            "esker_1_index_2_0",
            b"\0\0m",
            entry_row(b"token", 7, b"key"),
        );
        let found = note(&version, std::slice::from_ref(&entry)).unwrap();
        let row = names::row(b"\0\0m").unwrap();
        let expected = [b"\x0a_index_2_0\x04", &row[..], b"\x05token"].concat();
        assert_eq!(found, expected);
        assert_eq!(note(&version, &[]), Some(Vec::new()));
        let other = write("esker_1_index_2_0", b"", entry_row(b"token", 8, b"key"));
        assert_eq!(note(&version, &[entry, other]), None);
    }

    #[test]
    fn a_cell_is_divided() {
        assert_eq!(
            split(b"value|note\0\0\0\x05"),
            Some((&b"value"[..], &b"|note"[..]))
        );
        assert_eq!(split(b"n\0\0\0\x02"), None);
        assert_eq!(split(b"\0\0\0"), None);
    }
}
