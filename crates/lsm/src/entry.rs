//! What a tree stores: entries of (user key, sequence number, kind, value), and their order.

use std::cmp::Ordering;

/// A time: milliseconds since 1970.
pub type Time = u64;

/// A seek to `(key, MAX_SEQ)` finds the newest entry of `key`.
pub use ::coding::MAX_SEQ;
/// Every write operation of a tree group takes the next one; entries that belong to one operation share it.
pub use ::coding::Seq;

/// Longest user key of a tree, in bytes: a primary key of 64 KiB behind an index value.
pub const MAX_KEY_LEN: usize = 256 << 10;

/// Longest value of a tree, in bytes (256 MiB).
pub const MAX_VALUE_LEN: usize = 256 << 20;

/// What an entry says about its key. The numbers are on disk: never change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Tombstones (a tombstone): the key has no value from here on.
    Delete = 0,
    /// The key has this value from here on.
    Put = 1,
    /// A merge operand: appended blindly, combined with older entries of the key when read or merged.
    Operand = 2,
    /// As it is stored, a put or an operand that expires: which and when is in front of its value ([`Timed`]). Snapshots show
    /// none: they show what it stands for at their time.
    Timed = 3,
}

/// What the value of an entry of [`Kind::Timed`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed<'v> {
    /// Put or operand.
    pub kind: Kind,
    /// From then on nobody sees it.
    pub expires: Time,
    /// The value proper.
    pub value: &'v [u8],
}

/// Bytes in front of the value of a timed entry.
pub(crate) const TIMED_LEN: usize = 8;

/// The latest time that an entry may expire at.
pub const MAX_TIME: Time = (1 << 63) - 1;

impl<'v> Timed<'v> {
    /// Reads a stored value; `None` when it is too short to be one.
    #[inline]
    pub fn parse(stored: &'v [u8]) -> Option<Timed<'v>> {
        let (front, value) = stored.split_first_chunk::<TIMED_LEN>()?;
        let front = u64::from_be_bytes(*front);
        Some(Timed {
            kind: if front & 1 == 0 {
                Kind::Put
            } else {
                Kind::Operand
            },
            expires: front >> 1,
            value,
        })
    }

    /// What is in front of a stored value: the time, and in the last bit which of the two it is.
    pub(crate) fn front(kind: Kind, expires: Time) -> [u8; TIMED_LEN] {
        let front = expires.min(MAX_TIME) << 1 | u64::from(kind == Kind::Operand);
        front.to_be_bytes()
    }

    /// What an entry is, expired or not: itself, unless it is timed. A stored value that cannot be read is one of nothing.
    #[inline]
    pub(crate) fn of(kind: Kind, stored: &'v [u8]) -> (Kind, Option<Time>, &'v [u8]) {
        match kind {
            Kind::Timed => match Timed::parse(stored) {
                Some(timed) => (timed.kind, Some(timed.expires), timed.value),
                None => (Kind::Delete, None, &[]),
            },
            kind => (kind, None, stored),
        }
    }
}

impl Kind {
    /// The kind whose number on disk is `byte`.
    pub fn from_byte(byte: u8) -> Option<Kind> {
        match byte {
            0 => Some(Kind::Delete),
            1 => Some(Kind::Put),
            2 => Some(Kind::Operand),
            3 => Some(Kind::Timed),
            _ => None,
        }
    }
}

/// The order of entries everywhere: user keys ascending, and of one key the newest first.
pub fn compare(a_key: &[u8], a_seq: Seq, b_key: &[u8], b_seq: Seq) -> Ordering {
    a_key.cmp(b_key).then_with(|| b_seq.cmp(&a_seq))
}

/// A sequence number as the key of a bitmap tree: numbers ascend as their keys do.
pub fn seq_key(seq: Seq) -> [u8; 8] {
    seq.to_be_bytes()
}

/// The sequence number of such a key; `None` for other bytes.
pub fn key_seq(key: &[u8]) -> Option<Seq> {
    let bytes = key.first_chunk::<8>().filter(|_| key.len() == 8)?;
    Some(Seq::from_be_bytes(*bytes)).filter(|seq| *seq <= MAX_SEQ)
}

/// A place in the order of a store's commits: right behind the write `seq`. It names the store's history, so that it
/// is not taken for one of another store, or of a copy that went its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The store's history.
    pub history: u64,
    /// The last write before the place; 0 is before all.
    pub seq: Seq,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{}", self.history, self.seq)
    }
}

impl std::str::FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Position, String> {
        let parts = text
            .split_once('-')
            .filter(|(history, _)| history.len() == 16);
        let position = parts.and_then(|(history, seq)| {
            let history = u64::from_str_radix(history, 16).ok()?;
            let seq = seq.parse().ok().filter(|seq| *seq <= MAX_SEQ)?;
            Some(Position { history, seq })
        });
        position
            .ok_or_else(|| format!("`{text}` is no position: 16 hexadecimal digits, `-`, a number"))
    }
}
