//! Integers on disk (little-endian, and LEB128 varints; decoding never panics), sequence numbers
//! and positions, and bytes that share the memory of a cached block.
//!
//! A crate of its own, because the engine and the record model need it and neither depends on the
//! other.

mod list;
mod own;
mod position;
mod slice;

pub use list::ByteList;
pub use own::{Misplaced, Own};
pub use position::Position;
pub use slice::{Owner, Slice};

/// A sequence number: each write has one, a larger one is newer, and 0 precedes all of them.
pub type Seq = u64;

/// The largest sequence number; the remaining 8 of 64 bits hold the kind of the entry.
pub const MAX_SEQ: Seq = (1 << 56) - 1;

/// Appends `v` as a LEB128 varint (1 to 10 bytes).
pub fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Appends the length of `bytes` as a varint, then `bytes`.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads from the front of a byte slice. Each method returns `None`, and leaves the position
/// unspecified, when the bytes are malformed or too short.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True when all bytes are read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n)?;
        self.rest = tail;
        Some(head)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let (first, tail) = self.rest.split_first()?;
        self.rest = tail;
        Some(*first)
    }

    /// A little-endian `u32`.
    pub fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// A little-endian `u64`.
    pub fn u64(&mut self) -> Option<u64> {
        let bytes = self.take(8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// A LEB128 varint of at most 64 bits.
    #[inline(always)]
    pub fn varint(&mut self) -> Option<u64> {
        // Most varints have one or two bytes.
        match *self.rest {
            [a, ref rest @ ..] if a < 0x80 => {
                self.rest = rest;
                Some(u64::from(a))
            }
            [a, b, ref rest @ ..] if b < 0x80 => {
                self.rest = rest;
                Some(u64::from(a & 0x7f) | u64::from(b) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Option<u64> {
        let (mut v, mut shift) = (0, 0);
        loop {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return None;
            }
            v |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(v);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    /// Bytes prefixed with their length as a varint.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.varint()?).ok()?;
        self.take(n)
    }
}
