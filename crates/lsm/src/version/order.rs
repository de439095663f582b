//! The stored order of commits, beside the commits themselves. Rewritten whole with each change; it
//! stays small, since all of its parts are bounded.
//!
//! ```text
//! order  history u64 | reserved varint
//!        | count varint, then of each: lost after varint, up to varint
//!        | count varint, then of each: segment number, after, last, length, ended varint
//!        | count varint, then of each: consumer's name bytes | position varint | most bytes varint
//! ```

use std::collections::BTreeMap;

use super::limits::MAX_FILE;
use crate::coding::{Reader, put_bytes, put_varint};
use crate::entry::{MAX_SEQ, Seq};

/// The most spans of lost numbers kept: the newest.
const MAX_LOST: usize = 64;

/// A log segment that is no longer written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClosedSegment {
    pub(crate) number: u64,
    /// The last write before its first.
    pub(crate) after: Seq,
    /// Its last write.
    pub(crate) last: Seq,
    /// Bytes up to the end of its last record.
    pub(crate) len: u64,
    /// When it was closed, in milliseconds since 1970.
    pub(crate) ended: u64,
}

/// The position of a named consumer of the log, and the most bytes of log retained for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) position: Seq,
    pub(crate) bytes: u64,
}

/// The stored order of a store's commits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Identifies the store's history; 0 while it has none.
    pub(crate) history: u64,
    /// Sequence numbers below this one may have been allocated, and seen, though no file has them.
    pub(crate) reserved: Seq,
    /// Numbers after the first and up to the second were allocated and lost in a power cut, or
    /// never used.
    pub(crate) lost: Vec<(Seq, Seq)>,
    /// Retained segments whose contents are all in tables, oldest first.
    pub(crate) kept: Vec<ClosedSegment>,
    /// By name.
    pub(crate) holds: BTreeMap<String, Hold>,
}

impl Order {
    /// Records that the numbers after `after` and up to `upto` are in no file.
    pub(crate) fn lose(&mut self, after: Seq, upto: Seq) {
        if after < upto {
            self.lost.push((after, upto));
            let old = self.lost.len().saturating_sub(MAX_LOST);
            self.lost.drain(..old);
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.history.to_le_bytes());
        put_varint(out, self.reserved);
        put_varint(out, self.lost.len() as u64);
        for (after, upto) in &self.lost {
            put_varint(out, *after);
            put_varint(out, *upto);
        }
        put_varint(out, self.kept.len() as u64);
        for kept in &self.kept {
            for field in [kept.number, kept.after, kept.last, kept.len, kept.ended] {
                put_varint(out, field);
            }
        }
        put_varint(out, self.holds.len() as u64);
        for (name, hold) in &self.holds {
            put_bytes(out, name.as_bytes());
            put_varint(out, hold.position);
            put_varint(out, hold.bytes);
        }
    }

    /// `None` when it is malformed.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Order> {
        let seq = |reader: &mut Reader<'_>| reader.varint().filter(|n| *n <= MAX_SEQ);
        let mut order = Order {
            history: reader.u64()?,
            reserved: seq(reader)?,
            ..Order::default()
        };
        for _ in 0..reader.varint()? {
            order.lost.push((seq(reader)?, seq(reader)?));
        }
        for _ in 0..reader.varint()? {
            let kept = ClosedSegment {
                number: reader.varint().filter(|n| *n <= MAX_FILE)?,
                after: seq(reader)?,
                last: seq(reader)?,
                len: reader.varint()?,
                ended: reader.varint()?,
            };
            let follows = order
                .kept
                .last()
                .is_none_or(|before| before.number < kept.number && before.last <= kept.after);
            if kept.after > kept.last || !follows {
                return None;
            }
            order.kept.push(kept);
        }
        for _ in 0..reader.varint()? {
            let name = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
            let hold = Hold {
                position: seq(reader)?,
                bytes: reader.varint()?,
            };
            order.holds.insert(name, hold);
        }
        Some(order)
    }
}
