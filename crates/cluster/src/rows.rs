//! The rows of records and of index entries, in bytes.
//!
//! ```text
//! record   partition: the encoded key
//!          row: timestamp, inverted (8 bytes, big-endian), so that the newest version comes first;
//!               then 1 for a record, 0 for a deletion
//!          value: the stored form of the record; empty for a deletion
//! entry    partition: 2 bytes of the shard, then the first token of the bucket
//!          row: token, timestamp (inverted), encoded key, length of the key (4 bytes, big-endian)
//!          value: empty
//! ```
//!
//! No token begins with another, so the entries of a token are adjacent, newest first.

use esker_coding::Seq;

use crate::error::{Error, Result};

const DELETED: u8 = 0;
const RECORD: u8 = 1;

/// A version of a record, or its deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) at: Seq,
    pub(crate) is_deletion: bool,
}

impl Version {
    pub(crate) fn record(at: Seq) -> Version {
        let is_deletion = false;
        Version { at, is_deletion }
    }

    pub(crate) fn deletion(at: Seq) -> Version {
        let is_deletion = true;
        Version { at, is_deletion }
    }

    /// The version of a row.
    pub(crate) fn of(row: &[u8]) -> Result<Version> {
        let (at, kind) = match row.split_last_chunk::<1>() {
            Some((at, [kind])) => (at.try_into(), *kind),
            None => return Err(damaged("row of a version")),
        };
        match (at, kind) {
            (Ok(at), RECORD) => Ok(Version::record(!u64::from_be_bytes(at))),
            (Ok(at), DELETED) => Ok(Version::deletion(!u64::from_be_bytes(at))),
            _ => Err(damaged("row of a version")),
        }
    }

    pub(crate) fn row(self) -> Vec<u8> {
        let kind = if self.is_deletion { DELETED } else { RECORD };
        [&newest_first(self.at)[..], &[kind]].concat()
    }
}

/// A timestamp in an order in which later ones come first.
pub(crate) fn newest_first(at: Seq) -> [u8; 8] {
    (!at).to_be_bytes()
}

/// The partition of a shard of a bucket.
pub(crate) fn entry_partition(shard: u16, bucket: &[u8]) -> Vec<u8> {
    [&shard.to_be_bytes(), bucket].concat()
}

/// The row of an entry.
pub(crate) fn entry_row(token: &[u8], at: Seq, key: &[u8]) -> Vec<u8> {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX).to_be_bytes();
    [token, &newest_first(at), key, &length].concat()
}

/// An index entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) token: &'a [u8],
    pub(crate) at: Seq,
    pub(crate) key: &'a [u8],
}

/// The entry of a row.
pub(crate) fn entry(row: &[u8]) -> Result<Entry<'_>> {
    let read = || {
        let (rest, length) = row.split_last_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let (rest, key) = rest.split_at_checked(rest.len().checked_sub(length)?)?;
        let (token, at) = rest.split_last_chunk::<8>()?;
        let at = !u64::from_be_bytes(*at);
        Some(Entry { token, at, key })
    };
    read().ok_or_else(|| damaged("row of an index entry"))
}

fn damaged(what: &str) -> Error {
    Error::Damaged(format!("the {what} is malformed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_token_are_newest_first() {
        let rows = [
            entry_row(b"a1", 9, b"k"),
            entry_row(b"a1", 8, b"z"),
            entry_row(b"a1", 8, b"zz"),
            entry_row(b"a2", 20, b""),
        ];
        assert!(rows.is_sorted());
        let found = entry(&rows[1]).unwrap();
        assert_eq!(
            (found.token, found.at, found.key),
            (&b"a1"[..], 8, &b"z"[..])
        );
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        fastrand::seed(7);
        for length in 0..64 {
            let bytes: Vec<u8> = (0..length).map(|_| fastrand::u8(..)).collect();
            let _ = (entry(&bytes), Version::of(&bytes));
            let _ = entry(&[bytes.as_slice(), &[0, 0, 0, fastrand::u8(..)]].concat());
        }
    }

    #[test]
    fn versions_are_newest_first() {
        assert!(Version::record(9).row() < Version::deletion(8).row());
        for version in [Version::record(9), Version::deletion(1 << 55)] {
            assert_eq!(Version::of(&version.row()), Ok(version));
        }
        assert!(Version::of(&[1; 8]).is_err());
        assert!(Version::of(&[7; 9]).is_err());
    }
}
