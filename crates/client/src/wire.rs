//! What a client and a server send each other beside JSON: the documents of reads, and frames.
//!
//! **Frames** carry the rows of an answer and the writes of a batch: a byte for what it is, the
//! length of what follows in four bytes, the least significant first, and that. An answer begins
//! with [`HEAD`] and ends with [`END`], or with [`PROBLEM`]; without either it broke off.

use std::ops::Bound;

use esker::request::Aggregation;
use esker::space::Latest;
use esker::{ChangesFrom, Explain, Expr, Key, KeyType, PageToken, Path, Record, Request, Seq};
use serde::{Deserialize, Serialize};

/// The header of answers that says how many seconds a query may take, where that is more than
/// [`QUERY_SECONDS`]: so long a client waits.
pub const QUERY_TIME: &str = "esker-query-time";

/// How long a query may take unless a server says something else, in seconds.
pub const QUERY_SECONDS: u64 = 60;

/// The media type of frames.
pub const FRAMES: &str = "application/x-esker-rows";

/// The plan of an answer ([`Explain`] as JSON), before its first row.
pub const HEAD: u8 = b'h';
/// A record: sequence number, length of the key, encoded key, JSON.
pub const RECORD: u8 = b'r';
/// There is no such record, or no further version of a key.
pub const NONE: u8 = b'n';
/// An encoded key.
pub const KEY: u8 = b'k';
/// A distance, and a record.
pub const NEAR: u8 = b'd';
/// A group of an aggregation, encoded.
pub const GROUP: u8 = b'g';
/// A JSON document.
pub const JSON: u8 = b'j';
/// A change: kind, position, length of the key, key, and the new and the old record.
pub const CHANGE: u8 = b'c';
/// How many records are done, in eight bytes.
pub const PROGRESS: u8 = b'p';
/// The end of an answer ([`End`] as JSON).
pub const END: u8 = b'e';
/// The error that ended an answer, as the document of a problem.
pub const PROBLEM: u8 = b'x';

/// Of a batch: puts the record with this JSON.
pub const PUT: u8 = b'P';
/// Of a batch: inserts the record with this JSON.
pub const INSERT: u8 = b'I';
/// Of a batch: deletes the record with the key of this text.
pub const DELETE: u8 = b'D';
/// Of a batch: a sequence number, or [`NO_RECORD`], and the text of a key, whose record must be of
/// that write.
pub const EXPECT: u8 = b'E';
/// Of a batch: length of a name, name, value.
pub const NOTE: u8 = b'N';
/// Of a batch: the name of a note that is deleted.
pub const NO_NOTE: u8 = b'M';

/// The number of no write: there must be no record.
pub const NO_RECORD: Seq = Seq::MAX;

/// Which moment of a dataset is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// As it is now.
    #[default]
    Now,
    /// As it was in the named snapshot.
    Snapshot(String),
    /// As it was when this moment was taken.
    Moment(String),
}

/// A read of a dataset.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAt {
    /// The moment.
    #[serde(default)]
    pub at: At,
    /// What is read.
    pub read: Read,
}

/// One end of a range of keys, as texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyBound {
    /// There is none.
    #[default]
    Unbounded,
    /// The key is in the range.
    Included(String),
    /// The key is not in the range.
    Excluded(String),
}

impl KeyBound {
    /// As text.
    pub fn of(bound: &Bound<Key>) -> KeyBound {
        match bound {
            Bound::Unbounded => KeyBound::Unbounded,
            Bound::Included(key) => KeyBound::Included(key.to_string()),
            Bound::Excluded(key) => KeyBound::Excluded(key.to_string()),
        }
    }

    /// With its key, as `read` reads it.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<E>(&self, read: impl FnOnce(&str) -> Result<Key, E>) -> Result<Bound<Key>, E> {
        Ok(match self {
            KeyBound::Unbounded => Bound::Unbounded,
            KeyBound::Included(key) => Bound::Included(read(key)?),
            KeyBound::Excluded(key) => Bound::Excluded(read(key)?),
        })
    }
}

/// What is read of a dataset. Keys are texts, as in addresses.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Read {
    /// The records of keys.
    Get {
        /// The keys.
        keys: Vec<String>,
    },
    /// The records of a request.
    Find {
        /// The request.
        request: Request,
    },
    /// The keys of the records of a request.
    Keys {
        /// The request.
        request: Request,
    },
    /// The records of a request, as fast as they can be found in its order.
    Visit {
        /// The request.
        request: Request,
    },
    /// The number of the records of a request.
    Count {
        /// The request.
        request: Request,
    },
    /// How a request would be answered.
    Explain {
        /// The request.
        request: Request,
    },
    /// The records in a range of keys.
    Scan {
        /// The begin.
        #[serde(default)]
        from: KeyBound,
        /// The end.
        #[serde(default)]
        to: KeyBound,
        /// From the end to the begin.
        #[serde(default)]
        reverse: bool,
    },
    /// The latest versions of records.
    Versions {
        /// The keys.
        keys: Vec<String>,
        /// As of this write.
        as_of: Option<Seq>,
        /// How many of each.
        most: usize,
    },
    /// Versions by the values of their fields.
    VersionsWith {
        /// Paths and values.
        tokens: Vec<(Path, String)>,
        /// As of this write.
        as_of: Option<Seq>,
        /// How many of the latest versions of a record count.
        versions: usize,
        /// At most this many.
        limit: usize,
        /// Continues after a page.
        after: Option<esker::versions::ValueToken>,
    },
    /// The tables of a spatial index.
    TableBoxes {
        /// The path of the index.
        path: Path,
    },
    /// The records of a request nearest to a point.
    Nearest {
        /// The request.
        request: Request,
        /// The path of the points.
        path: Path,
        /// The point.
        from: (f64, f64),
        /// How many.
        k: usize,
        /// The largest distance.
        max: Option<f64>,
    },
    /// The records of a request by their distance from a point.
    ByDistance {
        /// The request.
        request: Request,
        /// The path of the points.
        path: Path,
        /// The point.
        from: (f64, f64),
    },
    /// The numbers of records of a request by the cells of a grid.
    Cells {
        /// The request.
        request: Request,
        /// The path of the points.
        path: Path,
        /// The size of a cell.
        degrees: f64,
    },
    /// The newest record of each value.
    LatestPer {
        /// The request.
        request: Request,
        /// The path of the values.
        path: Path,
        /// Which records count.
        latest: Latest,
    },
    /// Groups of records.
    Aggregate {
        /// The aggregation.
        aggregation: Aggregation,
    },
    /// The fields of the records, encoded, in hexadecimal digits; null if they are unknown.
    Fields,
}

/// The end of an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The plan and its costs.
    #[serde(default)]
    pub explain: Explain,
    /// The place behind the last row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<PageToken>,
    /// The place behind a page of versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<esker::versions::ValueToken>,
}

/// Where a feed of changes begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedFrom {
    /// With the oldest change in the log.
    Oldest,
    /// With the next new change.
    Now,
    /// Behind the write of this number.
    Seq(Seq),
    /// Behind this position.
    Position(String),
}

impl FeedFrom {
    /// As a document. A begin that this version does not know is the next change.
    pub fn of(from: ChangesFrom) -> FeedFrom {
        match from {
            ChangesFrom::Oldest => FeedFrom::Oldest,
            ChangesFrom::Seq(seq) => FeedFrom::Seq(seq),
            ChangesFrom::Position(position) => FeedFrom::Position(position.to_string()),
            _ => FeedFrom::Now,
        }
    }

    /// The begin.
    ///
    /// # Errors
    /// A sentence, for a position that is none.
    pub fn read(&self) -> Result<ChangesFrom, String> {
        Ok(match self {
            FeedFrom::Oldest => ChangesFrom::Oldest,
            FeedFrom::Now => ChangesFrom::Now,
            FeedFrom::Seq(seq) => ChangesFrom::Seq(*seq),
            FeedFrom::Position(position) => ChangesFrom::Position(position.parse()?),
        })
    }
}

/// A question for changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    /// Where they begin.
    pub from: FeedFrom,
    /// With the records that they replaced.
    #[serde(default)]
    pub with_old: bool,
    /// How long the server waits for one, in milliseconds.
    #[serde(default)]
    pub wait_ms: u64,
}

/// A deletion by a condition.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteWhere {
    /// The condition.
    pub condition: Expr,
}

/// Appends a frame.
///
/// # Errors
/// A sentence, if it is too large.
pub fn put_frame(kind: u8, parts: &[&[u8]], out: &mut Vec<u8>) -> Result<(), String> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).map_err(|_| "a row has more than 4 GiB".to_string())?;
    out.push(kind);
    out.extend_from_slice(&length.to_le_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    Ok(())
}

/// Appends the frame of a record.
///
/// # Errors
/// As [`put_frame`].
pub fn put_record(record: &Record, out: &mut Vec<u8>) -> Result<(), String> {
    let (seq, length) = record_head(record)?;
    let parts: [&[u8]; 4] = [&seq, &length, record.key().as_bytes(), record.json()];
    put_frame(RECORD, &parts, out)
}

/// Appends the frame of a record at a distance.
///
/// # Errors
/// As [`put_frame`].
pub fn put_near(distance: f64, record: &Record, out: &mut Vec<u8>) -> Result<(), String> {
    let (seq, length) = record_head(record)?;
    let distance = distance.to_le_bytes();
    let parts: [&[u8]; 5] = [
        &distance,
        &seq,
        &length,
        record.key().as_bytes(),
        record.json(),
    ];
    put_frame(NEAR, &parts, out)
}

fn record_head(record: &Record) -> Result<([u8; 8], [u8; 4]), String> {
    let length = u32::try_from(record.key().as_bytes().len());
    let length = length.map_err(|_| "a key has more than 4 GiB".to_string())?;
    Ok((record.seq().to_le_bytes(), length.to_le_bytes()))
}

/// Splits eight bytes off.
pub fn take_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

/// Splits bytes off, whose length is before them in four bytes.
pub fn take_bytes(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// The record in a frame; `None` if it is malformed.
pub fn read_record(key_type: KeyType, bytes: &[u8]) -> Option<Record> {
    let (seq, rest) = take_u64(bytes)?;
    let (key, json) = take_bytes(rest)?;
    let key = Key::from_encoded(key_type, key.to_vec());
    Some(Record::from_json(key, seq, json))
}

/// The record in a frame and its distance; `None` if it is malformed.
pub fn read_near(key_type: KeyType, bytes: &[u8]) -> Option<(f64, Record)> {
    let (distance, rest) = take_u64(bytes)?;
    Some((f64::from_bits(distance), read_record(key_type, rest)?))
}

/// The next of frames that are in memory: what it is, its bytes, and the rest. `None` if it is
/// malformed.
pub fn take_frame(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (frame, rest) = take_bytes(rest)?;
    Some((*kind, frame, rest))
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of hexadecimal digits.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |pair: &[u8; 2]| {
        let is_hex = pair.iter().all(u8::is_ascii_hexdigit);
        let pair = std::str::from_utf8(pair).ok().filter(|_| is_hex)?;
        u8::from_str_radix(pair, 16).ok()
    };
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let key = Key::parse(KeyType::String, "ann").unwrap();
        let record = Record::from_json(key, 7, br#"{"id":"ann"}"#);
        let mut out = Vec::new();
        put_record(&record, &mut out).unwrap();
        put_near(1.5, &record, &mut out).unwrap();
        let (kind, frame, rest) = take_frame(&out).unwrap();
        assert_eq!(kind, RECORD);
        assert_eq!(read_record(KeyType::String, frame).unwrap(), record);
        let (kind, frame, rest) = take_frame(rest).unwrap();
        assert_eq!((kind, rest.len()), (NEAR, 0));
        assert_eq!(read_near(KeyType::String, frame).unwrap(), (1.5, record));
        for cut in 0..out.len() {
            let whole = take_frame(out.get(..cut).unwrap());
            assert!(whole.is_none_or(|(kind, _, _)| kind == RECORD), "{cut}");
        }
        assert!(read_record(KeyType::Int, &[1; 9]).is_none());
    }

    #[test]
    fn hexadecimal_digits_are_read_as_they_were_written() {
        assert_eq!(from_hex(&hex(&[0, 1, 254])).unwrap(), [0, 1, 254]);
        for wrong in ["0", "0g", "+1", "\u{e9}"] {
            assert!(from_hex(wrong).is_none(), "{wrong}");
        }
    }
}
