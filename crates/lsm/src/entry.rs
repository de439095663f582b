//! The entries of a tree: (user key, sequence number, kind, value), and their order.

use std::cmp::Ordering;

/// A time in milliseconds since 1970.
pub type Time = u64;

/// Each write of a tree group takes the next number; entries of one write share it.
pub use ::esker_coding::Seq;
/// A seek to `(key, MAX_SEQ)` finds the newest entry of `key`.
pub use ::esker_coding::{MAX_SEQ, Position};

/// Longest user key of a tree, in bytes: an index value and a primary key of 64 KiB.
pub const MAX_KEY_LEN: usize = 256 << 10;

/// Longest value of a tree, in bytes (256 MiB).
pub const MAX_VALUE_LEN: usize = 256 << 20;

/// The kind of an entry. The numbers are on disk: never change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A tombstone (anti-matter in the papers): the key has no value from here on.
    Delete = 0,
    /// The key has this value from here on.
    Put = 1,
    /// A merge operand: appended blindly, combined with older entries of the key when read or
    /// merged.
    Operand = 2,
    /// The stored form of a put or operand that expires: kind and expiry time precede its value
    /// ([`Timed`]). Snapshots never return it: they return the put or operand, or hide it.
    Timed = 3,
}

/// The decoded value of an entry of [`Kind::Timed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed<'v> {
    /// Put or operand.
    pub kind: Kind,
    /// The time from which the entry is hidden.
    pub expires: Time,
    /// The value without kind and time.
    pub value: &'v [u8],
}

/// Length of the prefix of a timed entry's value.
pub(crate) const TIMED_LEN: usize = 8;

/// The latest expiry time.
pub const MAX_TIME: Time = (1 << 63) - 1;

impl<'v> Timed<'v> {
    /// Decodes a stored value; `None` when it is too short.
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

    /// The prefix of a stored value: the time, and the kind in the last bit.
    pub(crate) fn front(kind: Kind, expires: Time) -> [u8; TIMED_LEN] {
        let front = expires.min(MAX_TIME) << 1 | u64::from(kind == Kind::Operand);
        front.to_be_bytes()
    }

    /// Decodes an entry, expired or not; an untimed entry is returned as it is. A malformed stored
    /// value decodes as an empty one.
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
    /// The kind with the number `byte` on disk.
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

/// The order of entries: user keys ascending, and per key the newest first.
pub fn compare(a_key: &[u8], a_seq: Seq, b_key: &[u8], b_seq: Seq) -> Ordering {
    a_key.cmp(b_key).then_with(|| b_seq.cmp(&a_seq))
}

/// A sequence number as a key of a bitmap tree, in the same order.
pub fn seq_key(seq: Seq) -> [u8; 8] {
    seq.to_be_bytes()
}

/// The sequence number of such a key; `None` for other bytes.
pub fn key_seq(key: &[u8]) -> Option<Seq> {
    let bytes = key.first_chunk::<8>().filter(|_| key.len() == 8)?;
    Some(Seq::from_be_bytes(*bytes)).filter(|seq| *seq <= MAX_SEQ)
}
